/* Where a server listens: text to something that can be bound or connected to, checked before gRPC
 * or bind() see it. */
#ifndef TRP_CORE_ADDRESS_H
#define TRP_CORE_ADDRESS_H

#include <stdbool.h>
#include <stdint.h>

#include <troupe/status.h>

struct address {
    char *target; /* for gRPC: numeric host and port, or unix:PATH */
    char *path;   /* unix socket; NULL for TCP */
    char *host;   /* as clients should name it, with brackets where it has colons */
    uint16_t port;
    int guard; /* held while a stale unix socket is replaced; -1: none */
};

bool address_is_unix(const char *text); /* unix:PATH */

/* Parses and resolves `text`. INVALID_ARGUMENT: malformed, too long, or neither loopback nor unix
 * while not `insecure`; NOT_FOUND: an unknown host. */
TRP_MUST_USE trp_status address_init(struct address *address, const char *text, bool insecure);
void address_cleanup(struct address *address);

/* Makes sure that a bind will succeed, so that a failure gets a clear message. ALREADY_EXISTS
 * names the address and, where it can be found out, the owner's process id. The socket of a dead
 * process is no hindrance. */
TRP_MUST_USE trp_status address_claim(struct address *address);

/* Ends the claim of address_claim(), once the server listens. */
void address_claimed(struct address *address);

/* The text that clients use, given the port that was bound. The caller frees. */
char *address_text(const struct address *address, int port);

/* INVALID_ARGUMENT when `text` cannot be an address to connect to. */
TRP_MUST_USE trp_status address_check(const char *text);

struct sockaddr;
struct sockaddr_storage;

bool address_is_loopback(const struct sockaddr *address); /* and so of this host */

/* Numbers for connect(), and for bind() of an address that was claimed; `text` is `target` there.
 * The same failures as address_init(). */
TRP_MUST_USE trp_status address_resolve(const char *text, struct sockaddr_storage *storage,
                                        unsigned *size);

/* The process that listens on TCP `port`, 0 when it cannot be found out. */
long address_owner_of_port(uint16_t port);

#endif

/* Where a server listens: text to something that can be bound, checked before gRPC sees it. */
#ifndef TRP_RPC_ADDRESS_H
#define TRP_RPC_ADDRESS_H

#include <stdbool.h>
#include <stdint.h>

#include <troupe/status.h>

struct rpc_address {
    char *target; /* for gRPC: numeric host and port, or unix:PATH */
    char *path;   /* unix socket; NULL for TCP */
    char *host;   /* as clients should name it, with brackets where it has colons */
    uint16_t port;
    int guard; /* held while a stale unix socket is replaced; -1: none */
};

/* Parses and resolves `text`. INVALID_ARGUMENT: malformed, too long, or neither loopback nor unix
 * while not `insecure`; NOT_FOUND: an unknown host. */
TRP_MUST_USE trp_status rpc_address_init(struct rpc_address *address, const char *text,
                                         bool insecure);
void rpc_address_cleanup(struct rpc_address *address);

/* Makes sure that gRPC's bind will succeed, so that a failure gets a clear message. ALREADY_EXISTS
 * names the address and, where it can be found out, the owner's process id. The socket of a dead
 * process is no hindrance. */
TRP_MUST_USE trp_status rpc_address_claim(struct rpc_address *address);

/* Ends the claim of rpc_address_claim(), once the server listens. */
void rpc_address_claimed(struct rpc_address *address);

/* The text that clients use, given the port that was bound. The caller frees. */
char *rpc_address_text(const struct rpc_address *address, int port);

/* INVALID_ARGUMENT when `text` cannot be an address to connect to. */
TRP_MUST_USE trp_status rpc_address_check(const char *text);

/* The process that listens on TCP `port`, 0 when it cannot be found out. */
long rpc_owner_of_port(uint16_t port);

#endif

/* A socket of datagrams: what it sends may be lost, come twice or late. */
#ifndef TRP_LEARNER_MODES_DATAGRAMS_H
#define TRP_LEARNER_MODES_DATAGRAMS_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/socket.h>
#include <sys/types.h>

#include <troupe/status.h>

struct datagrams {
    int fd;
    char *address; /* others send there */
};

struct datagram_peer {
    struct sockaddr_storage name;
    unsigned bytes; /* of it */
};

/* On the host of `listen`, on a port of its own; where that is NULL or a unix socket, which has no
 * datagrams here, on 127.0.0.1. INVALID_ARGUMENT: as address_init(); UNAVAILABLE: there is no
 * socket. */
TRP_MUST_USE trp_status datagrams_open(struct datagrams *datagrams, const char *listen,
                                       bool insecure);
void datagrams_close(struct datagrams *datagrams); /* not opened, as it failed, is fine */

/* INVALID_ARGUMENT: the address is none. */
TRP_MUST_USE trp_status datagrams_find(struct datagram_peer *peer, const char *address);

/* Never waits: one that the system has no room for is lost, as others are. */
void datagrams_send(const struct datagrams *datagrams, const void *bytes, size_t size,
                    const struct datagram_peer *to);

/* Waits until one is there, for `ms` at most. */
bool datagrams_await(const struct datagrams *datagrams, int ms);

/* The bytes of the next one, of which `room` are stored; negative: there is none. */
ssize_t datagrams_take(const struct datagrams *datagrams, void *bytes, size_t room,
                       struct datagram_peer *from);

#endif

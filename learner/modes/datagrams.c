#include "datagrams.h"

#include <arpa/inet.h>
#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>

#include "core/address.h"
#include "core/file.h"

static trp_status bind_socket(struct datagrams *datagrams, const struct address *address)
{
    struct datagram_peer own;
    TRP_TRY(datagrams_find(&own, address->target));
    datagrams->fd = socket(own.name.ss_family, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    socklen_t size = sizeof own.name;
    if (datagrams->fd < 0 || bind(datagrams->fd, (struct sockaddr *)&own.name, own.bytes) != 0 ||
        getsockname(datagrams->fd, (struct sockaddr *)&own.name, &size) != 0)
        return trp_fail(file_errno_status(errno, TRP_UNAVAILABLE), "datagrams: address %s: %s",
                        address->target, strerror(errno));
    uint16_t port = own.name.ss_family == AF_INET6 ? ((struct sockaddr_in6 *)&own.name)->sin6_port
                                                   : ((struct sockaddr_in *)&own.name)->sin_port;
    datagrams->address = address_text(address, ntohs(port));
    return TRP_OK;
}

trp_status datagrams_open(struct datagrams *datagrams, const char *listen, bool insecure)
{
    struct address address;
    bool is_ip = listen && !address_is_unix(listen);
    *datagrams = (struct datagrams){.fd = -1};
    TRP_TRY(address_init(&address, is_ip ? listen : "127.0.0.1:0", insecure));
    trp_status status = bind_socket(datagrams, &address);
    address_cleanup(&address);
    return status;
}

void datagrams_close(struct datagrams *datagrams)
{
    fd_close(datagrams->fd);
    free(datagrams->address);
}

trp_status datagrams_find(struct datagram_peer *peer, const char *address)
{
    return address_resolve(address, &peer->name, &peer->bytes);
}

void datagrams_send(const struct datagrams *datagrams, const void *bytes, size_t size,
                    const struct datagram_peer *to)
{
    ssize_t sent = sendto(datagrams->fd, bytes, size, MSG_DONTWAIT | MSG_NOSIGNAL,
                          (const struct sockaddr *)&to->name, to->bytes);
    (void)sent;
}

bool datagrams_await(const struct datagrams *datagrams, int ms)
{
    struct pollfd ready = {.fd = datagrams->fd, .events = POLLIN};
    return poll(&ready, 1, ms) > 0;
}

ssize_t datagrams_take(const struct datagrams *datagrams, void *bytes, size_t room,
                       struct datagram_peer *from)
{
    socklen_t from_bytes = sizeof from->name;
    ssize_t size = recvfrom(datagrams->fd, bytes, room, MSG_DONTWAIT | MSG_TRUNC,
                            (struct sockaddr *)&from->name, &from_bytes);
    from->bytes = from_bytes;
    return size;
}

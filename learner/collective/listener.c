/* Listening, and connecting to who listens. */
#include "listener.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/address.h"
#include "core/alloc.h"
#include "core/file.h"

enum { BACKLOG = 1024 };

static uint16_t bound_port(int fd)
{
    struct sockaddr_storage name = {0};
    socklen_t size = sizeof name;
    getsockname(fd, (struct sockaddr *)&name, &size);
    return ntohs(name.ss_family == AF_INET6 ? ((struct sockaddr_in6 *)&name)->sin6_port
                                            : ((struct sockaddr_in *)&name)->sin_port);
}

/* Within a host a stream has no bottleneck to find: a congestion control that paces (BBR) only
 * makes it wait for its timers. Accepted sockets have their listener's. */
static void go_unpaced(int fd, const struct sockaddr *address)
{
    static const char name[] = "reno"; /* which every kernel has, for everybody */
    if (address_is_loopback(address))
        setsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, name, sizeof name - 1);
}

/* A unix socket that is there belongs to nobody who lives: address_claim() has looked. */
static trp_status listen_at(struct trp_collective_listener *listener, const struct address *address)
{
    struct sockaddr_storage name;
    unsigned size;
    TRP_TRY(address_resolve(address->target, &name, &size));
    listener->fd = socket(name.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (listener->fd < 0)
        return trp_fail(TRP_RESOURCE_EXHAUSTED, "socket: %s", strerror(errno));
    int yes = 1; /* connections that are closing do not count */
    setsockopt(listener->fd, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
    go_unpaced(listener->fd, (const struct sockaddr *)&name);
    if (address->path)
        unlink(address->path);
    if (address->path)
        fchmod(listener->fd, 0600); /* the file that bind() makes is the owner's alone */
    if (bind(listener->fd, (struct sockaddr *)&name, size) != 0 ||
        listen(listener->fd, BACKLOG) != 0)
        return trp_fail(file_errno_status(errno, TRP_UNAVAILABLE), "address %s: %s",
                        address->target, strerror(errno));
    listener->path = address->path ? xstrdup(address->path) : NULL;
    listener->address = address_text(address, address->path ? 0 : bound_port(listener->fd));
    return TRP_OK;
}

trp_status trp_collective_listener_create(trp_collective_listener **out, const char *address,
                                          bool insecure)
{
    struct trp_collective_listener *listener = xcalloc(1, sizeof *listener);
    listener->fd = -1;
    struct address parsed;
    trp_status status = address_init(&parsed, address ? address : "127.0.0.1:0", insecure);
    if (status == TRP_OK)
        status = address_claim(&parsed);
    if (status == TRP_OK)
        status = listen_at(listener, &parsed);
    address_cleanup(&parsed);
    if (status != TRP_OK) {
        trp_collective_listener_destroy(listener);
        listener = NULL;
    }
    *out = listener;
    return status;
}

const char *trp_collective_listener_address(const trp_collective_listener *listener)
{
    return listener->address;
}

void trp_collective_listener_destroy(trp_collective_listener *listener)
{
    if (!listener)
        return;
    if (listener->path)
        unlink(listener->path);
    fd_close(listener->fd);
    free(listener->path);
    free(listener->address);
    free(listener);
}

/* Small messages go at once. Of a unix socket it is no option, which is fine. */
static void send_at_once(int fd)
{
    int yes = 1;
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);
}

trp_status listener_dial(const char *address, int *fd)
{
    struct sockaddr_storage name;
    unsigned size;
    *fd = -1;
    TRP_TRY(address_resolve(address, &name, &size));
    *fd = socket(name.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (*fd < 0)
        return trp_fail(TRP_RESOURCE_EXHAUSTED, "socket: %s", strerror(errno));
    send_at_once(*fd);
    go_unpaced(*fd, (const struct sockaddr *)&name);
    if (connect(*fd, (struct sockaddr *)&name, size) == 0 || errno == EINPROGRESS)
        return TRP_OK;
    trp_status status = trp_fail(TRP_UNAVAILABLE, "address %s: %s", address, strerror(errno));
    fd_close(*fd);
    *fd = -1;
    return status;
}

int listener_accept(struct trp_collective_listener *listener)
{
    int fd = accept4(listener->fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (fd >= 0)
        send_at_once(fd);
    return fd;
}

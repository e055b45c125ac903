/* Problem: a channel keeps trying until its time is up, and then knows only that it did not come
 * up; whoever typed an address wants to know what is wrong with it, and at once. Design: a
 * connection of our own, tried before the channel's, on each address of the host. Guarantee: it
 * ends within the time given, apart from the resolver's own bound. */
#include "reach.h"

#include <errno.h>
#include <netdb.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "core/address.h"
#include "core/alloc.h"

/* 0 or an errno. */
static int connect_within(int family, const struct sockaddr *to, socklen_t size, int timeout_ms)
{
    int fd = socket(family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0), error = 0;
    if (fd < 0)
        return errno;
    if (connect(fd, to, size) != 0)
        error = errno;
    if (error == EINPROGRESS) {
        struct pollfd wait = {.fd = fd, .events = POLLOUT};
        socklen_t length = sizeof error;
        int ready = poll(&wait, 1, timeout_ms);
        if (ready <= 0)
            error = ready < 0 ? errno : ETIMEDOUT;
        else if (getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &length) != 0)
            error = errno;
    }
    close(fd);
    return error;
}

static trp_status refused(const char *address, int error, int timeout_ms)
{
    if (error == ECONNREFUSED)
        return trp_fail(TRP_UNAVAILABLE, "%s: connection refused: no server listens there",
                        address);
    if (error == ETIMEDOUT)
        return trp_fail(TRP_UNAVAILABLE, "%s: no answer in %g s", address, timeout_ms / 1000.0);
    return trp_fail(TRP_UNAVAILABLE, "%s: %s", address, strerror(error));
}

static trp_status reach_unix(const char *address, const char *path, int timeout_ms)
{
    struct sockaddr_un to = {.sun_family = AF_UNIX};
    snprintf(to.sun_path, sizeof to.sun_path, "%s", path);
    int error = connect_within(AF_UNIX, (const struct sockaddr *)&to, sizeof to, timeout_ms);
    if (error == EAGAIN) /* it listens, and many wait */
        error = 0;
    return error ? refused(address, error, timeout_ms) : TRP_OK;
}

trp_status reach(const char *address, int timeout_ms)
{
    if (address_is_unix(address))
        return reach_unix(address, address + 5, timeout_ms);
    const char *colon = strrchr(address, ':');
    if (!colon)
        return trp_fail(TRP_INVALID_ARGUMENT, "%s: an address looks like HOST:PORT", address);
    bool brackets = address[0] == '[' && colon > address && colon[-1] == ']';
    char *host = xasprintf("%.*s", (int)(colon - address) - 2 * brackets, address + brackets);
    const struct addrinfo hints = {.ai_socktype = SOCK_STREAM};
    struct addrinfo *found = NULL;
    int rc = getaddrinfo(host, colon + 1, &hints, &found), error = 0;
    free(host);
    if (rc == EAI_NONAME || rc == EAI_NODATA)
        return trp_fail(TRP_UNAVAILABLE, "%s: no such host", address);
    if (rc != 0)
        return trp_fail(TRP_UNAVAILABLE, "%s: %s", address, gai_strerror(rc));
    for (const struct addrinfo *each = found; each; each = each->ai_next) {
        error = connect_within(each->ai_family, each->ai_addr, each->ai_addrlen, timeout_ms);
        if (error == 0)
            break;
    }
    freeaddrinfo(found);
    return error ? refused(address, error, timeout_ms) : TRP_OK;
}

/* Problem: a channel keeps trying until its time is up, and then knows only that it did not come
 * up; whoever typed an address wants to know what is wrong with it. Design: a connection of our
 * own, beside the channel's, to each address of the host. Guarantee: it ends within the time given,
 * apart from the resolver's own bound, and changes no last error. */
#include "core/reach.h"

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

/* Words for an errno; NULL for 0. */
static char *refusal_words(int error, int timeout_ms)
{
    if (error == ECONNREFUSED)
        return xstrdup("connection refused: no server listens there");
    if (error == ETIMEDOUT)
        return xasprintf("no answer in %g s", timeout_ms / 1000.0);
    return error ? xstrdup(strerror(error)) : NULL;
}

static char *reach_unix(const char *path, int timeout_ms)
{
    struct sockaddr_un to = {.sun_family = AF_UNIX};
    snprintf(to.sun_path, sizeof to.sun_path, "%s", path);
    int error = connect_within(AF_UNIX, (const struct sockaddr *)&to, sizeof to, timeout_ms);
    if (error == EAGAIN) /* it listens, and many wait */
        error = 0;
    return refusal_words(error, timeout_ms);
}

char *reach(const char *address, int timeout_ms)
{
    if (address_is_unix(address))
        return reach_unix(address + 5, timeout_ms);
    const char *colon = strrchr(address, ':');
    if (!colon)
        return xstrdup("an address looks like HOST:PORT");
    bool brackets = address[0] == '[' && colon > address && colon[-1] == ']';
    char *host = xasprintf("%.*s", (int)(colon - address) - 2 * brackets, address + brackets);
    const struct addrinfo hints = {.ai_socktype = SOCK_STREAM};
    struct addrinfo *found = NULL;
    int rc = getaddrinfo(host, colon + 1, &hints, &found), error = 0;
    free(host);
    if (rc == EAI_NONAME || rc == EAI_NODATA)
        return xstrdup("no such host");
    if (rc != 0)
        return xstrdup(gai_strerror(rc));
    for (const struct addrinfo *each = found; each; each = each->ai_next) {
        error = connect_within(each->ai_family, each->ai_addr, each->ai_addrlen, timeout_ms);
        if (error == 0)
            break;
    }
    freeaddrinfo(found);
    return refusal_words(error, timeout_ms);
}

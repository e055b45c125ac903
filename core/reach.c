/* Problem: a channel keeps trying until its time is up, and then knows only that it did not come
 * up; whoever typed an address wants to know what is wrong with it. Design: a connection of our
 * own, beside the channel's, to each address of the host. Guarantee: it ends within the time given,
 * but for the resolver, which has a bound of its own and is asked only where the caller can wait
 * for it; it changes no last error. */
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
#include "core/clock.h"

/* 0 or an errno. */
static int connect_by(struct deadline deadline, int family, const struct sockaddr *to,
                      socklen_t size)
{
    int fd = socket(family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0), error = 0;
    if (fd < 0)
        return errno;
    if (connect(fd, to, size) != 0)
        error = errno;
    if (error == EINPROGRESS) {
        struct pollfd wait = {.fd = fd, .events = POLLOUT};
        socklen_t length = sizeof error;
        int ready = poll(&wait, 1, (int)deadline_left_ms(deadline, &clock_monotonic));
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
    int error = connect_by(deadline_in_ms(&clock_monotonic, timeout_ms), AF_UNIX,
                           (const struct sockaddr *)&to, sizeof to);
    if (error == EAGAIN) /* it listens, and many wait */
        error = 0;
    return refusal_words(error, timeout_ms);
}

static char *reach_host(const char *address, const char *colon, int timeout_ms, bool resolve)
{
    bool brackets = address[0] == '[' && colon > address && colon[-1] == ']';
    char *host = xasprintf("%.*s", (int)(colon - address) - 2 * brackets, address + brackets);
    const struct addrinfo hints = {.ai_socktype = SOCK_STREAM,
                                   .ai_flags = resolve ? 0 : AI_NUMERICHOST};
    struct addrinfo *found = NULL;
    int rc = getaddrinfo(host, colon + 1, &hints, &found), error = 0;
    free(host);
    if (rc == EAI_NONAME || rc == EAI_NODATA)
        return xstrdup(resolve ? "no such host" : "it is not connected");
    if (rc != 0)
        return xstrdup(gai_strerror(rc));
    struct deadline deadline = deadline_in_ms(&clock_monotonic, timeout_ms);
    for (const struct addrinfo *each = found; each; each = each->ai_next) {
        error = connect_by(deadline, each->ai_family, each->ai_addr, each->ai_addrlen);
        if (error == 0)
            break;
    }
    freeaddrinfo(found);
    return refusal_words(error, timeout_ms);
}

char *reach(const char *address, int timeout_ms, bool resolve)
{
    if (address_is_unix(address))
        return reach_unix(address + 5, timeout_ms);
    const char *colon = strrchr(address, ':');
    return colon ? reach_host(address, colon, timeout_ms, resolve)
                 : xstrdup("an address looks like HOST:PORT");
}

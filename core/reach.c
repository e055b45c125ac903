/* Problem: a channel keeps trying until its time is up, and then knows only that it did not come
 * up; whoever typed an address wants to know what is wrong with it. Design: a connection of our
 * own, beside the channel's, to each address of the host. The resolver keeps whom asks it for as
 * long as it likes, ten seconds and more where no name server answers: a thread asks that is left
 * to itself. Guarantee: it ends within the time given, and changes no last error. */
#include "core/reach.h"

#include <errno.h>
#include <netdb.h>
#include <poll.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "core/address.h"
#include "core/alloc.h"
#include "core/limits.h"
#include "core/status.h"
#include "core/thread.h"

/* ---- names --------------------------------------------------------------------------------- */

struct lookup {
    char *host, *port;
    struct mutex mutex;
    struct cond answered;
    struct addrinfo *found;
    int error;       /* EAI_...; 0: none */
    bool over, left; /* whoever comes second destroys it */
};

static atomic_uint lookups;

static void lookup_destroy(struct lookup *lookup)
{
    if (lookup->found)
        freeaddrinfo(lookup->found);
    cond_cleanup(&lookup->answered);
    mutex_cleanup(&lookup->mutex);
    free(lookup->host);
    free(lookup->port);
    free(lookup);
    atomic_fetch_sub(&lookups, 1);
}

static void lookup_run(void *arg)
{
    struct lookup *lookup = arg;
    const struct addrinfo hints = {.ai_socktype = SOCK_STREAM};
    struct addrinfo *found = NULL;
    int error = getaddrinfo(lookup->host, lookup->port, &hints, &found);
    mutex_lock(&lookup->mutex);
    lookup->found = error == 0 ? found : NULL;
    lookup->error = error;
    lookup->over = true;
    bool left = lookup->left;
    cond_signal(&lookup->answered);
    mutex_unlock(&lookup->mutex);
    if (left)
        lookup_destroy(lookup);
}

/* False: there is no thread for it. */
static bool lookup_start(struct lookup *lookup)
{
    trp_status code = status_last_code();
    char *kept = error_keep();
    struct thread thread = {0};
    bool started = thread_start(&thread, "lookup", lookup_run, lookup) == TRP_OK;
    thread_detach(&thread);
    (void)error_back(code, kept);
    return started;
}

/* NULL: too many are asked for, or what could be started was not; `host` is taken. */
static struct lookup *lookup_create(char *host, const char *port)
{
    struct lookup *lookup = xcalloc(1, sizeof *lookup);
    *lookup = (struct lookup){.host = host, .port = xstrdup(port)};
    mutex_init(&lookup->mutex);
    cond_init(&lookup->answered);
    if (atomic_fetch_add(&lookups, 1) < LOOKUPS_MAX && lookup_start(lookup))
        return lookup;
    lookup_destroy(lookup);
    return NULL;
}

/* 0, or EAI_...: EAI_AGAIN if it takes longer. The caller frees what was found; `host` is taken. */
static int name_look_up(char *host, const char *port, struct deadline deadline,
                        struct addrinfo **found)
{
    struct lookup *lookup = lookup_create(host, port);
    if (!lookup)
        return EAI_AGAIN;
    mutex_lock(&lookup->mutex);
    while (!lookup->over && !deadline_passed(deadline, &clock_monotonic))
        (void)cond_wait(&lookup->answered, &lookup->mutex, deadline);
    bool over = lookup->over;
    int error = over ? lookup->error : EAI_AGAIN;
    *found = lookup->found;
    lookup->found = NULL;
    lookup->left = true;
    mutex_unlock(&lookup->mutex);
    if (over)
        lookup_destroy(lookup);
    return error;
}

/* The same; numbers are no names, and take no time. */
static int host_look_up(char *host, const char *port, struct deadline deadline,
                        struct addrinfo **found)
{
    const struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_NUMERICHOST};
    int error = getaddrinfo(host, port, &hints, found);
    if (error == EAI_NONAME)
        return name_look_up(host, port, deadline, found);
    free(host);
    return error;
}

/* ---- connections --------------------------------------------------------------------------- */

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

/* To the first address that takes it, each within its part of what is left: 0 or an errno. */
static int connect_to_any(const struct addrinfo *found, struct deadline deadline)
{
    int left = 0, error = 0;
    for (const struct addrinfo *each = found; each; each = each->ai_next)
        left++;
    for (const struct addrinfo *each = found; each; each = each->ai_next, left--) {
        int timeout_ms = (int)deadline_left_ms(deadline, &clock_monotonic) / left;
        error = connect_within(each->ai_family, each->ai_addr, each->ai_addrlen, timeout_ms);
        if (error == 0)
            break;
    }
    return error;
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
    struct deadline deadline = deadline_in_ms(&clock_monotonic, timeout_ms);
    struct addrinfo *found = NULL;
    int rc = host_look_up(host, colon + 1, deadline, &found);
    if (rc == EAI_NONAME || rc == EAI_NODATA)
        return xstrdup("no such host");
    if (rc != 0)
        return xstrdup(gai_strerror(rc));
    int error = connect_to_any(found, deadline);
    freeaddrinfo(found);
    return refusal_words(error, timeout_ms);
}

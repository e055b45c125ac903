/* gRPC answers a failed bind with 0 and a log line, and unlinks a unix socket that somebody else
 * still uses. So addresses are tried here first: a TCP address is bound for a moment, a unix socket
 * is connected to. Between that and gRPC's own bind another server could come; for unix sockets,
 * where it would be unlinked silently, an abstract socket of the same name is held meanwhile. */
#include "core/address.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "core/alloc.h"
#include "core/limits.h"

static trp_status split_host_port(const char *text, char **host, uint16_t *port)
{
    const char *colon = strrchr(text, ':');
    const char *first = text, *end = colon;
    if (colon && text[0] == '[') {
        first++;
        end--;
    }
    bool bare_v6 = colon && text[0] != '[' && memchr(text, ':', (size_t)(colon - text));
    if (!colon || bare_v6 || end <= first || (text[0] == '[' && *end != ']'))
        return trp_fail(TRP_INVALID_ARGUMENT,
                        "address %s: write host:port, [v6]:port or unix:/path", text);
    char *after;
    errno = 0;
    unsigned long number = strtoul(colon + 1, &after, 10);
    if (colon[1] < '0' || colon[1] > '9' || *after || errno || number > UINT16_MAX)
        return trp_fail(TRP_INVALID_ARGUMENT, "address %s: the port is a number up to 65535", text);
    *host = xasprintf("%.*s", (int)(end - first), first);
    *port = (uint16_t)number;
    return TRP_OK;
}

bool address_is_unix(const char *text)
{
    return strncmp(text, "unix:", 5) == 0;
}

static trp_status check_path(const char *text)
{
    size_t length = strlen(text + 5);
    if (length == 0)
        return trp_fail(TRP_INVALID_ARGUMENT, "address %s: no path", text);
    if (length > UNIX_PATH_BYTES_MAX)
        return trp_fail(TRP_INVALID_ARGUMENT,
                        "address %s: the path has %zu bytes, a unix socket takes %d", text, length,
                        UNIX_PATH_BYTES_MAX);
    return TRP_OK;
}

trp_status address_check(const char *text)
{
    if (address_is_unix(text))
        return check_path(text);
    char *host = NULL;
    uint16_t port;
    TRP_TRY(split_host_port(text, &host, &port));
    free(host);
    if (port == 0)
        return trp_fail(TRP_INVALID_ARGUMENT, "address %s: port 0 is nobody's", text);
    return TRP_OK;
}

bool address_is_loopback(const struct sockaddr *address)
{
    if (address->sa_family == AF_INET)
        return ntohl(((const struct sockaddr_in *)address)->sin_addr.s_addr) >> 24 == 127;
    if (address->sa_family != AF_INET6)
        return false;
    const struct in6_addr *v6 = &((const struct sockaddr_in6 *)address)->sin6_addr;
    return IN6_IS_ADDR_LOOPBACK(v6);
}

static bool is_wildcard(const struct sockaddr *address)
{
    if (address->sa_family == AF_INET)
        return ((const struct sockaddr_in *)address)->sin_addr.s_addr == INADDR_ANY;
    return IN6_IS_ADDR_UNSPECIFIED(&((const struct sockaddr_in6 *)address)->sin6_addr);
}

static char *numeric_host(const struct addrinfo *info)
{
    char host[INET6_ADDRSTRLEN + 16] = "";
    getnameinfo(info->ai_addr, info->ai_addrlen, host, sizeof host, NULL, 0, NI_NUMERICHOST);
    return xasprintf(info->ai_family == AF_INET6 ? "[%s]" : "%s", host);
}

/* The address by which others call a server that listens everywhere. */
static char *name_of_this_host(void)
{
    char name[256] = "";
    struct addrinfo *found = NULL;
    if (gethostname(name, sizeof name - 1) != 0 || getaddrinfo(name, NULL, NULL, &found) != 0)
        return xstrdup("127.0.0.1");
    freeaddrinfo(found);
    return xstrdup(name);
}

static trp_status resolve(const char *text, const char *host, struct addrinfo **found)
{
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_PASSIVE};
    int rc = getaddrinfo(host, NULL, &hints, found);
    if (rc != 0)
        return trp_fail(TRP_NOT_FOUND, "address %s: %s", text, gai_strerror(rc));
    return TRP_OK;
}

trp_status address_resolve(const char *text, struct sockaddr_storage *storage, unsigned *size)
{
    memset(storage, 0, sizeof *storage);
    if (address_is_unix(text)) {
        TRP_TRY(check_path(text));
        struct sockaddr_un *name = (struct sockaddr_un *)storage;
        name->sun_family = AF_UNIX;
        memcpy(name->sun_path, text + 5, strlen(text + 5));
        *size = sizeof *name;
        return TRP_OK;
    }
    char *host = NULL;
    uint16_t port;
    struct addrinfo *found = NULL;
    TRP_TRY(split_host_port(text, &host, &port));
    trp_status status = resolve(text, host, &found);
    free(host);
    if (status != TRP_OK)
        return status;
    memcpy(storage, found->ai_addr, found->ai_addrlen);
    *size = found->ai_addrlen;
    if (found->ai_family == AF_INET6)
        ((struct sockaddr_in6 *)storage)->sin6_port = htons(port);
    else
        ((struct sockaddr_in *)storage)->sin_port = htons(port);
    freeaddrinfo(found);
    return TRP_OK;
}

static trp_status init_tcp(struct address *address, const char *text, bool insecure)
{
    char *host = NULL;
    struct addrinfo *found = NULL;
    trp_status status = split_host_port(text, &host, &address->port);
    if (status == TRP_OK)
        status = resolve(text, host, &found);
    if (status == TRP_OK && !address_is_loopback(found->ai_addr) && !insecure)
        status =
            trp_fail(TRP_INVALID_ARGUMENT,
                     "address %s is open to other hosts without TLS: use a loopback address or "
                     "unix:/path, or allow it with `insecure` (--insecure)",
                     text);
    if (status == TRP_OK) {
        char *numeric = numeric_host(found);
        address->target = xasprintf("%s:%u", numeric, address->port);
        address->host = is_wildcard(found->ai_addr) ? name_of_this_host() : xstrdup(numeric);
        free(numeric);
    }
    if (found)
        freeaddrinfo(found);
    free(host);
    return status;
}

trp_status address_init(struct address *address, const char *text, bool insecure)
{
    *address = (struct address){.guard = -1};
    if (!address_is_unix(text))
        return init_tcp(address, text, insecure);
    TRP_TRY(check_path(text));
    address->target = xstrdup(text);
    address->path = xstrdup(text + 5);
    return TRP_OK;
}

void address_cleanup(struct address *address)
{
    address_claimed(address);
    free(address->target);
    free(address->path);
    free(address->host);
}

void address_claimed(struct address *address)
{
    if (address->guard >= 0)
        close(address->guard);
    address->guard = -1;
}

char *address_text(const struct address *address, int port)
{
    if (address->path)
        return xstrdup(address->target);
    return xasprintf("%s:%d", address->host, port);
}

static trp_status errno_status(int error)
{
    switch (error) {
    case EACCES:
    case EPERM:
        return TRP_PERMISSION_DENIED;
    case ENOENT:
    case ENOTDIR:
        return TRP_NOT_FOUND;
    case EADDRINUSE:
        return TRP_ALREADY_EXISTS;
    default:
        return TRP_INVALID_ARGUMENT;
    }
}

static trp_status in_use(const struct address *address, long owner)
{
    if (owner > 0)
        return trp_fail(TRP_ALREADY_EXISTS, "address %s is in use by process %ld", address->target,
                        owner);
    return trp_fail(TRP_ALREADY_EXISTS, "address %s is in use", address->target);
}

static trp_status failed(const struct address *address, const char *what, int error)
{
    return trp_fail(errno_status(error), "address %s: %s: %s", address->target, what,
                    strerror(error));
}

static trp_status claim_tcp(struct address *address)
{
    if (address->port == 0)
        return TRP_OK;
    struct sockaddr_storage name;
    unsigned size;
    TRP_TRY(address_resolve(address->target, &name, &size));
    int fd = socket(name.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    int yes = 1; /* as gRPC does: connections that are closing do not count */
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
    trp_status status = TRP_OK;
    if (fd < 0 || bind(fd, (struct sockaddr *)&name, size) != 0)
        status = errno == EADDRINUSE ? in_use(address, address_owner_of_port(address->port))
                                     : failed(address, "bind", errno);
    if (fd >= 0)
        close(fd);
    return status;
}

/* A lock that the kernel drops with the process and that leaves no file: an abstract socket. */
static trp_status take_guard(struct address *address)
{
    uint64_t hash = 14695981039346656037U;
    for (const char *c = address->path; *c; c++)
        hash = (hash ^ (uint8_t)*c) * 1099511628211U;
    struct sockaddr_un name = {.sun_family = AF_UNIX};
    int length = snprintf(name.sun_path + 1, sizeof name.sun_path - 1, "troupe-bind-%016llx",
                          (unsigned long long)hash);
    address->guard = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (address->guard < 0)
        return failed(address, "socket", errno);
    socklen_t size = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)length);
    if (bind(address->guard, (struct sockaddr *)&name, size) != 0)
        return errno == EADDRINUSE ? in_use(address, 0) : failed(address, "guard", errno);
    return TRP_OK;
}

static long owner_of_socket(int fd)
{
    struct ucred peer;
    socklen_t size = sizeof peer;
    return getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &size) == 0 ? peer.pid : 0;
}

static trp_status check_directory(const struct address *address)
{
    char *slash = strrchr(address->path, '/');
    char *directory = slash && slash != address->path
                          ? xasprintf("%.*s", (int)(slash - address->path), address->path)
                          : xstrdup(slash ? "/" : ".");
    trp_status status = TRP_OK;
    if (access(directory, W_OK | X_OK) != 0)
        status = failed(address, directory, errno);
    free(directory);
    return status;
}

static trp_status claim_unix(struct address *address)
{
    TRP_TRY(take_guard(address));
    struct stat info;
    if (lstat(address->path, &info) != 0)
        return errno == ENOENT ? check_directory(address) : failed(address, "stat", errno);
    if (!S_ISSOCK(info.st_mode))
        return trp_fail(TRP_ALREADY_EXISTS, "address %s: a file that is no socket is there",
                        address->target);
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return failed(address, "socket", errno);
    struct sockaddr_un name = {.sun_family = AF_UNIX};
    memcpy(name.sun_path, address->path, strlen(address->path));
    trp_status status = TRP_OK;
    if (connect(fd, (struct sockaddr *)&name, sizeof name) == 0)
        status = in_use(address, owner_of_socket(fd));
    else if (errno != ECONNREFUSED) /* refused: nobody listens; gRPC unlinks it */
        status = failed(address, "connect", errno);
    close(fd);
    return status == TRP_OK ? check_directory(address) : status;
}

trp_status address_claim(struct address *address)
{
    return address->path ? claim_unix(address) : claim_tcp(address);
}

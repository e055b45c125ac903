/* The launcher and its children talk while servers come up, fail and go: so the channel is the
 * plainest there is. Packets need no framing and are never torn; text can be read in strace. Both
 * ends are non-blocking: a node that is stopped by a debugger cannot hold the launcher. */
#include "control.h"

#include <dlfcn.h>
#include <elf.h>
#include <errno.h>
#include <link.h>
#include <poll.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "core/clock.h"
#include "core/hash.h"
#include "limits.h"

static const char *const verbs[] = {"hello",     "ready",    "report",     "program",  "failed",
                                    "done",      "announce", "broken",     "over",     "missed",
                                    "begun",     "peer",     "gone",       "stop",     "start",
                                    "publisher", "member",   "generation", "dismissed"};
enum { VERB_COUNT = sizeof verbs / sizeof verbs[0] };

trp_status control_pair(int fds[2])
{
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, fds) != 0)
        return trp_fail(TRP_RESOURCE_EXHAUSTED, "socketpair: %s", strerror(errno));
    return TRP_OK;
}

static trp_status send_packet(int fd, int64_t timeout_ms, const char *data, size_t size)
{
    struct deadline deadline = deadline_in_ms(&clock_monotonic, timeout_ms);
    for (;;) {
        if (send(fd, data, size, MSG_NOSIGNAL) == (ssize_t)size)
            return TRP_OK;
        if (errno == EINTR)
            continue;
        if (errno != EAGAIN && errno != ENOBUFS)
            return trp_fail(TRP_UNAVAILABLE, "control socket: %s", strerror(errno));
        int64_t left_ms = deadline_left_ns(deadline, &clock_monotonic) / 1000000;
        if (left_ms == 0)
            return trp_fail(TRP_DEADLINE_EXCEEDED, "control socket: no room");
        struct pollfd poll_fd = {.fd = fd, .events = POLLOUT};
        poll(&poll_fd, 1, left_ms > 100 ? 100 : (int)left_ms);
    }
}

trp_status control_send(int fd, int64_t timeout_ms, enum control_verb verb, uint32_t node,
                        const char *format, ...)
{
    char packet[CONTROL_MESSAGE_BYTES_MAX];
    int used = snprintf(packet, sizeof packet, "%s %u ", verbs[verb], node);
    va_list args;
    va_start(args, format);
    int more = vsnprintf(packet + used, sizeof packet - (size_t)used, format, args);
    va_end(args);
    size_t size = (size_t)used + (more > 0 ? (size_t)more : 0);
    if (size > sizeof packet - 1)
        size = sizeof packet - 1;
    return send_packet(fd, timeout_ms, packet, size);
}

static bool control_parse(struct control_message *message)
{
    char *space = strchr(message->bytes, ' ');
    if (!space)
        return false;
    *space = '\0';
    char *end;
    unsigned long node = strtoul(space + 1, &end, 10);
    if (end == space + 1 || *end != ' ' || node >= PROGRAM_NODES_MAX)
        return false;
    message->node = (uint32_t)node;
    message->rest = end + 1;
    for (int verb = 0; verb < VERB_COUNT; verb++) {
        if (strcmp(verbs[verb], message->bytes) == 0) {
            message->verb = (enum control_verb)verb;
            return true;
        }
    }
    return false;
}

trp_status control_receive(int fd, struct control_message *message)
{
    ssize_t size;
    /* A peer that closes before it has read everything resets the connection: said once, before
     * the packets that it sent. */
    do
        size = recv(fd, message->bytes, sizeof message->bytes - 1, 0);
    while (size < 0 && (errno == EINTR || errno == ECONNRESET));
    if (size < 0 && errno == EAGAIN)
        return TRP_DEADLINE_EXCEEDED;
    if (size <= 0)
        return trp_fail(TRP_UNAVAILABLE, "control socket: %s", size ? strerror(errno) : "closed");
    message->bytes[size] = '\0';
    if (!control_parse(message))
        return trp_fail(TRP_INVALID_ARGUMENT, "control socket: '%.80s' is no message",
                        message->bytes);
    return TRP_OK;
}

/* ---- build id ---------------------------------------------------------------------------- */

struct build_ids {
    uint64_t hash;
    ElfW(Addr) library; /* an address inside this library */
};

static void hash_notes(uint64_t *hash, const char *notes, size_t size)
{
    size_t at = 0;
    while (at + sizeof(ElfW(Nhdr)) <= size) {
        ElfW(Nhdr) note;
        memcpy(&note, notes + at, sizeof note);
        size_t name = (note.n_namesz + 3u) & ~3u, desc = (note.n_descsz + 3u) & ~3u;
        at += sizeof note;
        if (name > size - at || desc > size - at - name)
            return;
        if (note.n_type == NT_GNU_BUILD_ID)
            *hash = hash_bytes(*hash, notes + at + name, note.n_descsz);
        at += name + desc;
    }
}

/* The executable comes first and has no name; of the libraries only ours counts. */
static int visit(struct dl_phdr_info *info, size_t size, void *memory)
{
    (void)size;
    struct build_ids *ids = memory;
    bool wanted = info->dlpi_name[0] == '\0';
    for (int i = 0; i < info->dlpi_phnum; i++) {
        const ElfW(Phdr) *header = &info->dlpi_phdr[i];
        wanted |= header->p_type == PT_LOAD &&
                  ids->library - (info->dlpi_addr + header->p_vaddr) < header->p_memsz;
    }
    for (int i = 0; wanted && i < info->dlpi_phnum; i++) {
        const ElfW(Phdr) *header = &info->dlpi_phdr[i];
        if (header->p_type == PT_NOTE)
            hash_notes(&ids->hash, (const char *)info->dlpi_addr + header->p_vaddr,
                       header->p_memsz);
    }
    return 0;
}

void control_build_id(char *text, size_t size)
{
    struct build_ids ids = {.library = (ElfW(Addr)) & verbs};
    ids.hash = hash_bytes(HASH_BYTES_EMPTY, TRP_VERSION, sizeof TRP_VERSION - 1);
    dl_iterate_phdr(visit, &ids);
    snprintf(text, size, "%016lx", (unsigned long)ids.hash);
}

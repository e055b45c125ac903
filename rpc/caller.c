/* "troupe:NAME:PID", which gRPC puts first in the user agent; a blank ends it. */
#include "caller.h"

#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/alloc.h"
#include "core/limits.h"

#define AGENT_PREFIX "troupe:"
enum { PREFIX_BYTES = sizeof AGENT_PREFIX - 1 };

/* A header has printable ASCII only; text from outside is shown on terminals. */
static bool is_plain(char c)
{
    return c > ' ' && c < 0x7f;
}

char *rpc_caller_agent(const char *name)
{
    if (!name || !*name)
        name = program_invocation_short_name;
    char *agent =
        xasprintf(AGENT_PREFIX "%.*s:%ld", (int)NODE_NAME_BYTES_MAX, name, (long)getpid());
    for (char *at = agent; *at; at++)
        *at = is_plain(*at) ? *at : '?';
    return agent;
}

grpc_slice rpc_caller_slice(const grpc_metadata_array *metadata)
{
    for (size_t i = 0; i < metadata->count; i++) {
        grpc_slice value = metadata->metadata[i].value;
        if (grpc_slice_str_cmp(metadata->metadata[i].key, "user-agent") == 0 &&
            GRPC_SLICE_LENGTH(value) > PREFIX_BYTES &&
            memcmp(GRPC_SLICE_START_PTR(value), AGENT_PREFIX, PREFIX_BYTES) == 0)
            return grpc_slice_ref(value);
    }
    return grpc_empty_slice();
}

char *rpc_caller_peer(grpc_slice agent, const char *address)
{
    char name[NODE_NAME_BYTES_MAX + 24] = "";
    size_t size = 0;
    for (size_t i = PREFIX_BYTES; i < GRPC_SLICE_LENGTH(agent) && size < sizeof name - 1; i++) {
        char c = (char)GRPC_SLICE_START_PTR(agent)[i];
        if (c == ' ')
            break;
        name[size++] = is_plain(c) ? c : '?';
    }
    char *pid = strrchr(name, ':');
    if (!pid)
        return xstrdup(address);
    *pid++ = '\0';
    if (strcmp(address, "unix:") == 0)
        return xasprintf("%s (pid %s)", name, pid);
    return xasprintf("%s (pid %s) at %s", name, pid, address);
}

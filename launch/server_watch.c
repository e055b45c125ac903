#include "server_watch.h"

#include <inttypes.h>
#include <stdio.h>

#include <troupe/log.h>
#include "control.h"
#include "graph.h"
#include "host.h"

static uint32_t server_number(const trp_context *context, size_t server)
{
    const trp_node servers = context->group->options.learner.server;
    return program_group(context->host->options.program, servers)->first + (uint32_t)server;
}

static bool watched_is_gone(void *watcher, size_t server, char *how, size_t size)
{
    const trp_context *context = watcher;
    struct host *host = context->host;
    mutex_lock(&host->mutex);
    const char *gone = host->peers[server_number(context, server)].gone;
    if (gone)
        snprintf(how, size, "%s", gone);
    mutex_unlock(&host->mutex);
    return gone != NULL;
}

static void watched_is_missed(void *watcher, size_t server, const char *why)
{
    const trp_context *context = watcher;
    if (control_send(context->host->options.control_fd, CONTROL_SEND_MS, CONTROL_MISSED,
                     context->number, "%" PRIu32 " %s", server_number(context, server),
                     why) != TRP_OK)
        trp_log(TRP_WARN, "the launcher was not told of a missed server why=%s reason=%s", why,
                trp_last_error());
}

trp_server_watch server_watch(trp_context *context)
{
    if (context->host->options.launcher == 0)
        return (trp_server_watch){0};
    return (trp_server_watch){
        .is_gone = watched_is_gone, .miss = watched_is_missed, .watcher = context};
}

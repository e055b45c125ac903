/* A process of the program has one thread per node and one more, usually the main thread, that
 * talks to the launcher: it can always answer, whatever the nodes do, and a node that hangs cannot
 * keep the process alive when the launcher is gone.
 *
 * Nodes of a lower stop level end before those of a higher one. The launcher sees to it between
 * processes; inside one process it happens here, on the thread of the node that ended last, so that
 * a deterministic run ends the same way every time. */
#include "host.h"

#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include "control.h"
#include "core/alloc.h"
#include "core/log.h"
#include "core/status.h"
#include "run_dir.h"
#include "limits.h"

struct member {
    trp_context context;
    struct thread thread;
    int log_fd;             /* -1: its log is not kept here */
    bool started, reported; /* the loop's thread */
    bool finished;          /* guarded by host->mutex */
};

static struct member *find_member(struct host *host, uint32_t number)
{
    uint32_t at = number - host->options.first;
    return at < host->options.count ? &host->members[at] : NULL;
}

trp_context *host_context(struct host *host, uint32_t number)
{
    struct member *member = find_member(host, number);
    return member ? &member->context : NULL;
}

/* ---- stop -------------------------------------------------------------------------------- */

void host_stop_member_locked(struct host *host, uint32_t number)
{
    struct member *member = find_member(host, number);
    if (!member)
        return;
    trp_stop_request(member->context.stop);
    cond_broadcast(&host->changed);
}

static bool runs_everything(const struct host *host)
{
    return host->options.count == host->options.program->node_count;
}

static void stop_level_locked(struct host *host, uint32_t level)
{
    for (uint32_t i = 0; i < host->options.count; i++)
        if (host->members[i].context.group->level == level)
            host_stop_member_locked(host, host->members[i].context.number);
}

void host_program_stops(struct host *host)
{
    if (!runs_everything(host))
        return;
    mutex_lock(&host->mutex);
    stop_level_locked(host, 0);
    mutex_unlock(&host->mutex);
}

/* One that failed may begin again: that is for the launcher to say, and else it stops the rest. */
static bool level_is_over_locked(const struct host *host, uint32_t level)
{
    for (uint32_t i = 0; i < host->options.count; i++) {
        const struct member *member = &host->members[i];
        if (member->context.group->level == level && (!member->finished || member->context.failed))
            return false;
    }
    return true;
}

/* Nodes whose users have all ended have nobody left to work for. */
static void advance_stop_locked(struct host *host)
{
    if (!runs_everything(host))
        return;
    for (uint32_t level = 0; level < host->options.program->group_count; level++) {
        if (!level_is_over_locked(host, level))
            return;
        stop_level_locked(host, level + 1);
    }
}

/* ---- members ----------------------------------------------------------------------------- */

static void wake(struct host *host)
{
    uint64_t one = 1;
    ssize_t written = write(host->wake.fd, &one, sizeof one);
    assert(written == sizeof one);
}

/* A body may fail without words: those of another failure would mislead. */
static char *words_of(trp_status status)
{
    if (status_last_code() == status)
        return error_keep();
    return xasprintf("it returned %s, and no trp_fail() said why; the last words were: %s",
                     trp_status_name(status), trp_last_error());
}

static void say_gone_locked(struct host *host, uint32_t number, char *gone)
{
    free(host->peers[number].gone);
    host->peers[number].gone = gone;
    cond_broadcast(&host->changed);
}

void context_ended(trp_context *context, trp_status status)
{
    struct host *host = context->host;
    /* A wait that the stop ended is not a failure. */
    bool stopped = status == TRP_CANCELLED && trp_stop_requested(context->stop);
    if (status == TRP_OK || stopped || context->failed)
        return;
    context->failed = true;
    char *error = words_of(status);
    trp_status sent = control_send(host->options.control_fd, CONTROL_SEND_MS, CONTROL_FAILED,
                                   context->number, "%d %s", (int)status, error);
    if (sent != TRP_OK)
        trp_log(TRP_WARN, "%s: the launcher was not told why it failed: %s", context->name, error);
    mutex_lock(&host->mutex);
    say_gone_locked(host, context->number, xasprintf("it failed: %s", error));
    mutex_unlock(&host->mutex);
    free(error);
}

static void finish_member(struct member *member, trp_status status)
{
    struct host *host = member->context.host;
    context_ended(&member->context, status);
    context_close(&member->context);
    mutex_lock(&host->mutex);
    if (!member->context.failed)
        say_gone_locked(host, member->context.number, xstrdup("it has ended"));
    member->finished = true;
    cond_broadcast(&host->changed);
    advance_stop_locked(host);
    mutex_unlock(&host->mutex);
}

static void run_member(void *arg)
{
    struct member *member = arg;
    struct host *host = member->context.host;
    if (host->turns)
        turns_join(host->turns, member->context.number);
    if (host->options.keep_logs)
        trp_log_set_node(member->context.name);
    log_set_sink(member->log_fd);
    finish_member(member, node_run(&member->context));
    turns_leave();
    wake(host);
}

static void send_metrics(struct host *host, trp_context *context)
{
    mutex_lock(&context->mutex);
    if (context->poll)
        context->poll(&context->metrics, context->polled);
    for (size_t i = 0; i < context->metrics.count; i++) {
        struct metric *metric = &context->metrics.metrics[i];
        if (metric->count == 0)
            continue;
        trp_status status = control_send(host->options.control_fd, 0, CONTROL_REPORT,
                                         context->number, "%s %.17g %.17g %" PRIu64, metric->name,
                                         metric->last, metric->sum, metric->count);
        if (status != TRP_OK)
            break; /* the values stay and go with the next ones */
        metric_taken(metric);
    }
    mutex_unlock(&context->mutex);
}

static void report_end(struct host *host, struct member *member)
{
    uint32_t number = member->context.number;
    thread_stop(&member->thread);
    send_metrics(host, &member->context);
    if (control_send(host->options.control_fd, CONTROL_SEND_MS, CONTROL_DONE, number, "-") !=
        TRP_OK)
        trp_log(TRP_WARN, "%s: the launcher was not told of the end", member->context.name);
    host->failed |= member->context.failed;
    member->reported = true;
    host->ended++;
}

static void report_ends(struct host *host)
{
    for (uint32_t i = 0; i < host->options.count; i++) {
        struct member *member = &host->members[i];
        mutex_lock(&host->mutex);
        bool due = member->started && member->finished && !member->reported;
        mutex_unlock(&host->mutex);
        if (due)
            report_end(host, member);
    }
}

/* ---- a member again ---------------------------------------------------------------------- */

static void start_member(struct member *member)
{
    member->started = true;
    trp_status status = thread_start(&member->thread, member->context.name, run_member, member);
    if (status != TRP_OK)
        finish_member(member, status);
}

/* One whose end was reported. */
static void member_begin_again(struct host *host, uint32_t number, uint64_t seed)
{
    struct member *member = find_member(host, number);
    if (!member || !member->reported)
        return;
    mutex_lock(&host->mutex);
    context_cleanup(&member->context);
    context_init(&member->context, host, number);
    member->context.seed = seed;
    member->context.resume = true;
    member->finished = member->reported = false;
    struct peer *peer = &host->peers[number];
    free(peer->gone);
    peer->gone = NULL;
    host->ended--;
    mutex_unlock(&host->mutex);
    start_member(member);
}

/* ---- the loop ---------------------------------------------------------------------------- */

static void stop_everything(struct host *host)
{
    mutex_lock(&host->mutex);
    for (uint32_t i = 0; i < host->options.count; i++)
        host_stop_member_locked(host, host->options.first + i);
    mutex_unlock(&host->mutex);
}

/* A node that has begun again is gone no more, and serves elsewhere. */
static void apply_peer_locked(struct peer *peer, const struct control_message *message)
{
    bool begins = message->verb == CONTROL_BEGUN;
    char **word = message->verb == CONTROL_GONE ? &peer->gone : &peer->address;
    if (begins) {
        free(peer->gone);
        peer->gone = NULL;
    }
    free(*word);
    *word = begins ? NULL : xstrdup(message->rest);
    peer->begun = true;
}

static void note_publisher_locked(struct host *host, uint32_t number)
{
    uint32_t index;
    const struct node_group *group = program_node(host->options.program, number, &index);
    host->publishers[group->id - 1] = number + 1;
}

static void apply_meeting_locked(struct host *host, const struct control_message *message)
{
    const trp_context *context = host_context(host, message->node);
    if (context && context->meeting)
        meeting_apply_locked(context->meeting, message);
}

static void apply_message(struct host *host, const struct control_message *message)
{
    if (message->node >= host->options.program->node_count)
        return;
    if (message->verb == CONTROL_START) {
        member_begin_again(host, message->node, strtoull(message->rest, NULL, 10));
        return;
    }
    mutex_lock(&host->mutex);
    if (message->verb == CONTROL_MEMBER) { /* nobody waits for a part of a generation */
        apply_meeting_locked(host, message);
        mutex_unlock(&host->mutex);
        return;
    }
    if (message->verb == CONTROL_STOP)
        host_stop_member_locked(host, message->node);
    else if (message->verb == CONTROL_PUBLISHER)
        note_publisher_locked(host, message->node);
    else if (message->verb >= CONTROL_MEMBER)
        apply_meeting_locked(host, message);
    else
        apply_peer_locked(&host->peers[message->node], message);
    follow_update_locked(host);
    cond_broadcast(&host->changed);
    mutex_unlock(&host->mutex);
}

static void control_ready(struct watch *watch)
{
    struct host *host = watch->owner;
    struct control_message message;
    trp_status status = control_receive(watch->fd, &message);
    if (status == TRP_OK)
        apply_message(host, &message);
    if (status != TRP_UNAVAILABLE)
        return;
    if (host->options.launcher)
        trp_log(TRP_ERROR, "the launcher is gone");
    else
        trp_log(TRP_WARN, "the run has ended, nodes go on: those that did not stop in time");
    loop_forget(&host->loop, watch); /* nodes may be sending: closed in host_destroy() */
    host->orphaned_until = deadline_in_ms(&clock_monotonic, HOST_ORPHAN_MS);
    stop_everything(host);
}

static void wake_ready(struct watch *watch)
{
    uint64_t count;
    ssize_t size = read(watch->fd, &count, sizeof count);
    (void)size;
}

static void host_signals_ready(struct watch *watch)
{
    struct host *host = watch->owner;
    struct signalfd_siginfo info;
    if (read(watch->fd, &info, sizeof info) != sizeof info)
        return;
    /* The launcher's death signal has its id too, though it is no longer our parent. The kernel
     * itself sends those of a terminal. */
    bool ours = info.ssi_pid == host->options.launcher || info.ssi_code == SI_KERNEL;
    if (!ours && host->outside_signal == 0) {
        host->outside_signal = (int)info.ssi_signo;
        trp_log(TRP_WARN, "ends by a signal from outside signal=%s sender=%u",
                strsignal((int)info.ssi_signo), info.ssi_pid);
    }
    stop_everything(host);
}

static trp_status watch_signals_of(struct host *host)
{
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGTERM);
    sigaddset(&set, SIGINT);
    sigaddset(&set, SIGHUP);
    sigprocmask(SIG_BLOCK, &set, NULL);
    host->signals =
        (struct watch){signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK), host_signals_ready, host, 0};
    if (host->signals.fd < 0)
        return trp_fail(TRP_RESOURCE_EXHAUSTED, "signalfd: %s", strerror(errno));
    return loop_add(&host->loop, &host->signals);
}

/* Members that cannot be started count as failed ones. */
static void start_members(struct host *host)
{
    for (uint32_t i = 0; i < host->options.count; i++) {
        start_member(&host->members[i]);
        if (!host->members[i].thread.running)
            stop_everything(host);
    }
}

static void send_all_metrics(struct host *host)
{
    for (uint32_t i = 0; i < host->options.count; i++)
        send_metrics(host, &host->members[i].context);
}

static void bound_logs(const struct host *host)
{
    for (uint32_t i = 0; i < host->options.count; i++) {
        const struct member *member = &host->members[i];
        if (member->log_fd >= 0)
            run_dir_bound_log(host->options.run_dir, member->context.group, member->context.index,
                              member->log_fd);
    }
}

int host_run(struct host *host, bool watch_signals)
{
    if (watch_signals && watch_signals_of(host) != TRP_OK) {
        trp_log(TRP_ERROR, "%s", trp_last_error());
        return 1;
    }
    start_members(host);
    report_ends(host);
    struct deadline flush = deadline_in_ms(&clock_monotonic, HOST_REPORT_MS);
    while (host->ended < host->options.count) {
        loop_turn(&host->loop, deadline_left_ns(flush, &clock_monotonic) / 1000000 + 1);
        report_ends(host);
        if (deadline_passed(flush, &clock_monotonic)) {
            send_all_metrics(host);
            bound_logs(host);
            flush = deadline_in_ms(&clock_monotonic, HOST_REPORT_MS);
        }
        if (watch_signals && deadline_passed(host->orphaned_until, &clock_monotonic))
            kill(0, SIGKILL); /* our group: the launcher gave us one of our own */
    }
    shutdown(host->options.control_fd, SHUT_WR); /* what comes from here on is not done any more */
    if (host->outside_signal != 0)
        return 128 + host->outside_signal;
    return host->failed ? 1 : 0;
}

/* ---- life -------------------------------------------------------------------------------- */

static trp_status open_logs(struct host *host)
{
    for (uint32_t i = 0; i < host->options.count && host->options.keep_logs; i++) {
        struct member *member = &host->members[i];
        TRP_TRY(run_dir_open_log(host->options.run_dir, member->context.group,
                                 member->context.index, &member->log_fd));
    }
    return TRP_OK;
}

static trp_status init_loop(struct host *host)
{
    TRP_TRY(loop_init(&host->loop));
    host->wake = (struct watch){eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK), wake_ready, host, 0};
    if (host->wake.fd < 0)
        return trp_fail(TRP_RESOURCE_EXHAUSTED, "eventfd: %s", strerror(errno));
    TRP_TRY(loop_add(&host->loop, &host->wake));
    return loop_add(&host->loop, &host->control);
}

trp_status host_create(struct host **out, const struct host_options *options)
{
    struct host *host = xcalloc(1, sizeof *host);
    host->options = *options;
    host->loop.epoll_fd = host->wake.fd = host->signals.fd = -1;
    host->control = (struct watch){options->control_fd, control_ready, host, 0};
    host->orphaned_until = DEADLINE_NEVER;
    mutex_init(&host->mutex);
    cond_init(&host->changed);
    host->peers = xcalloc(options->program->node_count, sizeof *host->peers);
    host->publishers = xcalloc(options->program->group_count, sizeof *host->publishers);
    host->members = xcalloc(options->count, sizeof *host->members);
    for (uint32_t i = 0; i < options->count; i++) {
        context_init(&host->members[i].context, host, options->first + i);
        host->members[i].log_fd = -1;
        host->peers[options->first + i].begun = true;
    }
    if (options->deterministic) {
        assert(runs_everything(host));
        host->turns = turns_create(options->count);
    }
    trp_status status = init_loop(host);
    if (status == TRP_OK)
        status = open_logs(host);
    if (status != TRP_OK) {
        host_destroy(host);
        return status;
    }
    *out = host;
    return TRP_OK;
}

void host_destroy(struct host *host)
{
    if (!host)
        return;
    for (uint32_t i = 0; i < host->options.count; i++) {
        thread_stop(&host->members[i].thread);
        context_cleanup(&host->members[i].context);
        if (host->members[i].log_fd >= 0)
            close(host->members[i].log_fd);
    }
    for (uint32_t i = 0; i < host->options.program->node_count; i++) {
        free(host->peers[i].address);
        free(host->peers[i].gone);
    }
    turns_destroy(host->turns);
    close(host->options.control_fd);
    loop_remove(&host->loop, &host->wake);
    loop_remove(&host->loop, &host->signals);
    loop_cleanup(&host->loop);
    cond_cleanup(&host->changed);
    mutex_cleanup(&host->mutex);
    free(host->members);
    free(host->peers);
    free(host->publishers);
    free(host);
}

/* Who drives, and how they wait. A thread that waits for an operation looks for a moment whether
 * something came, and then sleeps in poll(): on one host an answer is there sooner than a sleep
 * begins and ends. The helper sleeps until a notice comes, or until a timer that whoever starts an
 * operation sets: waking a thread for each would cost more than most operations. */
#include "collective.h"

#include <assert.h>
#include <poll.h>
#include <sched.h>
#include <sys/timerfd.h>

#include "event.h"
#include "native.h"

/* ---- moving -------------------------------------------------------------------------------- */

static void operation_done(struct trp_collective *c, struct operation *operation)
{
    const struct transfer *transfer = &operation->transfer;
    if (operation->staging) {
        trp_queue_copy(operation->queue, operation->device_values, operation->staging->memory,
                       transfer->schedule.call.count *
                           call_type_bytes(transfer->schedule.call.type));
        staging_give(operation->staging, operation->queue);
    }
    c->counters.operations++;
    c->counters.messages_sent += transfer->schedule.sends;
    c->counters.messages_received += transfer->schedule.receives;
    c->counters.bytes_sent += transfer->bytes_sent;
    c->counters.bytes_received += transfer->bytes_received;
    c->counters.bytes_sent_away += transfer->bytes_sent_away;
    c->done++;
    c->first = operation->next;
    if (!c->first)
        c->last = NULL;
    operation->next = c->spare;
    c->spare = operation;
}

static bool is_aborted(const struct trp_collective *c)
{
    return atomic_load_explicit(&c->is_aborted, memory_order_acquire);
}

/* Notes what a look showed besides. */
static void judge_look(struct trp_collective *c, const struct transfer_look *look)
{
    if (look->differs)
        collective_differs(c, &c->first->transfer.schedule.call, look->peer, &look->other);
    if (look->status != TRP_OK)
        collective_lane_failed(c, look->peer);
}

bool collective_advance(struct trp_collective *c, bool caller)
{
    struct operation *operation = c->first;
    if (!operation || c->status != TRP_OK || c->disputed || c->broken || is_aborted(c))
        return false;
    if (operation->staging && (!caller || !operation->staged))
        return false;
    if (caller)
        native_put(c);
    if (operation->began_ns == 0)
        operation->began_ns = clock_now_ns(&clock_monotonic);
    struct transfer_look look = {.status = TRP_OK};
    if (!transfer_is_done(&operation->transfer))
        look = transfer_advance(&operation->transfer, c->lanes);
    judge_look(c, &look);
    if (!transfer_is_done(&operation->transfer))
        return look.moved;
    if (operation->native && (!caller || !native_is_done(c)))
        return look.moved;
    operation_done(c, operation);
    return true;
}

/* ---- sleeping ------------------------------------------------------------------------------ */

static unsigned poll_lines(const struct trp_collective *c, struct pollfd *fds)
{
    unsigned count = 0;
    for (uint32_t peer = 0; peer < c->size; peer++) {
        const struct notice_line *line = &c->peers[peer].line;
        if (line->fd >= 0 && !line->closed)
            fds[count++] = (struct pollfd){.fd = line->fd, .events = POLLIN};
    }
    return count;
}

static void poll_until(struct pollfd *fds, unsigned count, int64_t until_ns)
{
    int64_t left = until_ns - clock_now_ns(&clock_monotonic);
    if (left < 0)
        left = 0;
    struct timespec for_ns = {.tv_sec = left / 1000000000, .tv_nsec = left % 1000000000};
    ppoll(fds, count, until_ns == INT64_MAX ? NULL : &for_ns, NULL);
}

/* Sleeps until something comes, with the mutex released. `drives`: for the operation, too. */
static void sleep_until_news(struct trp_collective *c, struct pollfd *fds, unsigned count,
                             bool drives)
{
    struct peer_lane *armed[2];
    unsigned lanes = 0, lines = poll_lines(c, fds + count), all = count + lines;
    bool quiet = true;
    bool goes_on = c->status == TRP_OK && !c->disputed && !c->broken;
    bool caller = fds == c->caller_fds;
    if (drives && goes_on && c->first && c->first->began_ns > 0)
        quiet = transfer_arm(&c->first->transfer, c->lanes, fds + all, armed, &lanes);
    int64_t until = quiet && !turns_active() ? collective_worry_ns(c) : 0;
    if (caller && goes_on && c->first && c->first->native) {
        int64_t look = clock_now_ns(&clock_monotonic) + COLLECTIVE_DEVICE_LOOK_NS;
        until = look < until ? look : until;
    }
    mutex_unlock(&c->mutex);
    poll_until(fds, all + lanes, until);
    turns_pass();
    mutex_lock(&c->mutex);
    for (unsigned i = 0; i < lanes && (caller || !c->waiting); i++)
        if (fds[all + i].revents && armed[i]->impl->rouse)
            armed[i]->impl->rouse(armed[i]);
}

/* ---- the caller ---------------------------------------------------------------------------- */

/* Its time begins when its queue is handed over: until then the caller may have put more on it. The
 * carrier may need long for that. */
static void hand_over_queue(struct trp_collective *c, struct operation *operation)
{
    mutex_unlock(&c->mutex);
    uint64_t mark = trp_queue_mark(operation->queue);
    mutex_lock(&c->mutex);
    operation->mark = mark;
    operation->marked = true;
    operation->began_ns = clock_now_ns(&clock_monotonic);
}

/* Brings values of a device here, in the order of operations. The device may need long: nothing
 * else is held up meanwhile. */
static void stage(struct trp_collective *c)
{
    struct operation *operation = c->first;
    if (operation && operation->put && !operation->marked && c->status == TRP_OK)
        hand_over_queue(c, operation);
    if (!operation || !operation->staging || operation->staged)
        return;
    trp_queue *queue = operation->queue;
    uint64_t mark = operation->mark;
    mutex_unlock(&c->mutex);
    trp_status status = trp_queue_sync(queue, mark);
    mutex_lock(&c->mutex);
    operation->staged = true;
    if (status == TRP_OK)
        staging_passed(c->stagings, queue, mark);
    else
        collective_fail_alone(c, status);
}

/* True: it goes on; false: nothing came for a while. */
static bool look_awhile(struct trp_collective *c)
{
    stage(c);
    if (turns_active())
        return collective_advance(c, true);
    int64_t until = 0;
    for (unsigned looks = 0;; looks++, stage(c)) {
        if (collective_advance(c, true) || is_aborted(c))
            return true;
        if (looks < COLLECTIVE_SPIN_LOOKS)
            continue;
        int64_t now = clock_now_ns(&clock_monotonic);
        if (until == 0)
            until = now + COLLECTIVE_SPIN_NS;
        if (now >= until)
            return false;
        sched_yield();
    }
}

static void drive_until(struct trp_collective *c, uint64_t ticket)
{
    int64_t heard = clock_now_ns(&clock_coarse);
    while (c->done < ticket && c->status == TRP_OK) {
        bool moved = look_awhile(c);
        int64_t now = clock_now_ns(&clock_coarse); /* ticks every few milliseconds */
        if (moved && now == heard && !is_aborted(c))
            continue;
        heard = now;
        collective_hear(c);
        collective_worry(c);
        if (moved || c->status != TRP_OK)
            continue;
        c->caller_fds[0] = (struct pollfd){.fd = c->caller_wake, .events = POLLIN};
        sleep_until_news(c, c->caller_fds, 1, true);
        event_clear(c->caller_wake);
    }
}

bool trp_collective_queued(trp_collective *collective, uint64_t ticket)
{
    struct trp_collective *c = collective;
    mutex_lock(&c->mutex);
    const struct operation *operation = c->first;
    while (operation && operation->transfer.schedule.call.sequence < ticket)
        operation = operation->next;
    bool queued = c->done >= ticket || (operation && operation->put);
    queued = queued && c->status == TRP_OK && c->started - c->done < COLLECTIVE_OPERATIONS_MAX / 2;
    mutex_unlock(&c->mutex);
    return queued;
}

bool trp_collective_done(trp_collective *collective, uint64_t ticket)
{
    mutex_lock(&collective->mutex);
    bool done = collective->done >= ticket || collective->status != TRP_OK;
    mutex_unlock(&collective->mutex);
    return done;
}

trp_status trp_collective_wait(trp_collective *collective, uint64_t ticket)
{
    struct trp_collective *c = collective;
    atomic_store_explicit(&c->calling, true, memory_order_relaxed);
    mutex_lock(&c->mutex);
    assert(ticket <= c->started);
    c->waiting = true;
    drive_until(c, ticket);
    c->waiting = false;
    atomic_store_explicit(&c->calling, false, memory_order_relaxed);
    if (c->first)
        collective_help_in(c, COLLECTIVE_HELP_LARGE_NS);
    bool done = c->done >= ticket;
    trp_status status = done ? TRP_OK : c->status;
    if (status != TRP_OK)
        trp_fail(status, "%s", c->words);
    mutex_unlock(&c->mutex);
    return status;
}

/* ---- the helper ---------------------------------------------------------------------------- */

void collective_help_in(struct trp_collective *c, int64_t ns)
{
    int64_t at = clock_now_ns(&clock_monotonic) + ns;
    if (c->timer_ns > 0 && c->timer_ns <= at)
        return;
    c->timer_ns = at;
    struct itimerspec when = {.it_value = {.tv_sec = at / 1000000000, .tv_nsec = at % 1000000000}};
    timerfd_settime(c->timer, TFD_TIMER_ABSTIME, &when, NULL);
}

/* One look of the helper's; false: it may sleep. */
static bool help_once(struct trp_collective *c, bool drives)
{
    if (drives && collective_advance(c, false)) {
        mutex_unlock(&c->mutex); /* the caller may want it */
        if (atomic_load_explicit(&c->calling, memory_order_relaxed))
            sched_yield();
        mutex_lock(&c->mutex);
        return true;
    }
    collective_hear(c);
    if (!c->waiting)
        collective_worry(c);
    return false;
}

void collective_help(void *arg)
{
    struct trp_collective *c = arg;
    bool drives = false;
    mutex_lock(&c->mutex);
    while (!c->stopping) {
        drives = drives && c->first && !c->waiting && c->status == TRP_OK;
        if (help_once(c, drives))
            continue;
        c->helper_fds[0] = (struct pollfd){.fd = c->helper_wake, .events = POLLIN};
        c->helper_fds[1] = (struct pollfd){.fd = c->timer, .events = POLLIN};
        sleep_until_news(c, c->helper_fds, 2, drives);
        event_clear(c->helper_wake);
        if (c->helper_fds[1].revents) {
            event_clear(c->timer);
            c->timer_ns = 0;
            drives = c->first && !c->waiting;
        }
    }
    mutex_unlock(&c->mutex);
}

/* A rank's end of a group: its life, and the operations that it starts. */
#include "collective.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>
#include <sys/timerfd.h>

#include "core/alloc.h"
#include "core/file.h"
#include "event.h"
#include "lanes.h"
#include "native.h"
#include "sites.h"

/* ---- life ---------------------------------------------------------------------------------- */

static trp_status create_descriptors(struct trp_collective *c)
{
    TRP_TRY(event_create(&c->caller_wake));
    TRP_TRY(event_create(&c->helper_wake));
    c->timer = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK);
    return c->timer >= 0 ? TRP_OK
                         : trp_fail(TRP_RESOURCE_EXHAUSTED, "timerfd: %s", strerror(errno));
}

trp_status collective_init(struct trp_collective **out, const trp_collective_options *options,
                           const int *line_fds)
{
    struct trp_collective *c = xcalloc(1, sizeof *c);
    strncpy(c->group, options->group ? options->group : "", sizeof c->group - 1);
    c->generation = options->generation;
    c->rank = options->rank;
    c->size = options->size;
    c->caller_wake = c->helper_wake = c->timer = -1;
    c->timeout_ns = collective_timeout_ms(options) * INT64_C(1000000);
    mutex_init(&c->mutex);
    mutex_init(&c->abort_mutex);
    c->sites = sites_of(options);
    sites_place(&c->place, c->sites, c->rank, c->size);
    c->peers = xcalloc(c->size, sizeof *c->peers);
    for (uint32_t peer = 0; peer < c->size; peer++)
        c->peers[peer].line.fd = line_fds[peer];
    c->lanes = xcalloc(c->size, sizeof *c->lanes);
    size_t polled = c->size + 4; /* lines, two lanes, two of its own */
    c->caller_fds = xcalloc(polled, sizeof *c->caller_fds);
    c->helper_fds = xcalloc(polled, sizeof *c->helper_fds);
    trp_status status = create_descriptors(c);
    if (status != TRP_OK) {
        trp_collective_destroy(c);
        return status;
    }
    *out = c;
    return TRP_OK;
}

trp_status collective_start(struct trp_collective *c, struct peer_lane **lanes,
                            const struct schedule_table *table)
{
    memcpy(c->lanes, lanes, c->size * sizeof *lanes);
    c->table = *table;
    c->snapshot = xaligned(64, table->doubling_bytes + 64);
    return thread_start(&c->helper, "collective", collective_help, c);
}

static void stop_helper(struct trp_collective *c)
{
    if (!c->helper.running)
        return;
    mutex_lock(&c->mutex);
    c->stopping = true;
    mutex_unlock(&c->mutex);
    event_set(c->helper_wake);
    thread_stop(&c->helper);
}

/* Who leaves in order has done all that it started; else it fails. */
static void leave(struct trp_collective *c)
{
    mutex_lock(&c->mutex);
    if (c->first)
        collective_fail(c, TRP_UNAVAILABLE, "rank %u of %u has left", c->rank, c->size);
    struct notice notice = {.kind = NOTICE_LEAVES};
    for (uint32_t peer = 0; peer < c->size; peer++)
        notice_send(&c->peers[peer].line, &notice, "");
    mutex_unlock(&c->mutex);
}

static void free_operations(struct operation *operation)
{
    while (operation) {
        struct operation *next = operation->next;
        free(operation);
        operation = next;
    }
}

void trp_collective_destroy(trp_collective *collective)
{
    struct trp_collective *c = collective;
    if (!c)
        return;
    stop_helper(c);
    leave(c);
    if (c->carrier)
        c->carrier->impl->destroy(c->carrier);
    for (struct operation *each = c->first; each; each = each->next)
        if (each->staging)
            staging_give(each->staging, each->queue);
    staging_destroy(c->stagings);
    lanes_destroy(c->lanes, c->size);
    for (uint32_t peer = 0; peer < c->size; peer++)
        if (peer != c->rank)
            notice_line_cleanup(&c->peers[peer].line);
    free_operations(c->first);
    free_operations(c->spare);
    fd_close(c->caller_wake);
    fd_close(c->helper_wake);
    fd_close(c->timer);
    mutex_cleanup(&c->mutex);
    mutex_cleanup(&c->abort_mutex);
    free(c->abort_words);
    free(c->words);
    free(c->caller_fds);
    free(c->helper_fds);
    free(c->snapshot);
    free(c->lanes);
    free(c->peers);
    free(c->sites);
    free(c);
}

uint32_t trp_collective_rank(const trp_collective *collective)
{
    return collective->rank;
}

uint32_t trp_collective_size(const trp_collective *collective)
{
    return collective->size;
}

void trp_collective_range(const trp_collective *collective, size_t count, uint32_t rank,
                          size_t *low, size_t *high)
{
    assert(rank < collective->size);
    schedule_range(count, collective->size, rank, low, high);
}

/* ---- operations ---------------------------------------------------------------------------- */

static struct operation *new_operation(struct trp_collective *c)
{
    assert(c->started - c->done < COLLECTIVE_OPERATIONS_MAX);
    struct operation *operation = c->spare;
    if (operation)
        c->spare = operation->next;
    else
        operation = xmalloc(sizeof *operation);
    *operation = (struct operation){0};
    if (c->last)
        c->last->next = operation;
    else
        c->first = operation;
    c->last = operation;
    return operation;
}

static bool is_of_device(const trp_queue *queue)
{
    return queue && !trp_device_is_host(trp_queue_device(queue));
}

static bool is_native(const struct trp_collective *c, const trp_queue *queue,
                      const struct group_call *call)
{
    return c->carrier && is_of_device(queue) && trp_queue_device(queue) == c->carrier->device &&
           c->carrier->impl->takes(call);
}

static void init_operation(struct trp_collective *c, struct operation *operation, void *values,
                           const struct group_call *call)
{
    struct schedule schedule;
    if (operation->native)
        schedule_init_calls(&schedule, call, c->rank, c->size);
    else
        schedule_init(&schedule, call, c->rank, c->size, &c->table, &c->place);
    transfer_init(&operation->transfer, &schedule, values ? values : c->snapshot, c->snapshot,
                  c->sites);
}

static void *stage_values(struct trp_collective *c, struct operation *operation, trp_queue *queue,
                          void *values, size_t bytes)
{
    operation->queue = queue;
    operation->device_values = values;
    operation->staging = staging_take(&c->stagings, bytes);
    trp_queue_copy(queue, operation->staging->memory, values, bytes);
    operation->mark = trp_queue_mark(queue);
    return operation->staging->memory;
}

/* Without the mutex: a carrier may need long until a queue with its operations is handed over. */
static void prepare_queue(struct trp_collective *c, trp_queue *queue, bool native)
{
    if (native && c->carrier->impl->turn_to)
        c->carrier->impl->turn_to(c->carrier, queue);
    else if (!native && c->carrier && is_of_device(queue))
        (void)trp_queue_mark(queue);
}

/* A small operation that nothing is before goes on its way at once: the others may wait for it. */
static uint64_t start_operation(struct trp_collective *c, trp_queue *queue, void *values,
                                struct group_call call)
{
    size_t bytes = call.count * call_type_bytes(call.type);
    bool native = is_native(c, queue, &call);
    prepare_queue(c, queue, native);
    atomic_store_explicit(&c->calling, true, memory_order_relaxed);
    mutex_lock(&c->mutex);
    uint64_t ticket = call.sequence = ++c->started;
    c->calls[ticket % COLLECTIVE_CALLS_KEPT] = call;
    bool alone = !c->first;
    struct operation *operation = new_operation(c);
    operation->native = native;
    operation->queue = native ? queue : NULL;
    operation->device_values = values;
    if (!native && bytes > 0 && is_of_device(queue))
        values = stage_values(c, operation, queue, values, bytes);
    init_operation(c, operation, values, &call);
    native_put(c);
    bool small = bytes <= COLLECTIVE_LARGE_BYTES;
    if (alone && small && !operation->staging)
        collective_advance(c, false);
    if (c->first)
        collective_help_in(c, small ? COLLECTIVE_HELP_NS : COLLECTIVE_HELP_LARGE_NS);
    atomic_store_explicit(&c->calling, false, memory_order_relaxed);
    mutex_unlock(&c->mutex);
    return ticket;
}

uint64_t trp_collective_allreduce(trp_collective *collective, trp_queue *queue, void *values,
                                  size_t count, trp_collective_type type, trp_collective_op op)
{
    return start_operation(
        collective, queue, values,
        (struct group_call){
            .kind = CALL_ALLREDUCE, .type = (uint8_t)type, .op = (uint8_t)op, .count = count});
}

uint64_t trp_collective_reduce_scatter(trp_collective *collective, trp_queue *queue, void *values,
                                       size_t count, trp_collective_type type, trp_collective_op op)
{
    return start_operation(
        collective, queue, values,
        (struct group_call){
            .kind = CALL_REDUCE_SCATTER, .type = (uint8_t)type, .op = (uint8_t)op, .count = count});
}

uint64_t trp_collective_all_gather(trp_collective *collective, trp_queue *queue, void *values,
                                   size_t count, trp_collective_type type)
{
    return start_operation(
        collective, queue, values,
        (struct group_call){.kind = CALL_ALL_GATHER, .type = (uint8_t)type, .count = count});
}

uint64_t trp_collective_broadcast(trp_collective *collective, trp_queue *queue, void *values,
                                  size_t count, trp_collective_type type, uint32_t root)
{
    assert(root < collective->size);
    return start_operation(
        collective, queue, values,
        (struct group_call){
            .kind = CALL_BROADCAST, .type = (uint8_t)type, .count = count, .root = root});
}

uint64_t trp_collective_all_to_all(trp_collective *collective, void *values, size_t count,
                                   trp_collective_type type)
{
    return start_operation(
        collective, NULL, values,
        (struct group_call){.kind = CALL_ALL_TO_ALL, .type = (uint8_t)type, .count = count});
}

uint64_t trp_collective_shift(trp_collective *collective, void *values, size_t count,
                              trp_collective_type type, uint32_t distance)
{
    return start_operation(
        collective, NULL, values,
        (struct group_call){
            .kind = CALL_SHIFT, .type = (uint8_t)type, .count = count, .root = distance});
}

uint64_t trp_collective_barrier(trp_collective *collective)
{
    return start_operation(collective, NULL, NULL, (struct group_call){.kind = CALL_BARRIER});
}

void trp_collective_abort(trp_collective *collective, const char *why)
{
    struct trp_collective *c = collective;
    mutex_lock(&c->abort_mutex);
    if (!c->abort_words)
        c->abort_words = xstrdup(why);
    mutex_unlock(&c->abort_mutex);
    atomic_store_explicit(&c->is_aborted, true, memory_order_release);
    event_set(c->caller_wake);
    event_set(c->helper_wake);
}

trp_collective_counters trp_collective_read(trp_collective *collective)
{
    mutex_lock(&collective->mutex);
    trp_collective_counters counters = collective->counters;
    mutex_unlock(&collective->mutex);
    return counters;
}

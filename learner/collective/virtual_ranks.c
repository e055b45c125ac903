/* A group is known to its ranks, and, until all that connect have joined it or one of them is gone
 * again, to the process: by a number that is its own. */
#include "virtual_ranks.h"

#include <assert.h>
#include <stdlib.h>
#include <unistd.h>

#include <troupe/rng.h>

#include "core/alloc.h"
#include "core/hash.h"
#include "core/thread.h"
#include "schedule.h"
#include "sum_kernel.h"

/* No rank is two calls ahead of another: it waits for the one between. */
enum { CALLS = 2 };

struct virtual_call {
    uint64_t number; /* from 1 on; 0: there was none */
    struct group_call call;
    void *values[SUM_RANKS_MAX];
    uint32_t came;
    bool differs, put;
};

struct virtual_group {
    /* With the mutex of the process: */
    struct virtual_group *next; /* of those that ranks may still join */
    uint64_t meeting;
    uint32_t joined, users;
    /* With its own: */
    struct mutex mutex;
    uint32_t size;
    trp_queue *queue;
    bool over; /* somebody is gone, or about to be */
    struct virtual_call calls[CALLS];
};

struct virtual_rank {
    struct carrier base;
    struct virtual_group *group;
    uint32_t rank;
    uint64_t called;
    trp_queue *queue; /* of the last call; NULL: it waits for the sum already */
    trp_queue *last;  /* the same, until the next call */
};

static struct once once = ONCE_INIT;
static struct mutex process;
static struct virtual_group *open_groups;
static uint64_t process_secret;

static void process_prepare(void)
{
    mutex_init(&process);
    process_secret = trp_rng_entropy();
}

/* ---- sums ---------------------------------------------------------------------------------- */

static void collective_sum(void *arguments)
{
    const struct collective_sum_arguments *a = arguments;
    for (size_t i = 0; i < a->count; i++)
        collective_sum_at(a, i);
}

/* Numbers from `low` to `high`, for all or for one rank (from 1 on). */
static void put_sum(const struct virtual_group *group, const struct virtual_call *call, size_t low,
                    size_t high, uint32_t only)
{
    static const trp_kernel kernel = {.name = "collective.sum", .run = collective_sum};
    size_t width = call_type_bytes(call->call.type);
    struct collective_sum_arguments sum = {.count = high - low,
                                           .ranks = group->size,
                                           .only = only,
                                           .type = call->call.type,
                                           .op = call->call.op};
    trp_operand operands[SUM_RANKS_MAX];
    if (high == low)
        return;
    for (uint32_t rank = 0; rank < group->size; rank++) {
        bool writes = only == 0 || only == rank + 1;
        sum.values[rank] = (char *)call->values[rank] + low * width;
        operands[rank] =
            (trp_operand){offsetof(struct collective_sum_arguments, values) + rank * sizeof(void *),
                          (high - low) * width, writes ? TRP_READ | TRP_WRITE : TRP_READ};
    }
    trp_queue_run(group->queue, &kernel, &sum, sizeof sum, operands, group->size);
}

/* Those of one rank, to all others. */
static void put_copies(const struct virtual_group *group, const struct virtual_call *call,
                       uint32_t from, size_t low, size_t high)
{
    size_t width = call_type_bytes(call->call.type);
    for (uint32_t rank = 0; rank < group->size; rank++)
        if (rank != from)
            trp_queue_copy(group->queue, (char *)call->values[rank] + low * width,
                           (const char *)call->values[from] + low * width, (high - low) * width);
}

static void put_sums(const struct virtual_group *group, const struct virtual_call *call)
{
    size_t low, high, count = call->call.count;
    if (call->call.kind == CALL_ALLREDUCE)
        put_sum(group, call, 0, count, 0);
    if (call->call.kind == CALL_BROADCAST)
        put_copies(group, call, call->call.root, 0, count);
    for (uint32_t rank = 0; rank < group->size; rank++) {
        schedule_range(count, group->size, rank, &low, &high);
        if (call->call.kind == CALL_REDUCE_SCATTER)
            put_sum(group, call, low, high, rank + 1);
        if (call->call.kind == CALL_ALL_GATHER)
            put_copies(group, call, rank, low, high);
    }
}

/* ---- calls --------------------------------------------------------------------------------- */

static bool virtual_takes(const struct group_call *call)
{
    return call->count > 0 && call->kind <= CALL_BROADCAST;
}

/* What other ranks called otherwise is found out on their calls' way round; nothing is put then. */
static void come(struct virtual_rank *rank, void *values, const struct group_call *call)
{
    struct virtual_group *group = rank->group;
    struct virtual_call *slot = &group->calls[++rank->called % CALLS];
    if (slot->number != rank->called)
        *slot = (struct virtual_call){.number = rank->called, .call = *call};
    slot->differs = slot->differs || !call_equal(&slot->call, call);
    slot->values[rank->rank] = values;
    trp_queue_wait(group->queue, rank->queue);
    if (++slot->came < group->size || slot->differs || group->over)
        return;
    put_sums(group, slot);
    slot->put = true;
}

/* With the mutex. */
static enum carrier_state look_at_group(struct virtual_rank *rank)
{
    struct virtual_group *group = rank->group;
    if (rank->queue && group->calls[rank->called % CALLS].put) {
        trp_queue_wait(rank->queue, group->queue);
        rank->queue = NULL;
    }
    return rank->queue ? CARRIER_WORKS : CARRIER_READY;
}

static enum carrier_state virtual_call(struct carrier *carrier, trp_queue *queue, void *values,
                                       const struct group_call *call)
{
    struct virtual_rank *rank = (struct virtual_rank *)carrier;
    mutex_lock(&rank->group->mutex);
    rank->queue = rank->last = queue;
    come(rank, values, call);
    enum carrier_state state = look_at_group(rank);
    mutex_unlock(&rank->group->mutex);
    return state;
}

static enum carrier_state virtual_look(struct carrier *carrier)
{
    struct virtual_rank *rank = (struct virtual_rank *)carrier;
    mutex_lock(&rank->group->mutex);
    enum carrier_state state = look_at_group(rank);
    mutex_unlock(&rank->group->mutex);
    return state;
}

/* ---- life ---------------------------------------------------------------------------------- */

static void virtual_abort(struct carrier *carrier)
{
    struct virtual_rank *rank = (struct virtual_rank *)carrier;
    mutex_lock(&rank->group->mutex);
    rank->group->over = true;
    mutex_unlock(&rank->group->mutex);
}

/* False: somebody else still has it. */
static bool leave_group(struct virtual_group *group)
{
    mutex_lock(&process);
    struct virtual_group **at = &open_groups;
    while (*at && *at != group)
        at = &(*at)->next;
    if (*at) /* who has not joined it never will */
        *at = group->next;
    bool last = --group->users == 0;
    mutex_unlock(&process);
    return last;
}

static void free_group(struct virtual_group *group)
{
    trp_queue_destroy(group->queue);
    mutex_cleanup(&group->mutex);
    free(group);
}

/* Sums that are put already are waited for, by the rank's own queue, which nobody else has: they
 * are done with this rank's vectors then. */
static void virtual_destroy(struct carrier *carrier)
{
    struct virtual_rank *rank = (struct virtual_rank *)carrier;
    struct virtual_group *group = rank->group;
    mutex_lock(&group->mutex);
    group->over = true;
    if (rank->last)
        trp_queue_wait(rank->last, group->queue);
    mutex_unlock(&group->mutex);
    trp_status passed =
        rank->last ? trp_queue_sync(rank->last, trp_queue_mark(rank->last)) : TRP_OK;
    (void)passed; /* a queue that failed does nothing any more */
    free(rank);
    if (leave_group(group))
        free_group(group);
}

static const struct carrier_impl virtual_impl = {
    .takes = virtual_takes,
    .call = virtual_call,
    .look = virtual_look,
    .abort = virtual_abort,
    .destroy = virtual_destroy,
};

static trp_status create_virtual_group(struct virtual_group **out, uint32_t size,
                                       trp_device *device)
{
    trp_queue *queue;
    assert(size <= SUM_RANKS_MAX);
    once_run(&once, process_prepare);
    TRP_TRY(trp_queue_create(&queue, device));
    struct virtual_group *group = xcalloc(1, sizeof *group);
    *group = (struct virtual_group){.size = size, .queue = queue};
    mutex_init(&group->mutex);
    *out = group;
    return TRP_OK;
}

/* With the mutex of the process, or before anybody else has the group. */
static struct carrier *add_rank(struct virtual_group *group, uint32_t number)
{
    struct virtual_rank *rank = xcalloc(1, sizeof *rank);
    *rank = (struct virtual_rank){
        .base = {&virtual_impl, trp_queue_device(group->queue)}, .group = group, .rank = number};
    group->joined++;
    group->users++;
    return &rank->base;
}

trp_status virtual_create(struct carrier **out, uint32_t size, trp_device *device)
{
    struct virtual_group *group;
    TRP_TRY(create_virtual_group(&group, size, device));
    for (uint32_t rank = 0; rank < size; rank++)
        out[rank] = add_rank(group, rank);
    return TRP_OK;
}

/* ---- ranks that connect ------------------------------------------------------------------------
 */

uint64_t virtual_home(const trp_collective_options *options)
{
    trp_device *device = options->device;
    if (!device || trp_device_is_host(device) || options->deterministic || options->size == 1 ||
        options->size > SUM_RANKS_MAX)
        return 0;
    once_run(&once, process_prepare);
    const uint64_t place[] = {(uint64_t)getpid(), (uint64_t)(uintptr_t)device};
    return hash_bytes(process_secret, place, sizeof place) | 1;
}

uint64_t virtual_meeting(void)
{
    return trp_rng_entropy() | 1;
}

/* Where a rank joins that meets others there; NULL: it is the first one. */
static struct virtual_group **find_open_group(uint64_t meeting)
{
    struct virtual_group **at = &open_groups;
    while (*at && (*at)->meeting != meeting)
        at = &(*at)->next;
    return at;
}

static trp_status join_open_group(struct carrier **out, const trp_collective_options *options,
                                  uint64_t meeting)
{
    struct virtual_group **at = find_open_group(meeting), *group = *at;
    if (!group) {
        TRP_TRY(create_virtual_group(&group, options->size, options->device));
        group->meeting = meeting;
        *at = group;
    }
    *out = add_rank(group, options->rank);
    if (group->joined == group->size)
        *at = group->next;
    return TRP_OK;
}

trp_status virtual_join(struct carrier **out, const trp_collective_options *options,
                        uint64_t meeting)
{
    once_run(&once, process_prepare);
    mutex_lock(&process);
    trp_status status = join_open_group(out, options, meeting);
    mutex_unlock(&process);
    return status;
}

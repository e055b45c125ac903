#include "virtual_ranks.h"

#include <assert.h>
#include <stdlib.h>

#include "core/alloc.h"
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
    struct mutex mutex; /* of all of it */
    uint32_t size, users;
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
};

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
    static const trp_kernel kernel = {"collective.sum", collective_sum};
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
    rank->queue = queue;
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

static const char *virtual_words(const struct carrier *carrier)
{
    (void)carrier;
    return "a sum of virtual ranks failed";
}

/* ---- life ---------------------------------------------------------------------------------- */

static void virtual_abort(struct carrier *carrier)
{
    struct virtual_rank *rank = (struct virtual_rank *)carrier;
    mutex_lock(&rank->group->mutex);
    rank->group->over = true;
    mutex_unlock(&rank->group->mutex);
}

/* What is put already is waited for: it is done with this rank's vectors. */
static void virtual_destroy(struct carrier *carrier)
{
    struct virtual_rank *rank = (struct virtual_rank *)carrier;
    struct virtual_group *group = rank->group;
    mutex_lock(&group->mutex);
    group->over = true;
    trp_status passed = trp_queue_sync(group->queue, trp_queue_mark(group->queue));
    (void)passed; /* a queue that failed does nothing any more */
    bool last = --group->users == 0;
    mutex_unlock(&group->mutex);
    free(rank);
    if (!last)
        return;
    trp_queue_destroy(group->queue);
    mutex_cleanup(&group->mutex);
    free(group);
}

static const struct carrier_impl virtual_impl = {
    .takes = virtual_takes,
    .call = virtual_call,
    .look = virtual_look,
    .words = virtual_words,
    .abort = virtual_abort,
    .destroy = virtual_destroy,
};

trp_status virtual_create(struct carrier **out, uint32_t size, trp_device *device)
{
    trp_queue *queue;
    assert(size <= SUM_RANKS_MAX);
    TRP_TRY(trp_queue_create(&queue, device));
    struct virtual_group *group = xcalloc(1, sizeof *group);
    *group = (struct virtual_group){.size = size, .users = size, .queue = queue};
    mutex_init(&group->mutex);
    for (uint32_t i = 0; i < size; i++) {
        struct virtual_rank *rank = xcalloc(1, sizeof *rank);
        *rank = (struct virtual_rank){{&virtual_impl, device}, group, i, 0, NULL};
        out[i] = &rank->base;
    }
    return TRP_OK;
}

/* One communicator, and a thread that looks whether a call of NCCL's hangs: it is not under the
 * mutex that callers hold, and does nothing but end the process. */
#include "nccl.h"

#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <troupe/log.h>
#include "core/alloc.h"
#include "core/clock.h"
#include "core/thread.h"
#include "limits.h"
#include "schedule.h"

static const struct carrier_impl nccl_impl;

enum meeting { MEETING_BEGUN, MEETING_JOINED, MEETING_PUT, MEETING_DONE };

struct nccl_group {
    struct carrier base;
    struct nccl_api api;
    struct nccl_comm *comm; /* NULL: there is none any more */
    uint32_t rank, size;
    bool failed;
    char words[512];
    /* Of the meeting: */
    enum meeting meeting;
    trp_queue *queue;
    void *memory;
    uint64_t mark;
    /* Who guards calls: */
    struct thread guard;
    struct mutex mutex; /* of what follows */
    struct cond changed;
    const char *call; /* that goes on; NULL: none does */
    struct deadline due;
    bool stopping;
};

/* ---- calls that hang ----------------------------------------------------------------------- */

static void guard_calls(void *arg)
{
    struct nccl_group *group = arg;
    mutex_lock(&group->mutex);
    while (!group->stopping) {
        if (group->call && deadline_passed(group->due, &clock_monotonic)) {
            trp_log(TRP_ERROR,
                    "rank %" PRIu32 " of %" PRIu32 ": %s of %s does not return: this process ends",
                    group->rank, group->size, group->call, group->api.path);
            _exit(COLLECTIVE_HUNG_EXIT);
        }
        cond_wait(&group->changed, &group->mutex,
                  deadline_in_ms(&clock_monotonic, COLLECTIVE_GUARD_MS));
    }
    mutex_unlock(&group->mutex);
}

static void call_begins(struct nccl_group *group, const char *call, int64_t ms)
{
    mutex_lock(&group->mutex);
    group->call = call;
    group->due = deadline_in_ms(&clock_monotonic, ms);
    mutex_unlock(&group->mutex);
}

static void call_ends(struct nccl_group *group)
{
    mutex_lock(&group->mutex);
    group->call = NULL;
    mutex_unlock(&group->mutex);
}

/* ---- results ------------------------------------------------------------------------------- */

static enum carrier_state judge_result(struct nccl_group *group, const char *call,
                                       enum nccl_result result)
{
    if (group->failed)
        return CARRIER_FAILED;
    if (result == NCCL_SUCCESS)
        return CARRIER_READY;
    if (result == NCCL_IN_PROGRESS)
        return CARRIER_WORKS;
    group->failed = true;
    const char *more = group->api.GetLastError(group->comm);
    snprintf(group->words, sizeof group->words, "%s: %s%s%s", call,
             group->api.GetErrorString(result), more && *more ? ": " : "", more ? more : "");
    return CARRIER_FAILED;
}

static enum carrier_state fail_meeting(struct nccl_group *group)
{
    group->failed = true;
    snprintf(group->words, sizeof group->words, "%s", trp_last_error());
    return CARRIER_FAILED;
}

static enum carrier_state look_at_nccl(struct nccl_group *group)
{
    if (group->failed || !group->comm)
        return CARRIER_FAILED;
    enum nccl_result result = NCCL_SUCCESS;
    call_begins(group, "ncclCommGetAsyncError", COLLECTIVE_CALL_MS);
    enum nccl_result asked = group->api.CommGetAsyncError(group->comm, &result);
    call_ends(group);
    return judge_result(group, "NCCL", asked == NCCL_SUCCESS ? result : asked);
}

const char *nccl_group_words(const struct nccl_group *group)
{
    return group->words;
}

/* ---- operations ---------------------------------------------------------------------------- */

static enum nccl_type nccl_type_of(uint8_t type)
{
    static const enum nccl_type types[] = {[TRP_COLLECTIVE_F32] = NCCL_F32,
                                           [TRP_COLLECTIVE_BF16] = NCCL_BF16,
                                           [TRP_COLLECTIVE_I32] = NCCL_I32,
                                           [TRP_COLLECTIVE_U64] = NCCL_U64};
    return types[type];
}

static bool nccl_takes(const struct group_call *call)
{
    bool sums = call->kind == CALL_ALLREDUCE || call->kind == CALL_REDUCE_SCATTER;
    bool of_floats = call->type == TRP_COLLECTIVE_F32 || call->type == TRP_COLLECTIVE_BF16;
    return call->count > 0 && !(sums && of_floats && call->op == TRP_COLLECTIVE_MAX);
}

struct nccl_range {
    char *at;
    size_t count;
};

static struct nccl_range nccl_range_of(const struct nccl_group *group, void *values,
                                       const struct group_call *call, uint32_t rank)
{
    size_t low, high;
    schedule_range(call->count, group->size, rank, &low, &high);
    return (struct nccl_range){(char *)values + low * call_type_bytes(call->type), high - low};
}

/* The first rank's range is the largest, and the last one's the smallest. */
static bool ranges_are_equal(const struct nccl_group *group, const struct group_call *call)
{
    return nccl_range_of(group, NULL, call, 0).count ==
           nccl_range_of(group, NULL, call, group->size - 1).count;
}

/* One call for each range, as one. */
static enum nccl_result put_ranges(struct nccl_group *group, void *stream, void *values,
                                   const struct group_call *call, enum nccl_reduction op)
{
    const struct nccl_api *api = &group->api;
    enum nccl_type type = nccl_type_of(call->type);
    enum nccl_result first = api->GroupStart();
    if (first != NCCL_SUCCESS)
        return first;
    for (uint32_t rank = 0; rank < group->size; rank++) {
        struct nccl_range range = nccl_range_of(group, values, call, rank);
        enum nccl_result result = NCCL_SUCCESS;
        if (range.count > 0)
            result = call->kind == CALL_ALL_GATHER
                         ? api->Broadcast(range.at, range.at, range.count, type, (int)rank,
                                          group->comm, stream)
                         : api->Reduce(range.at, range.at, range.count, type, op, (int)rank,
                                       group->comm, stream);
        first = first == NCCL_SUCCESS || first == NCCL_IN_PROGRESS ? result : first;
    }
    enum nccl_result last = api->GroupEnd();
    return first == NCCL_SUCCESS || first == NCCL_IN_PROGRESS ? last : first;
}

static enum nccl_result put_call(struct nccl_group *group, void *stream, void *values,
                                 const struct group_call *call)
{
    const struct nccl_api *api = &group->api;
    enum nccl_type type = nccl_type_of(call->type);
    enum nccl_reduction op = call->op == TRP_COLLECTIVE_SUM ? NCCL_SUM : NCCL_MAX;
    struct nccl_range own = nccl_range_of(group, values, call, group->rank);
    bool equal = ranges_are_equal(group, call);
    switch (call->kind) {
    case CALL_ALLREDUCE:
        return api->AllReduce(values, values, call->count, type, op, group->comm, stream);
    case CALL_BROADCAST:
        return api->Broadcast(values, values, call->count, type, (int)call->root, group->comm,
                              stream);
    case CALL_REDUCE_SCATTER:
        if (equal)
            return api->ReduceScatter(values, own.at, own.count, type, op, group->comm, stream);
        return put_ranges(group, stream, values, call, op);
    default:
        assert(call->kind == CALL_ALL_GATHER);
        if (equal)
            return api->AllGather(own.at, values, own.count, type, group->comm, stream);
        return put_ranges(group, stream, values, call, op);
    }
}

static enum carrier_state call_nccl(struct nccl_group *group, trp_queue *queue, void *values,
                                    const struct group_call *call)
{
    char words[CALL_WORDS_BYTES];
    if (group->failed || !group->comm)
        return CARRIER_FAILED;
    void *stream = trp_queue_native(queue);
    call_words(call, words);
    call_begins(group, words, COLLECTIVE_CALL_MS);
    enum nccl_result result = put_call(group, stream, values, call);
    call_ends(group);
    return judge_result(group, words, result);
}

/* ---- life ---------------------------------------------------------------------------------- */

static trp_status join_nccl(struct nccl_group *group, const struct nccl_id *id)
{
    struct nccl_config config = NCCL_CONFIG_DEFAULT;
    config.blocking = 0;
    (void)trp_queue_native(group->queue); /* this thread's GPU is the device */
    call_begins(group, "ncclCommInitRankConfig", COLLECTIVE_CALL_MS);
    enum nccl_result result = group->api.CommInitRankConfig(&group->comm, (int)group->size, *id,
                                                            (int)group->rank, &config);
    call_ends(group);
    if (judge_result(group, "ncclCommInitRankConfig", result) == CARRIER_FAILED)
        return trp_fail(TRP_UNAVAILABLE, "%s", group->words);
    return TRP_OK;
}

trp_status nccl_group_create(struct nccl_group **out, const struct nccl_api *api,
                             trp_device *device, const struct nccl_id *id, uint32_t rank,
                             uint32_t size)
{
    struct nccl_group *group = xcalloc(1, sizeof *group);
    group->api = *api;
    group->base = (struct carrier){&nccl_impl, device};
    group->rank = rank;
    group->size = size;
    mutex_init(&group->mutex);
    cond_init(&group->changed);
    trp_status status = thread_start(&group->guard, "nccl guard", guard_calls, group);
    if (status == TRP_OK)
        status = trp_queue_create(&group->queue, device);
    if (status == TRP_OK)
        status = trp_device_alloc(device, sizeof(float), &group->memory);
    if (status == TRP_OK)
        status = join_nccl(group, id);
    if (status != TRP_OK) {
        char *words = xstrdup(trp_last_error());
        nccl_group_destroy(group);
        status = trp_fail(status, "%s", words);
        free(words);
        return status;
    }
    *out = group;
    return TRP_OK;
}

static void end_meeting(struct nccl_group *group)
{
    if (group->queue) {
        trp_status passed = trp_queue_sync(group->queue, trp_queue_mark(group->queue));
        (void)passed; /* the queue goes either way */
    }
    trp_queue_destroy(group->queue);
    trp_device_free(group->base.device, group->memory);
    group->queue = NULL;
    group->memory = NULL;
}

/* NCCL takes the GPU that is the joining thread's by its own CUDA run time, which is another one
 * than ours: both go by the driver's context. That it is this one is asked, not believed. */
static enum carrier_state check_joined_gpu(struct nccl_group *group)
{
    int wanted, device = -1;
    if (sscanf(trp_device_name(group->base.device), "cuda:%d", &wanted) != 1)
        return CARRIER_READY;
    enum carrier_state state =
        judge_result(group, "ncclCommCuDevice", group->api.CommCuDevice(group->comm, &device));
    if (state != CARRIER_READY || device == wanted)
        return state;
    trp_fail(TRP_FAILED_PRECONDITION, "NCCL joined with GPU %d, and not with %s", device,
             trp_device_name(group->base.device));
    return fail_meeting(group);
}

/* The first operation connects ranks with each other, which may take long, or fail. */
enum carrier_state nccl_group_meet(struct nccl_group *group)
{
    static const struct group_call call = {
        .kind = CALL_ALLREDUCE, .type = TRP_COLLECTIVE_F32, .op = TRP_COLLECTIVE_SUM, .count = 1};
    if (group->meeting == MEETING_DONE)
        return group->failed ? CARRIER_FAILED : CARRIER_READY;
    enum carrier_state state = look_at_nccl(group);
    if (state == CARRIER_READY && group->meeting == MEETING_BEGUN)
        state = check_joined_gpu(group);
    if (state == CARRIER_READY && group->meeting == MEETING_BEGUN) {
        group->meeting = MEETING_JOINED;
        state = call_nccl(group, group->queue, group->memory, &call);
    }
    if (state == CARRIER_READY && group->meeting == MEETING_JOINED) {
        group->mark = trp_queue_mark(group->queue);
        group->meeting = MEETING_PUT;
    }
    if (state != CARRIER_READY || !trp_queue_done(group->queue, group->mark))
        return state == CARRIER_FAILED ? CARRIER_FAILED : CARRIER_WORKS;
    if (trp_queue_sync(group->queue, group->mark) != TRP_OK)
        return fail_meeting(group);
    end_meeting(group);
    group->meeting = MEETING_DONE;
    return CARRIER_READY;
}

static void abort_nccl(struct nccl_group *group)
{
    if (!group->comm)
        return;
    call_begins(group, "ncclCommAbort", COLLECTIVE_ABORT_MS);
    (void)group->api.CommAbort(group->comm); /* there is nothing else to do about it */
    call_ends(group);
    group->comm = NULL;
}

/* All operations are done, on this rank. */
static void leave_nccl(struct nccl_group *group)
{
    struct deadline deadline = deadline_in_ms(&clock_monotonic, COLLECTIVE_ABORT_MS);
    call_begins(group, "ncclCommFinalize", COLLECTIVE_CALL_MS);
    enum nccl_result result = group->api.CommFinalize(group->comm);
    call_ends(group);
    enum carrier_state state = judge_result(group, "ncclCommFinalize", result);
    while (state == CARRIER_WORKS && !deadline_passed(deadline, &clock_monotonic)) {
        mutex_lock(&group->mutex);
        cond_wait(&group->changed, &group->mutex, deadline_in_ms(&clock_monotonic, 1));
        mutex_unlock(&group->mutex);
        state = look_at_nccl(group);
    }
    if (state != CARRIER_READY)
        return;
    call_begins(group, "ncclCommDestroy", COLLECTIVE_ABORT_MS);
    (void)group->api.CommDestroy(group->comm); /* likewise */
    call_ends(group);
    group->comm = NULL;
}

void nccl_group_destroy(struct nccl_group *group)
{
    if (!group)
        return;
    if (group->comm && group->meeting == MEETING_DONE && !group->failed)
        leave_nccl(group);
    abort_nccl(group);
    end_meeting(group);
    mutex_lock(&group->mutex);
    group->stopping = true;
    cond_broadcast(&group->changed);
    mutex_unlock(&group->mutex);
    thread_stop(&group->guard);
    cond_cleanup(&group->changed);
    mutex_cleanup(&group->mutex);
    free(group);
}

/* ---- as a carrier ---------------------------------------------------------------------------- */

struct carrier *nccl_group_carrier(struct nccl_group *group)
{
    return &group->base;
}

static enum carrier_state nccl_call(struct carrier *carrier, trp_queue *queue, void *values,
                                    const struct group_call *call)
{
    return call_nccl((struct nccl_group *)carrier, queue, values, call);
}

static enum carrier_state nccl_look(struct carrier *carrier)
{
    return look_at_nccl((struct nccl_group *)carrier);
}

static const char *nccl_words(const struct carrier *carrier)
{
    return nccl_group_words((const struct nccl_group *)carrier);
}

static void nccl_abort(struct carrier *carrier)
{
    abort_nccl((struct nccl_group *)carrier);
}

static void nccl_destroy(struct carrier *carrier)
{
    nccl_group_destroy((struct nccl_group *)carrier);
}

static const struct carrier_impl nccl_impl = {
    .takes = nccl_takes,
    .call = nccl_call,
    .look = nccl_look,
    .words = nccl_words,
    .abort = nccl_abort,
    .destroy = nccl_destroy,
};

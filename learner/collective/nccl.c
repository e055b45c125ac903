/* One communicator, a thread that looks whether a call of NCCL's hangs, which is under no mutex
 * that callers hold and does nothing but end the process, and later one that aborts. */
#include "nccl.h"

#include <assert.h>
#include <inttypes.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <troupe/log.h>
#include "core/alloc.h"
#include "core/clock.h"
#include "core/thread.h"
#include "collective.h"
#include "limits.h"
#include "schedule.h"

static const struct carrier_impl nccl_impl;
static _Atomic uint64_t numbers; /* of groups, so far */

/* Groups of this process on whose queues there may be operations, or graphs of them. Of the ranks
 * of one process the last to abort waits for the graphs of all, and for what comes before them. */
static _Atomic uint32_t holders;

enum meeting { MEETING_BEGUN, MEETING_JOINED, MEETING_PUT, MEETING_CAPTURED, MEETING_DONE };

struct nccl_group {
    struct carrier base;
    struct nccl_api api;
    uint64_t number;
    uint32_t rank, size, timeout_ms;
    struct mutex calls;     /* held in NCCL's calls, but for the one that aborts; of: */
    struct nccl_comm *comm; /* NULL: there is none any more */
    _Atomic bool over;      /* nothing is put any more */
    bool failed;            /* the rank's thread's, with the words */
    char words[512];
    trp_queue *queues[COLLECTIVE_QUEUES_MAX]; /* that have operations; the last one is last */
    uint32_t queue_count;
    struct nccl_comm *doomed; /* the aborter's */
    struct thread aborter;
    /* Of the meeting: */
    enum meeting meeting;
    trp_queue *queue;
    void *memory;
    uint64_t mark;
    uint32_t puts; /* of operations so far, on streams or graphs */
    /* Who guards calls: */
    struct thread guard;
    struct mutex mutex; /* of what follows */
    struct cond changed;
    const char *call; /* that goes on; NULL: none does */
    struct deadline due;
    bool aborts;          /* that is what goes on: it may take as long as there are holders, but */
    struct deadline last; /* not longer */
    bool holds;           /* it is one; the rank's thread's */
    bool stopping;
};

/* An operation, as its queue records it. */
struct nccl_job {
    struct nccl_group *group;
    uint64_t number; /* the group's */
    void *values;
    struct group_call call; /* without its sequence */
};

/* ---- calls that hang ----------------------------------------------------------------------- */

/* With the mutex. */
static bool call_hangs(struct nccl_group *group)
{
    if (group->call && group->aborts && atomic_load(&holders) > 0) {
        group->due = deadline_in_ms(&clock_monotonic, COLLECTIVE_ABORT_MS);
        return deadline_passed(group->last, &clock_monotonic);
    }
    return group->call && deadline_passed(group->due, &clock_monotonic);
}

static void guard_calls(void *arg)
{
    struct nccl_group *group = arg;
    mutex_lock(&group->mutex);
    while (!group->stopping) {
        if (call_hangs(group)) {
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

/* With the mutex of calls then; false: there is no communicator any more. */
static bool enter_nccl(struct nccl_group *group, const char *call)
{
    mutex_lock(&group->calls);
    if (!group->comm) {
        mutex_unlock(&group->calls);
        return false;
    }
    call_begins(group, call, COLLECTIVE_CALL_MS);
    return true;
}

static void leave_call(struct nccl_group *group)
{
    call_ends(group);
    mutex_unlock(&group->calls);
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
    mutex_lock(&group->calls);
    const char *more = group->api.GetLastError(group->comm);
    snprintf(group->words, sizeof group->words, "%s: %s%s%s", call,
             group->api.GetErrorString(result), more && *more ? ": " : "", more ? more : "");
    mutex_unlock(&group->calls);
    return CARRIER_FAILED;
}

static enum carrier_state fail_with_last_error(struct nccl_group *group)
{
    group->failed = true;
    snprintf(group->words, sizeof group->words, "%s", trp_last_error());
    return CARRIER_FAILED;
}

static void nap(struct nccl_group *group)
{
    mutex_lock(&group->mutex);
    cond_wait(&group->changed, &group->mutex, deadline_in_ms(&clock_monotonic, 1));
    mutex_unlock(&group->mutex);
}

static enum carrier_state look_at_nccl(struct nccl_group *group)
{
    enum nccl_result result = NCCL_SUCCESS, asked;
    if (group->failed || !enter_nccl(group, "ncclCommGetAsyncError"))
        return CARRIER_FAILED;
    asked = group->api.CommGetAsyncError(group->comm, &result);
    leave_call(group);
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

/* As long as NCCL says that it goes on: it may exchange with other ranks where a buffer lies. */
static enum carrier_state wait_for_put(struct nccl_group *group, enum carrier_state state,
                                       const char *words)
{
    struct deadline deadline = deadline_in_ms(&clock_monotonic, group->timeout_ms);
    for (unsigned looks = 0; state == CARRIER_WORKS; looks++) {
        if (deadline_passed(deadline, &clock_monotonic)) {
            trp_fail(TRP_DEADLINE_EXCEEDED,
                     "%s: NCCL has not put it on its stream within %" PRIu32 " ms", words,
                     group->timeout_ms);
            return fail_with_last_error(group);
        }
        if (looks < COLLECTIVE_PUT_LOOKS)
            sched_yield();
        else
            nap(group);
        state = look_at_nccl(group);
    }
    return state;
}

static enum carrier_state begin_put(struct nccl_group *group, void *stream, void *values,
                                    const struct group_call *call, const char *words)
{
    if (group->failed || !enter_nccl(group, words))
        return CARRIER_FAILED;
    enum nccl_result result = put_call(group, stream, values, call);
    leave_call(group);
    return judge_result(group, words, result);
}

/* ---- as works of a queue -----------------------------------------------------------------------
 */

/* Nothing that is put by a group that is over does anything, and it says so already. */
static bool put_job(void *owner, void *stream, const void *arguments)
{
    struct nccl_group *group = owner;
    const struct nccl_job *job = arguments;
    char words[CALL_WORDS_BYTES];
    call_words(&job->call, words);
    group->puts++;
    enum carrier_state state = begin_put(group, stream, job->values, &job->call, words);
    return wait_for_put(group, state, words) == CARRIER_READY;
}

static bool group_is_over(const void *owner)
{
    return atomic_load(&((const struct nccl_group *)owner)->over);
}

/* Operations are done in the order of all ranks: a queue comes after the one that had those before.
 */
static void use_queue(struct nccl_group *group, trp_queue *queue)
{
    uint32_t count = group->queue_count, at = 0;
    if (count > 0 && group->queues[count - 1] == queue)
        return;
    if (count > 0)
        trp_queue_wait(queue, group->queues[count - 1]);
    while (at < count && group->queues[at] != queue)
        at++;
    if (at == COLLECTIVE_QUEUES_MAX)
        trp_queue_forget(group->queues[at = 0], group);
    if (at < count)
        memmove(&group->queues[at], &group->queues[at + 1], (--count - at) * sizeof(trp_queue *));
    group->queues[count] = queue;
    group->queue_count = count + 1;
}

static void record_call(struct nccl_group *group, trp_queue *queue, void *values,
                        const struct group_call *call)
{
    static const trp_library_call library_call = {"NCCL", put_job, group_is_over};
    const trp_operand operand = {offsetof(struct nccl_job, values),
                                 call->count * call_type_bytes(call->type), TRP_READ | TRP_WRITE};
    struct nccl_job job = {group, group->number, values, *call};
    job.call.sequence = 0;
    if (!group->holds)
        atomic_fetch_add(&holders, 1);
    group->holds = true;
    trp_queue_call(queue, &library_call, group, &job, sizeof job, &operand, 1);
}

/* Their graphs go, and with them what NCCL keeps for these. The rest of a step may come before. */
static void forget_queues(struct nccl_group *group)
{
    for (uint32_t i = 0; i < group->queue_count; i++)
        trp_queue_forget(group->queues[i], group);
    group->queue_count = 0;
    if (group->holds)
        atomic_fetch_sub(&holders, 1);
    group->holds = false;
}

/* ---- life ---------------------------------------------------------------------------------- */

static trp_status join_nccl(struct nccl_group *group, const struct nccl_id *id)
{
    struct nccl_config config = NCCL_CONFIG_DEFAULT;
    config.blocking = 0;
    (void)trp_queue_native(group->queue); /* this thread's GPU is the device */
    mutex_lock(&group->calls);
    call_begins(group, "ncclCommInitRankConfig", COLLECTIVE_CALL_MS);
    enum nccl_result result = group->api.CommInitRankConfig(&group->comm, (int)group->size, *id,
                                                            (int)group->rank, &config);
    leave_call(group);
    if (judge_result(group, "ncclCommInitRankConfig", result) == CARRIER_FAILED)
        return trp_fail(TRP_UNAVAILABLE, "%s", group->words);
    return TRP_OK;
}

trp_status nccl_group_create(struct nccl_group **out, const struct nccl_api *api,
                             const struct nccl_id *id, const trp_collective_options *options)
{
    struct nccl_group *group = xcalloc(1, sizeof *group);
    group->api = *api;
    group->base = (struct carrier){&nccl_impl, options->device};
    group->number = atomic_fetch_add(&numbers, 1) + 1;
    group->rank = options->rank;
    group->size = options->size;
    group->timeout_ms = collective_timeout_ms(options);
    group->last = DEADLINE_NEVER;
    mutex_init(&group->calls);
    mutex_init(&group->mutex);
    cond_init(&group->changed);
    trp_status status = thread_start(&group->guard, "nccl guard", guard_calls, group);
    if (status == TRP_OK)
        status = trp_queue_create(&group->queue, options->device);
    if (status == TRP_OK)
        status = trp_device_alloc(options->device, sizeof(float), &group->memory);
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
    if (group->queue)
        trp_queue_forget(group->queue, group);
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
    return fail_with_last_error(group);
}

/* The first operation connects ranks with each other, which may take long, or fail; the second one
 * shows whether it goes into a graph, too: where none came of what was put, it was put again. */
static enum carrier_state advance_meeting(struct nccl_group *group, enum carrier_state state)
{
    static const struct group_call call = {
        .kind = CALL_ALLREDUCE, .type = TRP_COLLECTIVE_F32, .op = TRP_COLLECTIVE_SUM, .count = 1};
    if (state == CARRIER_READY && group->meeting == MEETING_BEGUN)
        state = check_joined_gpu(group);
    if (state == CARRIER_READY && group->meeting == MEETING_BEGUN) {
        group->meeting = MEETING_JOINED;
        state = begin_put(group, trp_queue_native(group->queue), group->memory, &call,
                          "the first allreduce");
    }
    if (state == CARRIER_READY && group->meeting == MEETING_JOINED) {
        group->mark = trp_queue_mark(group->queue);
        group->meeting = MEETING_PUT;
    }
    if (state == CARRIER_READY && group->meeting == MEETING_PUT &&
        trp_queue_done(group->queue, group->mark)) {
        group->puts = 0;
        use_queue(group, group->queue);
        record_call(group, group->queue, group->memory, &call);
        group->mark = trp_queue_mark(group->queue);
        group->meeting = MEETING_CAPTURED;
    }
    return group->failed ? CARRIER_FAILED : state;
}

enum carrier_state nccl_group_meet(struct nccl_group *group)
{
    if (group->meeting == MEETING_DONE)
        return group->failed ? CARRIER_FAILED : CARRIER_READY;
    enum carrier_state state = advance_meeting(group, look_at_nccl(group));
    if (state != CARRIER_READY || group->meeting != MEETING_CAPTURED ||
        !trp_queue_done(group->queue, group->mark))
        return state == CARRIER_FAILED ? CARRIER_FAILED : CARRIER_WORKS;
    if (trp_queue_sync(group->queue, group->mark) != TRP_OK)
        return fail_with_last_error(group);
    if (group->puts > 1) {
        trp_fail(TRP_UNAVAILABLE, "NCCL's operations do not go into a graph of %s",
                 trp_device_name(group->base.device));
        return fail_with_last_error(group);
    }
    forget_queues(group);
    end_meeting(group);
    group->meeting = MEETING_DONE;
    return CARRIER_READY;
}

static void abort_doomed(void *arg)
{
    struct nccl_group *group = arg;
    mutex_lock(&group->mutex);
    group->call = "ncclCommAbort";
    group->aborts = true;
    group->due = deadline_in_ms(&clock_monotonic, COLLECTIVE_ABORT_MS);
    mutex_unlock(&group->mutex);
    (void)group->api.CommAbort(group->doomed); /* there is nothing else to do about it */
    call_ends(group);
}

/* Queues are waited for so long each, and others' meanwhile. */
static void bound_abort(struct nccl_group *group, int64_t queues)
{
    mutex_lock(&group->mutex);
    group->last =
        deadline_earlier(group->last, deadline_in_ms(&clock_monotonic, queues * COLLECTIVE_STEP_MS +
                                                                           COLLECTIVE_ABORT_MS));
    mutex_unlock(&group->mutex);
}

/* Ends what is on its way; what NCCL does besides goes on. From any thread: the rank's own, which
 * knows its queues, may never come to destroy the group. */
static void abort_nccl(struct nccl_group *group)
{
    mutex_lock(&group->calls);
    struct nccl_comm *comm = group->comm;
    group->comm = NULL;
    atomic_store(&group->over, true);
    mutex_unlock(&group->calls);
    if (!comm)
        return;
    group->doomed = comm;
    bound_abort(group, COLLECTIVE_QUEUES_MAX);
    if (thread_start(&group->aborter, "nccl abort", abort_doomed, group) != TRP_OK)
        abort_doomed(group);
}

/* All operations are done, on this rank, and no graph has the communicator. */
static void leave_nccl(struct nccl_group *group)
{
    struct deadline deadline = deadline_in_ms(&clock_monotonic, COLLECTIVE_ABORT_MS);
    if (!enter_nccl(group, "ncclCommFinalize"))
        return;
    enum nccl_result result = group->api.CommFinalize(group->comm);
    leave_call(group);
    enum carrier_state state = judge_result(group, "ncclCommFinalize", result);
    while (state == CARRIER_WORKS && !deadline_passed(deadline, &clock_monotonic)) {
        nap(group);
        state = look_at_nccl(group);
    }
    if (state != CARRIER_READY || !enter_nccl(group, "ncclCommDestroy"))
        return;
    (void)group->api.CommDestroy(group->comm); /* likewise */
    group->comm = NULL;
    atomic_store(&group->over, true);
    leave_call(group);
}

void nccl_group_destroy(struct nccl_group *group)
{
    if (!group)
        return;
    bound_abort(group, group->queue_count > 0 ? group->queue_count : 1);
    bool in_order = group->meeting == MEETING_DONE && !group->failed;
    if (!in_order)
        abort_nccl(group);
    forget_queues(group);
    if (in_order)
        leave_nccl(group);
    abort_nccl(group);
    thread_stop(&group->aborter);
    end_meeting(group);
    mutex_lock(&group->mutex);
    group->stopping = true;
    cond_broadcast(&group->changed);
    mutex_unlock(&group->mutex);
    thread_stop(&group->guard);
    cond_cleanup(&group->changed);
    mutex_cleanup(&group->mutex);
    mutex_cleanup(&group->calls);
    free(group);
}

/* ---- as a carrier ---------------------------------------------------------------------------- */

struct carrier *nccl_group_carrier(struct nccl_group *group)
{
    return &group->base;
}

static void nccl_turn_to(struct carrier *carrier, trp_queue *queue)
{
    use_queue((struct nccl_group *)carrier, queue);
}

/* Whether NCCL takes it comes out when its queue is handed over. */
static enum carrier_state nccl_call(struct carrier *carrier, trp_queue *queue, void *values,
                                    const struct group_call *call)
{
    struct nccl_group *group = (struct nccl_group *)carrier;
    if (group->failed || group_is_over(group))
        return CARRIER_FAILED;
    record_call(group, queue, values, call);
    return CARRIER_READY;
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
    .turn_to = nccl_turn_to,
    .call = nccl_call,
    .look = nccl_look,
    .words = nccl_words,
    .abort = nccl_abort,
    .destroy = nccl_destroy,
};

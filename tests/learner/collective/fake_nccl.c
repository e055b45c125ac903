/* NCCL for tests of learner/collective/nccl.c: as a library that it opens, of communicators of
 * threads, on streams of devices of tests. What is put on a stream is there only when the call is
 * no more in progress, as with the real one, and is done when all ranks' streams have come to it.
 * Those of a stream that is captured are done each time that the graph is launched; communicators
 * of a process go when their graphs have gone, and whoever ends the last one waits for that.
 * FAKE_OLD: of a version that is too old. FAKE_LACKING: without ncclBroadcast. */
#include "fake_nccl.h"

#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/alloc.h"
#include "core/bfloat16.h"
#include "core/thread.h"
#include "learner/collective/nccl_api.h"
#include "tests/nn/native_stream.h"

#define SHOWN __attribute__((visibility("default")))

enum { RANKS = 8, OPS = 256, PENDING = 32, MEETINGS = 2 };

extern struct fake_nccl fake_nccl;
SHOWN struct fake_nccl fake_nccl;

enum fake_kind { FAKE_ALL_REDUCE, FAKE_REDUCE_SCATTER, FAKE_REDUCE, FAKE_ALL_GATHER, FAKE_CAST };

/* A collective, by its number in the clique. */
struct fake_op {
    char *given[RANKS];
    int given_count, taken_count;
};

struct fake_clique {
    struct fake_clique *next;
    struct nccl_id id;
    int joined, users;
    int left, ended, graphs; /* communicators that leave, that end; captured calls of all */
    struct fake_op ops[OPS];
};

struct nccl_comm {
    struct fake_clique *clique;
    int rank, ranks, users, polls, sequence;
    int graphs;        /* captured calls that may be launched again */
    atomic_int inside; /* threads */
    bool joining, leaving, aborted, lost;
    struct fake_call *pending[PENDING];
    int pending_count;
};

struct fake_call {
    struct nccl_comm *comm;
    enum fake_kind kind;
    char *at;
    size_t count, bytes, value_bytes; /* of a part; of all */
    enum nccl_type type;
    enum nccl_reduction op;
    int root, number;
    bool given, captured;
    struct native_stream *stream;
};

static struct once once = ONCE_INIT;
static struct mutex mutex; /* of all that is here */
static struct cond changed;
static struct fake_clique *cliques;
static _Thread_local int depth;
static _Thread_local struct nccl_comm *grouped;

static void prepare(void)
{
    mutex_init(&mutex);
    cond_init(&changed);
}

/* ---- what a stream does -------------------------------------------------------------------- */

static size_t bytes_of(enum nccl_type type)
{
    return type == NCCL_BF16 ? 2 : type == NCCL_U64 ? 8 : 4;
}

static void combine(char *to, const char *from, size_t count, const struct fake_call *call)
{
    bool sums = call->op == NCCL_SUM;
    for (size_t i = 0; i < count; i++) {
        uint64_t *u = (uint64_t *)(void *)to + i;
        uint32_t *w = (uint32_t *)(void *)to + i;
        float *f = (float *)(void *)to + i;
        uint16_t *h = (uint16_t *)(void *)to + i;
        if (call->type == NCCL_U64) {
            uint64_t other = ((const uint64_t *)(const void *)from)[i];
            *u = sums ? *u + other : *u > other ? *u : other;
        } else if (call->type == NCCL_I32) {
            uint32_t other = ((const uint32_t *)(const void *)from)[i];
            *w = sums ? *w + other : (int32_t)*w > (int32_t)other ? *w : other;
        } else if (call->type == NCCL_F32) {
            *f += ((const float *)(const void *)from)[i];
        } else {
            *h = bf16_half(bf16_float(*h) + bf16_float(((const uint16_t *)(const void *)from)[i]));
        }
    }
}

static void take(const struct fake_call *call, const struct fake_op *op)
{
    int ranks = call->comm->ranks;
    size_t part = call->count * call->value_bytes, low = 0;
    switch (call->kind) {
    case FAKE_ALL_GATHER:
        for (int rank = 0; rank < ranks; rank++)
            memcpy(call->at + rank * part, op->given[rank] + rank * part, part);
        return;
    case FAKE_CAST:
        memcpy(call->at, op->given[call->root], part);
        return;
    case FAKE_REDUCE:
        if (call->root != call->comm->rank)
            return;
        break;
    case FAKE_REDUCE_SCATTER:
        low = call->comm->rank * part;
        break;
    case FAKE_ALL_REDUCE:
        break;
    }
    memcpy(call->at + low, op->given[0] + low, part);
    for (int rank = 1; rank < ranks; rank++)
        combine(call->at + low, op->given[rank] + low, call->count, call);
}

static void forget(struct fake_op *op, int ranks)
{
    for (int rank = 0; rank < ranks; rank++)
        free(op->given[rank]);
    *op = (struct fake_op){.given_count = 0};
}

/* Its turn has come, on this rank. */
static void begin_call(struct fake_call *call)
{
    struct nccl_comm *comm = call->comm;
    call->given = true;
    call->number = comm->sequence++;
    fake_nccl.launched += call->captured;
    if (comm->aborted)
        return;
    struct fake_op *op = &comm->clique->ops[call->number % OPS];
    op->given[comm->rank] = xmemdup(call->at, call->bytes);
    op->given_count++;
}

static bool call_step(void *argument)
{
    struct fake_call *call = argument;
    struct nccl_comm *comm = call->comm;
    mutex_lock(&mutex);
    if (!call->given)
        begin_call(call);
    struct fake_op *op = &comm->clique->ops[call->number % OPS];
    bool hangs = fake_nccl.hangs_at > 0 && call->number == fake_nccl.hangs_at + MEETINGS - 1;
    if (hangs && fake_nccl.remote_error == comm->rank + 1)
        comm->lost = true;
    bool done = comm->aborted || (op->given_count == comm->ranks && !hangs);
    if (done && !comm->aborted) {
        take(call, op);
        if (++op->taken_count == comm->ranks)
            forget(op, comm->ranks);
    }
    call->given = call->given && !done; /* until it is launched again */
    mutex_unlock(&mutex);
    return done;
}

/* ---- life; with the mutex ------------------------------------------------------------------ */

static void leave_clique(struct fake_clique *clique, int ranks)
{
    struct fake_clique **at = &cliques;
    if (--clique->users > 0)
        return;
    while (*at != clique)
        at = &(*at)->next;
    *at = clique->next;
    for (int i = 0; i < OPS; i++)
        forget(&clique->ops[i], ranks);
    free(clique);
}

static void comm_leave(struct nccl_comm *comm)
{
    if (--comm->users > 0)
        return;
    leave_clique(comm->clique, comm->ranks);
    free(comm);
}

static void call_end(void *argument)
{
    struct fake_call *call = argument;
    mutex_lock(&mutex);
    call->comm->graphs -= call->captured;
    call->comm->clique->graphs -= call->captured;
    cond_broadcast(&changed);
    comm_leave(call->comm);
    mutex_unlock(&mutex);
    free(call);
}

static struct fake_clique *find_clique(const struct nccl_id *id)
{
    struct fake_clique *clique = cliques;
    while (clique && memcmp(&clique->id, id, sizeof *id) != 0)
        clique = clique->next;
    if (clique)
        return clique;
    clique = xcalloc(1, sizeof *clique);
    clique->id = *id;
    clique->next = cliques;
    return cliques = clique;
}

/* ---- calls --------------------------------------------------------------------------------- */

static void put_pending(struct nccl_comm *comm)
{
    int count = comm->pending_count;
    comm->pending_count = 0;
    for (int i = 0; i < count; i++) {
        struct fake_call *call = comm->pending[i];
        fake_nccl.calls++;
        call->captured = call->stream->captured;
        fake_nccl.captured += call->captured;
        comm->graphs += call->captured;
        comm->clique->graphs += call->captured;
        mutex_unlock(&mutex); /* the stream may do it at once */
        call->stream->put(call->stream, call->at, call->bytes, call_step, call_end, call);
        mutex_lock(&mutex);
    }
}

static bool enter(struct nccl_comm *comm, bool may_be_in_progress)
{
    bool twice = atomic_fetch_add(&comm->inside, 1) > 0;
    mutex_lock(&mutex);
    bool misused = twice || (!may_be_in_progress && (comm->polls > 0 || comm->joining));
    fake_nccl.misuses += misused;
    return !misused;
}

static enum nccl_result leave(struct nccl_comm *comm, enum nccl_result result)
{
    comm->inside--;
    mutex_unlock(&mutex);
    return result;
}

static enum nccl_result call_given(struct nccl_comm *comm)
{
    comm->polls = fake_nccl.polls;
    if (comm->polls > 0)
        return NCCL_IN_PROGRESS;
    put_pending(comm);
    return NCCL_SUCCESS;
}

static enum nccl_result add_call(struct fake_call form, struct nccl_comm *comm, void *stream)
{
    if (!enter(comm, depth > 0 && grouped == comm))
        return leave(comm, NCCL_INVALID_ARGUMENT);
    if (((struct native_stream *)stream)->captured && fake_nccl.no_graphs == comm->rank + 1)
        return leave(comm, NCCL_CUDA_ERROR);
    struct fake_call *call = xmemdup(&form, sizeof form);
    bool all = form.kind == FAKE_ALL_GATHER || form.kind == FAKE_REDUCE_SCATTER;
    call->value_bytes = bytes_of(form.type);
    call->bytes = form.count * call->value_bytes * (size_t)(all ? comm->ranks : 1);
    call->comm = comm;
    call->stream = stream;
    comm->users++;
    comm->pending[comm->pending_count++] = call;
    if (depth > 0) {
        grouped = comm;
        return leave(comm, NCCL_SUCCESS);
    }
    return leave(comm, call_given(comm));
}

#define CALL SHOWN enum nccl_result
CALL ncclGetVersion(int *version);
CALL ncclGetVersion(int *version)
{
#ifdef FAKE_OLD
    *version = 22707;
#else
    *version = 22809;
#endif
    return NCCL_SUCCESS;
}

CALL ncclGetUniqueId(struct nccl_id *id);
CALL ncclGetUniqueId(struct nccl_id *id)
{
    static atomic_int last;
    int number = ++last;
    *id = (struct nccl_id){"fake"};
    memcpy(id->bytes + 8, &number, sizeof number);
    return NCCL_SUCCESS;
}

CALL ncclCommInitRankConfig(struct nccl_comm **out, int ranks, struct nccl_id id, int rank,
                            struct nccl_config *config);
CALL ncclCommInitRankConfig(struct nccl_comm **out, int ranks, struct nccl_id id, int rank,
                            struct nccl_config *config)
{
    once_run(&once, prepare);
    *out = NULL;
    if (fake_nccl.refuses == rank + 1)
        return NCCL_CUDA_ERROR;
    if (config->magic != 0xcafebeef || config->size != sizeof *config || config->blocking != 0)
        return NCCL_INVALID_ARGUMENT;
    struct nccl_comm *comm = xcalloc(1, sizeof *comm);
    mutex_lock(&mutex);
    comm->clique = find_clique(&id);
    comm->rank = rank;
    comm->ranks = ranks;
    comm->users = 1;
    comm->joining = true;
    comm->polls = fake_nccl.polls;
    comm->clique->users++;
    comm->clique->joined += fake_nccl.never_joins != rank + 1;
    fake_nccl.live++;
    mutex_unlock(&mutex);
    *out = comm;
    return NCCL_IN_PROGRESS;
}

CALL ncclCommCuDevice(struct nccl_comm *comm, int *device);
CALL ncclCommCuDevice(struct nccl_comm *comm, int *device)
{
    bool fine = enter(comm, false);
    *device = fake_nccl.elsewhere == comm->rank + 1 ? 7 : 0;
    return leave(comm, fine ? NCCL_SUCCESS : NCCL_INVALID_ARGUMENT);
}

CALL ncclCommGetAsyncError(struct nccl_comm *comm, enum nccl_result *result);
CALL ncclCommGetAsyncError(struct nccl_comm *comm, enum nccl_result *result)
{
    (void)enter(comm, true);
    *result = NCCL_SUCCESS;
    if (comm->lost)
        *result = NCCL_REMOTE_ERROR;
    else if (comm->polls > 0 && --comm->polls > 0) {
        fake_nccl.going_on++;
        *result = NCCL_IN_PROGRESS;
    } else if ((comm->joining && comm->clique->joined < comm->ranks) ||
               (comm->leaving && comm->clique->left < comm->ranks))
        *result = NCCL_IN_PROGRESS; /* all of a host leave together */
    else {
        comm->joining = false;
        put_pending(comm);
    }
    return leave(comm, NCCL_SUCCESS);
}

CALL ncclCommFinalize(struct nccl_comm *comm);
CALL ncclCommFinalize(struct nccl_comm *comm)
{
    bool fine = enter(comm, false) && comm->graphs == 0;
    fake_nccl.misuses += comm->graphs > 0; /* the real one waits */
    comm->polls = fake_nccl.polls;
    comm->leaving = true;
    comm->clique->left++;
    return leave(comm, fine ? NCCL_IN_PROGRESS : NCCL_INVALID_ARGUMENT);
}

/* Of the ranks of a process the last to end waits for all. */
static enum nccl_result end_comm(struct nccl_comm *comm)
{
    bool last = !comm->joining && ++comm->clique->ended == comm->ranks;
    comm->aborted = true;
    while (last && comm->clique->graphs > 0)
        cond_wait(&changed, &mutex, DEADLINE_NEVER);
    comm->inside--;
    fake_nccl.live--;
    for (int i = 0; i < comm->pending_count; i++) { /* never put anywhere */
        free(comm->pending[i]);
        comm->users--;
    }
    comm->pending_count = 0;
    comm_leave(comm);
    mutex_unlock(&mutex);
    return NCCL_SUCCESS;
}

CALL ncclCommDestroy(struct nccl_comm *comm);
CALL ncclCommDestroy(struct nccl_comm *comm)
{
    (void)enter(comm, false);
    fake_nccl.destroys++;
    return end_comm(comm);
}

CALL ncclCommAbort(struct nccl_comm *comm);
CALL ncclCommAbort(struct nccl_comm *comm)
{
    (void)enter(comm, true);
    comm->aborted = true;
    while (fake_nccl.abort_hangs) {
        mutex_unlock(&mutex);
        pause();
        mutex_lock(&mutex);
    }
    fake_nccl.aborts++;
    return end_comm(comm);
}

CALL ncclGroupStart(void);
CALL ncclGroupStart(void)
{
    depth++;
    grouped = NULL;
    return NCCL_SUCCESS;
}

CALL ncclGroupEnd(void);
CALL ncclGroupEnd(void)
{
    struct nccl_comm *comm = grouped;
    if (--depth > 0 || !comm)
        return NCCL_SUCCESS;
    grouped = NULL;
    fake_nccl.grouped++;
    (void)enter(comm, true);
    return leave(comm, call_given(comm));
}

CALL ncclAllReduce(const void *from, void *to, size_t count, enum nccl_type type,
                   enum nccl_reduction op, struct nccl_comm *comm, void *stream);
CALL ncclAllReduce(const void *from, void *to, size_t count, enum nccl_type type,
                   enum nccl_reduction op, struct nccl_comm *comm, void *stream)
{
    fake_nccl.misuses += from != to;
    return add_call(
        (struct fake_call){
            .kind = FAKE_ALL_REDUCE, .at = to, .count = count, .type = type, .op = op},
        comm, stream);
}

CALL ncclReduceScatter(const void *from, void *to, size_t count, enum nccl_type type,
                       enum nccl_reduction op, struct nccl_comm *comm, void *stream);
CALL ncclReduceScatter(const void *from, void *to, size_t count, enum nccl_type type,
                       enum nccl_reduction op, struct nccl_comm *comm, void *stream)
{
    char *whole = (char *)to - (size_t)comm->rank * count * bytes_of(type);
    fake_nccl.misuses += from != whole;
    return add_call(
        (struct fake_call){
            .kind = FAKE_REDUCE_SCATTER, .at = whole, .count = count, .type = type, .op = op},
        comm, stream);
}

CALL ncclReduce(const void *from, void *to, size_t count, enum nccl_type type,
                enum nccl_reduction op, int root, struct nccl_comm *comm, void *stream);
CALL ncclReduce(const void *from, void *to, size_t count, enum nccl_type type,
                enum nccl_reduction op, int root, struct nccl_comm *comm, void *stream)
{
    fake_nccl.misuses += from != to;
    return add_call(
        (struct fake_call){
            .kind = FAKE_REDUCE, .at = to, .count = count, .type = type, .op = op, .root = root},
        comm, stream);
}

CALL ncclAllGather(const void *from, void *to, size_t count, enum nccl_type type,
                   struct nccl_comm *comm, void *stream);
CALL ncclAllGather(const void *from, void *to, size_t count, enum nccl_type type,
                   struct nccl_comm *comm, void *stream)
{
    const char *own = (char *)to + (size_t)comm->rank * count * bytes_of(type);
    fake_nccl.misuses += from != own;
    return add_call(
        (struct fake_call){.kind = FAKE_ALL_GATHER, .at = to, .count = count, .type = type}, comm,
        stream);
}

#ifndef FAKE_LACKING
CALL ncclBroadcast(const void *from, void *to, size_t count, enum nccl_type type, int root,
                   struct nccl_comm *comm, void *stream);
CALL ncclBroadcast(const void *from, void *to, size_t count, enum nccl_type type, int root,
                   struct nccl_comm *comm, void *stream)
{
    fake_nccl.misuses += from != to;
    return add_call(
        (struct fake_call){.kind = FAKE_CAST, .at = to, .count = count, .type = type, .root = root},
        comm, stream);
}
#endif

SHOWN const char *ncclGetErrorString(enum nccl_result result);
SHOWN const char *ncclGetErrorString(enum nccl_result result)
{
    return result == NCCL_REMOTE_ERROR ? "remote error" : "unhandled error";
}

SHOWN const char *ncclGetLastError(struct nccl_comm *comm);
SHOWN const char *ncclGetLastError(struct nccl_comm *comm)
{
    (void)comm;
    return "";
}

/* A queue records what is put on it. The list goes to the GPU when somebody could notice: at a
 * mark, when another queue waits for it, at a copy to the host, or one from there to where it gets.
 * A list that comes for the second time becomes a graph, and from then on the GPU is told no more
 * than "that one"; lists that differ each time are run work by work. One with calls of another
 * library becomes a graph at once, as trp_queue_call() says, and is not run as one any more when an
 * owner of such a call has ended.
 *
 * The host's memory is copied to and from pinned memory, a ring whose room is free again when a
 * mark behind it was waited for; what lies in pinned memory already goes from where it is.
 * What comes from the device lies in the ring until then, too: whoever reads it has waited. */
#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/alloc.h"
#include "core/array.h"
#include "core/hash.h"
#include "device.h"
#include "nn/graph.h"

/* A list that was met before, with its graph from the second time on. */
struct known_list {
    uint64_t hash;
    struct cuda_list list; /* empty while there is no graph */
    struct machine_graph *graph;
    uint64_t used; /* when it was last, by the number of runs */
    uint64_t mark; /* behind its last launch */
    bool refused;  /* it cannot be a graph */
};

/* Bytes for the host, which the device has written when the mark is reached. */
struct host_delivery {
    void *to;
    const void *from;
    size_t bytes;
    uint64_t mark;
};

struct queue_mark {
    struct machine_event *event;
    size_t staged; /* of the ring, up to it */
};

struct cuda_queue {
    trp_queue base;
    struct machine *machine;
    struct machine_stream *stream;
    struct machine_event *handed; /* for queues that wait for this one */
    struct cuda_list list;        /* not run yet */
    struct known_list known[QUEUE_GRAPHS_MAX + QUEUE_MET_MAX];
    uint32_t known_count;
    uint64_t runs;
    struct queue_mark marks[QUEUE_MARKS_MAX]; /* by number, modulo */
    uint64_t marked, waited;                  /* numbers of the last ones */
    char *ring;
    size_t ring_bytes, staged, freed; /* bytes ever staged, and free again */
    struct host_delivery *deliveries;
    uint32_t delivery_count, delivery_room;
    trp_status failure; /* the first of what nobody asked about: whoever asks next is told */
    char failed[256];   /* in words */
};

static struct cuda_queue *cuda_queue(trp_queue *queue)
{
    return (struct cuda_queue *)queue;
}

struct cuda_list *cuda_queue_list(trp_queue *queue)
{
    struct cuda_queue *q = cuda_queue(queue);
    return &q->list;
}

/* ---- marks --------------------------------------------------------------------------------- */

static void queue_fail(struct cuda_queue *q, trp_status status)
{
    if (q->failure != TRP_OK)
        return;
    q->failure = status;
    snprintf(q->failed, sizeof q->failed, "%s", trp_last_error());
}

static void deliver(struct cuda_queue *q, uint64_t mark)
{
    uint32_t left = 0;
    for (uint32_t i = 0; i < q->delivery_count; i++) {
        const struct host_delivery *delivery = &q->deliveries[i];
        if (delivery->mark <= mark)
            memcpy(delivery->to, delivery->from, delivery->bytes);
        else
            q->deliveries[left++] = *delivery;
    }
    q->delivery_count = left;
}

static trp_status own_failure(const struct cuda_queue *q)
{
    return q->failure == TRP_OK ? TRP_OK : trp_fail(q->failure, "%s", q->failed);
}

/* One that hangs is not waited for again; one that failed otherwise works on. */
static trp_status wait_within(struct cuda_queue *q, uint64_t mark, int64_t timeout_ms)
{
    if (q->failure == TRP_DEADLINE_EXCEEDED)
        return own_failure(q);
    if (mark < q->waited)
        mark = q->waited; /* is done, too, and still has its event */
    if (mark == 0)
        return own_failure(q);
    const struct queue_mark *slot = &q->marks[mark % QUEUE_MARKS_MAX];
    TRP_TRY(q->machine->impl->event_wait(q->machine, slot->event, timeout_ms));
    if (mark > q->waited) {
        q->waited = mark;
        q->freed = slot->staged;
        deliver(q, mark);
    }
    return own_failure(q);
}

static trp_status wait_for_mark(struct cuda_queue *q, uint64_t mark)
{
    trp_status status = wait_within(q, mark, QUEUE_SYNC_MS);
    if (status == TRP_DEADLINE_EXCEEDED)
        return trp_fail(TRP_DEADLINE_EXCEEDED, "device %s is not done within %d s",
                        q->machine->name, QUEUE_SYNC_MS / 1000);
    return status;
}

/* What is not done by then may be written over. */
static void wait_silently(struct cuda_queue *q, uint64_t mark)
{
    trp_status status = wait_for_mark(q, mark);
    if (status == TRP_OK)
        return;
    queue_fail(q, status);
    q->freed = q->staged;
}

/* Of what the stream was told so far. */
static uint64_t mark_stream(struct cuda_queue *q)
{
    uint64_t mark = q->marked + 1;
    if (mark > QUEUE_MARKS_MAX && mark - QUEUE_MARKS_MAX > q->waited)
        wait_silently(q, mark - QUEUE_MARKS_MAX);
    q->marked = mark;
    struct queue_mark *slot = &q->marks[mark % QUEUE_MARKS_MAX];
    if (!slot->event)
        slot->event = q->machine->impl->event_create(q->machine);
    slot->staged = q->staged;
    q->machine->impl->event_record(q->machine, q->stream, slot->event);
    return mark;
}

/* ---- running lists ------------------------------------------------------------------------- */

/* Its graph was waited for. */
static void drop_list(struct cuda_queue *q, struct known_list *known)
{
    if (known->graph)
        q->machine->impl->forget(q->machine, known->graph);
    work_list_cleanup(&known->list);
    *known = (struct known_list){0};
}

/* To make room. */
static void forget_list(struct cuda_queue *q, struct known_list *known)
{
    if (known->graph && known->mark > q->waited)
        wait_silently(q, known->mark > q->marked ? mark_stream(q) : known->mark);
    drop_list(q, known);
}

/* The one with that hash, or the place of the one that was not met for the longest time. */
static struct known_list *find_known(struct cuda_queue *q, uint64_t hash)
{
    struct known_list *oldest = &q->known[0];
    for (uint32_t i = 0; i < q->known_count; i++) {
        if (q->known[i].hash == hash)
            return &q->known[i];
        if (q->known[i].used < oldest->used)
            oldest = &q->known[i];
    }
    if (q->known_count < QUEUE_GRAPHS_MAX + QUEUE_MET_MAX)
        return &q->known[q->known_count++];
    return oldest;
}

/* False: there are as many graphs as may be. */
static bool has_room_for_graph(const struct cuda_queue *q)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < q->known_count; i++)
        count += q->known[i].graph != NULL;
    return count < QUEUE_GRAPHS_MAX;
}

static void forget_oldest_graph(struct cuda_queue *q)
{
    struct known_list *oldest = NULL;
    for (uint32_t i = 0; i < q->known_count; i++)
        if (q->known[i].graph && (!oldest || q->known[i].used < oldest->used))
            oldest = &q->known[i];
    if (oldest)
        forget_list(q, oldest);
}

static void capture_list(struct cuda_queue *q, struct known_list *known)
{
    struct cuda_schedule schedule;
    schedule_make(&schedule, &q->list);
    known->graph = q->machine->impl->capture(q->machine, &schedule);
    known->refused = !known->graph;
    schedule_cleanup(&schedule);
    if (known->graph)
        known->list = work_list_copy(&q->list);
}

static uint64_t hash_of(const struct cuda_list *list)
{
    uint64_t hash = hash_bytes(0, list->bytes, list->bytes_used);
    return hash_fold(hash ^ list->count, UINT64_C(0x9e3779b97f4a7c15)) | 1;
}

static void run_list(struct cuda_queue *q)
{
    const struct machine_impl *impl = q->machine->impl;
    uint64_t hash = hash_of(&q->list);
    struct known_list *known = find_known(q, hash);
    bool met = known->hash == hash;
    if (!met || (known->graph && !work_lists_equal(&known->list, &q->list))) {
        forget_list(q, known);
        known->hash = hash;
        met = false;
    }
    known->used = ++q->runs;
    bool calls = q->list.call_count > 0, over = work_list_is_over(&q->list);
    if (calls && !over && !known->graph && !has_room_for_graph(q))
        forget_oldest_graph(q);
    if ((met || calls) && !over && !known->graph && !known->refused && has_room_for_graph(q))
        capture_list(q, known);
    known->mark = q->marked + 1;
    if (known->graph && !over)
        impl->launch(q->machine, q->stream, known->graph);
    else
        impl->run(q->machine, q->stream, &q->list);
}

static void flush(struct cuda_queue *q)
{
    if (q->list.count == 0)
        return;
    run_list(q);
    work_list_clear(&q->list);
}

/* ---- marks, for whoever has the queue ---------------------------------------------------------
 */

static uint64_t queue_mark(trp_queue *queue)
{
    struct cuda_queue *q = cuda_queue(queue);
    flush(q);
    return mark_stream(q);
}

static bool queue_done(trp_queue *queue, uint64_t mark)
{
    struct cuda_queue *q = cuda_queue(queue);
    assert(mark <= q->marked);
    return q->failure == TRP_DEADLINE_EXCEEDED || wait_within(q, mark, 0) != TRP_DEADLINE_EXCEEDED;
}

static trp_status queue_sync(trp_queue *queue, uint64_t mark)
{
    struct cuda_queue *q = cuda_queue(queue);
    assert(mark <= q->marked);
    return wait_for_mark(q, mark);
}

/* ---- copies -------------------------------------------------------------------------------- */

/* Room of the ring that lies together; `bytes` is at most half of it. */
static char *ring_room(struct cuda_queue *q, size_t bytes)
{
    size_t at = q->staged % q->ring_bytes;
    if (at + bytes > q->ring_bytes) { /* the rest of this round stays empty */
        q->staged += q->ring_bytes - at;
        at = 0;
    }
    if (q->staged + bytes > q->freed + q->ring_bytes) {
        wait_silently(q, queue_mark(&q->base));
        q->freed = q->staged;
    }
    q->staged += round_up(bytes, ALIGNMENT);
    return q->ring + at;
}

/* A ring that such copies fit into several times, as far as it may grow. False: there is none, and
 * nothing is copied. */
static bool ring_grow(struct cuda_queue *q, size_t bytes)
{
    size_t wanted = bytes <= QUEUE_STAGING_BYTES / 8 ? 8 * bytes : QUEUE_STAGING_BYTES;
    wanted = round_up(wanted, 1 << 20);
    if (wanted <= q->ring_bytes)
        return true;
    void *ring;
    trp_status status = wait_for_mark(q, queue_mark(&q->base));
    if (status == TRP_OK)
        status = q->machine->impl->pin(q->machine, wanted, &ring);
    if (status != TRP_OK && !q->ring)
        queue_fail(q, status);
    if (status != TRP_OK)
        return q->ring != NULL;
    if (q->ring)
        q->machine->impl->unpin(q->machine, q->ring);
    q->ring = ring;
    q->ring_bytes = wanted;
    q->staged = q->freed = 0;
    for (size_t i = 0; i < QUEUE_MARKS_MAX; i++)
        q->marks[i].staged = 0;
    return true;
}

/* What is to be delivered to these bytes is there before they are read. */
static void settle_deliveries(struct cuda_queue *q, const void *from, size_t bytes)
{
    const char *low = from;
    for (uint32_t i = 0; i < q->delivery_count; i++) {
        const char *to = q->deliveries[i].to;
        if (to < low + bytes && low < to + q->deliveries[i].bytes) {
            wait_silently(q, queue_mark(&q->base));
            return;
        }
    }
}

static void upload(struct cuda_queue *q, char *to, const char *from, size_t bytes)
{
    settle_deliveries(q, from, bytes);
    if (pinned_has(pinned_of(q->base.device), from, bytes)) {
        q->machine->impl->copy(q->machine, q->stream, to, from, bytes);
        return;
    }
    for (size_t done = 0; done < bytes && ring_grow(q, bytes);) {
        size_t piece = bytes - done < q->ring_bytes / 2 ? bytes - done : q->ring_bytes / 2;
        char *room = ring_room(q, piece);
        memcpy(room, from + done, piece);
        q->machine->impl->copy(q->machine, q->stream, to + done, room, piece);
        done += piece;
    }
}

static void download(struct cuda_queue *q, char *to, const char *from, size_t bytes)
{
    for (size_t done = 0; done < bytes && ring_grow(q, bytes);) {
        size_t piece = bytes - done < q->ring_bytes / 2 ? bytes - done : q->ring_bytes / 2;
        char *room = ring_room(q, piece);
        q->machine->impl->copy(q->machine, q->stream, room, from + done, piece);
        *ARRAY_PUSH(q->deliveries, q->delivery_count, q->delivery_room) =
            (struct host_delivery){to + done, room, piece, q->marked + 1};
        done += piece;
    }
}

static void queue_copy(trp_queue *queue, void *to, const void *from, size_t bytes)
{
    struct cuda_queue *q = cuda_queue(queue);
    const struct machine_impl *impl = q->machine->impl;
    bool to_device = impl->owns(q->machine, to), from_device = impl->owns(q->machine, from);
    if (bytes == 0 || to == from)
        return;
    if (to_device && from_device) {
        work_copy(&q->list, to, from, bytes);
        return;
    }
    if (!to_device || work_list_reaches(&q->list, to, bytes))
        flush(q); /* else what goes up may do so before the list, which stays one */
    if (to_device)
        upload(q, to, from, bytes);
    else if (from_device)
        download(q, to, from, bytes);
    else
        *ARRAY_PUSH(q->deliveries, q->delivery_count, q->delivery_room) =
            (struct host_delivery){to, from, bytes, q->marked + 1};
}

static void queue_zero(trp_queue *queue, void *to, size_t bytes)
{
    work_zero(cuda_queue_list(queue), to, bytes);
}

/* ---- the rest ------------------------------------------------------------------------------ */

static void queue_run(trp_queue *queue, const trp_kernel *kernel, const void *arguments,
                      size_t bytes, const trp_operand *operands, size_t operand_count)
{
    struct cuda_queue *q = cuda_queue(queue);
    const struct cuda_kernel *code = q->machine->impl->find_kernel(q->machine, kernel->name);
    assert(!code || code->argument_bytes == bytes);
    work_run(&q->list, code, kernel, arguments, bytes, operands, operand_count);
    if (q->list.count >= QUEUE_WORKS_MAX)
        flush(q);
}

/* What is on the list comes after `other`, too: that does no harm, and keeps a list in one. */
static void queue_wait(trp_queue *queue, trp_queue *other)
{
    struct cuda_queue *q = cuda_queue(queue), *before = cuda_queue(other);
    const struct machine_impl *impl = q->machine->impl;
    flush(before);
    impl->event_record(before->machine, before->stream, before->handed);
    impl->stream_wait(q->machine, q->stream, before->handed);
}

static void queue_call(trp_queue *queue, const trp_library_call *call, void *owner,
                       const void *arguments, size_t bytes, const trp_operand *operands,
                       size_t operand_count)
{
    work_call(cuda_queue_list(queue), call, owner, arguments, bytes, operands, operand_count);
}

static void queue_forget(trp_queue *queue, const void *owner)
{
    struct cuda_queue *q = cuda_queue(queue);
    for (uint32_t i = 0; i < q->known_count; i++)
        if (work_list_calls(&q->known[i].list, owner))
            drop_list(q, &q->known[i]);
}

static void *queue_native(trp_queue *queue)
{
    struct cuda_queue *q = cuda_queue(queue);
    flush(q);
    return q->machine->impl->stream_native(q->machine, q->stream);
}

static void cuda_queue_destroy(trp_queue *queue)
{
    struct cuda_queue *q = cuda_queue(queue);
    const struct machine_impl *impl = q->machine->impl;
    for (uint32_t i = 0; i < q->known_count; i++)
        drop_list(q, &q->known[i]);
    for (size_t i = 0; i < QUEUE_MARKS_MAX; i++)
        if (q->marks[i].event)
            impl->event_destroy(q->machine, q->marks[i].event);
    impl->event_destroy(q->machine, q->handed);
    impl->stream_destroy(q->machine, q->stream);
    if (q->ring)
        impl->unpin(q->machine, q->ring);
    work_list_cleanup(&q->list);
    free(q->deliveries);
    free(q);
}

static const struct queue_impl cuda_queue_impl = {
    .destroy = cuda_queue_destroy,
    .copy = queue_copy,
    .zero = queue_zero,
    .run = queue_run,
    .wait = queue_wait,
    .native = queue_native,
    .call = queue_call,
    .forget = queue_forget,
    .mark = queue_mark,
    .done = queue_done,
    .sync = queue_sync,
};

trp_status cuda_queue_create(trp_device *device, trp_queue **out)
{
    struct machine *machine = machine_of(device);
    struct machine_stream *stream;
    TRP_TRY(machine->impl->stream_create(machine, &stream));
    struct cuda_queue *q = xcalloc(1, sizeof *q);
    q->base = (trp_queue){&cuda_queue_impl, device};
    q->machine = machine;
    q->stream = stream;
    q->handed = machine->impl->event_create(machine);
    *out = &q->base;
    return TRP_OK;
}

/* A device for tests that is as far from a host as a device may be. Its memory cannot be touched
 * from outside. What is put on queues is done when somebody waits for it, or a little earlier, in
 * any order that is allowed. A kernel or a pass gets to what it said it reads or writes, and to
 * nothing else: anything more is a fault. Two that meet in memory, one of them writing, have to be
 * ordered: by their queue, a wait, or the host's waiting in between. Memory and queues go when what
 * uses them was waited for, or the device is lost. */
#ifndef TRP_TESTS_LATE_DEVICE_H
#define TRP_TESTS_LATE_DEVICE_H

#include <inttypes.h>
#include <sched.h>
#include <sys/mman.h>
#include <unistd.h>

#include "nn/device.h"
#include "native_stream.h"
#include "nn_tools.h"

enum { LATE_QUEUES = 6, LATE_ALLOCATIONS = 256, LATE_OPS = 4096, LATE_RANGES = 48 };

enum late_kind {
    LATE_COPY,
    LATE_ZERO,
    LATE_KERNEL,
    LATE_FORWARD,
    LATE_BACKWARD,
    LATE_NOISE,
    LATE_CALL,
    LATE_NOTHING, /* but that what follows comes after what it does */
};

struct late_range {
    const char *at;
    size_t bytes;
    bool writes;
};

struct late_op {
    enum late_kind kind;
    bool (*step)(void *argument); /* LATE_CALL */
    void (*end)(void *argument);
    uint32_t queue;
    uint64_t number;             /* in its queue, from 1 on */
    uint64_t after[LATE_QUEUES]; /* everything up to these came before it */
    const trp_kernel *kernel;    /* and what it runs on: */
    trp_net *net;                /* the host's */
    void *arguments;             /* of a kernel; a pass; noise or NULL */
    uint32_t rows;
    struct late_range ranges[LATE_RANGES];
    size_t range_count;
    bool done;
};

struct late_queue {
    trp_queue base;
    bool used;
    uint32_t index;
    uint64_t put, done;          /* operations */
    uint64_t after[LATE_QUEUES]; /* what the next one comes after */
    bool waits;                  /* and nothing has been put since that changed */
    struct native_stream native;
};

struct late_device {
    trp_device base;
    struct late_queue queues[LATE_QUEUES];
    struct {
        char *memory;
        size_t bytes;
    } allocations[LATE_ALLOCATIONS];
    struct late_op *ops[LATE_OPS]; /* put, and not known by the host to be done */
    size_t op_count;
    uint64_t host[LATE_QUEUES]; /* what the host waited for */
    trp_rng rng;
    uint64_t syncs, early; /* waits so far; operations done before anybody waited for them */
    uint64_t uploaded;     /* bytes copied from the host */
    uint64_t lost_at;      /* the device is lost when it has done so many; 0: never */
    uint64_t total;
    bool lost;
};

/* ---- memory -------------------------------------------------------------------------------- */

static inline size_t late_page(void)
{
    return (size_t)sysconf(_SC_PAGESIZE);
}

static inline trp_status late_alloc(trp_device *base, size_t bytes, void **memory)
{
    struct late_device *late = (struct late_device *)base;
    size_t rounded = round_up(bytes, late_page());
    for (size_t i = 0; i < LATE_ALLOCATIONS; i++) {
        if (late->allocations[i].memory)
            continue;
        *memory = mmap(NULL, rounded, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        assert_true(*memory != MAP_FAILED);
        late->allocations[i].memory = *memory;
        late->allocations[i].bytes = rounded;
        return TRP_OK;
    }
    return trp_fail(TRP_RESOURCE_EXHAUSTED, "device late has no memory left");
}

static inline size_t late_find(const struct late_device *late, const void *at)
{
    size_t i = 0;
    for (; i < LATE_ALLOCATIONS; i++)
        if (late->allocations[i].memory && (const char *)at >= late->allocations[i].memory &&
            (const char *)at < late->allocations[i].memory + late->allocations[i].bytes)
            break;
    return i;
}

/* Nobody waited for it: whether it is done is the device's own business. */
static inline bool late_uses(const struct late_op *op, const char *memory, size_t bytes)
{
    for (size_t i = 0; i < op->range_count; i++)
        if (op->ranges[i].at < memory + bytes && memory < op->ranges[i].at + op->ranges[i].bytes)
            return true;
    return false;
}

static inline void late_free(trp_device *base, void *memory)
{
    struct late_device *late = (struct late_device *)base;
    size_t i = late_find(late, memory);
    assert_true(i < LATE_ALLOCATIONS);
    for (size_t k = 0; k < late->op_count && !late->lost; k++)
        if (late_uses(late->ops[k], memory, late->allocations[i].bytes))
            fail_msg("memory is freed that operation %" PRIu64 " of queue %" PRIu32
                     ", which nobody waited for, uses",
                     late->ops[k]->number, late->ops[k]->queue);
    munmap(memory, late->allocations[i].bytes);
    late->allocations[i].memory = NULL;
}

/* Opens to the operation what it named, or closes it again. */
static inline void late_protect(struct late_device *late, const struct late_op *op, bool open)
{
    for (int writes = 0; writes < 2; writes++)
        for (size_t i = 0; i < op->range_count; i++) {
            size_t at = late_find(late, op->ranges[i].at);
            if (at == LATE_ALLOCATIONS || op->ranges[i].writes != (writes == 1))
                continue;
            int rights = writes ? PROT_READ | PROT_WRITE : PROT_READ;
            assert_int_equal(mprotect(late->allocations[at].memory, late->allocations[at].bytes,
                                      open ? rights : PROT_NONE),
                             0);
        }
}

/* ---- doing --------------------------------------------------------------------------------- */

static inline void late_end(struct late_op *op)
{
    if (op->kind == LATE_CALL)
        op->end(op->arguments);
    else
        free(op->arguments);
    free(op);
}

/* False: it is not done yet, as it waits for somebody else. */
static inline bool late_do(struct late_device *late, struct late_op *op)
{
    bool ends = true;
    late_protect(late, op, true);
    switch (op->kind) {
    case LATE_CALL:
        ends = op->step(op->arguments);
        break;
    case LATE_COPY:
        memcpy((void *)(uintptr_t)op->ranges[0].at, op->ranges[1].at, op->ranges[0].bytes);
        break;
    case LATE_ZERO:
        memset((void *)(uintptr_t)op->ranges[0].at, 0, op->ranges[0].bytes);
        break;
    case LATE_KERNEL:
        op->kernel->run(op->arguments);
        break;
    case LATE_FORWARD:
        op->net->impl->forward(op->net, NULL, op->arguments, op->rows);
        break;
    case LATE_BACKWARD:
        op->net->impl->backward(op->net, NULL, op->arguments, op->rows);
        break;
    case LATE_NOISE:
        op->net->impl->noise(op->net, NULL, op->arguments);
        break;
    case LATE_NOTHING:
        break;
    }
    late_protect(late, op, false);
    if (!ends)
        return false;
    op->done = true;
    late->queues[op->queue].done = op->number;
    late->total++;
    late->lost = late->lost || late->total == late->lost_at;
    return true;
}

static inline struct late_op *late_next(struct late_device *late, uint32_t queue)
{
    for (size_t i = 0; i < late->op_count; i++)
        if (late->ops[i]->queue == queue && !late->ops[i]->done)
            return late->ops[i];
    return NULL;
}

static inline bool late_may(const struct late_device *late, const struct late_op *op)
{
    for (uint32_t i = 0; i < LATE_QUEUES; i++)
        if (i != op->queue && late->queues[i].done < op->after[i])
            return false;
    return true;
}

/* Does what queue `queue` has up to `mark`, and now and then something that nobody waits for.
 * False: it could not without waiting, and does not. */
static inline bool late_reach(struct late_device *late, uint32_t queue, uint64_t mark, bool waits)
{
    while (late->queues[queue].done < mark && !late->lost) {
        struct late_op *op = late_next(late, queue);
        for (int tries = 0; !late_may(late, op) || (tries == 0 && trp_rng_below(&late->rng, 2));
             tries++) {
            struct late_op *other =
                late_next(late, (uint32_t)trp_rng_below(&late->rng, LATE_QUEUES));
            op = other ? other : op;
        }
        if (late_do(late, op))
            continue;
        if (!waits)
            return false;
        sched_yield();
    }
    return true;
}

static inline void late_forget(struct late_device *late)
{
    size_t kept = 0;
    for (size_t i = 0; i < late->op_count; i++) {
        struct late_op *op = late->ops[i];
        if (!op->done || op->number > late->host[op->queue]) {
            late->ops[kept++] = op;
            continue;
        }
        late_end(op);
    }
    late->op_count = kept;
}

/* ---- putting ------------------------------------------------------------------------------- */

static inline void late_touch(struct late_op *op, const void *at, size_t bytes, bool writes)
{
    if (!at || bytes == 0)
        return;
    assert_true(op->range_count < LATE_RANGES);
    op->ranges[op->range_count++] = (struct late_range){at, bytes, writes};
}

static inline bool late_ordered(const struct late_op *first, const struct late_op *then)
{
    return first->queue == then->queue || then->after[first->queue] >= first->number;
}

static inline void late_check(const struct late_op *a, const struct late_op *b)
{
    for (size_t i = 0; i < a->range_count; i++)
        for (size_t k = 0; k < b->range_count; k++) {
            struct late_range x = a->ranges[i], y = b->ranges[k];
            if ((x.writes || y.writes) && x.at < y.at + y.bytes && y.at < x.at + x.bytes)
                fail_msg("operation %" PRIu64 " of queue %" PRIu32 " (%s) and %" PRIu64
                         " of queue %" PRIu32 " (%s) meet in memory, in no order",
                         a->number, a->queue, a->kernel ? a->kernel->name : "copy or pass",
                         b->number, b->queue, b->kernel ? b->kernel->name : "copy or pass");
        }
}

static inline struct late_op *late_op(enum late_kind kind)
{
    struct late_op *op = xcalloc(1, sizeof *op);
    op->kind = kind;
    return op;
}

static inline void late_put(trp_queue *base, struct late_op *op)
{
    struct late_queue *queue = (struct late_queue *)base;
    struct late_device *late = (struct late_device *)base->device;
    op->queue = queue->index;
    op->number = ++queue->put;
    queue->waits = false;
    for (uint32_t i = 0; i < LATE_QUEUES; i++)
        op->after[i] = queue->after[i] > late->host[i] ? queue->after[i] : late->host[i];
    for (size_t i = 0; i < late->op_count; i++)
        if (!late_ordered(late->ops[i], op))
            late_check(late->ops[i], op);
    assert_true(late->op_count < LATE_OPS);
    late->ops[late->op_count++] = op;
    if (trp_rng_below(&late->rng, 4) == 0 && !late->lost) {
        struct late_op *any = late_next(late, (uint32_t)trp_rng_below(&late->rng, LATE_QUEUES));
        if (any && late_may(late, any)) {
            late->early += late_do(late, any);
        }
    }
}

static inline void late_copy(trp_queue *queue, void *to, const void *from, size_t bytes)
{
    struct late_op *op = late_op(LATE_COPY);
    late_touch(op, to, bytes, true);
    late_touch(op, from, bytes, false);
    struct late_device *late = (struct late_device *)queue->device;
    bool goes_up = late_find(late, from) == LATE_ALLOCATIONS;
    late->uploaded += goes_up && late_find(late, to) < LATE_ALLOCATIONS ? bytes : 0;
    if (bytes > 0)
        late_put(queue, op);
    else
        free(op);
}

static inline void late_zero(trp_queue *queue, void *to, size_t bytes)
{
    struct late_op *op = late_op(LATE_ZERO);
    late_touch(op, to, bytes, true);
    late_put(queue, op);
}

static inline void late_run(trp_queue *queue, const trp_kernel *kernel, const void *arguments,
                            size_t bytes, const trp_operand *operands, size_t operand_count)
{
    struct late_op *op = late_op(LATE_KERNEL);
    op->kernel = kernel;
    op->arguments = xmemdup(arguments, bytes);
    for (size_t i = 0; i < operand_count; i++) {
        const char *at;
        memcpy(&at, (const char *)arguments + operands[i].pointer, sizeof at);
        if (at && late_find((struct late_device *)queue->device, at) == LATE_ALLOCATIONS)
            fail_msg("kernel %s is given memory that is not the device's", kernel->name);
        late_touch(op, at, operands[i].bytes, operands[i].access & TRP_WRITE);
    }
    late_put(queue, op);
}

static inline void late_wait(trp_queue *base, trp_queue *other)
{
    struct late_queue *queue = (struct late_queue *)base, *before = (struct late_queue *)other;
    for (uint32_t i = 0; i < LATE_QUEUES; i++) {
        uint64_t after = i == before->index ? before->put : before->after[i];
        queue->after[i] = after > queue->after[i] ? after : queue->after[i];
    }
    queue->waits = true;
}

/* What the queue waits for has its place on it. */
static inline uint64_t late_mark(trp_queue *base)
{
    struct late_queue *queue = (struct late_queue *)base;
    if (queue->waits)
        late_put(base, late_op(LATE_NOTHING));
    return queue->put;
}

static inline bool late_is_done(trp_queue *base, uint64_t mark)
{
    struct late_queue *queue = (struct late_queue *)base;
    struct late_device *late = (struct late_device *)base->device;
    return late_reach(late, queue->index, mark, false) || late->lost;
}

static inline void late_call(struct native_stream *stream, void *at, size_t bytes,
                             bool (*step)(void *argument), void (*end)(void *argument),
                             void *argument)
{
    struct late_queue *queue =
        (struct late_queue *)((char *)stream - offsetof(struct late_queue, native));
    struct late_op *op = late_op(LATE_CALL);
    op->step = step;
    op->end = end;
    op->arguments = argument;
    late_touch(op, at, bytes, true);
    late_put(&queue->base, op);
}

static inline void *late_native(trp_queue *base)
{
    struct late_queue *queue = (struct late_queue *)base;
    queue->native.put = late_call;
    return &queue->native;
}

/* At once: each is put once. */
static inline void late_library_call(trp_queue *queue, const trp_library_call *call, void *owner,
                                     const void *arguments, size_t bytes,
                                     const trp_operand *operands, size_t operand_count)
{
    (void)bytes, (void)operands, (void)operand_count;
    (void)call->put(owner, late_native(queue), arguments);
}

static inline trp_status late_sync(trp_queue *base, uint64_t mark)
{
    struct late_queue *queue = (struct late_queue *)base;
    struct late_device *late = (struct late_device *)base->device;
    late->syncs += mark > late->host[queue->index]; /* what is known to be done is no wait */
    assert_true(mark <= queue->put);
    late_reach(late, queue->index, mark, true);
    if (late->lost)
        return trp_fail(TRP_UNAVAILABLE, "device late is lost");
    late->host[queue->index] = mark > late->host[queue->index] ? mark : late->host[queue->index];
    for (size_t i = 0; i < late->op_count; i++) /* and so all that came before it */
        for (uint32_t k = 0;
             late->ops[i]->queue == queue->index && late->ops[i]->number == mark && k < LATE_QUEUES;
             k++)
            late->host[k] =
                late->ops[i]->after[k] > late->host[k] ? late->ops[i]->after[k] : late->host[k];
    late_forget(late);
    return TRP_OK;
}

static inline void late_queue_destroy(trp_queue *base)
{
    struct late_queue *queue = (struct late_queue *)base;
    const struct late_device *late = (const struct late_device *)base->device;
    for (size_t i = 0; i < late->op_count && !late->lost; i++)
        assert_true(late->ops[i]->queue != queue->index); /* it was waited for */
    queue->used = false;
}

static const struct queue_impl late_queue_impl = {.destroy = late_queue_destroy,
                                                  .copy = late_copy,
                                                  .zero = late_zero,
                                                  .run = late_run,
                                                  .wait = late_wait,
                                                  .native = late_native,
                                                  .call = late_library_call,
                                                  .mark = late_mark,
                                                  .done = late_is_done,
                                                  .sync = late_sync};

static inline trp_status late_queue_create(trp_device *base, trp_queue **out)
{
    struct late_device *late = (struct late_device *)base;
    for (uint32_t i = 0; i < LATE_QUEUES; i++)
        if (!late->queues[i].used) {
            late->queues[i].base = (trp_queue){&late_queue_impl, base};
            late->queues[i].used = true;
            late->queues[i].index = i;
            *out = &late->queues[i].base;
            return TRP_OK;
        }
    return trp_fail(TRP_RESOURCE_EXHAUSTED, "device late has no queue left");
}

/* ---- plans --------------------------------------------------------------------------------- */

/* One of the host's, whose own memory counts as the device's. */
struct late_net {
    trp_net base;
    trp_net *host;
};

static inline size_t late_input_bytes(const struct program *program, uint32_t index)
{
    uint32_t layer = 0;
    for (uint32_t seen = 0;; layer++) {
        assert_true(layer < program->spec.layer_count);
        if (program->spec.layers[layer].kind == TRP_INPUT && seen++ == index)
            break;
    }
    const struct value *value = &program->graph.values[layer];
    return value->columns * trp_dtype_size(value->dtype);
}

/* What recurrent layers read and write besides. */
static inline void late_touch_cores(struct late_op *op, const struct program *program,
                                    const struct pass *pass, uint32_t rows)
{
    size_t states = rows / pass->steps * trp_net_state_width(&program->spec) * sizeof(float);
    bool back = op->kind == LATE_BACKWARD;
    late_touch(op, pass->resets, rows, false);
    late_touch(op, pass->state, states, false);
    late_touch(op, back ? NULL : pass->end_state, states, true);
    late_touch(op, back ? pass->end_state_grad : NULL, states, false);
    late_touch(op, back ? pass->state_grad : NULL, states, true);
}

static inline void late_pass(trp_net *base, trp_queue *queue, const struct pass *pass,
                             uint32_t rows, enum late_kind kind)
{
    struct late_net *net = (struct late_net *)base;
    const struct program *program = &base->program;
    bool back = kind == LATE_BACKWARD;
    struct late_op *op = late_op(kind);
    size_t params = program->graph.param_count * sizeof(float);
    op->net = net->host;
    op->rows = rows;
    op->arguments = xmemdup(pass, sizeof *pass);
    late_touch(op, net, 1, true);
    late_touch(op, pass->params, params, false);
    late_touch(op, back ? pass->grads : NULL, params, true);
    for (uint32_t i = 0; i < program->input_count; i++) {
        size_t bytes = rows * late_input_bytes(program, i);
        late_touch(op, pass->external[external_index(PLACE_INPUT, i)], bytes, false);
        if (back)
            late_touch(op, pass->external[external_index(PLACE_INPUT_GRAD, i)], bytes, true);
    }
    if (pass->steps > 0)
        late_touch_cores(op, program, pass, rows);
    for (uint32_t i = 0; i < program->spec.output_count; i++)
        late_touch(op, pass->external[external_index(back ? PLACE_OUTPUT_GRAD : PLACE_OUTPUT, i)],
                   (size_t)rows * trp_net_output_width(&program->spec, i) * sizeof(float), !back);
    if (back && pass->ready) {
        ((struct pass *)op->arguments)->ready = NULL;
        late_put(queue, op);
        pass->ready(pass->context, 0);
        return;
    }
    late_put(queue, op);
}

static inline void late_forward(trp_net *net, trp_queue *queue, const struct pass *pass,
                                uint32_t rows)
{
    late_pass(net, queue, pass, rows, LATE_FORWARD);
}

static inline void late_backward(trp_net *net, trp_queue *queue, const struct pass *pass,
                                 uint32_t rows)
{
    late_pass(net, queue, pass, rows, LATE_BACKWARD);
}

static inline void late_noise(trp_net *base, trp_queue *queue, const double *noise)
{
    struct late_net *net = (struct late_net *)base;
    struct late_op *op = late_op(LATE_NOISE);
    op->net = net->host;
    late_touch(op, net, 1, true);
    if (noise)
        op->arguments = xmemdup(noise, (base->program.graph.noise_count + 1) * sizeof *noise);
    late_put(queue, op);
}

static inline void late_net_destroy(trp_net *base)
{
    trp_net_destroy(((struct late_net *)base)->host);
    net_cleanup(base);
    free(base);
}

static const struct plan_impl late_plan_impl = {.forward = late_forward,
                                                .backward = late_backward,
                                                .noise = late_noise,
                                                .destroy = late_net_destroy};

static inline trp_status late_plan_create(trp_device *device, trp_net **out,
                                          const trp_net_options *options)
{
    (void)device;
    struct late_net *net = xcalloc(1, sizeof *net);
    trp_net_options host = *options;
    host.device = NULL;
    OR_FAIL(net_init(&net->base, &late_plan_impl, options));
    OR_FAIL(trp_net_create(&net->host, &host));
    *out = &net->base;
    return TRP_OK;
}

static inline const trp_allocator *late_host_memory(trp_device *device)
{
    trp_device *host;
    (void)device;
    assert_int_equal(trp_device_find(&host, "cpu"), TRP_OK);
    return trp_device_host_memory(host);
}

static const struct device_impl late_impl = {.alloc = late_alloc,
                                             .free = late_free,
                                             .host_memory = late_host_memory,
                                             .queue_create = late_queue_create,
                                             .plan_create = late_plan_create};

/* Where operations go, if they may, follows from the seed. */
static inline struct late_device *late_create(uint64_t seed)
{
    struct late_device *late = xcalloc(1, sizeof *late);
    late->base = (trp_device){&late_impl, "late"};
    trp_rng_init(&late->rng, seed, 0);
    return late;
}

static inline void late_destroy(struct late_device *late)
{
    for (size_t i = 0; i < late->op_count; i++) {
        late_end(late->ops[i]);
    }
    for (size_t i = 0; i < LATE_ALLOCATIONS; i++)
        assert_null(late->allocations[i].memory);
    free(late);
}

#endif

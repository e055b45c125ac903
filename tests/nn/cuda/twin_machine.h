/* A machine for tests: a GPU as nn/cuda sees it, on the host. Its memory cannot be touched from
 * outside; a work gets to what it says it reads or writes, and to nothing else. Streams are done
 * when somebody waits, in any order that events allow, and graphs in any order that their schedule
 * allows. A schedule that leaves two works unordered that meet in memory fails the test. What
 * another library puts (native_stream.h) may have to wait for other machines: then the stream does,
 * and who waits for it gives the processor to others. */
#ifndef TRP_TESTS_TWIN_MACHINE_H
#define TRP_TESTS_TWIN_MACHINE_H

#include <sched.h>
#include <sys/mman.h>
#include <unistd.h>

#include "core/array.h"
#include "core/bfloat16.h"
#include "core/clock.h"
#include "nn/cuda/bodies/gemm.h"
#include "nn/cuda/device.h"
#include "tests/nn/native_stream.h"
#include "twin_conv.h"
#include "twin_kernel.h"

enum { TWIN_ALLOCATIONS = 256, TWIN_STREAMS = 8, TWIN_ACTIONS = 4096 };

enum twin_kind { TWIN_COPY, TWIN_RUN, TWIN_LAUNCH, TWIN_RECORD, TWIN_WAIT, TWIN_GUEST };

struct machine_event {
    uint64_t recorded, done;
};

/* What another library put for a work. */
struct twin_guest {
    uint32_t work;
    bool (*step)(void *argument);
    void (*end)(void *argument);
    void *argument;
    bool done;
};

/* Those of a list, and the stream on which they are put. */
struct twin_puts {
    struct native_stream native;
    struct twin_guest *at;
    uint32_t count, room;
    uint32_t work; /* whose call it is */
};

struct machine_graph {
    struct cuda_list list;
    struct cuda_schedule schedule;
    struct twin_puts puts;
    bool *done; /* of each work, while it runs; NULL: it does not */
    uint32_t left;
};

struct twin_action {
    enum twin_kind kind;
    void *to;
    const void *from;
    size_t bytes;
    struct cuda_list list;
    struct twin_puts puts;
    uint32_t work; /* of the list, that is next */
    struct machine_graph *graph;
    struct machine_event *event;
    uint64_t number; /* of the event's records */
};

struct machine_stream {
    struct native_stream native; /* first */
    bool used;
    struct twin_action *actions[TWIN_ACTIONS];
    size_t first, count;
};

struct twin_machine {
    struct machine base;
    struct {
        char *memory;
        size_t bytes;
    } allocations[TWIN_ALLOCATIONS];
    struct machine_stream streams[TWIN_STREAMS];
    trp_rng rng;
    bool lost;
    bool checks_waits; /* of each graph, whether all are needed */
    bool convolves;    /* as a machine with cuDNN does */
    bool spoils;       /* graphs: what was taken down does not become one */
    uint64_t graphs, launches, runs, waits, convolutions, calls;
    uint64_t host_works;            /* functions of the host's, on copies of operands */
    uint64_t deliveries, delivered; /* copies to the host, and their bytes */
    uint64_t received;              /* bytes that came from there */
    const struct cuda_kernel *(*more)(const char *name); /* kernels besides those of nn/ */
};

static inline struct twin_machine *twin_of(const struct machine *machine)
{
    return (struct twin_machine *)(uintptr_t)machine;
}

/* ---- memory -------------------------------------------------------------------------------- */

static inline size_t twin_find(const struct twin_machine *twin, const void *at)
{
    size_t i = 0;
    for (; i < TWIN_ALLOCATIONS; i++) {
        const char *memory = twin->allocations[i].memory;
        if (memory && (const char *)at >= memory &&
            (const char *)at < memory + twin->allocations[i].bytes)
            break;
    }
    return i;
}

static inline trp_status twin_alloc(struct machine *machine, size_t bytes, void **memory)
{
    struct twin_machine *twin = twin_of(machine);
    size_t rounded = round_up(bytes, (size_t)sysconf(_SC_PAGESIZE)), i = 0;
    while (i < TWIN_ALLOCATIONS && twin->allocations[i].memory)
        i++;
    if (i == TWIN_ALLOCATIONS)
        return trp_fail(TRP_RESOURCE_EXHAUSTED, "device %s has no memory left", machine->name);
    *memory = mmap(NULL, rounded, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert_true(*memory != MAP_FAILED);
    twin->allocations[i].memory = *memory;
    twin->allocations[i].bytes = rounded;
    return TRP_OK;
}

static inline void twin_free(struct machine *machine, void *memory)
{
    struct twin_machine *twin = twin_of(machine);
    size_t i = twin_find(twin, memory);
    assert_true(i < TWIN_ALLOCATIONS);
    munmap(memory, twin->allocations[i].bytes);
    twin->allocations[i].memory = NULL;
}

static inline trp_device_bytes twin_memory(struct machine *machine)
{
    trp_device_bytes bytes = {.left = 1};
    for (size_t i = 0; i < TWIN_ALLOCATIONS; i++)
        bytes.used +=
            twin_of(machine)->allocations[i].memory ? twin_of(machine)->allocations[i].bytes : 0;
    return bytes;
}

static inline bool twin_owns(const struct machine *machine, const void *memory)
{
    return twin_find(twin_of(machine), memory) < TWIN_ALLOCATIONS;
}

static inline trp_status twin_pin(struct machine *machine, size_t bytes, void **memory)
{
    (void)machine;
    *memory = aligned_alloc(64, (bytes + 63) / 64 * 64);
    assert_non_null(*memory);
    return TRP_OK;
}

static inline void twin_unpin(struct machine *machine, void *memory)
{
    (void)machine;
    free(memory);
}

static inline void twin_protect(struct twin_machine *twin, const struct kernel_reach *reaches,
                                size_t count, bool open)
{
    for (int writes = 0; writes < 2; writes++)
        for (size_t i = 0; i < count; i++) {
            size_t at = twin_find(twin, reaches[i].memory);
            if (at == TWIN_ALLOCATIONS || !(reaches[i].access & TRP_WRITE) == (writes == 1))
                continue;
            int rights = writes ? PROT_READ | PROT_WRITE : PROT_READ;
            assert_int_equal(mprotect(twin->allocations[at].memory, twin->allocations[at].bytes,
                                      open ? rights : PROT_NONE),
                             0);
        }
}

/* ---- works --------------------------------------------------------------------------------- */

static inline double twin_factor(const struct gemm_job *job, float value)
{
    return (double)(job->precision == TRP_BF16 ? bf16_float(bf16_half(value)) : value);
}

static inline void twin_gemm(struct twin_machine *twin, const struct gemm_job *job)
{
    if (trp_rng_below(&twin->rng, 4) == 0) {
        twin_kernel(&twin->rng, &kernel_tiled_gemm, job);
        return;
    }
    for (uint32_t m = 0; m < job->m; m++)
        for (uint32_t n = 0; n < job->n; n++) {
            double sum = 0;
            for (uint32_t k = 0; k < job->k; k++)
                sum +=
                    twin_factor(
                        job,
                        job->a[job->a_turned ? k * job->a_stride + m : m * job->a_stride + k]) *
                    twin_factor(
                        job, job->b[job->b_turned ? n * job->b_stride + k : k * job->b_stride + n]);
            float *c = &job->c[m * job->c_stride + n];
            sum += job->accumulate ? (double)*c : job->bias ? (double)job->bias[n] : 0;
            *c = activated_cuda(job->activation, (float)sum);
        }
}

static inline void twin_host(const struct cuda_list *list, const struct cuda_work *work)
{
    const struct host_job *job = work_arguments(list, work);
    char *arguments = xmemdup(host_job_arguments(job), job->argument_bytes);
    void *copies[KERNEL_REACHES_MAX];
    for (uint32_t i = 0; i < job->operand_count; i++) {
        copies[i] = xmemdup(work->reaches[i].memory, work->reaches[i].bytes);
        memcpy(arguments + job->pointers[i], &copies[i], sizeof copies[i]);
    }
    job->run(arguments);
    for (uint32_t i = 0; i < job->operand_count; i++) {
        if (work->reaches[i].access & TRP_WRITE)
            memcpy((void *)(uintptr_t)work->reaches[i].memory, copies[i], work->reaches[i].bytes);
        free(copies[i]);
    }
    free(arguments);
}

/* ---- calls of other libraries ---------------------------------------------------------------- */

static inline void twin_keep_put(struct native_stream *stream, void *at, size_t bytes,
                                 bool (*step)(void *argument), void (*end)(void *argument),
                                 void *argument)
{
    struct twin_puts *puts = (struct twin_puts *)stream;
    (void)at, (void)bytes; /* more than the work named is a fault */
    *ARRAY_PUSH(puts->at, puts->count, puts->room) =
        (struct twin_guest){puts->work, step, end, argument, false};
}

/* False: one could not. */
static inline bool twin_put_calls(struct twin_machine *twin, const struct cuda_list *list,
                                  struct twin_puts *puts, bool captured)
{
    bool all = true;
    puts->native = (struct native_stream){.captured = captured, .put = twin_keep_put};
    for (puts->work = 0; puts->work < list->count; puts->work++) {
        const struct call_job *job = work_arguments(list, &list->works[puts->work]);
        if (list->works[puts->work].kind != WORK_CALL)
            continue;
        twin->calls++;
        all = job->call->put(job->owner, &puts->native, call_job_arguments(job)) && all;
    }
    return all;
}

static inline void twin_end_puts(struct twin_puts *puts)
{
    for (uint32_t i = 0; i < puts->count; i++)
        puts->at[i].end(puts->at[i].argument);
    free(puts->at);
    *puts = (struct twin_puts){0};
}

/* False: it is not done yet, as it waits for others. */
static inline bool twin_call(struct twin_puts *puts, uint32_t work)
{
    for (uint32_t i = 0; i < puts->count; i++) {
        struct twin_guest *put = &puts->at[i];
        if (put->work == work && !put->done && !(put->done = put->step(put->argument)))
            return false;
    }
    return true;
}

/* ---- all works ------------------------------------------------------------------------------- */

/* False: it is not done yet. */
static inline bool twin_work(struct twin_machine *twin, const struct cuda_list *list,
                             struct twin_puts *puts, uint32_t number)
{
    const struct cuda_work *work = &list->works[number];
    const void *arguments = work_arguments(list, work);
    const struct copy_job *copy = arguments;
    bool done = true;
    twin_protect(twin, work->reaches, work->reach_count, true);
    switch (work->kind) {
    case WORK_KERNEL:
        for (uint32_t i = 0; i < work->reach_count; i++)
            assert_true(!work->reaches[i].memory ||
                        twin_owns(&twin->base, work->reaches[i].memory));
        twin_kernel(&twin->rng, work->kernel, arguments);
        break;
    case WORK_GEMM:
        twin_gemm(twin, arguments);
        break;
    case WORK_CONV:
        twin_conv(arguments);
        twin->convolutions++;
        break;
    case WORK_COPY:
        memmove(copy->to, copy->from, copy->bytes);
        break;
    case WORK_ZERO:
        memset(copy->to, 0, copy->bytes);
        break;
    case WORK_HOST:
        twin_host(list, work);
        twin->host_works++;
        break;
    case WORK_CALL:
        done = twin_call(puts, number);
        break;
    }
    twin_protect(twin, work->reaches, work->reach_count, false);
    return done;
}

/* ---- graphs -------------------------------------------------------------------------------- */

/* Of each work those that are sure to be done before it begins, [count][count]. */
static inline bool *twin_orders(const struct cuda_schedule *schedule)
{
    uint32_t count = schedule->list->count, tails[SCHEDULE_LANES];
    bool *before = xcalloc((size_t)count * count + 1, sizeof *before);
    for (uint32_t i = 0; i < SCHEDULE_LANES; i++)
        tails[i] = UINT32_MAX;
    for (uint32_t work = 0; work < count; work++) {
        const struct cuda_step *step = &schedule->steps[work];
        for (uint32_t i = 0; i <= step->wait_count; i++) {
            uint32_t other = i < step->wait_count ? step->waits[i] : tails[step->lane];
            if (other == UINT32_MAX)
                continue;
            before[(size_t)work * count + other] = true;
            for (uint32_t k = 0; k < other; k++)
                before[(size_t)work * count + k] |= before[(size_t)other * count + k];
        }
        tails[step->lane] = work;
    }
    return before;
}

/* Two works that meet and may run in either order; false: there are none. */
static inline bool twin_unordered(const struct cuda_schedule *schedule, uint32_t *first,
                                  uint32_t *then)
{
    const struct cuda_list *list = schedule->list;
    bool *before = twin_orders(schedule), found = false;
    for (uint32_t i = 0; i < list->count && !found; i++)
        for (uint32_t k = 0; k < i && !found; k++)
            if (!before[(size_t)i * list->count + k] &&
                works_conflict(&list->works[k], &list->works[i])) {
                *first = k;
                *then = i;
                found = true;
            }
    free(before);
    return found;
}

/* Without any one of its waits a schedule leaves something unordered; counts them. */
static inline void twin_check_waits(struct twin_machine *twin, const struct cuda_schedule *schedule)
{
    uint32_t first, then;
    for (uint32_t work = 0; work < schedule->list->count; work++)
        for (uint32_t i = 0; i < schedule->steps[work].wait_count; i++) {
            struct cuda_step *step = &schedule->steps[work], whole = *step;
            step->waits[i] = step->waits[--step->wait_count];
            if (!twin_unordered(schedule, &first, &then))
                fail_msg("work %u need not wait for work %u", work, whole.waits[i]);
            *step = whole;
            twin->waits++;
        }
}

static inline struct machine_graph *twin_capture(struct machine *machine,
                                                 const struct cuda_schedule *schedule)
{
    struct machine_graph *graph = xcalloc(1, sizeof *graph);
    uint32_t first, then;
    if (twin_unordered(schedule, &first, &then))
        fail_msg("works %u and %u of %u meet in memory, in no order", first, then,
                 schedule->list->count);
    if (twin_of(machine)->checks_waits)
        twin_check_waits(twin_of(machine), schedule);
    graph->list = work_list_copy(schedule->list);
    graph->schedule = (struct cuda_schedule){
        &graph->list, xmemdup(schedule->steps, schedule->list->count * sizeof *schedule->steps)};
    if (!twin_put_calls(twin_of(machine), &graph->list, &graph->puts, true) ||
        twin_of(machine)->spoils) {
        machine->impl->forget(machine, graph);
        return NULL;
    }
    twin_of(machine)->graphs++;
    return graph;
}

static inline void twin_forget(struct machine *machine, struct machine_graph *graph)
{
    (void)machine;
    assert_null(graph->done); /* it was waited for */
    twin_end_puts(&graph->puts);
    schedule_cleanup(&graph->schedule);
    work_list_cleanup(&graph->list);
    free(graph);
}

static inline bool twin_may_begin(const struct cuda_schedule *schedule, const bool *done,
                                  uint32_t work)
{
    for (uint32_t i = 0; i < schedule->steps[work].wait_count; i++)
        if (!done[schedule->steps[work].waits[i]])
            return false;
    return true;
}

static inline void twin_begin_graph(struct machine_graph *graph)
{
    graph->done = xcalloc(graph->list.count + 1, sizeof *graph->done);
    graph->left = graph->list.count;
    for (uint32_t i = 0; i < graph->puts.count; i++)
        graph->puts.at[i].done = false;
}

/* False: it waits for others, at one of its works at least. */
static inline bool twin_run_graph(struct twin_machine *twin, struct machine_graph *graph)
{
    const struct cuda_list *list = &graph->list;
    if (!graph->done)
        twin_begin_graph(graph);
    while (graph->left > 0) {
        uint32_t lane = (uint32_t)trp_rng_below(&twin->rng, SCHEDULE_LANES), work = 0;
        while (work < list->count &&
               (graph->done[work] || graph->schedule.steps[work].lane != lane))
            work++;
        if (work == list->count || !twin_may_begin(&graph->schedule, graph->done, work))
            continue;
        if (!twin_work(twin, list, &graph->puts, work))
            return false;
        graph->done[work] = true;
        graph->left--;
    }
    free(graph->done);
    graph->done = NULL;
    return true;
}

/* ---- streams --------------------------------------------------------------------------------- */

static inline trp_status twin_stream_create(struct machine *machine, struct machine_stream **stream)
{
    struct twin_machine *twin = twin_of(machine);
    for (size_t i = 0; i < TWIN_STREAMS; i++)
        if (!twin->streams[i].used) {
            *stream = &twin->streams[i];
            **stream = (struct machine_stream){.used = true};
            return TRP_OK;
        }
    return trp_fail(TRP_RESOURCE_EXHAUSTED, "device %s has no stream left", machine->name);
}

static inline void twin_stream_destroy(struct machine *machine, struct machine_stream *stream)
{
    (void)machine;
    assert_int_equal(stream->count, 0); /* it was waited for */
    stream->used = false;
}

static inline struct twin_action *twin_put(struct machine_stream *stream, enum twin_kind kind)
{
    struct twin_action *action = xcalloc(1, sizeof *action);
    action->kind = kind;
    assert_true(stream->count < TWIN_ACTIONS);
    stream->actions[(stream->first + stream->count++) % TWIN_ACTIONS] = action;
    return action;
}

/* By a library that has the stream itself. */
static inline void twin_put_guest(struct native_stream *native, void *at, size_t bytes,
                                  bool (*step)(void *argument), void (*end)(void *argument),
                                  void *argument)
{
    struct twin_action *action = twin_put((struct machine_stream *)native, TWIN_GUEST);
    action->to = at;
    action->bytes = bytes;
    twin_keep_put(&action->puts.native, at, bytes, step, end, argument);
}

static inline void *twin_stream_native(struct machine *machine, struct machine_stream *stream)
{
    (void)machine;
    stream->native.put = twin_put_guest;
    return &stream->native;
}

static inline void twin_copy(struct machine *machine, struct machine_stream *stream, void *to,
                             const void *from, size_t bytes)
{
    struct twin_action *action = twin_put(stream, TWIN_COPY);
    bool delivers = twin_owns(machine, from);
    assert_true(twin_owns(machine, to) != delivers);
    twin_of(machine)->deliveries += delivers;
    twin_of(machine)->delivered += delivers ? bytes : 0;
    twin_of(machine)->received += delivers ? 0 : bytes;
    action->to = to;
    action->from = from;
    action->bytes = bytes;
}

static inline void twin_run(struct machine *machine, struct machine_stream *stream,
                            const struct cuda_list *list)
{
    struct twin_action *action = twin_put(stream, TWIN_RUN);
    twin_of(machine)->runs++;
    action->list = work_list_copy(list);
    (void)twin_put_calls(twin_of(machine), &action->list, &action->puts, false);
}

static inline void twin_launch(struct machine *machine, struct machine_stream *stream,
                               struct machine_graph *graph)
{
    twin_of(machine)->launches++;
    twin_put(stream, TWIN_LAUNCH)->graph = graph;
}

static inline struct machine_event *twin_event_create(struct machine *machine)
{
    (void)machine;
    return xcalloc(1, sizeof(struct machine_event));
}

static inline void twin_event_destroy(struct machine *machine, struct machine_event *event)
{
    (void)machine;
    free(event);
}

static inline void twin_event_record(struct machine *machine, struct machine_stream *stream,
                                     struct machine_event *event)
{
    struct twin_action *action = twin_put(stream, TWIN_RECORD);
    (void)machine;
    action->event = event;
    action->number = ++event->recorded;
}

static inline void twin_stream_wait(struct machine *machine, struct machine_stream *stream,
                                    struct machine_event *event)
{
    struct twin_action *action = twin_put(stream, TWIN_WAIT);
    (void)machine;
    action->event = event;
    action->number = event->recorded;
}

static inline bool twin_run_works(struct twin_machine *twin, struct twin_action *action)
{
    for (; action->work < action->list.count; action->work++)
        if (!twin_work(twin, &action->list, &action->puts, action->work))
            return false;
    twin_end_puts(&action->puts);
    work_list_cleanup(&action->list);
    return true;
}

static inline bool twin_do_guest(struct twin_machine *twin, struct twin_action *action)
{
    struct kernel_reach reach = {action->to, action->bytes, TRP_READ | TRP_WRITE};
    twin_protect(twin, &reach, 1, true);
    bool done = twin_call(&action->puts, 0);
    twin_protect(twin, &reach, 1, false);
    if (done)
        twin_end_puts(&action->puts);
    return done;
}

/* False: it waits for others. */
static inline bool twin_do(struct twin_machine *twin, struct twin_action *action)
{
    struct kernel_reach reaches[2] = {{action->from, action->bytes, TRP_READ},
                                      {action->to, action->bytes, TRP_WRITE}};
    switch (action->kind) {
    case TWIN_COPY:
        twin_protect(twin, reaches, 2, true);
        memcpy(action->to, action->from, action->bytes);
        twin_protect(twin, reaches, 2, false);
        break;
    case TWIN_RUN:
        if (!twin_run_works(twin, action))
            return false;
        break;
    case TWIN_LAUNCH:
        if (!twin_run_graph(twin, action->graph))
            return false;
        break;
    case TWIN_RECORD:
        action->event->done = action->number;
        break;
    case TWIN_GUEST:
        if (!twin_do_guest(twin, action))
            return false;
        break;
    case TWIN_WAIT:
        break;
    }
    free(action);
    return true;
}

/* False: a stream waits for other machines. */
static inline bool twin_advance(struct twin_machine *twin)
{
    struct machine_stream *stream = &twin->streams[trp_rng_below(&twin->rng, TWIN_STREAMS)];
    if (stream->count == 0)
        return true;
    struct twin_action *action = stream->actions[stream->first];
    if (action->kind == TWIN_WAIT && action->event->done < action->number)
        return true;
    if (!twin_do(twin, action))
        return false;
    stream->first = (stream->first + 1) % TWIN_ACTIONS;
    stream->count--;
    return true;
}

static inline trp_status twin_event_wait(struct machine *machine, struct machine_event *event,
                                         int64_t timeout_ms)
{
    struct twin_machine *twin = twin_of(machine);
    struct deadline deadline = deadline_in_ms(&clock_monotonic, timeout_ms);
    for (uint32_t tries = 0; event->done < event->recorded && !twin->lost; tries++) {
        assert_true(tries < 10000000); /* nobody can ever come so far */
        if (twin_advance(twin))
            continue;
        if (deadline_passed(deadline, &clock_monotonic))
            return trp_fail(TRP_DEADLINE_EXCEEDED, "device %s is not done yet", machine->name);
        sched_yield();
        tries = 0;
    }
    return twin->lost ? trp_fail(TRP_UNAVAILABLE, "device %s is lost", machine->name) : TRP_OK;
}

static inline const struct cuda_kernel *twin_find_kernel(const struct machine *machine,
                                                         const char *name)
{
    const struct twin_machine *twin = twin_of(machine);
    const struct cuda_kernel *kernel = kernel_find(name);
    return kernel || !twin->more ? kernel : twin->more(name);
}

/* Of odd numbers of images with a workspace. */
static inline bool twin_convolves(struct machine *machine, const struct conv_job *job,
                                  size_t *workspace_bytes)
{
    *workspace_bytes = job->images % 2 ? TWIN_CONV_WORKSPACE : 0;
    return twin_of(machine)->convolves && *workspace_bytes <= job->workspace_most;
}

static const struct machine_impl twin_impl = {
    .alloc = twin_alloc,
    .free = twin_free,
    .memory = twin_memory,
    .owns = twin_owns,
    .pin = twin_pin,
    .unpin = twin_unpin,
    .find_kernel = twin_find_kernel,
    .convolves = twin_convolves,
    .stream_create = twin_stream_create,
    .stream_destroy = twin_stream_destroy,
    .stream_native = twin_stream_native,
    .copy = twin_copy,
    .run = twin_run,
    .capture = twin_capture,
    .launch = twin_launch,
    .forget = twin_forget,
    .event_create = twin_event_create,
    .event_destroy = twin_event_destroy,
    .event_record = twin_event_record,
    .stream_wait = twin_stream_wait,
    .event_wait = twin_event_wait,
};

/* A machine and the device on it. */
struct twin_device {
    struct twin_machine machine;
    struct cuda_device device;
};

static inline trp_device *twin_device_init(struct twin_device *twin, uint64_t seed)
{
    *twin = (struct twin_device){.machine = {.base = {.impl = &twin_impl, .name = "twin"}}};
    trp_rng_init(&twin->machine.rng, seed, 0);
    cuda_device_init(&twin->device, &twin->machine.base);
    return &twin->device.base;
}

#endif

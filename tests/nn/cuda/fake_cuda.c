#include "fake_cuda.h"

#include <assert.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/alloc.h"
#include "nn/cuda/kernels.h"
#include "nn/cuda/module/code.h"

struct fake_cuda fake_cuda;

/* A kernel's code is what the host knows of it. */
#define KERNEL(NAME)                        {#NAME, &kernel_##NAME},
#define NAMED_KERNEL(NAME, words)           {words, &kernel_##NAME},
#define FITTING_KERNEL(NAME, words, others) NAMED_KERNEL(NAME, words)
#define FIRST_KERNEL(NAME, words, next)     NAMED_KERNEL(NAME, words)
const struct module_kernel module_kernels[] = {
#include "nn/cuda/kernels_layers.def"
#include "nn/cuda/kernels_steps.def"
    {NULL, NULL}};

#undef NAMED_KERNEL
#define NAMED_KERNEL(NAME, words) extern const struct cuda_kernel kernel_##NAME;
#include "agents/kernels_agents.def"
#undef NAMED_KERNEL
#define NAMED_KERNEL(NAME, words) {words, &kernel_##NAME},
const struct module_kernel agents_module_kernels[] = {
#include "agents/kernels_agents.def"
    {NULL, NULL}};
#undef NAMED_KERNEL
#define NAMED_KERNEL(NAME, words) extern const struct cuda_kernel kernel_##NAME;
#include "learner/kernels_learner.def"
#undef NAMED_KERNEL
#define NAMED_KERNEL(NAME, words) {words, &kernel_##NAME},
const struct module_kernel learner_module_kernels[] = {
#include "learner/kernels_learner.def"
    {NULL, NULL}};

enum { WORKS = 1 << 15, BEFORE = 40, STREAMS = 64, READY = 64 };

enum fake_kind { FAKE_NOTHING, FAKE_COPY, FAKE_ZERO, FAKE_KERNEL, FAKE_CALL, FAKE_GRAPH };

/* Something on a stream or in a graph, behind others of the same. */
struct fake_work {
    enum fake_kind kind;
    bool done;
    unsigned before[BEFORE], before_count;
    void *to;
    const void *from;
    size_t bytes;
    const struct cuda_kernel *kernel;
    uint32_t blocks, threads, phases;
    size_t shared_bytes;
    void *arguments;
    cudaHostFn_t call;
    void *context;
    struct CUgraph_st *graph;
};

struct fake_works {
    struct fake_work *at[WORKS];
    unsigned count, first; /* those before `first` are done */
};

struct CUgraph_st {
    struct fake_works works;
    bool used; /* an executable one was made of it, which has it now */
};

struct CUgraphExec_st {
    struct CUgraph_st *graph;
};

struct CUevent_st {
    struct CUgraph_st *graph; /* recorded while this was captured */
    unsigned work;            /* from 1 on; 0: not yet */
};

struct CUstream_st {
    struct CUgraph_st *capture;
    unsigned last; /* from 1 on, of the stream's or the graph's */
    unsigned waits[BEFORE], wait_count;
};

static struct fake_works works; /* of streams */
static cudaError_t last_error, broken;
static struct CUstream_st *streams[STREAMS];

/* One call at a time; a function of the host that a stream calls may call, too. */
static pthread_mutex_t mutex = PTHREAD_RECURSIVE_MUTEX_INITIALIZER_NP;

static int lock_all(void)
{
    return pthread_mutex_lock(&mutex);
}

static void unlock_all(const int *locked)
{
    (void)locked;
    pthread_mutex_unlock(&mutex);
}

#define LOCKED                                                                                     \
    int locked __attribute__((cleanup(unlock_all))) = lock_all();                                  \
    assert(locked == 0)

static void works_free(struct fake_works *list)
{
    for (unsigned i = 0; i < list->count; i++) {
        free(list->at[i]->arguments);
        free(list->at[i]);
    }
    list->count = list->first = 0;
}

void fake_cuda_begin(uint64_t seed)
{
    works_free(&works);
    fake_cuda = (struct fake_cuda){
        .driver = 13000, .devices = 1, .major = 9, .memory_bytes = (size_t)1 << 30};
    trp_rng_init(&fake_cuda.rng, seed, 0);
    last_error = broken = cudaSuccess;
}

static cudaError_t says(cudaError_t error)
{
    if (error != cudaSuccess)
        last_error = error;
    return error;
}

/* ---- doing --------------------------------------------------------------------------------- */

static void do_all(struct fake_works *list);

static void do_kernel(const struct fake_work *work)
{
    void *shared = xmalloc(work->shared_bytes + 1);
    for (uint32_t block = 0; block < work->blocks; block++)
        for (uint32_t phase = 0; phase < work->phases; phase++)
            for (uint32_t thread = 0; thread < work->threads; thread++) {
                struct kernel_at at = {block, work->blocks, thread, work->threads, phase};
                work->kernel->twin(work->arguments, &at, shared);
            }
    free(shared);
}

static void do_work(struct fake_work *work)
{
    work->done = true;
    if (broken != cudaSuccess)
        return;
    if (work->kind != FAKE_NOTHING && ++fake_cuda.works == fake_cuda.fails_at) {
        broken = cudaErrorIllegalAddress;
        return;
    }
    switch (work->kind) {
    case FAKE_NOTHING:
        break;
    case FAKE_COPY:
        memmove(work->to, work->from, work->bytes);
        break;
    case FAKE_ZERO:
        memset(work->to, 0, work->bytes);
        break;
    case FAKE_KERNEL:
        do_kernel(work);
        break;
    case FAKE_CALL:
        work->call(work->context);
        break;
    case FAKE_GRAPH:
        for (unsigned i = 0; i < work->graph->works.count; i++)
            work->graph->works.at[i]->done = false;
        work->graph->works.first = 0;
        do_all(&work->graph->works);
        break;
    }
}

static bool may_begin(const struct fake_works *list, const struct fake_work *work)
{
    for (unsigned i = 0; i < work->before_count; i++)
        if (!list->at[work->before[i] - 1]->done)
            return false;
    return !work->done;
}

/* One of those that may begin; false: all are done. */
static bool do_any(struct fake_works *list)
{
    unsigned ready[READY], count = 0;
    while (list->first < list->count && list->at[list->first]->done)
        list->first++;
    for (unsigned i = list->first; i < list->count && count < READY; i++)
        if (may_begin(list, list->at[i]))
            ready[count++] = i;
    if (count > 0)
        do_work(list->at[ready[trp_rng_below(&fake_cuda.rng, count)]]);
    return count > 0;
}

static void do_all(struct fake_works *list)
{
    while (do_any(list))
        ;
}

static void finish(void)
{
    if (!fake_cuda.stuck)
        do_all(&works);
}

/* ---- putting ------------------------------------------------------------------------------- */

static void before_add(struct fake_work *work, unsigned before)
{
    assert(work->before_count < BEFORE);
    if (before > 0)
        work->before[work->before_count++] = before;
}

static struct fake_work *put(struct CUstream_st *stream, enum fake_kind kind)
{
    struct fake_works *list = stream->capture ? &stream->capture->works : &works;
    struct fake_work *work = xcalloc(1, sizeof *work);
    assert(list->count < WORKS);
    work->kind = kind;
    before_add(work, stream->last);
    for (unsigned i = 0; i < stream->wait_count; i++)
        before_add(work, stream->waits[i]);
    stream->wait_count = 0;
    list->at[list->count++] = work;
    stream->last = list->count;
    return work;
}

cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t bytes, enum cudaMemcpyKind kind,
                            cudaStream_t stream)
{
    LOCKED;
    (void)kind;
    struct fake_work *work = put(stream, FAKE_COPY);
    work->to = to;
    work->from = from;
    work->bytes = bytes;
    return says(broken);
}

cudaError_t cudaMemsetAsync(void *to, int value, size_t bytes, cudaStream_t stream)
{
    LOCKED;
    struct fake_work *work = put(stream, FAKE_ZERO);
    assert(value == 0);
    work->to = to;
    work->bytes = bytes;
    return says(broken);
}

cudaError_t cudaLaunchKernel(const void *function, dim3 blocks, dim3 threads, void **arguments,
                             size_t shared_bytes, cudaStream_t stream)
{
    LOCKED;
    const struct cuda_kernel *kernel = function;
    if (!kernel || threads.x > KERNEL_THREADS_MAX || shared_bytes > KERNEL_SHARED_MAX)
        return says(cudaErrorInvalidValue);
    if (blocks.x == 0 || blocks.x > INT32_MAX || threads.x == 0)
        return says(cudaErrorInvalidConfiguration);
    if (stream->capture && fake_cuda.refuses_capture)
        return says(cudaErrorStreamCaptureUnsupported);
    struct fake_work *work = put(stream, FAKE_KERNEL);
    work->kernel = kernel;
    work->blocks = blocks.x;
    work->threads = threads.x;
    work->shared_bytes = shared_bytes;
    work->arguments = xmemdup(arguments[0], kernel->argument_bytes);
    memcpy(&work->phases, arguments[1], sizeof work->phases);
    fake_cuda.kernels++;
    return says(broken);
}

cudaError_t cudaFuncGetAttributes(struct cudaFuncAttributes *attributes, const void *function)
{
    LOCKED;
    *attributes = (struct cudaFuncAttributes){.maxThreadsPerBlock = KERNEL_THREADS_MAX};
    assert(function && fake_cuda.kernels == 0);
    return says(++fake_cuda.loaded == fake_cuda.lacks ? cudaErrorNoKernelImageForDevice : broken);
}

cudaError_t cudaLaunchHostFunc(cudaStream_t stream, cudaHostFn_t call, void *context)
{
    LOCKED;
    struct fake_work *work = put(stream, FAKE_CALL);
    work->call = call;
    work->context = context;
    return says(broken);
}

/* ---- streams and events -------------------------------------------------------------------- */

cudaError_t cudaStreamCreateWithFlags(cudaStream_t *stream, unsigned flags)
{
    LOCKED;
    assert(flags == cudaStreamNonBlocking);
    *stream = xcalloc(1, sizeof **stream);
    return says(broken);
}

cudaError_t cudaStreamDestroy(cudaStream_t stream)
{
    LOCKED;
    assert(!stream->capture);
    finish();
    free(stream);
    return says(broken);
}

cudaError_t cudaStreamSynchronize(cudaStream_t stream)
{
    LOCKED;
    (void)stream;
    finish();
    return says(broken);
}

cudaError_t cudaDeviceSynchronize(void)
{
    LOCKED;
    for (size_t i = 0; i < STREAMS; i++)
        if (streams[i])
            return says(cudaErrorStreamCaptureUnsupported);
    finish();
    return says(broken);
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t *event, unsigned flags)
{
    LOCKED;
    assert(flags == cudaEventDisableTiming);
    *event = xcalloc(1, sizeof **event);
    return says(broken);
}

cudaError_t cudaEventDestroy(cudaEvent_t event)
{
    LOCKED;
    free(event);
    return says(broken);
}

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream)
{
    LOCKED;
    put(stream, FAKE_NOTHING);
    *event = (struct CUevent_st){stream->capture, stream->last};
    return says(broken);
}

/* A stream that waits for what is being captured is captured, too. */
cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned flags)
{
    LOCKED;
    assert(flags == 0);
    if (event->graph && !stream->capture) {
        for (size_t i = 0; !stream->capture; i++) {
            assert(i < STREAMS);
            if (!streams[i]) {
                streams[i] = stream;
                stream->capture = event->graph;
            }
        }
        stream->last = stream->wait_count = 0;
    }
    if (event->graph != stream->capture)
        return says(cudaErrorStreamCaptureIsolation);
    assert(stream->wait_count < BEFORE - 1);
    if (event->work > 0)
        stream->waits[stream->wait_count++] = event->work;
    return says(broken);
}

/* Something is done between two looks. */
cudaError_t cudaEventQuery(cudaEvent_t event)
{
    LOCKED;
    assert(!event->graph);
    for (uint64_t i = trp_rng_below(&fake_cuda.rng, 8); i > 0 && !fake_cuda.stuck; i--)
        (void)do_any(&works);
    if (broken != cudaSuccess)
        return says(broken);
    bool done = event->work == 0 || works.at[event->work - 1]->done;
    return done ? cudaSuccess : cudaErrorNotReady;
}

/* ---- graphs -------------------------------------------------------------------------------- */

cudaError_t cudaStreamBeginCapture(cudaStream_t stream, enum cudaStreamCaptureMode mode)
{
    LOCKED;
    assert(mode == cudaStreamCaptureModeRelaxed && !stream->capture);
    stream->capture = xcalloc(1, sizeof *stream->capture);
    stream->last = stream->wait_count = 0;
    streams[0] = stream;
    fake_cuda.graphs++;
    return says(broken);
}

/* What of the graph comes before a work, itself among them. */
static void reach(const struct fake_works *list, unsigned work, bool *reached)
{
    if (work == 0 || reached[work - 1])
        return;
    reached[work - 1] = true;
    for (unsigned i = 0; i < list->at[work - 1]->before_count; i++)
        reach(list, list->at[work - 1]->before[i], reached);
}

static bool all_came_back(const struct CUgraph_st *graph, const struct CUstream_st *stream)
{
    bool reached[WORKS] = {false};
    reach(&graph->works, stream->last, reached);
    for (unsigned i = 0; i < stream->wait_count; i++)
        reach(&graph->works, stream->waits[i], reached);
    for (unsigned i = 0; i < graph->works.count; i++)
        if (!reached[i])
            return false;
    return true;
}

cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t *graph)
{
    LOCKED;
    *graph = stream->capture;
    bool back = all_came_back(*graph, stream);
    for (size_t i = 0; i < STREAMS; i++)
        if (streams[i] && streams[i]->capture == *graph) {
            streams[i]->capture = NULL;
            streams[i]->last = streams[i]->wait_count = 0;
            streams[i] = NULL;
        }
    if (back)
        return says(broken);
    (void)cudaGraphDestroy(*graph);
    *graph = NULL;
    return says(cudaErrorStreamCaptureUnjoined);
}

cudaError_t cudaGraphInstantiate(cudaGraphExec_t *exec, cudaGraph_t graph, unsigned long long flags)
{
    LOCKED;
    assert(flags == 0);
    *exec = xcalloc(1, sizeof **exec);
    (*exec)->graph = graph;
    graph->used = true;
    return says(broken);
}

static void graph_free(struct CUgraph_st *graph)
{
    works_free(&graph->works);
    free(graph);
    fake_cuda.graphs--;
}

cudaError_t cudaGraphDestroy(cudaGraph_t graph)
{
    LOCKED;
    if (!graph->used)
        graph_free(graph);
    return says(broken);
}

cudaError_t cudaGraphLaunch(cudaGraphExec_t exec, cudaStream_t stream)
{
    LOCKED;
    put(stream, FAKE_GRAPH)->graph = exec->graph;
    fake_cuda.graph_launches++;
    return says(broken);
}

cudaError_t cudaGraphExecDestroy(cudaGraphExec_t exec)
{
    LOCKED;
    finish();
    graph_free(exec->graph);
    free(exec);
    return says(broken);
}

/* ---- memory -------------------------------------------------------------------------------- */

struct fake_memory {
    size_t bytes;
    char fill[256 - sizeof(size_t)];
};

cudaError_t cudaMalloc(void **memory, size_t bytes)
{
    LOCKED;
    if (bytes > fake_cuda.memory_bytes - fake_cuda.used_bytes)
        return says(cudaErrorMemoryAllocation);
    struct fake_memory *block = xaligned(256, sizeof *block + (bytes + 255) / 256 * 256);
    memset(block + 1, 0x5a, bytes);
    block->bytes = bytes;
    *memory = block + 1;
    fake_cuda.used_bytes += bytes;
    fake_cuda.allocations++;
    return says(broken);
}

cudaError_t cudaFree(void *memory)
{
    LOCKED;
    if (!memory)
        return says(broken);
    finish();
    struct fake_memory *block = (struct fake_memory *)memory - 1;
    fake_cuda.used_bytes -= block->bytes;
    fake_cuda.allocations--;
    free(block);
    return says(broken);
}

cudaError_t cudaMemset(void *memory, int value, size_t bytes)
{
    LOCKED;
    memset(memory, value, bytes);
    return says(broken);
}

cudaError_t cudaHostAlloc(void **memory, size_t bytes, unsigned flags)
{
    LOCKED;
    assert(flags == cudaHostAllocDefault);
    *memory = xaligned(64, (bytes + 63) / 64 * 64);
    fake_cuda.allocations++;
    return says(broken);
}

cudaError_t cudaFreeHost(void *memory)
{
    LOCKED;
    finish();
    free(memory);
    fake_cuda.allocations--;
    return says(broken);
}

cudaError_t cudaMemGetInfo(size_t *left, size_t *total)
{
    LOCKED;
    *left = fake_cuda.memory_bytes - fake_cuda.used_bytes;
    *total = fake_cuda.memory_bytes;
    return says(broken);
}

/* ---- devices ------------------------------------------------------------------------------- */

cudaError_t cudaSetDevice(int device)
{
    LOCKED;
    return says(device < fake_cuda.devices ? cudaSuccess : cudaErrorInvalidDevice);
}

cudaError_t cudaDriverGetVersion(int *version)
{
    LOCKED;
    *version = fake_cuda.driver;
    return cudaSuccess;
}

cudaError_t cudaGetDeviceCount(int *count)
{
    LOCKED;
    *count = fake_cuda.devices;
    return says(fake_cuda.devices > 0 ? cudaSuccess : cudaErrorNoDevice);
}

cudaError_t cudaGetDeviceProperties(struct cudaDeviceProp *properties, int device)
{
    LOCKED;
    memset(properties, 0, sizeof *properties);
    snprintf(properties->name, sizeof properties->name, "%s",
             fake_cuda.names ? fake_cuda.names[device] : "NVIDIA Fake");
    properties->major = fake_cuda.major;
    properties->minor = 1;
    return cudaSuccess;
}

cudaError_t cudaGetLastError(void)
{
    LOCKED;
    cudaError_t error = last_error;
    last_error = cudaSuccess;
    return error;
}

const char *cudaGetErrorString(cudaError_t error)
{
    return error == cudaErrorIllegalAddress ? "an illegal memory access was encountered"
                                            : "something else";
}

const char *cudaGetErrorName(cudaError_t error)
{
    return error == cudaErrorIllegalAddress ? "cudaErrorIllegalAddress" : "cudaErrorOther";
}

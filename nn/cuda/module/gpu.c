/* GPUs by CUDA's runtime, which is linked statically and finds the driver by itself: this file
 * loads on a host that has neither. Each function that may run on any thread names its GPU first.
 */
#include "gpu.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/alloc.h"
#include "core/array.h"
#include "core/nvidia.h"
#include "nn/cuda/kernels.h"

enum {
    CAPABILITY_MIN = 8,        /* compute_80 is the oldest code in here */
    POLL_NS = 20 * 1000,       /* between looks at an event, once it is late */
    POLL_SPIN_NS = 100 * 1000, /* steps of small networks end within that */
};

/* Driver 580 is the first one for CUDA 13. */
#define DRIVER_WANTED "CUDA 13.0 (driver 580) or newer"

static const double mib = 1 << 20;

struct gpu *gpu_enter(struct machine *machine)
{
    struct gpu *gpu = gpu_of(machine);
    (void)cudaSetDevice(gpu->number); /* it worked when the GPU was opened */
    return gpu;
}

/* ---- failures ------------------------------------------------------------------------------ */

static trp_status status_of(cudaError_t error)
{
    switch (error) {
    case cudaErrorMemoryAllocation:
        return TRP_RESOURCE_EXHAUSTED;
    case cudaErrorInsufficientDriver:
    case cudaErrorNoDevice:
    case cudaErrorInvalidDevice:
    case cudaErrorDevicesUnavailable:
    case cudaErrorSystemNotReady:
    case cudaErrorSystemDriverMismatch:
    case cudaErrorECCUncorrectable:
    case cudaErrorNvlinkUncorrectable:
    case cudaErrorContained:
    case cudaErrorUnknown:
    case cudaErrorNoKernelImageForDevice:
    case cudaErrorInvalidKernelImage:
    case cudaErrorUnsupportedPtxVersion:
    case cudaErrorJitCompilerNotFound:
    case cudaErrorJitCompilationDisabled:
        return TRP_UNAVAILABLE;
    default:
        return TRP_INTERNAL;
    }
}

/* Keeps the first one. */
static void keep_failure(struct gpu *gpu, trp_status status, const char *words)
{
    mutex_lock(&gpu->mutex);
    if (gpu->failure == TRP_OK) {
        gpu->failure = status;
        snprintf(gpu->failed, sizeof gpu->failed, "%s", words);
    }
    mutex_unlock(&gpu->mutex);
}

void cuda_words(char *words, size_t bytes, cudaError_t error, const char *call, const char *of)
{
    snprintf(words, bytes, "%s%s%s: %s (%s)", call, of ? " of " : "", of ? of : "",
             cudaGetErrorString(error), cudaGetErrorName(error));
}

bool gpu_check(struct gpu *gpu, cudaError_t error, const char *call, const char *of)
{
    char words[sizeof gpu->failed];
    if (error == cudaSuccess)
        return true;
    (void)cudaGetLastError(); /* or the next call that works has it, too */
    cuda_words(words, sizeof words, error, call, of);
    keep_failure(gpu, status_of(error), words);
    return false;
}

void lane_fail(struct gpu *gpu, struct gpu_lane *lane, trp_status status, const char *words)
{
    if (!lane->failed)
        snprintf(lane->words, sizeof lane->words, "%s", words);
    lane->failed = true;
    if (!lane->captured)
        keep_failure(gpu, status, words);
}

void lane_check(struct gpu *gpu, struct gpu_lane *lane, cudaError_t error, const char *call,
                const char *of)
{
    if (!lane->captured) {
        gpu_check(gpu, error, call, of);
    } else if (error != cudaSuccess) {
        char words[sizeof lane->words];
        (void)cudaGetLastError();
        cuda_words(words, sizeof words, error, call, of);
        lane_fail(gpu, lane, TRP_INTERNAL, words);
    }
}

trp_status gpu_failure(struct gpu *gpu)
{
    mutex_lock(&gpu->mutex);
    trp_status failure = gpu->failure;
    mutex_unlock(&gpu->mutex);
    if (failure == TRP_OK)
        return TRP_OK;
    return gpu->host->fail(failure, "device %s: %s", gpu->machine.name, gpu->failed);
}

/* Of a call whose failure is its caller's alone. */
static trp_status call_failure(const struct gpu *gpu, cudaError_t error, const char *call)
{
    (void)cudaGetLastError();
    return gpu->host->fail(status_of(error), "device %s: %s: %s (%s)", gpu->machine.name, call,
                           cudaGetErrorString(error), cudaGetErrorName(error));
}

/* ---- memory -------------------------------------------------------------------------------- */

/* The first range that begins behind the address; with the mutex. */
static uint32_t range_behind(const struct gpu *gpu, const char *at)
{
    uint32_t low = 0, high = gpu->range_count;
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        if (gpu->ranges[middle].low > at)
            high = middle;
        else
            low = middle + 1;
    }
    return low;
}

static void range_add(struct gpu *gpu, const char *low, size_t bytes)
{
    mutex_lock(&gpu->mutex);
    uint32_t at = range_behind(gpu, low);
    (void)ARRAY_PUSH(gpu->ranges, gpu->range_count, gpu->range_room);
    memmove(&gpu->ranges[at + 1], &gpu->ranges[at],
            (gpu->range_count - 1 - at) * sizeof *gpu->ranges);
    gpu->ranges[at] = (struct gpu_range){low, bytes};
    mutex_unlock(&gpu->mutex);
}

static void range_remove(struct gpu *gpu, const char *low)
{
    mutex_lock(&gpu->mutex);
    uint32_t behind = range_behind(gpu, low);
    gpu->range_count--;
    memmove(&gpu->ranges[behind - 1], &gpu->ranges[behind],
            (gpu->range_count - (behind - 1)) * sizeof *gpu->ranges);
    mutex_unlock(&gpu->mutex);
}

static trp_device_bytes gpu_memory(struct machine *machine)
{
    struct gpu *gpu = gpu_enter(machine);
    trp_device_bytes bytes = {0};
    size_t total;
    gpu_check(gpu, cudaMemGetInfo(&bytes.left, &total), "cudaMemGetInfo", NULL);
    mutex_lock(&gpu->mutex);
    for (uint32_t i = 0; i < gpu->range_count; i++)
        bytes.used += gpu->ranges[i].bytes;
    mutex_unlock(&gpu->mutex);
    return bytes;
}

static bool gpu_owns(const struct machine *machine, const void *memory)
{
    struct gpu *gpu = (struct gpu *)(uintptr_t)machine;
    mutex_lock(&gpu->mutex);
    uint32_t behind = range_behind(gpu, memory);
    const struct gpu_range *range = behind > 0 ? &gpu->ranges[behind - 1] : NULL;
    bool owns = range && (size_t)((const char *)memory - range->low) < range->bytes;
    mutex_unlock(&gpu->mutex);
    return owns;
}

static trp_status no_memory(const struct gpu *gpu, size_t bytes)
{
    size_t left = 0, total = 0;
    (void)cudaGetLastError();
    (void)cudaMemGetInfo(&left, &total);
    return gpu->host->fail(TRP_RESOURCE_EXHAUSTED,
                           "device %s has no %.1f MiB of memory left: %.1f of %.1f MiB are free",
                           gpu->machine.name, (double)bytes / mib, (double)left / mib,
                           (double)total / mib);
}

/* No stream waits for zeros: they are there before it returns. */
static trp_status gpu_alloc(struct machine *machine, size_t bytes, void **memory)
{
    struct gpu *gpu = gpu_enter(machine);
    TRP_TRY(gpu_failure(gpu));
    mutex_lock(&gpu->still);
    cudaError_t error = cudaMalloc(memory, bytes);
    if (error == cudaSuccess)
        error = cudaMemset(*memory, 0, bytes);
    if (error == cudaSuccess)
        error = cudaStreamSynchronize(cudaStreamLegacy);
    mutex_unlock(&gpu->still);
    if (error == cudaErrorMemoryAllocation)
        return no_memory(gpu, bytes);
    if (error != cudaSuccess)
        return call_failure(gpu, error, "cudaMalloc");
    range_add(gpu, *memory, bytes);
    return TRP_OK;
}

static void gpu_free(struct machine *machine, void *memory)
{
    struct gpu *gpu = gpu_enter(machine);
    range_remove(gpu, memory);
    mutex_lock(&gpu->still);
    gpu_check(gpu, cudaFree(memory), "cudaFree", NULL);
    mutex_unlock(&gpu->still);
}

static trp_status gpu_pin(struct machine *machine, size_t bytes, void **memory)
{
    struct gpu *gpu = gpu_enter(machine);
    mutex_lock(&gpu->still);
    cudaError_t error = cudaHostAlloc(memory, bytes, cudaHostAllocDefault);
    mutex_unlock(&gpu->still);
    return error == cudaSuccess ? TRP_OK : call_failure(gpu, error, "cudaHostAlloc");
}

static void gpu_unpin(struct machine *machine, void *memory)
{
    struct gpu *gpu = gpu_enter(machine);
    mutex_lock(&gpu->still);
    gpu_check(gpu, cudaFreeHost(memory), "cudaFreeHost", NULL);
    mutex_unlock(&gpu->still);
}

static const struct cuda_kernel *gpu_find_kernel(const struct machine *machine, const char *name)
{
    (void)machine;
    const struct cuda_kernel *const *const lists[] = {agents_kernels, learner_kernels};
    for (size_t k = 0; k < sizeof lists / sizeof *lists; k++)
        for (size_t i = 0; lists[k][i]; i++)
            if (strcmp(lists[k][i]->name, name) == 0)
                return lists[k][i];
    return kernel_find(name);
}

/* ---- streams and events -------------------------------------------------------------------- */

static trp_status gpu_stream_create(struct machine *machine, struct machine_stream **out)
{
    struct gpu *gpu = gpu_enter(machine);
    struct machine_stream *stream = xcalloc(1, sizeof *stream);
    cudaError_t error = cudaStreamCreateWithFlags(&stream->lane.stream, cudaStreamNonBlocking);
    if (error != cudaSuccess) {
        free(stream);
        return call_failure(gpu, error, "cudaStreamCreateWithFlags");
    }
    *out = stream;
    return TRP_OK;
}

static void gpu_stream_destroy(struct machine *machine, struct machine_stream *stream)
{
    struct gpu *gpu = gpu_enter(machine);
    gpu_check(gpu, cudaStreamSynchronize(stream->lane.stream), "cudaStreamSynchronize", NULL);
    gpu_lane_cleanup(gpu, &stream->lane);
    gpu_check(gpu, cudaStreamDestroy(stream->lane.stream), "cudaStreamDestroy", NULL);
    free(stream);
}

static void *gpu_stream_native(struct machine *machine, struct machine_stream *stream)
{
    (void)gpu_enter(machine); /* whoever uses it does so from this thread */
    return stream->lane.stream;
}

static void gpu_copy(struct machine *machine, struct machine_stream *stream, void *to,
                     const void *from, size_t bytes)
{
    struct gpu *gpu = gpu_enter(machine);
    gpu_check(gpu, cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, stream->lane.stream),
              "cudaMemcpyAsync", NULL);
}

static void gpu_run(struct machine *machine, struct machine_stream *stream,
                    const struct cuda_list *list)
{
    struct gpu *gpu = gpu_enter(machine);
    for (uint32_t i = 0; i < list->count; i++)
        gpu_work(gpu, &stream->lane, list, &list->works[i]);
}

static struct machine_event *gpu_event_create(struct machine *machine)
{
    struct gpu *gpu = gpu_enter(machine);
    struct machine_event *event = xcalloc(1, sizeof *event);
    gpu_check(gpu, cudaEventCreateWithFlags(&event->event, cudaEventDisableTiming),
              "cudaEventCreateWithFlags", NULL);
    return event;
}

static void gpu_event_destroy(struct machine *machine, struct machine_event *event)
{
    struct gpu *gpu = gpu_enter(machine);
    if (event->event)
        gpu_check(gpu, cudaEventDestroy(event->event), "cudaEventDestroy", NULL);
    free(event);
}

static void gpu_event_record(struct machine *machine, struct machine_stream *stream,
                             struct machine_event *event)
{
    gpu_check(gpu_enter(machine), cudaEventRecord(event->event, stream->lane.stream),
              "cudaEventRecord", NULL);
}

static void gpu_stream_wait(struct machine *machine, struct machine_stream *stream,
                            struct machine_event *event)
{
    gpu_check(gpu_enter(machine), cudaStreamWaitEvent(stream->lane.stream, event->event, 0),
              "cudaStreamWaitEvent", NULL);
}

/* CUDA has no wait that ends: one looks again and again, at first all the time. */
static void wait_a_little(struct gpu *gpu, int64_t since_ns, struct deadline deadline)
{
    int64_t now = clock_now_ns(&clock_monotonic);
    if (now - since_ns < POLL_SPIN_NS)
        return;
    struct cond never;
    cond_init(&never);
    mutex_lock(&gpu->mutex);
    (void)cond_wait(&never, &gpu->mutex,
                    deadline_earlier(deadline, (struct deadline){now + POLL_NS}));
    mutex_unlock(&gpu->mutex);
    cond_cleanup(&never);
}

static trp_status gpu_event_wait(struct machine *machine, struct machine_event *event,
                                 int64_t timeout_ms)
{
    struct gpu *gpu = gpu_enter(machine);
    int64_t since_ns = clock_now_ns(&clock_monotonic);
    struct deadline deadline = deadline_in_ms(&clock_monotonic, timeout_ms);
    cudaError_t error;
    while ((error = cudaEventQuery(event->event)) == cudaErrorNotReady) {
        if (deadline_passed(deadline, &clock_monotonic))
            return gpu->host->fail(TRP_DEADLINE_EXCEEDED, "device %s: not done within %lld ms",
                                   gpu->machine.name, (long long)timeout_ms);
        wait_a_little(gpu, since_ns, deadline);
    }
    gpu_check(gpu, error, "cudaEventQuery", NULL);
    return gpu_failure(gpu);
}

static const struct machine_impl gpu_impl = {
    .alloc = gpu_alloc,
    .free = gpu_free,
    .memory = gpu_memory,
    .owns = gpu_owns,
    .pin = gpu_pin,
    .unpin = gpu_unpin,
    .find_kernel = gpu_find_kernel,
    .convolves = dnn_convolves,
    .stream_create = gpu_stream_create,
    .stream_destroy = gpu_stream_destroy,
    .stream_native = gpu_stream_native,
    .copy = gpu_copy,
    .run = gpu_run,
    .capture = graph_capture,
    .launch = graph_launch,
    .forget = graph_forget,
    .event_create = gpu_event_create,
    .event_destroy = gpu_event_destroy,
    .event_record = gpu_event_record,
    .stream_wait = gpu_stream_wait,
    .event_wait = gpu_event_wait,
};

/* ---- finding one --------------------------------------------------------------------------- */

/* `whose` ("device cuda:0") begins the message. */
static trp_status check_driver(const struct module_host *host, const char *whose)
{
    int driver = 0;
    (void)cudaDriverGetVersion(&driver);
    if (driver == 0)
        return host->fail(TRP_UNAVAILABLE,
                          "%s: this host has no driver of NVIDIA's (libcuda.so.1); one "
                          "for " DRIVER_WANTED " is needed",
                          whose);
    if (driver / 1000 < CUDART_VERSION / 1000)
        return host->fail(TRP_UNAVAILABLE,
                          "%s: this host's driver is for CUDA %d.%d; one for " DRIVER_WANTED
                          " is needed",
                          whose, driver / 1000, driver % 1000 / 10);
    return TRP_OK;
}

static trp_status gpu_count(const struct module_host *host, uint32_t *count)
{
    int found = 0;
    TRP_TRY(check_driver(host, "GPUs"));
    cudaError_t error = cudaGetDeviceCount(&found);
    (void)cudaGetLastError();
    *count = found > 0 ? (uint32_t)found : 0;
    if (error == cudaSuccess || error == cudaErrorNoDevice)
        return TRP_OK;
    return host->fail(TRP_UNAVAILABLE, "GPUs: cudaGetDeviceCount: %s (%s)",
                      cudaGetErrorString(error), cudaGetErrorName(error));
}

static trp_status check_number(const struct gpu *gpu)
{
    int count = 0;
    cudaError_t error = cudaGetDeviceCount(&count);
    if (error != cudaSuccess && error != cudaErrorNoDevice)
        return call_failure(gpu, error, "cudaGetDeviceCount");
    (void)cudaGetLastError();
    if (gpu->number < count)
        return TRP_OK;
    return gpu->host->fail(
        TRP_UNAVAILABLE,
        "there is no device %s: CUDA sees %d GPUs here (CUDA_VISIBLE_DEVICES may "
        "hide others), counted from cuda:0",
        gpu->machine.name, count);
}

/* Of which generation it is. */
static trp_status check_capability(const struct gpu *gpu, const struct cudaDeviceProp *properties)
{
    if (properties->major >= CAPABILITY_MIN)
        return TRP_OK;
    return gpu->host->fail(
        TRP_UNAVAILABLE, "device %s is %s, of compute capability %d.%d: at least %d.0 is needed",
        gpu->machine.name, properties->name, properties->major, properties->minor, CAPABILITY_MIN);
}

/* A build that lost one would find out in the middle of a step. */
static trp_status check_code(const struct gpu *gpu, const struct cuda_kernel *const *kernels)
{
    for (; *kernels; kernels++)
        if (!gpu_code(*kernels))
            return gpu->host->fail(TRP_INTERNAL,
                                   "device %s: libtroupe_cuda.so has no code for the kernel %s",
                                   gpu->machine.name, (*kernels)->name);
    return TRP_OK;
}

/* CUDA loads a kernel when it is first launched, for which it may allocate memory, or wait for all
 * that the GPU does: in a capture, or beside NCCL's kernels, which wait for other ranks. Memory
 * that is planned is planned beside their code, and a GPU that it does not suit is known now. */
static trp_status load_code(const struct gpu *gpu, const struct cuda_kernel *const *kernels)
{
    struct cudaFuncAttributes attributes;
    char words[128];
    for (; *kernels; kernels++) {
        cudaError_t error = cudaFuncGetAttributes(&attributes, gpu_code(*kernels));
        snprintf(words, sizeof words, "the code of the kernel %s", (*kernels)->name);
        if (error != cudaSuccess)
            return call_failure(gpu, error, words);
    }
    return TRP_OK;
}

/* The first call that needs memory there makes a context. */
static trp_status gpu_begin(struct gpu *gpu)
{
    struct cudaDeviceProp properties;
    char whose[32];
    snprintf(whose, sizeof whose, "device %s", gpu->machine.name);
    TRP_TRY(check_code(gpu, nn_kernels));
    TRP_TRY(check_code(gpu, agents_kernels));
    TRP_TRY(check_code(gpu, learner_kernels));
    TRP_TRY(check_driver(gpu->host, whose));
    TRP_TRY(check_number(gpu));
    cudaError_t error = cudaGetDeviceProperties(&properties, gpu->number);
    if (error != cudaSuccess)
        return call_failure(gpu, error, "cudaGetDeviceProperties");
    TRP_TRY(check_capability(gpu, &properties));
    error = cudaSetDevice(gpu->number);
    if (error == cudaSuccess)
        error = cudaFree(NULL);
    if (error != cudaSuccess)
        return call_failure(gpu, error, "cudaSetDevice");
    TRP_TRY(load_code(gpu, nn_kernels));
    TRP_TRY(load_code(gpu, agents_kernels));
    TRP_TRY(load_code(gpu, learner_kernels));
    char products[1100];
    gpu->blas = blas_create(products, sizeof products);
    size_t left = 0, total = 0;
    int driver = 0;
    (void)cudaMemGetInfo(&left, &total);
    (void)cudaDriverGetVersion(&driver);
    gpu->host->log(TRP_INFO,
                   "device %s is %s, of compute capability %d.%d, with %.0f of %.0f MiB free; its "
                   "driver is for CUDA %d.%d; products: %s",
                   gpu->machine.name, properties.name, properties.major, properties.minor,
                   (double)left / mib, (double)total / mib, driver / 1000, driver % 1000 / 10,
                   products);
    return TRP_OK;
}

static trp_status gpu_open(const struct module_host *host, uint32_t number, struct machine **out)
{
    struct gpu *gpu = xcalloc(1, sizeof *gpu);
    gpu->machine.impl = &gpu_impl;
    snprintf(gpu->machine.name, sizeof gpu->machine.name, "cuda:%u", (unsigned)number);
    gpu->host = host;
    nvidia_look_under(host->prefixes);
    gpu->number = number < INT_MAX ? (int)number : INT_MAX;
    mutex_init(&gpu->mutex);
    mutex_init(&gpu->still);
    trp_status status = gpu_begin(gpu);
    if (status != TRP_OK) {
        mutex_cleanup(&gpu->still);
        mutex_cleanup(&gpu->mutex);
        free(gpu);
        return status;
    }
    *out = &gpu->machine;
    return TRP_OK;
}

__attribute__((visibility("default"))) extern const struct cuda_module troupe_cuda_module;
const struct cuda_module troupe_cuda_module = {TROUPE_VERSION, CUDA_MODULE_BYTES, gpu_open,
                                               gpu_count};

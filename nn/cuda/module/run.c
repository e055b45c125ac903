/* Works on a stream, one after the other, whether it runs at once or is captured. */
#include <stdlib.h>
#include <string.h>

#include "core/alloc.h"
#include "gpu.h"
#include "nn/cuda/bodies/rows.h"
#include "nn/cuda/kernels.h"

enum { OPERAND_ALIGNMENT = 64 };

/* ---- kernels ------------------------------------------------------------------------------- */

const void *gpu_code(const struct cuda_kernel *kernel)
{
    static const struct module_kernel *const lists[] = {module_kernels, agents_module_kernels,
                                                        learner_module_kernels};
    for (size_t i = 0; i < sizeof lists / sizeof *lists; i++)
        for (const struct module_kernel *entry = lists[i]; entry->name; entry++)
            if (strcmp(entry->name, kernel->name) == 0)
                return entry->function;
    return NULL;
}

void gpu_kernel(struct gpu *gpu, struct gpu_lane *lane, const struct cuda_kernel *kernel,
                const void *arguments)
{
    struct kernel_shape shape = kernel->shape(arguments);
    dim3 blocks = {shape.blocks, 1, 1}, threads = {shape.threads, 1, 1};
    void *parameters[] = {(void *)(uintptr_t)arguments, &shape.phases};
    const void *function = gpu_code(kernel);
    cudaError_t error = function ? cudaLaunchKernel(function, blocks, threads, parameters,
                                                    shape.shared_bytes, lane->stream)
                                 : cudaErrorInvalidDeviceFunction;
    lane_check(gpu, lane, error, "cudaLaunchKernel", kernel->name);
}

/* ---- products ------------------------------------------------------------------------------ */

static void activate_product(struct gpu *gpu, struct gpu_lane *lane, const struct gemm_job *job)
{
    gpu_kernel(gpu, lane, &kernel_activate_rows,
               &(struct activate_rows_arguments){
                   .in = job->c,
                   .out = job->c,
                   .in_stride = job->c_stride,
                   .out_stride = job->c_stride,
                   .rows = job->m,
                   .columns = job->n,
                   .activation = job->activation,
               });
}

static void gpu_gemm(struct gpu *gpu, struct gpu_lane *lane, const struct gemm_job *job)
{
    if (!gpu->blas || !blas_gemm(gpu, lane, job))
        gpu_kernel(gpu, lane, &kernel_tiled_gemm, job);
    else if (!blas_activates(job->activation))
        activate_product(gpu, lane, job);
}

/* ---- calls of the host --------------------------------------------------------------------- */

static void CUDART_CB host_call_run(void *context)
{
    struct host_call *call = context;
    call->run(call->pinned);
}

static void CUDART_CB host_call_done(void *context)
{
    struct host_call *call = context;
    atomic_store_explicit(&call->busy, false, memory_order_release);
}

/* One that nobody uses (a graph uses its own for good), or a new one. NULL: there is no memory,
 * which is kept as a failure. */
static struct host_call *host_call_get(struct gpu *gpu, struct gpu_lane *lane, size_t bytes)
{
    for (struct host_call *call = lane->calls; call; call = call->next)
        if (call->bytes >= bytes && !atomic_load_explicit(&call->busy, memory_order_acquire))
            return call;
    struct host_call *call = xcalloc(1, sizeof *call);
    void *pinned = NULL;
    cudaError_t error = cudaHostAlloc(&pinned, bytes, cudaHostAllocDefault);
    lane_check(gpu, lane, error, "cudaHostAlloc", NULL);
    if (error != cudaSuccess) {
        free(call);
        return NULL;
    }
    *call = (struct host_call){.next = lane->calls, .pinned = pinned, .bytes = bytes};
    lane->calls = call;
    return call;
}

/* Bytes of arguments and operands, and where each operand goes. */
static size_t host_call_layout(const struct host_job *job, const struct cuda_work *work,
                               size_t places[KERNEL_REACHES_MAX])
{
    size_t bytes = job->argument_bytes;
    for (uint32_t i = 0; i < job->operand_count; i++) {
        places[i] = (bytes + OPERAND_ALIGNMENT - 1) / OPERAND_ALIGNMENT * OPERAND_ALIGNMENT;
        bytes = places[i] + work->reaches[i].bytes;
    }
    return bytes;
}

/* Whole operands go back, of which the function may have left parts as they were. */
static void gpu_host(struct gpu *gpu, struct gpu_lane *lane, const struct cuda_list *list,
                     const struct cuda_work *work)
{
    size_t places[KERNEL_REACHES_MAX];
    const struct host_job *job = work_arguments(list, work);
    struct host_call *call = host_call_get(gpu, lane, host_call_layout(job, work, places));
    if (!call)
        return;
    call->run = job->run;
    atomic_store_explicit(&call->busy, true, memory_order_relaxed);
    memcpy(call->pinned, host_job_arguments(job), job->argument_bytes);
    for (uint32_t i = 0; i < job->operand_count; i++) {
        const struct kernel_reach *reach = &work->reaches[i];
        const char *at = call->pinned + places[i];
        memcpy(call->pinned + job->pointers[i], &at, sizeof at);
        lane_check(gpu, lane,
                   cudaMemcpyAsync(call->pinned + places[i], reach->memory, reach->bytes,
                                   cudaMemcpyDeviceToHost, lane->stream),
                   "cudaMemcpyAsync", "an operand");
    }
    lane_check(gpu, lane, cudaLaunchHostFunc(lane->stream, host_call_run, call),
               "cudaLaunchHostFunc", NULL);
    for (uint32_t i = 0; i < job->operand_count; i++) {
        const struct kernel_reach *reach = &work->reaches[i];
        if (reach->access & TRP_WRITE)
            lane_check(gpu, lane,
                       cudaMemcpyAsync((void *)(uintptr_t)reach->memory, call->pinned + places[i],
                                       reach->bytes, cudaMemcpyHostToDevice, lane->stream),
                       "cudaMemcpyAsync", "an operand");
    }
    if (!lane->captured)
        lane_check(gpu, lane, cudaLaunchHostFunc(lane->stream, host_call_done, call),
                   "cudaLaunchHostFunc", NULL);
}

/* ---- calls of other libraries ---------------------------------------------------------------- */

/* Why it could not is its owner's to know. */
static void gpu_call(struct gpu_lane *lane, const struct call_job *job)
{
    bool put = job->call->put(job->owner, lane->stream, call_job_arguments(job));
    lane->failed = lane->failed || (lane->captured && !put);
}

/* ---- all of them --------------------------------------------------------------------------- */

void gpu_work(struct gpu *gpu, struct gpu_lane *lane, const struct cuda_list *list,
              const struct cuda_work *work)
{
    const void *arguments = work_arguments(list, work);
    const struct copy_job *copy = arguments;
    switch (work->kind) {
    case WORK_KERNEL:
        gpu_kernel(gpu, lane, work->kernel, arguments);
        break;
    case WORK_GEMM:
        gpu_gemm(gpu, lane, arguments);
        break;
    case WORK_CONV:
        dnn_conv(gpu, lane, arguments);
        break;
    case WORK_COPY:
        lane_check(gpu, lane,
                   cudaMemcpyAsync(copy->to, copy->from, copy->bytes, cudaMemcpyDeviceToDevice,
                                   lane->stream),
                   "cudaMemcpyAsync", "a copy");
        break;
    case WORK_ZERO:
        lane_check(gpu, lane, cudaMemsetAsync(copy->to, 0, copy->bytes, lane->stream),
                   "cudaMemsetAsync", NULL);
        break;
    case WORK_HOST:
        gpu_host(gpu, lane, list, work);
        break;
    case WORK_CALL:
        gpu_call(lane, arguments);
        break;
    }
}

void gpu_lane_cleanup(struct gpu *gpu, struct gpu_lane *lane)
{
    if (!lane->calls && !lane->workspace)
        return;
    mutex_lock(&gpu->still);
    gpu_check(gpu, cudaDeviceSynchronize(), "cudaDeviceSynchronize", NULL);
    while (lane->calls) {
        struct host_call *call = lane->calls;
        lane->calls = call->next;
        gpu_check(gpu, cudaFreeHost(call->pinned), "cudaFreeHost", NULL);
        free(call);
    }
    if (lane->workspace)
        gpu_check(gpu, cudaFree(lane->workspace), "cudaFree", "a workspace");
    lane->workspace = NULL;
    mutex_unlock(&gpu->still);
}

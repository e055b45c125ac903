/* A GPU (nn/cuda/machine.h), for the files of libtroupe_cuda.so. */
#ifndef TRP_NN_CUDA_GPU_H
#define TRP_NN_CUDA_GPU_H

#include <stdatomic.h>

#include <cuda_runtime_api.h>

#include "core/thread.h"
#include "nn/cuda/module/code.h"
#include "nn/cuda/module/module.h"

/* A call of the host from a stream: operands and arguments in pinned memory. */
struct host_call {
    struct host_call *next;
    char *pinned;
    size_t bytes;
    void (*run)(void *arguments);
    atomic_bool busy;
};

/* Where works are put: a stream, and memory that works on it use one after the other. */
struct gpu_lane {
    cudaStream_t stream;
    struct host_call *calls;
    void *workspace; /* of products; NULL: none was needed yet */
    bool captured;   /* what is put here runs again and again: each call has its own memory */
    bool failed;     /* something was not captured: */
    char words[160]; /* what, and why; "": its owner knows */
};

struct gpu_range {
    const char *low;
    size_t bytes;
};

struct gpu {
    struct machine machine;
    const struct module_host *host;
    int number;
    struct blas *blas;        /* NULL: products are our own */
    struct dnn *dnn;          /* of convolutions; NULL: there was none yet */
    struct mutex still;       /* held while a list is captured: nothing waits for the GPU then */
    struct mutex mutex;       /* of what follows */
    struct gpu_range *ranges; /* memory that was given out, by address */
    uint32_t range_count, range_room;
    bool told;          /* of a list that cannot be captured */
    trp_status failure; /* the first one */
    char failed[256];   /* in words */
};

struct machine_stream {
    struct gpu_lane lane;
};

struct machine_event {
    cudaEvent_t event;
};

struct machine_graph {
    cudaGraphExec_t exec;
    struct gpu_lane lanes[SCHEDULE_LANES];
};

static inline struct gpu *gpu_of(struct machine *machine)
{
    return (struct gpu *)machine;
}

/* Makes it the calling thread's GPU. */
struct gpu *gpu_enter(struct machine *machine);

/* False: `call`, in words, failed; that is kept, and event_wait() tells. */
bool gpu_check(struct gpu *gpu, cudaError_t error, const char *call, const char *of);

/* "CALL of OF: what CUDA says"; `of` may be NULL. */
void cuda_words(char *words, size_t bytes, cudaError_t error, const char *call, const char *of);

/* The same for what is put on a lane: of one that is captured it is the graph that fails. */
void lane_check(struct gpu *gpu, struct gpu_lane *lane, cudaError_t error, const char *call,
                const char *of);

/* What is no error of CUDA's, in words. */
void lane_fail(struct gpu *gpu, struct gpu_lane *lane, trp_status status, const char *words);

/* The first failure as a status, or TRP_OK. */
trp_status gpu_failure(struct gpu *gpu);

/* ---- run.c ------------------------------------------------------------------------------- */

/* The device's code for a kernel; NULL: there is none. */
const void *gpu_code(const struct cuda_kernel *kernel);
void gpu_kernel(struct gpu *gpu, struct gpu_lane *lane, const struct cuda_kernel *kernel,
                const void *arguments);
void gpu_work(struct gpu *gpu, struct gpu_lane *lane, const struct cuda_list *list,
              const struct cuda_work *work);
/* Frees all but the stream, once nobody uses it. */
void gpu_lane_cleanup(struct gpu *gpu, struct gpu_lane *lane);

/* ---- graph.c ----------------------------------------------------------------------------- */

struct machine_graph *graph_capture(struct machine *machine, const struct cuda_schedule *schedule);
void graph_launch(struct machine *machine, struct machine_stream *stream,
                  struct machine_graph *graph);
void graph_forget(struct machine *machine, struct machine_graph *graph);

/* ---- blas.c ------------------------------------------------------------------------------ */

/* cuBLASLt for the calling thread's GPU; `words` says which one, or why there is none. */
struct blas *blas_create(char *words, size_t bytes);

/* False: it has no way to do this one. Leaves activations but ReLU to the caller. */
bool blas_gemm(struct gpu *gpu, struct gpu_lane *lane, const struct gemm_job *job);

/* ---- dnn.c ------------------------------------------------------------------------------- */

/* cuDNN for the GPU: machine.h's, and one that it said it makes. */
bool dnn_convolves(struct machine *machine, const struct conv_job *job, size_t *workspace_bytes);
void dnn_conv(struct gpu *gpu, struct gpu_lane *lane, const struct conv_job *job);

static inline bool blas_activates(enum activation activation)
{
    return activation == ACTIVATION_NONE || activation == ACTIVATION_RELU;
}

#endif

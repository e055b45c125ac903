/* What is put on a GPU, as data: kernels, products, copies, what other libraries put there by
 * themselves (NCCL's collectives), each with the memory that it reads and writes. From that alone
 * follows what has to wait for what (schedule.h); who runs a list may do the rest in any order, or
 * at once. libtroupe_cuda.so captures a list as a CUDA graph (machine.h); tests run it on the host,
 * in any order that its waits allow. */
#ifndef TRP_NN_CUDA_WORK_H
#define TRP_NN_CUDA_WORK_H

#include <stdbool.h>

#include <troupe/nn.h>

#include "kernel.h"
#include "nn/activation.h"
#include "window.h"

/* c[m][n] (+)= A B, then + bias, then the activation: A is a[m][k] or, turned, a[k][m], B is
 * b[k][n] or, turned, b[n][k]. Row by row, floats; strides count elements. The bias is of columns,
 * or NULL. With TRP_BF16 factors may be rounded to bfloat16 or TF32, as cuBLASLt likes (ours rounds
 * them to bfloat16), with TRP_TF32 to that; sums and c are float32. */
struct gemm_job {
    const float *a, *b, *bias;
    float *c;
    size_t a_stride, b_stride, c_stride;
    uint32_t m, n, k;
    bool a_turned, b_turned;
    bool accumulate;            /* without bias and activation */
    enum activation activation; /* none that keeps its input */
    trp_precision precision;
};

enum conv_part { CONV_FORWARD, CONV_DATA, CONV_WEIGHTS };

/* A convolution by a library (machine.h): y, x or w of the other two. w is [filters][kernel_height]
 * [kernel_width][channels], images lie as everywhere; with TRP_TF32 factors may be rounded to that,
 * TRP_BF16 is none. */
struct conv_job {
    struct window window;
    enum conv_part makes;
    trp_precision precision;
    uint32_t images;
    float *x, *w, *y; /* at multiples of CONV_ALIGNMENT */
    size_t x_stride, y_stride;
    size_t workspace_most; /* it was asked for with that */
    size_t workspace_bytes;
    void *workspace;
};

enum {
    CONV_ALIGNMENT = 16,
    WORK_ALIGNMENT = 16, /* of arguments in a list's bytes */
};

enum work_kind {
    WORK_KERNEL,
    WORK_GEMM,
    WORK_CONV,
    WORK_COPY, /* within the device */
    WORK_ZERO,
    WORK_HOST, /* a function of the host's, on copies of its operands */
    WORK_CALL, /* another library's (trp_queue_call()) */
};

struct copy_job {
    void *to;
    const void *from; /* NULL: zeros */
    size_t bytes;
};

/* A function that no device has code for: operands are brought to the host and back. The arguments
 * follow. */
struct host_job {
    void (*run)(void *arguments);
    size_t argument_bytes;
    uint32_t operand_count;
    uint32_t
        pointers[KERNEL_REACHES_MAX]; /* where each is in the arguments; as the work's reaches */
};

enum {
    WORK_HOST_JOB_BYTES =
        (sizeof(struct host_job) + WORK_ALIGNMENT - 1) / WORK_ALIGNMENT * WORK_ALIGNMENT
};

/* The arguments follow. The owner is written by each of its calls: that keeps them in order. */
struct call_job {
    const trp_library_call *call;
    void *owner;
    size_t argument_bytes;
};

enum {
    WORK_CALL_JOB_BYTES =
        (sizeof(struct call_job) + WORK_ALIGNMENT - 1) / WORK_ALIGNMENT * WORK_ALIGNMENT
};

struct cuda_work {
    enum work_kind kind;
    uint32_t reach_count;
    const struct cuda_kernel *kernel; /* WORK_KERNEL */
    size_t arguments, argument_bytes; /* of a job or a kernel: their place in the list's bytes */
    struct kernel_reach reaches[KERNEL_REACHES_MAX];
};

/* In the order in which they were put. Zeroed is empty. */
struct cuda_list {
    struct cuda_work *works;
    uint32_t count, room;
    uint32_t call_count; /* of WORK_CALL */
    char *bytes; /* arguments of all, each at a multiple of WORK_ALIGNMENT, zeros between them */
    size_t bytes_used, bytes_room;
};

void work_list_cleanup(struct cuda_list *list);
void work_list_clear(struct cuda_list *list); /* keeps its memory */

/* A copy of its own. */
struct cuda_list work_list_copy(const struct cuda_list *list);

/* Both do the same with the same arguments. */
bool work_lists_equal(const struct cuda_list *a, const struct cuda_list *b);

/* Each appends one; what it points to is copied. */
void work_kernel(struct cuda_list *list, const struct cuda_kernel *kernel, const void *arguments);

/* A kernel whose reaches come with the call; `kernel` NULL: the host runs it. */
void work_run(struct cuda_list *list, const struct cuda_kernel *kernel, const trp_kernel *host,
              const void *arguments, size_t bytes, const trp_operand *operands,
              size_t operand_count);
void work_call(struct cuda_list *list, const trp_library_call *call, void *owner,
               const void *arguments, size_t bytes, const trp_operand *operands,
               size_t operand_count);
void work_gemm(struct cuda_list *list, const struct gemm_job *job);
void work_conv(struct cuda_list *list, const struct conv_job *job);
void work_copy(struct cuda_list *list, void *to, const void *from, size_t bytes);
void work_zero(struct cuda_list *list, void *to, size_t bytes);

static inline const void *work_arguments(const struct cuda_list *list, const struct cuda_work *work)
{
    return list->bytes + work->arguments;
}

/* Arguments of a function of the host. */
static inline const void *host_job_arguments(const struct host_job *job)
{
    return (const char *)job + WORK_HOST_JOB_BYTES;
}

static inline const void *call_job_arguments(const struct call_job *job)
{
    return (const char *)job + WORK_CALL_JOB_BYTES;
}

/* Whether a call in it is of that owner; of one that has ended. */
bool work_list_calls(const struct cuda_list *list, const void *owner);
bool work_list_is_over(const struct cuda_list *list);

/* Whether a work of it gets to that memory. */
bool work_list_reaches(const struct cuda_list *list, const void *memory, size_t bytes);

/* They meet in memory, one of them writing. */
bool works_conflict(const struct cuda_work *a, const struct cuda_work *b);

#endif

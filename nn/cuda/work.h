/* What is put on a GPU, as data: kernels, products, convolutions, copies, each with the memory that
 * it reads and writes. From that alone follows what has to wait for what (schedule.h); whoever runs
 * a list may do the rest in any order or at once. libtroupe_cuda.so captures a list as a CUDA graph
 * (machine.h); tests run it on the host, in any order that its waits allow. */
#ifndef TRP_NN_CUDA_WORK_H
#define TRP_NN_CUDA_WORK_H

#include <stdbool.h>

#include <troupe/nn.h>

#include "kernel.h"
#include "nn/activation.h"
#include "nn/conv.h"

/* c[m][n] (+)= A B, then + bias, then the activation: A is a[m][k] or, turned, a[k][m], B is
 * b[k][n] or, turned, b[n][k]. Row by row, floats; strides count elements. bias is of columns, or
 * NULL. `product` is of bf16: factors are rounded, sums and c are float32. */
struct gemm_job {
    const float *a, *b, *bias;
    float *c;
    size_t a_stride, b_stride, c_stride;
    uint32_t m, n, k;
    bool a_turned, b_turned;
    bool accumulate; /* without bias and activation */
    enum activation activation;
    trp_precision precision;
};

/* As cpu's convolutions (nn/conv.h), one of the three products of each. */
enum conv_part {
    CONV_FORWARD, /* y = activation(x * w + bias) */
    CONV_DATA,    /* dx (+)= of dy and w */
    CONV_WEIGHTS, /* dw += of x and dy; the bias' gradient is a kernel's */
};

struct conv_job {
    enum conv_part part;
    struct window window;
    const float *bias;
    float *x, *w, *y; /* or their gradients; the part says which one is written */
    size_t x_stride, y_stride;
    uint32_t rows;
    bool accumulate;            /* CONV_DATA */
    enum activation activation; /* CONV_FORWARD */
    trp_precision precision;
    void *workspace; /* of the device, of this job alone; NULL: none */
    size_t workspace_bytes;
};

enum work_kind {
    WORK_KERNEL,
    WORK_GEMM,
    WORK_CONV,
    WORK_COPY, /* within the device, from the host or to it */
    WORK_ZERO,
    WORK_HOST, /* a function of the host's, on copies of its operands */
};

/* A function that no device has code for: operands are brought to the host and back. */
struct host_job {
    void (*run)(void *arguments);
    size_t operand_count;
    size_t pointers[KERNEL_REACHES_MAX]; /* of operands, as trp_operand has them */
};

struct cuda_work {
    enum work_kind kind;
    const struct cuda_kernel *kernel; /* WORK_KERNEL */
    size_t arguments; /* where the job, or a kernel's arguments, begin in the list's bytes */
    size_t argument_bytes;
    uint32_t reach_count;
    struct kernel_reach reaches[KERNEL_REACHES_MAX];
};

/* A list in the order in which it was put. Zeroed is empty. */
struct cuda_list {
    struct cuda_work *works;
    char *bytes; /* arguments of all, each at a multiple of 16 */
    size_t count, room, bytes_used, bytes_room;
};

void work_list_cleanup(struct cuda_list *list);

/* Each appends one; what it points to is copied. */
void work_kernel(struct cuda_list *list, const struct cuda_kernel *kernel, const void *arguments);
/* The reaches are those of `operands`, for kernels that cannot say them. */
void work_run(struct cuda_list *list, const struct cuda_kernel *kernel, const void *arguments,
              const trp_operand *operands, size_t operand_count);
void work_host(struct cuda_list *list, const trp_kernel *kernel, const void *arguments,
               size_t bytes, const trp_operand *operands, size_t operand_count);
void work_gemm(struct cuda_list *list, const struct gemm_job *job);
void work_conv(struct cuda_list *list, const struct conv_job *job);
void work_copy(struct cuda_list *list, void *to, const void *from, size_t bytes);
void work_zero(struct cuda_list *list, void *to, size_t bytes);

static inline const void *work_arguments(const struct cuda_list *list, const struct cuda_work *work)
{
    return list->bytes + work->arguments;
}

#endif

/* The kernels of nn/, for a GPU: a body (kernel.h) is called phase by phase, and threads of a block
 * wait for each other in between. */
#include "nn/cuda/bodies/cells.h"
#include "nn/cuda/bodies/convolve.h"
#include "nn/cuda/bodies/gather.h"
#include "nn/cuda/bodies/gemm.h"
#include "nn/cuda/bodies/images.h"
#include "nn/cuda/bodies/small.h"
#include "nn/cuda/bodies/steps.h"

#include "nn/cuda/module/entry.h"

#define KERNEL(NAME)                        KERNEL_ENTRY(NAME)
#define NAMED_KERNEL(NAME, words)           KERNEL_ENTRY(NAME)
#define FITTING_KERNEL(NAME, words, others) KERNEL_ENTRY(NAME)
#define FIRST_KERNEL(NAME, words, next)     KERNEL_ENTRY(NAME)
#include "nn/cuda/kernels_layers.def"
#include "nn/cuda/kernels_steps.def"
#undef KERNEL
#undef NAMED_KERNEL
#undef FITTING_KERNEL
#undef FIRST_KERNEL

#define KERNEL(NAME)                        NAMED_KERNEL(NAME, #NAME)
#define NAMED_KERNEL(NAME, words)           {words, (const void *)NAME##_entry},
#define FITTING_KERNEL(NAME, words, others) NAMED_KERNEL(NAME, words)
#define FIRST_KERNEL(NAME, words, next)     NAMED_KERNEL(NAME, words)
extern "C" const struct module_kernel module_kernels[] = {
#include "nn/cuda/kernels_layers.def"
#include "nn/cuda/kernels_steps.def"
    {NULL, NULL}};

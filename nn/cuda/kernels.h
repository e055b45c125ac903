/* The kernels of nn/ that a GPU has code for, as the host knows them. */
#ifndef TRP_NN_CUDA_KERNELS_H
#define TRP_NN_CUDA_KERNELS_H

#include "kernel.h"

/* kernel_NAME of each. */
#define KERNEL(NAME)                        extern const struct cuda_kernel kernel_##NAME;
#define NAMED_KERNEL(NAME, words)           KERNEL(NAME)
#define FITTING_KERNEL(NAME, words, others) KERNEL(NAME)
#define FIRST_KERNEL(NAME, words, next)     KERNEL(NAME)
#include "kernels_layers.def"
#include "kernels_steps.def"
#undef KERNEL
#undef NAMED_KERNEL
#undef FITTING_KERNEL
#undef FIRST_KERNEL

extern const struct cuda_kernel *const nn_kernels[]; /* the last one is NULL */

/* That of a trp_kernel's name; NULL: there is none. */
const struct cuda_kernel *kernel_find(const char *name);

#endif

/* Device code of kernels, by the names that struct cuda_kernel has. C, and the C++ of nvcc. */
#ifndef TRP_NN_CUDA_CODE_H
#define TRP_NN_CUDA_CODE_H

struct module_kernel {
    const char *name;
    const void *function;
};

#ifdef __cplusplus
extern "C" const struct module_kernel module_kernels[];
#else
extern const struct module_kernel module_kernels[]; /* the last one has no name */
#endif

#endif

/* Device code of kernels, by the names that struct cuda_kernel has. C, and the C++ of nvcc. */
#ifndef TRP_NN_CUDA_CODE_H
#define TRP_NN_CUDA_CODE_H

struct module_kernel {
    const char *name;
    const void *function;
};

/* Those of nn/, and those of agents/ (agents/kernels_agents.def); the last one has no name. */
#ifdef __cplusplus
extern "C" const struct module_kernel module_kernels[], agents_module_kernels[];
#else
extern const struct module_kernel module_kernels[], agents_module_kernels[];
extern const struct cuda_kernel *const agents_kernels[]; /* the last one is NULL */
#endif

#endif

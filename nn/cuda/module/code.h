/* Device code of kernels, by the names that struct cuda_kernel has. C, and the C++ of nvcc. */
#ifndef TRP_NN_CUDA_CODE_H
#define TRP_NN_CUDA_CODE_H

struct module_kernel {
    const char *name;
    const void *function;
};

/* Those of nn/, of agents/ (kernels_agents.def) and of learner/ (kernels_learner.def);
 * the last one has no name. */
#ifdef __cplusplus
extern "C" const struct module_kernel module_kernels[], agents_module_kernels[],
    learner_module_kernels[];
#else
extern const struct module_kernel module_kernels[], agents_module_kernels[],
    learner_module_kernels[];
/* The last one is NULL. */
extern const struct cuda_kernel *const agents_kernels[], *const learner_kernels[];
#endif

#endif

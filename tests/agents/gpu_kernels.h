/* The kernels of agents by name, for the machine of tests. */
#ifndef TRP_TESTS_GPU_KERNELS_H
#define TRP_TESTS_GPU_KERNELS_H

#include <string.h>

#include "nn/cuda/kernel.h"
#include "nn/cuda/module/code.h"

/* NULL: there is none. */
static inline const struct cuda_kernel *find_agents_kernel(const char *name)
{
    for (size_t i = 0; agents_kernels[i]; i++)
        if (strcmp(agents_kernels[i]->name, name) == 0)
            return agents_kernels[i];
    return NULL;
}

#endif

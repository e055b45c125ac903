/* What makes a body (nn/cuda/kernel.h) a function of the GPU. For files that nvcc compiles. */
#ifndef TRP_NN_CUDA_ENTRY_H
#define TRP_NN_CUDA_ENTRY_H

#include "nn/cuda/kernel.h"
#include "nn/cuda/module/code.h"

#define KERNEL_ENTRY(NAME)                                                                         \
    __global__ void __launch_bounds__(KERNEL_THREADS_MAX)                                          \
        NAME##_entry(const __grid_constant__ struct NAME##_arguments arguments, uint32_t phases)   \
    {                                                                                              \
        extern __shared__ double block_memory[];                                                   \
        struct kernel_at at = {blockIdx.x, gridDim.x, threadIdx.x, blockDim.x, 0};                 \
        static_assert(sizeof arguments <= KERNEL_ARGUMENTS_MAX, "arguments are few");              \
        for (; at.phase < phases; at.phase++) {                                                    \
            if (at.phase > 0)                                                                      \
                __syncthreads();                                                                   \
            NAME##_body(&arguments, &at, block_memory);                                            \
        }                                                                                          \
    }

#endif

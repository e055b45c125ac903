/* A kernel's twin over all of its index space, on memory of the host. */
#ifndef TRP_TESTS_TWIN_KERNEL_H
#define TRP_TESTS_TWIN_KERNEL_H

#include "nn/cuda/kernels.h"
#include "tests/nn/nn_tools.h"

/* Threads of a phase, and blocks, in either order: none may see what another one does in it, nor a
 * block what others do at all. */
static inline void twin_kernel(trp_rng *rng, const struct cuda_kernel *kernel,
                               const void *arguments)
{
    struct kernel_shape shape = kernel->shape(arguments);
    char *shared = xmalloc(shape.shared_bytes + 1);
    assert_in_range(shape.blocks, 1, INT32_MAX);
    assert_in_range(shape.threads, 1, KERNEL_THREADS_MAX);
    assert_in_range(shape.shared_bytes, 0, KERNEL_SHARED_MAX);
    bool last_first = trp_rng_below(rng, 2);
    for (uint32_t number = 0; number < shape.blocks; number++) {
        uint32_t block = last_first ? shape.blocks - 1 - number : number;
        memset(shared, 0xff, shape.shared_bytes);
        for (uint32_t phase = 0; phase < shape.phases; phase++) {
            bool back = trp_rng_below(rng, 2);
            for (uint32_t i = 0; i < shape.threads; i++) {
                struct kernel_at at = {block, shape.blocks, back ? shape.threads - 1 - i : i,
                                       shape.threads, phase};
                kernel->twin(arguments, &at, shared);
            }
        }
    }
    free(shared);
}

#endif

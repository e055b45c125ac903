/* The kernels of agents/ that a GPU has code for, as the host knows them. */
#include "bodies/all.h"
#include "nn/cuda/module/code.h"

#define NAMED_KERNEL(NAME, words)                                                                  \
    extern const struct cuda_kernel kernel_##NAME;                                                 \
    MAKE_KERNEL(NAME, words, .then = NULL)
#include "kernels_agents.def"
#undef NAMED_KERNEL

#define NAMED_KERNEL(NAME, words) &kernel_##NAME,
const struct cuda_kernel *const agents_kernels[] = {
#include "kernels_agents.def"
    NULL};

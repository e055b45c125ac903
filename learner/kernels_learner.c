/* The kernels of learner/ that a GPU has code for, as the host knows them. */
#include "learner/collective/sum_kernel.h"
#include "learner/modes/kernels.h"
#include "nn/cuda/module/code.h"

#define NAMED_KERNEL(NAME, words)                                                                  \
    extern const struct cuda_kernel kernel_##NAME;                                                 \
    MAKE_KERNEL(NAME, words, .then = NULL)
#include "kernels_learner.def"
#undef NAMED_KERNEL

#define NAMED_KERNEL(NAME, words) &kernel_##NAME,
const struct cuda_kernel *const learner_kernels[] = {
#include "kernels_learner.def"
    NULL};

/* The kernels of learner/, for a GPU. */
#include "learner/collective/sum_kernel.h"
#include "learner/modes/kernels.h"

#include "nn/cuda/module/entry.h"

#define NAMED_KERNEL(NAME, words) KERNEL_ENTRY(NAME)
#include "kernels_learner.def"
#undef NAMED_KERNEL

#define NAMED_KERNEL(NAME, words) {words, (const void *)NAME##_entry},
extern "C" const struct module_kernel learner_module_kernels[] = {
#include "kernels_learner.def"
    {NULL, NULL}};

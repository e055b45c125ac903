/* What kernel.h says of a kernel, put together for the host, and its body as a twin. */
#include "kernels.h"

#include <string.h>

#include "nn/cuda/bodies/cells.h"
#include "nn/cuda/bodies/convolve.h"
#include "nn/cuda/bodies/gather.h"
#include "nn/cuda/bodies/gemm.h"
#include "nn/cuda/bodies/images.h"
#include "nn/cuda/bodies/small.h"
#include "nn/cuda/bodies/steps.h"

#define KERNEL(NAME)                                                                               \
    static size_t NAME##_reaches_of(const void *arguments,                                         \
                                    struct kernel_reach reaches[KERNEL_REACHES_MAX])               \
    {                                                                                              \
        return NAME##_reaches(arguments, reaches);                                                 \
    }                                                                                              \
    MAKE_KERNEL(NAME, #NAME, .reaches = NAME##_reaches_of)
#define NAMED_KERNEL(NAME, words) MAKE_KERNEL(NAME, words, .then = NULL)
#define FITTING_KERNEL(NAME, words, others)                                                        \
    static bool NAME##_fits_of(const void *arguments)                                              \
    {                                                                                              \
        return NAME##_fits(arguments);                                                             \
    }                                                                                              \
    MAKE_KERNEL(NAME, words, .fits = NAME##_fits_of, .other = &kernel_##others)
#define FIRST_KERNEL(NAME, words, next) MAKE_KERNEL(NAME, words, .then = &kernel_##next)
#include "kernels_layers.def"
#include "kernels_steps.def"
#undef KERNEL
#undef NAMED_KERNEL
#undef FITTING_KERNEL
#undef FIRST_KERNEL

#define KERNEL(NAME)                        &kernel_##NAME,
#define NAMED_KERNEL(NAME, words)           KERNEL(NAME)
#define FITTING_KERNEL(NAME, words, others) KERNEL(NAME)
#define FIRST_KERNEL(NAME, words, next)     KERNEL(NAME)
const struct cuda_kernel *const nn_kernels[] = {
#include "kernels_layers.def"
#include "kernels_steps.def"
    NULL};

const struct cuda_kernel *kernel_find(const char *name)
{
    for (size_t i = 0; nn_kernels[i]; i++)
        if (strcmp(nn_kernels[i]->name, name) == 0)
            return nn_kernels[i];
    return NULL;
}

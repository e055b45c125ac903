/* The kernels of agents/, for a GPU. */
#include "bodies/all.h"

#include "nn/cuda/module/entry.h"

#define NAMED_KERNEL(NAME, words) KERNEL_ENTRY(NAME)
#include "kernels_agents.def"
#undef NAMED_KERNEL

#define NAMED_KERNEL(NAME, words) {words, (const void *)NAME##_entry},
extern "C" const struct module_kernel agents_module_kernels[] = {
#include "kernels_agents.def"
    {NULL, NULL}};

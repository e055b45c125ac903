/* GPUs by name: "cuda:0" and so on. What knows CUDA is libtroupe_cuda.so, which is opened when the
 * first of them is asked for; a build without nvcc has none, and runs all the same. It is looked
 * for beside libtroupe.so or the program that libtroupe is part of, in the directory for libraries
 * of the prefix that this is installed under, and where the loader looks. */
#ifndef TRP_NN_CUDA_LOAD_H
#define TRP_NN_CUDA_LOAD_H

#include "nn/device.h"

/* False: no GPU has such a name. */
bool cuda_name_parse(const char *name, uint32_t *number);

/* The GPU of that number, the same for each call. UNAVAILABLE: there is none that can be used, and
 * why. */
TRP_MUST_USE trp_status cuda_find(trp_device **out, uint32_t number);

/* How many the driver has for this process. UNAVAILABLE: nobody can say, and why. */
TRP_MUST_USE trp_status cuda_count(uint32_t *count);

#endif

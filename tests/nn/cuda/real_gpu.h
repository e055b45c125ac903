/* The GPU of this machine, for tests that have to run on one; they are skipped where there is none.
 */
#ifndef TRP_TESTS_REAL_GPU_H
#define TRP_TESTS_REAL_GPU_H

#include <stdlib.h>

#include "core/nvidia.h"
#include "tests/nn/nn_tools.h"

static inline trp_device *real_gpu(void)
{
    trp_device *device;
    nvidia_look_about(getenv);
    if (trp_device_find(&device, "cuda:0") == TRP_OK)
        return device;
    print_message("skipped: no GPU (%s)\n", trp_last_error());
    skip();
    return NULL;
}

#endif

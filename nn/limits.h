/* Bounds of nn/ that are no option, with their arithmetic. */
#ifndef TRP_NN_LIMITS_H
#define TRP_NN_LIMITS_H

#include <stdint.h>

enum {
    /* graph.c: a layer has at most 2^28 weights and 2^20 columns, so products with a
     * batch of 2^32 rows stay below 2^63. 2^28 parameters are 4 GB with gradient and Adam. */
    NET_WIDTH_MAX = 1 << 16,
    NET_INPUT_MAX = 1 << 20, /* graph.c: of an image, or of what is put together */
    NET_KERNEL_MAX = 255,    /* graph.c: a filter has less than 2^32 weights */
    NET_PARAMS_MAX = 1 << 28,
    NET_THREADS_MAX = 256,
    /* host_device.c, net.c: 10 us of memory; below, waking a team takes longer than the work. */
    SHARED_BYTES_MIN = 1 << 18,
    /* engine/checkpoint.h: safetensors' own limit. */
    CHECKPOINT_HEADER_BYTES_MAX = 100 * 1000 * 1000,
};

/* net.c: no machine has it; what is above is a mistake in the options. */
#define NET_ARENA_BYTES_MAX (UINT64_C(1) << 38)

#endif

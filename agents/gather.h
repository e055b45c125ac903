/* Rows of a column in another order, on a queue: minibatches. */
#ifndef TRP_AGENTS_GATHER_H
#define TRP_AGENTS_GATHER_H

#include <stddef.h>
#include <stdint.h>

#include <troupe/device.h>

/* Pointers are the device's; `order` has `count` rows of those in [0, rows). */
struct gather_order {
    const int32_t *order;
    uint32_t count, rows;
};

/* to[i] = from[order[i]], of `bytes` each. NULL from: nothing. */
void gather_on(trp_queue *queue, const struct gather_order *order, const void *from, void *to,
               size_t bytes);

#endif

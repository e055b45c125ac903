/* Rows of floats, each several times one behind the other, on a queue: several actions are looked
 * at at each state. */
#ifndef TRP_AGENTS_TILE_H
#define TRP_AGENTS_TILE_H

#include <troupe/device.h>

struct tile {
    uint32_t rows, times;
    size_t columns;
};

/* `from` is [rows][columns], `to` [rows][times][columns]. Pointers are the device's. */
void tile_on(trp_queue *queue, const struct tile *tile, const float *from, float *to);

#endif

/* Where everything of a network lies: its layers, their tensors in the flat vector, and the slots
 * that activations pass through. */
#ifndef TRP_NN_SHAPE_H
#define TRP_NN_SHAPE_H

#include <troupe/nn.h>

#include "backend.h"

enum {
    ALIGNMENT = 64, /* bytes: a cache line, and a vector of AVX-512 */
    ALIGNMENT_FLOATS = ALIGNMENT / sizeof(float),
    LAYERS_MAX = TRP_NET_HIDDEN_MAX + 2, /* two heads */
    SLOTS_MAX = TRP_NET_HIDDEN_MAX + 2,  /* the input, and the output of each level */
};

/* Reads columns of one slot, writes columns of another. */
struct layer {
    uint32_t inputs, outputs;
    size_t weights, bias; /* offsets in the flat vector: [inputs][outputs], [outputs] */
    uint32_t from, from_column, to, to_column;
    enum activation activation;
};

/* Slot 0 is the caller's input. The last one is the caller's output, or the streams of a dueling
 * head. Gate: the activation that filled it. */
struct net_slot {
    uint32_t width;
    enum activation gate;
};

struct net_shape {
    struct layer layers[LAYERS_MAX]; /* in forward order, which is that of the flat vector */
    struct net_slot slots[SLOTS_MAX];
    uint32_t layer_count, slot_count;
    size_t param_count;
};

/* `spec` is valid. */
struct net_shape shape_of(const trp_net_spec *spec);

static inline size_t round_up(size_t value, size_t step)
{
    return (value + step - 1) / step * step;
}

#endif

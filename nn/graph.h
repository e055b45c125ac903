/* What follows from a spec alone: the shape of every layer's result and where its parameters lie in
 * the flat vector. */
#ifndef TRP_NN_GRAPH_H
#define TRP_NN_GRAPH_H

#include <troupe/nn.h>

#include "backend.h"

enum {
    ALIGNMENT = 64, /* bytes: a cache line, and a vector of AVX-512 */
    ALIGNMENT_FLOATS = ALIGNMENT / sizeof(float),
    LAYER_TENSORS_MAX = 4,
};

/* A row of a layer's result. */
struct value {
    uint32_t shape[TRP_LAYER_RANK_MAX]; /* columns, or height, width and channels */
    uint32_t rank;
    uint32_t columns; /* the product */
    trp_dtype dtype;
};

struct graph {
    struct value values[TRP_NET_LAYERS_MAX];
    size_t params[TRP_NET_LAYERS_MAX][LAYER_TENSORS_MAX]; /* offsets of a layer's tensors */
    uint32_t state[TRP_NET_LAYERS_MAX]; /* columns of state before those of the layer */
    uint32_t state_width;
    /* Of noisy layers: elements of noise before those of the layer, and of weights with noise on
     * them, their biases behind. */
    size_t noise[TRP_NET_LAYERS_MAX], noisy[TRP_NET_LAYERS_MAX];
    size_t noise_count, noisy_count, noisy_most; /* in all; in all, and of the largest layer */
    size_t param_count;
};

/* Numbers of a value, and of each advantage, of a dueling layer. */
uint32_t graph_atoms(const trp_layer *layer);

/* Of a layer with a window, or a recurrent one. */
struct window graph_window(const trp_layer *layer, const struct value *from);
struct cell_shape graph_cell(const trp_layer *layer, const struct value *from);

/* INVALID_ARGUMENT names the layer and what is wrong with it. */
TRP_MUST_USE trp_status graph_build(struct graph *graph, const trp_net_spec *spec);

/* The same for a spec that was checked. */
struct graph graph_of(const trp_net_spec *spec);

/* The tensors of layer `index`, at most LAYER_TENSORS_MAX; returns how many. */
size_t graph_tensors(const trp_net_spec *spec, const struct graph *graph, uint32_t index,
                     trp_net_tensor *tensors);

static inline uint32_t layer_from_count(const trp_layer *layer)
{
    if (layer->kind == TRP_INPUT || layer->kind == TRP_PARAMETER)
        return 0;
    return layer->from_count > 0 ? layer->from_count : 1;
}

static inline bool is_linear(const trp_layer *layer)
{
    return layer->kind == TRP_LINEAR || layer->kind == TRP_NOISY_LINEAR;
}

static inline bool is_cell(const trp_layer *layer)
{
    return layer->kind == TRP_LSTM || layer->kind == TRP_GRU;
}

static inline size_t round_up(size_t value, size_t step)
{
    return (value + step - 1) / step * step;
}

#endif

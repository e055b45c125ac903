/* How networks begin. Numbers are drawn in the order of the flat vector, so that a seed says what a
 * network is. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/alloc.h"
#include "graph.h"

static void fill_uniform(trp_rng *rng, float *values, size_t count, double bound)
{
    for (size_t i = 0; i < count; i++)
        values[i] = (float)((2 * trp_rng_double(rng) - 1) * bound);
}

/* A normal distribution without what is beyond two deviations, whose own deviation is `deviation`:
 * that of a standard one is 0.8796. */
static void fill_normal(trp_rng *rng, float *values, size_t count, double deviation)
{
    for (size_t i = 0; i < count; i++) {
        double value = trp_rng_normal(rng);
        while (fabs(value) > 2)
            value = trp_rng_normal(rng);
        values[i] = (float)(value * deviation / 0.87962566103423978);
    }
}

/* Row `index` of the smaller side gets what is orthogonal to the rows before it: Gram and Schmidt's
 * way, twice, in double. */
static void orthogonalize(double *rows, size_t index, size_t width)
{
    double *row = rows + index * width;
    for (int pass = 0; pass < 2; pass++)
        for (size_t other = 0; other < index; other++) {
            double dot = 0;
            for (size_t i = 0; i < width; i++)
                dot += row[i] * rows[other * width + i];
            for (size_t i = 0; i < width; i++)
                row[i] -= dot * rows[other * width + i];
        }
    double norm = 0;
    for (size_t i = 0; i < width; i++)
        norm += row[i] * row[i];
    for (size_t i = 0; i < width; i++)
        row[i] /= sqrt(norm);
}

/* values[inputs][outputs] */
static void fill_orthogonal(trp_rng *rng, float *values, size_t inputs, size_t outputs, double gain)
{
    bool tall = inputs >= outputs;
    size_t count = tall ? outputs : inputs, width = tall ? inputs : outputs;
    double *rows = xcalloc(count * width, sizeof *rows);
    for (size_t i = 0; i < count * width; i++)
        rows[i] = trp_rng_normal(rng);
    for (size_t i = 0; i < count; i++)
        orthogonalize(rows, i, width);
    for (size_t i = 0; i < inputs; i++)
        for (size_t o = 0; o < outputs; o++)
            values[i * outputs + o] =
                (float)(gain * (tall ? rows[o * width + i] : rows[i * width + o]));
    free(rows);
}

/* One tensor of a layer whose outputs have `inputs` each. */
static void tensor_init(const trp_layer *layer, const trp_net_tensor *tensor, size_t inputs,
                        trp_rng *rng, float *values)
{
    double gain = layer->gain > 0                   ? (double)layer->gain
                  : layer->init == TRP_INIT_UNIFORM ? 3e-3
                                                    : 1;
    bool bias = tensor->rank == 1;
    switch (layer->init) {
    case TRP_INIT_DEFAULT:
        fill_uniform(rng, values, tensor->count, 1 / sqrt((double)inputs));
        break;
    case TRP_INIT_UNIFORM:
        fill_uniform(rng, values, tensor->count, gain);
        break;
    case TRP_INIT_ORTHOGONAL:
        if (!bias)
            fill_orthogonal(rng, values, inputs, tensor->count / inputs, gain);
        break;
    case TRP_INIT_VARIANCE:
        if (!bias)
            fill_normal(rng, values, tensor->count, sqrt(gain / (double)inputs));
        break;
    }
}

/* Fortunato et al. 2018, "Noisy Networks for Exploration": factorised noise. */
static void sigma_init(const trp_layer *layer, size_t count, size_t inputs, float *values)
{
    double sigma = layer->sigma > 0 ? (double)layer->sigma : 0.5;
    for (size_t i = 0; i < count; i++)
        values[i] = (float)(sigma / sqrt((double)inputs));
}

/* The bias of gates i, f, g, o: what f adds to is remembered. */
static void remember_init(const trp_layer *layer, float *bias)
{
    for (uint32_t i = 0; i < layer->size; i++)
        bias[layer->size + i] += layer->value;
}

enum { LSTM_BIAS = 2 }; /* bias_ih_l0 among a cell's tensors */

static void layer_init(const trp_layer *layer, const trp_net_tensor *tensors, size_t index,
                       trp_rng *rng, float *values)
{
    const trp_net_tensor *tensor = &tensors[index];
    const trp_net_tensor *weights = tensor->rank > 1 ? tensor : &tensors[0];
    size_t inputs = weights->count / weights->shape[0];
    if (layer->kind == TRP_PARAMETER) {
        for (size_t i = 0; i < tensor->count; i++)
            values[i] = layer->value;
    } else if (layer->kind == TRP_LAYER_NORM) {
        for (size_t i = 0; i < tensor->count; i++)
            values[i] = index == 0;
    } else if (layer->kind == TRP_NOISY_LINEAR && index % 2 == 1) {
        sigma_init(layer, tensor->count, inputs, values);
    } else if (layer->kind == TRP_EMBEDDING && layer->init == TRP_INIT_DEFAULT) {
        for (size_t i = 0; i < tensor->count; i++)
            values[i] = (float)trp_rng_normal(rng);
    } else {
        bool cell = is_cell(layer) && layer->init == TRP_INIT_DEFAULT;
        tensor_init(layer, tensor, cell ? layer->size : inputs, rng, values);
        if (layer->kind == TRP_LSTM && index == LSTM_BIAS)
            remember_init(layer, values);
    }
}

void trp_net_init(const trp_net_spec *spec, trp_rng *rng, float *params)
{
    struct graph graph = graph_of(spec);
    memset(params, 0, graph.param_count * sizeof *params);
    for (uint32_t i = 0; i < spec->layer_count; i++) {
        trp_net_tensor tensors[LAYER_TENSORS_MAX];
        size_t count = graph_tensors(spec, &graph, i, tensors);
        for (size_t j = 0; j < count; j++)
            layer_init(&spec->layers[i], tensors, j, rng, params + tensors[j].offset);
    }
}

/* A spec becomes layers and slots once; everything else walks those tables and knows nothing about
 * dueling heads. */
#include "shape.h"

#include <math.h>
#include <string.h>

#include "limits.h"

static uint32_t hidden_count(const trp_net_spec *spec)
{
    uint32_t count = 0;
    while (count < TRP_NET_HIDDEN_MAX && spec->hidden[count] > 0)
        count++;
    return count;
}

static trp_status width_check(const char *what, uint32_t width)
{
    if (width == 0 || width > NET_WIDTH_MAX)
        return trp_fail(TRP_INVALID_ARGUMENT, "network %s is %u; it must be 1 to %d", what, width,
                        NET_WIDTH_MAX);
    return TRP_OK;
}

trp_status trp_net_spec_check(const trp_net_spec *spec)
{
    TRP_TRY(width_check("inputs", spec->inputs));
    TRP_TRY(width_check("outputs", spec->outputs));
    for (uint32_t i = 0; i < hidden_count(spec); i++)
        TRP_TRY(width_check("hidden size", spec->hidden[i]));
    for (uint32_t i = hidden_count(spec); i < TRP_NET_HIDDEN_MAX; i++)
        if (spec->hidden[i] != 0)
            return trp_fail(TRP_INVALID_ARGUMENT,
                            "network hidden size %u follows one of 0, which ends the list",
                            spec->hidden[i]);
    if (spec->activation != TRP_RELU && spec->activation != TRP_TANH)
        return trp_fail(TRP_INVALID_ARGUMENT, "network activation %d is unknown",
                        (int)spec->activation);
    size_t count = shape_of(spec).param_count;
    if (count > NET_PARAMS_MAX)
        return trp_fail(TRP_INVALID_ARGUMENT, "network has %zu parameters; at most %d are possible",
                        count, NET_PARAMS_MAX);
    return TRP_OK;
}

static void shape_add(struct net_shape *shape, struct layer layer)
{
    layer.weights = shape->param_count;
    layer.bias = layer.weights + round_up((size_t)layer.inputs * layer.outputs, ALIGNMENT_FLOATS);
    shape->param_count = layer.bias + round_up(layer.outputs, ALIGNMENT_FLOATS);
    shape->layers[shape->layer_count++] = layer;
}

/* The value stream reads the first half of the last level, the advantages the second. */
static void shape_add_streams(struct net_shape *shape, uint32_t inputs, uint32_t outputs,
                              bool halves)
{
    uint32_t from = shape->slot_count - 1;
    shape->slots[shape->slot_count++] = (struct net_slot){.width = 1 + outputs};
    shape_add(shape, (struct layer){
                         .inputs = inputs,
                         .outputs = 1,
                         .from = from,
                         .to = from + 1,
                     });
    shape_add(shape, (struct layer){
                         .inputs = inputs,
                         .outputs = outputs,
                         .from = from,
                         .from_column = halves ? inputs : 0,
                         .to = from + 1,
                         .to_column = 1,
                     });
}

struct net_shape shape_of(const trp_net_spec *spec)
{
    struct net_shape shape = {.slots = {{.width = spec->inputs}}, .slot_count = 1};
    enum activation activation = spec->activation == TRP_TANH ? ACTIVATION_TANH : ACTIVATION_RELU;
    uint32_t levels = hidden_count(spec), inputs = spec->inputs;
    for (uint32_t i = 0; i < levels; i++) {
        uint32_t streams = spec->dueling && i + 1 == levels ? 2 : 1;
        uint32_t width = spec->hidden[i] * streams;
        shape_add(&shape, (struct layer){
                              .inputs = inputs,
                              .outputs = width,
                              .from = i,
                              .to = i + 1,
                              .activation = activation,
                          });
        shape.slots[shape.slot_count++] = (struct net_slot){.width = width, .gate = activation};
        inputs = spec->hidden[i];
    }
    if (spec->dueling) {
        shape_add_streams(&shape, inputs, spec->outputs, levels > 0);
        return shape;
    }
    shape_add(&shape, (struct layer){
                          .inputs = inputs,
                          .outputs = spec->outputs,
                          .from = levels,
                          .to = levels + 1,
                      });
    shape.slots[shape.slot_count++] = (struct net_slot){.width = spec->outputs};
    return shape;
}

size_t trp_net_param_count(const trp_net_spec *spec)
{
    return shape_of(spec).param_count;
}

double trp_net_step_flops(const trp_net_spec *spec, uint32_t rows)
{
    struct net_shape shape = shape_of(spec);
    double flops = 0;
    for (uint32_t i = 0; i < shape.layer_count; i++) {
        const struct layer *layer = &shape.layers[i];
        double products = layer->from == 0 ? 2 : 3; /* the input has no gradient */
        flops += products * 2 * rows * layer->inputs * layer->outputs;
    }
    return flops;
}

void trp_net_init(const trp_net_spec *spec, trp_rng *rng, float *params)
{
    struct net_shape shape = shape_of(spec);
    memset(params, 0, shape.param_count * sizeof *params);
    for (uint32_t i = 0; i < shape.layer_count; i++) {
        const struct layer *layer = &shape.layers[i];
        double bound = 1 / sqrt(layer->inputs);
        size_t weights = (size_t)layer->inputs * layer->outputs;
        for (size_t j = 0; j < weights; j++)
            params[layer->weights + j] = (float)((2 * trp_rng_double(rng) - 1) * bound);
        for (size_t j = 0; j < layer->outputs; j++)
            params[layer->bias + j] = (float)((2 * trp_rng_double(rng) - 1) * bound);
    }
}

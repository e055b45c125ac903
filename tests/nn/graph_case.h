/* Random graphs of layers, and one of them at work on any backend. */
#ifndef TRP_TESTS_GRAPH_CASE_H
#define TRP_TESTS_GRAPH_CASE_H

#include <stdio.h>

#include "nn_tools.h"

enum { ROWS_MAX = 6, GRAPHS = 40 };

/* ---- random graphs -------------------------------------------------------------------------- */

/* Layers so far whose rows have the shape of `index`; picks one of them. */
static uint32_t same_shape(const trp_net_spec *spec, const struct graph *graph, uint32_t index,
                           trp_rng *rng)
{
    uint32_t list[TRP_NET_LAYERS_MAX], count = 0;
    for (uint32_t i = 0; i < spec->layer_count; i++)
        if (graph->values[i].dtype != TRP_INT32 &&
            graph->values[i].rank == graph->values[index].rank &&
            memcmp(graph->values[i].shape, graph->values[index].shape,
                   sizeof graph->values[i].shape) == 0)
            list[count++] = i;
    return list[trp_rng_below(rng, count)];
}

static inline trp_layer random_linear(const trp_net_spec *spec, trp_rng *rng, uint32_t from)
{
    trp_layer layer = {.kind = TRP_LINEAR,
                       .from = {from},
                       .size = 1 + (uint32_t)trp_rng_below(rng, 5),
                       .activation = (trp_activation)trp_rng_below(rng, TRP_GELU_TANH + 1)};
    if (layer.activation == TRP_RELU || layer.activation == TRP_ELU)
        layer.activation = TRP_TANH; /* finite differences do not like corners */
    if (trp_rng_below(rng, 3) == 0)
        layer.kind = TRP_NOISY_LINEAR;
    snprintf(layer.name, sizeof layer.name, "l%u", spec->layer_count);
    return layer;
}

static inline trp_layer random_window(const trp_net_spec *spec, trp_rng *rng, uint32_t from)
{
    static const trp_layer_kind kinds[] = {TRP_CONV2D, TRP_MAX_POOL, TRP_MEAN_POOL};
    trp_layer layer = {.kind = kinds[trp_rng_below(rng, 3)],
                       .from = {from},
                       .kernel = 1 + (uint32_t)trp_rng_below(rng, 3),
                       .stride = (uint32_t)trp_rng_below(rng, 3)};
    layer.padding = (uint32_t)trp_rng_below(rng, layer.kernel);
    if (layer.kind != TRP_CONV2D)
        return layer;
    layer.size = 1 + (uint32_t)trp_rng_below(rng, 3);
    layer.activation = trp_rng_below(rng, 2) ? TRP_TANH : TRP_SILU;
    snprintf(layer.name, sizeof layer.name, "l%u", spec->layer_count);
    return layer;
}

static inline trp_layer random_kept(const trp_net_spec *spec, trp_rng *rng, uint32_t from)
{
    static const trp_layer_kind kinds[] = {TRP_LAYER_NORM, TRP_LSTM, TRP_GRU};
    trp_layer layer = {.kind = kinds[trp_rng_below(rng, 3)], .from = {from}};
    if (layer.kind != TRP_LAYER_NORM)
        layer.size = 1 + (uint32_t)trp_rng_below(rng, 4);
    snprintf(layer.name, sizeof layer.name, "l%u", spec->layer_count);
    return layer;
}

static inline trp_layer random_parameter(const trp_net_spec *spec, trp_rng *rng)
{
    trp_layer layer = {.kind = TRP_PARAMETER, .size = 1 + (uint32_t)trp_rng_below(rng, 4)};
    snprintf(layer.name, sizeof layer.name, "l%u", spec->layer_count);
    return layer;
}

/* Any layer but tokens. */
static uint32_t random_from(const struct graph *graph, trp_rng *rng, uint32_t count)
{
    uint32_t from;
    do
        from = (uint32_t)trp_rng_below(rng, count);
    while (graph->values[from].dtype == TRP_INT32);
    return from;
}

static inline trp_layer random_plain(const trp_net_spec *spec, const struct graph *graph,
                                     trp_rng *rng, uint32_t from)
{
    uint32_t columns = graph->values[from].columns;
    trp_layer layer = {.from = {from}};
    switch (trp_rng_below(rng, 5)) {
    case 0:
        layer.kind = TRP_ACTIVATION;
        layer.activation = trp_rng_below(rng, 2) ? TRP_SILU : TRP_SIGMOID;
        break;
    case 1:
        layer.kind = TRP_CONCAT;
        layer.from_count = 1 + (uint32_t)trp_rng_below(rng, 3);
        for (uint32_t i = 1; i < layer.from_count; i++)
            layer.from[i] = random_from(graph, rng, spec->layer_count);
        break;
    case 2:
        layer.kind = TRP_SLICE;
        layer.first = (uint32_t)trp_rng_below(rng, columns);
        layer.size = 1 + (uint32_t)trp_rng_below(rng, columns - layer.first);
        break;
    case 3:
        layer.kind = TRP_ADD;
        layer.from_count = 2;
        layer.from[1] = same_shape(spec, graph, from, rng);
        break;
    default:
        layer.kind = columns > 1 ? TRP_DUELING : TRP_ACTIVATION;
        layer.activation = columns > 1 ? TRP_NO_ACTIVATION : TRP_TANH;
        if (columns > 3 && columns % 2 == 0)
            layer.size = 2;
    }
    return layer;
}

/* Columns, an image, or tokens with their embedding. Returns how many layers can be no output. */
static uint32_t random_inputs(trp_net_spec *spec, trp_rng *rng)
{
    uint32_t inputs = 1 + (uint32_t)trp_rng_below(rng, 3);
    for (uint32_t i = 0; i < inputs; i++) {
        trp_layer layer = {.kind = TRP_INPUT,
                           .shape = {1 + (uint32_t)trp_rng_below(rng, 4)},
                           .dtype = i > 0 && trp_rng_below(rng, 2) ? TRP_UINT8 : TRP_FLOAT32};
        if (trp_rng_below(rng, 2)) {
            layer.shape[0] += 2;
            layer.shape[1] = 3 + (uint32_t)trp_rng_below(rng, 3);
            layer.shape[2] = 1 + (uint32_t)trp_rng_below(rng, 2);
        }
        trp_net_add(spec, layer);
    }
    if (trp_rng_below(rng, 3) > 0)
        return inputs;
    trp_layer table = {.kind = TRP_EMBEDDING, .name = "table", .size = 2, .vocabulary = 3};
    table.from[0] =
        trp_net_add(spec, (trp_layer){.kind = TRP_INPUT, .shape = {2}, .dtype = TRP_INT32});
    trp_net_add(spec, table);
    return inputs + 2;
}

/* One more layer upon `from`. */
static inline trp_layer random_layer(const trp_net_spec *spec, const struct graph *graph,
                                     trp_rng *rng, uint32_t from)
{
    const struct value *value = &graph->values[from];
    uint64_t dice = trp_rng_below(rng, 6);
    if (trp_rng_below(rng, 8) == 0)
        return random_parameter(spec, rng);
    if (dice < 2 && value->rank == 3 && value->shape[0] > 2 && value->shape[1] > 2)
        return random_window(spec, rng, from);
    if (dice == 2 && value->columns > 2)
        return random_kept(spec, rng, from);
    return dice < 4 ? random_linear(spec, rng, from) : random_plain(spec, graph, rng, from);
}

static inline trp_net_spec random_spec(trp_rng *rng)
{
    trp_net_spec spec;
    memset(&spec, 0, sizeof spec);
    uint32_t inputs = random_inputs(&spec, rng);
    uint32_t layers = inputs + 2 + (uint32_t)trp_rng_below(rng, 12);
    while (spec.layer_count < layers) {
        spec.output_count = 1;
        spec.outputs[0] = spec.layer_count - 1;
        struct graph graph;
        if (graph_build(&graph, &spec) != TRP_OK) /* an output is an input: shapes are there */
            if (!strstr(trp_last_error(), "is an input"))
                fail_msg("%s", trp_last_error());
        uint32_t from = random_from(&graph, rng, spec.layer_count);
        trp_net_add(&spec, random_layer(&spec, &graph, rng, from));
    }
    spec.output_count = 1 + (uint32_t)trp_rng_below(rng, 3);
    for (uint32_t i = 0; i < spec.output_count; i++)
        spec.outputs[i] =
            i == 0 ? layers - 1 : inputs + (uint32_t)trp_rng_below(rng, layers - inputs);
    return spec;
}

/* ---- one graph at work ----------------------------------------------------------------------- */

/* Values of either width: `element` bytes each. */
struct graph_case {
    trp_net_spec spec;
    const struct backend *backend;
    trp_net *net;
    uint32_t rows;
    size_t count;
    struct pass pass;
    void *params, *grads;
    void *inputs[TRP_NET_INPUTS_MAX], *input_grads[TRP_NET_INPUTS_MAX];
    void *outputs[TRP_NET_OUTPUTS_MAX], *output_grads[TRP_NET_OUTPUTS_MAX];
    size_t state_count; /* of these four */
    void *state, *end_state, *state_grad, *end_state_grad;
    uint8_t resets[64];
};

static inline void *random_tokens(trp_rng *rng, size_t count)
{
    int32_t *tokens = xmalloc(count * sizeof *tokens);
    for (size_t i = 0; i < count; i++)
        tokens[i] = (int32_t)trp_rng_below(rng, 4); /* 3 is in no table */
    return tokens;
}

static inline void *random_values(trp_rng *rng, size_t element, size_t count, double scale)
{
    char *values = xmalloc(count * element);
    for (size_t i = 0; i < count; i++) {
        double value = scale * trp_rng_normal(rng);
        if (element == 1)
            ((uint8_t *)values)[i] = (uint8_t)trp_rng_below(rng, 256);
        else if (element == sizeof(float))
            ((float *)values)[i] = (float)value;
        else
            ((double *)values)[i] = (double)(float)value;
    }
    return values;
}

static uint32_t input_count(const trp_net_spec *spec)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < spec->layer_count; i++)
        count += spec->layers[i].kind == TRP_INPUT;
    return count;
}

static inline trp_dtype input_dtype(const trp_net_spec *spec, uint32_t index)
{
    for (uint32_t i = 0; i < spec->layer_count; i++)
        if (spec->layers[i].kind == TRP_INPUT && index-- == 0 && spec->layers[i].dtype)
            return spec->layers[i].dtype;
    return TRP_FLOAT32;
}

static inline bool has_grad(const trp_net_spec *spec, uint32_t index)
{
    return input_dtype(spec, index) == TRP_FLOAT32;
}

/* Rows are three steps of some sequences, if they can be. */
static inline void graph_case_state(struct graph_case *c, trp_rng *rng, size_t element)
{
    c->pass.steps = c->rows % 3 == 0 ? 3 : 1;
    c->state_count = (size_t)trp_net_state_width(&c->spec) * (c->rows / c->pass.steps);
    void **states[] = {&c->state, &c->end_state, &c->state_grad, &c->end_state_grad};
    for (size_t i = 0; i < 4; i++)
        *states[i] = random_values(rng, element, c->state_count, 1);
    assert_in_range(c->rows, 1, sizeof c->resets / sizeof *c->resets);
    for (size_t i = 0; i < c->rows; i++)
        c->resets[i] = i > 0 && trp_rng_below(rng, 4) == 0;
    c->pass.resets = c->resets;
    c->pass.state = c->state;
    c->pass.end_state = c->end_state;
    c->pass.state_grad = c->state_grad;
    c->pass.end_state_grad = c->end_state_grad;
}

/* The same numbers whatever the backend. */
static inline void graph_case_init(struct graph_case *c, const trp_net_spec *spec,
                                   const struct backend *backend, uint32_t rows, uint32_t threads)
{
    size_t element = backend->element_bytes;
    trp_rng rng;
    trp_rng_init(&rng, 17, rows);
    *c = (struct graph_case){.spec = *spec, .backend = backend, .rows = rows};
    OR_FAIL(net_create(&c->net, &(trp_net_options){.spec = spec, .batch = rows, .threads = threads},
                       backend));
    c->count = trp_net_param_count(spec);
    c->params = random_values(&rng, element, c->count, 0.7);
    c->grads = xcalloc(c->count, element);
    for (uint32_t i = 0; i < input_count(spec); i++) {
        size_t count = (size_t)rows * trp_net_input_width(spec, i);
        c->inputs[i] = input_dtype(spec, i) == TRP_INT32
                           ? random_tokens(&rng, count)
                           : random_values(&rng, has_grad(spec, i) ? element : 1, count, 1);
        c->input_grads[i] = random_values(&rng, element, count, 1);
        c->pass.external[external_index(PLACE_INPUT, i)] = c->inputs[i];
        if (has_grad(spec, i))
            c->pass.external[external_index(PLACE_INPUT_GRAD, i)] = c->input_grads[i];
    }
    for (uint32_t i = 0; i < spec->output_count; i++) {
        size_t count = (size_t)rows * trp_net_output_width(spec, i);
        c->outputs[i] = xcalloc(count, element);
        c->output_grads[i] = random_values(&rng, element, count, 1);
        c->pass.external[external_index(PLACE_OUTPUT, i)] = c->outputs[i];
        c->pass.external[external_index(PLACE_OUTPUT_GRAD, i)] = c->output_grads[i];
    }
    graph_case_state(c, &rng, element);
    c->pass.params = c->params;
    c->pass.grads = c->grads;
    c->pass.wants_inputs = true;
    poison(c->net);
    trp_net_resample(c->net, NULL, rows > 2 ? &rng : NULL);
    for (uint32_t i = 1; i < threads; i++) /* as planned: zero between tensors */
        memset(host_net(c->net)->parts[i].grads, 0, c->count * element);
}

static inline void graph_case_cleanup(struct graph_case *c)
{
    trp_net_destroy(c->net);
    free(c->params);
    free(c->grads);
    free(c->state);
    free(c->end_state);
    free(c->state_grad);
    free(c->end_state_grad);
    for (size_t i = 0; i < TRP_NET_INPUTS_MAX; i++) {
        free(c->inputs[i]);
        free(c->input_grads[i]);
    }
    for (size_t i = 0; i < TRP_NET_OUTPUTS_MAX; i++) {
        free(c->outputs[i]);
        free(c->output_grads[i]);
    }
}

/* Everything that a case wrote. */
static inline void assert_same_results(const struct graph_case *got, const struct graph_case *want,
                                       double tolerance, bool exact)
{
    const char *name = got->backend->name;
    const trp_net_spec *spec = &got->spec;
    assert_close(got->grads, want->grads, got->count, tolerance, name);
    assert_close(got->end_state, want->end_state, got->state_count, tolerance, name);
    assert_close(got->state_grad, want->state_grad, got->state_count, tolerance, name);
    if (exact)
        assert_memory_equal(got->grads, want->grads, got->count * sizeof(float));
    for (uint32_t i = 0; i < spec->output_count; i++)
        assert_close(got->outputs[i], want->outputs[i],
                     (size_t)got->rows * trp_net_output_width(spec, i), tolerance, name);
    for (uint32_t i = 0; i < input_count(spec); i++)
        if (has_grad(spec, i))
            assert_close(got->input_grads[i], want->input_grads[i],
                         (size_t)got->rows * trp_net_input_width(spec, i), tolerance, name);
}

static inline void graph_case_run(struct graph_case *c, const trp_net_spec *spec,
                                  const struct backend *backend, uint32_t rows, uint32_t threads)
{
    graph_case_init(c, spec, backend, rows, threads);
    net_forward(c->net, &c->pass, rows);
    net_backward(c->net, &c->pass);
}

#endif

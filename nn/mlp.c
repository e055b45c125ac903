/* The usual networks, written as anybody would write one. */
#include <troupe/nn.h>

#include <stdio.h>
#include <string.h>

static trp_layer linear(uint32_t from, uint32_t size, trp_activation activation, const char *name)
{
    trp_layer layer = {.kind = TRP_LINEAR, .from = {from}, .size = size, .activation = activation};
    snprintf(layer.name, sizeof layer.name, "%s", name);
    return layer;
}

/* One of 0 in between is there, too: it will be refused. */
static uint32_t hidden_count(const uint32_t hidden[TRP_NET_HIDDEN_MAX])
{
    uint32_t count = TRP_NET_HIDDEN_MAX;
    while (count > 0 && hidden[count - 1] == 0)
        count--;
    return count;
}

/* What a network says at its end. */
struct head {
    uint32_t outputs, atoms;
};

/* A value and an advantage stream, each of which reads its half of the last hidden layer. */
static uint32_t add_dueling(trp_net_spec *spec, uint32_t from, uint32_t half, struct head head)
{
    uint32_t atoms = head.atoms > 0 ? head.atoms : 1;
    uint32_t value = from, advantage = from;
    if (half > 0) {
        value = trp_net_add(spec, (trp_layer){.kind = TRP_SLICE, .from = {from}, .size = half});
        advantage = trp_net_add(
            spec, (trp_layer){.kind = TRP_SLICE, .from = {from}, .first = half, .size = half});
    }
    value = trp_net_add(spec, linear(value, atoms, TRP_NO_ACTIVATION, "value"));
    advantage = trp_net_add(spec, linear(advantage, head.outputs, TRP_NO_ACTIVATION, "advantage"));
    uint32_t streams = trp_net_add(
        spec, (trp_layer){.kind = TRP_CONCAT, .from = {value, advantage}, .from_count = 2});
    return trp_net_add(spec,
                       (trp_layer){.kind = TRP_DUELING, .from = {streams}, .size = head.atoms});
}

static uint32_t add_core(trp_net_spec *spec, uint32_t from, trp_core core, uint32_t size,
                         float value)
{
    if (core == TRP_NO_CORE)
        return from;
    return trp_net_add(spec, (trp_layer){.kind = core == TRP_CORE_LSTM ? TRP_LSTM : TRP_GRU,
                                         .name = "core",
                                         .from = {from},
                                         .size = size > 0 ? size : 256,
                                         .value = core == TRP_CORE_LSTM ? value : 0});
}

static void make_noisy(trp_net_spec *spec)
{
    for (uint32_t i = 0; i < spec->layer_count && i < TRP_NET_LAYERS_MAX; i++)
        if (spec->layers[i].kind == TRP_LINEAR)
            spec->layers[i].kind = TRP_NOISY_LINEAR;
}

trp_net_spec trp_mlp(const trp_mlp_options *options)
{
    trp_net_spec spec;
    memset(&spec, 0, sizeof spec);
    uint32_t levels = hidden_count(options->hidden);
    trp_activation activation = options->activation ? options->activation : TRP_RELU;
    uint32_t last = trp_net_add(&spec, (trp_layer){.kind = TRP_INPUT,
                                                   .name = "observation",
                                                   .dtype = options->dtype,
                                                   .shape = {options->inputs}});
    for (uint32_t i = 0; i < levels; i++) {
        char name[TRP_LAYER_NAME_BYTES];
        snprintf(name, sizeof name, "body.%u", i);
        uint32_t streams = options->dueling && !options->core && i + 1 == levels ? 2 : 1;
        last = trp_net_add(&spec, linear(last, streams * options->hidden[i], activation, name));
    }
    last = add_core(&spec, last, options->core, options->core_size, options->core_value);
    bool halves = levels > 0 && !options->core;
    if (options->dueling)
        last = add_dueling(&spec, last, halves ? options->hidden[levels - 1] : 0,
                           (struct head){options->outputs, options->atoms});
    else
        last = trp_net_add(&spec, linear(last, options->outputs, TRP_NO_ACTIVATION, "head"));
    trp_net_output(&spec, last);
    if (options->noisy)
        make_noisy(&spec);
    return spec;
}

void trp_net_add_gaussian(trp_net_spec *spec, uint32_t from, uint32_t size, bool shared)
{
    trp_net_output(spec, trp_net_add(spec, linear(from, size, TRP_NO_ACTIVATION, "mean")));
    trp_layer log_std = linear(from, size, TRP_NO_ACTIVATION, "log_std");
    if (shared)
        log_std = (trp_layer){.kind = TRP_PARAMETER, .name = "log_std", .size = size};
    trp_net_output(spec, trp_net_add(spec, log_std));
}

static trp_layer conv(uint32_t from, uint32_t filters, uint32_t kernel, uint32_t stride,
                      uint32_t padding)
{
    return (trp_layer){.kind = TRP_CONV2D,
                       .from = {from},
                       .size = filters,
                       .kernel = kernel,
                       .stride = stride,
                       .padding = padding};
}

static uint32_t add_image(trp_net_spec *spec, const trp_cnn_options *options)
{
    return trp_net_add(spec,
                       (trp_layer){.kind = TRP_INPUT,
                                   .name = "observation",
                                   .dtype = TRP_UINT8,
                                   .shape = {options->height, options->width, options->channels}});
}

/* The linear layer `name` of `size` columns, the core, and what is said of them. */
static void add_heads(trp_net_spec *spec, uint32_t from, const trp_cnn_options *options,
                      uint32_t size, const char *name)
{
    bool halves = options->dueling && !options->core;
    from = trp_net_add(spec, linear(from, halves ? 2 * size : size, TRP_RELU, name));
    from = add_core(spec, from, options->core, options->core_size, options->core_value);
    if (options->dueling)
        trp_net_output(spec, add_dueling(spec, from, halves ? size : 0,
                                         (struct head){options->outputs, options->atoms}));
    else
        trp_net_output(
            spec, trp_net_add(spec, linear(from, options->outputs, TRP_NO_ACTIVATION, "head")));
    if (options->value)
        trp_net_output(spec, trp_net_add(spec, linear(from, 1, TRP_NO_ACTIVATION, "value")));
    if (options->noisy)
        make_noisy(spec);
}

trp_net_spec trp_nature_cnn(const trp_cnn_options *options)
{
    static const uint32_t windows[3][3] = {{32, 8, 4}, {64, 4, 2}, {64, 3, 1}};
    trp_net_spec spec;
    memset(&spec, 0, sizeof spec);
    uint32_t last = add_image(&spec, options);
    for (uint32_t i = 0; i < 3; i++) {
        trp_layer layer = conv(last, windows[i][0], windows[i][1], windows[i][2], 0);
        layer.activation = TRP_RELU;
        snprintf(layer.name, sizeof layer.name, "body.%u", i);
        last = trp_net_add(&spec, layer);
    }
    add_heads(&spec, last, options, 512, "body.3");
    return spec;
}

/* x + conv(relu(conv(relu(x)))) */
static uint32_t add_residual(trp_net_spec *spec, uint32_t x, uint32_t filters, uint32_t section,
                             uint32_t block)
{
    uint32_t last =
        trp_net_add(spec, (trp_layer){.kind = TRP_ACTIVATION, .from = {x}, .activation = TRP_RELU});
    for (uint32_t i = 0; i < 2; i++) {
        trp_layer layer = conv(last, filters, 3, 1, 1);
        layer.activation = i == 0 ? TRP_RELU : TRP_NO_ACTIVATION;
        snprintf(layer.name, sizeof layer.name, "section.%u.%u.%u", section, block, i);
        last = trp_net_add(spec, layer);
    }
    return trp_net_add(spec, (trp_layer){.kind = TRP_ADD, .from = {x, last}, .from_count = 2});
}

trp_net_spec trp_impala_resnet(const trp_cnn_options *options)
{
    static const uint32_t filters[3] = {16, 32, 32};
    trp_net_spec spec;
    memset(&spec, 0, sizeof spec);
    uint32_t last = add_image(&spec, options);
    for (uint32_t i = 0; i < 3; i++) {
        trp_layer layer = conv(last, filters[i], 3, 1, 1);
        snprintf(layer.name, sizeof layer.name, "section.%u", i);
        last = trp_net_add(&spec, layer);
        last = trp_net_add(
            &spec,
            (trp_layer){
                .kind = TRP_MAX_POOL, .from = {last}, .kernel = 3, .stride = 2, .padding = 1});
        for (uint32_t block = 0; block < 2; block++)
            last = add_residual(&spec, last, filters[i], i, block);
    }
    last = trp_net_add(&spec,
                       (trp_layer){.kind = TRP_ACTIVATION, .from = {last}, .activation = TRP_RELU});
    add_heads(&spec, last, options, 256, "body");
    return spec;
}

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

/* A value and an advantage stream, each of which reads its half of the last hidden layer. */
static uint32_t add_dueling(trp_net_spec *spec, uint32_t from, uint32_t half, uint32_t outputs)
{
    uint32_t value = from, advantage = from;
    if (half > 0) {
        value = trp_net_add(spec, (trp_layer){.kind = TRP_SLICE, .from = {from}, .size = half});
        advantage = trp_net_add(
            spec, (trp_layer){.kind = TRP_SLICE, .from = {from}, .first = half, .size = half});
    }
    value = trp_net_add(spec, linear(value, 1, TRP_NO_ACTIVATION, "value"));
    advantage = trp_net_add(spec, linear(advantage, outputs, TRP_NO_ACTIVATION, "advantage"));
    uint32_t streams = trp_net_add(
        spec, (trp_layer){.kind = TRP_CONCAT, .from = {value, advantage}, .from_count = 2});
    return trp_net_add(spec, (trp_layer){.kind = TRP_DUELING, .from = {streams}});
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
        uint32_t streams = options->dueling && i + 1 == levels ? 2 : 1;
        last = trp_net_add(&spec, linear(last, streams * options->hidden[i], activation, name));
    }
    if (options->dueling)
        last = add_dueling(&spec, last, levels > 0 ? options->hidden[levels - 1] : 0,
                           options->outputs);
    else
        last = trp_net_add(&spec, linear(last, options->outputs, TRP_NO_ACTIVATION, "head"));
    trp_net_output(&spec, last);
    return spec;
}

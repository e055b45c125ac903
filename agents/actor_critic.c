#include "actor_critic.h"

#include <string.h>

trp_status actor_critic_check(const struct actor_critic *options, const trp_env_spec *env)
{
    TRP_TRY(action_space_check(options->who, env));
    TRP_TRY(torso_check(options->who, options->network, env));
    trp_net_spec spec = actor_critic_spec(options, env);
    return torso_check_net(options->who, options->network, env, &spec);
}

/* All of the network so far; sqrt 2 is the gain that keeps the size of what layers with
 * activations say. */
static void initialize(trp_net_spec *spec, trp_initializer init)
{
    for (uint32_t i = 0; i < spec->layer_count && i < TRP_NET_LAYERS_MAX; i++) {
        trp_layer *layer = &spec->layers[i];
        if (layer->kind != TRP_LINEAR && layer->kind != TRP_CONV2D)
            continue;
        layer->init = init;
        layer->gain = init == TRP_INIT_ORTHOGONAL ? 1.41421356F : 0;
    }
}

static trp_layer head(const struct actor_critic *options, uint32_t from, const char *name,
                      uint32_t size, float gain)
{
    trp_layer layer = {.kind = TRP_LINEAR, .from = {from}, .size = size, .init = options->init};
    memcpy(layer.name, name, strlen(name));
    if (options->init == TRP_INIT_ORTHOGONAL)
        layer.gain = gain;
    return layer;
}

trp_net_spec actor_critic_spec(const struct actor_critic *options, const trp_env_spec *env)
{
    struct action_space space = action_space(env);
    trp_net_spec spec;
    memset(&spec, 0, sizeof spec);
    uint32_t last = torso_begin(&spec, options->network, env, &options->hidden), value = last;
    if (options->core)
        last = value = trp_net_add(
            &spec, (trp_layer){.kind = options->core == TRP_CORE_LSTM ? TRP_LSTM : TRP_GRU,
                               .name = "core",
                               .from = {last},
                               .size = options->core_size});
    else if (options->separate && torso_kind(options->network, env) == TRP_TORSO_MLP)
        value = torso_add_hidden(&spec, 0, &options->hidden, "value");
    initialize(&spec, options->init);
    const char *name = space.continuous ? "mean" : "policy";
    trp_net_output(&spec, trp_net_add(&spec, head(options, last, name, space.size, 0.01F)));
    if (space.continuous)
        trp_net_output(&spec, trp_net_add(&spec, (trp_layer){.kind = TRP_PARAMETER,
                                                             .name = "log_std",
                                                             .size = space.size}));
    trp_net_output(&spec, trp_net_add(&spec, head(options, value, "value", 1, 1)));
    return spec;
}

void actor_critic_outputs_of(const struct actor_critic_outputs *outputs,
                             float *array[TRP_NET_OUTPUTS_MAX])
{
    uint32_t count = 0;
    array[count++] = outputs->says;
    if (outputs->log_std)
        array[count++] = outputs->log_std;
    array[count] = outputs->values;
}

void actor_critic_extras(const struct actor_critic *options, const trp_env_spec *env,
                         trp_columns *extras)
{
    trp_columns_add(extras, AC_LOG_PROB, &(trp_tensor_spec){.dtype = TRP_FLOAT32});
    if (env->masked)
        trp_columns_add(
            extras, AC_MASK,
            &(trp_tensor_spec){.dtype = TRP_BOOL, .rank = 1, .shape = {env->action_count}});
    if (env->action_kind == TRP_ACTION_BOX)
        trp_columns_add(
            extras, AC_SAMPLE,
            &(trp_tensor_spec){.dtype = TRP_FLOAT32, .rank = 1, .shape = {env->action_count}});
    if (!options->core)
        return;
    trp_net_spec spec = actor_critic_spec(options, env);
    trp_columns_add(extras, AC_CORE,
                    &(trp_tensor_spec){.dtype = TRP_FLOAT32,
                                       .rank = 1,
                                       .shape = {(int64_t)trp_net_state_width(&spec)}});
}

#include "control.h"

#include <string.h>

#include "box.h"

trp_status control_check(const struct control *control, const trp_env_spec *env)
{
    TRP_TRY(box_check(control->who, env));
    TRP_TRY(torso_check_numbers(control->who, env));
    trp_net_spec spec = control_spec(control, env);
    return torso_check_net(control->who, TRP_TORSO_MLP, env, &spec);
}

trp_net_spec control_spec(const struct control *control, const trp_env_spec *env)
{
    uint32_t size = (uint32_t)env->action_count;
    trp_net_spec spec;
    memset(&spec, 0, sizeof spec);
    uint32_t last = torso_begin(&spec, TRP_TORSO_MLP, env, &control->hidden);
    if (control->kind != CONTROL_DETERMINISTIC)
        trp_net_add_gaussian(&spec, last, size, false);
    else
        trp_net_output(&spec, trp_net_add(&spec, (trp_layer){.kind = TRP_LINEAR,
                                                             .name = "action",
                                                             .from = {last},
                                                             .size = size,
                                                             .activation = TRP_TANH}));
    for (uint32_t i = 0; i < spec.output_count && control->head_variance > 0; i++) {
        spec.layers[spec.outputs[i]].init = TRP_INIT_VARIANCE;
        spec.layers[spec.outputs[i]].gain = control->head_variance;
    }
    return spec;
}

#include "q_net.h"

#include <string.h>

#include "torso.h"

/* As Haiku's LSTM, which Acme has. */
#define Q_NET_REMEMBERS 1

static trp_net_spec cnn_spec(const struct q_net *net, const trp_env_spec *env, uint32_t outputs)
{
    struct torso_image image = torso_image(net->network, env);
    trp_cnn_options cnn = {.height = image.height,
                           .width = image.width,
                           .channels = image.frames * image.channels,
                           .outputs = outputs,
                           .dueling = net->dueling,
                           .atoms = net->atoms,
                           .noisy = net->noisy,
                           .core = net->core,
                           .core_size = net->core_size,
                           .core_value = Q_NET_REMEMBERS};
    return torso_kind(net->network, env) == TRP_TORSO_NATURE ? trp_nature_cnn(&cnn)
                                                             : trp_impala_resnet(&cnn);
}

trp_net_spec q_net_spec(const struct q_net *net, const trp_env_spec *env)
{
    const trp_tensor_spec *observation = &env->observations[0];
    uint32_t outputs = (uint32_t)env->action_count * net->atoms;
    if (torso_kind(net->network, env) != TRP_TORSO_MLP)
        return cnn_spec(net, env, outputs);
    trp_mlp_options mlp = {
        .inputs = (uint32_t)(trp_tensor_bytes(observation) / trp_dtype_size(observation->dtype)),
        .outputs = outputs,
        .activation = net->activation,
        .dtype = observation->dtype,
        .dueling = net->dueling,
        .atoms = net->atoms,
        .noisy = net->noisy,
        .core = net->core,
        .core_size = net->core_size,
        .core_value = Q_NET_REMEMBERS};
    memcpy(mlp.hidden, net->hidden, sizeof mlp.hidden);
    return trp_mlp(&mlp);
}

trp_status q_net_check(const struct q_net *net, const trp_env_spec *env)
{
    static const char *const kinds[] = {[TRP_ACTION_BOX] = "continuous actions",
                                        [TRP_ACTION_MULTI_DISCRETE] =
                                            "choices in several dimensions",
                                        [TRP_ACTION_MULTI_BINARY] = "bits for actions"};
    if (env->action_kind != TRP_ACTION_DISCRETE)
        return trp_fail(TRP_INVALID_ARGUMENT, "%s: %s has %s, needs one choice", net->who,
                        env->name, kinds[env->action_kind]);
    TRP_TRY(torso_check(net->who, net->network, env));
    trp_net_spec spec = q_net_spec(net, env);
    return torso_check_net(net->who, net->network, env, &spec);
}

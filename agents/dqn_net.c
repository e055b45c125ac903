/* The network of DQN: what reads observations (torso.h), and values of actions upon it. */
#include "dqn.h"

#include <string.h>

trp_net_spec dqn_net_spec(const trp_dqn_options *options, const trp_env_spec *env)
{
    const trp_tensor_spec *observation = &env->observations[0];
    struct torso_image image = torso_image(options->network, env);
    uint32_t outputs = (uint32_t)env->action_count * dqn_atoms(options);
    trp_cnn_options cnn = {.height = image.height,
                           .width = image.width,
                           .channels = image.frames * image.channels,
                           .outputs = outputs,
                           .dueling = options->dueling,
                           .atoms = dqn_atoms(options),
                           .noisy = options->noisy};
    trp_mlp_options mlp = {
        .inputs = (uint32_t)(trp_tensor_bytes(observation) / trp_dtype_size(observation->dtype)),
        .outputs = outputs,
        .activation = options->activation,
        .dtype = observation->dtype,
        .dueling = options->dueling,
        .atoms = dqn_atoms(options),
        .noisy = options->noisy};
    memcpy(mlp.hidden, options->hidden, sizeof mlp.hidden);
    trp_torso kind = torso_kind(options->network, env);
    if (kind == TRP_TORSO_NATURE)
        return trp_nature_cnn(&cnn);
    return kind == TRP_TORSO_IMPALA ? trp_impala_resnet(&cnn) : trp_mlp(&mlp);
}

trp_status dqn_net_check(const trp_dqn_options *options, const trp_env_spec *env)
{
    TRP_TRY(torso_check("dqn", options->network, env));
    trp_net_spec spec = dqn_net_spec(options, env);
    return torso_check_net("dqn", options->network, env, &spec);
}

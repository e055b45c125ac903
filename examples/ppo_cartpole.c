/* PPO learns CartPole-v1: actors wait for the version that is made of what they did.
 *
 *     ./ppo_cartpole                        a process per node, until the pole stays up
 *     ./ppo_cartpole -- fused               no replay, no actors: the learner steps environments */
#include <string.h>

#include <troupe/troupe.h>

static trp_status build(trp_program *program, int argc, char **argv)
{
    bool fused = argc > 1 && strcmp(argv[1], "fused") == 0;
    TRP_TRY(trp_arguments_check(argc, argv, fused));
    trp_agent agent = trp_ppo(&(trp_ppo_options){
        .unroll = 32,
        .batch_size = 8,
        .epochs = 10,
        .minibatches = 2,
        .discount = 0.98F,
        .gae_lambda = 0.8F,
        .learning_rate = 2e-3F,
        .entropy_weight = -1,
    });
    trp_learner_options learning = {.agent = &agent, .publish_every = 1};
    trp_actor_options acting = {.agent = &agent, .env = "CartPole-v1", .envs = 4};
    if (fused) {
        learning.env = acting.env;
        learning.envs = 8;
        acting.params = trp_add_learner(program, "learner", &learning);
    } else {
        acting.replay = trp_add_replay(program, "replay", &(trp_replay_options){.agent = &agent});
        learning.replay = acting.replay;
        acting.params = trp_add_learner(program, "learner", &learning);
        acting.sync_every_items = acting.envs;
        trp_add_actors(program, "actor", 2, &acting);
    }
    trp_add_evaluator(program, "evaluator",
                      &(trp_actor_options){
                          .agent = &agent,
                          .env = acting.env,
                          .params = acting.params,
                          .episodes = 100,
                          .target_return = 475,
                      });
    return TRP_OK;
}

int main(int argc, char **argv)
{
    return trp_main(argc, argv, "ppo_cartpole", build);
}

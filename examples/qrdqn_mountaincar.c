/* QR-DQN learns MountainCar-v0: a car too weak for its hill has to swing itself up. It learns a
 * distribution of what is left to drive, 25 quantiles of it, and acts by their mean.
 *
 *     ./qrdqn_mountaincar                     a process per node, until 110 steps do on average
 *     ./qrdqn_mountaincar --launch=threads    everything in this process */
#include <troupe/troupe.h>

static trp_status build(trp_program *program, int argc, char **argv)
{
    TRP_TRY(trp_arguments_check(argc, argv, 0));
    trp_agent agent = trp_dqn(&(trp_dqn_options){
        .loss = TRP_DQN_QUANTILE,
        .quantiles = 25,
        .hidden = {128, 128},
        .target_period = 200,
        .batch_size = 64,
        .samples_per_insert = 64, /* a learner step for each of the environment's */
        .epsilon_steps = 5000,
    });

    trp_node replay = trp_add_replay(program, "replay", &(trp_replay_options){.agent = &agent});
    trp_node learner = trp_add_learner(program, "learner",
                                       &(trp_learner_options){
                                           .agent = &agent,
                                           .replay = replay,
                                       });
    trp_add_actors(program, "actor", 1,
                   &(trp_actor_options){
                       .agent = &agent,
                       .env = "MountainCar-v0",
                       .envs = 4,
                       .replay = replay,
                       .params = learner,
                   });
    trp_add_evaluator(program, "evaluator",
                      &(trp_actor_options){
                          .agent = &agent,
                          .env = "MountainCar-v0",
                          .params = learner,
                          .episodes = 100,
                          .target_return = -110,
                      });
    return TRP_OK;
}

int main(int argc, char **argv)
{
    return trp_main(argc, argv, "qrdqn_mountaincar", build);
}

/* DQN learns CartPole-v1: one replay server, one learner, four actors, one evaluator.
 *
 *     ./dqn_cartpole                        a process per node, until the pole stays up
 *     ./dqn_cartpole --launch=threads       everything in this process
 *     ./dqn_cartpole graph                  what would be started */
#include <troupe/troupe.h>

static trp_status build(trp_program *program, int argc, char **argv)
{
    TRP_TRY(trp_arguments_check(argc, argv, 0));
    trp_agent agent = trp_dqn(&(trp_dqn_options){
        .n_step = 3,
        .hidden = {64, 64},
        .learning_rate = 4e-3F, /* so small a task bears large steps */
        .target_period = 50,
        .samples_per_insert = 64,
    });

    trp_node replay = trp_add_replay(program, "replay", &(trp_replay_options){.agent = &agent});
    trp_node learner = trp_add_learner(program, "learner",
                                       &(trp_learner_options){
                                           .agent = &agent,
                                           .replay = replay,
                                           .batch_size = 128,
                                       });
    trp_add_actors(program, "actor", 4,
                   &(trp_actor_options){
                       .agent = &agent,
                       .env = "CartPole-v1",
                       .replay = replay,
                       .params = learner,
                   });
    trp_add_evaluator(program, "evaluator",
                      &(trp_actor_options){
                          .agent = &agent,
                          .env = "CartPole-v1",
                          .params = learner,
                          .episodes = 100,
                          .target_return = 475,
                      });
    return TRP_OK;
}

int main(int argc, char **argv)
{
    return trp_main(argc, argv, "dqn_cartpole", build);
}

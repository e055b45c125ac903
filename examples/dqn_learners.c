/* DQN learns CartPole-v1 with two learners, each of which takes half of every batch: one network,
 * whose gradient is the mean of theirs. One of them may fail: the other one goes on, with all of
 * the batch, until the first is back.
 *
 *     ./dqn_learners                                a process per node, until the pole stays up
 *     ./dqn_learners --launch=threads               everything in this process
 *     ./dqn_learners --set learner.count=3          as many learners as there are processors for */
#include <troupe/troupe.h>

static trp_status build(trp_program *program, int argc, char **argv)
{
    TRP_TRY(trp_arguments_check(argc, argv, 0));
    trp_agent agent = trp_dqn(&(trp_dqn_options){
        .n_step = 3,
        .hidden = {64, 64},
        .learning_rate = 4e-3F,
        .target_period = 50,
        .samples_per_insert = 64,
    });

    trp_node replay = trp_add_replay(program, "replay", &(trp_replay_options){.agent = &agent});
    trp_node learner = trp_add_learner(program, "learner",
                                       &(trp_learner_options){
                                           .agent = &agent,
                                           .replay = replay,
                                           .batch_size = 64, /* of each learner */
                                           .count = 2,
                                           .on_failure = TRP_ON_FAILURE_CONTINUE,
                                           .restarts = 10,
                                       });
    trp_add_actors(program, "actor", 4,
                   &(trp_actor_options){
                       .agent = &agent,
                       .env = "CartPole-v1",
                       .replay = replay,
                       .params = learner, /* whichever of them publishes */
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
    return trp_main(argc, argv, "dqn_learners", build);
}

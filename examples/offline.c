/* Learning from a store on disk, without actors: the items that the replay node of an earlier run
 * kept, of the same agent. Nothing in the directory changes.
 *
 *     troupe launch own_learner.c -- --run-dir=a
 *     troupe launch offline.c -- --run-dir=b -- a/replay */
#include <troupe/troupe.h>

static trp_status build(trp_program *program, int argc, char **argv)
{
    if (argc != 2)
        return trp_fail(TRP_INVALID_ARGUMENT, "which store? offline ... -- RUN/replay");
    trp_agent agent =
        trp_dqn(&(trp_dqn_options){.hidden = {64, 64}, .n_step = 3, .priority_exponent = -1});
    trp_node learner = trp_add_learner(program, "learner",
                                       &(trp_learner_options){.agent = &agent,
                                                              .env = "CartPole-v1",
                                                              .dataset = argv[1],
                                                              .dataset_shuffle = 2000,
                                                              .max_steps = 3000});
    trp_add_evaluator(program, "evaluator",
                      &(trp_actor_options){.agent = &agent,
                                           .env = "CartPole-v1",
                                           .params = learner,
                                           .episodes = 50,
                                           .target_return = 150});
    return TRP_OK;
}

int main(int argc, char **argv)
{
    return trp_main(argc, argv, "offline", build);
}

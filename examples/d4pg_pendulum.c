/* D4PG learns Pendulum-v1: one replay server, one learner, an actor, an evaluator.
 *
 *     ./d4pg_pendulum                        a process per node, until the pendulum is held up
 *     ./d4pg_pendulum --launch=threads       everything in this process */
#include <troupe/troupe.h>

static trp_status build(trp_program *program, int argc, char **argv)
{
    TRP_TRY(trp_arguments_check(argc, argv, 0));
    trp_agent agent = trp_d4pg(&(trp_d4pg_options){
        .hidden = {64, 64}, /* so small a task needs no more */
        .critic_hidden = {64, 64},
        .discount = 0.95F,
        .value_least = -330, /* for ever what is worst, -16.3 a step, discounted */
        .value_most = 0,
        .learning_rate = 2e-3F,
        .critic_learning_rate = 3e-3F,
        .batch_size = 64,
        .samples_per_insert = 32, /* one learner step for two steps of an actor */
    });

    trp_actor_options acting = {.agent = &agent, .env = "Pendulum-v1"};
    acting.replay = trp_add_replay(program, "replay", &(trp_replay_options){.agent = &agent});
    acting.params = trp_add_learner(
        program, "learner", &(trp_learner_options){.agent = &agent, .replay = acting.replay});
    trp_add_actors(program, "actor", 1, &acting);
    trp_add_evaluator(program, "evaluator",
                      &(trp_actor_options){
                          .agent = &agent,
                          .env = acting.env,
                          .params = acting.params,
                          .episodes = 100,
                          .target_return = -200,
                      });
    return TRP_OK;
}

int main(int argc, char **argv)
{
    return trp_main(argc, argv, "d4pg_pendulum", build);
}

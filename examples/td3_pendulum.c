/* TD3 learns Pendulum-v1: one replay server, one learner, an actor, an evaluator.
 *
 *     ./td3_pendulum                        a process per node, until the pendulum is held up
 *     ./td3_pendulum --launch=threads       everything in this process */
#include <troupe/troupe.h>

static trp_status build(trp_program *program, int argc, char **argv)
{
    TRP_TRY(trp_arguments_check(argc, argv, 0));
    trp_agent agent = trp_td3(&(trp_td3_options){
        .hidden = {64, 64}, /* so small a task needs no more */
        .batch_size = 64,
        .learning_rate = 1e-3F,
        .critic_learning_rate = 1e-3F,
        .target_rate = 0.02F,
        .samples_per_insert = 128, /* two learner steps for each step of the actor */
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
                          .episodes = 200, /* returns differ a lot */
                          .target_return = -170,
                      });
    return TRP_OK;
}

int main(int argc, char **argv)
{
    return trp_main(argc, argv, "td3_pendulum", build);
}

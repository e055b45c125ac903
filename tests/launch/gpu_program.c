/* A program for tests of where nodes compute: DQN on CartPole with every kind of node that does. It
 * lies beside a libtroupe_cuda.so of tests (tests/nn/cuda/fake_gpus.c). */
#include <troupe/troupe.h>
#include "tests/nn/cuda/nvidia_leaks.h"

static trp_status build(trp_program *program, int argc, char **argv)
{
    (void)argc, (void)argv;
    trp_agent agent = trp_dqn(&(trp_dqn_options){.hidden = {16}, .min_replay_size = 50});
    trp_node replay = trp_add_replay(program, "replay", &(trp_replay_options){.agent = &agent});
    trp_node learner =
        trp_add_learner(program, "learner",
                        &(trp_learner_options){.agent = &agent, .replay = replay, .batch_size = 8});
    trp_add_actors(program, "actor", 2,
                   &(trp_actor_options){
                       .agent = &agent, .env = "CartPole-v1", .replay = replay, .params = learner});
    trp_add_evaluator(program, "evaluator",
                      &(trp_actor_options){
                          .agent = &agent, .env = "CartPole-v1", .params = learner, .episodes = 4});
    return TRP_OK;
}

int main(int argc, char **argv)
{
    return trp_main(argc, argv, "gpu_program", build);
}

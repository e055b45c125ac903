/* A program for tests of where nodes compute: DQN on CartPole with every kind of node that does. It
 * lies beside a libtroupe_cuda.so of tests (tests/nn/cuda/fake_gpus.c). */
#include <string.h>

#include <troupe/troupe.h>
#include "tests/nn/cuda/nvidia_leaks.h"

struct own {
    const char *device, *gpus;
};

static const trp_option own_rows[] = {{TRP_OPTION(struct own, device)},
                                      {TRP_OPTION(struct own, gpus)}};
static const trp_option_table own_table = TRP_OPTION_TABLE("own", own_rows, struct own);

static trp_status own_run(trp_context *context, const void *arg)
{
    trp_device *device;
    (void)arg;
    return trp_context_device(context, &device);
}

/* "own": a node of one's own alone. */
static trp_status build(trp_program *program, int argc, char **argv)
{
    const struct own own = {NULL, NULL};
    if (argc > 1 && strcmp(argv[1], "own") == 0) {
        trp_add_node(
            program, "own",
            &(trp_node_options){
                .run = own_run, .arg = &own, .arg_size = sizeof own, .options = &own_table});
        return TRP_OK;
    }
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

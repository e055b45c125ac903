/* IMPALA learns CartPole-v1: actors do not wait for the learner, and V-trace makes up for it.
 *
 *     ./impala_cartpole                     a process per node, until the pole stays up
 *     ./impala_cartpole -- 4                with four actors instead of two
 *     ./impala_cartpole -- Catch            another environment
 *     ./impala_cartpole -- fused            no replay, no actors: the learner steps environments */
#include <stdlib.h>
#include <string.h>

#include <troupe/troupe.h>

/* What stands behind "--": words in any order. */
struct wanted {
    const char *env;
    uint32_t actors;
    bool fused;
};

static struct wanted read_words(int argc, char **argv)
{
    struct wanted wanted = {.env = "CartPole-v1", .actors = 2};
    for (int i = 1; i < argc; i++) {
        long actors = strtol(argv[i], NULL, 10);
        if (strcmp(argv[i], "fused") == 0)
            wanted.fused = true;
        else if (actors > 0)
            wanted.actors = (uint32_t)actors;
        else
            wanted.env = argv[i];
    }
    return wanted;
}

static trp_status build(trp_program *program, int argc, char **argv)
{
    struct wanted wanted = read_words(argc, argv);
    trp_agent agent = trp_impala(&(trp_impala_options){
        .unroll = 8,
        .batch_size = 32,
        .queue_batches = 1,
        .discount = 0.98F,
        .lambda = 0.8F,
        .entropy_weight = 0.03F,
        .value_weight = 0.5F,
        .learning_rate = 2e-3F,
        .adam_beta1 = 0.9F,
        .optimizer_epsilon = 1e-3F,
        .max_gradient_norm = 0.5F,
    });
    trp_learner_options learning = {.agent = &agent, .publish_every = 1};
    trp_actor_options acting = {.agent = &agent, .env = wanted.env, .envs = 4};
    if (wanted.fused) {
        learning.env = acting.env;
        learning.envs = 32;
        acting.params = trp_add_learner(program, "learner", &learning);
    } else {
        acting.replay = trp_add_replay(program, "replay", &(trp_replay_options){.agent = &agent});
        learning.replay = acting.replay;
        acting.params = trp_add_learner(program, "learner", &learning);
        trp_add_actors(program, "actor", wanted.actors, &acting);
    }
    trp_add_evaluator(program, "evaluator",
                      &(trp_actor_options){
                          .agent = &agent,
                          .env = acting.env,
                          .params = acting.params,
                          .episodes = 100,
                          .target_return = strcmp(wanted.env, "Catch") == 0 ? 0.95 : 475,
                      });
    return TRP_OK;
}

int main(int argc, char **argv)
{
    return trp_main(argc, argv, "impala_cartpole", build);
}

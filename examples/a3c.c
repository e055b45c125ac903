/* A3C: learners that play environments of their own add what they learn to one vector, all at once
 * and without locks (mode "hogwild").
 *
 *     ./a3c                             CartPole-v1 by two learners, a process each
 *     ./a3c --launch=threads            the same as threads of one process
 *     ./a3c --set learner.count=4       four learners
 *     ./a3c -- chain                    a small chain of places, whose best return is 1 */
#include <string.h>

#include <troupe/troupe.h>

/* ---- an environment whose optimum is known ------------------------------------------------- */

/* Every step on is one nearer to a reward of 1, with which the episode ends. Who stops has 0.1 at
 * once, and that is all: the best return is 1. */
enum { PLACES = 6, STOP = 0, ON = 1 };

struct chain {
    int32_t place;
};

static trp_status chain_reset(void *state, trp_rng *rng)
{
    (void)rng;
    ((struct chain *)state)->place = 0;
    return TRP_OK;
}

static trp_status chain_step(void *state, trp_rng *rng, const void *action,
                             trp_env_outcome *outcome)
{
    struct chain *chain = state;
    bool stops = *(const int32_t *)action == STOP;
    (void)rng;
    chain->place += !stops;
    outcome->terminated = stops || chain->place == PLACES - 1;
    outcome->reward = stops ? 0.1 : outcome->terminated ? 1 : 0;
    return TRP_OK;
}

static void chain_observe(const void *state, void *const *observations)
{
    float *places = observations[0];
    memset(places, 0, PLACES * sizeof *places);
    places[((const struct chain *)state)->place] = 1;
}

static const trp_env_impl chain = {
    .spec = {.name = "Chain",
             .observations = {{.dtype = TRP_FLOAT32, .rank = 1, .shape = {PLACES}}},
             .action_count = 2},
    .state_bytes = sizeof(struct chain),
    .reset = chain_reset,
    .step = chain_step,
    .observe = chain_observe,
};

/* ---- the program --------------------------------------------------------------------------- */

static trp_status build(trp_program *program, int argc, char **argv)
{
    bool small = argc > 1 && strcmp(argv[1], "chain") == 0;
    TRP_TRY(trp_arguments_check(argc, argv, small));
    trp_agent agent = trp_a3c(&(trp_a3c_options){
        .unroll = 8,
        .batch_size = 8,
        .discount = 0.98F,
        .learning_rate = 2e-3F,
    });
    const char *env = small ? "Chain" : "CartPole-v1";
    trp_node learner = trp_add_learner(program, "learner",
                                       &(trp_learner_options){
                                           .agent = &agent,
                                           .env = env,
                                           .envs = 8,
                                           .count = 2,
                                           .mode = TRP_LEARNERS_HOGWILD,
                                           .on_failure = TRP_ON_FAILURE_CONTINUE,
                                           .restarts = 10,
                                       });
    trp_add_evaluator(program, "evaluator",
                      &(trp_actor_options){
                          .agent = &agent,
                          .env = env,
                          .params = learner,
                          .episodes = 100,
                          .target_return = small ? 0.99 : 475,
                      });
    return TRP_OK;
}

int main(int argc, char **argv)
{
    if (trp_env_register(&chain) != TRP_OK)
        return 1;
    return trp_main(argc, argv, "a3c", build);
}

/* An environment with an argument: a corridor whose end is worth 1, every step costs 0.01. It is
 * used as "Corridor" or "Corridor?length=12", wherever a name is taken. And a wrapper around any
 * environment with choices: "Corridor?slip=0.1", "Catch?slip=0.2&frame_stack=2".
 *
 *     troupe launch own_env.c -- */
#include <troupe/troupe.h>

enum { LENGTH_MAX = 32 };

typedef struct {
    uint32_t length;
} corridor_arguments;

static const trp_option corridor_rows[] = {
    {TRP_OPTION(corridor_arguments, length), .fallback = "6", .min = 2, .max = LENGTH_MAX,
     .unit = "cells", .help = "from one end to the other"},
};
static const trp_option_table corridor_table =
    TRP_OPTION_TABLE("Corridor", corridor_rows, corridor_arguments);

struct corridor {
    int32_t length, place;
};

/* A cell is a number of the observation, so the spec follows from the argument. */
static trp_status corridor_configure(void *arguments, void *user, trp_env_spec *spec)
{
    (void)user;
    spec->observations[0].shape[0] = ((const corridor_arguments *)arguments)->length;
    return TRP_OK;
}

static trp_status corridor_create(void *state, const void *arguments, void *user)
{
    (void)user;
    ((struct corridor *)state)->length = (int32_t)((const corridor_arguments *)arguments)->length;
    return TRP_OK;
}

static trp_status corridor_reset(void *state, trp_rng *rng)
{
    struct corridor *corridor = state;
    corridor->place = (int32_t)trp_rng_below(rng, (uint64_t)corridor->length - 1);
    return TRP_OK;
}

static trp_status corridor_step(void *state, trp_rng *rng, const void *action,
                                trp_env_outcome *outcome)
{
    struct corridor *corridor = state;
    (void)rng;
    if (*(const int32_t *)action == 1)
        corridor->place++;
    else if (corridor->place > 0)
        corridor->place--;
    outcome->terminated = corridor->place == corridor->length - 1;
    outcome->reward = outcome->terminated ? 1 : -0.01F;
    return TRP_OK;
}

static void corridor_observe(const void *state, void *const *observations)
{
    const struct corridor *corridor = state;
    float *cells = observations[0];
    for (int32_t i = 0; i < corridor->length; i++)
        cells[i] = i == corridor->place;
}

static const trp_env_impl corridor = {
    .spec = {.name = "Corridor",
             .observations = {{.name = "cells", .dtype = TRP_FLOAT32, .rank = 1, .shape = {1}}},
             .action_kind = TRP_ACTION_DISCRETE,
             .action_count = 2,
             .max_episode_steps = 100},
    .state_bytes = sizeof(struct corridor),
    .options = &corridor_table,
    .configure = corridor_configure,
    .create = corridor_create,
    .reset = corridor_reset,
    .step = corridor_step,
    .observe = corridor_observe,
};

/* ---- a floor that is wet: now and then something else is done than was chosen --------------- */

typedef struct {
    trp_wrapping wrapping;
    double slip;
    int32_t choices;
} slip_arguments;

static const trp_option slip_rows[] = {
    {TRP_OPTION(slip_arguments, slip), .max = 1, .help = "how often the action is drawn"},
};
static const trp_option_table slip_table = TRP_OPTION_TABLE("slip", slip_rows, slip_arguments);

static trp_status slip_configure(void *arguments, void *user, trp_env_spec *spec)
{
    (void)user;
    if (spec->action_kind != TRP_ACTION_DISCRETE || spec->masked)
        return trp_fail(TRP_INVALID_ARGUMENT, "slip: any choice must be allowed at any time");
    ((slip_arguments *)arguments)->choices = spec->action_count;
    return TRP_OK;
}

static trp_status slip_step(void *state, trp_rng *rng, const void *action, trp_env_outcome *outcome)
{
    const slip_arguments *arguments = (const void *)((trp_wrapped *)state)->wrapping;
    int32_t done = *(const int32_t *)action;
    if (trp_rng_double(rng) < arguments->slip)
        done = (int32_t)trp_rng_below(rng, (uint64_t)arguments->choices);
    return trp_wrapped_step(state, rng, &done, outcome);
}

static const trp_env_impl slip = {
    .state_bytes = sizeof(trp_wrapped),
    .options = &slip_table,
    .configure = slip_configure,
    .reset = trp_wrapped_reset,
    .step = slip_step,
    .observe = trp_wrapped_observe,
};

static trp_status build(trp_program *program, int argc, char **argv)
{
    TRP_TRY(trp_arguments_check(argc, argv, 0));
    trp_agent agent = trp_dqn(&(trp_dqn_options){
        .hidden = {32}, .replay_size = 10000, .epsilon_steps = 3000, .min_replay_size = 500});
    trp_actor_options acting = {
        .agent = &agent, .env = "Corridor?length=8&slip=0.1", .episodes = 50};
    acting.replay = trp_add_replay(program, "replay", &(trp_replay_options){.agent = &agent});
    acting.params = trp_add_learner(
        program, "learner", &(trp_learner_options){.agent = &agent, .replay = acting.replay});
    trp_add_actors(program, "actor", 2, &acting);
    acting.target_return = 0.9;
    trp_add_evaluator(program, "evaluator", &acting);
    return TRP_OK;
}

int main(int argc, char **argv)
{
    if (trp_env_register(&corridor) != TRP_OK || trp_env_wrapper_register(&slip) != TRP_OK)
        return 1;
    return trp_main(argc, argv, "own_env", build);
}

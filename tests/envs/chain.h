/* A chain whose best values are known: LENGTH places in a row, the agent begins in any of them but
 * the last; action 1 goes right, 0 goes left (from the first place: nowhere). Arriving at the last
 * place pays 1 and ends the episode, everything else costs COST. Going right is best everywhere:
 * with d steps to go, Q(right) = gamma^(d - 1) - COST * (1 - gamma^(d - 1)) / (1 - gamma), and
 * Q(left) = -COST + gamma * V of where that leads. Registered as "Chain" by chain_register(). */
#ifndef TESTS_ENVS_CHAIN_H
#define TESTS_ENVS_CHAIN_H

#include <math.h>
#include <string.h>

#include <troupe/env.h>

enum { CHAIN_LENGTH = 6 };

static const double chain_cost = 0.05;

struct chain {
    int32_t place;
};

static inline trp_status chain_reset(void *state, trp_rng *rng)
{
    ((struct chain *)state)->place = (int32_t)trp_rng_below(rng, CHAIN_LENGTH - 1);
    return TRP_OK;
}

static inline trp_status chain_step(void *state, trp_rng *rng, const void *action,
                                    trp_env_outcome *outcome)
{
    struct chain *chain = state;
    (void)rng;
    if (*(const int32_t *)action == 1)
        chain->place++;
    else if (chain->place > 0)
        chain->place--;
    outcome->terminated = chain->place == CHAIN_LENGTH - 1;
    outcome->reward = outcome->terminated ? 1 : (float)-chain_cost;
    return TRP_OK;
}

static inline void chain_row(int32_t place, float row[CHAIN_LENGTH])
{
    memset(row, 0, CHAIN_LENGTH * sizeof *row);
    row[place] = 1;
}

static inline void chain_observe(const void *state, void *const *observations)
{
    chain_row(((const struct chain *)state)->place, observations[0]);
}

/* The value of a place, and of an action in it, to who acts best. */
static inline double chain_value(int32_t place, double gamma)
{
    double rest = pow(gamma, CHAIN_LENGTH - 2 - place);
    return rest - chain_cost * (1 - rest) / (1 - gamma);
}

static inline double chain_action_value(int32_t place, int32_t action, double gamma)
{
    if (action == 1)
        return chain_value(place, gamma);
    return -chain_cost + gamma * chain_value(place > 0 ? place - 1 : 0, gamma);
}

static inline trp_status chain_register(void)
{
    static const trp_env_impl impl = {
        .spec = {.name = "Chain",
                 .observations =
                     {{.name = "place", .dtype = TRP_FLOAT32, .rank = 1, .shape = {CHAIN_LENGTH}}},
                 .action_kind = TRP_ACTION_DISCRETE,
                 .action_count = 2,
                 .max_episode_steps = 40},
        .state_bytes = sizeof(struct chain),
        .reset = chain_reset,
        .step = chain_step,
        .observe = chain_observe,
    };
    return trp_env_register(&impl);
}

#endif

/* bsuite/discounting_chain: the first action chooses one of five chains, which pay 1 after 1, 3,
 * 10, 30 or 100 steps; that of the setting pays 1.1. Ported from bsuite's
 * environments/discounting_chain.py (Apache-2.0; see THIRD_PARTY_NOTICES). */
#include "builtin.h"

#include <string.h>

#include "bsuite.h"

enum { CHAINS = 5, EPISODE_STEPS = 100, UNDECIDED = -1 };

static const int32_t paid_at[CHAINS] = {1, 3, 10, 30, 100};

struct discounting_arguments {
    struct bsuite_arguments base;
};

struct discounting {
    struct bsuite_copy copy;
    int32_t time, chain;
};

enum { SAVED_BYTES = sizeof(struct discounting) - BSUITE_SAVED_AT };

BSUITE_OPTIONS(discounting_chain, struct discounting_arguments, 19);

static trp_status discounting_reset(void *state, trp_rng *rng)
{
    struct discounting *s = state;
    (void)rng;
    s->time = 0;
    s->chain = UNDECIDED;
    return TRP_OK;
}

static trp_status discounting_step(void *state, trp_rng *rng, const void *action,
                                   trp_env_outcome *outcome)
{
    struct discounting *s = state;
    (void)rng;
    if (s->time++ == 0)
        s->chain = *(const int32_t *)action;
    if (s->time == paid_at[s->chain]) {
        bool bonus = (uint32_t)s->chain == s->copy.arguments->setting % CHAINS;
        double reward = bonus ? 1 + 0.1 : 1;
        outcome->reward = (float)reward;
        bsuite_add(&s->copy, reward);
    }
    if (s->time == EPISODE_STEPS)
        bsuite_end(&s->copy, outcome);
    return TRP_OK;
}

static void discounting_observe(const void *state, void *const *observations)
{
    const struct discounting *s = state;
    float *row = observations[0];
    row[0] = (float)s->chain;
    row[1] = (float)((double)s->time / EPISODE_STEPS);
}

static void discounting_save(const void *state, void *saved)
{
    memcpy(saved, (const uint8_t *)state + BSUITE_SAVED_AT, SAVED_BYTES);
}

static trp_status discounting_load(void *state, const void *saved)
{
    struct discounting *s = state, loaded = *s;
    memcpy((uint8_t *)&loaded + BSUITE_SAVED_AT, saved, SAVED_BYTES);
    TRP_TRY(bsuite_check_count(&loaded.copy));
    bool inside = loaded.time >= 0 && loaded.time < EPISODE_STEPS && loaded.chain < CHAINS &&
                  (loaded.time == 0 ? loaded.chain == UNDECIDED : loaded.chain >= 0);
    if (!inside)
        return trp_fail(TRP_INVALID_ARGUMENT, "bsuite/discounting_chain: time %d, chain %d",
                        loaded.time, loaded.chain);
    *s = loaded;
    return TRP_OK;
}

const trp_env_impl bsuite_discounting_chain_impl = {
    .spec =
        {
            .name = "bsuite/discounting_chain",
            .observations =
                {{.name = "observation", .dtype = TRP_FLOAT32, .rank = 2, .shape = {1, 2}}},
            .action_kind = TRP_ACTION_DISCRETE,
            .action_count = CHAINS,
        },
    .state_bytes = sizeof(struct discounting),
    .options = &discounting_chain_table,
    .configure = bsuite_configure,
    .create = bsuite_create,
    .reset = discounting_reset,
    .step = discounting_step,
    .observe = discounting_observe,
    .finite = true,
    .saved_bytes = SAVED_BYTES,
    .save = discounting_save,
    .load = discounting_load,
};

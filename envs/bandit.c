/* bsuite/bandit, bsuite/bandit_noise and bsuite/bandit_scale: eleven arms that pay 0, 0.1, ... 1,
 * in an order that the setting decides; one pull is an episode. Ported from bsuite's
 * environments/bandit.py (Apache-2.0; see THIRD_PARTY_NOTICES). There the order is drawn by
 * NumPy's RandomState(mapping_seed).choice(); what it draws is here. */
#include "builtin.h"

#include <string.h>

#include "bsuite.h"

enum { ARMS = 11, MAPPINGS = 20 };

/* Which tenth an arm pays, for each mapping_seed: one hexadecimal digit an arm. */
static const char mappings[MAPPINGS][ARMS + 1] = {
    "492a6178305", "23491607a85", "419507236a8", "5412967038a", "3849260157a",
    "582a4710963", "8170652439a", "85021a73694", "679a0258143", "74021a93865",
    "26857a31049", "6a238457109", "a5980473216", "357814a6902", "3a054291768",
    "261a3407958", "620784315a9", "7283450a961", "7904216583a", "1760a943825",
};

struct bandit_arguments {
    struct bsuite_arguments base;
    double pays[ARMS];
};

BSUITE_OPTIONS(bandit, struct bandit_arguments, 19);
BSUITE_OPTIONS(bandit_noise, struct bandit_arguments, 19);
BSUITE_OPTIONS(bandit_scale, struct bandit_arguments, 19);

static trp_status bandit_configure(void *arguments, void *user, trp_env_spec *spec)
{
    struct bandit_arguments *bandit = arguments;
    TRP_TRY(bsuite_configure(arguments, user, spec));
    uint32_t setting = bandit->base.setting;
    bool plain = bandit->base.experiment->variant == BSUITE_PLAIN;
    const char *mapping = mappings[plain ? setting : setting % BSUITE_PER_LEVEL];
    for (int i = 0; i < ARMS; i++)
        bandit->pays[i] = mapping[i] == 'a' ? 1 : (mapping[i] - '0') * 0.1;
    return TRP_OK;
}

static trp_status bandit_reset(void *state, trp_rng *rng)
{
    (void)state;
    (void)rng;
    return TRP_OK;
}

static trp_status bandit_step(void *state, trp_rng *rng, const void *action,
                              trp_env_outcome *outcome)
{
    struct bsuite_copy *copy = state;
    const struct bandit_arguments *bandit = (const void *)copy->arguments;
    double reward = bandit->pays[*(const int32_t *)action];
    outcome->reward = bsuite_reward(copy, rng, reward);
    bsuite_add(copy, 1 - reward);
    bsuite_end(copy, outcome);
    return TRP_OK;
}

static void bandit_observe(const void *state, void *const *observations)
{
    (void)state;
    *(float *)observations[0] = 1;
}

static void bandit_save(const void *state, void *saved)
{
    memcpy(saved, &((const struct bsuite_copy *)state)->count, sizeof(struct bsuite_count));
}

static trp_status bandit_load(void *state, const void *saved)
{
    struct bsuite_copy *copy = state, loaded = *copy;
    memcpy(&loaded.count, saved, sizeof loaded.count);
    TRP_TRY(bsuite_check_count(&loaded));
    *copy = loaded;
    return TRP_OK;
}

#define BANDIT(word)                                                                               \
    {                                                                                              \
        .spec = {.name = "bsuite/" #word,                                                          \
                 .observations =                                                                   \
                     {{.name = "observation", .dtype = TRP_FLOAT32, .rank = 2, .shape = {1, 1}}},  \
                 .action_kind = TRP_ACTION_DISCRETE,                                               \
                 .action_count = ARMS},                                                            \
        .state_bytes = sizeof(struct bsuite_copy), .options = &word##_table,                       \
        .configure = bandit_configure, .create = bsuite_create, .reset = bandit_reset,             \
        .step = bandit_step, .observe = bandit_observe, .finite = true,                            \
        .saved_bytes = sizeof(struct bsuite_count), .save = bandit_save, .load = bandit_load,      \
    }

const trp_env_impl bsuite_bandit_impl = BANDIT(bandit);
const trp_env_impl bsuite_bandit_noise_impl = BANDIT(bandit_noise);
const trp_env_impl bsuite_bandit_scale_impl = BANDIT(bandit_scale);

/* Items that agents of continuous actions learn from: rewards of n steps with each discounted, the
 * state n steps later, and what that is worth there, which is nothing behind a termination. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include <troupe/troupe.h>
#include "core/alloc.h"
#include "core/option_table.h"

enum { EPISODE = 7, BATCH = 12, LEARNER_STEPS = 20 };

static const float gamma_ = 0.9F, low = -1, high = 1;

/* ---- two tasks: they observe t, and reward t + 1 --------------------------------------------- */

struct count {
    int64_t steps;
};

static trp_status count_reset(void *state, trp_rng *rng)
{
    (void)rng;
    ((struct count *)state)->steps = 0;
    return TRP_OK;
}

static trp_status cut_step(void *state, trp_rng *rng, const void *action, trp_env_outcome *outcome)
{
    struct count *count = state;
    (void)rng, (void)action;
    outcome->reward = (float)++count->steps;
    return TRP_OK;
}

static trp_status end_step(void *state, trp_rng *rng, const void *action, trp_env_outcome *outcome)
{
    TRP_TRY(cut_step(state, rng, action, outcome));
    outcome->terminated = ((const struct count *)state)->steps == EPISODE;
    return TRP_OK;
}

static void count_observe(const void *state, void *const *observations)
{
    *(float *)observations[0] = (float)((const struct count *)state)->steps;
}

#define COUNT(called, limit, how)                                                                  \
    {                                                                                              \
        .spec = {.name = called,                                                                   \
                 .observations = {{.dtype = TRP_FLOAT32, .rank = 1, .shape = {1}}},                \
                 .action_kind = TRP_ACTION_BOX,                                                    \
                 .action_count = 1,                                                                \
                 .action_low = &low,                                                               \
                 .action_high = &high,                                                             \
                 .max_episode_steps = limit},                                                      \
        .state_bytes = sizeof(struct count), .reset = count_reset, .step = how,                    \
        .observe = count_observe                                                                   \
    }

static const trp_env_impl cut_impl = COUNT("CountCut", EPISODE, cut_step);
static const trp_env_impl end_impl = COUNT("CountEnd", 0, end_step);

/* ---- agents whose updater only looks --------------------------------------------------------- */

static const trp_agent_impl *looked_at;
static uint32_t n_step;
static bool ends;
static size_t last_items;

static trp_status look_step(trp_updater *updater, const trp_update *update)
{
    const float *from = trp_update_column(update, 0, "observation");
    const float *to = trp_update_column(update, 0, "next_observation");
    const float *rewards = trp_update_column(update, 0, "reward");
    const float *discounts = trp_update_column(update, 0, "discount");
    (void)updater;
    for (uint32_t row = 0; row < update->batches[0].rows; row++) {
        uint32_t first = (uint32_t)from[row], last = (uint32_t)to[row], steps = last - first;
        bool over = ends && last == EPISODE;
        double reward = 0;
        for (uint32_t k = 0; k < steps; k++)
            reward += pow((double)gamma_, k) * (first + k + 1);
        /* Fewer steps are in items of an episode's first state, and in those of its last one. */
        assert_true(steps == n_step || (steps < n_step && (first == 0 || last == EPISODE)));
        assert_float_equal(rewards[row], reward, 1e-4);
        assert_float_equal(discounts[row], over ? 0 : pow((double)gamma_, steps - 1), 1e-5);
        last_items += last == EPISODE;
    }
    return trp_update_apply(update, 0);
}

static trp_status look_create(const trp_agent *agent, const trp_env_spec *env,
                              const trp_updater_options *options, trp_updater **out)
{
    static trp_updater_impl impl;
    TRP_TRY(looked_at->updater(agent, env, options, out));
    impl = *(*out)->impl;
    impl.step = look_step;
    impl.collect = NULL;
    (*out)->impl = &impl;
    return TRP_OK;
}

static void look(trp_agent agent, const char *env)
{
    looked_at = agent.impl;
    trp_agent_impl impl = *agent.impl;
    impl.updater = look_create;
    agent.impl = &impl;
    trp_learner *learner;
    assert_int_equal(trp_agent_learner_create(
                         &learner, &agent,
                         &(trp_agent_learner_options){.env = env,
                                                      .batch_size = BATCH,
                                                      .rollout = {.name = "learner", .copies = 3},
                                                      .loop = {.max_steps = LEARNER_STEPS}}),
                     TRP_OK);
    ends = strcmp(env, "CountEnd") == 0;
    last_items = 0;
    assert_int_equal(trp_learner_run(learner), TRP_OK);
    assert_true(last_items > 0);
    trp_learner_destroy(learner);
}

static void items_are_of_n_steps_and_bootstrap_where_an_episode_did_not_end(void **state)
{
    (void)state;
    for (n_step = 1; n_step <= 5; n_step += 4) {
        const trp_agent agents[] = {
            trp_d4pg(&(trp_d4pg_options){.n_step = n_step, .discount = gamma_}),
            trp_mpo(&(trp_mpo_options){.n_step = n_step, .discount = gamma_, .samples = 2}),
            trp_sac(&(trp_sac_options){.n_step = n_step, .discount = gamma_}),
            trp_td3(&(trp_td3_options){.n_step = n_step, .discount = gamma_}),
        };
        for (size_t i = 0; i < sizeof agents / sizeof *agents; i++) {
            look(agents[i], "CountCut");
            look(agents[i], "CountEnd");
        }
    }
}

/* ---- options --------------------------------------------------------------------------------- */

static void option_becomes(const trp_option_table *table, void *options, const char *name,
                           const char *value)
{
    assert_int_equal(trp_options_set(table, options, name, value), TRP_OK);
}

static void what_only_priorities_and_a_pace_have_is_idle_without_them(void **state)
{
    (void)state;
    const trp_option_table *const tables[] = {trp_d4pg_option_table(), trp_dqn_option_table(),
                                              trp_mpo_option_table(),  trp_r2d2_option_table(),
                                              trp_sac_option_table(),  trp_td3_option_table()};
    static const char *const rows[][2] = {{"importance_exponent", "priority_exponent"},
                                          {"insert_tolerance", "samples_per_insert"}};
    for (size_t i = 0; i < sizeof tables / sizeof *tables * 2; i++) {
        const trp_option_table *table = tables[i / 2];
        const char *const *row = rows[i % 2];
        trp_agent room;
        trp_options_resolve(table, NULL, room.options.bytes);
        option_becomes(table, room.options.bytes, row[0], "0.7");
        for (int has = 0; has < 2; has++) {
            option_becomes(table, room.options.bytes, row[1], has ? "0.5" : "0");
            assert_int_equal(option_is_idle(table, option_find(table, row[0]), room.options.bytes),
                             !has);
        }
    }
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(items_are_of_n_steps_and_bootstrap_where_an_episode_did_not_end),
        cmocka_unit_test(what_only_priorities_and_a_pace_have_is_idle_without_them),
    };
    trp_log_set_level(TRP_ERROR);
    if (trp_env_register(&cut_impl) != TRP_OK || trp_env_register(&end_impl) != TRP_OK)
        return 1;
    return cmocka_run_group_tests(tests, NULL, NULL);
}

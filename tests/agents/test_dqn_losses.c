/* DQN with each of its losses: a step is that of the loss on what the right networks say, and what
 * does not go together is refused by name. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <troupe/troupe.h>

#include "agents/dqn.h"
#include "core/alloc.h"
#include "learner/update.h"

/* ---- one step by hand ----------------------------------------------------------------------- */

enum { BATCH = 8, ACTIONS = 2, ATOMS = 5, COLUMNS = 8, SAID = BATCH * ACTIONS * ATOMS };

/* Random items of CartPole, as a sampler would give them. */
struct items {
    float observations[BATCH][4], next_observations[BATCH][4];
    float rewards[BATCH], discounts[BATCH];
    int32_t actions[BATCH];
    bool masks[BATCH][ACTIONS], next_masks[BATCH][ACTIONS];
    int64_t versions[BATCH], sizes[BATCH];
    uint64_t keys[BATCH];
    double probabilities[BATCH];
    void *columns[COLUMNS];
    trp_batch batch;
};

static void items_fill(struct items *items, bool masked)
{
    trp_rng rng;
    trp_rng_init(&rng, 5, 0);
    memset(items, 0, sizeof *items);
    for (size_t i = 0; i < BATCH; i++) {
        for (size_t k = 0; k < 4; k++) {
            items->observations[i][k] = (float)trp_rng_normal(&rng);
            items->next_observations[i][k] = (float)trp_rng_normal(&rng);
        }
        items->rewards[i] = (float)trp_rng_normal(&rng);
        items->discounts[i] = i % 3 == 0 ? 0 : 1;
        items->actions[i] = (int32_t)trp_rng_below(&rng, 2);
        items->masks[i][items->actions[i]] = items->masks[i][i % 2] = true;
        items->next_masks[i][0] = i % 4 != 1;
        items->next_masks[i][1] = i % 4 != 2;
    }
    void *columns[COLUMNS] = {items->observations, items->actions,           items->rewards,
                              items->discounts,    items->next_observations, items->versions};
    if (masked) {
        columns[5] = items->next_masks;
        columns[6] = items->versions;
        columns[7] = items->masks;
    }
    memcpy(items->columns, columns, sizeof columns);
    items->batch = (trp_batch){.rows = BATCH,
                               .columns = items->columns,
                               .keys = items->keys,
                               .probabilities = items->probabilities,
                               .table_sizes = items->sizes};
}

static void say(trp_net *net, const float *params, const void *observations, float *said)
{
    trp_net_forward(net, params,
                    &(trp_net_rows){.rows = BATCH, .inputs = {observations}, .outputs = {said}});
}

/* The loss and its gradient `dq`, as losses.h says it is used. */
static void lose(const trp_dqn_options *options, trp_net *net, const struct items *items,
                 const float *params, const float *target, bool masked, float *dq)
{
    float next_online[SAID], next_target[SAID], now_target[SAID], targets[SAID], errors[BATCH];
    float discounts[BATCH];
    for (size_t i = 0; i < BATCH; i++)
        discounts[i] = options->discount * items->discounts[i];
    trp_q_batch rows = {.rows = BATCH,
                        .actions = ACTIONS,
                        .taken = items->actions,
                        .rewards = items->rewards,
                        .discounts = discounts,
                        .next_mask = masked ? items->next_masks[0] : NULL,
                        .mask = masked ? items->masks[0] : NULL};
    trp_support support = {ATOMS, -3, 4};
    say(net, params, items->next_observations, next_online);
    say(net, target, items->next_observations, next_target);
    say(net, target, items->observations, now_target);
    say(net, params, items->observations, dq);
    if (options->loss == TRP_DQN_C51) {
        trp_c51_targets(&support, &rows, next_online, next_target, targets);
        trp_c51_loss(&support, &rows, dq, targets, errors, dq);
    } else if (options->loss == TRP_DQN_QUANTILE) {
        trp_quantile_targets(ATOMS, &rows, next_online, next_target, targets);
        trp_quantile_loss(ATOMS, &rows, 0.5F, dq, targets, errors, dq);
    } else {
        trp_munchausen_targets(
            &(trp_munchausen_options){.temperature = 0.1F, .scale = 0.5F, .least = -2}, &rows,
            now_target, next_target, targets);
        trp_q_loss(&rows, 0.5F, dq, targets, errors, dq);
    }
}

struct step {
    trp_dqn_loss loss;
    trp_precision precision;
    bool dueling, masked;
};

static void check_step(struct step step)
{
    trp_agent agent = trp_dqn(&(trp_dqn_options){.loss = step.loss,
                                                 .precision = step.precision,
                                                 .dueling = step.dueling,
                                                 .hidden = {8},
                                                 .atoms = ATOMS,
                                                 .value_least = -3,
                                                 .value_most = 4,
                                                 .quantiles = ATOMS,
                                                 .munchausen_temperature = 0.1F,
                                                 .munchausen_scale = 0.5F,
                                                 .munchausen_least = -2,
                                                 .huber_delta = 0.5F,
                                                 .optimizer = TRP_SGD,
                                                 .learning_rate = 1,
                                                 .max_gradient_norm = -1,
                                                 .priority_exponent = -1});
    trp_dqn_options options = dqn_options(&agent);
    const trp_env_spec *cartpole;
    trp_updater *updater;
    struct trp_update_run run;
    struct items items;
    items_fill(&items, step.masked);
    assert_int_equal(trp_env_find("CartPole-v1", &cartpole), TRP_OK);
    trp_env_spec env = *cartpole;
    env.masked = step.masked;
    assert_int_equal(
        agent.impl->updater(&agent, &env, &(trp_updater_options){.batch_size = BATCH}, &updater),
        TRP_OK);
    assert_int_equal(update_prepare(&run, updater, 3), TRP_OK);
    size_t count = updater->vectors[0].count;
    for (size_t i = 0; i < count; i++)
        run.values[1][i] *= 1 + 0.5F * (float)(i % 5); /* another network than the first */

    struct q_net q = dqn_net(&options);
    trp_net_spec spec = q_net_spec(&q, &env);
    trp_net *net;
    float dq[SAID], *want = trp_floats_create(count), *grads = trp_floats_create(count);
    assert_int_equal(
        trp_net_create(
            &net, &(trp_net_options){.spec = &spec, .batch = BATCH, .precision = step.precision}),
        TRP_OK);
    lose(&options, net, &items, run.values[0], run.values[1], step.masked, dq);
    trp_net_backward(
        net, run.values[0],
        &(trp_net_rows){.rows = BATCH, .inputs = {items.observations}, .outputs = {dq}},
        &(trp_net_grads){.outputs = {dq}, .params = grads});
    double moved = 0;
    for (size_t i = 0; i < count; i++) {
        want[i] = run.values[0][i] - grads[i];
        moved += (double)(grads[i] * grads[i]);
    }
    assert_true(moved > 1e-4);
    assert_int_equal(update_step(&run, 1, &items.batch), TRP_OK);
    for (size_t i = 0; i < count; i++)
        assert_float_equal(run.values[0][i], want[i], 1e-6);
    trp_net_destroy(net);
    trp_floats_destroy(want);
    trp_floats_destroy(grads);
    update_cleanup(&run);
    trp_updater_destroy(updater);
}

static void a_step_is_that_of_its_loss(void **state)
{
    (void)state;
    check_step((struct step){.loss = TRP_DQN_MUNCHAUSEN});
    check_step((struct step){.loss = TRP_DQN_MUNCHAUSEN, .masked = true});
    check_step((struct step){.loss = TRP_DQN_C51});
    check_step((struct step){.loss = TRP_DQN_C51, .dueling = true, .masked = true});
    check_step((struct step){.loss = TRP_DQN_QUANTILE});
    check_step((struct step){.loss = TRP_DQN_QUANTILE, .dueling = true});
    check_step((struct step){.loss = TRP_DQN_MUNCHAUSEN, .precision = TRP_BF16});
    check_step((struct step){.loss = TRP_DQN_QUANTILE, .precision = TRP_BF16});
}

/* An item needs it of its first state, whether the policy explored there or not. */
static void munchausen_has_the_masks_of_its_states_in_the_items(void **state)
{
    (void)state;
    enum { ROWS = 2 };
    static const bool masks[ROWS][ACTIONS] = {{true, false}, {true, true}};
    const trp_env_spec *cartpole;
    assert_int_equal(trp_env_find("CartPole-v1", &cartpole), TRP_OK);
    trp_env_spec env = *cartpole;
    env.masked = true;
    for (int epsilon = 0; epsilon < 2; epsilon++) {
        trp_dqn_options options = {.loss = TRP_DQN_MUNCHAUSEN,
                                   .epsilon_start = epsilon ? 1 : -1,
                                   .epsilon_end = epsilon ? 1 : -1};
        trp_agent agent = trp_dqn(&options);
        trp_policy *policy;
        trp_agent_table_list tables = {0};
        trp_rng rng;
        trp_rng_init(&rng, 2, 0);
        assert_int_equal(
            agent.impl->policy(&agent, &env, &(trp_policy_options){.rows = ROWS}, &policy), TRP_OK);
        assert_int_equal(policy->extras.count, 1);
        assert_string_equal(policy->extras.specs[0].name, "mask");
        bool written[ROWS][ACTIONS] = {{false}};
        int32_t actions[ROWS];
        float observations[ROWS][4] = {{0}};
        assert_int_equal(
            policy->impl->act(policy, &(trp_act){.rows = ROWS,
                                                 .observations = (const void *[]){observations},
                                                 .mask = masks[0],
                                                 .rng = &rng,
                                                 .actions = actions,
                                                 .extras = (void *[]){written}}),
            TRP_OK);
        assert_memory_equal(written, masks, sizeof masks);
        assert_int_equal(agent.impl->tables(&agent, &env, &tables), TRP_OK);
        char *text;
        assert_int_equal(trp_signature_format(tables.tables[0].signature, &text), TRP_OK);
        assert_non_null(strstr(text, " mask: bool[2]"));
        free(text);
        trp_agent_table_list_cleanup(&tables);
        trp_policy_destroy(policy);
    }
}

static void what_does_not_go_with_a_loss_is_refused_by_name(void **state)
{
    (void)state;
    static const struct {
        trp_dqn_options options;
        const char *words;
    } rows[] = {
        {{.loss = TRP_DQN_C51, .value_least = 20}, "value_least is 20, must be below value_most"},
        {{.loss = TRP_DQN_C51, .atoms = 1}, "atoms"},
        {{.munchausen_temperature = -1}, "munchausen_temperature"},
        {{.munchausen_least = 1}, "munchausen_least"},
        {{.loss = (trp_dqn_loss)4}, "loss"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        trp_agent agent = trp_dqn(&rows[i].options);
        assert_int_equal(trp_agent_check(&agent, "CartPole-v1"), TRP_INVALID_ARGUMENT);
        if (!strstr(trp_last_error(), rows[i].words))
            fail_msg("'%s' does not say '%s'", trp_last_error(), rows[i].words);
    }
}

int main(void)
{
    trp_log_set_level(TRP_ERROR);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_step_is_that_of_its_loss),
        cmocka_unit_test(munchausen_has_the_masks_of_its_states_in_the_items),
        cmocka_unit_test(what_does_not_go_with_a_loss_is_refused_by_name),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

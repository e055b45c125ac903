/* IMPALA's update by the formulas of its paper, worked out here in double: its forward pass through
 * a core that remembers, V-trace as the sums that define it, its gradient by differences of its
 * loss, its optimizer. */
#include <troupe/impala.h>
#include <troupe/log.h>
#include "unroll_paper.h"

/* ---- the paper, in double -------------------------------------------------------------------- */

struct paper {
    struct paper_net net;
    struct paper_adam adam;
    trp_impala_options options;
    double ratios[ALL], advantages[ALL], returns[ALL]; /* before the step */
    double numbers[6];                                 /* of the last loss, as named below */
};

enum { POLICY_LOSS, VALUE_LOSS, ENTROPY, RATIO, CLIPPED, DECISIONS, NUMBERS };
static const char *const names[NUMBERS] = {"policy_loss", "value_loss", "entropy",
                                           "ratio",       "clipped",    "decisions"};

/* The value of what a step led to, that is the next row's; 0 where the episode terminated. */
static double value_behind(const struct paper *paper, size_t row)
{
    return kinds[row / ROWS][row % ROWS] == 't' ? 0 : paper->net.values[row + 1];
}

/* Equation 1: the errors of the steps that follow, as long as the episode goes on in the item, each
 * cut off at rho_bar, times the product of the traces between, each cut off at c_bar. */
static double v_of(const struct paper *paper, size_t row)
{
    const float *rewards = items_column(paper->net.items, "reward");
    double gamma = (double)paper->options.discount, weight = 1, v = paper->net.values[row];
    for (size_t k = row; is_decision(k); k++) {
        double rho = fmin((double)paper->options.rho_bar, paper->ratios[k]);
        double c =
            (double)paper->options.lambda * fmin((double)paper->options.c_bar, paper->ratios[k]);
        v += weight * rho *
             ((double)rewards[k] + gamma * value_behind(paper, k) - paper->net.values[k]);
        if (kinds[k / ROWS][k % ROWS] == 't')
            break;
        weight *= gamma * c;
    }
    return v;
}

/* Of policies near the one that learns: ratios of probabilities are on both sides of 1. */
static void fill_log_probs(struct paper *paper, uint64_t seed)
{
    float *old_log_probs = items_column(paper->net.items, "log_prob");
    double log_prob, entropy;
    trp_rng rng;
    trp_rng_init(&rng, seed, 1);
    paper_forward(&paper->net);
    for (size_t row = 0; row < ALL; row++) {
        paper_judge(&paper->net, row, &log_prob, &entropy);
        if (is_decision(row))
            old_log_probs[row] = (float)(log_prob + trp_rng_double(&rng) - 0.5);
    }
}

/* Section 4.2: q_s = r + gamma v_{s+1}, less the value, times the ratio cut off. */
static void look_back(struct paper *paper)
{
    const float *rewards = items_column(paper->net.items, "reward");
    const float *old_log_probs = items_column(paper->net.items, "log_prob");
    double log_prob, entropy, bar = (double)paper->options.policy_rho_bar;
    paper_forward(&paper->net);
    for (size_t row = 0; row < ALL; row++)
        if (is_decision(row)) {
            paper_judge(&paper->net, row, &log_prob, &entropy);
            paper->ratios[row] = exp(log_prob - (double)old_log_probs[row]);
        }
    for (size_t row = 0; row < ALL; row++) {
        if (!is_decision(row))
            continue;
        bool ends = kinds[row / ROWS][row % ROWS] == 't';
        double next = ends ? 0 : v_of(paper, row + 1);
        paper->returns[row] = v_of(paper, row);
        paper->advantages[row] = fmin(bar, paper->ratios[row]) *
                                 ((double)rewards[row] + (double)paper->options.discount * next -
                                  paper->net.values[row]);
    }
}

static double batch_loss(void *context)
{
    struct paper *paper = context;
    double *numbers = paper->numbers, n = (double)decision_count(), log_prob, entropy;
    memset(numbers, 0, sizeof paper->numbers);
    paper_forward(&paper->net);
    for (size_t row = 0; row < ALL; row++) {
        if (!is_decision(row))
            continue;
        paper_judge(&paper->net, row, &log_prob, &entropy);
        numbers[POLICY_LOSS] -=
            (paper->advantages[row] * log_prob + (double)paper->options.entropy_weight * entropy) /
            n;
        numbers[VALUE_LOSS] += pow(paper->returns[row] - paper->net.values[row], 2) / 2 / n;
        numbers[ENTROPY] += entropy / n;
        numbers[RATIO] += paper->ratios[row] / n;
        numbers[CLIPPED] += (paper->ratios[row] > (double)paper->options.rho_bar) / n;
        numbers[DECISIONS]++;
    }
    return numbers[POLICY_LOSS] + (double)paper->options.value_weight * numbers[VALUE_LOSS];
}

/* Some ratios are beyond every bar, and some are not: each is at work. */
static void assert_bars_cut_some(const struct paper *paper)
{
    const float bars[] = {paper->options.rho_bar, paper->options.c_bar,
                          paper->options.policy_rho_bar};
    for (size_t i = 0; i < 3; i++) {
        size_t above = 0;
        for (size_t row = 0; row < ALL; row++)
            above += is_decision(row) && paper->ratios[row] > (double)bars[i];
        assert_in_range(above, 1, decision_count() - 1);
    }
}

static void rmsprop_inside(struct paper *paper, const double *grads)
{
    for (size_t i = 0; i < paper->net.study->count; i++) {
        double *mean = &paper->adam.v[i], *velocity = &paper->adam.m[i];
        *mean = 0.9 * *mean + 0.1 * grads[i] * grads[i];
        *velocity =
            0.5 * *velocity + grads[i] / sqrt(*mean + (double)paper->options.optimizer_epsilon);
        paper->net.params[i] -= (double)paper->options.learning_rate * *velocity;
    }
}

static void paper_step(struct paper *paper, uint64_t step)
{
    const trp_impala_options *options = &paper->options;
    double rate = (double)options->learning_rate, span = (double)options->schedule_steps;
    if (span > 0)
        rate += ((double)options->final_learning_rate - rate) * (double)(step - 1) / span;
    fill_log_probs(paper, step);
    look_back(paper);
    assert_bars_cut_some(paper);
    double *grads =
        paper_gradient(&paper->net, batch_loss, paper, (double)paper->options.max_gradient_norm);
    if (options->optimizer == TRP_RMSPROP)
        rmsprop_inside(paper, grads);
    else
        paper_adam_step(&paper->adam, &paper->net, grads, rate);
    free(grads);
}

static void assert_steps(trp_action_kind kind, bool masked, trp_impala_options options)
{
    trp_env_spec env = env_of(kind, masked);
    options.hidden[0] = HIDDEN;
    options.unroll = UNROLL;
    options.core_size = CORE;
    options.learning_rate = 0.02F;
    if (options.optimizer_epsilon == 0)
        options.optimizer_epsilon = 1e-2F; /* smooth: gradients differ in their last bits */
    trp_agent agent = trp_impala(&options);
    if (agent.impl->check(&agent, &env) != TRP_OK)
        fail_msg("%s", trp_last_error());
    struct study *study = study_create(&agent, &env, BATCH, 3);
    struct items *items = items_create(&study->updater->sources[0], BATCH);
    struct paper paper = {.net = {.env = &env, .items = items, .study = study}};
    memcpy(&paper.options, agent.options.bytes, sizeof paper.options);
    paper.net.separate = options.separate;
    paper.net.core = options.core == TRP_CORE_LSTM;
    paper.adam = (struct paper_adam){.beta1 = (double)paper.options.adam_beta1,
                                     .beta2 = (double)paper.options.adam_beta2,
                                     .epsilon = (double)options.optimizer_epsilon};
    paper_begin(&paper.net, &paper.adam);
    for (uint64_t step = 1; step <= 2; step++) {
        items_fill(items, &env, step);
        paper_step(&paper, step);
        if (study_step(study, &items->batch) != TRP_OK)
            fail_msg("%s", trp_last_error());
        for (size_t k = 0; k < NUMBERS; k++)
            assert_float_equal(study_reported(study, names[k]), paper.numbers[k], 2e-5);
        for (size_t i = 0; i < study->count; i++)
            assert_float_equal(study->params[i], paper.net.params[i], 2e-5);
    }
    paper_end(&paper.net, &paper.adam);
    items_destroy(items);
    study_destroy(study);
}

/* ---- tests ----------------------------------------------------------------------------------- */

static void steps_are_those_of_the_formulas(void **state)
{
    (void)state;
    static const trp_impala_options rows[] = {
        {0},
        {.rho_bar = 1.2F, .c_bar = 0.9F, .policy_rho_bar = 1.05F},
        {.rho_bar = 1.2F, .c_bar = 1.1F, .policy_rho_bar = 0.8F, .lambda = 0.6F},
        {.separate = true},
        {.discount = 0.5F},
        {.entropy_weight = -1},
        {.entropy_weight = 0.3F, .value_weight = 2},
        {.max_gradient_norm = -1},
        {.max_gradient_norm = 0.05F, .optimizer_epsilon = 0.1F},
        {.adam_beta1 = 0.8F, .adam_beta2 = 0.95F},
        {.schedule_steps = 4, .final_learning_rate = 0.002F},
        {.optimizer = TRP_RMSPROP,
         .rmsprop_alpha = 0.9F,
         .momentum = 0.5F,
         .optimizer_epsilon = 0.1F,
         .rmsprop_epsilon_inside = true},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        assert_steps(TRP_ACTION_DISCRETE, false, rows[i]);
}

static void steps_of_every_kind_of_action_are_those_of_the_formulas(void **state)
{
    (void)state;
    const trp_impala_options options = {.entropy_weight = 0.1F};
    assert_steps(TRP_ACTION_DISCRETE, true, options);
    assert_steps(TRP_ACTION_MULTI_DISCRETE, false, options);
    assert_steps(TRP_ACTION_BOX, false, options);
}

/* From the state that came with the item, and from none where an episode begins in it. */
static void steps_of_what_remembers_are_those_of_the_formulas(void **state)
{
    (void)state;
    const trp_impala_options options = {.core = TRP_CORE_LSTM, .entropy_weight = 0.1F};
    assert_steps(TRP_ACTION_DISCRETE, false, options);
    assert_steps(TRP_ACTION_DISCRETE, true, options);
    assert_steps(TRP_ACTION_MULTI_DISCRETE, false, options);
}

/* One agent with everything, for what follows. */
static struct study *some_study(const trp_env_spec *env, uint64_t seed)
{
    trp_agent agent = trp_impala(&(trp_impala_options){.hidden = {HIDDEN},
                                                       .core = TRP_CORE_GRU,
                                                       .core_size = 2 * CORE,
                                                       .unroll = UNROLL,
                                                       .schedule_steps = 100,
                                                       .optimizer = TRP_RMSPROP,
                                                       .momentum = 0.5F});
    return study_create(&agent, env, BATCH, seed);
}

static void learning_goes_on_after_a_checkpoint_bit_for_bit(void **state)
{
    (void)state;
    assert_resumes(some_study);
}

static void the_lag_is_how_many_versions_were_published_since(void **state)
{
    (void)state;
    static const uint64_t versions[BATCH] = {7, 10, 4};
    trp_env_spec env = env_of(TRP_ACTION_DISCRETE, false);
    struct study *study = some_study(&env, 3);
    struct items *items = items_create(&study->updater->sources[0], BATCH);
    items_fill(items, &env, 1);
    memcpy((void *)(uintptr_t)items->batch.policy_versions, versions, sizeof versions);
    study->run.version = 10;
    assert_int_equal(study_step(study, &items->batch), TRP_OK);
    assert_float_equal(study_reported(study, "lag"), 3, 0);
    items_destroy(items);
    study_destroy(study);
}

static void a_batch_that_is_too_large_is_refused(void **state)
{
    (void)state; /* the learner's batch_size stands in for the agent's, which was checked */
    trp_env_spec env = env_of(TRP_ACTION_DISCRETE, false);
    trp_agent agent = trp_impala(&(trp_impala_options){.hidden = {HIDDEN}, .unroll = 4095});
    study_assert_too_large(&agent, &env, 1 << 20,
                           "impala: unroll 4095 times batch_size 1048576 are more steps than");
}

static void batches_from_a_broken_peer_are_refused(void **state)
{
    (void)state;
    trp_env_spec env = env_of(TRP_ACTION_DISCRETE, true);
    struct study *study = some_study(&env, 3);
    struct items *items = items_create(&study->updater->sources[0], BATCH);
    const int32_t wrong[] = {-1, 3, INT32_MAX, INT32_MIN};
    int32_t *actions = items_column(items, "action");
    for (size_t i = 0; i < 4; i++) {
        items_fill(items, &env, 1);
        actions[ROWS + 2] = wrong[i];
        assert_int_equal(study_step(study, &items->batch), TRP_DATA_LOSS);
        assert_non_null(strstr(trp_last_error(), "impala: item 101 has action"));
    }
    static const char *const flags[] = {"valid", "first", "mask"};
    for (size_t i = 0; i < 3; i++) {
        items_fill(items, &env, 1);
        ((uint8_t *)items_column(items, flags[i]))[4] = 2;
        assert_int_equal(study_step(study, &items->batch), TRP_DATA_LOSS);
        assert_non_null(strstr(trp_last_error(), flags[i]));
    }
    items_fill(items, &env, 1);
    memset(items_column(items, "mask"), 0, 3);
    assert_int_equal(study_step(study, &items->batch), TRP_DATA_LOSS);
    items_destroy(items);
    study_destroy(study);
}

static void what_is_not_finite_ends_the_run_and_is_not_applied(void **state)
{
    (void)state;
    static const char *const columns[] = {"reward", "observation", "log_prob", "core"};
    trp_env_spec env = env_of(TRP_ACTION_DISCRETE, false);
    for (size_t i = 0; i < 4; i++) {
        struct study *study = some_study(&env, 3);
        struct items *items = items_create(&study->updater->sources[0], BATCH);
        items_fill(items, &env, 1);
        ((float *)items_column(items, columns[i]))[0] = NAN;
        study_assert_refuses_nan(study, items, columns[i]);
        items_destroy(items);
        study_destroy(study);
    }
    assert_nan_in_params_is_refused(some_study);
}

static void a_batch_without_decisions_changes_nothing(void **state)
{
    (void)state;
    trp_env_spec env = env_of(TRP_ACTION_DISCRETE, true);
    struct study *study = some_study(&env, 3);
    struct items *items = items_create(&study->updater->sources[0], BATCH);
    float *before = trp_floats_create(study->count);
    memcpy(before, study->params, study->count * sizeof *before);
    assert_int_equal(study_step(study, &items->batch), TRP_OK);
    assert_memory_equal(study->params, before, study->count * sizeof *before);
    assert_float_equal(study_reported(study, "decisions"), 0, 0);
    trp_floats_destroy(before);
    items_destroy(items);
    study_destroy(study);
}

int main(void)
{
    trp_log_set_level(TRP_ERROR);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(steps_are_those_of_the_formulas),
        cmocka_unit_test(steps_of_every_kind_of_action_are_those_of_the_formulas),
        cmocka_unit_test(steps_of_what_remembers_are_those_of_the_formulas),
        cmocka_unit_test(learning_goes_on_after_a_checkpoint_bit_for_bit),
        cmocka_unit_test(the_lag_is_how_many_versions_were_published_since),
        cmocka_unit_test(a_batch_that_is_too_large_is_refused),
        cmocka_unit_test(batches_from_a_broken_peer_are_refused),
        cmocka_unit_test(what_is_not_finite_ends_the_run_and_is_not_applied),
        cmocka_unit_test(a_batch_without_decisions_changes_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* A3C's update by the formulas of its paper, worked out here in double: its forward pass, returns
 * of as many steps as follow in the sequence, its gradient by differences of its loss, shared
 * RMSProp.
 */
#include <troupe/a3c.h>
#include <troupe/log.h>
#include "unroll_paper.h"

/* ---- the paper, in double -------------------------------------------------------------------- */

struct paper {
    struct paper_net net;
    struct paper_adam adam; /* v: RMSProp's s */
    trp_a3c_options options;
    double returns[ALL], advantages[ALL]; /* before the step */
    double numbers[4];                    /* of the last loss, as named below */
};

enum { POLICY_LOSS, VALUE_LOSS, ENTROPY, DECISIONS, NUMBERS };
static const char *const names[NUMBERS] = {"policy_loss", "value_loss", "entropy", "decisions"};

/* Algorithm S3: R is 0 behind a terminated step, the value where the steps stop, and r + gamma R
 * from there back. */
static double return_of(const struct paper *paper, size_t row)
{
    const float *rewards = items_column(paper->net.items, "reward");
    if (!is_decision(row))
        return paper->net.values[row];
    double next = kinds[row / ROWS][row % ROWS] == 't' ? 0 : return_of(paper, row + 1);
    return (double)rewards[row] + (double)paper->options.discount * next;
}

static void look_back(struct paper *paper)
{
    paper_forward(&paper->net);
    for (size_t row = 0; row < ALL; row++) {
        paper->returns[row] = return_of(paper, row);
        paper->advantages[row] = paper->returns[row] - paper->net.values[row];
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
        numbers[DECISIONS]++;
    }
    return numbers[POLICY_LOSS] + (double)paper->options.value_weight * numbers[VALUE_LOSS];
}

/* Equations S2 and S3: g = alpha g + (1 - alpha) d^2, and d / sqrt(g + epsilon). */
static void rmsprop_step(struct paper *paper, const double *grads, double rate)
{
    double alpha = (double)paper->options.rmsprop_alpha;
    for (size_t i = 0; i < paper->net.study->count; i++) {
        double *square = &paper->adam.v[i];
        *square = alpha * *square + (1 - alpha) * grads[i] * grads[i];
        paper->net.params[i] -=
            rate * grads[i] / sqrt(*square + (double)paper->options.optimizer_epsilon);
    }
}

static void paper_step(struct paper *paper, uint64_t step)
{
    const trp_a3c_options *options = &paper->options;
    double rate = (double)options->learning_rate, span = (double)options->schedule_steps;
    if (span > 0)
        rate += ((double)options->final_learning_rate - rate) * (double)(step - 1) / span;
    look_back(paper);
    double *grads =
        paper_gradient(&paper->net, batch_loss, paper, (double)options->max_gradient_norm);
    if (options->adam)
        paper_adam_step(&paper->adam, &paper->net, grads, rate);
    else
        rmsprop_step(paper, grads, rate);
    free(grads);
}

static void assert_steps(trp_action_kind kind, bool masked, trp_a3c_options options)
{
    trp_env_spec env = env_of(kind, masked);
    options.hidden[0] = HIDDEN;
    options.unroll = UNROLL;
    options.core_size = CORE;
    options.learning_rate = 0.02F;
    if (options.optimizer_epsilon == 0)
        options.optimizer_epsilon = 1e-2F; /* smooth: gradients differ in their last bits */
    trp_agent agent = trp_a3c(&options);
    if (agent.impl->check(&agent, &env) != TRP_OK)
        fail_msg("%s", trp_last_error());
    struct study *study = study_create(&agent, &env, BATCH, 3);
    struct items *items = items_create(&study->updater->sources[0], BATCH);
    struct paper paper = {.net = {.env = &env, .items = items, .study = study}};
    memcpy(&paper.options, agent.options.bytes, sizeof paper.options);
    paper.net.separate = options.separate;
    paper.net.core = options.core == TRP_CORE_LSTM;
    paper.adam = (struct paper_adam){
        .beta1 = 0.9, .beta2 = 0.999, .epsilon = (double)options.optimizer_epsilon};
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
    static const trp_a3c_options rows[] = {
        {0},
        {.separate = true},
        {.discount = 0.5F},
        {.entropy_weight = -1},
        {.entropy_weight = 0.3F, .value_weight = 2},
        {.max_gradient_norm = -1},
        {.max_gradient_norm = 0.05F, .optimizer_epsilon = 0.1F},
        {.rmsprop_alpha = 0.7F},
        {.schedule_steps = 4, .final_learning_rate = 0.002F},
        {.adam = true},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        assert_steps(TRP_ACTION_DISCRETE, false, rows[i]);
}

static void steps_of_every_kind_of_action_are_those_of_the_formulas(void **state)
{
    (void)state;
    const trp_a3c_options options = {.entropy_weight = 0.1F};
    assert_steps(TRP_ACTION_DISCRETE, true, options);
    assert_steps(TRP_ACTION_MULTI_DISCRETE, false, options);
    assert_steps(TRP_ACTION_BOX, false, options);
}

/* From the state that came with the item, and from none where an episode begins in it. */
static void steps_of_what_remembers_are_those_of_the_formulas(void **state)
{
    (void)state;
    const trp_a3c_options options = {.core = TRP_CORE_LSTM, .entropy_weight = 0.1F};
    assert_steps(TRP_ACTION_DISCRETE, false, options);
    assert_steps(TRP_ACTION_MULTI_DISCRETE, false, options);
}

static struct study *some_study(const trp_env_spec *env, uint64_t seed)
{
    trp_agent agent = trp_a3c(&(trp_a3c_options){
        .hidden = {HIDDEN}, .unroll = UNROLL, .core = TRP_CORE_GRU, .schedule_steps = 100});
    return study_create(&agent, env, BATCH, seed);
}

static void learning_goes_on_after_a_checkpoint_bit_for_bit(void **state)
{
    (void)state;
    assert_resumes(some_study);
}

static void batches_from_a_broken_peer_are_refused(void **state)
{
    (void)state;
    trp_env_spec env = env_of(TRP_ACTION_DISCRETE, true);
    struct study *study = some_study(&env, 3);
    struct items *items = items_create(&study->updater->sources[0], BATCH);
    items_fill(items, &env, 1);
    ((int32_t *)items_column(items, "action"))[ROWS + 2] = 3;
    assert_int_equal(study_step(study, &items->batch), TRP_DATA_LOSS);
    assert_non_null(strstr(trp_last_error(), "a3c: item 101 has action"));
    items_fill(items, &env, 1);
    ((uint8_t *)items_column(items, "valid"))[4] = 2;
    assert_int_equal(study_step(study, &items->batch), TRP_DATA_LOSS);
    items_destroy(items);
    study_destroy(study);
}

static void what_is_not_finite_ends_the_run_and_is_not_applied(void **state)
{
    (void)state;
    trp_env_spec env = env_of(TRP_ACTION_DISCRETE, false);
    struct study *study = some_study(&env, 3);
    struct items *items = items_create(&study->updater->sources[0], BATCH);
    float *before = trp_floats_create(study->count);
    memcpy(before, study->params, study->count * sizeof *before);
    items_fill(items, &env, 1);
    ((float *)items_column(items, "reward"))[0] = NAN;
    assert_int_equal(study_step(study, &items->batch), TRP_INTERNAL);
    assert_non_null(strstr(trp_last_error(), "the loss of step 1 is"));
    assert_memory_equal(study->params, before, study->count * sizeof *before);
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
        cmocka_unit_test(batches_from_a_broken_peer_are_refused),
        cmocka_unit_test(what_is_not_finite_ends_the_run_and_is_not_applied),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* PPO's update by the formulas of its papers, worked out here in double: its forward pass, its
 * gradient by differences of its loss, its optimizer. */
#include <math.h>

#include <troupe/log.h>
#include <troupe/ppo.h>
#include "unroll_paper.h"

/* ---- the paper, in double -------------------------------------------------------------------- */

struct paper {
    struct paper_net net;
    struct paper_adam adam;
    trp_ppo_options options;
    double advantages[ALL], returns[ALL], values[ALL]; /* before the epochs */
    const size_t *rows;                                /* of the minibatch */
    size_t count;
    double left;                                                  /* of the clips */
    double policy_loss, value_loss, entropy, divergence, clipped; /* of the last loss */
};

/* Equation 11 of the paper with truncation: the sum goes on while steps follow in the item. */
static void find_advantages(struct paper *paper)
{
    const float *rewards = items_column(paper->net.items, "reward");
    double gamma = (double)paper->options.discount, lambda = (double)paper->options.gae_lambda;
    paper_forward(&paper->net);
    memcpy(paper->values, paper->net.values, sizeof paper->values);
    for (size_t item = 0; item < BATCH; item++)
        for (size_t t = 0; t < UNROLL; t++) {
            double weight = 1;
            paper->advantages[item * ROWS + t] = 0;
            for (size_t k = t; k < UNROLL && kinds[item][k] != 'f'; k++) {
                size_t row = item * ROWS + k;
                bool ends = kinds[item][k] == 't';
                double next = ends ? 0 : paper->values[row + 1];
                paper->advantages[item * ROWS + t] +=
                    weight * ((double)rewards[row] + gamma * next - paper->values[row]);
                weight *= ends ? 0 : gamma * lambda;
            }
            paper->returns[item * ROWS + t] =
                paper->advantages[item * ROWS + t] + paper->values[item * ROWS + t];
        }
}

static double clamp(double x, double lo, double hi)
{
    return x < lo ? lo : x > hi ? hi : x;
}

static double minibatch_loss(void *context)
{
    struct paper *paper = context;
    const float *old_log_probs = items_column(paper->net.items, "log_prob");
    const size_t *rows = paper->rows, count = paper->count;
    double mean = 0, square = 0, clip = paper->left * (double)paper->options.clip;
    double value_clip = paper->left * (double)paper->options.value_clip, n = (double)count;
    paper_forward(&paper->net);
    for (size_t i = 0; i < count; i++)
        mean += paper->advantages[rows[i]] / n;
    for (size_t i = 0; i < count; i++)
        square += pow(paper->advantages[rows[i]] - mean, 2) / n;
    paper->policy_loss = paper->value_loss = paper->entropy = 0;
    paper->divergence = paper->clipped = 0;
    for (size_t i = 0; i < count; i++) {
        size_t row = rows[i];
        double log_prob, entropy, value = paper->net.values[row];
        double advantage = paper->options.raw_advantages
                               ? paper->advantages[row]
                               : (paper->advantages[row] - mean) / (sqrt(square) + 1e-8);
        paper_judge(&paper->net, row, &log_prob, &entropy);
        double log_ratio = log_prob - (double)old_log_probs[row], ratio = exp(log_ratio);
        double pays = fmin(ratio * advantage, clamp(ratio, 1 - clip, 1 + clip) * advantage);
        double old = paper->values[row], target = paper->returns[row];
        double error = pow(target - value, 2);
        if (value_clip > 0)
            error = fmax(error, pow(target - old - clamp(value - old, -value_clip, value_clip), 2));
        paper->policy_loss -= (pays + (double)paper->options.entropy_weight * entropy) / n;
        paper->value_loss += error / 2 / n;
        paper->entropy += entropy / n;
        paper->divergence += (ratio - 1 - log_ratio) / n;
        paper->clipped += (fabs(ratio - 1) > clip) / n;
    }
    return paper->policy_loss + (double)paper->options.value_weight * paper->value_loss;
}

/* Epochs of shuffled minibatches, drawn as the updater draws them; returns how many phases. */
static size_t paper_step(struct paper *paper, trp_rng rng, double rate, double sums[5])
{
    size_t rows[ALL], count = 0, parts = paper->options.minibatches, phases = 0;
    find_advantages(paper);
    memset(sums, 0, 5 * sizeof *sums);
    for (size_t row = 0; row < ALL; row++)
        if (is_decision(row))
            rows[count++] = row;
    for (size_t epoch = 0; epoch < paper->options.epochs; epoch++) {
        for (size_t i = count; i > 1; i--) {
            size_t other = trp_rng_below(&rng, i), kept = rows[i - 1];
            rows[i - 1] = rows[other], rows[other] = kept;
        }
        for (size_t i = 0; i < parts; i++, phases++) {
            size_t lo = count * i / parts, hi = count * (i + 1) / parts;
            paper->rows = rows + lo, paper->count = hi - lo;
            double *grads = paper_gradient(&paper->net, minibatch_loss, paper,
                                           (double)paper->options.max_gradient_norm);
            paper_adam_step(&paper->adam, &paper->net, grads, rate);
            free(grads);
            double numbers[] = {paper->policy_loss, paper->value_loss, paper->entropy,
                                paper->divergence, paper->clipped};
            for (size_t k = 0; k < 5; k++)
                sums[k] += numbers[k];
        }
    }
    return phases;
}

static void assert_steps(trp_action_kind kind, bool masked, trp_ppo_options options)
{
    static const char *const names[] = {"policy_loss", "value_loss", "entropy", "divergence",
                                        "clipped"};
    trp_env_spec env = env_of(kind, masked);
    options.hidden[0] = HIDDEN;
    options.unroll = UNROLL;
    if (options.adam_epsilon == 0)
        options.adam_epsilon = 1e-2F; /* smooth: gradients differ in their last bits */
    if (options.learning_rate == 0)
        options.learning_rate = 0.02F;
    trp_agent agent = trp_ppo(&options);
    struct study *study = study_create(&agent, &env, BATCH, 3);
    struct items *items = items_create(&study->updater->sources[0], BATCH);
    struct paper paper = {.net = {.env = &env, .items = items, .study = study}};
    memcpy(&paper.options, agent.options.bytes, sizeof paper.options);
    paper.net.separate = !options.shared;
    paper.adam = (struct paper_adam){
        .beta1 = 0.9, .beta2 = 0.999, .epsilon = (double)paper.options.adam_epsilon};
    paper_begin(&paper.net, &paper.adam);
    for (uint64_t step = 1; step <= 2; step++) {
        double sums[5], span = (double)paper.options.schedule_steps;
        paper.left = paper.options.anneal_clip ? 1 - (double)(step - 1) / span : 1;
        items_fill(items, &env, step);
        trp_rng rng = study->run.rng;
        size_t phases = paper_step(&paper, rng, (double)options.learning_rate, sums);
        if (study_step(study, &items->batch) != TRP_OK)
            fail_msg("%s", trp_last_error());
        assert_float_equal(study_reported(study, "phases"), phases, 0);
        for (size_t k = 0; k < 5; k++)
            assert_float_equal(study_reported(study, names[k]), sums[k] / (double)phases, 2e-5);
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
    static const trp_ppo_options rows[] = {
        {.minibatches = 1, .epochs = 1},
        {.minibatches = 2, .epochs = 2},
        {.minibatches = 1, .epochs = 2, .shared = true},
        {.minibatches = 1, .epochs = 2, .value_clip = -1},
        {.minibatches = 1, .epochs = 2, .value_clip = 0.01F, .clip = 0.05F},
        {.minibatches = 1, .epochs = 1, .entropy_weight = -1},
        {.minibatches = 1, .epochs = 1, .entropy_weight = 0.3F, .value_weight = 2},
        {.minibatches = 1, .epochs = 1, .raw_advantages = true},
        {.minibatches = 1, .epochs = 1, .discount = 0.5F, .raw_advantages = true},
        {.minibatches = 1, .epochs = 1, .gae_lambda = 0.3F, .raw_advantages = true},
        {.minibatches = 1, .epochs = 1, .gae_lambda = -1, .raw_advantages = true},
        {.minibatches = 1, .epochs = 1, .max_gradient_norm = -1},
        {.minibatches = 1, .epochs = 1, .max_gradient_norm = 0.05F, .adam_epsilon = 0.1F},
        {.minibatches = 1,
         .epochs = 2,
         .anneal_clip = true,
         .schedule_steps = 4,
         .rate_schedule = TRP_RATE_LINEAR,
         .final_learning_rate = 0.02F},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        assert_steps(TRP_ACTION_DISCRETE, false, rows[i]);
}

static void steps_of_every_kind_of_action_are_those_of_the_formulas(void **state)
{
    (void)state;
    const trp_ppo_options options = {.minibatches = 2, .epochs = 2, .entropy_weight = 0.1F};
    assert_steps(TRP_ACTION_DISCRETE, true, options);
    assert_steps(TRP_ACTION_MULTI_DISCRETE, false, options);
    assert_steps(TRP_ACTION_BOX, false, options);
}

/* One agent with everything, for what follows. */
static struct study *some_study(const trp_env_spec *env, uint64_t seed)
{
    trp_agent agent = trp_ppo(&(trp_ppo_options){
        .hidden = {HIDDEN}, .unroll = UNROLL, .schedule_steps = 100, .anneal_clip = true});
    return study_create(&agent, env, BATCH, seed);
}

static void learning_goes_on_after_a_checkpoint_bit_for_bit(void **state)
{
    (void)state;
    assert_resumes(some_study);
}

static double phases_with(float target_kl)
{
    trp_env_spec env = env_of(TRP_ACTION_DISCRETE, false);
    trp_agent agent = trp_ppo(&(trp_ppo_options){.hidden = {HIDDEN},
                                                 .unroll = UNROLL,
                                                 .epochs = 5,
                                                 .minibatches = 2,
                                                 .target_kl = target_kl});
    struct study *study = study_create(&agent, &env, BATCH, 3);
    struct items *items = items_create(&study->updater->sources[0], BATCH);
    items_fill(items, &env, 1);
    assert_int_equal(study_step(study, &items->batch), TRP_OK);
    double phases = study_reported(study, "phases");
    items_destroy(items);
    study_destroy(study);
    return phases;
}

static void epochs_end_where_the_policy_has_gone_too_far(void **state)
{
    (void)state;
    assert_float_equal(phases_with(0), 10, 0);
    assert_float_equal(phases_with(1e5F), 10, 0);
    assert_float_equal(phases_with(1e-6F), 2, 0); /* the batch is of another policy */
}

static void the_rate_falls_within_so_many_updates(void **state)
{
    (void)state;
    trp_env_spec env = env_of(TRP_ACTION_DISCRETE, false);
    trp_agent agent =
        trp_ppo(&(trp_ppo_options){.schedule_steps = 100, .epochs = 3, .minibatches = 5});
    struct study *study = study_create(&agent, &env, BATCH, 3);
    const trp_optimizer *optimizer = &study->updater->vectors[0].optimizer;
    assert_int_equal(optimizer->schedule, TRP_RATE_LINEAR);
    assert_float_equal(trp_optimizer_rate(optimizer, 1), 2.5e-4, 1e-6);
    assert_float_equal(trp_optimizer_rate(optimizer, 750), 1.25e-4, 1e-6);
    assert_float_equal(trp_optimizer_rate(optimizer, 1501), 0, 1e-9);
    study_destroy(study);
}

static void a_batch_that_is_too_large_is_refused(void **state)
{
    (void)state; /* the learner's batch_size stands in for the agent's, which was checked */
    trp_env_spec env = env_of(TRP_ACTION_DISCRETE, false);
    trp_agent agent = trp_ppo(&(trp_ppo_options){.hidden = {HIDDEN}, .unroll = 4095});
    study_assert_too_large(&agent, &env, 1 << 20,
                           "ppo: unroll 4095 times batch_size 1048576 are more steps than");
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
        assert_non_null(strstr(trp_last_error(), "ppo: item 101 has action"));
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
    static const char *const columns[] = {"reward", "observation", "log_prob"};
    trp_env_spec env = env_of(TRP_ACTION_DISCRETE, false);
    for (size_t i = 0; i < 3; i++) {
        struct study *study = some_study(&env, 3);
        struct items *items = items_create(&study->updater->sources[0], BATCH);
        items_fill(items, &env, 1);
        float *column = items_column(items, columns[i]);
        for (size_t k = 0; k < ALL; k++)
            column[k] = NAN;
        study_assert_refuses_nan(study, items, columns[i]);
        items_destroy(items);
        study_destroy(study);
    }
    assert_nan_in_params_is_refused(some_study);
}

static void a_batch_without_decisions_changes_nothing(void **state)
{
    (void)state;
    trp_env_spec env = env_of(TRP_ACTION_DISCRETE, false);
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
        cmocka_unit_test(learning_goes_on_after_a_checkpoint_bit_for_bit),
        cmocka_unit_test(epochs_end_where_the_policy_has_gone_too_far),
        cmocka_unit_test(the_rate_falls_within_so_many_updates),
        cmocka_unit_test(a_batch_that_is_too_large_is_refused),
        cmocka_unit_test(batches_from_a_broken_peer_are_refused),
        cmocka_unit_test(what_is_not_finite_ends_the_run_and_is_not_applied),
        cmocka_unit_test(a_batch_without_decisions_changes_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

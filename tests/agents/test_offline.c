/* What BC, IQL and CRR learn of stored transitions, by the formulas of their papers, worked out
 * here in double; what they cannot learn. */
#include <troupe/bc.h>
#include <troupe/crr.h>
#include <troupe/iql.h>
#include <troupe/log.h>
#include "paper.h"

static const double gamma_ = 0.9, tau = 0.1, expectile = 0.8, beta = 2, temperature = 0.4;
static const double rate = 0.03, critic_rate = 0.02;
static const double most_log_std = 2, weight_most = 100, crr_most = 20;
enum { SAMPLES = 3 };

static const struct paper_net policy_shape = {
    .inputs = PAPER_STATE, .hidden = 4, .outputs = 2 * PAPER_ACTION};
static const char *const policy_heads[] = {"mean", "log_std", NULL};
static const struct paper_net value_shape = {.inputs = PAPER_STATE, .hidden = 4, .outputs = 1};
static const char *const value_heads[] = {"value.head", NULL};

static trp_agent bc(void)
{
    return trp_bc(
        &(trp_bc_options){.hidden = {4}, .activation = TRP_TANH, .learning_rate = (float)rate});
}

static trp_agent iql(void)
{
    return trp_iql(&(trp_iql_options){.hidden = {4},
                                      .activation = TRP_TANH,
                                      .discount = (float)gamma_,
                                      .expectile = (float)expectile,
                                      .beta = (float)beta,
                                      .learning_rate = (float)rate,
                                      .target_rate = (float)tau});
}

static trp_agent crr(bool twin, bool max, bool binary)
{
    return trp_crr(&(trp_crr_options){.hidden = {4},
                                      .activation = TRP_TANH,
                                      .discount = (float)gamma_,
                                      .critics = twin ? 2 : 1,
                                      .samples = SAMPLES,
                                      .max = max,
                                      .binary = binary,
                                      .temperature = (float)temperature,
                                      .learning_rate = (float)rate,
                                      .critic_learning_rate = (float)critic_rate,
                                      .target_period = 2});
}

static struct study *begin(trp_agent agent)
{
    struct study *study = study_create(&agent, &paper_env, PAPER_ROWS, 3);
    paper_shake(study, "params", "params", 6, 0.5F);
    return study;
}

static struct items *filled(const struct study *study, uint64_t seed)
{
    struct items *items = items_create(&study->updater->sources[0], PAPER_ROWS);
    paper_fill(items, seed);
    return items;
}

/* ---- policies -------------------------------------------------------------------------------- */

static struct paper_net policy_of(const struct study *study, const float *flat)
{
    const trp_vector_spec *params = &study->updater->vectors[paper_vector(study, "params")];
    return paper_read(params, flat, "body", policy_heads, &policy_shape);
}

static void say(const struct paper_net *net, const float *states, size_t row,
                struct paper_pass *pass)
{
    for (size_t i = 0; i < PAPER_STATE; i++)
        pass->x[i] = (double)states[row * PAPER_STATE + i];
    paper_forward(net, pass);
}

/* The log-density of what was done; the gradient of -weight times it, a mean's part, is added. */
static double clone(const struct paper_net *policy, const struct items *items, size_t row,
                    double weight, struct paper_net *grads)
{
    struct paper_pass pass;
    double log_prob = 0, dy[PAPER_OUTPUTS_MAX];
    say(policy, items_column(items, "observation"), row, &pass);
    for (size_t i = 0; i < PAPER_ACTION; i++) {
        double log_std = fmin(pass.y[PAPER_ACTION + i], most_log_std);
        double z = (paper_action(items, row, i) - pass.y[i]) / exp(log_std);
        log_prob -= z * z / 2 + log_std + log(2 * acos(-1)) / 2;
        dy[i] = -weight * z / exp(log_std) / PAPER_ROWS;
        dy[PAPER_ACTION + i] =
            pass.y[PAPER_ACTION + i] > most_log_std ? 0 : -weight * (z * z - 1) / PAPER_ROWS;
    }
    paper_backward(policy, &pass, dy, grads, NULL);
    return log_prob;
}

static void check_clone(struct study *study, const struct items *items, const float *before,
                        const double weights[PAPER_ROWS], const char *metric)
{
    struct paper_net policy = policy_of(study, before), grads = policy_shape;
    double loss = 0;
    for (size_t row = 0; row < PAPER_ROWS; row++)
        loss -= weights[row] * clone(&policy, items, row, weights[row], &grads) / PAPER_ROWS;
    paper_assert_stepped(study, "params", "body", policy_heads, before, &grads, rate);
    paper_assert_close(study_reported(study, metric), loss, metric);
}

static void bc_makes_what_was_done_more_likely(void **state)
{
    (void)state;
    static const double weights[PAPER_ROWS] = {1, 1, 1, 1, 1, 1};
    struct study *study = begin(bc());
    struct items *items = filled(study, 11);
    float *before = paper_copy(study, "params");
    assert_int_equal(study->updater->vector_count, 1);
    assert_int_equal(study_step(study, &items->batch), TRP_OK);
    check_clone(study, items, before, weights, "loss");
    double first = study_reported(study, "log_prob");
    for (int step = 0; step < 20; step++)
        assert_int_equal(study_step(study, &items->batch), TRP_OK);
    assert_true(study_reported(study, "log_prob") > first);
    trp_floats_destroy(before);
    items_destroy(items);
    study_destroy(study);
}

/* ---- IQL ---------------------------------------------------------------------------------------
 */

static double value_at(const struct study *study, const float *flat, const float *states,
                       size_t row, struct paper_pass *pass)
{
    const trp_vector_spec *values = &study->updater->vectors[paper_vector(study, "values")];
    struct paper_net net = paper_read(values, flat, "value", value_heads, &value_shape);
    say(&net, states, row, pass);
    return pass->y[0];
}

/* Equation 5; `least` are the lesser of the target critics' values of what was done. */
static void check_values(struct study *study, const struct items *items, const float *before,
                         const float *target_critics, double least[PAPER_ROWS])
{
    const float *states = items_column(items, "observation");
    const trp_vector_spec *spec = &study->updater->vectors[paper_vector(study, "values")];
    struct paper_net net = paper_read(spec, before, "value", value_heads, &value_shape);
    struct paper_net critics[] = {paper_critic(study, target_critics, 0),
                                  paper_critic(study, target_critics, 1)};
    struct paper_net grads = value_shape;
    double loss = 0;
    size_t above = 0, second = 0;
    for (size_t row = 0; row < PAPER_ROWS; row++) {
        struct paper_pass pass;
        double action[] = {paper_action(items, row, 0), paper_action(items, row, 1)};
        double q = paper_q(&critics[0], states, row, action, NULL);
        double q2 = paper_q(&critics[1], states, row, action, NULL);
        least[row] = fmin(q, q2);
        double error = least[row] - value_at(study, before, states, row, &pass);
        double weight = error < 0 ? 1 - expectile : expectile;
        double dy = -2 * weight * error / PAPER_ROWS;
        paper_backward(&net, &pass, &dy, &grads, NULL);
        loss += weight * error * error / PAPER_ROWS;
        above += error > 0;
        second += q2 < q;
    }
    assert_in_range(above, 1, PAPER_ROWS - 1); /* errors of both signs, and both critics, count */
    assert_in_range(second, 1, PAPER_ROWS - 1);
    paper_assert_stepped(study, "values", "value", value_heads, before, &grads, rate);
    paper_assert_close(study_reported(study, "value_loss"), loss, "value_loss");
}

static void an_iql_step_is_that_of_the_paper(void **state)
{
    (void)state;
    struct study *study = begin(iql());
    struct items *items = filled(study, 11);
    struct paper_pass pass;
    double least[PAPER_ROWS], weights[PAPER_ROWS], targets[PAPER_ROWS];
    size_t capped = 0;
    paper_shake(study, "values", "values", 7, 0.5F);
    paper_shake(study, "target_critics", "critics", 23, 1.5F);
    float *params = paper_copy(study, "params"), *values = paper_copy(study, "values");
    float *critics = paper_copy(study, "critics");
    float *target_critics = paper_copy(study, "target_critics");
    assert_int_equal(study_step(study, &items->batch), TRP_OK);
    check_values(study, items, values, target_critics, least);
    const float *now = study->run.values[paper_vector(study, "values")];
    for (size_t row = 0; row < PAPER_ROWS; row++) { /* equations 7 and 6 */
        double value = value_at(study, now, items_column(items, "observation"), row, &pass);
        double weight = exp(beta * (least[row] - value));
        weights[row] = fmin(weight, weight_most);
        capped += weight > weight_most;
        targets[row] =
            (double)((const float *)items_column(items, "reward"))[row] +
            gamma_ * (double)((const float *)items_column(items, "discount"))[row] *
                value_at(study, now, items_column(items, "next_observation"), row, &pass);
    }
    assert_in_range(capped, 1, PAPER_ROWS - 1);
    check_clone(study, items, params, weights, "policy_loss");
    paper_check_critics(study, items, critics, targets, 0, 0, rate, NULL);
    paper_assert_followed(study, "target_critics", target_critics, "critics", tau);
    trp_floats_destroy(params);
    trp_floats_destroy(values);
    trp_floats_destroy(critics);
    trp_floats_destroy(target_critics);
    items_destroy(items);
    study_destroy(study);
}

/* ---- CRR ---------------------------------------------------------------------------------------
 */

/* An action of the policy at a state, cut to its bounds; true: one was cut. */
static bool draw(const struct paper_pass *said, trp_rng *rng, double action[PAPER_ACTION])
{
    bool cut = false;
    for (size_t i = 0; i < PAPER_ACTION; i++) {
        double deviation = exp(fmin(said->y[PAPER_ACTION + i], most_log_std));
        double drawn = said->y[i] + deviation * trp_rng_normal(rng);
        action[i] = fmax(-1, fmin(1, drawn));
        cut |= fabs(drawn) > 1;
    }
    return cut;
}

enum { DRAW_NOW, DRAW_NEXT };

struct crr_before {
    float *params, *critics, *target_params, *target_critics;
    trp_rng rng;
};

/* The critics learn the lesser of the target critics' values of the target policy's actions. */
static void check_critics(struct study *study, const struct items *items, bool twin,
                          struct crr_before *before)
{
    const float *next = items_column(items, "next_observation");
    const float *rewards = items_column(items, "reward");
    const float *discounts = items_column(items, "discount");
    struct paper_net policy = policy_of(study, before->target_params);
    struct paper_net critics[2];
    double targets[PAPER_ROWS];
    size_t cut = 0, second = 0;
    for (int i = 0; i <= twin; i++)
        critics[i] = paper_critic(study, before->target_critics, i);
    for (size_t row = 0; row < PAPER_ROWS; row++) {
        struct paper_pass pass;
        double drawn[PAPER_ACTION];
        trp_rng rng = paper_draw(&before->rng, DRAW_NEXT, row);
        say(&policy, next, row, &pass);
        cut += draw(&pass, &rng, drawn);
        double q = paper_q(&critics[0], next, row, drawn, NULL);
        double q2 = twin ? paper_q(&critics[1], next, row, drawn, NULL) : q;
        second += q2 < q && discounts[row] > 0;
        targets[row] = (double)rewards[row] + gamma_ * (double)discounts[row] * fmin(q, q2);
    }
    assert_true(cut > 0 && (second > 0) == twin);
    paper_check_critics(study, items, before->critics, targets, 0, 0, critic_rate, NULL);
}

static void find_weights(const struct study *study, const struct items *items,
                         struct crr_before *before, bool max, bool binary,
                         double weights[PAPER_ROWS])
{
    const float *states = items_column(items, "observation");
    struct paper_net policy = policy_of(study, before->params);
    struct paper_net critic =
        paper_critic(study, study->run.values[paper_vector(study, "critics")], 0);
    for (size_t row = 0; row < PAPER_ROWS; row++) {
        struct paper_pass pass;
        double action[] = {paper_action(items, row, 0), paper_action(items, row, 1)};
        double mean = 0, largest = -INFINITY;
        say(&policy, states, row, &pass);
        for (size_t i = 0; i < SAMPLES; i++) {
            double drawn[PAPER_ACTION];
            trp_rng rng = paper_draw(&before->rng, DRAW_NOW, row * SAMPLES + i);
            draw(&pass, &rng, drawn);
            double q = paper_q(&critic, states, row, drawn, NULL);
            mean += q / SAMPLES;
            largest = fmax(largest, q);
        }
        double advantage = paper_q(&critic, states, row, action, NULL) - (max ? largest : mean);
        weights[row] = binary ? advantage > 0 : fmin(exp(advantage / temperature), crr_most);
    }
}

static void check_crr(bool twin, bool max, bool binary)
{
    struct study *study = begin(crr(twin, max, binary));
    struct items *items = filled(study, 11);
    double weights[PAPER_ROWS], mean = 0;
    paper_shake(study, "critics", "critics", 7, 1);
    paper_shake(study, "target_params", "params", 9, 1);
    paper_shake(study, "target_critics", "critics", 12, 1);
    struct crr_before before = {paper_copy(study, "params"), paper_copy(study, "critics"),
                                paper_copy(study, "target_params"),
                                paper_copy(study, "target_critics"), study->run.rng};
    assert_int_equal(study_step(study, &items->batch), TRP_OK);
    check_critics(study, items, twin, &before);
    find_weights(study, items, &before, max, binary, weights);
    check_clone(study, items, before.params, weights, "policy_loss");
    for (size_t row = 0; row < PAPER_ROWS; row++)
        mean += weights[row] / PAPER_ROWS;
    paper_assert_close(study_reported(study, "mean_weight"), mean, "mean_weight");
    assert_true(mean > 0);
    trp_floats_destroy(before.params);
    trp_floats_destroy(before.critics);
    trp_floats_destroy(before.target_params);
    trp_floats_destroy(before.target_critics);
    items_destroy(items);
    study_destroy(study);
}

static void a_crr_step_is_that_of_the_paper(void **state)
{
    (void)state;
    for (int i = 0; i < 8; i++)
        check_crr(i / 4, i / 2 % 2, i % 2);
}

static void crrs_targets_are_copied_every_period(void **state)
{
    (void)state;
    static const char *const pairs[][2] = {{"target_params", "params"},
                                           {"target_critics", "critics"}};
    struct study *study = begin(crr(false, false, false));
    struct items *items = filled(study, 11);
    for (int step = 1; step <= 4; step++) {
        assert_int_equal(study_step(study, &items->batch), TRP_OK);
        for (size_t i = 0; i < 2; i++) {
            size_t target = paper_vector(study, pairs[i][0]);
            size_t from = paper_vector(study, pairs[i][1]);
            size_t bytes = study->updater->vectors[from].count * sizeof(float);
            bool same = memcmp(study->run.values[target], study->run.values[from], bytes) == 0;
            assert_int_equal(same, step % 2 == 0);
        }
    }
    items_destroy(items);
    study_destroy(study);
}

/* ---- all of them -------------------------------------------------------------------------------
 */

static trp_agent agent_at(size_t i)
{
    return i == 0 ? bc() : i == 1 ? iql() : crr(false, false, false);
}

static void learning_goes_on_after_a_checkpoint_bit_for_bit(void **state)
{
    (void)state;
    enum { STEPS = 10 };
    for (size_t which = 0; which < 3; which++) {
        trp_agent agent = agent_at(which);
        struct study *whole = study_create(&agent, &paper_env, PAPER_ROWS, 3);
        struct study *resumed = study_create(&agent, &paper_env, PAPER_ROWS, 99);
        struct items *items[STEPS];
        for (size_t i = 0; i < STEPS; i++)
            items[i] = filled(whole, i);
        study_assert_resumes(whole, resumed, items, STEPS, 5);
        for (size_t i = 0; i < STEPS; i++)
            items_destroy(items[i]);
        study_destroy(whole);
        study_destroy(resumed);
    }
}

static void what_is_not_finite_ends_the_run_and_is_named(void **state)
{
    (void)state;
    static const struct {
        size_t agent;
        const char *place, *words;
    } rows[] = {{0, "action", "the policy loss of step 1 is nan"},
                {0, "params", "the policy loss of step 1 is nan"},
                {1, "reward", "the critic loss of step 1 is nan"},
                {1, "action", "the value loss of step 1 is nan"},
                {1, "values", "the value loss of step 1 is nan"},
                {1, "target_critics", "the value loss of step 1 is nan"},
                {1, "params", "the policy loss of step 1 is nan"},
                {2, "reward", "the critic loss of step 1 is nan"},
                {2, "target_params", "the critic loss of step 1 is nan"},
                {2, "params", "the policy loss of step 1 is nan"}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct study *study = begin(agent_at(rows[i].agent));
        struct items *items = filled(study, 11);
        float *column = items_column(items, rows[i].place);
        if (column)
            column[2] = NAN;
        else
            study->run.values[paper_vector(study, rows[i].place)][0] = NAN;
        if (study_step(study, &items->batch) != TRP_INTERNAL)
            fail_msg("%s: %s", rows[i].place, trp_last_error());
        if (!strstr(trp_last_error(), rows[i].words))
            fail_msg("%s: '%s' does not say '%s'", rows[i].place, trp_last_error(), rows[i].words);
        items_destroy(items);
        study_destroy(study);
    }
}

/* The lesser of two numbers of which one is NaN is no number, whichever it is. */
static void a_nan_of_either_target_critic_ends_an_iql_run(void **state)
{
    (void)state;
    bool more = true;
    for (size_t tensor = 0; more; tensor++) {
        struct study *study = begin(iql());
        struct items *items = filled(study, 11);
        size_t critics = paper_vector(study, "critics");
        if ((more = study_spoil(study, paper_vector(study, "target_critics"), critics, tensor)))
            study_assert_refuses_nan(study, items,
                                     study->updater->vectors[critics].tensors[tensor].name);
        items_destroy(items);
        study_destroy(study);
    }
}

static void what_does_not_fit_is_refused_by_name(void **state)
{
    (void)state;
    static const char *const names[] = {"bc", "iql", "crr"};
    trp_env_spec choices = paper_env, two = paper_env;
    choices.action_kind = TRP_ACTION_MULTI_DISCRETE;
    two.observations[1] = two.observations[0];
    const struct {
        const trp_env_spec *env;
        const char *words;
    } rows[] = {{&choices, "Paper has choices in several dimensions, needs numbers"},
                {&two, "Paper observes 2 tensors, needs one"}};
    for (size_t i = 0; i < 6; i++) {
        trp_agent agent = agent_at(i / 2);
        char words[128];
        snprintf(words, sizeof words, "%s: %s", names[i / 2], rows[i % 2].words);
        assert_int_equal(agent.impl->check(&agent, rows[i % 2].env), TRP_INVALID_ARGUMENT);
        if (!strstr(trp_last_error(), words))
            fail_msg("'%s' does not say '%s'", trp_last_error(), words);
    }
    trp_agent crr = trp_crr(&(trp_crr_options){.batch_size = 65536, .samples = 65});
    assert_int_equal(crr.impl->check(&crr, &paper_env), TRP_INVALID_ARGUMENT);
    assert_non_null(strstr(trp_last_error(), "crr: batch_size 65536 times 65 actions at each"));
}

int main(void)
{
    trp_log_set_level(TRP_ERROR);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bc_makes_what_was_done_more_likely),
        cmocka_unit_test(an_iql_step_is_that_of_the_paper),
        cmocka_unit_test(a_crr_step_is_that_of_the_paper),
        cmocka_unit_test(crrs_targets_are_copied_every_period),
        cmocka_unit_test(learning_goes_on_after_a_checkpoint_bit_for_bit),
        cmocka_unit_test(what_is_not_finite_ends_the_run_and_is_named),
        cmocka_unit_test(a_nan_of_either_target_critic_ends_an_iql_run),
        cmocka_unit_test(what_does_not_fit_is_refused_by_name),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

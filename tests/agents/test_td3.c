/* TD3's update by the formulas of its paper, worked out here in double; what its policy does; what
 * it cannot learn. */
#include <troupe/log.h>
#include <troupe/td3.h>
#include "paper.h"

static const double gamma_ = 0.9, tau = 0.1, noise = 0.7, clip = 0.5, beta = 0.6, epsilon = 0.02;
static const double rate = 0.03, critic_rate = 0.02;

static const struct paper_net policy_shape = {
    .inputs = PAPER_STATE, .hidden = 4, .outputs = PAPER_ACTION, .squashed = true};
static const char *const policy_heads[] = {"action", NULL};

static trp_td3_options options_of(bool prioritized)
{
    return (trp_td3_options){.hidden = {4},
                             .activation = TRP_TANH,
                             .discount = (float)gamma_,
                             .learning_rate = (float)rate,
                             .critic_learning_rate = (float)critic_rate,
                             .policy_delay = 1,
                             .target_rate = (float)tau,
                             .target_noise = (float)noise,
                             .target_noise_clip = (float)clip,
                             .priority_exponent = prioritized ? 0.5F : 0,
                             .importance_exponent = (float)beta,
                             .priority_epsilon = (float)epsilon};
}

static struct study *begin(const trp_td3_options *options)
{
    trp_agent agent = trp_td3(options);
    struct study *study = study_create(&agent, &paper_env, PAPER_ROWS, 3);
    paper_shake(study, "params", "params", 5, 0.7F);
    paper_shake(study, "target_params", "params", 6, 0.7F);
    paper_shake(study, "target_critics", "critics", 14, 0.7F);
    return study;
}

/* ---- the paper ------------------------------------------------------------------------------- */

struct before {
    float *params, *critics, *target_params, *target_critics;
    trp_rng rng;
};

static struct before before_step(struct study *study)
{
    return (struct before){paper_copy(study, "params"), paper_copy(study, "critics"),
                           paper_copy(study, "target_params"), paper_copy(study, "target_critics"),
                           study->run.rng};
}

static void forget(struct before *before)
{
    trp_floats_destroy(before->params);
    trp_floats_destroy(before->critics);
    trp_floats_destroy(before->target_params);
    trp_floats_destroy(before->target_critics);
}

static struct paper_net policy_of(const struct study *study, const float *flat)
{
    const trp_vector_spec *params = &study->updater->vectors[paper_vector(study, "params")];
    return paper_read(params, flat, "body", policy_heads, &policy_shape);
}

static void say(const struct paper_net *policy, const float *states, size_t row,
                struct paper_pass *pass)
{
    for (size_t i = 0; i < PAPER_STATE; i++)
        pass->x[i] = (double)states[row * PAPER_STATE + i];
    paper_forward(policy, pass);
}

/* Equations 10 and 14: y = r + gamma min Q'(s', clip(pi'(s') + clip(noise))). */
static void find_targets(const struct study *study, const struct items *items,
                         struct before *before, double targets[PAPER_ROWS])
{
    const float *next = items_column(items, "next_observation");
    const float *rewards = items_column(items, "reward");
    const float *discounts = items_column(items, "discount");
    struct paper_net policy = policy_of(study, before->target_params);
    struct paper_net critics[] = {paper_critic(study, before->target_critics, 0),
                                  paper_critic(study, before->target_critics, 1)};
    size_t cut = 0, beyond = 0, first = 0, second = 0;
    for (size_t row = 0; row < PAPER_ROWS; row++) {
        trp_rng rng = paper_draw(&before->rng, 0, row);
        struct paper_pass pass;
        double action[PAPER_ACTION];
        say(&policy, next, row, &pass);
        for (size_t i = 0; i < PAPER_ACTION; i++) {
            double drawn = noise * trp_rng_normal(&rng);
            double smoothed = pass.y[i] + fmax(-clip, fmin(clip, drawn));
            action[i] = fmax(-1, fmin(1, smoothed));
            cut += fabs(drawn) > clip;
            beyond += fabs(smoothed) > 1;
        }
        double q = paper_q(&critics[0], next, row, action, NULL);
        double q2 = paper_q(&critics[1], next, row, action, NULL);
        first += q < q2 && discounts[row] > 0;
        second += q2 < q && discounts[row] > 0;
        targets[row] = (double)rewards[row] + gamma_ * (double)discounts[row] * fmin(q, q2);
    }
    assert_true(cut > 0 && beyond > 0 && first > 0 && second > 0); /* all of it counts */
}

/* Its policy follows the first critic as it is after its own phase; with `imitation` by as much as
 * TD3+BC's equation 5 says, beside doing what was done (equation 3). */
static void check_policy(struct study *study, const struct items *items,
                         const struct before *before, double imitation)
{
    const float *states = items_column(items, "observation");
    struct paper_net policy = policy_of(study, before->params), grads = policy_shape;
    struct paper_net critic =
        paper_critic(study, study->run.values[paper_vector(study, "critics")], 0);
    struct paper_pass passes[PAPER_ROWS], judged[PAPER_ROWS];
    double loss = 0, size = 0;
    for (size_t row = 0; row < PAPER_ROWS; row++) {
        say(&policy, states, row, &passes[row]);
        size += fabs(paper_q(&critic, states, row, passes[row].y, &judged[row])) / PAPER_ROWS;
    }
    double lambda = imitation > 0 ? imitation / size : 1;
    for (size_t row = 0; row < PAPER_ROWS; row++) {
        double dx[PAPER_WIDTH_MAX], dq = -lambda / PAPER_ROWS;
        paper_backward(&critic, &judged[row], &dq, NULL, dx);
        loss -= lambda * judged[row].y[0] / PAPER_ROWS;
        for (size_t i = 0; i < PAPER_ACTION && imitation > 0; i++) {
            double off = passes[row].y[i] - paper_action(items, row, i);
            dx[PAPER_STATE + i] += 2 * off / PAPER_ACTION / PAPER_ROWS;
            loss += off * off / PAPER_ACTION / PAPER_ROWS;
        }
        paper_backward(&policy, &passes[row], dx + PAPER_STATE, &grads, NULL);
    }
    paper_assert_stepped(study, "params", "body", policy_heads, before->params, &grads, rate);
    paper_assert_close(study_reported(study, "policy_loss"), loss, "policy_loss");
}

static void a_step_is_that_of_the_paper(void **state)
{
    (void)state;
    for (int kind = 0; kind < 3; kind++) {
        trp_td3_options options = options_of(kind == 1);
        options.imitation = kind == 2 ? 2.5F : 0;
        struct study *study = begin(&options);
        struct items *items = items_create(&study->updater->sources[0], PAPER_ROWS);
        double targets[PAPER_ROWS];
        paper_fill(items, 11);
        struct before before = before_step(study);
        assert_int_equal(study_step(study, &items->batch), TRP_OK);
        find_targets(study, items, &before, targets);
        paper_check_critics(study, items, before.critics, targets, beta, epsilon, critic_rate,
                            NULL);
        check_policy(study, items, &before, (double)options.imitation);
        paper_assert_followed(study, "target_params", before.target_params, "params", tau);
        paper_assert_followed(study, "target_critics", before.target_critics, "critics", tau);
        forget(&before);
        items_destroy(items);
        study_destroy(study);
    }
}

static bool is_as_before(struct study *study, const char *vector_name, const float *before)
{
    size_t vector = paper_vector(study, vector_name);
    size_t bytes = study->updater->vectors[vector].count * sizeof(float);
    return memcmp(study->run.values[vector], before, bytes) == 0;
}

static void the_policy_and_the_targets_wait_for_the_delay(void **state)
{
    (void)state;
    trp_td3_options options = options_of(false);
    options.policy_delay = 3;
    struct study *study = begin(&options);
    struct items *items = items_create(&study->updater->sources[0], PAPER_ROWS);
    paper_fill(items, 11);
    for (uint64_t step = 1; step <= 7; step++) {
        struct before before = before_step(study);
        assert_int_equal(study_step(study, &items->batch), TRP_OK);
        assert_false(is_as_before(study, "critics", before.critics));
        assert_int_equal(is_as_before(study, "params", before.params), step % 3 != 0);
        assert_int_equal(is_as_before(study, "target_params", before.target_params), step % 3 != 0);
        assert_int_equal(is_as_before(study, "target_critics", before.target_critics),
                         step % 3 != 0);
        forget(&before);
    }
    items_destroy(items);
    study_destroy(study);
}

static void a_fresh_run_has_targets_that_are_copies_and_critics_that_differ(void **state)
{
    (void)state;
    trp_td3_options options = options_of(false);
    trp_agent agent = trp_td3(&options);
    struct study *study = study_create(&agent, &paper_env, PAPER_ROWS, 3);
    struct before fresh = before_step(study);
    assert_true(is_as_before(study, "target_params", fresh.params));
    assert_true(is_as_before(study, "target_critics", fresh.critics));
    struct paper_net first = paper_critic(study, fresh.critics, 0);
    struct paper_net second = paper_critic(study, fresh.critics, 1);
    assert_true(fabs(first.w0[0][0] - second.w0[0][0]) > 0);
    forget(&fresh);
    study_destroy(study);
}

static void learning_goes_on_after_a_checkpoint_bit_for_bit(void **state)
{
    (void)state;
    enum { STEPS = 12 };
    trp_td3_options options = options_of(true);
    options.policy_delay = 2;
    trp_agent agent = trp_td3(&options);
    struct study *whole = study_create(&agent, &paper_env, PAPER_ROWS, 3);
    struct study *resumed = study_create(&agent, &paper_env, PAPER_ROWS, 99);
    struct items *items[STEPS];
    for (size_t i = 0; i < STEPS; i++) {
        items[i] = items_create(&whole->updater->sources[0], PAPER_ROWS);
        paper_fill(items[i], i);
    }
    study_assert_resumes(whole, resumed, items, STEPS, 5);
    for (size_t i = 0; i < STEPS; i++)
        items_destroy(items[i]);
    study_destroy(whole);
    study_destroy(resumed);
}

static void what_is_not_finite_ends_the_run_and_is_named(void **state)
{
    (void)state;
    static const struct {
        const char *place, *words;
    } rows[] = {{"reward", "the critic loss of step 1 is nan"},
                {"action", "the critic loss of step 1 is nan"},
                {"next_observation", "the critic loss of step 1 is nan"},
                {"params", "the policy loss of step 1 is nan"},
                {"critics", "the critic loss of step 1 is nan"}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        trp_td3_options options = options_of(false);
        struct study *study = begin(&options);
        struct items *items = items_create(&study->updater->sources[0], PAPER_ROWS);
        paper_fill(items, 11);
        float *column = items_column(items, rows[i].place);
        if (column)
            column[2] = NAN;
        else
            study->run.values[paper_vector(study, rows[i].place)][0] = NAN;
        assert_int_equal(study_step(study, &items->batch), TRP_INTERNAL);
        if (!strstr(trp_last_error(), rows[i].words))
            fail_msg("%s: '%s' does not say '%s'", rows[i].place, trp_last_error(), rows[i].words);
        char *where =
            xasprintf(column ? ": '%s' of item " : ": number 0 of '%s' is nan", rows[i].place);
        if (!strstr(trp_last_error(), where))
            fail_msg("'%s' does not say '%s'", trp_last_error(), where);
        free(where);
        items_destroy(items);
        study_destroy(study);
    }
}

/* ---- acting ---------------------------------------------------------------------------------- */

enum { ACTING = 4000 };

/* Of states of 0, whose action is `action` of the way from the middle to the bounds. */
static void act_at(double action, bool greedy, uint64_t steps, float (*actions)[PAPER_ACTION])
{
    static const float observations[ACTING][PAPER_STATE];
    trp_td3_options options = options_of(false);
    options.noise = 0.25F;
    options.random_steps = 100;
    trp_agent agent = trp_td3(&options);
    trp_policy *policy;
    assert_int_equal(agent.impl->policy(&agent, &paper_env,
                                        &(trp_policy_options){.rows = ACTING, .greedy = greedy},
                                        &policy),
                     TRP_OK);
    float *params = trp_floats_create(policy->param_count);
    for (size_t i = 0; i < policy->tensor_count; i++)
        if (strcmp(policy->tensors[i].name, "action.bias") == 0)
            trp_net_tensor_set(&policy->tensors[i],
                               (float[]){(float)atanh(action), (float)atanh(action)}, params);
    assert_int_equal(policy->impl->load(policy, params, policy->param_count), TRP_OK);
    trp_rng rng;
    trp_rng_init(&rng, 5, 0);
    assert_int_equal(
        policy->impl->act(policy, &(trp_act){.rows = ACTING,
                                             .observations = (const void *const[]){observations},
                                             .steps = steps,
                                             .rng = &rng,
                                             .actions = actions}),
        TRP_OK);
    trp_floats_destroy(params);
    trp_policy_destroy(policy);
}

static void moments(float (*actions)[PAPER_ACTION], size_t i, double *mean, double *deviation)
{
    double sum = 0, squares = 0;
    for (size_t row = 0; row < ACTING; row++) {
        double action = (double)actions[row][i];
        assert_true(actions[row][i] >= paper_low[i] && actions[row][i] <= paper_high[i]);
        sum += action;
        squares += action * action;
    }
    *mean = sum / ACTING;
    *deviation = sqrt(squares / ACTING - *mean * *mean);
}

static void actors_add_noise_in_halves_of_the_bounds_distance(void **state)
{
    (void)state;
    static float actions[ACTING][PAPER_ACTION];
    double mean, deviation;
    act_at(0, false, 100, actions);
    moments(actions, 0, &mean, &deviation); /* in [-1, 2] */
    assert_float_equal(mean, 0.5, 0.03);
    assert_float_equal(deviation, 0.25 * 1.5, 0.02);
    moments(actions, 1, &mean, &deviation); /* in [-3, 1] */
    assert_float_equal(mean, -1, 0.04);
    assert_float_equal(deviation, 0.25 * 2, 0.02);
    act_at(0.95, false, 100, actions); /* many are cut to the bound */
    moments(actions, 0, &mean, &deviation);
}

static void a_greedy_policy_adds_none_and_is_never_random(void **state)
{
    (void)state;
    static float actions[ACTING][PAPER_ACTION];
    act_at(0.5, true, 0, actions);
    for (size_t row = 0; row < ACTING; row++) {
        assert_float_equal(actions[row][0], 0.5 + 0.5 * 1.5, 1e-5);
        assert_float_equal(actions[row][1], -1 + 0.5 * 2, 1e-5);
    }
}

static void the_first_steps_of_all_actors_are_uniform(void **state)
{
    (void)state;
    static float actions[ACTING][PAPER_ACTION];
    double mean, deviation;
    act_at(0.9, false, 99, actions);
    for (size_t i = 0; i < PAPER_ACTION; i++) {
        double low = (double)paper_low[i], high = (double)paper_high[i];
        moments(actions, i, &mean, &deviation);
        assert_float_equal(mean, (low + high) / 2, 0.06);
        assert_float_equal(deviation, (high - low) / sqrt(12), 0.03);
    }
}

/* ---- pairings -------------------------------------------------------------------------------- */

static void what_does_not_fit_is_refused_by_name(void **state)
{
    (void)state;
    static const float endless = INFINITY, one = 1;
    trp_env_spec choices = paper_env, unbounded = paper_env, point = paper_env, two = paper_env;
    trp_env_spec image = paper_env;
    choices.action_kind = TRP_ACTION_DISCRETE;
    unbounded.action_count = point.action_count = 1;
    unbounded.action_high = &endless;
    point.action_low = point.action_high = &one;
    two.observations[1] = two.observations[0];
    image.observations[0] = (trp_tensor_spec){.dtype = TRP_UINT8, .rank = 3, .shape = {36, 36, 3}};
    const struct {
        const trp_env_spec *env;
        trp_td3_options options;
        const char *words;
    } rows[] = {
        {&choices, {.n_step = 1}, "td3: Paper has one choice for an action, needs numbers"},
        {&unbounded,
         {.n_step = 1},
         "number 0 of an action of Paper lies in [-1, inf], needs finite bounds"},
        {&point, {.n_step = 1}, "lies in [1, 1], needs finite bounds that differ"},
        {&two, {.n_step = 1}, "td3: Paper observes 2 tensors, needs one"},
        {&image, {.n_step = 1}, "td3: Paper observes uint8 [36][36][3], needs float32"},
        {&paper_env, {.replay_size = 10, .min_replay_size = 11}, "min_replay_size is 11"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        trp_agent agent = trp_td3(&rows[i].options);
        assert_int_equal(agent.impl->check(&agent, rows[i].env), TRP_INVALID_ARGUMENT);
        if (!strstr(trp_last_error(), rows[i].words))
            fail_msg("'%s' does not say '%s'", trp_last_error(), rows[i].words);
    }
}

int main(void)
{
    trp_log_set_level(TRP_ERROR);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_step_is_that_of_the_paper),
        cmocka_unit_test(the_policy_and_the_targets_wait_for_the_delay),
        cmocka_unit_test(a_fresh_run_has_targets_that_are_copies_and_critics_that_differ),
        cmocka_unit_test(learning_goes_on_after_a_checkpoint_bit_for_bit),
        cmocka_unit_test(what_is_not_finite_ends_the_run_and_is_named),
        cmocka_unit_test(actors_add_noise_in_halves_of_the_bounds_distance),
        cmocka_unit_test(a_greedy_policy_adds_none_and_is_never_random),
        cmocka_unit_test(the_first_steps_of_all_actors_are_uniform),
        cmocka_unit_test(what_does_not_fit_is_refused_by_name),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

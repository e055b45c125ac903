/* SAC's update by the formulas of its paper, worked out here in double; what its policy does; what
 * it cannot learn. */
#include <troupe/log.h>
#include <troupe/sac.h>
#include "core/option_table.h"
#include "paper.h"

static const double gamma_ = 0.9, tau = 0.1, beta = 0.6, epsilon = 0.02, wanted = -1.5;
static const double rate = 0.03, critic_rate = 0.02, temperature_rate = 0.05, begun = 0.7;
static const double most_log_std = 2;

static const struct paper_net policy_shape = {
    .inputs = PAPER_STATE, .hidden = 4, .outputs = 2 * PAPER_ACTION};
static const char *const policy_heads[] = {"mean", "log_std", NULL};

static trp_sac_options options_of(bool prioritized)
{
    return (trp_sac_options){.hidden = {4},
                             .activation = TRP_TANH,
                             .discount = (float)gamma_,
                             .learning_rate = (float)rate,
                             .critic_learning_rate = (float)critic_rate,
                             .target_rate = (float)tau,
                             .initial_temperature = (float)begun,
                             .temperature_learning_rate = (float)temperature_rate,
                             .target_entropy = (float)wanted,
                             .priority_exponent = prioritized ? 0.5F : 0,
                             .importance_exponent = (float)beta,
                             .priority_epsilon = (float)epsilon};
}

static float log_temperature(const struct study *study)
{
    return study->run.values[paper_vector(study, "log_temperature")][0];
}

static struct study *begin(const trp_sac_options *options)
{
    trp_agent agent = trp_sac(options);
    struct study *study = study_create(&agent, &paper_env, PAPER_ROWS, 3);
    paper_shake(study, "params", "params", 6, 1.3F);
    paper_shake(study, "target_critics", "critics", 12, 0.7F);
    return study;
}

/* ---- the paper ------------------------------------------------------------------------------- */

struct before {
    float *params, *critics, *target_critics;
    double temperature;
    trp_rng rng;
};

static struct before before_step(struct study *study)
{
    return (struct before){paper_copy(study, "params"), paper_copy(study, "critics"),
                           paper_copy(study, "target_critics"), exp((double)log_temperature(study)),
                           study->run.rng};
}

static void forget(struct before *before)
{
    trp_floats_destroy(before->params);
    trp_floats_destroy(before->critics);
    trp_floats_destroy(before->target_critics);
}

static struct paper_net policy_of(const struct study *study, const float *flat)
{
    const trp_vector_spec *params = &study->updater->vectors[paper_vector(study, "params")];
    return paper_read(params, flat, "body", policy_heads, &policy_shape);
}

/* An action that a policy draws: tanh(u), u = mean + deviation * noise. */
struct drawn {
    struct paper_pass pass;
    double noise[PAPER_ACTION], deviation[PAPER_ACTION], action[PAPER_ACTION], log_prob;
    bool cut[PAPER_ACTION]; /* its log_std lies beyond what is allowed */
};

static void draw(const struct paper_net *policy, const float *states, size_t row, trp_rng *rng,
                 struct drawn *drawn)
{
    for (size_t i = 0; i < PAPER_STATE; i++)
        drawn->pass.x[i] = (double)states[row * PAPER_STATE + i];
    paper_forward(policy, &drawn->pass);
    drawn->log_prob = 0;
    for (size_t i = 0; i < PAPER_ACTION; i++) {
        double log_std = drawn->pass.y[PAPER_ACTION + i];
        drawn->cut[i] = log_std > most_log_std;
        log_std = fmin(log_std, most_log_std);
        drawn->noise[i] = trp_rng_normal(rng);
        drawn->deviation[i] = exp(log_std);
        double u = drawn->pass.y[i] + drawn->deviation[i] * drawn->noise[i];
        drawn->action[i] = tanh(u);
        drawn->log_prob -= drawn->noise[i] * drawn->noise[i] / 2 + log_std + log(2 * acos(-1)) / 2;
        drawn->log_prob -= 2 * (log(2) - u - log1p(exp(-2 * u))); /* log(1 - tanh(u)^2) */
    }
}

/* Equations 3 and 5: y = r + gamma (min Q'(s', a') - temperature log pi(a' | s')). */
static void find_targets(const struct study *study, const struct items *items,
                         struct before *before, double targets[PAPER_ROWS])
{
    const float *next = items_column(items, "next_observation");
    const float *rewards = items_column(items, "reward");
    const float *discounts = items_column(items, "discount");
    struct paper_net policy = policy_of(study, before->params);
    struct paper_net critics[] = {paper_critic(study, before->target_critics, 0),
                                  paper_critic(study, before->target_critics, 1)};
    size_t first = 0, second = 0;
    for (size_t row = 0; row < PAPER_ROWS; row++) {
        struct drawn drawn;
        trp_rng rng = paper_draw(&before->rng, 0, row);
        draw(&policy, next, row, &rng, &drawn);
        double q = paper_q(&critics[0], next, row, drawn.action, NULL);
        double q2 = paper_q(&critics[1], next, row, drawn.action, NULL);
        first += q < q2 && discounts[row] > 0;
        second += q2 < q && discounts[row] > 0;
        targets[row] =
            (double)rewards[row] +
            gamma_ * (double)discounts[row] * (fmin(q, q2) - before->temperature * drawn.log_prob);
    }
    assert_true(first > 0 && second > 0); /* both critics count */
}

/* Equation 9 of one row: its loss, whose gradient is added. */
static double follow(const struct paper_net *policy, const struct paper_net critics[2],
                     const float *states, size_t row, double temperature, const struct drawn *drawn,
                     struct paper_net *grads)
{
    struct paper_pass judged[2];
    double q = paper_q(&critics[0], states, row, drawn->action, &judged[0]);
    double q2 = paper_q(&critics[1], states, row, drawn->action, &judged[1]);
    double dx[PAPER_WIDTH_MAX], one = 1, dy[PAPER_OUTPUTS_MAX] = {0};
    size_t lesser = q2 < q;
    paper_backward(&critics[lesser], &judged[lesser], &one, NULL, dx);
    for (size_t i = 0; i < PAPER_ACTION; i++) {
        double a = drawn->action[i], scaled = drawn->deviation[i] * drawn->noise[i];
        double du = 2 * temperature * a - dx[PAPER_STATE + i] * (1 - a * a);
        dy[i] = du / PAPER_ROWS;
        dy[PAPER_ACTION + i] = drawn->cut[i] ? 0 : (du * scaled - temperature) / PAPER_ROWS;
    }
    paper_backward(policy, &drawn->pass, dy, grads, NULL);
    return temperature * drawn->log_prob - fmin(q, q2);
}

/* The log-density of what was done, whose gradient, a mean's part, is taken off. */
static double imitate(const struct paper_net *policy, const struct items *items, size_t row,
                      struct paper_net *grads)
{
    struct paper_pass pass;
    double log_prob = 0, dy[PAPER_OUTPUTS_MAX];
    paper_say(policy, items_column(items, "observation"), row, &pass);
    for (size_t i = 0; i < PAPER_ACTION; i++) {
        double log_std = fmin(pass.y[PAPER_ACTION + i], most_log_std);
        double most = (double)0.999F, action = fmax(-most, fmin(most, paper_action(items, row, i)));
        double z = (atanh(action) - pass.y[i]) / exp(log_std);
        log_prob -= z * z / 2 + log_std + log(2 * acos(-1)) / 2 + log1p(-action * action);
        dy[i] = -z / exp(log_std) / PAPER_ROWS;
        dy[PAPER_ACTION + i] =
            pass.y[PAPER_ACTION + i] > most_log_std ? 0 : -(z * z - 1) / PAPER_ROWS;
    }
    paper_backward(policy, &pass, dy, grads, NULL);
    return log_prob;
}

/* The policy follows the critics as they are after their own phase; the temperature follows the
 * entropy that it had (equation 18). */
static void check_policy(struct study *study, const struct items *items, struct before *before,
                         bool learned)
{
    const float *states = items_column(items, "observation");
    const float *now = study->run.values[paper_vector(study, "critics")];
    struct paper_net policy = policy_of(study, before->params), grads = policy_shape;
    struct paper_net critics[] = {paper_critic(study, now, 0), paper_critic(study, now, 1)};
    double loss = 0, entropy = 0;
    size_t cut = 0;
    for (size_t row = 0; row < PAPER_ROWS; row++) {
        struct drawn drawn;
        trp_rng rng = paper_draw(&before->rng, 1, row);
        draw(&policy, states, row, &rng, &drawn);
        entropy -= drawn.log_prob / PAPER_ROWS;
        loss +=
            follow(&policy, critics, states, row, before->temperature, &drawn, &grads) / PAPER_ROWS;
        cut += drawn.cut[0] + drawn.cut[1];
    }
    assert_in_range(cut, 1, 2 * PAPER_ROWS - 1); /* some deviations, not all */
    paper_assert_stepped(study, "params", "body", policy_heads, before->params, &grads, rate);
    paper_assert_close(study_reported(study, "policy_loss"), loss, "policy_loss");
    paper_assert_close(study_reported(study, "entropy"), entropy, "entropy");
    paper_assert_close(study_reported(study, "temperature"), before->temperature, "temperature");
    double dlog = before->temperature * (entropy - wanted);
    double step = learned ? temperature_rate * dlog / fabs(dlog) : 0;
    if (learned)
        paper_assert_close((double)paper_saved(study, "log_temperature.adam.m")[0], 0.1 * dlog,
                           "the temperature's gradient");
    paper_assert_close((double)log_temperature(study), log(before->temperature) - step,
                       "log_temperature");
}

enum { CQL_SAMPLES = 2 };

/* What makes one critic think less of actions at a row's state: adds scale * (log mean exp(Q - log
 * density) - Q of what was done) / rows to its gradient; returns the gap. */
static double be_conservative(const struct paper_net *critic, const struct items *items, size_t row,
                              double (*actions)[PAPER_ACTION], const double *log_probs,
                              double scale, struct paper_net *grads)
{
    const float *states = items_column(items, "observation");
    double taken[] = {paper_action(items, row, 0), paper_action(items, row, 1)};
    double q[3 * CQL_SAMPLES], sum = 0, dq;
    struct paper_pass pass;
    for (size_t i = 0; i < 3 * CQL_SAMPLES; i++) {
        q[i] = exp(paper_q(critic, states, row, actions[i], NULL) - log_probs[i]);
        sum += q[i];
    }
    for (size_t i = 0; i < 3 * CQL_SAMPLES; i++) {
        dq = scale * q[i] / sum / PAPER_ROWS;
        paper_q(critic, states, row, actions[i], &pass);
        paper_backward(critic, &pass, &dq, grads, NULL);
    }
    dq = -scale / PAPER_ROWS;
    double gap = log(sum / (3 * CQL_SAMPLES)) - paper_q(critic, states, row, taken, &pass);
    paper_backward(critic, &pass, &dq, grads, NULL);
    return gap;
}

/* Equation 4 of CQL, by samples that are uniform, the policy's, and the policy's at the next state
 * (appendix F). */
static void find_gaps(struct study *study, const struct items *items, struct before *before,
                      double scale, struct paper_net gaps[2])
{
    const float *states = items_column(items, "observation");
    const float *next = items_column(items, "next_observation");
    struct paper_net policy = policy_of(study, before->params);
    struct paper_net critics[] = {paper_critic(study, before->critics, 0),
                                  paper_critic(study, before->critics, 1)};
    double gap = 0;
    gaps[0] = gaps[1] = paper_critic_shape;
    for (size_t row = 0; row < PAPER_ROWS; row++) {
        double actions[3 * CQL_SAMPLES][PAPER_ACTION], log_probs[3 * CQL_SAMPLES];
        for (size_t i = 0; i < CQL_SAMPLES; i++) {
            trp_rng rng = paper_draw(&before->rng, 2, row * CQL_SAMPLES + i);
            for (size_t k = 0; k < PAPER_ACTION; k++)
                actions[i][k] = 2 * trp_rng_double(&rng) - 1;
            log_probs[i] = -log(4);
        }
        for (size_t i = CQL_SAMPLES; i < 3 * CQL_SAMPLES; i++) {
            struct drawn drawn;
            size_t kind = i / CQL_SAMPLES;
            trp_rng rng = paper_draw(&before->rng, 2 + kind, row * CQL_SAMPLES + i % CQL_SAMPLES);
            draw(&policy, kind == 1 ? states : next, row, &rng, &drawn);
            memcpy(actions[i], drawn.action, sizeof drawn.action);
            log_probs[i] = drawn.log_prob;
        }
        for (size_t i = 0; i < 2; i++)
            gap += be_conservative(&critics[i], items, row, actions, log_probs, scale, &gaps[i]) /
                   PAPER_ROWS;
    }
    paper_assert_close(study_reported(study, "conservative_gap"), gap, "conservative_gap");
}

static void check_step(bool prioritized, float fixed, float conservative)
{
    struct paper_net gaps[2];
    trp_sac_options options = options_of(prioritized);
    options.temperature = fixed;
    options.conservative = conservative;
    options.conservative_samples = CQL_SAMPLES;
    options.bc_steps = conservative > 0 ? -1 : 0;
    struct study *study = begin(&options);
    struct items *items = items_create(&study->updater->sources[0], PAPER_ROWS);
    double targets[PAPER_ROWS];
    paper_fill(items, 11);
    struct before before = before_step(study);
    paper_assert_close(before.temperature, fixed > 0 ? (double)fixed : begun, "temperature");
    assert_int_equal(study_step(study, &items->batch), TRP_OK);
    find_targets(study, items, &before, targets);
    if (conservative > 0)
        find_gaps(study, items, &before, (double)conservative, gaps);
    paper_check_critics(study, items, before.critics, targets, beta, epsilon, critic_rate,
                        conservative > 0 ? gaps : NULL);
    check_policy(study, items, &before, fixed == 0);
    paper_assert_followed(study, "target_critics", before.target_critics, "critics", tau);
    forget(&before);
    items_destroy(items);
    study_destroy(study);
}

static void a_step_is_that_of_the_paper(void **state)
{
    (void)state;
    check_step(false, 0, 0);
    check_step(true, 0, 0);
    check_step(false, 0.3F, 0);
}

static void a_conservative_step_is_that_of_cqls_paper(void **state)
{
    (void)state;
    check_step(false, 0, 0.8F);
}

/* Two of four steps clone; the critics and the temperature learn in all of them. */
static void the_first_steps_of_cql_clone_what_was_done(void **state)
{
    (void)state;
    trp_sac_options options = options_of(false);
    options.conservative = 0.8F;
    options.conservative_samples = CQL_SAMPLES;
    options.bc_steps = 2;
    struct study *study = begin(&options);
    struct items *items = items_create(&study->updater->sources[0], PAPER_ROWS);
    paper_fill(items, 11);
    for (int step = 1; step <= 4; step++) {
        struct before before = before_step(study);
        struct paper_net policy = policy_of(study, before.params), grads = policy_shape;
        double loss = 0;
        for (size_t row = 0; row < PAPER_ROWS; row++)
            loss -= imitate(&policy, items, row, &grads) / PAPER_ROWS;
        assert_int_equal(study_step(study, &items->batch), TRP_OK);
        bool cloned = fabs(study_reported(study, "policy_loss") - loss) <= 2e-5 * (1 + fabs(loss));
        assert_int_equal(cloned, step <= 2);
        if (step == 1)
            paper_assert_stepped(study, "params", "body", policy_heads, before.params, &grads,
                                 rate);
        assert_true(fabs(exp((double)log_temperature(study)) - before.temperature) > 1e-4);
        forget(&before);
    }
    items_destroy(items);
    study_destroy(study);
}

/* Without `conservative` it is SAC, which clones nothing. */
static void sac_does_not_clone(void **state)
{
    (void)state;
    trp_agent agent = trp_sac(NULL);
    trp_sac_options resolved;
    memcpy(&resolved, agent.options.bytes, sizeof resolved);
    assert_int_equal(resolved.bc_steps, 50000); /* what CQL is in Acme */
    check_step(false, 0, 0);
}

/* A run says so of those that are set. */
static void what_is_of_cql_alone_is_idle_in_sac(void **state)
{
    static const char *const names[] = {"bc_steps", "conservative_samples"};
    (void)state;
    const trp_option_table *table = trp_sac_option_table();
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        for (int is_cql = 0; is_cql < 2; is_cql++) {
            trp_sac_options options;
            trp_options_resolve(table, NULL, &options);
            assert_false(option_is_idle(table, option_find(table, names[i]), &options));
            assert_int_equal(trp_options_set(table, &options, names[i], "7"), TRP_OK);
            assert_int_equal(trp_options_set(table, &options, "conservative", is_cql ? "0.5" : "0"),
                             TRP_OK);
            assert_int_equal(option_is_idle(table, option_find(table, names[i]), &options),
                             !is_cql);
        }
}

static void the_temperature_rises_below_the_wanted_entropy_and_falls_above_it(void **state)
{
    (void)state;
    for (int above = 0; above < 2; above++) {
        trp_sac_options options = options_of(false);
        options.target_entropy = above ? -100 : 100;
        struct study *study = begin(&options);
        struct items *items = items_create(&study->updater->sources[0], PAPER_ROWS);
        paper_fill(items, 11);
        float before = log_temperature(study);
        for (int step = 0; step < 5; step++)
            assert_int_equal(study_step(study, &items->batch), TRP_OK);
        assert_int_equal(log_temperature(study) < before, above);
        items_destroy(items);
        study_destroy(study);
    }
}

/* Minus the numbers of an action: the first step's temperature is the same as with that written
 * out, and differs from another one's. */
static void the_entropy_that_is_wanted_follows_the_action(void **state)
{
    (void)state;
    const float entropies[] = {0, -2, -1};
    float gradients[3];
    for (size_t i = 0; i < 3; i++) {
        trp_sac_options options = options_of(false);
        options.target_entropy = entropies[i];
        struct study *study = begin(&options);
        struct items *items = items_create(&study->updater->sources[0], PAPER_ROWS);
        paper_fill(items, 11);
        assert_int_equal(study_step(study, &items->batch), TRP_OK);
        gradients[i] = paper_saved(study, "log_temperature.adam.m")[0];
        items_destroy(items);
        study_destroy(study);
    }
    assert_memory_equal(&gradients[0], &gradients[1], sizeof(float));
    assert_true(fabsf(gradients[0] - gradients[2]) > 0);
}

static void a_fresh_run_has_targets_that_are_copies_and_critics_that_differ(void **state)
{
    (void)state;
    trp_sac_options options = options_of(false);
    trp_agent agent = trp_sac(&options);
    struct study *study = study_create(&agent, &paper_env, PAPER_ROWS, 3);
    struct before fresh = before_step(study);
    size_t bytes = study->updater->vectors[paper_vector(study, "critics")].count * sizeof(float);
    assert_memory_equal(fresh.target_critics, fresh.critics, bytes);
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
    trp_sac_options options = options_of(true);
    trp_agent agent = trp_sac(&options);
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
                {"observation", "the critic loss of step 1 is nan"},
                {"params", "the critic loss of step 1 is nan"},
                {"critics", "the critic loss of step 1 is nan"},
                {"log_temperature", "the critic loss of step 1 is nan"}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        trp_sac_options options = options_of(false);
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

/* Of states of 0, whose normal variable has this mean and logarithm of its deviation. */
static void act_at(float mean, float log_std, bool greedy, uint64_t steps,
                   float (*actions)[PAPER_ACTION])
{
    static const float observations[ACTING][PAPER_STATE];
    trp_sac_options options = options_of(false);
    options.random_steps = 100;
    trp_agent agent = trp_sac(&options);
    trp_policy *policy;
    assert_int_equal(agent.impl->policy(&agent, &paper_env,
                                        &(trp_policy_options){.rows = ACTING, .greedy = greedy},
                                        &policy),
                     TRP_OK);
    float *params = trp_floats_create(policy->param_count);
    for (size_t i = 0; i < policy->tensor_count; i++)
        if (strcmp(policy->tensors[i].name, "mean.bias") == 0)
            trp_net_tensor_set(&policy->tensors[i], (float[]){mean, mean}, params);
        else if (strcmp(policy->tensors[i].name, "log_std.bias") == 0)
            trp_net_tensor_set(&policy->tensors[i], (float[]){log_std, log_std}, params);
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

/* The place of its action between the bounds, undone to the normal variable. */
static void moments(float (*actions)[PAPER_ACTION], size_t i, double *mean, double *deviation)
{
    double low = (double)paper_low[i], high = (double)paper_high[i], sum = 0, squares = 0;
    for (size_t row = 0; row < ACTING; row++) {
        assert_true(actions[row][i] >= paper_low[i] && actions[row][i] <= paper_high[i]);
        double u = atanh(2 * ((double)actions[row][i] - low) / (high - low) - 1);
        sum += u;
        squares += u * u;
    }
    *mean = sum / ACTING;
    *deviation = sqrt(squares / ACTING - *mean * *mean);
}

static void actors_draw_between_the_bounds(void **state)
{
    (void)state;
    static float actions[ACTING][PAPER_ACTION];
    for (size_t i = 0; i < PAPER_ACTION; i++) {
        double mean, deviation;
        act_at(0.3F, -0.5F, false, 100, actions);
        moments(actions, i, &mean, &deviation);
        assert_float_equal(mean, 0.3, 0.03);
        assert_float_equal(deviation, exp(-0.5), 0.02);
    }
}

static void a_greedy_policy_takes_the_mean_and_is_never_random(void **state)
{
    (void)state;
    static float actions[ACTING][PAPER_ACTION];
    act_at(0.3F, 0, true, 0, actions);
    for (size_t row = 0; row < ACTING; row++) {
        assert_float_equal(actions[row][0], 0.5 + 1.5 * tanh(0.3), 1e-5);
        assert_float_equal(actions[row][1], -1 + 2 * tanh(0.3), 1e-5);
    }
}

static void the_first_steps_of_all_actors_are_uniform(void **state)
{
    (void)state;
    static float actions[ACTING][PAPER_ACTION];
    act_at(3, -5, false, 99, actions);
    for (size_t i = 0; i < PAPER_ACTION; i++) {
        double low = (double)paper_low[i], high = (double)paper_high[i];
        size_t lower = 0;
        for (size_t row = 0; row < ACTING; row++)
            lower += ((double)actions[row][i] - low) / (high - low) < 0.25;
        assert_in_range(lower, ACTING / 4 - 120, ACTING / 4 + 120);
    }
}

/* ---- pairings -------------------------------------------------------------------------------- */

static void what_does_not_fit_is_refused_by_name(void **state)
{
    (void)state;
    static const float endless = -INFINITY;
    trp_env_spec choices = paper_env, unbounded = paper_env, two = paper_env, image = paper_env;
    choices.action_kind = TRP_ACTION_MULTI_DISCRETE;
    unbounded.action_count = 1;
    unbounded.action_low = &endless;
    two.observations[1] = two.observations[0];
    image.observations[0] = (trp_tensor_spec){.dtype = TRP_UINT8, .rank = 3, .shape = {36, 36, 3}};
    const struct {
        const trp_env_spec *env;
        trp_sac_options options;
        const char *words;
    } rows[] = {
        {&choices, {.n_step = 1}, "sac: Paper has choices in several dimensions, needs numbers"},
        {&unbounded, {.n_step = 1}, "number 0 of an action of Paper lies in [-inf, 2]"},
        {&two, {.n_step = 1}, "sac: Paper observes 2 tensors, needs one"},
        {&image, {.n_step = 1}, "sac: Paper observes uint8 [36][36][3], needs float32"},
        {&paper_env, {.replay_size = 10, .min_replay_size = 11}, "min_replay_size is 11"},
        {&paper_env,
         {.conservative = 5, .batch_size = 65536, .conservative_samples = 22},
         "sac: batch_size 65536 times 66 actions at each state are more rows than"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        trp_agent agent = trp_sac(&rows[i].options);
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
        cmocka_unit_test(a_conservative_step_is_that_of_cqls_paper),
        cmocka_unit_test(the_first_steps_of_cql_clone_what_was_done),
        cmocka_unit_test(sac_does_not_clone),
        cmocka_unit_test(what_is_of_cql_alone_is_idle_in_sac),
        cmocka_unit_test(the_temperature_rises_below_the_wanted_entropy_and_falls_above_it),
        cmocka_unit_test(the_entropy_that_is_wanted_follows_the_action),
        cmocka_unit_test(a_fresh_run_has_targets_that_are_copies_and_critics_that_differ),
        cmocka_unit_test(learning_goes_on_after_a_checkpoint_bit_for_bit),
        cmocka_unit_test(what_is_not_finite_ends_the_run_and_is_named),
        cmocka_unit_test(actors_draw_between_the_bounds),
        cmocka_unit_test(a_greedy_policy_takes_the_mean_and_is_never_random),
        cmocka_unit_test(the_first_steps_of_all_actors_are_uniform),
        cmocka_unit_test(what_does_not_fit_is_refused_by_name),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* MPO's update by the formulas of its papers, worked out here in double; what its networks are and
 * what its policy does; what it cannot learn. */
#include <troupe/log.h>
#include <troupe/mpo.h>
#include "control_study.h"

enum { SAMPLES = 5, DUALS_MAX = 2 + 2 * PAPER_ACTION };
static const double gamma_ = 0.9, tau = 0.1, beta = 0.6, priority_epsilon = 0.02;
static const double rate = 0.03, critic_rate = 0.02, dual_rate = 0.05;
static const double epsilon = 0.3, epsilon_penalty = 0.05, epsilon_mean = 0.2, epsilon_std = 0.01;
static const double temperature = 0.4, alpha_mean = 0.8, alpha_std = -0.5;

static const struct paper_net policy_shape = {
    .inputs = PAPER_STATE, .hidden = 4, .outputs = 2 * PAPER_ACTION};
static const char *const policy_heads[] = {"mean", "log_std", NULL};

static trp_mpo_options options_of(bool prioritized)
{
    return (trp_mpo_options){.hidden = {4},
                             .critic_hidden = {4},
                             .activation = TRP_TANH,
                             .no_layer_norm = true,
                             .discount = (float)gamma_,
                             .learning_rate = (float)rate,
                             .critic_learning_rate = (float)critic_rate,
                             .dual_learning_rate = (float)dual_rate,
                             .max_gradient_norm = -1,
                             .target_rate = (float)tau,
                             .samples = SAMPLES,
                             .epsilon = (float)epsilon,
                             .epsilon_penalty = (float)epsilon_penalty,
                             .epsilon_mean = (float)epsilon_mean,
                             .epsilon_deviation = (float)epsilon_std,
                             .initial_temperature = (float)temperature,
                             .initial_alpha_mean = (float)alpha_mean,
                             .initial_alpha_deviation = (float)alpha_std,
                             .priority_exponent = prioritized ? 0.5F : 0,
                             .importance_exponent = (float)beta,
                             .priority_epsilon = (float)priority_epsilon};
}

static struct study *begin(const trp_mpo_options *options)
{
    trp_agent agent = trp_mpo(options);
    struct study *study = study_create(&agent, &paper_env, PAPER_ROWS, 3);
    paper_shake(study, "params", "params", 5, 0.5F);
    paper_shake(study, "critics", "critics", 7, 0.7F);
    paper_shake(study, "target_params", "params", 6, 0.5F);
    paper_shake(study, "target_critics", "critics", 14, 0.7F);
    float *duals = study->run.values[paper_vector(study, "duals")];
    for (size_t i = 0; i < study->updater->vectors[paper_vector(study, "duals")].count; i++)
        duals[i] += 0.3F * (float)i; /* each is told from the others */
    return study;
}

/* ---- the papers ------------------------------------------------------------------------------ */

static struct paper_net policy_of(const struct study *study, const float *flat)
{
    const trp_vector_spec *params = &study->updater->vectors[paper_vector(study, "params")];
    return paper_read(params, flat, "body", policy_heads, &policy_shape);
}

static double softplus(double x)
{
    return log1p(exp(x)) + 1e-8;
}

static double slope(double x)
{
    return 1 / (1 + exp(-x));
}

/* What the target policy does at a state, and what it is worth. */
struct row {
    double mean[PAPER_ACTION], std[PAPER_ACTION]; /* of the target policy */
    double actions[SAMPLES][PAPER_ACTION];
    double q[SAMPLES], cost[SAMPLES];
    double weight[SAMPLES];
};

static void draw_rows(const struct study *study, const struct items *items,
                      struct control_before *before, struct row rows[PAPER_ROWS])
{
    const float *next = items_column(items, "next_observation");
    struct paper_net policy = policy_of(study, before->target_params);
    struct paper_net critic = paper_critic(study, before->target_critics, 0);
    size_t beyond = 0;
    for (size_t row = 0; row < PAPER_ROWS; row++) {
        struct row *to = &rows[row];
        struct paper_pass pass;
        memset(to, 0, sizeof *to);
        paper_say(&policy, next, row, &pass);
        for (size_t i = 0; i < PAPER_ACTION; i++) {
            to->mean[i] = pass.y[i];
            to->std[i] = exp(pass.y[PAPER_ACTION + i]);
        }
        for (size_t s = 0; s < SAMPLES; s++) {
            double cut[PAPER_ACTION], squares = 0;
            trp_rng rng = paper_draw(&before->rng, 0, row * SAMPLES + s);
            for (size_t i = 0; i < PAPER_ACTION; i++) {
                double action = to->mean[i] + to->std[i] * trp_rng_normal(&rng);
                to->actions[s][i] = action;
                cut[i] = fmax(-1, fmin(1, action));
                squares += (action - cut[i]) * (action - cut[i]);
            }
            to->cost[s] = sqrt(squares);
            to->q[s] = paper_q(&critic, next, row, cut, NULL);
            beyond += squares > 0;
        }
    }
    assert_true(beyond > 0 && beyond < PAPER_ROWS * SAMPLES);
}

/* Adds softmax(q / eta) to a row's weights; returns log mean exp(q / eta), whose product with eta
 * has the derivative *push by eta. */
static double weigh(struct row *row, const double q[SAMPLES], double eta, double *push)
{
    double sum = 0, mean = 0;
    for (size_t s = 0; s < SAMPLES; s++)
        sum += exp(q[s] / eta);
    for (size_t s = 0; s < SAMPLES; s++) {
        row->weight[s] += exp(q[s] / eta) / sum;
        mean += exp(q[s] / eta) / sum * q[s] / eta;
    }
    *push += (log(sum / SAMPLES) - mean) / PAPER_ROWS;
    return log(sum / SAMPLES);
}

/* The E-step (section 4.1): weights, and the gradients of both temperatures. */
static void improve(const trp_mpo_options *options, struct row *rows, const double *duals,
                    double *dduals)
{
    double push[2] = {epsilon, epsilon_penalty};
    for (size_t row = 0; row < PAPER_ROWS; row++) {
        double penalty[SAMPLES];
        for (size_t s = 0; s < SAMPLES; s++)
            penalty[s] = -rows[row].cost[s];
        weigh(&rows[row], rows[row].q, softplus(duals[0]), &push[0]);
        if (!options->no_action_penalty)
            weigh(&rows[row], penalty, softplus(duals[1]), &push[1]);
    }
    dduals[0] = slope(duals[0]) * push[0];
    dduals[1] = options->no_action_penalty ? 0 : slope(duals[1]) * push[1];
}

/* What the M-step makes: the loss, and both mean divergences. */
struct followed {
    double loss, means, stds;
};

/* The M-step (section 4.2, decoupled): adds a row's gradients of what the policy says. `alphas` are
 * of means and then of deviations; kl: their mean divergences, added to. */
static struct followed follow(const struct row *row, const double y[2 * PAPER_ACTION],
                              const double alphas[2 * PAPER_ACTION], double kl[2 * PAPER_ACTION],
                              double dy[2 * PAPER_ACTION])
{
    struct followed done = {0};
    for (size_t i = 0; i < PAPER_ACTION; i++) {
        double mean = y[i], old = row->mean[i], was = row->std[i], std = exp(y[PAPER_ACTION + i]);
        double by_mean = (mean - old) * (mean - old) / (2 * was * was);
        double by_std = log(std / was) + was * was / (2 * std * std) - 0.5;
        dy[i] = alphas[i] * (mean - old) / (was * was);
        dy[PAPER_ACTION + i] = alphas[PAPER_ACTION + i] * (1 - was * was / (std * std));
        for (size_t s = 0; s < SAMPLES; s++) {
            double a = row->actions[s][i], weight = row->weight[s];
            dy[i] -= weight * (a - mean) / (was * was);
            dy[PAPER_ACTION + i] -= weight * ((a - old) * (a - old) / (std * std) - 1);
            done.loss +=
                weight * ((a - mean) * (a - mean) / (2 * was * was) + log(was) +
                          (a - old) * (a - old) / (2 * std * std) + log(std) + log(2 * acos(-1)));
        }
        done.loss += alphas[i] * by_mean + alphas[PAPER_ACTION + i] * by_std;
        done.means += by_mean;
        done.stds += by_std;
        kl[i] += by_mean / PAPER_ROWS;
        kl[PAPER_ACTION + i] += by_std / PAPER_ROWS;
    }
    return done;
}

static void check_policy(struct study *study, const struct items *items,
                         const struct control_before *before, const trp_mpo_options *options,
                         const struct row *rows, const double *duals, double *dduals)
{
    const float *next = items_column(items, "next_observation");
    struct paper_net policy = policy_of(study, before->params), grads = policy_shape;
    size_t each = options->joint_bounds ? 1 : PAPER_ACTION;
    double alphas[2 * PAPER_ACTION], kl[2 * PAPER_ACTION] = {0};
    struct followed all = {0};
    for (size_t i = 0; i < PAPER_ACTION; i++) {
        alphas[i] = softplus(duals[2 + i % each]);
        alphas[PAPER_ACTION + i] = softplus(duals[2 + each + i % each]);
    }
    for (size_t row = 0; row < PAPER_ROWS; row++) {
        struct paper_pass pass;
        double dy[2 * PAPER_ACTION];
        paper_say(&policy, next, row, &pass);
        struct followed done = follow(&rows[row], pass.y, alphas, kl, dy);
        all.loss += done.loss / PAPER_ROWS;
        all.means += done.means / PAPER_ROWS;
        all.stds += done.stds / PAPER_ROWS;
        for (size_t i = 0; i < 2 * PAPER_ACTION; i++)
            dy[i] /= PAPER_ROWS;
        paper_backward(&policy, &pass, dy, &grads, NULL);
    }
    paper_assert_stepped(study, "params", "body", policy_heads, before->params, &grads, rate);
    paper_assert_close(study_reported(study, "policy_loss"), all.loss, "policy_loss");
    paper_assert_close(study_reported(study, "mean_divergence"), all.means, "mean_divergence");
    paper_assert_close(study_reported(study, "deviation_divergence"), all.stds,
                       "deviation_divergence");
    for (size_t i = 0; i < each; i++) {
        size_t mean = 2 + i, std = 2 + each + i;
        double of_means = each == 1 ? all.means : kl[i];
        double of_stds = each == 1 ? all.stds : kl[PAPER_ACTION + i];
        dduals[mean] = slope(duals[mean]) * (epsilon_mean - of_means);
        dduals[std] = slope(duals[std]) * (epsilon_std - of_stds);
    }
}

static void check_duals(struct study *study, const double *before, const double *grads)
{
    size_t vector = paper_vector(study, "duals");
    const float *mean = paper_saved(study, "duals.adam.m"), *now = study->run.values[vector];
    for (size_t i = 0; i < study->updater->vectors[vector].count; i++) {
        double g = grads[i];
        paper_assert_close((double)mean[i], 0.1 * g, "duals.adam.m");
        paper_assert_close((double)now[i], before[i] - dual_rate * g / (fabs(g) + 1e-8), "duals");
    }
}

static void check_step(const trp_mpo_options *options)
{
    struct study *study = begin(options);
    struct items *items = items_create(&study->updater->sources[0], PAPER_ROWS);
    paper_fill(items, 11);
    const float *rewards = items_column(items, "reward");
    const float *discounts = items_column(items, "discount");
    size_t vector = paper_vector(study, "duals");
    double duals[DUALS_MAX], dduals[DUALS_MAX], targets[PAPER_ROWS];
    struct row rows[PAPER_ROWS];
    for (size_t i = 0; i < study->updater->vectors[vector].count; i++)
        duals[i] = (double)study->run.values[vector][i];
    struct control_before before = control_before_step(study);
    assert_int_equal(study_step(study, &items->batch), TRP_OK);
    draw_rows(study, items, &before, rows);
    for (size_t row = 0; row < PAPER_ROWS; row++) {
        double next = 0;
        for (size_t s = 0; s < SAMPLES; s++)
            next += rows[row].q[s] / SAMPLES;
        targets[row] = (double)rewards[row] + gamma_ * (double)discounts[row] * next;
    }
    paper_check_critics(study, items, before.critics, targets, beta, priority_epsilon, critic_rate,
                        NULL);
    improve(options, rows, duals, dduals);
    check_policy(study, items, &before, options, rows, duals, dduals);
    check_duals(study, duals, dduals);
    paper_assert_close(study_reported(study, "temperature"), softplus(duals[0]), "temperature");
    paper_assert_followed(study, "target_params", before.target_params, "params", tau);
    paper_assert_followed(study, "target_critics", before.target_critics, "critics", tau);
    control_forget(&before);
    items_destroy(items);
    study_destroy(study);
}

static void a_step_is_that_of_the_papers(void **state)
{
    (void)state;
    trp_mpo_options options = options_of(false);
    check_step(&options);
    options = options_of(true);
    check_step(&options);
}

static void bounds_may_be_of_all_numbers_together_and_costs_left_out(void **state)
{
    (void)state;
    trp_mpo_options options = options_of(false);
    options.joint_bounds = true;
    check_step(&options);
    options.no_action_penalty = true;
    check_step(&options);
}

static void targets_are_copied_every_period(void **state)
{
    (void)state;
    trp_mpo_options options = options_of(false);
    options.target_rate = 0;
    options.target_period = 3;
    struct study *study = begin(&options);
    control_assert_copied_every(study, options.target_period);
    study_destroy(study);
}

/* Mean divergences of the last third of many steps on one batch, whose targets stay. */
static void settle(float bound_mean, float bound_std, double *means, double *stds)
{
    enum { STEPS = 1800 };
    trp_mpo_options options = options_of(false);
    options.learning_rate = options.critic_learning_rate = 3e-3F;
    options.dual_learning_rate = 0.1F;
    options.target_rate = 1e-9F;
    options.samples = 64;
    options.epsilon_mean = bound_mean;
    options.epsilon_deviation = bound_std;
    trp_agent agent = trp_mpo(&options);
    struct study *study = study_create(&agent, &paper_env, PAPER_ROWS, 3);
    struct items *items = items_create(&study->updater->sources[0], PAPER_ROWS);
    paper_shake(study, "target_critics", "critics", 14, 3);
    paper_fill(items, 11);
    *means = *stds = 0;
    for (size_t i = 0; i < STEPS; i++) {
        assert_int_equal(study_step(study, &items->batch), TRP_OK);
        *means += i >= 2 * STEPS / 3 ? study_reported(study, "mean_divergence") * 3 / STEPS : 0;
        *stds += i >= 2 * STEPS / 3 ? study_reported(study, "deviation_divergence") * 3 / STEPS : 0;
    }
    items_destroy(items);
    study_destroy(study);
}

/* Where a policy would go further, its bounds keep it; they are of each number of an action. */
static void divergences_stay_within_their_bounds(void **state)
{
    (void)state;
    double means, stds;
    settle(100, 100, &means, &stds);
    assert_true(means > 0.03 && stds > 0.006);
    settle(0.01F, 0.002F, &means, &stds);
    assert_true(means > 0.008 && means < PAPER_ACTION * 0.01 * 1.1);
    assert_true(stds > 0.0015 && stds < PAPER_ACTION * 0.002 * 1.3);
}

static float actions[CONTROL_ACTING][PAPER_ACTION];

static void a_fresh_run_has_acmes_networks_and_duals(void **state)
{
    (void)state;
    static const char *const params[] = {"body.0.weight [256][2]",
                                         "body.norm.weight [256]",
                                         "body.1.weight [256][256]",
                                         "body.2.weight [256][256]",
                                         "mean.weight [2][256]",
                                         "log_std.weight [2][256]",
                                         NULL};
    static const char *const critics[] = {
        "critic0.0.weight [512][4]",    "critic0.norm.weight [512]",
        "critic0.1.weight [512][512]",  "critic0.2.weight [256][512]",
        "critic0.head.weight [1][256]", NULL};
    static const float duals[] = {10, 10, 10, 10, 1000, 1000};
    trp_agent agent = trp_mpo(&(trp_mpo_options){.initial_deviation = 0.25F});
    struct study *study = study_create(&agent, &paper_env, PAPER_ROWS, 3);
    control_assert_layers(study, "params", params);
    control_assert_layers(study, "critics", critics);
    assert_true(control_targets_are_copies(study));
    assert_int_equal(study->updater->vectors[paper_vector(study, "duals")].count, 6);
    assert_memory_equal(study->run.values[paper_vector(study, "duals")], duals, sizeof duals);
    struct control_acting acting = {.agent = &agent, .params = study->params, .actions = actions};
    control_act(&acting);
    control_assert_moments(&acting, 0, 0.25, 0.03);
    study_destroy(study);
}

static void actors_draw_and_are_cut_to_the_bounds(void **state)
{
    (void)state;
    trp_mpo_options options = options_of(false);
    trp_agent agent = trp_mpo(&options);
    struct control_acting acting = {.agent = &agent,
                                    .names = {"mean.bias", "log_std.bias"},
                                    .biases = {0.1F, logf(0.2F)},
                                    .actions = actions};
    control_act(&acting);
    control_assert_moments(&acting, 0.1, 0.2, 0.02);
    acting.greedy = true;
    control_act(&acting);
    control_assert_moments(&acting, 0.1, 0, 1e-3);
    acting.biases[0] = 1.5F;
    control_act(&acting);
    control_assert_moments(&acting, 1, 0, 1e-3);
}

static void learning_goes_on_after_a_checkpoint_bit_for_bit(void **state)
{
    (void)state;
    trp_mpo_options options = options_of(true);
    options.no_layer_norm = false;
    options.target_rate = 0;
    options.target_period = 4;
    trp_agent agent = trp_mpo(&options);
    control_assert_resumes(&agent);
}

static void what_is_not_finite_ends_the_run_and_is_named(void **state)
{
    (void)state;
    static const struct control_nan rows[] = {{"reward", "the critic loss of step 1 is"},
                                              {"action", "the critic loss of step 1 is"},
                                              {"next_observation", "the critic loss of step 1 is"},
                                              {"target_params", "the critic loss of step 1 is"},
                                              {"target_critics", "the critic loss of step 1 is"},
                                              {"params", "the policy loss of step 1 is"},
                                              {"critics", "the critic loss of step 1 is"},
                                              {"duals", "the policy loss of step 1 is"},
                                              {NULL, NULL}};
    trp_mpo_options options = options_of(false);
    trp_agent agent = trp_mpo(&options);
    control_assert_nan_is_named(&agent, rows);
}

static void what_does_not_fit_is_refused_by_name(void **state)
{
    (void)state;
    trp_agent agent = trp_mpo(NULL);
    control_assert_pairings(&agent);
    agent = trp_mpo(&(trp_mpo_options){.replay_size = 10, .min_replay_size = 11});
    control_assert_refused(&agent, &paper_env, "mpo: min_replay_size is 11");
    agent = trp_mpo(&(trp_mpo_options){.batch_size = 65536, .samples = 65});
    control_assert_refused(&agent, &paper_env, "mpo: batch_size 65536 times 65 actions at each");
    agent = trp_mpo(&(trp_mpo_options){.hidden = {2}, .critic_hidden = {2}, .samples = 64});
    study_assert_too_large(&agent, &paper_env, 65537, "mpo: batch_size 65537 times 64");
    study_assert_too_large(&agent, &paper_env, 1U << 26, "times 64"); /* 2^32 together */
}

int main(void)
{
    trp_log_set_level(TRP_ERROR);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_step_is_that_of_the_papers),
        cmocka_unit_test(bounds_may_be_of_all_numbers_together_and_costs_left_out),
        cmocka_unit_test(targets_are_copied_every_period),
        cmocka_unit_test(divergences_stay_within_their_bounds),
        cmocka_unit_test(a_fresh_run_has_acmes_networks_and_duals),
        cmocka_unit_test(actors_draw_and_are_cut_to_the_bounds),
        cmocka_unit_test(learning_goes_on_after_a_checkpoint_bit_for_bit),
        cmocka_unit_test(what_is_not_finite_ends_the_run_and_is_named),
        cmocka_unit_test(what_does_not_fit_is_refused_by_name),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

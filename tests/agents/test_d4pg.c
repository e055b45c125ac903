/* D4PG's update by the formulas of its paper, worked out here in double; what its networks are and
 * what its policy does; what it cannot learn. */
#include <troupe/d4pg.h>
#include <troupe/log.h>
#include "control_study.h"

enum { ATOMS = 5 };
static const double gamma_ = 0.9, tau = 0.1, beta = 0.6, epsilon = 0.02;
static const double rate = 0.03, critic_rate = 0.02, least = -2, most = 1.5;

static const struct paper_net policy_shape = {
    .inputs = PAPER_STATE, .hidden = 4, .outputs = PAPER_ACTION, .squashed = true};
static const struct paper_net critic_shape = {
    .inputs = PAPER_STATE + PAPER_ACTION, .hidden = 4, .outputs = ATOMS};
static const char *const policy_heads[] = {"action", NULL};
static const char *const critic_heads[] = {"critic0.head", NULL};

static trp_d4pg_options options_of(bool prioritized)
{
    return (trp_d4pg_options){.hidden = {4},
                              .critic_hidden = {4},
                              .activation = TRP_TANH,
                              .no_layer_norm = true,
                              .atoms = ATOMS,
                              .value_least = (float)least,
                              .value_most = (float)most,
                              .discount = (float)gamma_,
                              .learning_rate = (float)rate,
                              .critic_learning_rate = (float)critic_rate,
                              .max_gradient_norm = -1,
                              .max_action_gradient = 0.4F,
                              .target_rate = (float)tau,
                              .priority_exponent = prioritized ? 0.5F : 0,
                              .importance_exponent = (float)beta,
                              .priority_epsilon = (float)epsilon};
}

static struct study *begin(const trp_d4pg_options *options)
{
    trp_agent agent = trp_d4pg(options);
    struct study *study = study_create(&agent, &paper_env, PAPER_ROWS, 3);
    paper_shake(study, "params", "params", 5, 0.7F);
    paper_shake(study, "critics", "critics", 7, 0.7F);
    paper_shake(study, "target_params", "params", 6, 0.7F);
    paper_shake(study, "target_critics", "critics", 14, 1);
    return study;
}

/* ---- the paper ------------------------------------------------------------------------------- */

static struct paper_net policy_of(const struct study *study, const float *flat)
{
    const trp_vector_spec *params = &study->updater->vectors[paper_vector(study, "params")];
    return paper_read(params, flat, "body", policy_heads, &policy_shape);
}

static struct paper_net critic_of(const struct study *study, const float *flat)
{
    const trp_vector_spec *critics = &study->updater->vectors[paper_vector(study, "critics")];
    return paper_read(critics, flat, "critic0", critic_heads, &critic_shape);
}

static double atom(size_t i)
{
    return least + (most - least) * (double)i / (ATOMS - 1);
}

/* The probabilities of the critic's atoms; returns their mean. */
static double judge(const struct paper_net *critic, const float *states, size_t row,
                    const double *action, struct paper_pass *pass, double p[ATOMS])
{
    double sum = 0, mean = 0;
    paper_q(critic, states, row, action, pass);
    for (size_t i = 0; i < ATOMS; i++)
        sum += p[i] = exp(pass->y[i]);
    for (size_t i = 0; i < ATOMS; i++)
        mean += (p[i] /= sum) * atom(i);
    return mean;
}

/* Algorithm 1 of Bellemare et al. 2017 for one row: each atom's share goes to its neighbours. */
static void project(double reward, double discount, const double p[ATOMS], double target[ATOMS],
                    size_t cut[2])
{
    memset(target, 0, ATOMS * sizeof *target);
    for (size_t i = 0; i < ATOMS; i++) {
        double value = reward + discount * atom(i);
        cut[0] += value < least;
        cut[1] += value > most;
        value = fmin(fmax(value, least), most);
        for (size_t k = 0; k < ATOMS; k++)
            target[k] += p[i] * fmax(0, 1 - fabs(value - atom(k)) / (atom(1) - atom(0)));
    }
}

/* The critic's phase: the cross entropy with the target of n steps later. */
static void check_critic(struct study *study, const struct items *items,
                         const struct control_before *before)
{
    const float *states = items_column(items, "observation");
    const float *next = items_column(items, "next_observation");
    const float *rewards = items_column(items, "reward");
    const float *discounts = items_column(items, "discount");
    const double *priorities = update_of_step(&study->run, study->steps)->priorities[0];
    struct paper_net policy = policy_of(study, before->target_params);
    struct paper_net target = critic_of(study, before->target_critics);
    struct paper_net critic = critic_of(study, before->critics), grads = critic_shape;
    double loss = 0, mean_q = 0;
    size_t cut[2] = {0};
    for (size_t row = 0; row < PAPER_ROWS; row++) {
        struct paper_pass pass;
        double p[ATOMS], wanted[ATOMS], dy[ATOMS], divergence = 0;
        double action[] = {paper_action(items, row, 0), paper_action(items, row, 1)};
        double weight = priorities ? paper_weight(items, row, beta) : 1;
        paper_say(&policy, next, row, &pass);
        double next_action[] = {pass.y[0], pass.y[1]};
        judge(&target, next, row, next_action, &pass, p);
        project((double)rewards[row], gamma_ * (double)discounts[row], p, wanted, cut);
        mean_q += judge(&critic, states, row, action, &pass, p) / PAPER_ROWS;
        for (size_t i = 0; i < ATOMS; i++) {
            dy[i] = weight * (p[i] - wanted[i]) / PAPER_ROWS;
            loss -= weight * wanted[i] * log(p[i]) / PAPER_ROWS;
            divergence += wanted[i] > 0 ? wanted[i] * log(wanted[i] / p[i]) : 0;
        }
        paper_backward(&critic, &pass, dy, &grads, NULL);
        if (priorities)
            paper_assert_close(priorities[row], divergence + epsilon, "a priority");
    }
    assert_true(cut[0] > 0 && cut[1] > 0); /* both ends count */
    paper_assert_stepped(study, "critics", "critic0", critic_heads, before->critics, &grads,
                         critic_rate);
    paper_assert_close(study_reported(study, "critic_loss"), loss, "critic_loss");
    paper_assert_close(study_reported(study, "mean_q"), mean_q, "mean_q");
}

/* Equation 4, by the critic as it is after its own phase: the mean's gradient by the action, cut
 * to a norm, through the policy. */
static void check_policy(struct study *study, const struct items *items,
                         const struct control_before *before, double most_norm)
{
    const float *states = items_column(items, "observation");
    struct paper_net policy = policy_of(study, before->params), grads = policy_shape;
    struct paper_net critic = critic_of(study, study->run.values[paper_vector(study, "critics")]);
    double loss = 0;
    size_t cut = 0;
    for (size_t row = 0; row < PAPER_ROWS; row++) {
        struct paper_pass pass, judged;
        double p[ATOMS], dy[ATOMS], dx[PAPER_WIDTH_MAX], *dq = dx + PAPER_STATE;
        paper_say(&policy, states, row, &pass);
        double mean = judge(&critic, states, row, pass.y, &judged, p);
        loss -= mean / PAPER_ROWS;
        for (size_t i = 0; i < ATOMS; i++)
            dy[i] = p[i] * (atom(i) - mean);
        paper_backward(&critic, &judged, dy, NULL, dx);
        double norm = sqrt(dq[0] * dq[0] + dq[1] * dq[1]);
        double scale = norm > most_norm ? most_norm / norm : 1;
        cut += norm > most_norm;
        for (size_t i = 0; i < PAPER_ACTION; i++)
            dq[i] *= -scale / PAPER_ROWS;
        paper_backward(&policy, &pass, dq, &grads, NULL);
    }
    assert_true(isinf(most_norm) || (cut > 0 && cut < PAPER_ROWS));
    paper_assert_stepped(study, "params", "body", policy_heads, before->params, &grads, rate);
    paper_assert_close(study_reported(study, "policy_loss"), loss, "policy_loss");
}

static void a_step_is_that_of_the_paper(void **state)
{
    (void)state;
    for (int round = 0; round < 3; round++) {
        trp_d4pg_options options = options_of(round == 1);
        if (round == 2)
            options.max_action_gradient = -1;
        struct study *study = begin(&options);
        struct items *items = items_create(&study->updater->sources[0], PAPER_ROWS);
        paper_fill(items, 11);
        struct control_before before = control_before_step(study);
        assert_int_equal(study_step(study, &items->batch), TRP_OK);
        check_critic(study, items, &before);
        check_policy(study, items, &before,
                     round == 2 ? INFINITY : (double)options.max_action_gradient);
        paper_assert_followed(study, "target_params", before.target_params, "params", tau);
        paper_assert_followed(study, "target_critics", before.target_critics, "critics", tau);
        control_forget(&before);
        items_destroy(items);
        study_destroy(study);
    }
}

static void targets_are_copied_every_period(void **state)
{
    (void)state;
    trp_d4pg_options options = options_of(false);
    options.target_rate = 0;
    options.target_period = 3;
    struct study *study = begin(&options);
    control_assert_copied_every(study, options.target_period);
    study_destroy(study);
}

static void gradients_are_clipped_to_a_norm(void **state)
{
    (void)state;
    static const char *const norms[] = {"grad_norm", "critics_grad_norm"};
    static const char *const means[] = {"params.adam.m", "critics.adam.m"};
    trp_d4pg_options options = options_of(false);
    options.max_gradient_norm = 0.01F;
    struct study *study = begin(&options);
    struct items *items = items_create(&study->updater->sources[0], PAPER_ROWS);
    paper_fill(items, 11);
    assert_int_equal(study_step(study, &items->batch), TRP_OK);
    for (int i = 0; i < 2; i++) {
        double squares = 0;
        const float *mean = paper_saved(study, means[i]);
        size_t count = study->updater->vectors[paper_vector(study, i ? "critics" : "params")].count;
        for (size_t k = 0; k < count; k++)
            squares += (double)mean[k] * (double)mean[k];
        assert_true(study_reported(study, norms[i]) > 0.011);
        paper_assert_close(sqrt(squares), 0.1 * 0.01, means[i]);
    }
    items_destroy(items);
    study_destroy(study);
}

static float actions[CONTROL_ACTING][PAPER_ACTION];

static void a_fresh_run_has_acmes_networks(void **state)
{
    (void)state;
    static const char *const params[] = {"body.0.weight [300][2]", "body.norm.weight [300]",
                                         "body.1.weight [200][300]", "action.weight [2][200]",
                                         NULL};
    static const char *const critics[] = {"critic0.0.weight [400][4]", "critic0.norm.weight [400]",
                                          "critic0.1.weight [300][400]",
                                          "critic0.head.weight [51][300]", NULL};
    trp_agent agent = trp_d4pg(NULL);
    struct study *study = study_create(&agent, &paper_env, PAPER_ROWS, 3);
    control_assert_layers(study, "params", params);
    control_assert_layers(study, "critics", critics);
    assert_true(control_targets_are_copies(study));
    struct control_acting acting = {
        .agent = &agent, .greedy = true, .params = study->params, .actions = actions};
    control_act(&acting);
    control_assert_moments(&acting, 0, 0, 0.05);
    study_destroy(study);
}

static void learning_goes_on_after_a_checkpoint_bit_for_bit(void **state)
{
    (void)state;
    trp_d4pg_options options = options_of(true);
    options.no_layer_norm = false;
    options.target_rate = 0;
    options.target_period = 4;
    trp_agent agent = trp_d4pg(&options);
    control_assert_resumes(&agent);
}

static void what_is_not_finite_ends_the_run_and_is_named(void **state)
{
    (void)state;
    static const struct control_nan rows[] = {
        {"reward", "the critic loss of step 1 is nan"},
        {"action", "the critic loss of step 1 is nan"},
        {"next_observation", "the critic loss of step 1 is nan"},
        {"target_params", "the critic loss of step 1 is nan"},
        {"params", "the policy loss of step 1 is nan"},
        {"critics", "the critic loss of step 1 is nan"},
        {NULL, NULL}};
    trp_d4pg_options options = options_of(false);
    trp_agent agent = trp_d4pg(&options);
    control_assert_nan_is_named(&agent, rows);
}

static void actors_add_noise_in_halves_of_the_bounds_distance(void **state)
{
    (void)state;
    trp_d4pg_options options = options_of(false);
    trp_agent agent = trp_d4pg(&options);
    struct control_acting acting = {.agent = &agent, .names = {"action.bias"}, .actions = actions};
    control_act(&acting);
    control_assert_moments(&acting, 0, 0.3, 0.02);
    acting.biases[0] = atanhf(0.5F);
    acting.greedy = true;
    control_act(&acting);
    control_assert_moments(&acting, 0.5, 0, 1e-3);
}

static void what_does_not_fit_is_refused_by_name(void **state)
{
    (void)state;
    trp_agent agent = trp_d4pg(NULL);
    control_assert_pairings(&agent);
    agent = trp_d4pg(&(trp_d4pg_options){.value_least = 3, .value_most = 3});
    control_assert_refused(&agent, &paper_env,
                           "d4pg: value_least is 3, must be below value_most, which is 3");
    agent = trp_d4pg(&(trp_d4pg_options){.replay_size = 10, .min_replay_size = 11});
    control_assert_refused(&agent, &paper_env, "d4pg: min_replay_size is 11");
}

int main(void)
{
    trp_log_set_level(TRP_ERROR);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_step_is_that_of_the_paper),
        cmocka_unit_test(targets_are_copied_every_period),
        cmocka_unit_test(gradients_are_clipped_to_a_norm),
        cmocka_unit_test(a_fresh_run_has_acmes_networks),
        cmocka_unit_test(learning_goes_on_after_a_checkpoint_bit_for_bit),
        cmocka_unit_test(what_is_not_finite_ends_the_run_and_is_named),
        cmocka_unit_test(actors_add_noise_in_halves_of_the_bounds_distance),
        cmocka_unit_test(what_does_not_fit_is_refused_by_name),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

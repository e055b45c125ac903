/* DQN with each of its losses: a step is that of the paper, whose formulas are worked out here in
 * double from what the right networks say (the passes and the gradient of these are trp_net's);
 * what does not go together is refused by name. */
#include <float.h>
#include <math.h>

#include <troupe/troupe.h>

#include "agents/dqn.h"
#include "study.h"

/* ---- items of CartPole ----------------------------------------------------------------------- */

enum { BATCH = 8, ACTIONS = 2, ATOMS = 5, SEEN = 4, SAID = BATCH * ACTIONS * ATOMS };

/* A third of them terminate; no two are equally probable. */
static void items_fill(struct items *items)
{
    float *states = items_column(items, "observation");
    float *next_states = items_column(items, "next_observation");
    float *rewards = items_column(items, "reward"), *discounts = items_column(items, "discount");
    int32_t *taken = items_column(items, "action");
    bool *masks = items_column(items, "mask"), *next_masks = items_column(items, "next_mask");
    trp_rng rng;
    trp_rng_init(&rng, 5, 0);
    for (size_t row = 0; row < BATCH; row++) {
        for (size_t k = 0; k < SEEN; k++) {
            states[row * SEEN + k] = (float)trp_rng_normal(&rng);
            next_states[row * SEEN + k] = (float)trp_rng_normal(&rng);
        }
        rewards[row] = (float)trp_rng_normal(&rng);
        discounts[row] = row % 3 == 0 ? 0 : 1;
        taken[row] = (int32_t)trp_rng_below(&rng, 2);
        if (masks)
            masks[row * ACTIONS + (size_t)taken[row]] = masks[row * ACTIONS + row % 2] = true;
        if (next_masks) {
            next_masks[row * ACTIONS] = row % 4 != 1;
            next_masks[row * ACTIONS + 1] = row % 4 != 2;
        }
        ((double *)(uintptr_t)items->batch.probabilities)[row] = 1e-3 * (double)(row + 1);
    }
}

/* ---- what networks say ----------------------------------------------------------------------- */

struct step {
    trp_dqn_loss loss;
    trp_precision precision;
    bool dueling, masked, noisy, prioritized, no_double;
};

static const double gamma_ = 0.9, beta = 0.7, kappa = 0.5, priority_epsilon = 0.01;
static const double least = -3, most = 4;                     /* atoms of C51 */
static const double temperature = 0.1, alpha = 0.5, cut = -2; /* Munchausen */

static trp_dqn_options options_of(const struct step *step)
{
    return (trp_dqn_options){.loss = step->loss,
                             .precision = step->precision,
                             .dueling = step->dueling,
                             .noisy = step->noisy,
                             .no_double = step->no_double,
                             .hidden = {8},
                             .atoms = ATOMS,
                             .value_least = (float)least,
                             .value_most = (float)most,
                             .quantiles = ATOMS,
                             .munchausen_temperature = (float)temperature,
                             .munchausen_scale = (float)alpha,
                             .munchausen_least = (float)cut,
                             .discount = (float)gamma_,
                             .huber_delta = (float)kappa,
                             .optimizer = TRP_SGD,
                             .learning_rate = 1,
                             .max_gradient_norm = -1,
                             .importance_exponent = (float)beta,
                             .priority_epsilon = (float)priority_epsilon,
                             .priority_exponent = step->prioritized ? 0.6F : -1};
}

/* Of both networks at the next states, and at the states themselves: the learned one's last, as its
 * gradient is wanted. */
struct said {
    float next_target[SAID], next_online[SAID], now_target[SAID], now_online[SAID];
    float shared[SAID]; /* at the next states, with the target's noise */
};

static void say(trp_net *net, const float *params, const void *observations, float *said)
{
    trp_net_forward(net, params,
                    &(trp_net_rows){.rows = BATCH, .inputs = {observations}, .outputs = {said}});
}

/* Noisy ones have noise of their own each, drawn in this order (Fortunato et al. 2018, section 3.1:
 * of the target, of the choice, of the learned one). */
static void listen(const struct step *step, struct study *study, const struct items *items,
                   trp_net *net, struct said *said)
{
    const float *params = study->run.values[0], *target = study->run.values[1];
    const float *states = items_column(items, "observation");
    const float *next_states = items_column(items, "next_observation");
    trp_rng rng = study->run.rng;
    trp_net_resample(net, NULL, &rng);
    say(net, target, next_states, said->next_target);
    say(net, target, states, said->now_target);
    say(net, params, next_states, said->shared);
    if (step->loss != TRP_DQN_MUNCHAUSEN)
        trp_net_resample(net, NULL, &rng);
    say(net, params, next_states, said->next_online);
    trp_net_resample(net, NULL, &rng);
    say(net, params, states, said->now_online);
}

/* ---- the papers ------------------------------------------------------------------------------ */

static size_t outputs_of(const struct step *step)
{
    return step->loss == TRP_DQN_C51 || step->loss == TRP_DQN_QUANTILE ? ATOMS : 1;
}

static double atom(size_t i)
{
    return least + (most - least) * (double)i / (ATOMS - 1);
}

static void softmax(const float *logits, double *probabilities)
{
    double sum = 0;
    for (size_t i = 0; i < ATOMS; i++)
        sum += probabilities[i] = exp((double)logits[i]);
    for (size_t i = 0; i < ATOMS; i++)
        probabilities[i] /= sum;
}

/* What an action is worth, on average. */
static double value_of(const struct step *step, const float *outputs)
{
    double probabilities[ATOMS], mean = 0;
    if (outputs_of(step) == 1)
        return (double)outputs[0];
    if (step->loss == TRP_DQN_C51)
        softmax(outputs, probabilities);
    for (size_t i = 0; i < ATOMS; i++)
        mean += step->loss == TRP_DQN_C51 ? atom(i) * probabilities[i] : (double)outputs[i] / ATOMS;
    return mean;
}

static bool allowed(const bool *masks, size_t row, size_t action)
{
    return !masks || masks[row * ACTIONS + action];
}

static size_t best(const struct step *step, const float *outputs, const bool *masks, size_t row)
{
    size_t found = ACTIONS, each = outputs_of(step);
    double value = -DBL_MAX;
    for (size_t i = 0; i < ACTIONS; i++) {
        double other = value_of(step, outputs + (row * ACTIONS + i) * each);
        if (allowed(masks, row, i) && other > value)
            found = i, value = other;
    }
    return found;
}

/* One row's loss, the size of its error, and the gradient with respect to what the action taken
 * has. */
struct row_loss {
    double loss, error, grad[ATOMS];
};

/* Bellemare et al. 2017, algorithm 1; of the error, Hessel et al. 2018: the divergence. */
static struct row_loss c51(double reward, double discount, const float *next, const float *now)
{
    double next_p[ATOMS], p[ATOMS], m[ATOMS] = {0}, width = (most - least) / (ATOMS - 1);
    struct row_loss row = {0};
    softmax(next, next_p);
    softmax(now, p);
    for (size_t i = 0; i < ATOMS; i++) {
        double b = (fmin(fmax(reward + discount * atom(i), least), most) - least) / width;
        size_t l = (size_t)floor(b), u = (size_t)ceil(b);
        m[l] += l == u ? next_p[i] : next_p[i] * ((double)u - b);
        m[u] += l == u ? 0 : next_p[i] * (b - (double)l);
    }
    for (size_t i = 0; i < ATOMS; i++) {
        row.loss -= m[i] * log(p[i]);
        row.error += m[i] > 0 ? m[i] * log(m[i] / p[i]) : 0;
        row.grad[i] = p[i] - m[i];
    }
    return row;
}

static double huber(double error)
{
    double size = fabs(error);
    return size <= kappa ? error * error / 2 : kappa * (size - kappa / 2);
}

/* Dabney et al. 2018, equations 9, 10 and algorithm 1. */
static struct row_loss quantile(double reward, double discount, const float *next, const float *now)
{
    struct row_loss row = {0};
    for (size_t i = 0; i < ATOMS; i++)
        for (size_t j = 0; j < ATOMS; j++) {
            double u = reward + discount * (double)next[j] - (double)now[i];
            double weight = fabs(((double)i + 0.5) / ATOMS - (u < 0)) / ATOMS;
            row.loss += weight * huber(u);
            row.grad[i] -= weight * fmax(-kappa, fmin(kappa, u));
            row.error += u / (ATOMS * ATOMS);
        }
    row.error = fabs(row.error);
    return row;
}

static double log_policy(const float *q, const bool *masks, size_t row, size_t action)
{
    double sum = 0;
    for (size_t i = 0; i < ACTIONS; i++)
        sum += allowed(masks, row, i)
                   ? exp(((double)q[row * ACTIONS + i] - (double)q[row * ACTIONS + action]) /
                         temperature)
                   : 0;
    return -log(sum);
}

/* Vieillard et al. 2020: M-DQN's target, with the clipped logarithm of its policy. */
static double munchausen_target(const struct items *items, const struct said *said, size_t row)
{
    const bool *next_masks = items_column(items, "next_mask");
    size_t taken = (size_t)((const int32_t *)items_column(items, "action"))[row];
    double reward = (double)((const float *)items_column(items, "reward"))[row], next = 0;
    double discount = (double)((const float *)items_column(items, "discount"))[row];
    for (size_t i = 0; i < ACTIONS; i++) {
        if (!allowed(next_masks, row, i))
            continue;
        double log_p = log_policy(said->next_target, next_masks, row, i);
        next += exp(log_p) * ((double)said->next_target[row * ACTIONS + i] - temperature * log_p);
    }
    double said_now =
        temperature * log_policy(said->now_target, items_column(items, "mask"), row, taken);
    return reward + alpha * fmax(cut, fmin(0, said_now)) + gamma_ * discount * next;
}

static struct row_loss row_loss(const struct step *step, const struct items *items,
                                const struct said *said, size_t row)
{
    size_t each = outputs_of(step);
    size_t taken = (size_t)((const int32_t *)items_column(items, "action"))[row];
    double reward = (double)((const float *)items_column(items, "reward"))[row];
    double discount = gamma_ * (double)((const float *)items_column(items, "discount"))[row];
    const float *judge = step->no_double ? said->next_target : said->next_online;
    size_t chosen = best(step, judge, items_column(items, "next_mask"), row);
    const float *next = said->next_target + (row * ACTIONS + chosen) * each;
    const float *now = said->now_online + (row * ACTIONS + taken) * each;
    if (step->loss == TRP_DQN_C51)
        return c51(reward, discount, next, now);
    if (step->loss == TRP_DQN_QUANTILE)
        return quantile(reward, discount, next, now);
    double target = step->loss == TRP_DQN_MUNCHAUSEN ? munchausen_target(items, said, row)
                                                     : reward + discount * (double)next[0];
    double error = target - (double)now[0];
    return (struct row_loss){
        .loss = huber(error), .error = fabs(error), .grad = {-fmax(-kappa, fmin(kappa, error))}};
}

/* (N P)^-beta over the largest of the batch (Schaul et al. 2016, section 3.4). */
static double weight_of(const struct step *step, const struct items *items, size_t row)
{
    const double *probabilities = items->batch.probabilities;
    double largest = 0;
    for (size_t i = 0; i < BATCH; i++)
        largest = fmax(largest, pow(1000 * probabilities[i], -beta));
    return step->prioritized ? pow(1000 * probabilities[row], -beta) / largest : 1;
}

/* ---- a step ---------------------------------------------------------------------------------- */

/* What one is to leave behind. */
struct expected {
    double loss, mean_q, priorities[BATCH];
    float grad[SAID]; /* with respect to what is said at the states */
};

static struct expected expect(const struct step *step, const struct items *items,
                              const struct said *said)
{
    size_t each = outputs_of(step);
    struct expected expected = {0};
    for (size_t row = 0; row < BATCH; row++) {
        size_t taken = (size_t)((const int32_t *)items_column(items, "action"))[row];
        size_t at = (row * ACTIONS + taken) * each;
        double weight = weight_of(step, items, row) / BATCH;
        struct row_loss one = row_loss(step, items, said, row);
        expected.loss += weight * one.loss;
        expected.mean_q += value_of(step, said->now_online + at) / BATCH;
        expected.priorities[row] = one.error + priority_epsilon;
        for (size_t i = 0; i < each; i++)
            expected.grad[at + i] = (float)(weight * one.grad[i]);
    }
    return expected;
}

/* With the target's noise something else would be chosen, in some row. */
static void assert_noise_chooses(const struct step *step, const struct said *said)
{
    size_t count = 0;
    for (size_t row = 0; row < BATCH; row++)
        count += best(step, said->shared, NULL, row) != best(step, said->next_online, NULL, row);
    assert_true(count > 0);
}

static void assert_close(double is, double should, double tolerance, const char *what, size_t at)
{
    if (!(fabs(is - should) <= tolerance * (1 + fabs(should))))
        fail_msg("%s %zu is %.9g, should be %.9g", what, at, is, should);
}

/* The gradient of the paper is subtracted, and reported is what the paper says. */
static void assert_stepped(const struct step *step, struct study *study, const struct items *items,
                           trp_net *net)
{
    struct said said;
    listen(step, study, items, net, &said);
    if (step->noisy && step->loss != TRP_DQN_MUNCHAUSEN)
        assert_noise_chooses(step, &said);
    struct expected expected = expect(step, items, &said);
    float *want = trp_floats_create(study->count), *grads = trp_floats_create(study->count);
    double moved = 0, tolerance = step->precision == TRP_BF16 ? 1e-3 : 2e-6;
    trp_net_backward(net, study->params,
                     &(trp_net_rows){.rows = BATCH,
                                     .inputs = {items_column(items, "observation")},
                                     .outputs = {expected.grad}},
                     &(trp_net_grads){.outputs = {expected.grad}, .params = grads});
    for (size_t i = 0; i < study->count; i++) {
        want[i] = study->params[i] - grads[i];
        moved += (double)(grads[i] * grads[i]);
    }
    assert_true(moved > 1e-4);
    assert_int_equal(study_step(study, &items->batch), TRP_OK);
    for (size_t i = 0; i < study->count; i++)
        assert_close((double)study->params[i], (double)want[i], tolerance, "parameter", i);
    assert_close(study_reported(study, "loss"), expected.loss, tolerance, "loss", 0);
    assert_close(study_reported(study, "mean_q"), expected.mean_q, tolerance, "mean_q", 0);
    const double *priorities = update_of_step(&study->run, study->steps)->priorities[0];
    assert_int_equal(priorities != NULL, step->prioritized);
    for (size_t i = 0; priorities && i < BATCH; i++)
        assert_close(priorities[i], expected.priorities[i], tolerance, "priority", i);
    trp_floats_destroy(want);
    trp_floats_destroy(grads);
}

static void check_step(struct step step)
{
    trp_dqn_options options = options_of(&step);
    trp_agent agent = trp_dqn(&options);
    const trp_env_spec *cartpole;
    assert_int_equal(trp_env_find("CartPole-v1", &cartpole), TRP_OK);
    trp_env_spec env = *cartpole;
    env.masked = step.masked;
    struct study *study = study_create(&agent, &env, BATCH, 3);
    struct items *items = items_create(&study->updater->sources[0], BATCH);
    items_fill(items);
    for (size_t i = 0; i < study->count; i++)
        study->run.values[1][i] *= 1 + 0.5F * (float)(i % 5); /* another network than the first */
    trp_dqn_options whole = dqn_options(&agent);
    struct q_net q = dqn_net(&whole);
    trp_net_spec spec = q_net_spec(&q, &env);
    trp_net *net;
    assert_int_equal(
        trp_net_create(
            &net, &(trp_net_options){.spec = &spec, .batch = BATCH, .precision = step.precision}),
        TRP_OK);
    assert_stepped(&step, study, items, net);
    trp_net_destroy(net);
    items_destroy(items);
    study_destroy(study);
}

static void a_step_is_that_of_its_paper(void **state)
{
    (void)state;
    check_step((struct step){.loss = TRP_DQN_MUNCHAUSEN});
    check_step((struct step){.loss = TRP_DQN_MUNCHAUSEN, .masked = true, .prioritized = true});
    check_step((struct step){.loss = TRP_DQN_C51});
    check_step((struct step){.loss = TRP_DQN_C51, .no_double = true, .prioritized = true});
    check_step((struct step){.loss = TRP_DQN_C51, .dueling = true, .masked = true});
    check_step((struct step){.loss = TRP_DQN_QUANTILE, .prioritized = true});
    check_step((struct step){.loss = TRP_DQN_QUANTILE, .dueling = true, .masked = true});
    check_step((struct step){.loss = TRP_DQN_QUANTILE, .no_double = true});
    check_step((struct step){.loss = TRP_DQN_MUNCHAUSEN, .precision = TRP_BF16});
    check_step((struct step){.loss = TRP_DQN_QUANTILE, .precision = TRP_BF16});
}

static void each_of_noisy_networks_has_noise_of_its_own(void **state)
{
    (void)state;
    for (trp_dqn_loss loss = TRP_DQN_HUBER; loss <= TRP_DQN_QUANTILE; loss++)
        for (int dueling = 0; dueling < 2; dueling++)
            check_step((struct step){.loss = loss, .noisy = true, .dueling = dueling});
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
        cmocka_unit_test(a_step_is_that_of_its_paper),
        cmocka_unit_test(each_of_noisy_networks_has_noise_of_its_own),
        cmocka_unit_test(munchausen_has_the_masks_of_its_states_in_the_items),
        cmocka_unit_test(what_does_not_go_with_a_loss_is_refused_by_name),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

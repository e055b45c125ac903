/* MPO's losses by their definitions, and what they are for. */
#include <troupe/actor_critic_losses.h>
#include <troupe/distributions.h>
#include <troupe/policy_losses.h>

#include "loss_tools.h"

enum { ROWS = 8, SAMPLES = 16, SIZE = 3 };

static double softplus(double x)
{
    return log1p(exp(x));
}

static void weights_are_a_softmax_and_the_dual_is_the_papers(void **state)
{
    (void)state;
    float q[ROWS * SAMPLES], weights[ROWS * SAMPLES], dtemperature;
    double temperature = 0.3, eta = softplus(temperature) + 1e-8, dual = 0;
    trp_rng rng;
    trp_rng_init(&rng, 1, 0);
    fill_floats(&rng, q, (size_t)ROWS * SAMPLES, 3);
    trp_mpo_batch batch = {.rows = ROWS,
                           .samples = SAMPLES,
                           .q = q,
                           .temperature = (float)temperature,
                           .bound = 0.25f};
    float loss = trp_mpo_weights(&batch, weights, &dtemperature);
    for (size_t row = 0; row < ROWS; row++) {
        double sum = 0;
        for (size_t i = row * SAMPLES; i < (row + 1) * SAMPLES; i++)
            sum += exp((double)q[i] / eta);
        for (size_t i = row * SAMPLES; i < (row + 1) * SAMPLES; i++)
            assert_near((double)weights[i], SAMPLES * exp((double)q[i] / eta) / sum, 1e-5, "weight",
                        i);
        dual += log(sum / SAMPLES) / ROWS;
    }
    assert_near((double)loss, eta * (0.25 + dual), 1e-5, "dual", 0);
    batch.bound = 0;
    assert_near((double)trp_mpo_weights(&batch, q, &dtemperature), eta * (0.1 + dual), 1e-5, "dual",
                1);
    assert_memory_equal(q, weights, sizeof q); /* in place */
}

struct dual {
    double q[SAMPLES], temperature;
};

static double dual_of(void *context)
{
    struct dual *d = context;
    double weights[SAMPLES], push, slope, eta = mpo_dual_f64(d->temperature, &slope);
    return eta * (0.1 + mpo_row_f64(d->q, SAMPLES, eta, weights, &push));
}

static double number_of(void *context)
{
    double slope;
    return mpo_dual_f64(*(double *)context, &slope);
}

static void gradients_are_finite_differences(void **state)
{
    (void)state;
    trp_rng rng;
    trp_rng_init(&rng, 2, 0);
    for (int round = 0; round < 50; round++) {
        struct dual d;
        double weights[SAMPLES], push, slope, number;
        fill(&rng, d.q, SAMPLES, 4);
        fill(&rng, &d.temperature, 1, 1);
        double eta = mpo_dual_f64(d.temperature, &slope);
        mpo_row_f64(d.q, SAMPLES, eta, weights, &push);
        double gradient = slope * (0.1 + push);
        assert_gradient(dual_of, &d, &d.temperature, &gradient, 1, "dtemperature");
        fill(&rng, &number, 1, 4);
        mpo_dual_f64(number, &slope);
        assert_gradient(number_of, &number, &number, &slope, 1, "slope");
    }
}

/* At the least of the dual the weights diverge from equal ones by the bound (section 4.1). */
static void the_temperature_makes_the_divergence_what_it_may_be(void **state)
{
    (void)state;
    float q[ROWS * SAMPLES], weights[ROWS * SAMPLES], dtemperature;
    trp_rng rng;
    trp_rng_init(&rng, 3, 0);
    fill_floats(&rng, q, (size_t)ROWS * SAMPLES, 5);
    for (float begin = -2; begin <= 8; begin += 10) {
        double divergence = 0;
        trp_mpo_batch batch = {
            .rows = ROWS, .samples = SAMPLES, .q = q, .temperature = begin, .bound = 0.3f};
        for (int i = 0; i < 4000; i++) {
            trp_mpo_weights(&batch, weights, &dtemperature);
            batch.temperature -= 0.2f * dtemperature;
        }
        for (size_t i = 0; i < (size_t)ROWS * SAMPLES; i++)
            if (weights[i] > 0)
                divergence += (double)weights[i] * log((double)weights[i]) / SAMPLES / ROWS;
        assert_near(divergence, 0.3, 5e-3, "divergence", 0);
    }
}

static void multipliers_hold_divergences_at_their_bound(void **state)
{
    (void)state;
    float divergences[ROWS * SIZE], d[ROWS * SIZE], dmultipliers[SIZE];
    const float multipliers[SIZE] = {1, -0.5f, -30};
    double loss = 0, value = 0;
    trp_rng rng;
    trp_rng_init(&rng, 4, 0);
    fill_floats(&rng, divergences, (size_t)ROWS * SIZE, 1);
    trp_mpo_bound bound = {.rows = ROWS,
                           .size = SIZE,
                           .divergences = divergences,
                           .multipliers = multipliers,
                           .bound = 0.05f};
    trp_loss got = trp_mpo_bound_loss(&bound, d, dmultipliers);
    for (size_t k = 0; k < SIZE; k++) {
        double mean = 0, x = (double)multipliers[k], alpha = softplus(x < -18 ? -18 : x) + 1e-8;
        for (size_t row = 0; row < ROWS; row++) {
            mean += (double)divergences[row * SIZE + k] / ROWS;
            assert_near((double)d[row * SIZE + k], alpha / ROWS, 1e-6, "ddivergence", row);
        }
        loss += alpha * mean;
        value += mean;
        double slope = 1 / (1 + exp(x < -18 ? 18 : -x));
        assert_near((double)dmultipliers[k], slope * ((double)0.05f - mean), 1e-6, "dmultiplier",
                    k);
        assert_near((double)trp_mpo_dual(multipliers[k]) / alpha, 1, 1e-5, "alpha", k);
        assert_near((double)dmultipliers[k] / slope, (double)0.05f - mean, 1e-4, "slope", k);
    }
    assert_near((double)got.loss, loss, 1e-6, "loss", 0);
    assert_near((double)got.value, value, 1e-6, "value", 0);
    trp_loss again = trp_mpo_bound_loss(&bound, divergences, dmultipliers); /* in place */
    assert_true(again.loss == got.loss);
    assert_memory_equal(divergences, d, sizeof d);
}

/* A whole M-step on the mean of a normal policy: it goes where good samples are, no further than
 * its bound. */
static void a_policy_moves_to_good_samples_as_far_as_its_bound(void **state)
{
    (void)state;
    enum { MANY = 256 };
    float actions[MANY], q[MANY], weights[MANY], log_probs[MANY], dtemperature, temperature = 0;
    float old_mean = 0, log_std = 0, mean = 0, multiplier = 1, bound = 0.02f;
    trp_rng rng;
    trp_rng_init(&rng, 5, 0);
    fill_floats(&rng, actions, MANY, 1);
    for (int i = 0; i < MANY; i++)
        q[i] = -10 * (actions[i] - 1) * (actions[i] - 1);
    for (int i = 0; i < 3000; i++) {
        float means[MANY], dmean[MANY], dlog_std, kl_mean, kl_std, dkl, dmultiplier, push = 0;
        trp_mpo_batch batch = {.rows = 1, .samples = MANY, .q = q, .temperature = temperature};
        trp_mpo_weights(&batch, weights, &dtemperature);
        for (int k = 0; k < MANY; k++)
            means[k] = mean;
        trp_gaussian policy = {
            .rows = MANY, .size = 1, .mean = means, .log_std = &log_std, .shared = true};
        trp_gaussian_log_prob(&policy, actions, log_probs);
        (void)trp_cloning_loss(MANY, weights, log_probs, log_probs);
        trp_gaussian_backward(&policy, &(trp_gaussian_grads){.actions = actions,
                                                             .log_probs = log_probs,
                                                             .mean = dmean,
                                                             .log_std = &dlog_std});
        trp_gaussian p = policy, target = policy;
        p.rows = target.rows = 1;
        p.mean = &mean;
        target.mean = &old_mean;
        trp_gaussian_decoupled_kl(&target, &p, &kl_mean, &kl_std);
        trp_mpo_bound_loss(&(trp_mpo_bound){.rows = 1,
                                            .size = 1,
                                            .divergences = &kl_mean,
                                            .multipliers = &multiplier,
                                            .bound = bound},
                           &dkl, &dmultiplier);
        float step = 0;
        trp_gaussian_kl_backward(&target, &p,
                                 &(trp_gaussian_kl_grads){.means = &dkl, .q = {.mean = &step}});
        for (int k = 0; k < MANY; k++)
            push += dmean[k];
        mean -= 0.01f * (push + step);
        multiplier -= 0.5f * dmultiplier;
        temperature -= 0.1f * dtemperature;
    }
    assert_float_equal(mean * mean / 2, bound, 0.003); /* KL of unit normals so far apart */
    assert_true(mean > 0);
}

static void what_is_not_finite_makes_the_loss_not_finite(void **state)
{
    (void)state;
    static const float bad[] = {NAN, INFINITY, -INFINITY};
    for (int i = 0; i < 3; i++) {
        float q[3] = {1, bad[i], 2}, weights[3], d, multiplier = 0;
        assert_false(isfinite(trp_mpo_weights(
            &(trp_mpo_batch){.rows = 1, .samples = 3, .q = q, .temperature = 1}, weights, &d)));
        assert_false(isfinite(trp_mpo_bound_loss(&(trp_mpo_bound){.rows = 3,
                                                                  .size = 1,
                                                                  .divergences = q,
                                                                  .multipliers = &multiplier},
                                                 weights, &d)
                                  .loss));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(weights_are_a_softmax_and_the_dual_is_the_papers),
        cmocka_unit_test(gradients_are_finite_differences),
        cmocka_unit_test(the_temperature_makes_the_divergence_what_it_may_be),
        cmocka_unit_test(multipliers_hold_divergences_at_their_bound),
        cmocka_unit_test(a_policy_moves_to_good_samples_as_far_as_its_bound),
        cmocka_unit_test(what_is_not_finite_makes_the_loss_not_finite),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* Gaussian policies, squashed and not, by their definitions: densities that integrate to 1,
 * entropies and divergences as integrals. */
#include <troupe/distributions.h>

#include "loss_tools.h"

enum { ROWS = 24, SIZE = 3, CELLS = 20000 };

/* ---- finite differences -------------------------------------------------------------------- */

struct row {
    struct gaussian_f64 g, other;
    double mean[SIZE], log_std[SIZE], other_mean[SIZE], other_log_std[SIZE];
    double actions[SIZE], noise[SIZE], by_action[SIZE], by_means[SIZE], by_stds[SIZE];
    struct gaussian_slopes_f64 by;
    double by_divergence;
};

static double row_loss(void *context)
{
    struct row *r = context;
    double made[SIZE];
    double loss = r->by.by_log_prob * gaussian_log_prob_f64(&r->g, r->actions);
    loss += r->by.by_sample_log_prob * gaussian_transform_f64(&r->g, r->noise, made);
    loss += r->by.by_entropy * gaussian_entropy_f64(&r->g, r->noise);
    for (int i = 0; i < SIZE; i++)
        loss += r->by_action[i] * made[i];
    return loss;
}

static double divergence_loss(void *context)
{
    struct row *r = context;
    return r->by_divergence * gaussian_kl_f64(&r->g, &r->other);
}

static double decoupled_loss(void *context)
{
    struct row *r = context;
    double means[SIZE], stds[SIZE], loss = 0;
    decoupled_kl_f64(&r->g, &r->other, means, stds);
    for (int i = 0; i < SIZE; i++)
        loss += r->by_means[i] * means[i] + r->by_stds[i] * stds[i];
    return loss;
}

/* Any, also of one sign. */
static const double lows[SIZE] = {-2, 0.25, -5}, highs[SIZE] = {3, 0.5, -4};

static void row_init(struct row *r, trp_rng *rng, int which)
{
    bool scaled = which % 8 > 4;
    bool bounded = which % 4 > 1;
    *r = (struct row){
        .g = {.size = SIZE,
              .mean = r->mean,
              .log_std = r->log_std,
              .least = bounded ? -0.6 : -(double)INFINITY,
              .most = bounded ? 0.1 : (double)INFINITY,
              .squashed = which % 2,
              .low = scaled ? lows : NULL,
              .high = scaled ? highs : NULL},
        .by = {.actions = r->actions, .noise = r->noise, .by_sample_action = r->by_action}};
    r->other = r->g;
    r->other.mean = r->other_mean;
    r->other.log_std = r->other_log_std;
    fill(rng, r->mean, SIZE, 1);
    fill(rng, r->log_std, SIZE, 0.5);
    fill(rng, r->other_mean, SIZE, 1);
    fill(rng, r->other_log_std, SIZE, 0.5);
    fill(rng, r->actions, SIZE, 1);
    fill(rng, r->noise, SIZE, 1);
    fill(rng, r->by_action, SIZE, 1);
    fill(rng, r->by_means, SIZE, 1);
    fill(rng, r->by_stds, SIZE, 1);
    fill(rng, &r->by.by_log_prob, 1, 1);
    fill(rng, &r->by.by_sample_log_prob, 1, 1);
    fill(rng, &r->by.by_entropy, 1, 1);
    fill(rng, &r->by_divergence, 1, 1);
    for (int i = 0; i < SIZE && r->g.squashed; i++)
        r->actions[i] = squash_f64(&r->g, r->actions[i], (uint32_t)i);
}

static void gradients_are_finite_differences(void **state)
{
    (void)state;
    trp_rng rng;
    trp_rng_init(&rng, 1, 0);
    for (int i = 0; i < 200; i++) {
        struct row r;
        double dmean[SIZE], dlog_std[SIZE];
        row_init(&r, &rng, i);
        gaussian_back_f64(&r.g, &r.by, false, false, dmean, dlog_std);
        assert_gradient(row_loss, &r, r.mean, dmean, SIZE, "dmean");
        assert_gradient(row_loss, &r, r.log_std, dlog_std, SIZE, "dlog_std");
    }
}

/* Of all dimensions, log_std's bounds included. */
static void divergence_gradients(struct row *r, const struct kl_slopes_f64 *by,
                                 double to_p[2][SIZE], double to_q[2][SIZE])
{
    for (uint32_t i = 0; i < SIZE; i++) {
        struct gaussian_push_f64 p, q;
        gaussian_kl_push_at_f64(&r->g, &r->other, by, i, &p, &q);
        to_p[0][i] = p.mean;
        to_q[0][i] = q.mean;
        to_p[1][i] = bounded_slope_f64(&r->g, i) * p.log_std;
        to_q[1][i] = bounded_slope_f64(&r->other, i) * q.log_std;
    }
}

static void gradients_of_divergences_are_finite_differences(void **state)
{
    (void)state;
    trp_rng rng;
    trp_rng_init(&rng, 2, 0);
    for (int i = 0; i < 200; i++) {
        struct row r;
        double to_p[2][SIZE], to_q[2][SIZE];
        row_init(&r, &rng, i);
        struct kl_slopes_f64 by = {.by_divergence = r.by_divergence};
        divergence_gradients(&r, &by, to_p, to_q);
        assert_gradient(divergence_loss, &r, r.mean, to_p[0], SIZE, "p's mean");
        assert_gradient(divergence_loss, &r, r.log_std, to_p[1], SIZE, "p's log_std");
        assert_gradient(divergence_loss, &r, r.other_mean, to_q[0], SIZE, "q's mean");
        assert_gradient(divergence_loss, &r, r.other_log_std, to_q[1], SIZE, "q's log_std");
        by = (struct kl_slopes_f64){.by_means = r.by_means, .by_stds = r.by_stds};
        divergence_gradients(&r, &by, to_p, to_q);
        assert_gradient(decoupled_loss, &r, r.other_mean, to_q[0], SIZE, "q's mean, apart");
        assert_gradient(decoupled_loss, &r, r.other_log_std, to_q[1], SIZE, "q's log_std, apart");
        for (int j = 0; j < SIZE; j++)
            assert_true(to_p[0][j] == 0 && to_p[1][j] == 0);
    }
}

/* ---- integrals ----------------------------------------------------------------------------- */

static struct gaussian_f64 one_dimension(const double *mean, const double *log_std, bool squashed)
{
    return (struct gaussian_f64){.size = 1,
                                 .mean = mean,
                                 .log_std = log_std,
                                 .least = -(double)INFINITY,
                                 .most = (double)INFINITY,
                                 .squashed = squashed};
}

/* The integrals of p, -p log p and p (log p - log q), over all actions, or those near the means. */
static void integrate(const struct gaussian_f64 *p, const struct gaussian_f64 *q,
                      double integrals[3])
{
    double half = p->squashed ? half_f64(p, 0) : 15, cell = 2 * half / CELLS;
    double low = middle_f64(p, 0) - half;
    integrals[0] = integrals[1] = integrals[2] = 0;
    for (int i = 0; i < CELLS; i++) {
        double action = low + (i + 0.5) * cell;
        double log_p = gaussian_log_prob_f64(p, &action), log_q = gaussian_log_prob_f64(q, &action);
        integrals[0] += cell * exp(log_p);
        integrals[1] -= cell * exp(log_p) * log_p;
        integrals[2] += cell * exp(log_p) * (log_p - log_q);
    }
}

static void densities_entropies_and_divergences_are_integrals(void **state)
{
    (void)state;
    for (int squashed = 0; squashed < 3; squashed++) { /* 2: to (-2, 3) */
        double mean = 0.3, log_std = -0.7, q_mean = -0.2, q_log_std = -0.5, integrals[3];
        struct gaussian_f64 p = one_dimension(&mean, &log_std, squashed > 0);
        struct gaussian_f64 q = one_dimension(&q_mean, &q_log_std, squashed > 0);
        if (squashed == 2) {
            p.low = q.low = lows;
            p.high = q.high = highs;
        }
        integrate(&p, &q, integrals);
        assert_near(integrals[0], 1, 1e-6, "density", 0);
        assert_near(integrals[2], gaussian_kl_f64(&p, &q), 1e-6, "divergence", 0);
        double entropy = 0, most = 8; /* the mean of its estimates, over the noise's density */
        for (int i = 0; i < CELLS; i++) {
            double noise = -most + (i + 0.5) * 2 * most / CELLS;
            double share = exp(-noise * noise / 2) / sqrt(2 * acos(-1)) * 2 * most / CELLS;
            entropy += share * gaussian_entropy_f64(&p, &noise);
        }
        assert_near(integrals[1], entropy, 1e-6, "entropy", 0);
    }
}

/* ---- batches ------------------------------------------------------------------------------- */

struct scene {
    trp_gaussian policy, other;
    float mean[ROWS * SIZE], log_std[ROWS * SIZE], noise[ROWS * SIZE], actions[ROWS * SIZE];
    float other_mean[ROWS * SIZE], other_log_std[ROWS * SIZE];
    trp_rng rng;
};

static void scene_init(struct scene *s, uint64_t seed, bool squashed)
{
    trp_rng_init(&s->rng, seed, 0);
    fill_floats(&s->rng, s->mean, ROWS * SIZE, 1);
    fill_floats(&s->rng, s->log_std, ROWS * SIZE, 0.5);
    fill_floats(&s->rng, s->other_mean, ROWS * SIZE, 1);
    fill_floats(&s->rng, s->other_log_std, ROWS * SIZE, 0.5);
    s->policy = (trp_gaussian){
        .rows = ROWS, .size = SIZE, .mean = s->mean, .log_std = s->log_std, .squashed = squashed};
    s->other = s->policy;
    s->other.mean = s->other_mean;
    s->other.log_std = s->other_log_std;
    trp_gaussian_sample(&s->policy, &s->rng, s->noise, s->actions, NULL);
}

static void a_sample_is_its_noise_moved_and_squashed(void **state)
{
    (void)state;
    for (int squashed = 0; squashed < 2; squashed++) {
        struct scene s;
        float log_probs[ROWS], of_noise[ROWS], again[ROWS * SIZE];
        scene_init(&s, 3, squashed);
        trp_gaussian_log_prob(&s.policy, s.actions, log_probs);
        memcpy(again, s.noise, sizeof again);
        trp_gaussian_transform(&s.policy, again, again, of_noise); /* in place */
        for (size_t row = 0; row < ROWS; row++) {
            double log_prob = 0;
            for (size_t i = row * SIZE; i < (row + 1) * SIZE; i++) {
                double std = exp((double)s.log_std[i]), z = (double)s.noise[i];
                double u = (double)s.mean[i] + std * z, action = squashed ? tanh(u) : u;
                log_prob -= z * z / 2 + (double)s.log_std[i] + log(2 * acos(-1)) / 2;
                log_prob -= squashed ? log(1 - action * action) : 0;
                assert_near((double)s.actions[i], action, 1e-6, "action", i);
                assert_near((double)again[i], action, 1e-6, "action", i);
            }
            assert_near((double)of_noise[row], log_prob, 2e-5, "log_prob", row);
            assert_near((double)log_probs[row], log_prob, 2e-3, "log_prob of an action", row);
        }
    }
}

static void samples_have_mean_deviation_and_surprise(void **state)
{
    (void)state;
    static const float mean[2] = {1, -2}, log_std[2] = {-1, 0.5f};
    enum { DRAWS = 20000 };
    double sums[2] = {0}, squares[2] = {0}, surprise = 0;
    trp_rng rng;
    trp_rng_init(&rng, 4, 0);
    for (int i = 0; i < DRAWS; i++) {
        float actions[2], log_prob;
        trp_gaussian_sample(&(trp_gaussian){.rows = 1, .size = 2, .mean = mean, .log_std = log_std},
                            &rng, actions, actions, &log_prob);
        surprise -= (double)log_prob / DRAWS;
        for (int j = 0; j < 2; j++) {
            sums[j] += (double)actions[j];
            squares[j] += pow((double)(actions[j] - mean[j]), 2);
        }
    }
    for (int j = 0; j < 2; j++) {
        double std = exp((double)log_std[j]);
        assert_true(fabs(sums[j] / DRAWS - (double)mean[j]) < 5 * std / sqrt(DRAWS));
        assert_true(fabs(squares[j] / DRAWS / std / std - 1) < 5 * sqrt(2.0 / DRAWS));
    }
    double entropy = -1 + 0.5 + 1 + log(2 * acos(-1)); /* whose deviation is 1 */
    assert_true(fabs(surprise - entropy) < 5 / sqrt(DRAWS));
}

static void a_mode_is_the_mean_squashed(void **state)
{
    (void)state;
    struct scene s;
    float actions[ROWS * SIZE];
    scene_init(&s, 5, true);
    trp_gaussian_mode(&s.policy, actions);
    for (size_t i = 0; i < ROWS * SIZE; i++)
        assert_float_equal(actions[i], tanh((double)s.mean[i]), 1e-6);
    s.policy.squashed = false;
    trp_gaussian_mode(&s.policy, actions);
    assert_memory_equal(actions, s.mean, sizeof actions);
}

/* What a scene's losses are multiplied by. */
struct slopes {
    float log_probs[ROWS], sample_log_probs[ROWS], entropies[ROWS], actions[ROWS * SIZE];
    float mean[ROWS * SIZE], log_std[ROWS * SIZE];
    trp_gaussian_grads grads;
};

static void slopes_init(struct slopes *d, struct scene *s)
{
    fill_floats(&s->rng, d->log_probs, ROWS, 1);
    fill_floats(&s->rng, d->sample_log_probs, ROWS, 1);
    fill_floats(&s->rng, d->entropies, ROWS, 1);
    fill_floats(&s->rng, d->actions, ROWS * SIZE, 1);
    d->grads = (trp_gaussian_grads){.actions = s->actions,
                                    .log_probs = d->log_probs,
                                    .noise = s->noise,
                                    .sample_actions = d->actions,
                                    .sample_log_probs = d->sample_log_probs,
                                    .entropies = d->entropies,
                                    .mean = d->mean,
                                    .log_std = d->log_std};
}

/* Those of one row, in double. */
static void row_gradient(const struct scene *s, const struct slopes *d, size_t row,
                         double dmean[SIZE], double dlog_std[SIZE])
{
    struct row r = {.by = {.by_log_prob = (double)d->log_probs[row],
                           .by_sample_log_prob = (double)d->sample_log_probs[row],
                           .by_entropy = (double)d->entropies[row]}};
    size_t at = row * SIZE;
    widen(s->mean + at, r.mean, SIZE);
    widen(s->policy.shared ? s->log_std : s->log_std + at, r.log_std, SIZE);
    widen(s->noise + at, r.noise, SIZE);
    widen(s->actions + at, r.actions, SIZE);
    widen(d->actions + at, r.by_action, SIZE);
    r.by.actions = r.actions;
    r.by.noise = r.noise;
    r.by.by_sample_action = r.by_action;
    r.g = one_dimension(r.mean, r.log_std, s->policy.squashed);
    r.g.size = SIZE;
    gaussian_back_f64(&r.g, &r.by, false, false, dmean, dlog_std);
}

static void a_batchs_gradient_is_its_rows_in_place_or_added(void **state)
{
    (void)state;
    for (int squashed = 0; squashed < 2; squashed++) {
        struct scene s;
        struct slopes d;
        scene_init(&s, 6, squashed);
        slopes_init(&d, &s);
        trp_gaussian_backward(&s.policy, &d.grads);
        for (size_t row = 0; row < ROWS; row++) {
            double dmean[SIZE], dlog_std[SIZE];
            row_gradient(&s, &d, row, dmean, dlog_std);
            for (size_t i = 0; i < SIZE; i++) {
                assert_near((double)d.mean[row * SIZE + i], dmean[i], 1e-4, "dmean", row);
                assert_near((double)d.log_std[row * SIZE + i], dlog_std[i], 1e-4, "dlog_std", row);
            }
        }
        float once[ROWS * SIZE];
        memcpy(once, d.mean, sizeof once);
        d.grads.add = true;
        trp_gaussian_backward(&s.policy, &d.grads);
        for (size_t i = 0; i < ROWS * SIZE; i++)
            assert_float_equal(d.mean[i], 2 * once[i], 1e-5);
        d.grads.add = false;
        d.grads.mean = s.mean;
        d.grads.log_std = s.log_std;
        trp_gaussian_backward(&s.policy, &d.grads);
        assert_memory_equal(s.mean, once, sizeof once);
    }
}

static void a_shared_deviations_gradient_is_the_sum_over_rows(void **state)
{
    (void)state;
    struct scene s;
    struct slopes d;
    double sum[SIZE] = {0};
    scene_init(&s, 7, false);
    slopes_init(&d, &s);
    s.policy.shared = true;
    trp_gaussian_backward(&s.policy, &d.grads);
    for (size_t row = 0; row < ROWS; row++) {
        double dmean[SIZE], dlog_std[SIZE];
        row_gradient(&s, &d, row, dmean, dlog_std);
        for (size_t i = 0; i < SIZE; i++) {
            sum[i] += dlog_std[i];
            assert_near((double)d.mean[row * SIZE + i], dmean[i], 1e-4, "dmean", row);
        }
    }
    for (size_t i = 0; i < SIZE; i++)
        assert_near((double)d.log_std[i], sum[i], 1e-4, "dlog_std", i);
    d.grads.add = true;
    trp_gaussian_backward(&s.policy, &d.grads);
    for (size_t i = 0; i < SIZE; i++)
        assert_near((double)d.log_std[i], 2 * sum[i], 1e-4, "dlog_std", i);
}

static void a_bounded_deviation_stays_there_without_a_gradient(void **state)
{
    (void)state;
    static const float mean[3] = {0, 0, 0}, log_std[3] = {-9, 0, 9}, noise[3] = {1, 1, 1}, one = 1;
    float actions[3], entropy, dmean[3], dlog_std[3];
    trp_gaussian policy = {.rows = 1,
                           .size = 3,
                           .mean = mean,
                           .log_std = log_std,
                           .least_log_std = -2,
                           .most_log_std = 1};
    trp_gaussian_transform(&policy, noise, actions, NULL);
    assert_float_equal(actions[0], exp(-2), 1e-6);
    assert_float_equal(actions[1], 1, 1e-6);
    assert_float_equal(actions[2], exp(1), 1e-6);
    trp_gaussian_entropy(&policy, NULL, &entropy);
    assert_near((double)entropy, -1 + 1.5 * (1 + log(2 * acos(-1))), 1e-6, "entropy", 0);
    trp_gaussian_backward(
        &policy, &(trp_gaussian_grads){.entropies = &one, .mean = dmean, .log_std = dlog_std});
    assert_true(dlog_std[0] == 0 && dlog_std[1] == 1 && dlog_std[2] == 0);
    trp_gaussian other = policy;
    other.log_std = mean; /* zeros */
    trp_gaussian_kl_backward(&other, &policy,
                             &(trp_gaussian_kl_grads){.divergences = &one, .q = {NULL, dlog_std}});
    assert_true(dlog_std[0] == 0 && dlog_std[1] == 0 && dlog_std[2] == 0);
    float moved[3] = {-9, 0.5f, 9};
    policy.log_std = moved;
    trp_gaussian_kl_backward(&policy, &other,
                             &(trp_gaussian_kl_grads){.divergences = &one, .p = {NULL, dlog_std}});
    assert_true(dlog_std[0] == 0 && dlog_std[1] > 0 && dlog_std[2] == 0);
}

/* ---- divergences --------------------------------------------------------------------------- */

static void divergences_are_their_definitions(void **state)
{
    (void)state;
    struct scene s;
    float divergences[ROWS], means[ROWS * SIZE], stds[ROWS * SIZE];
    scene_init(&s, 8, true);
    trp_gaussian_kl(&s.policy, &s.other, divergences);
    trp_gaussian_decoupled_kl(&s.policy, &s.other, means, stds);
    for (size_t row = 0; row < ROWS; row++) {
        double sum = 0;
        for (size_t i = row * SIZE; i < (row + 1) * SIZE; i++) {
            double p_variance = exp(2 * (double)s.log_std[i]);
            double q_variance = exp(2 * (double)s.other_log_std[i]);
            double gap = (double)s.mean[i] - (double)s.other_mean[i];
            double std = log(q_variance / p_variance) / 2 + p_variance / q_variance / 2 - 0.5;
            sum += std + gap * gap / q_variance / 2;
            assert_near((double)means[i], gap * gap / p_variance / 2, 1e-5, "mean's", i);
            assert_near((double)stds[i], std, 1e-5, "deviation's", i);
        }
        assert_near((double)divergences[row], sum, 1e-5, "divergence", row);
    }
    trp_gaussian_kl(&s.policy, &s.policy, divergences);
    for (size_t row = 0; row < ROWS; row++)
        assert_true(divergences[row] == 0);
}

static void a_divergences_gradient_is_its_rows_shared_or_added(void **state)
{
    (void)state;
    struct scene s;
    struct slopes by;
    float d[4][ROWS * SIZE], shared[SIZE], mean[ROWS * SIZE];
    scene_init(&s, 9, false);
    slopes_init(&by, &s);
    s.other.shared = true;
    trp_gaussian_kl_grads grads = {.divergences = by.entropies,
                                   .means = by.actions,
                                   .stds = s.noise,
                                   .p = {d[0], d[1]},
                                   .q = {d[2], shared}};
    trp_gaussian_kl_backward(&s.policy, &s.other, &grads);
    double sums[SIZE] = {0};
    for (size_t row = 0; row < ROWS; row++) {
        struct row r;
        double to_p[2][SIZE], to_q[2][SIZE];
        widen(s.mean + row * SIZE, r.mean, SIZE);
        widen(s.log_std + row * SIZE, r.log_std, SIZE);
        widen(s.other_mean + row * SIZE, r.other_mean, SIZE);
        widen(s.other_log_std, r.other_log_std, SIZE);
        widen(by.actions + row * SIZE, r.by_means, SIZE);
        widen(s.noise + row * SIZE, r.by_stds, SIZE);
        r.g = one_dimension(r.mean, r.log_std, false);
        r.other = one_dimension(r.other_mean, r.other_log_std, false);
        divergence_gradients(&r,
                             &(struct kl_slopes_f64){.by_divergence = (double)by.entropies[row],
                                                     .by_means = r.by_means,
                                                     .by_stds = r.by_stds},
                             to_p, to_q);
        for (size_t i = 0; i < SIZE; i++) {
            assert_near((double)d[0][row * SIZE + i], to_p[0][i], 1e-5, "p's mean", row);
            assert_near((double)d[1][row * SIZE + i], to_p[1][i], 1e-5, "p's log_std", row);
            assert_near((double)d[2][row * SIZE + i], to_q[0][i], 1e-5, "q's mean", row);
            sums[i] += to_q[1][i];
        }
    }
    for (size_t i = 0; i < SIZE; i++)
        assert_near((double)shared[i], sums[i], 1e-4, "q's log_std", i);
    memcpy(mean, d[2], sizeof mean);
    grads.add = true;
    grads.p = (trp_gaussian_outputs){0};
    trp_gaussian_kl_backward(&s.policy, &s.other, &grads);
    for (size_t i = 0; i < ROWS * SIZE; i++)
        assert_near((double)d[2][i], 2 * (double)mean[i], 1e-5, "q's mean, added", i);
    for (size_t i = 0; i < SIZE; i++)
        assert_near((double)shared[i], 2 * sums[i], 1e-4, "q's log_std, added", i);
}

/* ---- the ends ------------------------------------------------------------------------------ */

static void a_squashed_action_near_the_ends_is_finite(void **state)
{
    (void)state;
    static const float mean[1] = {0}, log_std[1] = {0}, one = 1;
    for (int sign = -1; sign < 2; sign += 2) {
        float noise = 30 * (float)sign, action, log_prob, entropy, dmean, dlog_std;
        trp_gaussian policy = {
            .rows = 1, .size = 1, .mean = mean, .log_std = log_std, .squashed = true};
        trp_gaussian_transform(&policy, &noise, &action, &log_prob);
        assert_float_equal(action, sign, 0);
        double want = -450 - log(2 * acos(-1)) / 2 - 2 * (log(2) - 30); /* no softplus is left */
        assert_near((double)log_prob, want, 1e-6, "log_prob", 0);
        trp_gaussian_entropy(&policy, &noise, &entropy);
        assert_near((double)entropy, (1 + log(2 * acos(-1))) / 2 + 2 * (log(2) - 30), 1e-6,
                    "entropy", 0);
        trp_gaussian_grads grads = {.noise = &noise,
                                    .sample_actions = &one,
                                    .sample_log_probs = &one,
                                    .mean = &dmean,
                                    .log_std = &dlog_std};
        trp_gaussian_backward(&policy, &grads);
        assert_near((double)dmean, 2 * sign, 1e-6, "dmean", 0);
        for (float beyond = 1; beyond < 3; beyond++) { /* and actions from a disk */
            action = beyond * (float)sign;
            trp_gaussian_log_prob(&policy, &action, &log_prob);
            assert_true(isfinite(log_prob));
            grads = (trp_gaussian_grads){
                .actions = &action, .log_probs = &one, .mean = &dmean, .log_std = &dlog_std};
            trp_gaussian_backward(&policy, &grads);
            assert_true(isfinite(dmean) && isfinite(dlog_std) && dmean * (float)sign > 0);
        }
    }
}

static void rounding_moves_no_action_out_of_its_bounds(void **state)
{
    (void)state;
    trp_rng rng;
    trp_rng_init(&rng, 11, 0);
    for (int i = 0; i < 1000; i++) {
        float numbers[4], mean = 0, log_std = 0, noise = i % 2 ? 30 : -30, action, log_prob;
        fill_floats(&rng, numbers, 4, 10);
        float low = fminf(numbers[0], numbers[1]), high = fmaxf(numbers[0], numbers[1]);
        trp_gaussian policy = {.rows = 1,
                               .size = 1,
                               .mean = &mean,
                               .log_std = &log_std,
                               .squashed = true,
                               .low = &low,
                               .high = &high};
        trp_gaussian_transform(&policy, &noise, &action, NULL);
        assert_true(action >= low && action <= high);
        assert_near((double)action, (double)(i % 2 ? high : low), 1e-5, "action", (size_t)i);
        trp_gaussian_log_prob(&policy, &action, &log_prob);
        assert_true(isfinite(log_prob));
        mean = i % 2 ? 30 : -30;
        trp_gaussian_mode(&policy, &noise);
        assert_float_equal(noise, action, 0);
    }
}

static void what_is_not_finite_makes_a_row_not_finite(void **state)
{
    (void)state;
    for (int which = 0; which < 3; which++)
        for (int squashed = 0; squashed < 2; squashed++) {
            struct scene s;
            struct slopes d;
            float log_probs[ROWS];
            scene_init(&s, 10, squashed);
            slopes_init(&d, &s);
            (which == 0 ? s.mean : which == 1 ? s.log_std : s.actions)[4] = NAN;
            trp_gaussian_log_prob(&s.policy, s.actions, log_probs);
            assert_false(isfinite(log_probs[1]));
            assert_true(isfinite(log_probs[0]) && isfinite(log_probs[2]));
            trp_gaussian_backward(&s.policy, &d.grads);
            assert_false(isfinite(d.mean[4]) && isfinite(d.log_std[4]));
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(gradients_are_finite_differences),
        cmocka_unit_test(gradients_of_divergences_are_finite_differences),
        cmocka_unit_test(densities_entropies_and_divergences_are_integrals),
        cmocka_unit_test(a_sample_is_its_noise_moved_and_squashed),
        cmocka_unit_test(samples_have_mean_deviation_and_surprise),
        cmocka_unit_test(a_mode_is_the_mean_squashed),
        cmocka_unit_test(a_batchs_gradient_is_its_rows_in_place_or_added),
        cmocka_unit_test(a_shared_deviations_gradient_is_the_sum_over_rows),
        cmocka_unit_test(a_bounded_deviation_stays_there_without_a_gradient),
        cmocka_unit_test(divergences_are_their_definitions),
        cmocka_unit_test(a_divergences_gradient_is_its_rows_shared_or_added),
        cmocka_unit_test(a_squashed_action_near_the_ends_is_finite),
        cmocka_unit_test(rounding_moves_no_action_out_of_its_bounds),
        cmocka_unit_test(what_is_not_finite_makes_a_row_not_finite),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* Losses of actors and critics by the papers' definitions, and what they make them do. */
#include <troupe/actor_critic_losses.h>

#include "loss_tools.h"

enum { ROWS = 48, SIZE = 3, SAMPLES = 6, ATOMS = 7 };

struct scene {
    float q[ROWS], q2[ROWS], log_probs[ROWS], rewards[ROWS], discounts[ROWS], weights[ROWS];
    float actions[ROWS * SIZE], taken[ROWS * SIZE];
    float dq[ROWS], dq2[ROWS], dlog_probs[ROWS], dactions[ROWS * SIZE];
};

static void scene_init(struct scene *s, uint64_t seed)
{
    trp_rng rng;
    trp_rng_init(&rng, seed, 0);
    fill_floats(&rng, s->q, ROWS, 2);
    fill_floats(&rng, s->q2, ROWS, 2);
    fill_floats(&rng, s->log_probs, ROWS, 1);
    fill_floats(&rng, s->rewards, ROWS, 1);
    fill_floats(&rng, s->discounts, ROWS, 1);
    fill_floats(&rng, s->weights, ROWS, 1);
    fill_floats(&rng, s->actions, (size_t)ROWS * SIZE, 1);
    fill_floats(&rng, s->taken, (size_t)ROWS * SIZE, 1);
}

static double lesser(float a, float b)
{
    return (double)(a < b ? a : b);
}

/* ---- critics ------------------------------------------------------------------------------- */

static void targets_are_of_the_lesser_critic_less_what_entropy_costs(void **state)
{
    (void)state;
    struct scene s;
    float targets[ROWS];
    scene_init(&s, 1);
    trp_critic_batch batch = {.rows = ROWS,
                              .rewards = s.rewards,
                              .discounts = s.discounts,
                              .next_q = s.q,
                              .next_q2 = s.q2,
                              .next_log_probs = s.log_probs,
                              .temperature = 0.3f};
    trp_critic_targets(&batch, targets);
    for (size_t i = 0; i < ROWS; i++)
        assert_near((double)targets[i],
                    (double)s.rewards[i] +
                        (double)s.discounts[i] *
                            (lesser(s.q[i], s.q2[i]) - (double)0.3f * (double)s.log_probs[i]),
                    1e-6, "SAC's", i);
    batch.next_log_probs = NULL;
    trp_critic_targets(&batch, targets);
    for (size_t i = 0; i < ROWS; i++)
        assert_near((double)targets[i],
                    (double)s.rewards[i] + (double)s.discounts[i] * lesser(s.q[i], s.q2[i]), 1e-6,
                    "TD3's", i);
    batch.next_q2 = NULL;
    trp_critic_targets(&batch, targets);
    for (size_t i = 0; i < ROWS; i++)
        assert_near((double)targets[i],
                    (double)s.rewards[i] + (double)s.discounts[i] * (double)s.q[i], 1e-6, "DDPG's",
                    i);
}

static void a_critic_that_is_not_finite_is_seen_in_its_target(void **state)
{
    (void)state;
    static const float bad[] = {NAN, INFINITY, -INFINITY};
    for (int i = 0; i < 3; i++)
        for (int which = 0; which < 2; which++) {
            float q[2] = {1, 2}, zero = 0, one = 1, target;
            q[which] = bad[i];
            trp_critic_targets(&(trp_critic_batch){.rows = 1,
                                                   .rewards = &zero,
                                                   .discounts = &one,
                                                   .next_q = &q[0],
                                                   .next_q2 = &q[1]},
                               &target);
            assert_false(isfinite(target));
        }
}

static void smoothing_is_clipped_noise_within_the_bounds(void **state)
{
    (void)state;
    enum { MANY = 4000, WIDE = 2 };
    static const float low[WIDE] = {-1, 0}, high[WIDE] = {1, 10};
    static float actions[MANY * WIDE];
    double sums[WIDE] = {0}, squares[WIDE] = {0}, most[WIDE] = {0};
    trp_rng rng;
    trp_rng_init(&rng, 2, 0);
    for (size_t i = 0; i < (size_t)MANY * WIDE; i++)
        actions[i] = i % WIDE ? 5 : 0;
    trp_smooth_actions(&(trp_smoothing_options){.deviation = 0.4f, .clip = 0.6f, low, high}, MANY,
                       WIDE, &rng, actions);
    for (size_t i = 0; i < (size_t)MANY * WIDE; i++) {
        double half = i % WIDE ? 5 : 1, moved = (double)actions[i] / half - (i % WIDE ? 1 : 0);
        sums[i % WIDE] += moved / MANY;
        squares[i % WIDE] += moved * moved / MANY;
        most[i % WIDE] = fmax(most[i % WIDE], fabs(moved));
    }
    for (int k = 0; k < WIDE; k++) {
        assert_near(sums[k], 0, 0.03, "mean", (size_t)k);
        assert_near(sqrt(squares[k]), 0.353, 0.01, "deviation", (size_t)k); /* of what is cut */
        assert_near(most[k], 0.6, 1e-6, "most", (size_t)k);
    }
    for (size_t i = 0; i < (size_t)MANY * WIDE; i++)
        actions[i] = i % WIDE ? 9.9f : -0.99f;
    trp_smooth_actions(&(trp_smoothing_options){.low = low, .high = high}, MANY, WIDE, &rng,
                       actions);
    for (size_t i = 0; i < (size_t)MANY * WIDE; i++)
        assert_true(actions[i] >= low[i % WIDE] && actions[i] <= high[i % WIDE]);
    float one = 0, other = 0;
    trp_rng_init(&rng, 3, 0);
    trp_smooth_actions(NULL, 1, 1, &rng, &one);
    trp_rng_init(&rng, 3, 0);
    trp_smooth_actions(&(trp_smoothing_options){.deviation = 0.2f, .clip = 0.5f}, 1, 1, &rng,
                       &other);
    assert_true(one == other && one != 0);
}

/* ---- policies ------------------------------------------------------------------------------ */

static void sacs_policy_follows_the_lesser_critic(void **state)
{
    (void)state;
    struct scene s;
    double loss = 0, value = 0;
    scene_init(&s, 4);
    trp_sac_batch batch = {.rows = ROWS,
                           .q = s.q,
                           .q2 = s.q2,
                           .log_probs = s.log_probs,
                           .weights = s.weights,
                           .temperature = 0.2f};
    trp_loss got = trp_sac_policy_loss(&batch, s.dq, s.dq2, s.dlog_probs);
    for (size_t i = 0; i < ROWS; i++) {
        double weight = (double)s.weights[i] / ROWS, q = lesser(s.q[i], s.q2[i]);
        loss += weight * ((double)0.2f * (double)s.log_probs[i] - q);
        value += q / ROWS;
        bool first = s.q[i] <= s.q2[i];
        assert_near((double)s.dq[i], first ? -weight : 0, 1e-6, "dq", i);
        assert_near((double)s.dq2[i], first ? 0 : -weight, 1e-6, "dq2", i);
        assert_near((double)s.dlog_probs[i], weight * (double)0.2f, 1e-6, "dlog_prob", i);
    }
    assert_near((double)got.loss, loss, 1e-6, "loss", 0);
    assert_near((double)got.value, value, 1e-6, "value", 0);
    batch.q2 = NULL;
    trp_loss one = trp_sac_policy_loss(&batch, s.dq, NULL, s.dlog_probs);
    memcpy(s.q2, s.q, sizeof s.q2);
    batch.q2 = s.q2;
    trp_loss twice = trp_sac_policy_loss(&batch, s.q, s.q2, s.log_probs); /* in place */
    assert_true(one.loss == twice.loss && one.value == twice.value);
    assert_memory_equal(s.q, s.dq, sizeof s.q);
    assert_memory_equal(s.log_probs, s.dlog_probs, sizeof s.log_probs);
}

/* The temperature that makes the policy's entropy what is wanted, whichever side it begins on. */
static void a_multiplier_grows_while_its_bound_is_passed(void **state)
{
    (void)state;
    float dlog, step = 1e-3f;
    float loss = trp_multiplier_loss(logf(0.5f), 2, -1, &dlog);
    assert_float_equal(loss, 0.5f * (-1 - 2), 1e-6);
    assert_float_equal(dlog, 0.5f * (-1 - 2), 1e-6);
    float ignored, above = trp_multiplier_loss(0.2f + step, 0.3f, 1.5f, &ignored);
    float below = trp_multiplier_loss(0.2f - step, 0.3f, 1.5f, &ignored);
    trp_multiplier_loss(0.2f, 0.3f, 1.5f, &dlog);
    assert_float_equal(dlog, (above - below) / (2 * step), 1e-3);
    for (float log_alpha = -2; log_alpha <= 2; log_alpha += 4) {
        /* Of a normal policy whose deviation grows with the temperature. */
        float at = log_alpha, log_prob = 0;
        for (int i = 0; i < 2000; i++) {
            log_prob = -at - 1.4189385f; /* deviation exp(at) */
            trp_multiplier_loss(at, log_prob, 1, &dlog);
            at -= 0.02f * dlog;
        }
        assert_float_equal(log_prob, 1, 0.05);
    }
}

static void a_deterministic_policy_follows_its_critic(void **state)
{
    (void)state;
    struct scene s;
    double loss = 0, value = 0;
    scene_init(&s, 5);
    trp_td3_batch batch = {.rows = ROWS, .size = SIZE, .q = s.q, .weights = s.weights};
    trp_loss got = trp_td3_policy_loss(&batch, s.dq, NULL);
    for (size_t i = 0; i < ROWS; i++) {
        loss -= (double)s.weights[i] * (double)s.q[i] / ROWS;
        value += (double)s.q[i] / ROWS;
        assert_near((double)s.dq[i], -(double)s.weights[i] / ROWS, 1e-6, "dq", i);
    }
    assert_near((double)got.loss, loss, 1e-6, "loss", 0);
    assert_near((double)got.value, value, 1e-6, "value", 0);
}

static void imitation_keeps_its_share_whatever_the_size_of_values(void **state)
{
    (void)state;
    for (int power = -3; power <= 3; power += 3) {
        struct scene s;
        double loss = 0, size = 0, scale = pow(10, power);
        scene_init(&s, 6);
        for (size_t i = 0; i < ROWS; i++) {
            s.q[i] *= (float)scale;
            size += fabs((double)s.q[i]) / ROWS;
        }
        trp_td3_batch batch = {
            .rows = ROWS, .size = SIZE, .q = s.q, .actions = s.actions, .taken = s.taken};
        trp_loss got = trp_td3_policy_loss(&batch, s.dq, s.dactions);
        for (size_t i = 0; i < ROWS; i++) {
            loss -= 2.5 / size * (double)s.q[i] / ROWS;
            assert_near((double)s.dq[i] * size, -2.5 / ROWS, 1e-5, "dq", i);
            for (size_t k = i * SIZE; k < (i + 1) * SIZE; k++) {
                double far = (double)s.actions[k] - (double)s.taken[k];
                loss += far * far / SIZE / ROWS;
                assert_near((double)s.dactions[k], 2 * far / SIZE / ROWS, 1e-6, "daction", k);
            }
        }
        assert_near((double)got.loss, loss, 1e-5, "loss", (size_t)(power + 3));
        batch.imitation = 5;
        float before = s.dq[0];
        trp_td3_policy_loss(&batch, s.q, s.actions); /* in place */
        assert_float_equal(s.q[0] / before, 2, 1e-5);
        assert_memory_equal(s.actions, s.dactions, sizeof s.actions);
    }
}

static double imitation_loss(void *context)
{
    double ignored[SIZE], *both = context;
    return imitation_row_f64(both, both + SIZE, SIZE, 1, ignored);
}

static const double least = -3, most = 4;

static double mean_value(void *context)
{
    double ignored[ATOMS];
    return c51_mean_row_f64(context, ATOMS, least, most, 1, ignored);
}

static double expectile_value(void *context)
{
    double ignored, *value = context;
    return expectile_row_f64(0.3 - *value, 0.8, &ignored);
}

struct conservative {
    double q[SAMPLES], log_probs[SAMPLES];
    bool mask[SAMPLES], sampled;
};

static double conservative_loss(void *context)
{
    double ignored[SAMPLES];
    struct conservative *c = context;
    return cql_row_f64(c->q, c->sampled ? c->log_probs : NULL, c->mask, SAMPLES, 1, false, ignored);
}

static void gradients_are_finite_differences(void **state)
{
    (void)state;
    trp_rng rng;
    trp_rng_init(&rng, 7, 0);
    for (int round = 0; round < 50; round++) {
        double both[2 * SIZE], d[ATOMS], logits[ATOMS], value;
        struct conservative c = {.sampled = round % 2};
        fill(&rng, both, (size_t)2 * SIZE, 1);
        imitation_row_f64(both, both + SIZE, SIZE, 1, d);
        assert_gradient(imitation_loss, both, both, d, SIZE, "daction");
        fill(&rng, logits, ATOMS, 2);
        c51_mean_row_f64(logits, ATOMS, least, most, 1, d);
        assert_gradient(mean_value, logits, logits, d, ATOMS, "dlogit");
        fill(&rng, &value, 1, 1);
        expectile_row_f64(0.3 - value, 0.8, d);
        assert_gradient(expectile_value, &value, &value, d, 1, "dvalue");
        fill(&rng, c.q, SAMPLES, 3);
        fill(&rng, c.log_probs, SAMPLES, 1);
        for (int i = 0; i < SAMPLES; i++)
            c.mask[i] = i == 2 || trp_rng_below(&rng, 3) > 0;
        cql_row_f64(c.q, c.sampled ? c.log_probs : NULL, c.mask, SAMPLES, 1, false, d);
        assert_gradient(conservative_loss, &c, c.q, d, SAMPLES, "dq");
    }
}

static void d4pgs_policy_raises_the_distributions_mean(void **state)
{
    (void)state;
    trp_support support = {.atoms = ATOMS, .least = (float)least, .most = (float)most};
    float logits[ROWS * ATOMS], before[ROWS], after[ROWS], dlogits[ROWS * ATOMS], weights[ROWS];
    double loss = 0, value = 0;
    trp_rng rng;
    trp_rng_init(&rng, 8, 0);
    fill_floats(&rng, logits, (size_t)ROWS * ATOMS, 1);
    fill_floats(&rng, weights, ROWS, 1);
    trp_c51_values(&support, ROWS, logits, before);
    trp_loss got = trp_d4pg_policy_loss(&support, ROWS, weights, logits, dlogits);
    for (size_t i = 0; i < ROWS; i++) {
        loss -= (double)(weights[i] * before[i]) / ROWS;
        value += (double)before[i] / ROWS;
    }
    assert_near((double)got.loss, loss, 1e-6, "loss", 0);
    assert_near((double)got.value, value, 1e-6, "value", 0);
    for (size_t i = 0; i < (size_t)ROWS * ATOMS; i++)
        logits[i] -= 0.1f * ROWS * dlogits[i];
    trp_c51_values(&support, ROWS, logits, after);
    for (size_t i = 0; i < ROWS; i++)
        assert_true(weights[i] > 0 ? after[i] > before[i] : after[i] < before[i]);
}

/* A critic of continuous actions is C51 with one action. */
static void a_distribution_of_one_action_needs_no_index(void **state)
{
    (void)state;
    trp_support support = {.atoms = ATOMS, .least = (float)least, .most = (float)most};
    float logits[ATOMS], next[ATOMS], targets[ATOMS], with[ATOMS], without[ATOMS], divergence;
    float reward = 0.5f, discount = 0.9f;
    const int32_t zero = 0;
    trp_rng rng;
    trp_rng_init(&rng, 9, 0);
    fill_floats(&rng, logits, ATOMS, 1);
    fill_floats(&rng, next, ATOMS, 1);
    trp_q_batch batch = {.rows = 1, .actions = 1, .rewards = &reward, .discounts = &discount};
    trp_c51_targets(&support, &batch, next, next, targets);
    trp_loss one = trp_c51_loss(&support, &batch, logits, targets, &divergence, without);
    batch.taken = &zero;
    trp_loss other = trp_c51_loss(&support, &batch, logits, targets, &divergence, with);
    assert_true(one.loss == other.loss);
    assert_memory_equal(with, without, sizeof with);
}

/* ---- from a data set ----------------------------------------------------------------------- */

/* Newey and Powell 1987: the expectile of what targets are drawn from. */
static void values_become_expectiles(void **state)
{
    (void)state;
    static const float expectiles[] = {0.5f, 0.7f, 0.95f};
    struct scene s;
    scene_init(&s, 10);
    for (int k = 0; k < 3; k++) {
        float value = 0, values[ROWS], dvalues[ROWS];
        trp_expectile_batch batch = {.rows = ROWS, .targets = s.q, .expectile = expectiles[k]};
        for (int i = 0; i < 3000; i++) {
            for (size_t row = 0; row < ROWS; row++)
                values[row] = value;
            trp_expectile_loss(&batch, values, dvalues);
            for (size_t row = 0; row < ROWS; row++)
                value -= 0.1f * dvalues[row];
        }
        double above = 0, below = 0, mean = 0;
        for (size_t row = 0; row < ROWS; row++) {
            double error = (double)s.q[row] - (double)value;
            *(error > 0 ? &above : &below) += fabs(error);
            mean += (double)s.q[row] / ROWS;
        }
        assert_near(above * (double)expectiles[k], below * (1 - (double)expectiles[k]), 1e-4,
                    "balance", (size_t)k);
        assert_true(k == 0 ? fabs((double)value - mean) < 1e-4 : (double)value > mean);
    }
    s.weights[3] = 0;
    float dvalues[ROWS];
    trp_loss got = trp_expectile_loss(
        &(trp_expectile_batch){.rows = ROWS, .targets = s.q, .weights = s.weights}, s.q2, dvalues);
    double loss = 0;
    for (size_t row = 0; row < ROWS; row++) {
        double error = (double)s.q[row] - (double)s.q2[row], tau = error < 0 ? 0.3 : 0.7;
        loss += (double)s.weights[row] * tau * error * error / ROWS;
    }
    assert_near((double)got.loss, loss, 1e-6, "loss", 0);
    assert_true(dvalues[3] == 0);
}

/* What CQL lowers, over the actions that there are. */
static void a_gap_is_how_far_other_actions_are_above_the_one_taken(void **state)
{
    (void)state;
    float q[2 * SAMPLES] = {1, 3, 2, 0, 5, 9, 1, 1, 1, 1, 1, 1}, dq[2 * SAMPLES];
    float weights[2] = {2, 3};
    const int32_t taken[2] = {1, 4};
    const bool mask[2 * SAMPLES] = {true,  true,  true,  false, false, false,
                                    false, false, false, false, true,  false};
    trp_cql_batch batch = {.rows = 2,
                           .samples = SAMPLES,
                           .mask = mask,
                           .taken = taken,
                           .weights = weights,
                           .scale = 2};
    trp_cql got = trp_cql_loss(&batch, q, dq, NULL);
    double sum = exp(1) + exp(3) + exp(2), gap = log(sum) - 3;
    assert_near((double)got.gap, gap / 2, 1e-6, "gap", 0); /* nothing else to do in the second */
    assert_near((double)got.loss, 2 * 2 * gap / 2, 1e-6, "loss", 0);
    for (size_t i = 0; i < (size_t)2 * SAMPLES; i++) {
        double share = !mask[i] ? 0 : i < SAMPLES ? 2 * exp((double)q[i]) / sum : 3;
        double want = share - (i == 1 ? 2 : i == SAMPLES + 4 ? 3 : 0);
        assert_near((double)dq[i], want, 1e-6, "dq", i);
    }
    float added[2 * SAMPLES];
    for (size_t i = 0; i < (size_t)2 * SAMPLES; i++)
        added[i] = 10;
    batch.add = true;
    trp_cql_loss(&batch, q, added, NULL);
    for (size_t i = 0; i < (size_t)2 * SAMPLES; i++)
        assert_near((double)added[i], 10 + (double)dq[i], 1e-6, "added", i);
    batch.add = false;
    batch.scale = 0;
    assert_near((double)trp_cql_loss(&batch, q, q, NULL).loss, 5 * 2 * gap / 2, 1e-6, "loss", 1);
    assert_near((double)q[0], (double)dq[0] * 2.5, 1e-6, "in place", 0);
}

/* As if those had not been drawn. */
static void samples_that_are_masked_are_not_read(void **state)
{
    (void)state;
    float q[4] = {1, NAN, 0.5f, INFINITY}, log_probs[4] = {-1, 0, -2, 0}, dsampled[4], dq, two = 2;
    const bool mask[4] = {true, false, true, false};
    trp_cql got = trp_cql_loss(
        &(trp_cql_batch){
            .rows = 1, .samples = 4, .log_probs = log_probs, .mask = mask, .q = &two, .scale = 1},
        q, dsampled, &dq);
    double sum = exp(1 + 1) + exp(0.5 + 2);
    assert_near((double)got.gap, log(sum / 2) - 2, 1e-6, "gap", 0);
    assert_near((double)dsampled[0], exp(2) / sum, 1e-6, "dq", 0);
    assert_near((double)dsampled[2], exp(2.5) / sum, 1e-6, "dq", 2);
    assert_true(dsampled[1] == 0 && dsampled[3] == 0 && dq == -1);
}

/* The integral of exp(sin) over [-2, 2] from samples of two densities, and as many of each. */
static void samples_of_known_density_stand_for_all_actions(void **state)
{
    (void)state;
    enum { MANY = 20000 };
    static float q[MANY], log_probs[MANY], dsampled[MANY];
    trp_rng rng;
    double integral = 0;
    trp_rng_init(&rng, 11, 0);
    for (int i = 0; i < 4000; i++)
        integral += exp(sin(-2 + (i + 0.5) / 1000)) / 1000;
    for (int i = 0; i < MANY; i++) {
        double u = trp_rng_double(&rng), a = i % 2 ? -2 + 4 * u : -2 + 4 * sqrt(u);
        log_probs[i] = (float)(i % 2 ? -log(4) : log((a + 2) / 8));
        q[i] = (float)sin(a);
    }
    float data_q = 0.25f, dq;
    trp_cql got = trp_cql_loss(
        &(trp_cql_batch){
            .rows = 1, .samples = MANY, .log_probs = log_probs, .q = &data_q, .scale = 1},
        q, dsampled, &dq);
    double sum = 0;
    for (int i = 0; i < MANY; i++)
        sum += (double)dsampled[i];
    assert_near((double)got.gap, log(integral) - 0.25, 0.02, "gap", 0);
    assert_near(sum, 1, 1e-4, "shares", 0);
    assert_true(dq == -1);
    got = trp_cql_loss(&(trp_cql_batch){.rows = 1,
                                        .samples = MANY,
                                        .log_probs = log_probs,
                                        .q = &data_q,
                                        .scale = 1,
                                        .add = true},
                       q, dsampled, &dq);
    assert_true(dq == -2);
}

static void what_is_not_finite_makes_the_loss_not_finite(void **state)
{
    (void)state;
    static const float bad[] = {NAN, INFINITY, -INFINITY};
    for (int i = 0; i < 3; i++)
        for (int which = 0; which < 5; which++) {
            float numbers[2] = {1, bad[i]}, others[2] = {0.5f, 1.5f}, d[2], d2[2], d3[2];
            float q = which == 0 ? numbers[1] : 1, q2 = which == 1 ? numbers[1] : 2;
            float log_prob = which == 2 ? numbers[1] : 3, loss;
            if (which < 3)
                loss = trp_sac_policy_loss(
                           &(trp_sac_batch){.rows = 1, &q, &q2, &log_prob, NULL, 0.5f}, d, d2, d3)
                           .loss;
            else if (which == 3)
                loss = trp_expectile_loss(&(trp_expectile_batch){.rows = 2, .targets = numbers},
                                          others, d)
                           .loss;
            else
                loss = trp_cql_loss(&(trp_cql_batch){.rows = 1, .samples = 2, .q = &q2}, numbers, d,
                                    d2)
                           .loss;
            assert_false(isfinite(loss));
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(targets_are_of_the_lesser_critic_less_what_entropy_costs),
        cmocka_unit_test(a_critic_that_is_not_finite_is_seen_in_its_target),
        cmocka_unit_test(smoothing_is_clipped_noise_within_the_bounds),
        cmocka_unit_test(sacs_policy_follows_the_lesser_critic),
        cmocka_unit_test(a_multiplier_grows_while_its_bound_is_passed),
        cmocka_unit_test(a_deterministic_policy_follows_its_critic),
        cmocka_unit_test(imitation_keeps_its_share_whatever_the_size_of_values),
        cmocka_unit_test(gradients_are_finite_differences),
        cmocka_unit_test(d4pgs_policy_raises_the_distributions_mean),
        cmocka_unit_test(a_distribution_of_one_action_needs_no_index),
        cmocka_unit_test(values_become_expectiles),
        cmocka_unit_test(a_gap_is_how_far_other_actions_are_above_the_one_taken),
        cmocka_unit_test(samples_that_are_masked_are_not_read),
        cmocka_unit_test(samples_of_known_density_stand_for_all_actions),
        cmocka_unit_test(what_is_not_finite_makes_the_loss_not_finite),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

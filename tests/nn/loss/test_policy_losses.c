/* Losses of policies by the papers' definitions, and what they make policies do. */
#include <troupe/policy_losses.h>

#include "loss_tools.h"

enum { ROWS = 64, SAMPLES = 5 };

struct scene {
    trp_policy_batch batch;
    float log_probs[ROWS], old[ROWS], entropies[ROWS], advantages[ROWS], weights[ROWS];
    float dlog_probs[ROWS], dentropies[ROWS];
};

static void scene_init(struct scene *s, uint64_t seed)
{
    trp_rng rng;
    trp_rng_init(&rng, seed, 0);
    fill_floats(&rng, s->log_probs, ROWS, 0.3);
    fill_floats(&rng, s->old, ROWS, 0.3);
    fill_floats(&rng, s->entropies, ROWS, 1);
    fill_floats(&rng, s->advantages, ROWS, 1);
    fill_floats(&rng, s->weights, ROWS, 1);
    s->batch = (trp_policy_batch){.rows = ROWS,
                                  .advantages = s->advantages,
                                  .weights = s->weights,
                                  .entropy = 0.25f,
                                  .old_log_probs = s->old};
}

/* ---- PPO ----------------------------------------------------------------------------------- */

struct row {
    double log_ratio, advantage;
};

static double row_loss(void *context)
{
    struct row *row = context;
    double push;
    return ppo_row_f64(row->log_ratio, row->advantage, 0.2, &push);
}

static void ppos_gradients_are_finite_differences(void **state)
{
    (void)state;
    trp_rng rng;
    trp_rng_init(&rng, 1, 0);
    for (int i = 0; i < 200; i++) {
        struct row row;
        double push;
        fill(&rng, &row.log_ratio, 1, 0.3);
        fill(&rng, &row.advantage, 1, 1);
        ppo_row_f64(row.log_ratio, row.advantage, 0.2, &push);
        assert_gradient(row_loss, &row, &row.log_ratio, &push, 1, "dlog_prob");
    }
}

static void ppo_is_equations_7_and_9(void **state)
{
    (void)state;
    struct scene s;
    double loss = 0, entropy = 0, divergence = 0, clipped = 0, clip = 0.3;
    scene_init(&s, 2);
    s.batch.clip = 0.3f;
    trp_policy_loss got =
        trp_ppo_loss(&s.batch, s.log_probs, s.entropies, s.dlog_probs, s.dentropies);
    for (size_t i = 0; i < ROWS; i++) {
        double ratio = exp((double)s.log_probs[i] - (double)s.old[i]);
        double advantage = (double)s.advantages[i], weight = (double)s.weights[i];
        double kept = fmin(fmax(ratio, 1 - clip), 1 + clip);
        double least = fmin(ratio * advantage, kept * advantage);
        loss -= weight * (least + 0.25 * (double)s.entropies[i]) / ROWS;
        entropy += (double)s.entropies[i] / ROWS;
        divergence += (ratio - 1 - log(ratio)) / ROWS;
        clipped += fabs(ratio - 1) > clip ? 1.0 / ROWS : 0;
        bool flat = kept * advantage < ratio * advantage;
        assert_near((double)s.dlog_probs[i], flat ? 0 : -weight * ratio * advantage / ROWS, 1e-6,
                    "dlog_prob", i);
        assert_near((double)s.dentropies[i], -weight * 0.25 / ROWS, 1e-6, "dentropy", i);
    }
    assert_near((double)got.loss, loss, 1e-6, "loss", 0);
    assert_near((double)got.entropy, entropy, 1e-6, "entropy", 0);
    assert_near((double)got.divergence, divergence, 1e-6, "divergence", 0);
    assert_near((double)got.clipped, clipped, 1e-6, "clipped", 0);
}

/* Figure 1 of the paper: what is gained by moving further is cut, what is lost is not. */
static void a_ratio_is_cut_on_the_side_that_pays(void **state)
{
    (void)state;
    static const struct {
        float ratio, advantage, loss;
        bool cut;
    } cases[] = {
        {1.5f, 2, -2.4f, true}, {0.5f, 2, -1, false},   {1.1f, 2, -2.2f, false},
        {1.5f, -2, 3, false},   {0.5f, -2, 1.6f, true}, {0.9f, -2, 1.8f, false},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        float old = -1, now = old + logf(cases[i].ratio), gradient;
        trp_policy_loss got = trp_ppo_loss(&(trp_policy_batch){.rows = 1,
                                                               .advantages = &cases[i].advantage,
                                                               .old_log_probs = &old},
                                           &now, NULL, &gradient, NULL);
        assert_near((double)got.loss, (double)cases[i].loss, 1e-6, "loss", i);
        assert_near((double)gradient, cases[i].cut ? 0 : (double)cases[i].loss, 1e-6, "gradient",
                    i);
        assert_true(got.clipped == (fabsf(cases[i].ratio - 1) > 0.2f));
    }
}

/* ---- policy gradients ---------------------------------------------------------------------- */

static void a_policy_gradient_is_weighted_log_probabilities(void **state)
{
    (void)state;
    struct scene s;
    double loss = 0, entropy = 0;
    scene_init(&s, 3);
    trp_policy_loss got =
        trp_policy_gradient_loss(&s.batch, s.log_probs, s.entropies, s.dlog_probs, s.dentropies);
    for (size_t i = 0; i < ROWS; i++) {
        double weight = (double)s.weights[i], advantage = (double)s.advantages[i];
        loss -= weight * advantage * (double)s.log_probs[i] / ROWS;
        loss -= weight * 0.25 * (double)s.entropies[i] / ROWS;
        entropy += (double)s.entropies[i] / ROWS;
        assert_near((double)s.dlog_probs[i], -weight * advantage / ROWS, 1e-6, "dlog_prob", i);
        assert_near((double)s.dentropies[i], -weight * 0.25 / ROWS, 1e-6, "dentropy", i);
    }
    assert_near((double)got.loss, loss, 1e-6, "loss", 0);
    assert_near((double)got.entropy, entropy, 1e-6, "entropy", 0);
    assert_true(got.divergence == 0 && got.clipped == 0);
}

typedef trp_policy_loss (*policy_loss)(const trp_policy_batch *batch, const float *log_probs,
                                       const float *entropies, float *dlog_probs,
                                       float *dentropies);
static const policy_loss losses[2] = {trp_policy_gradient_loss, trp_ppo_loss};

static void gradients_may_lie_where_numbers_were_and_entropies_be_left_out(void **state)
{
    (void)state;
    for (int which = 0; which < 2; which++) {
        struct scene s, t;
        scene_init(&s, 4);
        scene_init(&t, 4);
        t.batch.weights = NULL;
        for (int i = 0; i < ROWS; i++)
            s.weights[i] = 1;
        float loss =
            losses[which](&s.batch, s.log_probs, s.entropies, s.dlog_probs, s.dentropies).loss;
        float same =
            losses[which](&t.batch, t.log_probs, t.entropies, t.log_probs, t.entropies).loss;
        assert_true(loss == same);
        assert_memory_equal(t.log_probs, s.dlog_probs, sizeof t.log_probs);
        assert_memory_equal(t.entropies, s.dentropies, sizeof t.entropies);
        scene_init(&t, 4);
        t.batch.weights = NULL;
        trp_policy_loss without = losses[which](&t.batch, t.log_probs, NULL, t.dlog_probs, NULL);
        assert_memory_equal(t.dlog_probs, s.dlog_probs, sizeof t.log_probs);
        assert_true(without.entropy == 0);
        t.batch.entropy = 0;
        same = losses[which](&t.batch, t.log_probs, t.entropies, t.dlog_probs, t.dentropies).loss;
        assert_true(without.loss == same);
    }
}

static void a_row_without_weight_is_not_read(void **state)
{
    (void)state;
    for (int which = 0; which < 2; which++) {
        struct scene s;
        scene_init(&s, 5);
        for (int i = 0; i < ROWS; i++)
            s.weights[i] = i < ROWS / 2;
        trp_policy_loss half =
            losses[which](&s.batch, s.log_probs, s.entropies, s.dlog_probs, s.dentropies);
        s.batch.rows = ROWS / 2;
        trp_policy_loss alone =
            losses[which](&s.batch, s.log_probs, s.entropies, s.dlog_probs, s.dentropies);
        s.batch.rows = ROWS;
        for (int i = ROWS / 2; i < ROWS; i++)
            s.log_probs[i] = s.old[i] = s.entropies[i] = s.advantages[i] = i % 2 ? NAN : -INFINITY;
        trp_policy_loss got =
            losses[which](&s.batch, s.log_probs, s.entropies, s.dlog_probs, s.dentropies);
        assert_memory_equal(&got, &half, sizeof got);
        assert_near((double)got.loss, (double)alone.loss / 2, 1e-6, "loss", 0);
        assert_float_equal(got.entropy, alone.entropy, 1e-6);
        assert_float_equal(got.divergence, alone.divergence, 1e-6);
        assert_float_equal(got.clipped, alone.clipped, 1e-6);
        for (int i = ROWS / 2; i < ROWS; i++)
            assert_true(s.dlog_probs[i] == 0 && s.dentropies[i] == 0);
    }
}

static void what_is_not_finite_makes_the_loss_not_finite(void **state)
{
    (void)state;
    static const float bad[] = {NAN, INFINITY, -INFINITY};
    for (int which = 0; which < 8; which++)
        for (int i = 0; i < 3; i++) {
            struct scene s;
            scene_init(&s, 6);
            if (which % 4 == 3 && which < 4)
                continue; /* the policy gradient knows no other policy */
            float *arrays[4] = {s.log_probs, s.advantages, s.entropies, s.old};
            arrays[which % 4][7] = bad[i];
            trp_policy_loss got =
                losses[which / 4](&s.batch, s.log_probs, s.entropies, s.dlog_probs, s.dentropies);
            assert_false(isfinite(got.loss));
        }
}

/* ---- advantages ---------------------------------------------------------------------------- */

static void advantages_are_normalized_over_the_rows_with_weight(void **state)
{
    (void)state;
    struct scene s;
    float got[ROWS];
    double mean = 0, square = 0;
    int count = 0;
    scene_init(&s, 7);
    for (int i = 0; i < ROWS; i++) {
        s.weights[i] = i % 3 ? 0.5f : 0;
        s.advantages[i] = i % 3 ? 1000 + 3 * s.advantages[i] : NAN;
    }
    trp_normalize_advantages(ROWS, s.weights, s.advantages, got);
    for (int i = 0; i < ROWS; i++) {
        if (i % 3 == 0) {
            assert_true(got[i] == 0);
            continue;
        }
        count++;
        mean += (double)got[i];
        square += (double)got[i] * (double)got[i];
        float scale = (got[i] - got[1]) / (s.advantages[i] - s.advantages[1]);
        assert_true(i == 1 || (scale > 0.2f && scale < 0.5f)); /* in the same order and place */
    }
    assert_true(fabs(mean / count) < 1e-6);
    assert_near(square / count, 1, 1e-5, "variance", 0);
    trp_normalize_advantages(ROWS, s.weights, s.advantages, s.advantages);
    assert_memory_equal(s.advantages, got, sizeof got);
    trp_normalize_advantages(1, NULL, (float[]){5}, got);
    assert_true(got[0] == 0);
    trp_normalize_advantages(3, NULL, (float[]){5, 5, 5}, got);
    assert_true(got[0] == 0 && got[2] == 0);
    trp_normalize_advantages(2, NULL, (float[]){1, NAN}, got);
    assert_false(isfinite(got[0]) || isfinite(got[1]));
}

/* ---- imitation ----------------------------------------------------------------------------- */

static void cloning_is_the_negative_log_likelihood(void **state)
{
    (void)state;
    struct scene s;
    double loss = 0;
    scene_init(&s, 8);
    s.weights[3] = 0;
    s.log_probs[3] = -INFINITY;
    float got = trp_cloning_loss(ROWS, s.weights, s.log_probs, s.dlog_probs);
    for (size_t i = 0; i < ROWS; i++) {
        loss -= i == 3 ? 0 : (double)s.weights[i] * (double)s.log_probs[i] / ROWS;
        assert_near((double)s.dlog_probs[i], -(double)s.weights[i] / ROWS, 1e-6, "dlog_prob", i);
    }
    assert_near((double)got, loss, 1e-6, "loss", 0);
    s.log_probs[3] = 0;
    trp_cloning_loss(ROWS, NULL, s.log_probs, s.log_probs);
    for (size_t i = 0; i < ROWS; i++)
        assert_float_equal(s.log_probs[i], -1.0 / ROWS, 1e-9);
    s.log_probs[5] = -INFINITY;
    assert_false(isfinite(trp_cloning_loss(ROWS, NULL, s.log_probs, s.dlog_probs)));
}

static void crr_weighs_by_the_advantage_over_the_policy(void **state)
{
    (void)state;
    trp_rng rng;
    float q[ROWS], policy_q[ROWS * SAMPLES], weights[ROWS], got[ROWS];
    trp_rng_init(&rng, 9, 0);
    fill_floats(&rng, q, ROWS, 2);
    fill_floats(&rng, policy_q, ROWS * SAMPLES, 2);
    fill_floats(&rng, weights, ROWS, 1);
    for (int which = 0; which < 4; which++) {
        trp_crr_batch batch = {.rows = ROWS,
                               .samples = SAMPLES,
                               .q = q,
                               .policy_q = policy_q,
                               .weights = weights,
                               .max = which % 2,
                               .binary = which / 2,
                               .temperature = 0.5f,
                               .most = 7};
        trp_crr_weights(&batch, got);
        for (size_t i = 0; i < ROWS; i++) {
            double mean = 0, most = -(double)INFINITY;
            for (size_t j = i * SAMPLES; j < (i + 1) * SAMPLES; j++) {
                mean += (double)policy_q[j] / SAMPLES;
                most = fmax(most, (double)policy_q[j]);
            }
            double advantage = (double)q[i] - (which % 2 ? most : mean);
            double want = which / 2 ? advantage > 0 : fmin(exp(advantage / 0.5), 7);
            assert_near((double)got[i], (double)weights[i] * want, 2e-6, "weight", i);
        }
    }
    trp_crr_batch plain = {
        .rows = 3, .samples = 1, .q = (float[]){1, 9, -1}, .policy_q = (float[]){0, 0, 0}};
    trp_crr_weights(&plain, got);
    assert_float_equal(got[0], exp(1), 1e-6);
    assert_float_equal(got[1], 20, 0);
    assert_float_equal(got[2], exp(-1), 1e-6);
}

static void what_is_not_finite_makes_a_weight_not_finite_unless_it_is_left_out(void **state)
{
    (void)state;
    for (int which = 0; which < 8; which++)
        for (int i = 0; i < 2; i++) {
            float bad = i ? NAN : which % 4 < 2 ? INFINITY : -INFINITY;
            float q[2] = {0, which % 2 ? bad : 1}, policy_q[4] = {0, 1, 1, which % 2 ? 0 : bad};
            float got[2];
            trp_crr_batch batch = {.rows = 2,
                                   .samples = 2,
                                   .q = q,
                                   .policy_q = policy_q,
                                   .max = which % 4 < 2,
                                   .binary = which < 4};
            trp_crr_weights(&batch, got);
            assert_true(isfinite(got[0]) && !isfinite(got[1]));
            batch.weights = (float[]){1, 0};
            trp_crr_weights(&batch, got);
            assert_true(got[1] == 0);
        }
}

/* ---- what policies learn ------------------------------------------------------------------- */

enum { ARMS = 3 };

/* Batches of arms drawn from one set of logits, each of which pays its own reward and noise. */
static void play(policy_loss loss, trp_rng *rng, float logits[ARMS])
{
    static const float pays[ARMS] = {0, 1, 0.5f};
    float rows[ROWS * ARMS], gradient[ROWS * ARMS], log_probs[ROWS], old[ROWS], advantages[ROWS];
    int32_t actions[ROWS];
    trp_categorical policy = {.rows = ROWS, .choices = ARMS, .logits = rows};
    trp_policy_batch batch = {.rows = ROWS, .advantages = advantages, .old_log_probs = old};
    for (int epoch = 0; epoch < 4; epoch++) {
        for (int i = 0; i < ROWS * ARMS; i++)
            rows[i] = logits[i % ARMS];
        if (epoch == 0) {
            trp_categorical_sample(&policy, rng, actions);
            trp_categorical_log_prob(&policy, actions, old);
            for (int i = 0; i < ROWS; i++)
                advantages[i] = pays[actions[i]] + 0.3f * (float)trp_rng_normal(rng);
            trp_normalize_advantages(ROWS, NULL, advantages, advantages);
        }
        trp_categorical_log_prob(&policy, actions, log_probs);
        loss(&batch, log_probs, NULL, log_probs, NULL);
        trp_categorical_backward(&policy, &(trp_categorical_grads){.actions = actions,
                                                                   .log_probs = log_probs,
                                                                   .logits = gradient});
        for (int i = 0; i < ROWS * ARMS; i++)
            logits[i % ARMS] -= 0.5f * gradient[i];
    }
}

static void both_losses_find_the_arm_that_pays(void **state)
{
    (void)state;
    for (int which = 0; which < 2; which++) {
        trp_rng rng;
        float logits[ARMS] = {0}, log_prob;
        trp_rng_init(&rng, 10, 0);
        for (int step = 0; step < 100; step++)
            play(losses[which], &rng, logits);
        trp_categorical_log_prob(&(trp_categorical){.rows = 1, .choices = ARMS, .logits = logits},
                                 (int32_t[]){1}, &log_prob);
        assert_true(expf(log_prob) > 0.9f);
    }
}

static void a_clone_has_the_demonstrators_mean_and_deviation(void **state)
{
    (void)state;
    enum { DEMONSTRATIONS = 4096 };
    static float actions[DEMONSTRATIONS], means[DEMONSTRATIONS], log_probs[DEMONSTRATIONS];
    float mean = 0, log_std = 0, gradient;
    double sum = 0, square = 0;
    trp_rng rng;
    trp_rng_init(&rng, 11, 0);
    for (int i = 0; i < DEMONSTRATIONS; i++) {
        actions[i] = 0.7f + 0.4f * (float)trp_rng_normal(&rng);
        sum += (double)actions[i] / DEMONSTRATIONS;
        square += (double)actions[i] * (double)actions[i] / DEMONSTRATIONS;
    }
    trp_gaussian policy = {
        .rows = DEMONSTRATIONS, .size = 1, .mean = means, .log_std = &log_std, .shared = true};
    for (int step = 0; step < 200; step++) {
        for (int i = 0; i < DEMONSTRATIONS; i++)
            means[i] = mean;
        trp_gaussian_log_prob(&policy, actions, log_probs);
        trp_cloning_loss(DEMONSTRATIONS, NULL, log_probs, log_probs);
        trp_gaussian_backward(&policy, &(trp_gaussian_grads){.actions = actions,
                                                             .log_probs = log_probs,
                                                             .mean = means,
                                                             .log_std = &gradient});
        for (int i = 0; i < DEMONSTRATIONS; i++)
            mean -= 0.1f * means[i];
        log_std -= 0.1f * gradient;
    }
    assert_float_equal(mean, sum, 1e-3);
    assert_float_equal(expf(log_std), sqrt(square - sum * sum), 1e-3);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ppos_gradients_are_finite_differences),
        cmocka_unit_test(ppo_is_equations_7_and_9),
        cmocka_unit_test(a_ratio_is_cut_on_the_side_that_pays),
        cmocka_unit_test(a_policy_gradient_is_weighted_log_probabilities),
        cmocka_unit_test(gradients_may_lie_where_numbers_were_and_entropies_be_left_out),
        cmocka_unit_test(a_row_without_weight_is_not_read),
        cmocka_unit_test(what_is_not_finite_makes_the_loss_not_finite),
        cmocka_unit_test(advantages_are_normalized_over_the_rows_with_weight),
        cmocka_unit_test(cloning_is_the_negative_log_likelihood),
        cmocka_unit_test(crr_weighs_by_the_advantage_over_the_policy),
        cmocka_unit_test(what_is_not_finite_makes_a_weight_not_finite_unless_it_is_left_out),
        cmocka_unit_test(both_losses_find_the_arm_that_pays),
        cmocka_unit_test(a_clone_has_the_demonstrators_mean_and_deviation),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

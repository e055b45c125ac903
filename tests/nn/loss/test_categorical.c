/* Categorical policies by their definition: probabilities, entropy, divergence, masks. */
#include <troupe/distributions.h>

#include "loss_tools.h"

enum { ROWS = 24, CHOICES = 9, PARTS = 3, DRAWS = 40000 };
static const int32_t sizes[PARTS] = {4, 2, 3};

/* exp(logit) / sum over what is allowed */
static void probabilities(const float *logits, const bool *mask, int count, double *p)
{
    double sum = 0;
    for (int i = 0; i < count; i++)
        sum += p[i] = mask && !mask[i] ? 0 : exp((double)logits[i]);
    for (int i = 0; i < count; i++)
        p[i] /= sum;
}

/* ---- finite differences -------------------------------------------------------------------- */

struct choice {
    uint32_t count, taken;
    double logits[CHOICES], other[CHOICES];
    bool mask[CHOICES];
    double by_log_prob, by_entropy, by_divergence;
};

static double choice_loss(void *context)
{
    struct choice *c = context;
    return c->by_log_prob * categorical_log_prob_f64(c->logits, c->mask, c->count, c->taken) +
           c->by_entropy * categorical_entropy_f64(c->logits, c->mask, c->count);
}

static double divergence_loss(void *context)
{
    struct choice *c = context;
    return c->by_divergence * categorical_kl_f64(c->logits, c->mask, c->other, c->mask, c->count);
}

static void choice_init(struct choice *c, trp_rng *rng)
{
    *c = (struct choice){.count = 1 + (uint32_t)trp_rng_below(rng, CHOICES)};
    c->taken = (uint32_t)trp_rng_below(rng, c->count);
    fill(rng, c->logits, CHOICES, 2);
    fill(rng, c->other, CHOICES, 2);
    fill(rng, &c->by_log_prob, 1, 1);
    fill(rng, &c->by_entropy, 1, 1);
    fill(rng, &c->by_divergence, 1, 1);
    for (uint32_t i = 0; i < c->count; i++)
        c->mask[i] = i == c->taken || trp_rng_below(rng, 3);
}

static void gradients_are_finite_differences(void **state)
{
    (void)state;
    trp_rng rng;
    trp_rng_init(&rng, 1, 0);
    for (int i = 0; i < 200; i++) {
        struct choice c;
        double gradient[CHOICES], d_other[CHOICES];
        choice_init(&c, &rng);
        categorical_back_f64(c.logits, c.mask, c.count, c.taken, c.by_log_prob, c.by_entropy, false,
                             gradient);
        assert_gradient(choice_loss, &c, c.logits, gradient, c.count, "dlogits");
        categorical_kl_back_f64(c.logits, c.mask, c.other, c.mask, c.count, c.by_divergence, false,
                                gradient, d_other);
        assert_gradient(divergence_loss, &c, c.logits, gradient, c.count, "dp");
        assert_gradient(divergence_loss, &c, c.other, d_other, c.count, "dq");
    }
}

/* ---- definitions --------------------------------------------------------------------------- */

struct scene {
    trp_categorical policy, other;
    float logits[ROWS * CHOICES], others[ROWS * CHOICES];
    bool mask[ROWS * CHOICES];
    int32_t actions[ROWS * PARTS];
};

static void scene_init(struct scene *s, uint64_t seed)
{
    trp_rng rng;
    trp_rng_init(&rng, seed, 0);
    fill_floats(&rng, s->logits, ROWS * CHOICES, 2);
    fill_floats(&rng, s->others, ROWS * CHOICES, 2);
    s->policy = (trp_categorical){.rows = ROWS,
                                  .choices = CHOICES,
                                  .parts = PARTS,
                                  .sizes = sizes,
                                  .logits = s->logits,
                                  .mask = s->mask};
    s->other = s->policy;
    s->other.logits = s->others;
    for (int i = 0; i < ROWS * CHOICES; i++)
        s->mask[i] = trp_rng_below(&rng, 2);
    for (int i = 0, at = 0; i < ROWS * PARTS; at += sizes[i++ % PARTS]) {
        s->actions[i] = (int32_t)trp_rng_below(&rng, (uint64_t)sizes[i % PARTS]);
        s->mask[at + s->actions[i]] = true;
    }
}

static void numbers_are_those_of_the_softmaxes_together(void **state)
{
    (void)state;
    struct scene s;
    float log_probs[ROWS], entropies[ROWS], divergences[ROWS];
    scene_init(&s, 2);
    trp_categorical_log_prob(&s.policy, s.actions, log_probs);
    trp_categorical_entropy(&s.policy, entropies);
    trp_categorical_kl(&s.policy, &s.other, divergences);
    for (int row = 0, at = 0; row < ROWS; row++) {
        double log_prob = 0, entropy = 0, divergence = 0;
        for (int part = 0; part < PARTS; at += sizes[part++]) {
            double p[CHOICES], q[CHOICES];
            probabilities(s.logits + at, s.mask + at, sizes[part], p);
            probabilities(s.others + at, s.mask + at, sizes[part], q);
            log_prob += log(p[s.actions[row * PARTS + part]]);
            for (int i = 0; i < sizes[part]; i++) {
                entropy -= p[i] > 0 ? p[i] * log(p[i]) : 0;
                divergence += p[i] > 0 ? p[i] * log(p[i] / q[i]) : 0;
            }
        }
        assert_near((double)log_probs[row], log_prob, 1e-6, "log_prob", (size_t)row);
        assert_near((double)entropies[row], entropy, 1e-6, "entropy", (size_t)row);
        assert_near((double)divergences[row], divergence, 2e-6, "divergence", (size_t)row);
    }
}

static void a_batchs_gradient_is_its_rows_in_place_or_added(void **state)
{
    (void)state;
    struct scene s;
    float by_log_prob[ROWS], by_entropy[ROWS], gradient[ROWS * CHOICES], added[ROWS * CHOICES];
    trp_rng rng;
    scene_init(&s, 3);
    trp_rng_init(&rng, 4, 0);
    fill_floats(&rng, by_log_prob, ROWS, 1);
    fill_floats(&rng, by_entropy, ROWS, 1);
    fill_floats(&rng, added, ROWS * CHOICES, 1);
    trp_categorical_grads grads = {.actions = s.actions,
                                   .log_probs = by_log_prob,
                                   .entropies = by_entropy,
                                   .logits = gradient};
    trp_categorical_backward(&s.policy, &grads);
    for (int i = 0, at = 0; i < ROWS * PARTS; at += sizes[i++ % PARTS]) {
        double logits[CHOICES], want[CHOICES];
        widen(s.logits + at, logits, (size_t)sizes[i % PARTS]);
        categorical_back_f64(logits, s.mask + at, (uint32_t)sizes[i % PARTS],
                             (uint32_t)s.actions[i], (double)by_log_prob[i / PARTS],
                             (double)by_entropy[i / PARTS], false, want);
        for (int j = 0; j < sizes[i % PARTS]; j++)
            assert_near((double)gradient[at + j], want[j], 1e-6, "dlogits", (size_t)(at + j));
    }
    float before[ROWS * CHOICES];
    memcpy(before, added, sizeof before);
    grads.logits = added;
    grads.add = true;
    trp_categorical_backward(&s.policy, &grads);
    for (size_t i = 0; i < ROWS * CHOICES; i++)
        assert_float_equal(added[i], before[i] + gradient[i], 1e-6);
    grads.logits = s.logits;
    grads.add = false;
    trp_categorical_backward(&s.policy, &grads);
    assert_memory_equal(s.logits, gradient, sizeof gradient);
}

static void a_divergences_gradient_is_its_rows_or_added(void **state)
{
    (void)state;
    struct scene s;
    float by[ROWS], dp[ROWS * CHOICES], dq[ROWS * CHOICES], twice[ROWS * CHOICES];
    trp_rng rng;
    scene_init(&s, 5);
    trp_rng_init(&rng, 6, 0);
    fill_floats(&rng, by, ROWS, 1);
    trp_categorical_kl_backward(
        &s.policy, &s.other,
        &(trp_categorical_kl_grads){.divergences = by, .p_logits = dp, .q_logits = dq});
    for (int i = 0, at = 0; i < ROWS * PARTS; at += sizes[i++ % PARTS]) {
        double p[CHOICES], q[CHOICES], want_p[CHOICES], want_q[CHOICES];
        widen(s.logits + at, p, (size_t)sizes[i % PARTS]);
        widen(s.others + at, q, (size_t)sizes[i % PARTS]);
        categorical_kl_back_f64(p, s.mask + at, q, s.mask + at, (uint32_t)sizes[i % PARTS],
                                (double)by[i / PARTS], false, want_p, want_q);
        for (int j = 0; j < sizes[i % PARTS]; j++) {
            assert_near((double)dp[at + j], want_p[j], 2e-6, "dp", (size_t)(at + j));
            assert_near((double)dq[at + j], want_q[j], 2e-6, "dq", (size_t)(at + j));
        }
    }
    memcpy(twice, dq, sizeof twice);
    trp_categorical_kl_backward(
        &s.policy, &s.other,
        &(trp_categorical_kl_grads){.divergences = by, .q_logits = twice, .add = true});
    for (size_t i = 0; i < ROWS * CHOICES; i++)
        assert_float_equal(twice[i], 2 * dq[i], 1e-6);
}

/* ---- choosing ------------------------------------------------------------------------------ */

static void draws_have_their_probabilities(void **state)
{
    (void)state;
    static const float logits[7] = {0.5f, -1, NAN, 2, 0, -INFINITY, 1};
    static const bool mask[7] = {true, true, false, true, true, true, true};
    static const int32_t two[2] = {4, 3};
    trp_categorical policy = {
        .rows = 1, .choices = 7, .parts = 2, .sizes = two, .logits = logits, .mask = mask};
    double p[7];
    int counts[7] = {0};
    trp_rng rng;
    trp_rng_init(&rng, 7, 0);
    for (int i = 0; i < DRAWS; i++) {
        int32_t actions[2];
        trp_categorical_sample(&policy, &rng, actions);
        assert_in_range(actions[0], 0, 3);
        assert_in_range(actions[1], 0, 2);
        counts[actions[0]]++;
        counts[4 + actions[1]]++;
    }
    probabilities(logits, mask, 4, p);
    probabilities(logits + 4, mask + 4, 3, p + 4);
    for (size_t i = 0; i < 7; i++) {
        double five_deviations = 5 * sqrt(p[i] * (1 - p[i]) / DRAWS);
        assert_true(fabs((double)counts[i] / DRAWS - p[i]) <= five_deviations);
    }
}

static void the_ends_of_a_draw_fall_on_what_is_possible(void **state)
{
    (void)state;
    static const double logits[4] = {-INFINITY, 1, 0, -2000};
    static const bool mask[4] = {true, true, true, true};
    assert_int_equal(categorical_draw_f64(logits, mask, 4, 0), 1);
    assert_int_equal(categorical_draw_f64(logits, mask, 4, nextafter(1, 0)), 2);
    assert_int_equal(categorical_draw_f64(logits, mask, 4, 1), 2); /* as if by rounding */
    double first = 1 / (1 + exp(-1));
    assert_int_equal(categorical_draw_f64(logits, mask, 4, first - 1e-9), 1);
    assert_int_equal(categorical_draw_f64(logits, mask, 4, first + 1e-9), 2);
}

static void the_mode_is_the_first_of_the_most_probable(void **state)
{
    (void)state;
    static const float logits[2 * 4] = {9, 1, 3, 3, -5, -4, -4, 8};
    static const bool mask[2 * 4] = {false, true, true, true, true, true, true, false};
    int32_t actions[2];
    trp_categorical policy = {.rows = 2, .choices = 4, .logits = logits, .mask = mask};
    trp_categorical_mode(&policy, actions);
    assert_int_equal(actions[0], 2);
    assert_int_equal(actions[1], 1);
}

/* ---- what is masked ------------------------------------------------------------------------ */

static void a_masked_choice_has_no_probability_and_no_gradient(void **state)
{
    (void)state;
    static const float logits[4] = {1, NAN, 2, INFINITY}, same[4] = {1, -NAN, 2, 3};
    static const bool mask[4] = {true, false, true, false};
    static const float one = 1;
    trp_categorical policy = {.rows = 1, .choices = 4, .logits = logits, .mask = mask};
    trp_categorical other = {.rows = 1, .choices = 4, .logits = same, .mask = mask};
    float log_prob, entropy, divergence, gradient[4], dq[4];
    trp_categorical_log_prob(&policy, (int32_t[]){1}, &log_prob);
    assert_true(log_prob == -INFINITY);
    trp_categorical_log_prob(&policy, (int32_t[]){2}, &log_prob);
    assert_near((double)log_prob, -log1p(exp(-1)), 1e-6, "log_prob", 0);
    trp_categorical_entropy(&policy, &entropy);
    double p = 1 / (1 + exp(-1));
    assert_near((double)entropy, -p * log(p) - (1 - p) * log(1 - p), 1e-6, "entropy", 0);
    trp_categorical_kl(&policy, &other, &divergence);
    assert_float_equal(divergence, 0, 1e-7);
    for (int taken = 0; taken < 4; taken++) {
        trp_categorical_backward(&policy, &(trp_categorical_grads){.actions = &taken,
                                                                   .log_probs = &one,
                                                                   .entropies = &one,
                                                                   .logits = gradient});
        assert_true(gradient[1] == 0 && gradient[3] == 0);
        assert_true(isfinite(gradient[0]) && isfinite(gradient[2]));
        trp_categorical_backward(
            &policy,
            &(trp_categorical_grads){.actions = &taken, .log_probs = &one, .logits = gradient});
        assert_true(mask[taken] ? gradient[taken] > 0 : gradient[0] == 0 && gradient[2] == 0);
    }
    trp_categorical_kl_backward(
        &policy, &other,
        &(trp_categorical_kl_grads){.divergences = &one, .p_logits = gradient, .q_logits = dq});
    for (int i = 0; i < 4; i++)
        assert_true(fabsf(gradient[i]) < 1e-6f && fabsf(dq[i]) < 1e-6f);
    assert_true(gradient[1] == 0 && gradient[3] == 0 && dq[1] == 0 && dq[3] == 0);
}

static void a_row_that_allows_nothing_has_no_entropy_and_no_gradient(void **state)
{
    (void)state;
    static const float logits[3] = {1, NAN, 2}, one = 1;
    static const bool none[3] = {false, false, false};
    trp_categorical policy = {.rows = 1, .choices = 3, .logits = logits, .mask = none};
    trp_rng rng;
    trp_rng_init(&rng, 8, 0);
    int32_t action;
    float log_prob, entropy, gradient[3];
    trp_categorical_sample(&policy, &rng, &action);
    assert_in_range(action, 0, 2);
    trp_categorical_log_prob(&policy, &action, &log_prob);
    trp_categorical_entropy(&policy, &entropy);
    assert_true(log_prob == -INFINITY && entropy == 0);
    trp_categorical_backward(
        &policy, &(trp_categorical_grads){
                     .actions = &action, .log_probs = &one, .entropies = &one, .logits = gradient});
    assert_true(gradient[0] == 0 && gradient[1] == 0 && gradient[2] == 0);
}

static void what_q_forbids_and_p_does_diverges_without_bound(void **state)
{
    (void)state;
    static const float logits[3] = {1, 0, 2};
    static const bool p_mask[3] = {true, true, false}, q_mask[3] = {true, false, true};
    trp_categorical p = {.rows = 1, .choices = 3, .logits = logits, .mask = p_mask}, q = p;
    float divergence;
    q.mask = q_mask;
    trp_categorical_kl(&p, &q, &divergence);
    assert_true(divergence == INFINITY);
    q.mask = NULL;
    trp_categorical_kl(&p, &q, &divergence);
    assert_near((double)divergence, log(1 + (exp(2) / (exp(1) + 1))), 1e-6, "divergence", 0);
}

static void what_is_impossible_without_a_mask_has_no_nan(void **state)
{
    (void)state;
    static const float logits[3] = {0, -INFINITY, 0}, one = 1;
    trp_categorical policy = {.rows = 1, .choices = 3, .logits = logits};
    float log_prob, entropy, divergence, gradient[3];
    trp_categorical_log_prob(&policy, (int32_t[]){1}, &log_prob);
    assert_true(log_prob == -INFINITY);
    trp_categorical_entropy(&policy, &entropy);
    assert_near((double)entropy, log(2), 1e-6, "entropy", 0);
    trp_categorical_kl(&policy, &policy, &divergence);
    assert_true(divergence == 0);
    trp_categorical_backward(&policy, &(trp_categorical_grads){.actions = (int32_t[]){0},
                                                               .log_probs = &one,
                                                               .entropies = &one,
                                                               .logits = gradient});
    assert_near((double)gradient[0], 0.5, 1e-6, "dlogit", 0);
    assert_true(gradient[1] == 0);
}

static void large_logits_lose_no_digits(void **state)
{
    (void)state;
    static const float logits[3] = {1e6f, 1e6f - 1, -1e6f};
    float log_prob;
    trp_categorical_log_prob(&(trp_categorical){.rows = 1, .choices = 3, .logits = logits},
                             (int32_t[]){1}, &log_prob);
    assert_near((double)log_prob, -1 - log1p(exp(-1)), 1e-6, "log_prob", 0);
}

static void what_is_not_finite_makes_a_row_not_finite(void **state)
{
    (void)state;
    static const float one = 1;
    static const float bad[] = {NAN, INFINITY};
    for (int i = 0; i < 2; i++) {
        const float logits[3] = {0, bad[i], 1};
        trp_categorical policy = {.rows = 1, .choices = 3, .logits = logits};
        float log_prob, entropy, divergence, gradient[3];
        trp_categorical_log_prob(&policy, (int32_t[]){0}, &log_prob);
        trp_categorical_entropy(&policy, &entropy);
        trp_categorical_kl(&policy, &policy, &divergence);
        trp_categorical_backward(&policy, &(trp_categorical_grads){.actions = (int32_t[]){0},
                                                                   .log_probs = &one,
                                                                   .logits = gradient});
        assert_false(isfinite(log_prob) || isfinite(entropy) || isfinite(divergence));
        assert_false(isfinite(gradient[0]));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(gradients_are_finite_differences),
        cmocka_unit_test(numbers_are_those_of_the_softmaxes_together),
        cmocka_unit_test(a_batchs_gradient_is_its_rows_in_place_or_added),
        cmocka_unit_test(a_divergences_gradient_is_its_rows_or_added),
        cmocka_unit_test(draws_have_their_probabilities),
        cmocka_unit_test(the_ends_of_a_draw_fall_on_what_is_possible),
        cmocka_unit_test(the_mode_is_the_first_of_the_most_probable),
        cmocka_unit_test(a_masked_choice_has_no_probability_and_no_gradient),
        cmocka_unit_test(a_row_that_allows_nothing_has_no_entropy_and_no_gradient),
        cmocka_unit_test(what_q_forbids_and_p_does_diverges_without_bound),
        cmocka_unit_test(what_is_impossible_without_a_mask_has_no_nan),
        cmocka_unit_test(large_logits_lose_no_digits),
        cmocka_unit_test(what_is_not_finite_makes_a_row_not_finite),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

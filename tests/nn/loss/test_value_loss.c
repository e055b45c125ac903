/* Losses of values of states, and Munchausen's targets, by their definitions. */
#include "loss_tools.h"

enum { ROWS = 64, ACTIONS = 4 };

struct row {
    double value, target, delta, old, clip;
};

static double row_loss(void *context)
{
    struct row *row = context;
    double push;
    return value_row_f64(row->value, row->target, row->delta, row->old, row->clip, &push);
}

static void gradients_are_finite_differences(void **state)
{
    (void)state;
    trp_rng rng;
    trp_rng_init(&rng, 1, 0);
    for (int i = 0; i < 200; i++) {
        struct row row = {.delta = i % 2 ? 0.5 : (double)INFINITY, .clip = i % 3 ? 0.2 : 0};
        double push;
        fill(&rng, &row.value, 1, 1);
        fill(&rng, &row.target, 1, 1);
        fill(&rng, &row.old, 1, 0.3);
        row.old += row.value;
        value_row_f64(row.value, row.target, row.delta, row.old, row.clip, &push);
        assert_gradient(row_loss, &row, &row.value, &push, 1, "dvalue");
    }
}

struct scene {
    float values[ROWS], targets[ROWS], old[ROWS], weights[ROWS];
};

static void scene_init(struct scene *s)
{
    trp_rng rng;
    trp_rng_init(&rng, 2, 0);
    fill_floats(&rng, s->values, ROWS, 1);
    fill_floats(&rng, s->targets, ROWS, 1);
    fill_floats(&rng, s->old, ROWS, 1);
    fill_floats(&rng, s->weights, ROWS, 0.3);
}

static void a_loss_is_the_mean_of_weighted_half_squares(void **state)
{
    (void)state;
    struct scene s;
    float errors[ROWS], gradient[ROWS];
    double loss = 0, value = 0;
    scene_init(&s);
    memcpy(gradient, s.values, sizeof gradient); /* in place */
    trp_value_batch batch = {.rows = ROWS, .targets = s.targets, .weights = s.weights};
    trp_loss got = trp_value_loss(&batch, gradient, errors, gradient);
    for (size_t i = 0; i < ROWS; i++) {
        double error = (double)s.targets[i] - (double)s.values[i], weight = (double)s.weights[i];
        assert_near((double)errors[i], error, 1e-6, "error", i);
        assert_near((double)gradient[i], -weight * error / ROWS, 1e-6, "dvalue", i);
        loss += weight * error * error / 2 / ROWS;
        value += (double)s.values[i] / ROWS;
    }
    assert_near((double)got.loss, loss, 1e-6, "loss", 0);
    assert_near((double)got.value, value, 1e-6, "value", 0);
    float without[ROWS];
    trp_value_loss(&batch, s.values, NULL, without);
    assert_memory_equal(without, gradient, sizeof without);
}

static void a_clipped_loss_is_the_larger_of_two(void **state)
{
    (void)state;
    struct scene s;
    float gradient[ROWS];
    double loss = 0;
    scene_init(&s);
    trp_loss got = trp_value_loss(
        &(trp_value_batch){.rows = ROWS, .targets = s.targets, .clip = 0.2f, .old_values = s.old},
        s.values, NULL, gradient);
    for (size_t i = 0; i < ROWS; i++) {
        double v = (double)s.values[i], t = (double)s.targets[i], old = (double)s.old[i];
        double kept = old + fmin(fmax(v - old, -0.2), 0.2);
        bool clipped = (kept - t) * (kept - t) > (v - t) * (v - t);
        loss += fmax((v - t) * (v - t), (kept - t) * (kept - t)) / 2 / ROWS;
        assert_near((double)gradient[i], clipped ? 0 : (v - t) / ROWS, 1e-6, "dvalue", i);
    }
    assert_near((double)got.loss, loss, 1e-6, "loss", 0);
}

static void what_is_not_finite_makes_the_loss_not_finite(void **state)
{
    (void)state;
    for (int which = 0; which < 3; which++) {
        struct scene s;
        float gradient[ROWS];
        scene_init(&s);
        (which == 0 ? s.values : which == 1 ? s.targets : s.old)[5] = NAN;
        trp_loss got = trp_value_loss(
            &(trp_value_batch){
                .rows = ROWS, .targets = s.targets, .clip = 0.2f, .old_values = s.old},
            s.values, NULL, gradient);
        assert_false(isfinite(got.loss));
        assert_false(isfinite(gradient[5]));
    }
}

/* ---- Munchausen -------------------------------------------------------------------------- */

/* softmax(q / temperature) over what is allowed */
static void policy_of(const float *q, const bool *mask, double temperature, double *policy)
{
    double sum = 0;
    for (int a = 0; a < ACTIONS; a++)
        sum += policy[a] = mask[a] ? exp((double)q[a] / temperature) : 0;
    for (int a = 0; a < ACTIONS; a++)
        policy[a] /= sum;
}

/* r + alpha [tau ln pi(a|s)]_l0^0 + gamma sum_a' pi(a'|s') (q(s', a') - tau ln pi(a'|s')) */
static double munchausen_equation(const trp_q_batch *batch, const float *target, const float *next,
                                  size_t row, double temperature, double scale, double least)
{
    double now[ACTIONS], after[ACTIONS], sum = 0;
    size_t at = row * ACTIONS;
    policy_of(target + at, batch->mask + at, temperature, now);
    policy_of(next + at, batch->next_mask + at, temperature, after);
    for (size_t a = 0; a < ACTIONS; a++)
        if (after[a] > 0)
            sum += after[a] * ((double)next[at + a] - temperature * log(after[a]));
    double log_policy = fmax(least, fmin(0, temperature * log(now[batch->taken[row]])));
    return (double)batch->rewards[row] + scale * log_policy + (double)batch->discounts[row] * sum;
}

static void munchausen_is_its_equation(void **state)
{
    (void)state;
    trp_rng rng;
    trp_rng_init(&rng, 3, 0);
    float target[ROWS * ACTIONS], next[ROWS * ACTIONS], rewards[ROWS], discounts[ROWS], got[ROWS];
    bool mask[ROWS * ACTIONS], next_mask[ROWS * ACTIONS];
    int32_t taken[ROWS];
    fill_floats(&rng, target, ROWS * ACTIONS, 1);
    fill_floats(&rng, next, ROWS * ACTIONS, 1);
    fill_floats(&rng, rewards, ROWS, 1);
    fill_floats(&rng, discounts, ROWS, 0.5);
    for (int row = 0; row < ROWS; row++) {
        taken[row] = (int32_t)trp_rng_below(&rng, ACTIONS);
        for (int a = 0; a < ACTIONS; a++) {
            mask[row * ACTIONS + a] = a == taken[row] || trp_rng_below(&rng, 2);
            next_mask[row * ACTIONS + a] = a == taken[row] || trp_rng_below(&rng, 2);
        }
    }
    trp_q_batch batch = {.rows = ROWS,
                         .actions = ACTIONS,
                         .taken = taken,
                         .rewards = rewards,
                         .discounts = discounts,
                         .next_mask = next_mask,
                         .mask = mask};
    trp_munchausen_options options = {.temperature = 0.4f, .scale = 0.7f, .least = -0.5f};
    trp_munchausen_targets(&options, &batch, target, next, got);
    for (size_t row = 0; row < ROWS; row++)
        assert_near((double)got[row],
                    munchausen_equation(&batch, target, next, row, 0.4, 0.7, -0.5), 1e-5, "target",
                    row);
    trp_munchausen_targets(NULL, &batch, target, next, got);
    for (size_t row = 0; row < ROWS; row++)
        assert_near((double)got[row], munchausen_equation(&batch, target, next, row, 0.03, 0.9, -1),
                    1e-5, "target", row);
}

static void a_state_without_actions_has_no_effect_when_it_is_terminal(void **state)
{
    (void)state;
    static const float q[2] = {1, 2};
    static const bool none[2] = {false, false};
    trp_q_batch batch = {.rows = 1,
                         .actions = 2,
                         .taken = (int32_t[]){1},
                         .rewards = (float[]){3},
                         .discounts = (float[]){0},
                         .next_mask = none};
    float target;
    trp_munchausen_targets(&(trp_munchausen_options){.scale = -1}, &batch, q, q, &target);
    assert_float_equal(target, 3, 0);
    trp_double_q_targets(&batch, q, q, &target);
    assert_float_equal(target, 3, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(gradients_are_finite_differences),
        cmocka_unit_test(a_loss_is_the_mean_of_weighted_half_squares),
        cmocka_unit_test(a_clipped_loss_is_the_larger_of_two),
        cmocka_unit_test(what_is_not_finite_makes_the_loss_not_finite),
        cmocka_unit_test(munchausen_is_its_equation),
        cmocka_unit_test(a_state_without_actions_has_no_effect_when_it_is_terminal),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

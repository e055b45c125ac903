/* The loss of double Q-learning: rows worked out by hand, finite differences, masks. */
#include "loss_tools.h"

enum { ROWS = 5, ACTIONS = 3 };

/*                                    next online best   r + d * target   td error
 * row 0  q[1] = 2                    2                  1 + .5 * 4       1
 * row 1  q[0] = -1, terminal         0                  -1 + 0           0
 * row 2  q[2] = 5                    1 (first equal)    0 + .9 * 2       -3.2
 * row 3  q[1] = 0.25                 0                  0.5 + 1 * 0      0.25
 * row 4  q[0] = 10                   2                  2 + .25 * -4     -9 */
static const float q_rows[ROWS * ACTIONS] = {0, 2, 7, -1, 3, 3, 1, 1, 5, 9, 0.25f, 9, 10, 0, 0};
static const float online_rows[ROWS * ACTIONS] = {1, 2, 3, 9, 1, 1, 0, 6, 6, 1, 0, 0, -5, -4, -3};
static const float target_rows[ROWS * ACTIONS] = {9, 9, 4, 100, 0, 0, 7, 2, 8, 0, 5, 5, 1, 1, -4};
static const int32_t action_rows[ROWS] = {1, 0, 2, 1, 0};
static const float reward_rows[ROWS] = {1, -1, 0, 0.5f, 2};
static const float discount_rows[ROWS] = {0.5f, 0, 0.9f, 1, 0.25f};
static const float weight_rows[ROWS] = {1, 1, 0.5f, 2, 0.25f};

static trp_q_batch row_batch(bool weights)
{
    return (trp_q_batch){
        .rows = ROWS,
        .actions = ACTIONS,
        .taken = action_rows,
        .rewards = reward_rows,
        .discounts = discount_rows,
        .weights = weights ? weight_rows : NULL,
    };
}

static void double_q_agrees_with_rows_worked_out_by_hand(void **state)
{
    (void)state;
    trp_q_batch batch = row_batch(true);
    float targets[ROWS], td[ROWS], dq[ROWS * ACTIONS];
    trp_double_q_targets(&batch, online_rows, target_rows, targets);
    assert_floats(targets, (float[]){3, -1, 1.8f, 0.5f, 1}, ROWS, 1e-6, "target");
    trp_loss result = trp_q_loss(&batch, 0, q_rows, targets, td, dq);
    assert_floats(td, (float[]){1, 0, -3.2f, 0.25f, -9}, ROWS, 1e-6, "td error");
    /* Huber: 0.5, 0, 2.7, 0.03125, 8.5; times the weights: 0.5, 0, 1.35, 0.0625, 2.125. */
    assert_near((double)result.loss, 4.0375 / 5, 1e-6, "loss", 0);
    assert_near((double)result.value, 16.25 / 5, 1e-6, "value", 0);
    /* -weight * clamp(td error) / 5 at the action, nothing elsewhere */
    static const float want[ROWS * ACTIONS] = {0,    -0.2f, 0,     0, 0,     0, 0, 0,
                                               0.1f, 0,     -0.1f, 0, 0.05f, 0, 0};
    assert_floats(dq, want, ROWS * ACTIONS, 1e-7, "dq");
}

static void one_network_twice_is_its_own_maximum(void **state)
{
    (void)state;
    trp_q_batch batch = row_batch(false);
    float targets[ROWS], td[ROWS], dq[ROWS * ACTIONS];
    trp_double_q_targets(&batch, target_rows, target_rows, targets);
    /* 1 + 4.5, -1, .9 * 8, .5 + 5, 2 + .25 */
    assert_floats(targets, (float[]){5.5f, -1, 7.2f, 5.5f, 2.25f}, ROWS, 1e-6, "target");
    memcpy(dq, q_rows, sizeof dq); /* in place */
    trp_loss result = trp_q_loss(&batch, 3, dq, targets, td, dq);
    assert_floats(td, (float[]){3.5f, 0, 2.2f, 5.25f, -7.75f}, ROWS, 1e-6, "td error");
    /* |td| > 3: 3 (|td| - 1.5) = 6, 11.25, 18.75; 2.2^2 / 2 = 2.42 */
    assert_near((double)result.loss, 38.42 / 5, 1e-6, "loss", 0);
    static const float want[ROWS * ACTIONS] = {0,      -0.6f, 0,     0, 0,    0, 0, 0,
                                               -0.44f, 0,     -0.6f, 0, 0.6f, 0, 0};
    assert_floats(dq, want, ROWS * ACTIONS, 1e-6, "dq");
}

static void an_infinite_delta_is_half_the_square(void **state)
{
    (void)state;
    trp_q_batch batch = row_batch(false);
    float td[ROWS], dq[ROWS * ACTIONS];
    static const float targets[ROWS] = {102, -1, 5, 0.25f, 7};
    trp_loss result = trp_q_loss(&batch, INFINITY, q_rows, targets, td, dq);
    assert_near((double)result.loss, (100 * 100 + 9) / 2.0 / 5, 1e-6, "loss", 0);
    assert_near((double)dq[1], -20, 1e-6, "dq", 1);
}

static void the_maximum_is_one_of_the_allowed_actions(void **state)
{
    (void)state;
    trp_q_batch batch = row_batch(false);
    static const bool mask[ROWS * ACTIONS] = {1, 1, 0, 0, 1, 1, 1, 0, 0, 0, 0, 1, 0, 1, 0};
    float targets[ROWS];
    batch.next_mask = mask;
    trp_double_q_targets(&batch, online_rows, target_rows, targets);
    /* best of the allowed: 1, 1, 0, 2, 1 */
    assert_floats(targets, (float[]){1 + 4.5f, -1, 0.9f * 7, 0.5f + 5, 2.25f}, ROWS, 1e-6,
                  "target");
}

static void the_largest_of_some_is_the_first_of_equals_and_never_nan(void **state)
{
    (void)state;
    assert_int_equal(trp_argmax((float[]){-3, -1, -2}, NULL, 3), 1);
    assert_int_equal(trp_argmax((float[]){2, 5, 5}, NULL, 3), 1);
    assert_int_equal(trp_argmax((float[]){NAN, 1, NAN, 0}, NULL, 4), 1);
    assert_int_equal(trp_argmax((float[]){NAN, NAN}, NULL, 2), 0);
    assert_int_equal(trp_argmax((float[]){5, 1, 4, 4}, (bool[]){0, 1, 1, 1}, 4), 2);
    assert_int_equal(trp_argmax((float[]){5, NAN, 4}, (bool[]){0, 1, 0}, 3), 1);
    assert_int_equal(trp_argmax((float[]){5, -INFINITY}, (bool[]){0, 1}, 2), 1);
    assert_true(trp_argmax((float[]){5, 4}, (bool[]){0, 0}, 2) < 2);
}

struct row {
    double q[ACTIONS], target, delta;
};

static double row_loss(void *context)
{
    struct row *row = context;
    double error, dq[ACTIONS];
    return q_row_f64(row->q, ACTIONS, 1, row->target, row->delta, 1, &error, dq);
}

static void gradients_are_finite_differences(void **state)
{
    (void)state;
    trp_rng rng;
    trp_rng_init(&rng, 3, 0);
    for (int i = 0; i < 50; i++) {
        struct row row = {.delta = i % 2 ? 0.5 : (double)INFINITY};
        double error, dq[ACTIONS];
        fill(&rng, row.q, ACTIONS, 1);
        fill(&rng, &row.target, 1, 1);
        q_row_f64(row.q, ACTIONS, 1, row.target, row.delta, 1, &error, dq);
        assert_gradient(row_loss, &row, row.q, dq, ACTIONS, "dq");
    }
}

static void what_is_not_finite_makes_the_loss_not_finite(void **state)
{
    (void)state;
    trp_q_batch batch = row_batch(true);
    float td[ROWS], dq[ROWS * ACTIONS];
    for (int bad = 0; bad < 2; bad++) {
        float targets[ROWS] = {0, 0, bad ? NAN : INFINITY, 0, 0};
        assert_false(isfinite(trp_q_loss(&batch, 1, q_rows, targets, td, dq).loss));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(double_q_agrees_with_rows_worked_out_by_hand),
        cmocka_unit_test(one_network_twice_is_its_own_maximum),
        cmocka_unit_test(an_infinite_delta_is_half_the_square),
        cmocka_unit_test(the_maximum_is_one_of_the_allowed_actions),
        cmocka_unit_test(the_largest_of_some_is_the_first_of_equals_and_never_nan),
        cmocka_unit_test(gradients_are_finite_differences),
        cmocka_unit_test(what_is_not_finite_makes_the_loss_not_finite),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

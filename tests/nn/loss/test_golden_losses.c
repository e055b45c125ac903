/* What PyTorch makes of the same numbers, its gradients by autograd (tests/golden/make_losses.py).
 */
#include "golden_tools.h"
#include "golden_losses.h"

enum { ROWS = 4, ACTIONS = 3, ATOMS = 5, STEPS = 6, SEQUENCES = 2 };

static void assert_golden(const char *name, const float *got, size_t count)
{
    assert_golden_in(golden_losses, sizeof golden_losses / sizeof golden_losses[0], name, got,
                     count);
}

struct rows {
    trp_q_batch batch;
    float rewards[ROWS], discounts[ROWS], weights[ROWS];
    int32_t taken[ROWS];
    float loss, errors[ROWS];
};

static void rows_init(struct rows *r)
{
    *r = (struct rows){.batch = {.rows = ROWS,
                                 .actions = ACTIONS,
                                 .taken = r->taken,
                                 .rewards = r->rewards,
                                 .discounts = r->discounts,
                                 .weights = r->weights}};
    numbers(1, r->rewards, ROWS, 2);
    shares(2, r->discounts, ROWS);
    shares(3, r->weights, ROWS);
    for (int i = 0; i < ROWS; i++)
        r->taken[i] = i % ACTIONS;
}

static void double_q_and_munchausen_are_pytorchs(void **state)
{
    (void)state;
    struct rows r;
    float q[ROWS * ACTIONS], online[ROWS * ACTIONS], target[ROWS * ACTIONS], next[ROWS * ACTIONS];
    float targets[ROWS];
    rows_init(&r);
    numbers(4, q, ROWS * ACTIONS, 4);
    numbers(5, online, ROWS * ACTIONS, 1);
    numbers(6, target, ROWS * ACTIONS, 1);
    numbers(7, next, ROWS * ACTIONS, 1);
    trp_munchausen_targets(
        &(trp_munchausen_options){.temperature = 0.25f, .scale = 0.5f, .least = -0.75f}, &r.batch,
        target, next, targets);
    assert_golden("munchausen.targets", targets, ROWS);
    trp_double_q_targets(&r.batch, online, target, targets);
    assert_golden("double_q.targets", targets, ROWS);
    r.loss = trp_q_loss(&r.batch, 0.5f, q, targets, r.errors, q).loss;
    assert_golden("double_q.loss", &r.loss, 1);
    assert_golden("double_q.gradient", q, ROWS * ACTIONS);
    assert_golden("double_q.rows", r.errors, ROWS);
}

static void distributions_are_pytorchs(void **state)
{
    (void)state;
    static const trp_support support = {.atoms = ATOMS, .least = -1, .most = 2};
    struct rows r;
    float now[ROWS * ACTIONS * ATOMS], online[ROWS * ACTIONS * ATOMS];
    float target[ROWS * ACTIONS * ATOMS], gradient[ROWS * ACTIONS * ATOMS], targets[ROWS * ATOMS];
    float values[ROWS * ACTIONS];
    rows_init(&r);
    numbers(8, now, ROWS * ACTIONS * ATOMS, 2);
    numbers(9, online, ROWS * ACTIONS * ATOMS, 2);
    numbers(10, target, ROWS * ACTIONS * ATOMS, 2);
    trp_c51_values(&support, ROWS * ACTIONS, now, values);
    assert_golden("c51.values", values, ROWS * ACTIONS);
    trp_c51_targets(&support, &r.batch, online, target, targets);
    assert_golden("c51.targets", targets, ROWS * ATOMS);
    r.loss = trp_c51_loss(&support, &r.batch, now, targets, r.errors, gradient).loss;
    assert_golden("c51.loss", &r.loss, 1);
    assert_golden("c51.gradient", gradient, ROWS * ACTIONS * ATOMS);
    assert_golden("c51.rows", r.errors, ROWS);
    trp_quantile_targets(ATOMS, &r.batch, online, target, targets);
    assert_golden("quantile.targets", targets, ROWS * ATOMS);
    r.loss = trp_quantile_loss(ATOMS, &r.batch, 0.5f, now, targets, r.errors, gradient).loss;
    assert_golden("quantile.loss", &r.loss, 1);
    assert_golden("quantile.gradient", gradient, ROWS * ACTIONS * ATOMS);
    assert_golden("quantile.rows", r.errors, ROWS);
}

static void values_of_states_are_pytorchs(void **state)
{
    (void)state;
    float values[ROWS], targets[ROWS], old[ROWS], weights[ROWS], errors[ROWS], gradient[ROWS];
    numbers(11, values, ROWS, 1);
    numbers(12, targets, ROWS, 1);
    numbers(13, old, ROWS, 1);
    shares(3, weights, ROWS);
    trp_value_batch batch = {.rows = ROWS, .targets = targets, .weights = weights};
    float loss = trp_value_loss(&batch, values, errors, gradient).loss;
    assert_golden("value.loss", &loss, 1);
    assert_golden("value.gradient", gradient, ROWS);
    assert_golden("value.rows", errors, ROWS);
    batch.clip = 0.25f;
    batch.old_values = old;
    loss = trp_value_loss(&batch, values, errors, gradient).loss;
    assert_golden("clipped.loss", &loss, 1);
    assert_golden("clipped.gradient", gradient, ROWS);
}

struct steps {
    trp_trajectories trajectories;
    float rewards[STEPS * SEQUENCES], discounts[STEPS * SEQUENCES];
    float values[(STEPS + 1) * SEQUENCES];
};

static void steps_init(struct steps *s)
{
    *s = (struct steps){.trajectories = {.steps = STEPS,
                                         .sequences = SEQUENCES,
                                         .rewards = s->rewards,
                                         .discounts = s->discounts,
                                         .values = s->values,
                                         .next_values = s->values + SEQUENCES}};
    numbers(14, s->rewards, STEPS * SEQUENCES, 1);
    shares(15, s->discounts, STEPS * SEQUENCES);
    numbers(16, s->values, STEPS * SEQUENCES, 1);
    numbers(17, s->values + STEPS * SEQUENCES, SEQUENCES, 1);
}

static void returns_are_pytorchs(void **state)
{
    (void)state;
    struct steps s;
    float log_ratios[STEPS * SEQUENCES], chosen[STEPS * SEQUENCES];
    float returns[STEPS * SEQUENCES], advantages[STEPS * SEQUENCES];
    steps_init(&s);
    numbers(18, log_ratios, STEPS * SEQUENCES, 1);
    numbers(19, chosen, STEPS * SEQUENCES, 1);
    trp_gae(&s.trajectories, 0.75f, advantages, NULL);
    assert_golden("gae.advantages", advantages, STEPS * SEQUENCES);
    trp_vtrace(&s.trajectories,
               &(trp_vtrace_options){
                   .rho_bar = 1.25f, .c_bar = 0.875f, .policy_rho_bar = 1.5f, .lambda = 0.75f},
               log_ratios, returns, advantages);
    assert_golden("vtrace.returns", returns, STEPS * SEQUENCES);
    assert_golden("vtrace.advantages", advantages, STEPS * SEQUENCES);
    trp_retrace(&s.trajectories, 0.75f, chosen, log_ratios, returns);
    assert_golden("retrace.returns", returns, STEPS * SEQUENCES);
}

static void r2d2_is_pytorchs(void **state)
{
    (void)state;
    enum { VALUES = STEPS * SEQUENCES * ACTIONS };
    struct steps s;
    float q[VALUES], online[VALUES], target[VALUES], weights[SEQUENCES];
    float targets[STEPS * SEQUENCES], errors[STEPS * SEQUENCES], priorities[SEQUENCES];
    int32_t taken[STEPS * SEQUENCES];
    steps_init(&s);
    numbers(20, q, VALUES, 1);
    numbers(21, online, VALUES, 1);
    numbers(22, target, VALUES, 4);
    shares(3, weights, SEQUENCES);
    for (int i = 0; i < STEPS * SEQUENCES; i++)
        taken[i] = (i / SEQUENCES + i % SEQUENCES) % ACTIONS;
    trp_q_sequences batch = {
        .trajectories = s.trajectories, .actions = ACTIONS, .taken = taken, .weights = weights};
    trp_r2d2_loss_options options = {
        .n_step = 2, .burn_in = 1, .epsilon = 0x1p-7f, .eta = 0.75f, .huber_delta = INFINITY};
    trp_r2d2_targets(&options, &batch, online, target, targets);
    assert_golden("r2d2.targets", targets, (STEPS - 1) * SEQUENCES);
    float loss = trp_r2d2_loss(&options, &batch, q, targets, errors, priorities, q).loss;
    assert_golden("r2d2.loss", &loss, 1);
    assert_golden("r2d2.gradient", q, VALUES);
    assert_golden("r2d2.rows", priorities, SEQUENCES);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(double_q_and_munchausen_are_pytorchs),
        cmocka_unit_test(distributions_are_pytorchs),
        cmocka_unit_test(values_of_states_are_pytorchs),
        cmocka_unit_test(returns_are_pytorchs),
        cmocka_unit_test(r2d2_is_pytorchs),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

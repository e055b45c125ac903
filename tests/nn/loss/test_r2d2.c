/* R2D2 over sequences: its targets by their definition, with the rescaling as the paper writes it;
 * burn-in, priorities and gradients from what each row is. */
#include "loss_tools.h"

enum { STEPS = 9, SEQUENCES = 4, ACTIONS = 3, ROWS = STEPS * SEQUENCES, BURN_IN = 2 };

static const trp_r2d2_loss_options options = {
    .n_step = 3, .burn_in = BURN_IN, .epsilon = 0.01f, .eta = 0.7f, .huber_delta = 0.5f};

/* Sequence 0 is one episode; 1 ends and begins again; 2 is cut short and padded; 3 ends while it is
 * burnt in. Rows of final observations are not valid. */
static const char *const kinds[SEQUENCES] = {"+++++++++", "++++x.+++", "+++++.---", "+x.------"};

struct scene {
    trp_q_sequences batch;
    float q[ROWS * ACTIONS], online[ROWS * ACTIONS], target[ROWS * ACTIONS];
    float rewards[ROWS], discounts[ROWS], weights[SEQUENCES];
    int32_t taken[ROWS];
    bool valid[ROWS], first[ROWS], mask[ROWS * ACTIONS];
};

static size_t row_of(const struct scene *s, int t, int i)
{
    return s->batch.trajectories.by_sequence ? (size_t)(i * STEPS + t)
                                             : (size_t)(t * SEQUENCES + i);
}

static void scene_init(struct scene *s, uint64_t seed)
{
    trp_rng rng;
    trp_rng_init(&rng, seed, 0);
    *s = (struct scene){.batch = {.trajectories = {.steps = STEPS,
                                                   .sequences = SEQUENCES,
                                                   .by_sequence = seed % 2,
                                                   .rewards = s->rewards,
                                                   .discounts = s->discounts,
                                                   .valid = s->valid,
                                                   .first = s->first},
                                  .actions = ACTIONS,
                                  .taken = s->taken,
                                  .mask = s->mask,
                                  .weights = s->weights}};
    fill_floats(&rng, s->q, ROWS * ACTIONS, 1);
    fill_floats(&rng, s->online, ROWS * ACTIONS, 1);
    fill_floats(&rng, s->target, ROWS * ACTIONS, 3);
    fill_floats(&rng, s->rewards, ROWS, 2);
    fill_floats(&rng, s->weights, SEQUENCES, 1);
    for (int i = 0; i < SEQUENCES; i++)
        for (int t = 0; t < STEPS; t++) {
            size_t at = row_of(s, t, i);
            char kind = kinds[i][t];
            s->valid[at] = kind == '+' || kind == 'x';
            s->first[at] = t == 0 || (kinds[i][t - 1] == '.' && kind == '+');
            s->discounts[at] = kind == '+' ? 0.9f : 0;
            s->taken[at] = (int32_t)trp_rng_below(&rng, ACTIONS);
            for (size_t a = 0; a < ACTIONS; a++)
                s->mask[at * ACTIONS + a] = trp_rng_below(&rng, 3) > 0;
            s->mask[at * ACTIONS + trp_rng_below(&rng, ACTIONS)] = true;
        }
}

static double h(double x, double epsilon)
{
    return (x < 0 ? -1 : 1) * (sqrt(fabs(x) + 1) - 1) + epsilon * x;
}

/* Pohlen et al. 2018, proposition A.2 */
static double h_inverse(double y, double epsilon)
{
    double root = (sqrt(1 + 4 * epsilon * (fabs(y) + 1 + epsilon)) - 1) / (2 * epsilon);
    return (y < 0 ? -1 : 1) * (root * root - 1);
}

static double next_value(const struct scene *s, int t, int i)
{
    size_t at = row_of(s, t, i) * ACTIONS, best = ACTIONS;
    for (size_t a = 0; a < ACTIONS; a++)
        if (s->mask[at + a] && (best == ACTIONS || s->online[at + a] > s->online[at + best]))
            best = a;
    return h_inverse((double)s->target[at + best], (double)options.epsilon);
}

/* A step, and where it led to is in the sequence. */
static bool is_step(int t, int i)
{
    return t + 1 < STEPS && (kinds[i][t] == '+' || kinds[i][t] == 'x');
}

static double target_of(const struct scene *s, int t, int i)
{
    double sum = 0, product = 1;
    int k = t;
    for (; k < t + 3 && is_step(k, i); k++) {
        sum += product * (double)s->rewards[row_of(s, k, i)];
        product *= (double)s->discounts[row_of(s, k, i)];
    }
    return h(sum + product * next_value(s, k, i), (double)options.epsilon);
}

static void targets_are_rescaled_n_step_returns(void **state)
{
    (void)state;
    for (uint64_t seed = 0; seed < 20; seed++) {
        struct scene s;
        float targets[ROWS];
        scene_init(&s, seed);
        trp_r2d2_targets(&options, &s.batch, s.online, s.target, targets);
        for (int i = 0; i < SEQUENCES; i++)
            for (int t = 0; t < STEPS; t++)
                if (is_step(t, i))
                    assert_near((double)targets[row_of(&s, t, i)], target_of(&s, t, i), 1e-5,
                                "target", (size_t)t);
    }
}

static void the_rescaling_has_an_inverse(void **state)
{
    (void)state;
    for (int i = -40; i <= 40; i++) {
        double x = (i < 0 ? -1 : 1) * expm1(abs(i) * 0.3);
        assert_near(rescale_f64(x, 1e-3), h(x, 1e-3), 1e-12, "h", 0);
        assert_near(unscale_f64(x, 1e-3), h_inverse(x, 1e-3), 1e-9, "inverse of h", 0);
        assert_near(unscale_f64(rescale_f64(x, 1e-3), 1e-3), x, 1e-12, "x", 0);
        float y = trp_value_rescale((float)x, 1e-3f);
        assert_near((double)trp_value_unscale(y, 1e-3f), (double)(float)x, 1e-5, "x", 1);
    }
}

/* Errors, losses and priorities, worked out from what a row is. */
static void the_loss_sums_the_steps_behind_the_burn_in(void **state)
{
    (void)state;
    for (uint64_t seed = 0; seed < 20; seed++) {
        struct scene s;
        float targets[ROWS], errors[ROWS], priorities[SEQUENCES], dq[ROWS * ACTIONS];
        double loss = 0, value = 0, count = 0;
        scene_init(&s, seed);
        trp_r2d2_targets(&options, &s.batch, s.online, s.target, targets);
        trp_loss got = trp_r2d2_loss(&options, &s.batch, s.q, targets, errors, priorities, dq);
        for (int i = 0; i < SEQUENCES; i++) {
            double most = 0, sum = 0, steps = 0;
            for (int t = 0; t < STEPS; t++) {
                size_t at = row_of(&s, t, i), chosen = at * ACTIONS + (size_t)s.taken[at];
                bool learns = t >= BURN_IN && is_step(t, i);
                double error = learns ? (double)targets[at] - (double)s.q[chosen] : 0;
                double size = fabs(error), slope = fmax(-0.5, fmin(0.5, error));
                assert_near((double)errors[at], error, 1e-6, "error", (size_t)t);
                for (size_t a = at * ACTIONS; a < (at + 1) * ACTIONS; a++)
                    assert_near((double)dq[a],
                                a == chosen ? -(double)s.weights[i] / SEQUENCES * slope : 0, 1e-6,
                                "dq", (size_t)t);
                loss += (double)s.weights[i] / SEQUENCES *
                        (size <= 0.5 ? size * size / 2 : 0.5 * (size - 0.25));
                value += learns ? (double)s.q[chosen] : 0;
                most = fmax(most, size);
                sum += size;
                steps += learns;
            }
            count += steps;
            assert_near((double)priorities[i], steps > 0 ? 0.7 * most + 0.3 * sum / steps : 0, 1e-5,
                        "priority", (size_t)i);
        }
        assert_near((double)got.loss, loss, 1e-5, "loss", 0);
        assert_near((double)got.value, value / count, 1e-5, "value", 0);
    }
}

static void swapped_networks_give_other_targets(void **state)
{
    (void)state;
    struct scene s;
    float targets[2][ROWS];
    scene_init(&s, 1);
    trp_r2d2_targets(&options, &s.batch, s.online, s.target, targets[0]);
    trp_r2d2_targets(&options, &s.batch, s.target, s.online, targets[1]);
    assert_memory_not_equal(targets[0], targets[1], sizeof targets[0]);
}

static void what_is_not_finite_makes_loss_and_priority_not_finite(void **state)
{
    (void)state;
    struct scene s;
    float targets[ROWS], errors[ROWS], priorities[SEQUENCES], dq[ROWS * ACTIONS];
    scene_init(&s, 2);
    s.rewards[row_of(&s, 4, 0)] = NAN;
    trp_r2d2_targets(&options, &s.batch, s.online, s.target, targets);
    trp_loss got = trp_r2d2_loss(&options, &s.batch, s.q, targets, errors, priorities, dq);
    assert_false(isfinite(got.loss));
    assert_false(isfinite(priorities[0]));
    assert_true(isfinite(priorities[1]));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(targets_are_rescaled_n_step_returns),
        cmocka_unit_test(the_rescaling_has_an_inverse),
        cmocka_unit_test(the_loss_sums_the_steps_behind_the_burn_in),
        cmocka_unit_test(swapped_networks_give_other_targets),
        cmocka_unit_test(what_is_not_finite_makes_loss_and_priority_not_finite),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* Kernels of policies, by their twins, beside float64: draws and what they weigh, imitation, MPO.
 */
#include "kernel_rows.h"

#include "agents/bodies/all.h"

enum { SIZE = 3, SAMPLES = 4 };

/* The distribution of a row, as controls have it. */
static struct gaussian_f64 gaussian_row(const double *mean, const double *log_std, bool squashed)
{
    return (struct gaussian_f64){SIZE, mean, log_std, -20, 2, squashed, NULL, NULL};
}

/* The stream of a draw in one place. */
static trp_rng stream_of(const struct draw *draw, uint64_t place)
{
    trp_rng rng;
    trp_rng_init(&rng, *draw->seed, (uint64_t)draw->number << 32 | place);
    return rng;
}

static void normals(trp_rng *rng, double *noise)
{
    for (size_t i = 0; i < SIZE; i++)
        noise[i] = trp_rng_normal(rng);
}

static double cut(double x)
{
    return x < -1 ? -1 : x > 1 ? 1 : x;
}

/* ---- draws -------------------------------------------------------------------------------------
 */

static void check_squashed(uint32_t rows)
{
    size_t numbers = (size_t)rows * SIZE;
    uint64_t seed = trp_rng_u64(&kernel_rng);
    struct squashed to = {.rows = rows,
                          .size = SIZE,
                          .mean = make_floats(numbers, 0.5),
                          .log_std = make_floats(numbers, 0.5),
                          .noise = make(numbers * sizeof(float)),
                          .actions = make(numbers * sizeof(float)),
                          .log_probs = make(rows * sizeof(float))};
    struct squashed_draw_arguments draw = {to, {&seed, 5}};
    const double *mean = make_wide(to.mean, numbers), *log_std = make_wide(to.log_std, numbers);
    double *noise = make_doubles(numbers), *actions = make_doubles(numbers);
    double *log_probs = make_doubles(rows), *dmean = make_doubles(numbers);
    double *dlog_std = make_doubles(numbers);
    for (size_t i = 0; i < rows; i++) {
        struct gaussian_f64 g = gaussian_row(mean + i * SIZE, log_std + i * SIZE, true);
        trp_rng rng = stream_of(&draw.draw, i);
        normals(&rng, noise + i * SIZE);
        log_probs[i] = gaussian_transform_f64(&g, noise + i * SIZE, actions + i * SIZE);
    }
    run_kernel("squashed.draw", &draw);
    assert_kernel(to.noise, noise, numbers, "noise");
    assert_kernel(to.actions, actions, numbers, "actions");
    assert_kernel(to.log_probs, log_probs, rows, "log_probs");
    struct squashed_backward_arguments back = {to, make_floats(numbers, 1)};
    const double *dactions = make_wide(back.dactions, numbers);
    fill_floats(&kernel_rng, to.log_probs, rows, 1);
    for (size_t i = 0; i < rows; i++) {
        struct gaussian_f64 g = gaussian_row(mean + i * SIZE, log_std + i * SIZE, true);
        struct gaussian_slopes_f64 by = {.noise = noise + i * SIZE,
                                         .by_sample_action = dactions + i * SIZE,
                                         .by_sample_log_prob = (double)to.log_probs[i]};
        gaussian_back_f64(&g, &by, false, false, dmean + i * SIZE, dlog_std + i * SIZE);
    }
    run_kernel("squashed.backward", &back);
    assert_kernel(to.mean, dmean, numbers, "dmean");
    assert_kernel(to.log_std, dlog_std, numbers, "dlog_std");
    forget_made();
}

/* Samples of two kinds of three lie side by side; the third's room is left alone. */
static void check_samples(uint32_t rows, enum control_kind kind)
{
    enum { STRIDE = 3 * SAMPLES };
    size_t all = (size_t)rows * STRIDE;
    uint64_t seed = trp_rng_u64(&kernel_rng);
    float *actions = make_floats(all * SIZE, 1), *log_probs = make_floats(all, 1);
    struct samples_arguments drawn = {.kind = kind,
                                      .rows = rows,
                                      .size = SIZE,
                                      .count = SAMPLES,
                                      .stride = STRIDE,
                                      .mean = make_floats((size_t)rows * SIZE, 0.7),
                                      .log_std = make_floats((size_t)rows * SIZE, 0.7),
                                      .draw = {&seed, 3},
                                      .actions = actions + SAMPLES * SIZE,
                                      .log_probs = log_probs + SAMPLES};
    struct uniform_arguments uniform = {rows,       SIZE,    SAMPLES,  STRIDE,
                                        {&seed, 2}, actions, log_probs};
    double *want = make_wide(actions, all * SIZE), *density = make_wide(log_probs, all);
    for (size_t k = 0; k < (size_t)rows * SAMPLES; k++) {
        size_t row = k / SAMPLES, at = row * STRIDE + k % SAMPLES, behind = at + SAMPLES;
        double mean[SIZE], log_std[SIZE], noise[SIZE];
        trp_rng rng = stream_of(&uniform.draw, k), normal = stream_of(&drawn.draw, k);
        widen(drawn.mean + row * SIZE, mean, SIZE);
        widen(drawn.log_std + row * SIZE, log_std, SIZE);
        struct gaussian_f64 g = gaussian_row(mean, log_std, kind == CONTROL_SQUASHED);
        normals(&normal, noise);
        density[behind] = gaussian_transform_f64(&g, noise, want + behind * SIZE);
        density[at] = -SIZE * log(2);
        for (size_t i = 0; i < SIZE; i++) {
            want[at * SIZE + i] = 2 * trp_rng_double(&rng) - 1;
            want[behind * SIZE + i] = cut(want[behind * SIZE + i]);
        }
    }
    run_kernel("conservative.uniform", &uniform);
    run_kernel("samples.draw", &drawn);
    assert_kernel(actions, want, all * SIZE, "actions");
    assert_kernel(log_probs, density, all, "log_probs");
    forget_made();
}

static void check_smooth(uint32_t rows)
{
    size_t numbers = (size_t)rows * SIZE;
    uint64_t seed = trp_rng_u64(&kernel_rng);
    struct smooth_arguments a = {.options = {.deviation = 0.6F, .clip = 0.5F},
                                 .draw = {&seed, 0},
                                 .rows = rows,
                                 .size = SIZE,
                                 .actions = make_between(numbers, -1, 1)};
    double *want = make_wide(a.actions, numbers);
    for (size_t i = 0; i < rows; i++) {
        trp_rng rng = stream_of(&a.draw, i);
        for (size_t k = 0; k < SIZE; k++) {
            double noise = fmax(-0.5, fmin(0.5, (double)0.6F * trp_rng_normal(&rng)));
            want[i * SIZE + k] = cut(want[i * SIZE + k] + noise);
        }
    }
    run_kernel("td3.smooth", &a);
    assert_kernel(a.actions, want, numbers, "smoothed actions");
    forget_made();
}

static void draws_follow_from_the_seed_and_their_place(void **state)
{
    (void)state;
    for (size_t i = 0; i < KERNEL_SIZES; i++) {
        check_squashed(kernel_sizes[i]);
        check_samples(kernel_sizes[i], CONTROL_SQUASHED);
        check_samples(kernel_sizes[i], CONTROL_GAUSSIAN);
        check_smooth(kernel_sizes[i]);
    }
}

/* ---- from a data set ----------------------------------------------------------------------------
 */

static void check_cloning(uint32_t rows, enum control_kind kind)
{
    size_t numbers = (size_t)rows * SIZE;
    struct cloning_loss_arguments a = {
        .kind = kind,
        .rows = rows,
        .size = SIZE,
        .mean = make_floats(numbers, 1),
        .log_std = make_floats(numbers, 0.5),
        .actions = make_floats(numbers, 1),
        .within = kind == CONTROL_SQUASHED ? make(numbers * sizeof(float)) : NULL,
        .weights = make_between(rows, 0.2, 1),
        .log_probs = make(rows * sizeof(float)),
        .numbers = make(sizeof(struct cloning_numbers))};
    const double *mean = make_wide(a.mean, numbers), *log_std = make_wide(a.log_std, numbers);
    double *actions = make_wide(a.actions, numbers), most = (double)0.999F;
    for (size_t i = 0; i < numbers && kind == CONTROL_SQUASHED; i++)
        actions[i] = fmax(-most, fmin(most, actions[i]));
    double *dmean = make_doubles(numbers), *dlog_std = make_doubles(numbers), loss = 0, sum = 0;
    for (size_t i = 0; i < rows; i++) {
        struct gaussian_f64 g =
            gaussian_row(mean + i * SIZE, log_std + i * SIZE, kind == CONTROL_SQUASHED);
        double log_prob = gaussian_log_prob_f64(&g, actions + i * SIZE);
        double weight = (double)a.weights[i];
        struct gaussian_slopes_f64 by = {.actions = actions + i * SIZE,
                                         .by_log_prob = -weight / rows};
        gaussian_back_f64(&g, &by, false, false, dmean + i * SIZE, dlog_std + i * SIZE);
        loss -= weight * log_prob / rows;
        sum += log_prob / rows;
    }
    run_kernel("cloning.loss", &a);
    assert_kernel(a.mean, dmean, numbers, "dmean");
    assert_kernel(a.log_std, dlog_std, numbers, "dlog_std");
    assert_number(a.numbers->loss, loss, "loss");
    assert_number(a.numbers->log_prob, sum, "log_prob");
    forget_made();
}

static void check_expectile(uint32_t rows)
{
    struct expectile_arguments a = {.rows = rows,
                                    .expectile = 0.8F,
                                    .q = make_floats(rows, 1),
                                    .q2 = make_floats(rows, 1),
                                    .least = make(rows * sizeof(float)),
                                    .values = make_floats(rows, 1),
                                    .loss = make(sizeof(trp_loss))};
    double *least = make_doubles(rows), *d = make_doubles(rows), loss = 0, mean = 0;
    for (size_t i = 0; i < rows; i++) {
        least[i] = fmin((double)a.q[i], (double)a.q2[i]);
        loss += expectile_row_f64(least[i] - (double)a.values[i], (double)0.8F, &d[i]) / rows;
        mean += (double)a.values[i] / rows;
        d[i] /= rows;
    }
    run_kernel("iql.expectile", &a);
    assert_kernel(a.least, least, rows, "the lesser");
    assert_kernel(a.values, d, rows, "derivatives");
    assert_number(a.loss->loss, loss, "loss");
    assert_number(a.loss->value, mean, "value");
    forget_made();
}

static void check_weights(uint32_t rows, bool max, bool binary)
{
    float mean = 0;
    struct advantage_weights_arguments a = {
        .batch = {.rows = rows,
                  .samples = SAMPLES,
                  .q = make_floats(rows, 1),
                  .policy_q = make_floats((size_t)rows * SAMPLES, 1),
                  .max = max,
                  .binary = binary,
                  .temperature = 0.8F,
                  .most = 3},
        .weights = make(rows * sizeof(float)),
        .mean = &mean};
    const double *others = make_wide(a.batch.policy_q, (size_t)rows * SAMPLES);
    double *want = make_doubles(rows), sum = 0;
    for (size_t i = 0; i < rows; i++) {
        want[i] = crr_weight_f64((double)a.batch.q[i], others + i * SAMPLES, SAMPLES, max, binary,
                                 (double)0.8F, 3);
        sum += want[i];
    }
    run_kernel("advantages.weights", &a);
    assert_kernel(a.weights, want, rows, "weights");
    assert_number(mean, sum / rows, "mean");
    forget_made();
}

static void check_gap(uint32_t rows)
{
    size_t all = (size_t)rows * SAMPLES;
    struct gap_arguments a = {.batch = {.rows = rows,
                                        .samples = SAMPLES,
                                        .log_probs = make_floats(all, 1),
                                        .weights = make_between(rows, 0.2, 1),
                                        .scale = 0.7F},
                              .count = 2,
                              .sampled = {make_floats(all, 2), make_floats(all, 2)},
                              .taken = {make_floats(rows, 2), make_floats(rows, 2)},
                              .numbers = make(sizeof(trp_cql))};
    const double *log_probs = make_wide(a.batch.log_probs, all);
    double *d[2], *dq[2], loss = 0, gaps = 0;
    for (size_t k = 0; k < 2; k++) {
        const double *q = make_wide(a.sampled[k], all);
        d[k] = make_doubles(all);
        dq[k] = make_doubles(rows);
        for (size_t i = 0; i < rows; i++) {
            double push = (double)a.batch.weights[i] * (double)0.7F / rows;
            double gap = cql_row_f64(q + i * SAMPLES, log_probs + i * SAMPLES, NULL, SAMPLES, push,
                                     false, d[k] + i * SAMPLES) -
                         (double)a.taken[k][i];
            dq[k][i] = -push;
            gaps += gap / rows;
            loss += push * gap;
        }
    }
    run_kernel("conservative.gap", &a);
    for (size_t k = 0; k < 2; k++) {
        assert_kernel(a.sampled[k], d[k], all, "of samples");
        assert_kernel(a.taken[k], dq[k], rows, "of what was done");
    }
    assert_number(a.numbers->loss, loss, "loss");
    assert_number(a.numbers->gap, gaps, "gap");
    forget_made();
}

static void imitation_is_that_of_float64(void **state)
{
    (void)state;
    for (size_t i = 0; i < KERNEL_SIZES; i++) {
        check_cloning(kernel_sizes[i], CONTROL_GAUSSIAN);
        check_cloning(kernel_sizes[i], CONTROL_SQUASHED);
        check_expectile(kernel_sizes[i]);
        for (int kind = 0; kind < 4; kind++)
            check_weights(kernel_sizes[i], kind % 2, kind / 2);
        check_gap(kernel_sizes[i]);
    }
}

/* ---- MPO ---------------------------------------------------------------------------------------
 */

static struct mpo_arguments mpo_made(uint32_t rows, bool joint, const uint64_t *seed)
{
    size_t said = (size_t)rows * SIZE, drawn = (size_t)rows * SAMPLES, all = drawn * SIZE;
    return (struct mpo_arguments){.steps = {.samples = SAMPLES,
                                            .size = SIZE,
                                            .joint = joint,
                                            .penalty = true,
                                            .epsilon = 0.1F,
                                            .epsilon_penalty = 0.02F,
                                            .epsilon_mean = 0.05F,
                                            .epsilon_deviation = 0.01F,
                                            .rows = rows,
                                            .target_mean = make_floats(said, 0.8),
                                            .target_log_std = make_floats(said, 0.5),
                                            .mean = make_floats(said, 0.8),
                                            .log_std = make_floats(said, 0.5),
                                            .dmean = make_floats(said, 0.1),
                                            .dlog_std = make_floats(said, 0.1),
                                            .actions = make(all * sizeof(float)),
                                            .cut = make(all * sizeof(float)),
                                            .values = make_floats(drawn, 1),
                                            .next_values = make(rows * sizeof(float)),
                                            .numbers = make(sizeof(struct mpo_numbers)),
                                            .target_means = make_floats(all, 0.8),
                                            .target_log_stds = make_floats(all, 0.5),
                                            .learned = make_floats(all, 0.5),
                                            .dmeans = make(all * sizeof(float)),
                                            .dlog_stds = make(all * sizeof(float)),
                                            .log_probs = make(drawn * sizeof(float)),
                                            .divergences = make(2 * said * sizeof(float))},
                                  .duals = make_floats(MULTIPLIERS + 2 * SIZE, 1),
                                  .dduals = make((MULTIPLIERS + 2 * SIZE) * sizeof(float)),
                                  .draw = {seed, 1}};
}

static void check_mpo_draw(const struct mpo_arguments *a)
{
    const struct mpo_steps *steps = &a->steps;
    size_t drawn = (size_t)steps->rows * SAMPLES;
    double *actions = make_doubles(drawn * SIZE), *within = make_doubles(drawn * SIZE);
    for (size_t i = 0; i < drawn; i++) {
        double mean[SIZE], log_std[SIZE], noise[SIZE];
        trp_rng rng = stream_of(&a->draw, i);
        widen(steps->target_means + i * SIZE, mean, SIZE);
        widen(steps->target_log_stds + i * SIZE, log_std, SIZE);
        struct gaussian_f64 g = gaussian_row(mean, log_std, false);
        normals(&rng, noise);
        gaussian_transform_f64(&g, noise, actions + i * SIZE);
        for (size_t k = i * SIZE; k < (i + 1) * SIZE; k++)
            within[k] = cut(actions[k]);
    }
    run_kernel("mpo.draw", a);
    assert_kernel(steps->actions, actions, drawn * SIZE, "actions");
    assert_kernel(steps->cut, within, drawn * SIZE, "cut actions");
}

/* The E-step of one dual: weights of all draws are added, its loss and derivative returned. */
static double mpo_dual_row(const double *q, uint32_t rows, double number, double bound,
                           double *weights, double *derivative)
{
    double slope, eta = mpo_dual_f64(number, &slope), means = 0, pushes = 0;
    for (size_t i = 0; i < rows; i++) {
        double own[SAMPLES], push;
        means += mpo_row_f64(q + i * SAMPLES, SAMPLES, eta, own, &push) / rows;
        pushes += push / rows;
        for (size_t k = 0; k < SAMPLES; k++)
            weights[i * SAMPLES + k] += own[k];
    }
    *derivative = slope * (bound + pushes);
    return eta * (bound + means);
}

static void check_mpo_weigh(const struct mpo_arguments *a)
{
    const struct mpo_steps *steps = &a->steps;
    uint32_t rows = steps->rows;
    size_t drawn = (size_t)rows * SAMPLES;
    const double *q = make_wide(steps->values, drawn);
    double *weights = make_doubles(drawn), *costs = make_doubles(drawn);
    double *next = make_doubles(rows), d[2], slope;
    for (size_t i = 0; i < drawn; i++) {
        for (size_t k = i * SIZE; k < (i + 1) * SIZE; k++)
            costs[i] += pow((double)steps->actions[k] - (double)steps->cut[k], 2);
        costs[i] = -sqrt(costs[i]);
        next[i / SAMPLES] += q[i] / SAMPLES;
    }
    double loss = mpo_dual_row(q, rows, (double)a->duals[0], (double)0.1F, weights, &d[0]);
    loss += mpo_dual_row(costs, rows, (double)a->duals[1], (double)0.02F, weights, &d[1]);
    run_kernel("mpo.weigh", a);
    assert_kernel(steps->values, weights, drawn, "weights");
    assert_kernel(steps->next_values, next, rows, "next values");
    assert_kernel(a->dduals, d, 2, "of temperatures");
    assert_number(steps->numbers->temperature_loss, loss, "temperature loss");
    assert_number(steps->numbers->temperature, mpo_dual_f64((double)a->duals[0], &slope),
                  "temperature");
}

/* Returns the loss of cloning one of the two. */
static double check_mpo_clone(struct mpo_arguments *a, bool deviation)
{
    const struct mpo_steps *steps = &a->steps;
    size_t said = (size_t)steps->rows * SIZE, drawn = (size_t)steps->rows * SAMPLES;
    double *want = make_doubles(said), loss = 0;
    a->deviation = deviation;
    for (size_t i = 0; i < drawn; i++) {
        double mean[SIZE], log_std[SIZE], actions[SIZE], dmean[SIZE], dlog_std[SIZE];
        double weight = (double)steps->values[i] / (double)drawn;
        widen((deviation ? steps->target_means : steps->learned) + i * SIZE, mean, SIZE);
        widen((deviation ? steps->learned : steps->target_log_stds) + i * SIZE, log_std, SIZE);
        widen(steps->actions + i * SIZE, actions, SIZE);
        struct gaussian_f64 g = gaussian_row(mean, log_std, false);
        struct gaussian_slopes_f64 by = {.actions = actions, .by_log_prob = -weight};
        gaussian_back_f64(&g, &by, false, false, dmean, dlog_std);
        loss -= weight * gaussian_log_prob_f64(&g, actions);
        for (size_t k = 0; k < SIZE; k++)
            want[i / SAMPLES * SIZE + k] += deviation ? dlog_std[k] : dmean[k];
    }
    run_kernel("mpo.clone", a);
    assert_kernel(deviation ? steps->dlog_std : steps->dmean, want, said, "what is cloned");
    return loss;
}

/* The losses of both bounds; derivatives of each divergence, [rows][SIZE], and of multipliers. */
static double mpo_bounds(const struct mpo_arguments *a, const double *divergences, size_t first,
                         double bound, double *by, double *dduals)
{
    const struct mpo_steps *steps = &a->steps;
    uint32_t rows = steps->rows, count = steps->joint ? 1 : SIZE;
    double loss = 0;
    for (size_t k = 0; k < count; k++) {
        double slope, alpha = mpo_dual_f64((double)a->duals[first + k], &slope), mean = 0;
        for (size_t i = 0; i < (size_t)rows * SIZE; i++)
            if (steps->joint || i % SIZE == k) {
                mean += divergences[i] / rows;
                by[i] = alpha / rows;
            }
        dduals[first + k] = slope * (bound - mean);
        loss += alpha * mean;
    }
    return loss;
}

static void check_mpo_bound(struct mpo_arguments *a)
{
    const struct mpo_steps *steps = &a->steps;
    uint32_t rows = steps->rows, count = steps->joint ? 1 : SIZE;
    size_t said = (size_t)rows * SIZE;
    const double *target[2] = {make_wide(steps->target_mean, said),
                               make_wide(steps->target_log_std, said)};
    const double *now[2] = {make_wide(steps->mean, said), make_wide(steps->log_std, said)};
    double *dmean = make_wide(steps->dmean, said), *dlog_std = make_wide(steps->dlog_std, said);
    double *means = make_doubles(said), *stds = make_doubles(said), sums[2] = {0, 0};
    double *by_means = make_doubles(said), *by_stds = make_doubles(said);
    double *dduals = make_wide(a->dduals, MULTIPLIERS + 2 * SIZE);
    for (size_t i = 0; i < rows; i++) {
        size_t at = i * SIZE;
        struct gaussian_f64 p = gaussian_row(target[0] + at, target[1] + at, false);
        struct gaussian_f64 q = gaussian_row(now[0] + at, now[1] + at, false);
        decoupled_kl_f64(&p, &q, means + at, stds + at);
    }
    for (size_t i = 0; i < said; i++) {
        sums[0] += means[i] / rows;
        sums[1] += stds[i] / rows;
    }
    double loss = mpo_bounds(a, means, MULTIPLIERS, (double)0.05F, by_means, dduals);
    loss += mpo_bounds(a, stds, MULTIPLIERS + count, (double)0.01F, by_stds, dduals);
    for (size_t i = 0; i < said; i++) {
        size_t at = i / SIZE * SIZE;
        struct gaussian_f64 p = gaussian_row(target[0] + at, target[1] + at, false);
        struct gaussian_f64 q = gaussian_row(now[0] + at, now[1] + at, false);
        struct kl_slopes_f64 by = {0, by_means + at, by_stds + at};
        struct gaussian_push_f64 to_p, to_q;
        gaussian_kl_push_at_f64(&p, &q, &by, (uint32_t)(i % SIZE), &to_p, &to_q);
        dmean[i] += to_q.mean;
        dlog_std[i] += bounded_slope_f64(&q, (uint32_t)(i % SIZE)) * to_q.log_std;
    }
    loss += (double)steps->numbers->policy_loss;
    run_kernel("mpo.bound", a);
    assert_kernel(steps->dmean, dmean, said, "dmean");
    assert_kernel(steps->dlog_std, dlog_std, said, "dlog_std");
    assert_kernel(a->dduals, dduals, MULTIPLIERS + 2 * (size_t)count, "of duals");
    assert_number(steps->numbers->policy_loss, loss, "policy loss");
    assert_number(steps->numbers->mean_divergence, sums[0], "mean divergence");
    assert_number(steps->numbers->deviation_divergence, sums[1], "deviation divergence");
}

static void mpo_s_steps_are_those_of_float64(void **state)
{
    (void)state;
    for (size_t i = 0; i < 2 * KERNEL_SIZES; i++) {
        uint64_t seed = trp_rng_u64(&kernel_rng);
        struct mpo_arguments a = mpo_made(kernel_sizes[i / 2], i % 2, &seed);
        check_mpo_draw(&a);
        check_mpo_weigh(&a);
        double loss = check_mpo_clone(&a, false);
        loss += check_mpo_clone(&a, true);
        assert_number(a.steps.numbers->policy_loss, loss, "cloning loss");
        check_mpo_bound(&a);
        forget_made();
    }
}

int main(void)
{
    trp_rng_init(&kernel_rng, 19, 0);
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(draws_follow_from_the_seed_and_their_place),
        cmocka_unit_test(imitation_is_that_of_float64),
        cmocka_unit_test(mpo_s_steps_are_those_of_float64),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

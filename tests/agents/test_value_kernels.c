/* Kernels of losses of values, by their twins, beside float64: DQN and its family, R2D2, critics,
 * and the actors that follow those. */
#include "kernel_rows.h"

#include "agents/bodies/all.h"

enum { ACTIONS = 5, ATOMS_MAX = 9 };

/* ---- DQN ---------------------------------------------------------------------------------------
 */

struct dqn_row {
    const double *q, *next, *other;
    const bool *mask, *next_mask;
    double reward, discount, scale; /* scale: weight / rows */
    uint32_t taken;
};

/* A row by the formulas: its loss, what the network said, its error, and the gradient. */
static double dqn_row(const trp_dqn_options *o, uint32_t atoms, const struct dqn_row *row,
                      double *value, double *error, double *dq)
{
    double target[ATOMS_MAX], least = (double)o->value_least, most = (double)o->value_most;
    if (o->loss == TRP_DQN_C51 || o->loss == TRP_DQN_QUANTILE) {
        bool c51 = o->loss == TRP_DQN_C51;
        uint32_t best = best_mean_f64(row->other, row->next_mask, ACTIONS, atoms, c51 ? least : 0,
                                      c51 ? most : 0);
        const double *next = row->next + best * atoms;
        if (c51) {
            *value = c51_mean_f64(row->q + row->taken * atoms, atoms, least, most);
            c51_project_f64(next, atoms, least, most, row->reward, row->discount, target);
            return c51_row_f64(row->q, ACTIONS, atoms, row->taken, target, row->scale, error, dq);
        }
        *value = quantile_mean_f64(row->q + row->taken * atoms, atoms);
        for (uint32_t i = 0; i < atoms; i++)
            target[i] = row->reward + row->discount * next[i];
        return quantile_row_f64(row->q, ACTIONS, atoms, row->taken, target, (double)o->huber_delta,
                                row->scale, error, dq);
    }
    *value = row->q[row->taken];
    double temperature = (double)o->munchausen_temperature;
    if (o->loss == TRP_DQN_MUNCHAUSEN)
        target[0] = row->reward +
                    munchausen_f64(row->other, row->mask, ACTIONS, row->taken, temperature,
                                   (double)o->munchausen_scale, (double)o->munchausen_least) +
                    row->discount * soft_value_f64(row->next, row->next_mask, ACTIONS, temperature);
    else
        target[0] = double_q_target_f64(row->reward, row->discount, row->other, row->next,
                                        row->next_mask, ACTIONS);
    return q_row_f64(row->q, ACTIONS, row->taken, target[0], (double)o->huber_delta, row->scale,
                     error, dq);
}

static struct dqn_loss_arguments dqn_arguments(const trp_dqn_options *options, uint32_t atoms,
                                               uint32_t rows)
{
    size_t width = (size_t)ACTIONS * atoms;
    int32_t *taken = make_choices(rows, ACTIONS);
    return (struct dqn_loss_arguments){.options = *options,
                                       .batch = {.rows = rows,
                                                 .actions = ACTIONS,
                                                 .taken = taken,
                                                 .rewards = make_floats(rows, 1),
                                                 .weights = make_between(rows, 0.2, 1),
                                                 .next_mask = make_mask(rows, ACTIONS, NULL),
                                                 .mask = make_mask(rows, ACTIONS, taken)},
                                       .outputs = {.q = make_floats(rows * width, 1),
                                                   .next_target = make_floats(rows * width, 1),
                                                   .other = make_floats(rows * width, 1),
                                                   .targets = make(rows * atoms * sizeof(float)),
                                                   .errors = make(rows * sizeof(float))},
                                       .item_discounts = make_between(rows, 0, 1),
                                       .discounts = make(rows * sizeof(float)),
                                       .loss = make(sizeof(trp_loss))};
}

static void check_dqn(trp_dqn_loss loss, uint32_t atoms, uint32_t rows)
{
    const trp_dqn_options options = {.loss = loss,
                                     .atoms = atoms,
                                     .quantiles = atoms,
                                     .value_least = -3,
                                     .value_most = 2,
                                     .discount = 0.9F,
                                     .huber_delta = 0.7F,
                                     .munchausen_temperature = 0.3F,
                                     .munchausen_scale = 0.8F,
                                     .munchausen_least = -0.9F};
    struct dqn_loss_arguments a = dqn_arguments(&options, atoms, rows);
    size_t width = (size_t)ACTIONS * atoms;
    const double *q = make_wide(a.outputs.q, rows * width);
    const double *next = make_wide(a.outputs.next_target, rows * width);
    const double *other = make_wide(a.outputs.other, rows * width);
    double *dq = make_doubles(rows * width), *errors = make_doubles(rows), sum = 0, values = 0;
    for (size_t i = 0; i < rows; i++) {
        double weight = (double)a.batch.weights[i], value;
        struct dqn_row row = {.q = q + i * width,
                              .next = next + i * width,
                              .other = other + i * width,
                              .mask = a.batch.mask + i * ACTIONS,
                              .next_mask = a.batch.next_mask + i * ACTIONS,
                              .reward = (double)a.batch.rewards[i],
                              .discount = 0.9 * (double)a.item_discounts[i],
                              .scale = weight / rows,
                              .taken = (uint32_t)a.batch.taken[i]};
        sum += weight * dqn_row(&options, atoms, &row, &value, &errors[i], dq + i * width);
        values += value;
    }
    run_kernel("dqn.loss", &a);
    assert_kernel(a.outputs.q, dq, rows * width, "dq");
    assert_kernel(a.outputs.errors, errors, rows, "errors");
    assert_number(a.loss->loss, sum / rows, "loss");
    assert_number(a.loss->value, values / rows, "value");
    forget_made();
}

static void dqn_and_its_family_are_those_of_float64(void **state)
{
    (void)state;
    for (size_t i = 0; i < KERNEL_SIZES; i++) {
        check_dqn(TRP_DQN_HUBER, 1, kernel_sizes[i]);
        check_dqn(TRP_DQN_MUNCHAUSEN, 1, kernel_sizes[i]);
        check_dqn(TRP_DQN_C51, 7, kernel_sizes[i]);
        check_dqn(TRP_DQN_QUANTILE, 9, kernel_sizes[i]);
    }
}

/* ---- R2D2 --------------------------------------------------------------------------------------
 */

static struct r2d2_loss_arguments r2d2_arguments(uint32_t steps, uint32_t sequences)
{
    size_t rows = (size_t)steps * sequences;
    bool *valid = make(rows), *first = make(rows);
    for (size_t i = 0; i < rows; i++) {
        valid[i] = trp_rng_below(&kernel_rng, 6) > 0;
        first[i] = trp_rng_below(&kernel_rng, 6) == 0;
    }
    return (struct r2d2_loss_arguments){
        .options = {.n_step = 3, .epsilon = 1e-3F, .eta = 0.9F, .huber_delta = 0.8F},
        .batch = {.trajectories = {.steps = steps,
                                   .sequences = sequences,
                                   .rewards = make_floats(rows, 1),
                                   .valid = valid,
                                   .first = first},
                  .actions = ACTIONS,
                  .taken = make_choices(rows, ACTIONS),
                  .weights = make_between(sequences, 0.2, 1)},
        .gamma = 0.95F,
        .item_discounts = make_between(rows, 0, 1),
        .discounts = make(rows * sizeof(float)),
        .mask = make_mask(rows, ACTIONS, NULL),
        .q = make_floats(rows * ACTIONS, 2),
        .target_q = make_floats(rows * ACTIONS, 2),
        .targets = make(rows * sizeof(float)),
        .errors = make(rows * sizeof(float)),
        .priorities = make(sequences * sizeof(float)),
        .loss = make(sizeof(trp_loss))};
}

static void check_r2d2(uint32_t steps, uint32_t sequences)
{
    struct r2d2_loss_arguments a = r2d2_arguments(steps, sequences);
    const trp_trajectories *items = &a.batch.trajectories;
    size_t rows = (size_t)steps * sequences;
    const double *q = make_wide(a.q, rows * ACTIONS),
                 *other = make_wide(a.target_q, rows * ACTIONS);
    double *rewards = make_wide(items->rewards, rows), *discounts = make_doubles(rows);
    double *targets = make_doubles(rows), *dq = make_doubles(rows * ACTIONS);
    double *priorities = make_doubles(sequences), loss = 0, value = 0, learned = 0;
    bool *mask = make(rows * ACTIONS);
    for (size_t i = 0; i < rows; i++) {
        discounts[i] = (double)a.gamma * (double)a.item_discounts[i];
        for (size_t k = 0; k < ACTIONS; k++)
            mask[i * ACTIONS + k] = a.mask[i * ACTIONS + k] || !items->valid[i];
    }
    for (size_t s = 0; s < sequences; s++) {
        struct column_f64 column = {steps, sequences, rewards + s,      discounts + s,
                                    NULL,  NULL,      items->valid + s, items->first + s};
        double sum = 0, largest = 0, taken = 0, weight = (double)a.batch.weights[s];
        r2d2_column_f64(&column, 3, (double)1e-3F, ACTIONS, mask + s * ACTIONS, q + s * ACTIONS,
                        other + s * ACTIONS, targets + s);
        for (size_t step = 0; step + 1 < steps; step++) { /* the last one leads nowhere */
            size_t row = step * sequences + s;
            double error, *to = dq + row * ACTIONS;
            uint32_t action = (uint32_t)a.batch.taken[row];
            if (!items->valid[row])
                continue;
            loss += weight * q_row_f64(q + row * ACTIONS, ACTIONS, action, targets[row],
                                       (double)0.8F, weight / sequences, &error, to);
            value += q[row * ACTIONS + action];
            sum += fabs(error);
            largest = fmax(largest, fabs(error));
            taken++;
        }
        priorities[s] = (double)0.9F * largest + (1 - (double)0.9F) * (taken > 0 ? sum / taken : 0);
        learned += taken;
    }
    run_kernel("r2d2.loss", &a);
    assert_kernel(a.q, dq, rows * ACTIONS, "dq");
    assert_kernel(a.priorities, priorities, sequences, "priorities");
    assert_number(a.loss->loss, loss / sequences, "loss");
    assert_number(a.loss->value, learned > 0 ? value / learned : 0, "value");
    forget_made();
}

static void sequences_of_r2d2_are_those_of_float64(void **state)
{
    (void)state;
    for (size_t i = 0; i < KERNEL_SIZES; i++) {
        check_r2d2(1, kernel_sizes[i]);
        check_r2d2(9, kernel_sizes[i]);
    }
}

/* ---- critics of one value ----------------------------------------------------------------------
 */

static void check_critic_targets(uint32_t rows)
{
    float log_temperature = -1.2F;
    struct critic_targets_arguments a = {.batch = {.rows = rows,
                                                   .rewards = make_floats(rows, 1),
                                                   .discounts = make_between(rows, 0, 1),
                                                   .next_q = make_floats(rows, 2),
                                                   .next_q2 = make_floats(rows, 2),
                                                   .next_log_probs = make_floats(rows, 2)},
                                         .log_temperature = &log_temperature,
                                         .targets = make(rows * sizeof(float))};
    double *want = make_doubles(rows);
    const trp_critic_batch *b = &a.batch;
    for (size_t i = 0; i < rows; i++)
        want[i] = critic_target_f64((double)b->rewards[i], (double)b->discounts[i],
                                    (double)b->next_q[i], (double)b->next_q2[i],
                                    (double)b->next_log_probs[i], exp((double)log_temperature));
    run_kernel("critics.targets", &a);
    assert_kernel(a.targets, want, rows, "targets");
    forget_made();
}

static void check_critic_loss(uint32_t rows)
{
    struct critic_loss_arguments a = {.rows = rows,
                                      .count = 2,
                                      .targets = make_floats(rows, 2),
                                      .weights = make_between(rows, 0.2, 1),
                                      .values = {make_floats(rows, 2), make_floats(rows, 2)},
                                      .errors = make(rows * sizeof(float)),
                                      .numbers = make(sizeof(struct critic_numbers))};
    double *errors = make_doubles(rows), *d[2] = {make_doubles(rows), make_doubles(rows)};
    double loss = 0, mean = 0;
    for (size_t i = 0; i < rows; i++) {
        mean += (double)a.values[0][i] / rows;
        for (size_t k = 0; k < 2; k++) {
            double error = (double)a.targets[i] - (double)a.values[k][i];
            double weight = (double)a.weights[i] / rows;
            loss += weight * error * error / 2;
            d[k][i] = -weight * error;
            errors[i] = fmax(errors[i], fabs(error));
        }
    }
    run_kernel("critics.loss", &a);
    assert_kernel(a.values[0], d[0], rows, "derivatives");
    assert_kernel(a.values[1], d[1], rows, "the other's");
    assert_kernel(a.errors, errors, rows, "errors");
    assert_number(a.numbers->loss, loss, "loss");
    assert_number(a.numbers->mean_q, mean, "mean_q");
    forget_made();
}

static void critics_learn_as_in_float64(void **state)
{
    (void)state;
    for (size_t i = 0; i < KERNEL_SIZES; i++) {
        check_critic_targets(kernel_sizes[i]);
        check_critic_loss(kernel_sizes[i]);
    }
}

/* ---- those who follow them ---------------------------------------------------------------------
 */

static void check_sac(uint32_t rows)
{
    float log_temperature = -0.7F, dlog = 0;
    struct sac_policy_arguments a = {.rows = rows,
                                     .values = {make_floats(rows, 2), make_floats(rows, 2)},
                                     .log_probs = make_floats(rows, 2),
                                     .log_temperature = &log_temperature,
                                     .dlog_temperature = &dlog,
                                     .target_entropy = -1.5F,
                                     .numbers = make(sizeof(struct sac_numbers))};
    double temperature = exp((double)log_temperature), mean = 0, loss = 0;
    double *d[2] = {make_doubles(rows), make_doubles(rows)}, *dlog_probs = make_doubles(rows);
    for (size_t i = 0; i < rows; i++) {
        bool first;
        mean += (double)a.log_probs[i] / rows;
        loss += sac_row_f64((double)a.values[0][i], (double)a.values[1][i], (double)a.log_probs[i],
                            temperature, &first) /
                rows;
        d[first ? 0 : 1][i] = -1.0 / rows;
        dlog_probs[i] = temperature / rows;
    }
    run_kernel("sac.policy", &a);
    assert_kernel(a.values[0], d[0], rows, "derivatives");
    assert_kernel(a.values[1], d[1], rows, "the other's");
    assert_kernel(a.log_probs, dlog_probs, rows, "of log-probabilities");
    assert_number(a.numbers->policy.loss, loss, "loss");
    assert_number(a.numbers->entropy, -mean, "entropy");
    assert_number(a.numbers->temperature, temperature, "temperature");
    assert_number(dlog, temperature * (1.5 - mean), "of the temperature");
    forget_made();
}

static void check_td3(uint32_t rows, bool imitates)
{
    enum { SIZE = 3 };
    size_t numbers = (size_t)rows * SIZE;
    struct td3_policy_arguments a = {
        .batch = {.rows = rows,
                  .size = SIZE,
                  .actions = make_between(numbers, -1, 1),
                  .taken = imitates ? make_between(numbers, -1, 1) : NULL,
                  .imitation = 1.7F},
        .values = make_floats(rows, 2),
        .dactions = imitates ? make(numbers * sizeof(float)) : NULL,
        .loss = make(sizeof(trp_loss))};
    double *dq = make_doubles(rows), *dactions = make_doubles(numbers), size = 0, loss = 0;
    const double *actions = make_wide(a.batch.actions, numbers);
    const double *taken = imitates ? make_wide(a.batch.taken, numbers) : NULL;
    for (size_t i = 0; i < rows; i++)
        size += fabs((double)a.values[i]);
    double lambda = imitates ? (double)1.7F * rows / size : 1;
    for (size_t i = 0; i < rows; i++) {
        if (imitates)
            loss += imitation_row_f64(actions + i * SIZE, taken + i * SIZE, SIZE, 1.0 / rows,
                                      dactions + i * SIZE) /
                    rows;
        loss -= lambda * (double)a.values[i] / rows;
        dq[i] = -lambda / rows;
    }
    run_kernel("td3.policy", &a);
    assert_kernel(a.values, dq, rows, "derivatives");
    if (imitates)
        assert_kernel(a.dactions, dactions, numbers, "of imitation");
    assert_number(a.loss->loss, loss, "loss");
    forget_made();
}

static void check_d4pg(uint32_t rows)
{
    enum { ATOMS = 11 };
    size_t all = (size_t)rows * ATOMS;
    struct atoms_arguments a = {.support = {ATOMS, -2, 3},
                                .batch = {.rows = rows,
                                          .actions = 1,
                                          .rewards = make_floats(rows, 1),
                                          .discounts = make_between(rows, 0, 1),
                                          .weights = make_between(rows, 0.2, 1)},
                                .logits = make_floats(all, 1),
                                .targets = make(all * sizeof(float)),
                                .errors = make(rows * sizeof(float)),
                                .loss = make(sizeof(trp_loss))};
    double *targets = make_doubles(all), *d = make_doubles(all), *errors = make_doubles(rows);
    const double *logits = make_wide(a.logits, all);
    double loss = 0, policy = 0;
    float *again = make(all * sizeof *again);
    memcpy(again, a.logits, all * sizeof *again);
    for (size_t i = 0; i < rows; i++)
        c51_project_f64(logits + i * ATOMS, ATOMS, -2, 3, (double)a.batch.rewards[i],
                        (double)a.batch.discounts[i], targets + i * ATOMS);
    run_kernel("d4pg.targets", &a);
    assert_kernel(a.targets, targets, all, "targets");
    for (size_t i = 0; i < rows; i++) {
        double weight = (double)a.batch.weights[i] / rows;
        loss += weight * c51_row_f64(logits + i * ATOMS, 1, ATOMS, 0, targets + i * ATOMS, weight,
                                     &errors[i], d + i * ATOMS);
    }
    run_kernel("d4pg.critic", &a);
    assert_kernel(a.logits, d, all, "dlogits");
    assert_kernel(a.errors, errors, rows, "errors");
    assert_number(a.loss->loss, loss, "loss");
    for (size_t i = 0; i < rows; i++)
        policy -=
            c51_mean_row_f64(logits + i * ATOMS, ATOMS, -2, 3, -1.0 / rows, d + i * ATOMS) / rows;
    a.logits = again;
    run_kernel("d4pg.policy", &a);
    assert_kernel(a.logits, d, all, "of the mean");
    assert_number(a.loss->loss, policy, "policy loss");
    forget_made();
}

static void check_clip(uint32_t rows)
{
    enum { SIZE = 3 };
    struct clip_arguments a = {.rows = rows,
                               .size = SIZE,
                               .most = 1.5F,
                               .from = make_floats((size_t)rows * SIZE, 1),
                               .to = make((size_t)rows * SIZE * sizeof(float))};
    double *want = make_wide(a.from, (size_t)rows * SIZE);
    for (size_t i = 0; i < rows; i++) {
        double *row = want + i * SIZE;
        double norm = sqrt(row[0] * row[0] + row[1] * row[1] + row[2] * row[2]);
        for (size_t k = 0; k < SIZE; k++)
            row[k] *= fmin(1, 1.5 / norm);
    }
    run_kernel("d4pg.clip", &a);
    assert_kernel(a.to, want, (size_t)rows * SIZE, "clipped rows");
    forget_made();
}

static void actors_follow_critics_as_in_float64(void **state)
{
    (void)state;
    for (size_t i = 0; i < KERNEL_SIZES; i++) {
        check_sac(kernel_sizes[i]);
        check_td3(kernel_sizes[i], false);
        check_td3(kernel_sizes[i], true);
        check_d4pg(kernel_sizes[i]);
        check_clip(kernel_sizes[i]);
    }
}

/* ---- sums -------------------------------------------------------------------------------------
 */

/* The index space is one block, whole groups of it, and the sums are the same each time. */
static void sums_have_an_order_of_their_own(void **state)
{
    (void)state;
    const struct cuda_kernel *kernel = find_agents_kernel("critics.loss");
    for (uint32_t rows = 1; rows < 1500; rows = rows * 3 + 1) {
        struct kernel_shape shape = kernel->shape(&(struct critic_loss_arguments){.rows = rows});
        assert_int_equal(shape.blocks, 1);
        assert_int_equal(shape.threads % ROUND_GROUPS, 0);
        assert_in_range(shape.threads, ROUND_GROUPS, ROUND_THREADS_MAX);
        assert_true(shape.threads >= rows || shape.threads == ROUND_THREADS_MAX);
    }
    enum { ROWS = 1100 };
    float values[ROWS], targets[ROWS], errors[ROWS];
    struct critic_numbers first = {0}, again;
    for (int turn = 0; turn < 4; turn++) {
        struct critic_loss_arguments a = {.rows = ROWS,
                                          .count = 1,
                                          .targets = targets,
                                          .values = {values},
                                          .errors = errors,
                                          .numbers = &again};
        trp_rng rng;
        trp_rng_init(&rng, 9, 0);
        fill_floats(&rng, values, ROWS, 1);
        fill_floats(&rng, targets, ROWS, 1e4);
        run_kernel("critics.loss", &a);
        if (turn == 0)
            first = again;
        assert_memory_equal(&first, &again, sizeof again);
    }
}

int main(void)
{
    trp_rng_init(&kernel_rng, 17, 0);
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(dqn_and_its_family_are_those_of_float64),
        cmocka_unit_test(sequences_of_r2d2_are_those_of_float64),
        cmocka_unit_test(critics_learn_as_in_float64),
        cmocka_unit_test(actors_follow_critics_as_in_float64),
        cmocka_unit_test(sums_have_an_order_of_their_own),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

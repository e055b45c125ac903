/* MPO's two steps as kernels (nn/cuda/forms.h). */
#ifndef TRP_AGENTS_BODIES_MPO_H
#define TRP_AGENTS_BODIES_MPO_H

#include "offline.h"

/* What a step leaves to be reported. */
struct mpo_numbers {
    struct critic_numbers critics;
    float policy_loss, temperature_loss;
    float temperature;
    float mean_divergence, deviation_divergence; /* sums over the numbers of an action */
};

struct mpo_steps {
    /* Filled in by whoever creates it: */
    uint32_t samples, size; /* size: numbers of an action */
    bool joint, penalty;
    float epsilon, epsilon_penalty, epsilon_mean, epsilon_deviation;
    /* The device's, of a room: */
    uint32_t rows;                       /* of the batch at hand */
    float *target_mean, *target_log_std; /* [rows][size]: what the policies say */
    float *mean, *log_std;
    float *dmean, *dlog_std; /* their gradients */
    float *actions, *cut;    /* [rows][samples][size]: of the target policy; within [-1, 1] */
    float *values;           /* [rows][samples]: of the target critic; weights afterwards */
    float *next_values;      /* [rows]: their means */
    struct mpo_numbers *numbers;
    /* Its own: */
    float *target_means, *target_log_stds; /* [rows][samples][size], as the next three */
    float *learned, *dmeans, *dlog_stds;
    float *log_probs;   /* [rows][samples]: and costs */
    float *divergences; /* [2][rows][size] */
};

/* Of all kernels below; each names what it touches. */
struct mpo_arguments {
    struct mpo_steps steps;
    const float *duals;
    float *dduals;
    struct draw draw;
    bool deviation; /* which of the two is learned */
};

#define mpo_draw_arguments  mpo_arguments
#define mpo_weigh_arguments mpo_arguments
#define mpo_clone_arguments mpo_arguments
#define mpo_bound_arguments mpo_arguments

/* Where the vector of duals has what. */
enum { TEMPERATURE, PENALTY_TEMPERATURE, MULTIPLIERS };

KERNEL_BODY uint32_t multiplier_count(const struct mpo_steps *steps)
{
    return steps->joint ? 1 : steps->size;
}

KERNEL_BODY uint32_t mpo_draws(const struct mpo_steps *steps)
{
    return steps->rows * steps->samples;
}

KERNEL_BODY trp_gaussian mpo_gaussian(uint32_t rows, uint32_t size, const float *mean,
                                      const float *log_std)
{
    return control_gaussian(CONTROL_GAUSSIAN, rows, size, mean, log_std);
}

/* ---- mpo.draw ----------------------------------------------------------------------------------
 */

KERNEL_BODY size_t mpo_draw_count(const struct mpo_arguments *a)
{
    return mpo_draws(&a->steps);
}

KERNEL_BODY void mpo_draw_each(const struct mpo_arguments *a, size_t i)
{
    const struct mpo_steps *steps = &a->steps;
    trp_gaussian target =
        mpo_gaussian(mpo_draws(steps), steps->size, steps->target_means, steps->target_log_stds);
    trp_rng rng = draw_begin(&a->draw, i);
    draw_normals(&rng, steps->size, steps->actions + i * steps->size);
    gaussian_transform_at(&target, steps->actions, steps->actions, i);
    for (size_t k = i * steps->size; k < (i + 1) * steps->size; k++)
        steps->cut[k] = kept_within(steps->actions[k], -1, 1);
}

EACH_KERNEL(mpo_draw)

/* ---- mpo.weigh: the E-step; that of costs is a round of its own --------------------------------
 */

/* Of an action: how far it lies beyond the bounds, turned round. */
KERNEL_BODY float mpo_cost(const struct mpo_steps *steps, size_t draw)
{
    double squares = 0;
    for (size_t i = draw * steps->size; i < (draw + 1) * steps->size; i++) {
        double beyond = (double)steps->actions[i] - (double)steps->cut[i];
        squares += beyond * beyond;
    }
    return (float)-sqrt(squares);
}

/* The batch of either of them. */
KERNEL_BODY trp_mpo_batch mpo_batch(const struct mpo_arguments *a, bool penalty)
{
    const struct mpo_steps *steps = &a->steps;
    trp_mpo_batch batch;
    batch.rows = steps->rows;
    batch.samples = steps->samples;
    batch.q = penalty ? steps->log_probs : steps->values;
    batch.temperature = a->duals[penalty ? PENALTY_TEMPERATURE : TEMPERATURE];
    batch.bound = penalty ? steps->epsilon_penalty : steps->epsilon;
    return batch;
}

KERNEL_BODY size_t mpo_weigh_items(const struct mpo_arguments *a, uint32_t round)
{
    return round == 0 || a->steps.penalty ? a->steps.rows : 0;
}

KERNEL_BODY void mpo_weigh_values(const struct mpo_steps *steps, size_t row)
{
    double sum = 0;
    for (size_t i = row * steps->samples; i < (row + 1) * steps->samples; i++)
        sum += (double)steps->values[i];
    steps->next_values[row] = (float)(sum / steps->samples);
}

KERNEL_BODY void mpo_weigh_item(const struct mpo_arguments *a, uint32_t round, size_t row,
                                const struct loss_sums *before, struct loss_sums *sums)
{
    const struct mpo_steps *steps = &a->steps;
    trp_mpo_batch batch = mpo_batch(a, round > 0);
    size_t first = row * steps->samples, behind = first + steps->samples;
    float slope, eta = mpo_dual_f32(batch.temperature, &slope);
    (void)before;
    if (round == 0) {
        mpo_weigh_values(steps, row);
        mpo_weights_at(&batch, eta, steps->values, row, sums);
        return;
    }
    for (size_t i = first; i < behind; i++)
        steps->log_probs[i] = mpo_cost(steps, i);
    mpo_weights_at(&batch, eta, steps->log_probs, row, sums);
    for (size_t i = first; i < behind; i++)
        steps->values[i] += steps->log_probs[i];
}

KERNEL_BODY void mpo_weigh_end(const struct mpo_arguments *a, uint32_t round,
                               const struct loss_sums *before, struct loss_sums *totals)
{
    struct mpo_numbers *numbers = a->steps.numbers;
    trp_mpo_batch batch = mpo_batch(a, round > 0);
    float slope;
    (void)before;
    if (round == 0) {
        numbers->temperature = mpo_dual_f32(batch.temperature, &slope);
        numbers->temperature_loss = mpo_weights_loss(&batch, totals, &a->dduals[TEMPERATURE]);
    } else if (a->steps.penalty) {
        numbers->temperature_loss +=
            mpo_weights_loss(&batch, totals, &a->dduals[PENALTY_TEMPERATURE]);
    }
}

ROUNDS_KERNEL(mpo_weigh, 2)

/* ---- mpo.clone: the weighted actions' part of the M-step ---------------------------------------
 */

/* Of N(mean, the target's deviation) the mean's gradient, or of N(the target's mean, deviation) the
 * deviation's: of each draw, and then the sum of a row's. */
KERNEL_BODY size_t mpo_clone_items(const struct mpo_arguments *a, uint32_t round)
{
    return round == 0 ? mpo_draws(&a->steps) : (size_t)a->steps.rows * a->steps.size;
}

KERNEL_BODY void mpo_clone_draw(const struct mpo_arguments *a, size_t draw, struct loss_sums *sums)
{
    const struct mpo_steps *steps = &a->steps;
    trp_gaussian policy = mpo_gaussian(mpo_draws(steps), steps->size,
                                       a->deviation ? steps->target_means : steps->learned,
                                       a->deviation ? steps->learned : steps->target_log_stds);
    trp_gaussian_grads grads =
        given_actions(steps->actions, steps->log_probs, steps->dmeans, steps->dlog_stds);
    steps->log_probs[draw] = gaussian_log_prob_at(&policy, steps->actions, draw);
    cloning_at(mpo_draws(steps), steps->values, steps->log_probs, steps->log_probs, draw, sums);
    gaussian_back_at(&policy, &grads, draw);
}

KERNEL_BODY void mpo_clone_item(const struct mpo_arguments *a, uint32_t round, size_t i,
                                const struct loss_sums *before, struct loss_sums *sums)
{
    const struct mpo_steps *steps = &a->steps;
    (void)before;
    if (round == 0) {
        mpo_clone_draw(a, i, sums);
        return;
    }
    const float *from = a->deviation ? steps->dlog_stds : steps->dmeans;
    size_t row = i / steps->size, first = row * steps->samples;
    double sum = 0;
    for (size_t draw = first; draw < first + steps->samples; draw++)
        sum += (double)from[draw * steps->size + i % steps->size];
    (a->deviation ? steps->dlog_std : steps->dmean)[i] = (float)sum;
}

KERNEL_BODY void mpo_clone_end(const struct mpo_arguments *a, uint32_t round,
                               const struct loss_sums *before, struct loss_sums *totals)
{
    struct mpo_numbers *numbers = a->steps.numbers;
    (void)before;
    if (round == 0)
        numbers->policy_loss = (a->deviation ? numbers->policy_loss : 0) +
                               loss_mean(totals, mpo_draws(&a->steps)).loss;
}

ROUNDS_KERNEL(mpo_clone, 2)

/* ---- mpo.bound: what keeps the policy near -----------------------------------------------------
 */

/* Divergences of rows; the bounds' losses, of means and then of deviations; gradients of rows. A
 * joint divergence is the sum over an action's numbers, and lies in the first one's place. */
KERNEL_BODY size_t mpo_bound_items(const struct mpo_arguments *a, uint32_t round)
{
    return round == 1 ? 2 * (size_t)multiplier_count(&a->steps) : a->steps.rows;
}

KERNEL_BODY float *mpo_divergences(const struct mpo_steps *steps, bool deviation)
{
    return steps->divergences + (deviation ? (size_t)steps->rows * steps->size : 0);
}

KERNEL_BODY void mpo_join_divergence(const struct mpo_steps *steps, float *divergences)
{
    double sum = 0;
    for (size_t i = 0; i < steps->size; i++)
        sum += (double)divergences[i];
    divergences[0] = (float)sum;
}

/* `value` of the sums is that of means, `divergence` that of deviations. */
KERNEL_BODY void mpo_bound_multiplier(const struct mpo_arguments *a, size_t i,
                                      struct loss_sums *sums)
{
    const struct mpo_steps *steps = &a->steps;
    uint32_t count = multiplier_count(steps);
    bool deviation = i >= count;
    size_t first = MULTIPLIERS + (deviation ? count : 0);
    struct loss_sums own = {0, 0, 0, 0, 0, 0};
    trp_mpo_bound bound;
    bound.rows = steps->rows;
    bound.size = steps->size;
    bound.divergences = mpo_divergences(steps, deviation);
    bound.multipliers = a->duals + first;
    bound.bound = deviation ? steps->epsilon_deviation : steps->epsilon_mean;
    mpo_bound_at(&bound, mpo_divergences(steps, deviation), a->dduals + first, i % count, &own);
    sums->loss += own.loss;
    sums->value += deviation ? 0 : own.value;
    sums->divergence += deviation ? own.value : 0;
}

KERNEL_BODY void mpo_bound_row(const struct mpo_arguments *a, uint32_t round, size_t row)
{
    const struct mpo_steps *steps = &a->steps;
    size_t at = row * steps->size;
    float *means = mpo_divergences(steps, false), *stds = mpo_divergences(steps, true);
    trp_gaussian target =
        mpo_gaussian(steps->rows, steps->size, steps->target_mean, steps->target_log_std);
    trp_gaussian policy = mpo_gaussian(steps->rows, steps->size, steps->mean, steps->log_std);
    if (round == 0) {
        decoupled_kl_at(&target, &policy, means, stds, row);
        if (steps->joint) {
            mpo_join_divergence(steps, means + at);
            mpo_join_divergence(steps, stds + at);
        }
        return;
    }
    for (size_t i = 1; i < steps->size && steps->joint; i++) {
        means[at + i] = means[at];
        stds[at + i] = stds[at];
    }
    trp_gaussian_kl_grads grads;
    grads.divergences = NULL;
    grads.means = means;
    grads.stds = stds;
    grads.p.mean = grads.p.log_std = NULL;
    grads.q.mean = steps->dmean;
    grads.q.log_std = steps->dlog_std;
    grads.add = true;
    gaussian_kl_back_at(&target, &policy, &grads, row);
}

KERNEL_BODY void mpo_bound_item(const struct mpo_arguments *a, uint32_t round, size_t i,
                                const struct loss_sums *before, struct loss_sums *sums)
{
    (void)before;
    if (round == 1)
        mpo_bound_multiplier(a, i, sums);
    else
        mpo_bound_row(a, round, i);
}

KERNEL_BODY void mpo_bound_end(const struct mpo_arguments *a, uint32_t round,
                               const struct loss_sums *before, struct loss_sums *totals)
{
    struct mpo_numbers *numbers = a->steps.numbers;
    (void)before;
    if (round != 1)
        return;
    numbers->policy_loss += (float)totals->loss;
    numbers->mean_divergence = (float)totals->value;
    numbers->deviation_divergence = (float)totals->divergence;
}

ROUNDS_KERNEL(mpo_bound, 3)

#endif

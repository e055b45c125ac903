/* What is learned from what others did, as kernels (nn/cuda/forms.h): of BC, CQL, CRR and IQL.
 * Pointers are the device's. */
#ifndef TRP_AGENTS_BODIES_OFFLINE_H
#define TRP_AGENTS_BODIES_OFFLINE_H

#include "critics.h"
#include "draws.h"
#include "nn/loss/batch_policies.h"

/* ---- cloning.loss ------------------------------------------------------------------------------
 */

struct cloning_numbers {
    float loss;
    float log_prob; /* the mean of what was done, unweighted */
};

struct cloning_loss_arguments {
    enum control_kind kind; /* a Gaussian's, squashed or not */
    uint32_t rows, size;
    float *mean, *log_std;           /* [rows][size]: what it says; gradients afterwards */
    const float *actions;            /* [rows][size]: what was done, in [-1, 1] */
    float *within;                   /* [rows][size]: room of a squashed one, else not read */
    const float *weights;            /* [rows]; NULL: 1 */
    float *log_probs;                /* [rows]: room */
    struct cloning_numbers *numbers; /* written */
};

/* Gradients of log-probabilities of given actions. */
KERNEL_BODY trp_gaussian_grads given_actions(const float *actions, const float *dlog_probs,
                                             float *mean, float *log_std)
{
    trp_gaussian_grads grads;
    grads.actions = actions;
    grads.log_probs = dlog_probs;
    grads.noise = grads.sample_actions = grads.sample_log_probs = grads.entropies = NULL;
    grads.mean = mean;
    grads.log_std = log_std;
    grads.add = false;
    return grads;
}

KERNEL_BODY size_t cloning_loss_items(const struct cloning_loss_arguments *a, uint32_t round)
{
    (void)round;
    return a->rows;
}

/* What was done, as a Gaussian of that kind could have: a squashed one never reaches a bound, so
 * that what lies there would be all that counts. As in Acme's TanhTransformedDistribution it is at
 * most 0.999. */
KERNEL_BODY const float *cloned_actions(const struct cloning_loss_arguments *a, size_t row)
{
    if (a->kind != CONTROL_SQUASHED)
        return a->actions;
    for (size_t i = row * a->size; i < (row + 1) * a->size; i++)
        a->within[i] = kept_within(a->actions[i], -0.999F, 0.999F);
    return a->within;
}

KERNEL_BODY void cloning_loss_item(const struct cloning_loss_arguments *a, uint32_t round,
                                   size_t row, const struct loss_sums *before,
                                   struct loss_sums *sums)
{
    trp_gaussian says = control_gaussian(a->kind, a->rows, a->size, a->mean, a->log_std);
    const float *actions = cloned_actions(a, row);
    trp_gaussian_grads grads = given_actions(actions, a->log_probs, a->mean, a->log_std);
    (void)round, (void)before;
    a->log_probs[row] = gaussian_log_prob_at(&says, actions, row);
    sums->value += (double)a->log_probs[row];
    cloning_at(a->rows, a->weights, a->log_probs, a->log_probs, row, sums);
    gaussian_back_at(&says, &grads, row);
}

KERNEL_BODY void cloning_loss_end(const struct cloning_loss_arguments *a, uint32_t round,
                                  const struct loss_sums *before, struct loss_sums *totals)
{
    trp_loss mean = loss_mean(totals, a->rows);
    (void)round, (void)before;
    a->numbers->loss = mean.loss;
    a->numbers->log_prob = mean.value;
}

ROUNDS_KERNEL(cloning_loss, 1)

/* ---- iql.expectile -----------------------------------------------------------------------------
 */

struct expectile_arguments {
    uint32_t rows;
    float expectile;
    const float *q, *q2; /* by the target critics, of what was done */
    float *least;        /* written: the lesser */
    float *values;       /* derivatives afterwards */
    trp_loss *loss;
};

KERNEL_BODY size_t expectile_items(const struct expectile_arguments *a, uint32_t round)
{
    (void)round;
    return a->rows;
}

KERNEL_BODY void expectile_item(const struct expectile_arguments *a, uint32_t round, size_t row,
                                const struct loss_sums *before, struct loss_sums *sums)
{
    trp_expectile_batch batch = {a->rows, a->least, NULL, a->expectile};
    (void)round, (void)before;
    a->least[row] = lesser_f32(a->q[row], a->q2[row]);
    expectile_at(&batch, a->values, a->values, row, sums);
}

KERNEL_BODY void expectile_end(const struct expectile_arguments *a, uint32_t round,
                               const struct loss_sums *before, struct loss_sums *totals)
{
    (void)round, (void)before;
    *a->loss = loss_mean(totals, a->rows);
}

ROUNDS_KERNEL(expectile, 1)

/* ---- iql.weights, crr.weights ------------------------------------------------------------------
 */

struct advantage_weights_arguments {
    trp_crr_batch batch;
    float *weights;
    float *mean; /* of them; NULL: not wanted */
};

KERNEL_BODY size_t advantage_weights_items(const struct advantage_weights_arguments *a,
                                           uint32_t round)
{
    (void)round;
    return a->batch.rows;
}

KERNEL_BODY void advantage_weights_item(const struct advantage_weights_arguments *a, uint32_t round,
                                        size_t row, const struct loss_sums *before,
                                        struct loss_sums *sums)
{
    (void)round, (void)before;
    a->weights[row] = crr_weight_at(&a->batch, row);
    sums->value += (double)a->weights[row];
}

KERNEL_BODY void advantage_weights_end(const struct advantage_weights_arguments *a, uint32_t round,
                                       const struct loss_sums *before, struct loss_sums *totals)
{
    (void)round, (void)before;
    if (a->mean)
        *a->mean = loss_mean(totals, a->batch.rows).value;
}

ROUNDS_KERNEL(advantage_weights, 1)

/* ---- conservative.gap --------------------------------------------------------------------------
 */

struct gap_arguments {
    trp_cql_batch batch;         /* without q */
    uint32_t count;              /* critics */
    float *sampled[CRITICS_MAX]; /* [rows][samples]: derivatives afterwards */
    float *taken[CRITICS_MAX];   /* [rows]: of what was done; the same */
    trp_cql *numbers;            /* written: sums over the critics */
};

KERNEL_BODY size_t gap_items(const struct gap_arguments *a, uint32_t round)
{
    (void)round;
    return a->batch.rows;
}

KERNEL_BODY void gap_item(const struct gap_arguments *a, uint32_t round, size_t row,
                          const struct loss_sums *before, struct loss_sums *sums)
{
    (void)round, (void)before;
    for (uint32_t i = 0; i < a->count; i++) {
        trp_cql_batch batch = a->batch;
        batch.q = a->taken[i];
        cql_at(&batch, a->sampled[i], a->sampled[i], a->taken[i], row, sums);
    }
}

KERNEL_BODY void gap_end(const struct gap_arguments *a, uint32_t round,
                         const struct loss_sums *before, struct loss_sums *totals)
{
    trp_loss mean = loss_mean(totals, a->batch.rows);
    (void)round, (void)before;
    a->numbers->loss = mean.loss;
    a->numbers->gap = mean.value;
}

ROUNDS_KERNEL(gap, 1)

#endif

/* What critics and those who follow them learn, as kernels (nn/cuda/forms.h): of all agents with
 * continuous actions but MPO. Pointers are the device's. */
#ifndef TRP_AGENTS_BODIES_CRITICS_H
#define TRP_AGENTS_BODIES_CRITICS_H

#include "nn/cuda/forms.h"
#include "nn/loss/batch_actor_critics.h"
#include "nn/loss/batch_values.h"

enum { CRITICS_MAX = 4 };

/* ---- critics.targets ---------------------------------------------------------------------------
 */

struct critic_targets_arguments {
    trp_critic_batch batch;       /* as trp_critic_targets() has it, without the temperature: */
    const float *log_temperature; /* one number; NULL: the temperature is 0 */
    float *targets;               /* written */
};

KERNEL_BODY size_t critic_targets_count(const struct critic_targets_arguments *a)
{
    return a->batch.rows;
}

KERNEL_BODY void critic_targets_each(const struct critic_targets_arguments *a, size_t row)
{
    float temperature = a->log_temperature ? expf(*a->log_temperature) : 0;
    a->targets[row] = critic_target_at(&a->batch, temperature, row);
}

EACH_KERNEL(critic_targets)

/* ---- critics.loss ------------------------------------------------------------------------------
 */

struct critic_numbers {
    float loss;   /* the sum of the critics' */
    float mean_q; /* of the first critic's values of what was done */
};

struct critic_loss_arguments {
    uint32_t rows, count; /* count: critics */
    const float *targets;
    const float *weights;           /* NULL: 1 */
    float *values[CRITICS_MAX];     /* derivatives afterwards */
    float *errors;                  /* written: the largest size of a row's errors; of priorities */
    struct critic_numbers *numbers; /* written */
};

KERNEL_BODY size_t critic_loss_items(const struct critic_loss_arguments *a, uint32_t round)
{
    (void)round;
    return a->rows;
}

KERNEL_BODY void critic_loss_item(const struct critic_loss_arguments *a, uint32_t round, size_t row,
                                  const struct loss_sums *before, struct loss_sums *sums)
{
    trp_value_batch batch = {a->rows, a->targets, a->weights, 0, 0, NULL};
    (void)round, (void)before;
    sums->value += (double)a->values[0][row];
    for (uint32_t i = 0; i < a->count; i++) {
        float size = fabsf(a->targets[row] - a->values[i][row]);
        a->errors[row] = i == 0 ? size : fmaxf(a->errors[row], size);
        sums->loss += value_loss_at(&batch, a->values[i], NULL, a->values[i], row);
    }
}

KERNEL_BODY void critic_loss_end(const struct critic_loss_arguments *a, uint32_t round,
                                 const struct loss_sums *before, struct loss_sums *totals)
{
    trp_loss mean = loss_mean(totals, a->rows);
    (void)round, (void)before;
    a->numbers->loss = mean.loss;
    a->numbers->mean_q = mean.value;
}

ROUNDS_KERNEL(critic_loss, 1)

/* ---- sac.policy --------------------------------------------------------------------------------
 */

struct sac_numbers {
    struct critic_numbers critics;
    trp_loss policy;
    float entropy, temperature;
    trp_cql conservative;
};

struct sac_policy_arguments {
    uint32_t rows;
    float *values[2]; /* of the policy's actions; derivatives afterwards, as log_probs */
    float *log_probs;
    const float *log_temperature;
    float *dlog_temperature; /* written; NULL: it is not learned */
    float target_entropy;
    struct sac_numbers *numbers;
};

KERNEL_BODY size_t sac_policy_items(const struct sac_policy_arguments *a, uint32_t round)
{
    (void)round;
    return a->rows;
}

/* The mean of the log-probabilities, and then the loss. */
KERNEL_BODY void sac_policy_item(const struct sac_policy_arguments *a, uint32_t round, size_t row,
                                 const struct loss_sums *before, struct loss_sums *sums)
{
    trp_sac_batch batch = {a->rows, a->values[0], a->values[1], a->log_probs, NULL, 0};
    (void)before;
    if (round == 0)
        sums->value += (double)a->log_probs[row];
    else
        sac_at(&batch, expf(*a->log_temperature), a->values[0], a->values[1], a->log_probs, row,
               sums);
}

KERNEL_BODY void sac_policy_end(const struct sac_policy_arguments *a, uint32_t round,
                                const struct loss_sums *before, struct loss_sums *totals)
{
    trp_loss mean = loss_mean(totals, a->rows);
    (void)before;
    if (round > 0) {
        a->numbers->policy = mean;
        return;
    }
    a->numbers->entropy = -mean.value;
    a->numbers->temperature = expf(*a->log_temperature);
    if (a->dlog_temperature)
        *a->dlog_temperature =
            multiplier_slope(*a->log_temperature, mean.value, -a->target_entropy);
}

ROUNDS_KERNEL(sac_policy, 2)

/* ---- td3.policy --------------------------------------------------------------------------------
 */

struct td3_policy_arguments {
    trp_td3_batch batch; /* `taken` where the policy imitates */
    float *values;       /* the first critic's; derivatives afterwards */
    float *dactions;     /* written: of imitation alone; NULL where nothing is imitated */
    trp_loss *loss;
};

/* The sum of the values' sizes, where that is asked for, and then the loss. */
KERNEL_BODY size_t td3_policy_items(const struct td3_policy_arguments *a, uint32_t round)
{
    return round > 0 || a->batch.taken ? a->batch.rows : 0;
}

KERNEL_BODY void td3_policy_item(const struct td3_policy_arguments *a, uint32_t round, size_t row,
                                 const struct loss_sums *before, struct loss_sums *sums)
{
    trp_td3_batch batch = a->batch;
    batch.q = a->values;
    if (round == 0)
        sums->value += fabs((double)a->values[row]);
    else
        td3_at(&batch, (float)before->value, a->values, a->dactions, row, sums);
}

KERNEL_BODY void td3_policy_end(const struct td3_policy_arguments *a, uint32_t round,
                                const struct loss_sums *before, struct loss_sums *totals)
{
    (void)before;
    if (round > 0)
        *a->loss = loss_mean(totals, a->batch.rows);
    else
        totals->value = a->batch.taken ? (double)imitation_lambda(&a->batch, totals->value) : 1;
}

ROUNDS_KERNEL(td3_policy, 2)

/* ---- d4pg.targets, d4pg.critic, d4pg.policy ----------------------------------------------------
 */

struct atoms_arguments {
    trp_support support;
    trp_q_batch batch;
    float *logits; /* [rows][atoms] */
    float *targets, *errors;
    trp_loss *loss;
};

#define d4pg_targets_arguments atoms_arguments
#define d4pg_critic_arguments  atoms_arguments
#define d4pg_policy_arguments  atoms_arguments

KERNEL_BODY size_t d4pg_targets_count(const struct atoms_arguments *a)
{
    return a->batch.rows;
}

KERNEL_BODY void d4pg_targets_each(const struct atoms_arguments *a, size_t row)
{
    c51_target_at(&a->support, &a->batch, a->logits, a->logits, a->targets, row);
}

EACH_KERNEL(d4pg_targets)

KERNEL_BODY size_t d4pg_critic_items(const struct atoms_arguments *a, uint32_t round)
{
    (void)round;
    return a->batch.rows;
}

KERNEL_BODY void d4pg_critic_item(const struct atoms_arguments *a, uint32_t round, size_t row,
                                  const struct loss_sums *before, struct loss_sums *sums)
{
    (void)round, (void)before;
    c51_loss_at(&a->support, &a->batch, a->logits, a->targets, a->errors, a->logits, row, sums);
}

KERNEL_BODY void d4pg_critic_end(const struct atoms_arguments *a, uint32_t round,
                                 const struct loss_sums *before, struct loss_sums *totals)
{
    (void)round, (void)before;
    *a->loss = loss_mean(totals, a->batch.rows);
}

ROUNDS_KERNEL(d4pg_critic, 1)

#define d4pg_policy_items d4pg_critic_items
#define d4pg_policy_end   d4pg_critic_end

KERNEL_BODY void d4pg_policy_item(const struct atoms_arguments *a, uint32_t round, size_t row,
                                  const struct loss_sums *before, struct loss_sums *sums)
{
    (void)round, (void)before;
    d4pg_at(&a->support, a->batch.rows, NULL, a->logits, a->logits, row, sums);
}

ROUNDS_KERNEL(d4pg_policy, 1)

/* ---- d4pg.clip: rows are scaled down to a norm of `most` ---------------------------------------
 */

struct clip_arguments {
    uint32_t rows, size;
    float most;
    const float *from; /* [rows][size], as `to` */
    float *to;
};

KERNEL_BODY size_t clip_count(const struct clip_arguments *a)
{
    return a->rows;
}

KERNEL_BODY void clip_each(const struct clip_arguments *a, size_t row)
{
    const float *from = a->from + row * a->size;
    double squares = 0;
    for (size_t i = 0; i < a->size; i++)
        squares += (double)from[i] * (double)from[i];
    double norm = sqrt(squares);
    float scale = norm > (double)a->most ? (float)((double)a->most / norm) : 1;
    for (size_t i = 0; i < a->size; i++)
        a->to[row * a->size + i] = scale * from[i];
}

EACH_KERNEL(clip)

#endif

/* Losses of agents that act by what they learn, as kernels (nn/cuda/forms.h): A3C, IMPALA, PPO.
 * Pointers are the device's. */
#ifndef TRP_AGENTS_BODIES_UNROLLS_H
#define TRP_AGENTS_BODIES_UNROLLS_H

#include "decisions.h"
#include "nn/loss/batch_policies.h"
#include "nn/loss/batch_sequences.h"
#include "nn/loss/batch_values.h"

/* ---- what IMPALA and A3C have in common: policy gradient, values, entropy ----------------------
 */

struct unroll_numbers {
    float loss, policy_loss, value_loss, entropy;
    float decisions;
};

/* Rows as [steps][sequences]. A row is a decision where a step was taken and another row follows in
 * its item: losses are means over these. */
struct unroll_loss {
    struct decisions decisions;  /* says and log_std become gradients */
    float *values;               /* gradients afterwards */
    trp_trajectories items;      /* without values and discounts: */
    const float *item_discounts; /* they lack gamma */
    float gamma, entropy_weight, value_weight;
    float *discounts, *log_probs, *entropies, *advantages, *returns, *weights; /* room */
    struct unroll_numbers *numbers;
};

/* Rounds: rows are judged and decisions counted; advantages and returns of sequences are made,
 * which is where agents differ; the loss of rows, and its gradients. */
enum { UNROLL_BEGIN, UNROLL_SEQUENCES, UNROLL_END, UNROLL_ROUNDS };

KERNEL_BODY size_t unroll_items(const struct unroll_loss *loss, uint32_t round)
{
    return round == UNROLL_SEQUENCES ? loss->items.sequences : loss->decisions.rows;
}

/* Their weights are 1 and 0 until all are counted. */
KERNEL_BODY void unroll_begin_at(const struct unroll_loss *loss, size_t row, struct loss_sums *sums)
{
    bool decides = loss->items.valid[row] && row < loss->decisions.rows - loss->items.sequences;
    decisions_judge_at(&loss->decisions, loss->log_probs, loss->entropies, row);
    loss->discounts[row] = loss->gamma * loss->item_discounts[row];
    loss->weights[row] = decides ? 1 : 0;
    sums->rows += decides ? 1 : 0;
}

/* Weights make means over all rows means over decisions. Returns the items with values and
 * discounts. */
KERNEL_BODY trp_trajectories unroll_weigh_at(const struct unroll_loss *loss, uint32_t sequence,
                                             const struct loss_sums *before)
{
    trp_trajectories items = loss->items;
    float decisions = (float)before->rows;
    for (size_t step = 0; step < items.steps && decisions > 0; step++)
        loss->weights[step * items.sequences + sequence] *= (float)loss->decisions.rows / decisions;
    items.discounts = loss->discounts;
    items.values = loss->values;
    return items;
}

KERNEL_BODY void unroll_end_at(const struct unroll_loss *loss, size_t row, struct loss_sums *sums)
{
    uint32_t rows = loss->decisions.rows;
    trp_policy_batch batch = {rows, loss->advantages, loss->weights, loss->entropy_weight, NULL, 0};
    trp_value_batch values = {rows, loss->returns, loss->weights, 0, 0, NULL};
    policy_gradient_at(&batch, loss->log_probs, loss->entropies, loss->log_probs, loss->entropies,
                       row, sums);
    sums->value += value_loss_at(&values, loss->values, NULL, loss->values, row);
    loss->values[row] *= loss->value_weight;
    decisions_back_at(&loss->decisions, loss->log_probs, loss->entropies, row);
}

KERNEL_BODY void unroll_item(const struct unroll_loss *loss, uint32_t round, size_t row,
                             struct loss_sums *sums)
{
    if (round == UNROLL_BEGIN)
        unroll_begin_at(loss, row, sums);
    else
        unroll_end_at(loss, row, sums);
}

KERNEL_BODY void unroll_round_end(const struct unroll_loss *loss, uint32_t round,
                                  const struct loss_sums *totals)
{
    struct unroll_numbers *numbers = loss->numbers;
    trp_policy_batch batch = {loss->decisions.rows, NULL, NULL, 0, NULL, 0};
    if (round == UNROLL_BEGIN)
        numbers->decisions = (float)totals->rows;
    if (round != UNROLL_END)
        return;
    trp_policy_loss policy = policy_loss_of(&batch, totals);
    numbers->policy_loss = policy.loss;
    numbers->value_loss = loss_mean(totals, loss->decisions.rows).value;
    numbers->entropy = policy.entropy;
    numbers->loss = policy.loss + loss->value_weight * numbers->value_loss;
}

/* ---- a3c.loss: n-step returns, as far as the sequence goes -------------------------------------
 */

#define a3c_loss_arguments unroll_loss
#define a3c_loss_items     unroll_items

KERNEL_BODY void a3c_loss_item(const struct unroll_loss *a, uint32_t round, size_t i,
                               const struct loss_sums *before, struct loss_sums *sums)
{
    if (round != UNROLL_SEQUENCES) {
        unroll_item(a, round, i, sums);
        return;
    }
    trp_trajectories items = unroll_weigh_at(a, (uint32_t)i, before);
    gae_at(&items, 1, a->advantages, a->returns, (uint32_t)i);
}

KERNEL_BODY void a3c_loss_end(const struct unroll_loss *a, uint32_t round,
                              const struct loss_sums *before, struct loss_sums *totals)
{
    (void)before;
    unroll_round_end(a, round, totals);
}

ROUNDS_KERNEL(a3c_loss, UNROLL_ROUNDS)

/* ---- impala.loss: ratios of probabilities, V-trace ---------------------------------------------
 */

struct impala_ratios {
    float mean, clipped; /* over decisions; how many of them are above rho_bar */
};

struct impala_loss_arguments {
    struct unroll_loss loss;
    const float *old_log_probs; /* of the policy that acted */
    trp_vtrace_options vtrace;
    float *log_ratios; /* room */
    struct impala_ratios *ratios;
};

KERNEL_BODY size_t impala_loss_items(const struct impala_loss_arguments *a, uint32_t round)
{
    return unroll_items(&a->loss, round);
}

KERNEL_BODY void impala_ratio_at(const struct impala_loss_arguments *a, size_t row,
                                 struct loss_sums *sums)
{
    a->log_ratios[row] = a->loss.log_probs[row] - a->old_log_probs[row];
    if (a->loss.weights[row] == 0)
        return;
    double ratio = exp((double)a->log_ratios[row]);
    sums->value += ratio;
    sums->clipped += ratio > (double)a->vtrace.rho_bar ? 1 : 0;
}

KERNEL_BODY void impala_loss_item(const struct impala_loss_arguments *a, uint32_t round, size_t i,
                                  const struct loss_sums *before, struct loss_sums *sums)
{
    if (round != UNROLL_SEQUENCES) {
        unroll_item(&a->loss, round, i, sums);
        return;
    }
    trp_trajectories items = unroll_weigh_at(&a->loss, (uint32_t)i, before);
    for (size_t step = 0; step < items.steps; step++)
        impala_ratio_at(a, step * items.sequences + i, sums);
    vtrace_at(&items, &a->vtrace, a->log_ratios, a->loss.returns, a->loss.advantages, (uint32_t)i);
}

KERNEL_BODY void impala_loss_end(const struct impala_loss_arguments *a, uint32_t round,
                                 const struct loss_sums *before, struct loss_sums *totals)
{
    unroll_round_end(&a->loss, round, totals);
    if (round != UNROLL_SEQUENCES)
        return;
    float decisions = (float)before->rows, share = decisions > 0 ? 1 / decisions : 0;
    a->ratios->mean = (float)totals->value * share;
    a->ratios->clipped = (float)totals->clipped * share;
}

ROUNDS_KERNEL(impala_loss, UNROLL_ROUNDS)

/* ---- ppo.advantages: of sequences, [sequences][steps] ------------------------------------------
 */

struct ppo_advantages_arguments {
    trp_trajectories items;      /* without discounts: */
    const float *item_discounts; /* they lack gamma */
    float *discounts;            /* written: they have it */
    float gamma, lambda;
    float *advantages, *returns;
};

KERNEL_BODY size_t ppo_advantages_count(const struct ppo_advantages_arguments *a)
{
    return a->items.sequences;
}

KERNEL_BODY void ppo_advantages_each(const struct ppo_advantages_arguments *a, size_t sequence)
{
    trp_trajectories items = a->items;
    for (size_t row = sequence * items.steps; row < (sequence + 1) * items.steps; row++)
        a->discounts[row] = a->gamma * a->item_discounts[row];
    items.discounts = a->discounts;
    gae_at(&items, a->lambda, a->advantages, a->returns, (uint32_t)sequence);
}

EACH_KERNEL(ppo_advantages)

/* ---- ppo.loss: of a minibatch ------------------------------------------------------------------
 */

struct ppo_numbers {
    float loss;                                                          /* of the last phase */
    float policy_loss, value_loss, entropy, divergence, clipped, phases; /* sums */
};

/* They may change from step to step; arguments stay the same. */
struct ppo_clips {
    float policy, values;
};

struct ppo_loss_arguments {
    struct decisions decisions; /* says and log_std are gradients afterwards */
    float *values;              /* the same */
    const float *old_log_probs, *old_values, *returns;
    float *advantages;            /* normalised afterwards */
    float *log_probs, *entropies; /* room */
    const struct ppo_clips *clips;
    float entropy_weight, value_weight;
    bool raw_advantages;
    struct ppo_numbers *numbers;
};

/* The advantages' mean, their deviation, and with these the loss. */
enum { PPO_MEAN, PPO_DEVIATION, PPO_LOSS, PPO_ROUNDS };

KERNEL_BODY size_t ppo_loss_items(const struct ppo_loss_arguments *a, uint32_t round)
{
    return round < PPO_LOSS && a->raw_advantages ? 0 : a->decisions.rows;
}

KERNEL_BODY void ppo_loss_at(const struct ppo_loss_arguments *a, size_t row, struct loss_sums *sums)
{
    uint32_t rows = a->decisions.rows;
    trp_policy_batch batch = {
        rows, a->advantages, NULL, a->entropy_weight, a->old_log_probs, a->clips->policy};
    trp_value_batch values = {rows, a->returns, NULL, 0, a->clips->values, a->old_values};
    decisions_judge_at(&a->decisions, a->log_probs, a->entropies, row);
    ppo_at(&batch, a->log_probs, a->entropies, a->log_probs, a->entropies, row, sums);
    sums->value += value_loss_at(&values, a->values, NULL, a->values, row);
    a->values[row] *= a->value_weight;
    decisions_back_at(&a->decisions, a->log_probs, a->entropies, row);
}

/* What goes on to the next round: the mean as `value`, the scale as `divergence`. */
KERNEL_BODY void ppo_loss_item(const struct ppo_loss_arguments *a, uint32_t round, size_t row,
                               const struct loss_sums *before, struct loss_sums *sums)
{
    double advantage = (double)a->advantages[row], off = advantage - before->value;
    if (round == PPO_MEAN) {
        sums->value += advantage;
        sums->rows++;
    } else if (round == PPO_DEVIATION) {
        sums->value += off * off;
        sums->rows++;
    } else {
        if (!a->raw_advantages)
            a->advantages[row] =
                advantage_normalized(a->advantages[row], before->value, before->divergence);
        ppo_loss_at(a, row, sums);
    }
}

KERNEL_BODY void ppo_add_numbers(const struct ppo_loss_arguments *a, const struct loss_sums *totals)
{
    struct ppo_numbers *sums = a->numbers;
    trp_policy_batch batch = {a->decisions.rows, NULL, NULL, 0, NULL, 0};
    trp_policy_loss policy = policy_loss_of(&batch, totals);
    float value = loss_mean(totals, a->decisions.rows).value;
    sums->loss = policy.loss + a->value_weight * value;
    sums->policy_loss += policy.loss;
    sums->value_loss += value;
    sums->entropy += policy.entropy;
    sums->divergence += policy.divergence;
    sums->clipped += policy.clipped;
    sums->phases++;
}

KERNEL_BODY void ppo_loss_end(const struct ppo_loss_arguments *a, uint32_t round,
                              const struct loss_sums *before, struct loss_sums *totals)
{
    if (round == PPO_MEAN) {
        totals->value = advantages_mean(totals);
    } else if (round == PPO_DEVIATION) {
        totals->divergence = advantages_scale(totals->value, totals->rows);
        totals->value = before->value;
    } else {
        ppo_add_numbers(a, totals);
    }
}

ROUNDS_KERNEL(ppo_loss, PPO_ROUNDS)

#endif

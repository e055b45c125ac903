/* The loss that IMPALA and A3C have in common: a policy gradient, values, entropy, over the rows of
 * a pass through unrolls. What differs is where advantages and returns come from, which is computed
 * between its beginning and its end. */
#ifndef TRP_AGENTS_UNROLL_LOSS_H
#define TRP_AGENTS_UNROLL_LOSS_H

#include "unroll_steps.h"

struct unroll_numbers {
    float loss, policy_loss, value_loss, entropy;
    float decisions;
};

/* In the arguments of a kernel; pointers are its device's, of rows as [steps][sequences]. A row is
 * a decision where a step was taken and another row follows in its item: losses are means over
 * these.
 */
struct unroll_loss {
    struct decisions decisions;  /* says and log_std become gradients */
    float *values;               /* gradients afterwards */
    trp_trajectories items;      /* without values and discounts: */
    const float *item_discounts; /* they lack gamma */
    float gamma, entropy_weight, value_weight;
    float *discounts, *log_probs, *entropies, *advantages, *returns, *weights; /* room */
    struct unroll_numbers *numbers;
};

/* Of that pass; gamma, the weights of entropy and values, and the numbers are the caller's to set.
 */
struct unroll_loss unroll_loss(const struct unroll_steps *steps,
                               const struct unroll_updater *updater, const trp_update *update);

/* Judges the decisions and weighs them. Returns the items with values and discounts, of which
 * advantages and returns are to be made. */
trp_trajectories unroll_loss_begin(const struct unroll_loss *loss);

/* The loss of these, and its gradients. */
void unroll_loss_end(const struct unroll_loss *loss);

/* What a kernel touches that calls both of these on a loss `at` bytes into its arguments. */
enum { UNROLL_LOSS_OPERANDS = DECISIONS_OPERANDS + 12 };
void unroll_loss_operands(const struct unroll_loss *loss, size_t at,
                          trp_operand operands[UNROLL_LOSS_OPERANDS]);

#endif

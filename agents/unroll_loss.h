/* The loss that IMPALA and A3C have in common: a policy gradient, values, entropy, over the rows of
 * a pass through unrolls. What differs is where advantages and returns come from, which is computed
 * between its beginning and its end. */
#ifndef TRP_AGENTS_UNROLL_LOSS_H
#define TRP_AGENTS_UNROLL_LOSS_H

#include "bodies/unrolls.h"
#include "unroll_steps.h"

/* Of that pass; gamma, the weights of entropy and values, and the numbers are the caller's to set.
 */
struct unroll_loss unroll_loss(const struct unroll_steps *steps,
                               const struct unroll_updater *updater, const trp_update *update);

/* What a kernel touches whose rounds are those of a loss `at` bytes into its arguments. */
enum { UNROLL_LOSS_OPERANDS = DECISIONS_OPERANDS + 12 };
void unroll_loss_operands(const struct unroll_loss *loss, size_t at,
                          trp_operand operands[UNROLL_LOSS_OPERANDS]);

#endif

/* Actions as a network's outputs say them, whatever their kind: choices, several of them, numbers.
 */
#ifndef TRP_AGENTS_DECISIONS_H
#define TRP_AGENTS_DECISIONS_H

#include <troupe/device.h>
#include <troupe/env.h>
#include "bodies/decisions.h"

/* INVALID_ARGUMENT: there is no distribution of such actions. `who` ("ppo") begins the message. */
TRP_MUST_USE trp_status action_space_check(const char *who, const trp_env_spec *env);

/* Of one that passed the check; it refers to the spec. */
struct action_space action_space(const trp_env_spec *env);

/* What a kernel touches that judges decisions and goes back to what said them, `at` bytes into its
 * arguments. */
enum { DECISIONS_OPERANDS = 5 };
void decisions_operands(const struct decisions *decisions, size_t at,
                        trp_operand operands[DECISIONS_OPERANDS]);

/* Draws actions, or takes the most probable ones; log_probs, [rows], of them. */
void decisions_draw(const struct decisions *decisions, trp_rng *rng, bool greedy, void *actions,
                    float *log_probs);

#endif

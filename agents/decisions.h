/* Actions as a network's outputs say them, whatever their kind: choices, several of them, numbers.
 */
#ifndef TRP_AGENTS_DECISIONS_H
#define TRP_AGENTS_DECISIONS_H

#include <troupe/device.h>
#include <troupe/distributions.h>
#include <troupe/env.h>

struct action_space {
    bool continuous;
    bool masked;
    uint32_t size;  /* columns of what says it: choices of all parts together, or dimensions */
    uint32_t parts; /* numbers of an action */
    const int32_t *sizes; /* [parts]: choices of each; NULL where continuous */
    const float *low, *high;
};

/* INVALID_ARGUMENT: there is no distribution of such actions. `who` ("ppo") begins the message. */
TRP_MUST_USE trp_status action_space_check(const char *who, const trp_env_spec *env);

/* Of one that passed the check; it refers to the spec. */
struct action_space action_space(const trp_env_spec *env);

/* Actions of rows, by what a network says there. */
struct decisions {
    struct action_space space;
    uint32_t rows;
    float *says;         /* [rows][size]: logits, or means */
    float *log_std;      /* [rows][size]; NULL where not continuous */
    const bool *mask;    /* [rows][size]: what may be done; NULL: all */
    const void *actions; /* [rows][parts]: int32, or float before it was cut to its bounds */
};

/* log_probs, entropies: [rows]. */
void decisions_judge(const struct decisions *decisions, float *log_probs, float *entropies);

/* Makes of derivatives of them, [rows], those of `says` and `log_std`, in their place. */
void decisions_backward(const struct decisions *decisions, const float *dlog_probs,
                        const float *dentropies);

/* What a kernel touches that calls both of these on decisions `at` bytes into its arguments. */
enum { DECISIONS_OPERANDS = 5 };
void decisions_operands(const struct decisions *decisions, size_t at,
                        trp_operand operands[DECISIONS_OPERANDS]);

/* Draws actions, or takes the most probable ones; log_probs, [rows], of them. */
void decisions_draw(const struct decisions *decisions, trp_rng *rng, bool greedy, void *actions,
                    float *log_probs);

#endif

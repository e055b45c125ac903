/* CRR (Wang et al. 2020, "Critic Regularized Regression"): a critic learns what its target says of
 * an action that the target policy draws at the next state, and a Gaussian policy clones what was
 * done where it was better than what the policy would do: weighted by exp(advantage / temperature),
 * at most 20, or 1 where the advantage is above 0. The advantage is over the mean, or the largest,
 * of the critic's values of actions that the policy draws at the same state.
 *
 * It reads transitions that an agent of continuous actions stored (trp_learner_options .dataset).
 * Actions are numbers within finite bounds, observations a row of floats; anything else is refused
 * by name. */
#ifndef TRP_CRR_H
#define TRP_CRR_H

#include <stdbool.h>
#include <stdint.h>

#include <troupe/agent.h>
#include <troupe/nn.h>

TRP_BEGIN_DECLS

/* Zero means default everywhere. Defaults are Acme's (agents/jax/crr); ranges and units are in the
 * agent's option table: `PROGRAM --options` prints it, and `troupe options crr`. */
typedef struct {
    uint32_t hidden[TRP_NET_HIDDEN_MAX]; /* of all networks; ends at the first zero */
    trp_activation activation;
    trp_precision precision; /* of the learner's networks and of policies' */
    float discount;          /* gamma */
    uint32_t critics;    /* 1, or 2, of which the lesser target counts, as in TD3: values of actions
                            that nobody did run away with one */
    uint32_t samples;    /* actions that are drawn for an advantage */
    bool max;            /* the advantage is over the largest of them, not over their mean */
    bool binary;         /* weights are 1 or 0, not exponentials */
    float temperature;   /* of exponentials */
    float learning_rate; /* of Adam, the policy's */
    float critic_learning_rate;
    float max_gradient_norm; /* global norm, of each; 0: no clipping */
    uint32_t target_period;  /* learner steps between copies to the target networks */
    uint32_t batch_size;
} trp_crr_options;

/* Never fails: options are checked when a node is made and by trp_agent_check(). NULL: defaults. */
TRP_API trp_agent trp_crr(const trp_crr_options *options);

/* Of these options, for who prints or sets them without a program. */
TRP_API const trp_option_table *trp_crr_option_table(void);

TRP_END_DECLS
#endif

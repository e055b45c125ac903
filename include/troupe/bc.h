/* Behaviour cloning of continuous actions: a Gaussian whose mean and deviation follow from the
 * state, which is made to say what was done (Pomerleau 1991, "Efficient Training of Artificial
 * Neural Networks for Autonomous Navigation"; the log-likelihood, as in Acme's agents/jax/bc). What
 * better ways to learn from data are compared with.
 *
 * It reads transitions that an agent of continuous actions stored (trp_learner_options .dataset),
 * and nothing of their rewards. Actions are numbers within finite bounds, observations a row of
 * floats; anything else is refused by name. */
#ifndef TRP_BC_H
#define TRP_BC_H

#include <stdint.h>

#include <troupe/agent.h>
#include <troupe/nn.h>

TRP_BEGIN_DECLS

/* Zero means default everywhere. The learning rate is Acme's (1e-4); ranges and units are in the
 * agent's option table: `PROGRAM --options` prints it, and `troupe options bc`. */
typedef struct {
    uint32_t hidden[TRP_NET_HIDDEN_MAX]; /* ends at the first zero */
    trp_activation activation;
    trp_precision precision; /* of the learner's network and of policies' */
    float learning_rate;     /* of Adam */
    uint32_t batch_size;
} trp_bc_options;

/* Never fails: options are checked when a node is made and by trp_agent_check(). NULL: defaults. */
TRP_API trp_agent trp_bc(const trp_bc_options *options);

/* Of these options, for who prints or sets them without a program. */
TRP_API const trp_option_table *trp_bc_option_table(void);

TRP_END_DECLS
#endif

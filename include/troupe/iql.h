/* IQL (Kostrikov et al. 2022, "Offline Reinforcement Learning with Implicit Q-Learning"): learning
 * from stored transitions without ever asking what an action is worth that was not done. Values of
 * states learn an expectile of the lesser target critic's values of what was done, both critics
 * learn rewards and the values of next states, and a Gaussian policy clones what was done, weighted
 * by exp(beta * advantage), at most 100.
 *
 * It reads transitions that an agent of continuous actions stored (trp_learner_options .dataset).
 * Actions are numbers within finite bounds, observations a row of floats; anything else is refused
 * by name. */
#ifndef TRP_IQL_H
#define TRP_IQL_H

#include <stdint.h>

#include <troupe/agent.h>
#include <troupe/nn.h>

TRP_BEGIN_DECLS

/* Zero means default everywhere. Defaults are the paper's (appendix B, locomotion), but that the
 * policy's rate stays what it is, where that of the authors falls along a cosine of a million
 * steps, and that its deviation follows from the state; ranges and units are in the agent's option
 * table: `PROGRAM --options` prints it, and `troupe options iql`. */
typedef struct {
    uint32_t hidden[TRP_NET_HIDDEN_MAX]; /* of all networks; ends at the first zero */
    trp_activation activation;
    trp_precision precision; /* of the learner's networks and of policies' */
    float discount;          /* gamma */
    float expectile;         /* in (0, 1): above 0.5 values are of better actions than the mean */
    float beta;              /* what a unit of advantage is worth in a weight's logarithm */
    float learning_rate;     /* of Adam, of all networks */
    float target_rate;       /* target += rate * (params - target) at each step */
    uint32_t batch_size;
} trp_iql_options;

/* Never fails: options are checked when a node is made and by trp_agent_check(). NULL: defaults. */
TRP_API trp_agent trp_iql(const trp_iql_options *options);

/* Of these options, for who prints or sets them without a program. */
TRP_API const trp_option_table *trp_iql_option_table(void);

TRP_END_DECLS
#endif

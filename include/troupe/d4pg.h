/* D4PG (Barth-Maron et al. 2018, "Distributed Distributional Deterministic Policy Gradients"): a
 * critic that gives a distribution over fixed values (Bellemare et al. 2017, "C51") learns the
 * target critic's at the target policy's action, n steps later, and a deterministic policy follows
 * the distribution's mean at the states, as in the paper (Acme's learner does at the next ones).
 * Actors add normal noise to their actions. Draws may be prioritized (Schaul et al. 2016), by the
 * divergence of both distributions.
 *
 * Actions are numbers within finite bounds, observations a row of floats; anything else is refused
 * by name. Networks have actions from -1 to 1, so deviations are in halves of the distance between
 * an action's bounds. */
#ifndef TRP_D4PG_H
#define TRP_D4PG_H

#include <stdbool.h>
#include <stdint.h>

#include <troupe/agent.h>
#include <troupe/nn.h>

TRP_BEGIN_DECLS

/* Zero means default everywhere; a negative number means 0 where that is said. Defaults are Acme's
 * (agents/jax/d4pg: config.py, networks.py, builder.py at 770bc75); they, ranges and units are in
 * the agent's option table: `PROGRAM --options` prints it, and `troupe options d4pg`. */
typedef struct {
    uint32_t hidden[TRP_NET_HIDDEN_MAX];        /* of the policy; ends at the first zero */
    uint32_t critic_hidden[TRP_NET_HIDDEN_MAX]; /* of the critic */
    trp_activation activation;
    bool no_layer_norm; /* else a layer norm and tanh stand behind the first hidden layer of each */
    trp_precision precision; /* of the learner's networks and of policies' */

    uint32_t atoms;                /* of the critic's distribution, */
    float value_least, value_most; /* evenly from the first to the last: what lies beyond them
                                      counts as them, so they have to hold all returns; 0 is the
                                      default as everywhere: a bound there is 1e-6 */

    uint32_t n_step;
    float discount; /* gamma */

    float learning_rate; /* of Adam, the policy's */
    float critic_learning_rate;
    float max_gradient_norm;   /* global norm, of policy and critic each; negative: no clipping */
    float max_action_gradient; /* norm of the critic's mean's gradient by an action, which the
                                  policy follows; negative: no clipping */
    uint32_t batch_size;
    uint32_t target_period; /* learner steps between copies to the targets */
    float target_rate;      /* above 0: target += rate * (params - target) at each step instead */

    float noise;          /* deviation of exploration; negative: 0 */
    int64_t random_steps; /* any action, each as likely, while all actors together take so many */

    int64_t replay_size;      /* items */
    int64_t min_replay_size;  /* items before the first update */
    float samples_per_insert; /* negative: as fast as both can */
    float insert_tolerance;   /* the table's error buffer is min_replay_size *
                                 insert_tolerance * samples_per_insert, as in Acme */

    float priority_exponent;   /* 0: uniform replay */
    float importance_exponent; /* beta; weights (size * P)^-beta of the critic's loss, divided by
                                  the batch's largest; negative: no correction */
    float priority_epsilon;    /* added to the divergence */
} trp_d4pg_options;

/* Never fails: options are checked when a node is made and by trp_agent_check(). NULL: defaults. */
TRP_API trp_agent trp_d4pg(const trp_d4pg_options *options);

/* Of these options, for who prints or sets them without a program. */
TRP_API const trp_option_table *trp_d4pg_option_table(void);

TRP_END_DECLS
#endif

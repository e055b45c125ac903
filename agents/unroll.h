/* What an actor-critic learns from: items of so many steps of an actor, and one row more, which is
 * the first of the next item, too: it is only bootstrapped from. They go on with the next episode,
 * and lie in a queue from which each goes once. */
#ifndef TRP_AGENTS_UNROLL_H
#define TRP_AGENTS_UNROLL_H

#include <troupe/adder.h>
#include <troupe/updater.h>
#include "actor_critic.h"

struct unroll {
    struct actor_critic network; /* a recurrent one has the state before an item's first row */
    const char *table;
    uint32_t steps;                  /* of an item */
    uint32_t batch_size, queue_size; /* items */
};

/* INVALID_ARGUMENT: more steps than an update may have, or what of the environment does not fit. */
TRP_MUST_USE trp_status unroll_check(const struct unroll *unroll, const trp_env_spec *env);

/* The first of these, of another number of items. */
TRP_MUST_USE trp_status unroll_check_batch(const struct unroll *unroll, uint32_t batch_size);

/* How the learning rate changes: within `steps`, and not at all without any. */
struct unroll_rate {
    trp_rate_schedule schedule;
    float final; /* where it ends */
    uint64_t steps;
};

void unroll_rate_set(const struct unroll_rate *rate, trp_optimizer *optimizer);

/* INVALID_ARGUMENT: a cosine, or an end, without steps: nobody would read it. A line is what agents
 * have without being asked. `who` ("ppo") begins the message. */
TRP_MUST_USE trp_status unroll_rate_check(const struct unroll_rate *rate, const char *who);

/* Appends the columns of an item. */
void unroll_columns(const struct unroll *unroll, const trp_env_spec *env, trp_columns *columns);

TRP_MUST_USE trp_status unroll_tables(const struct unroll *unroll, const trp_env_spec *env,
                                      trp_agent_table_list *list);

TRP_MUST_USE trp_status unroll_adder(const struct unroll *unroll, const trp_adder_options *options,
                                     trp_adder **out);

#endif

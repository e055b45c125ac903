/* Agents that learn continuous actions from what others stored: their items are transitions of one
 * step, their policy is a Gaussian. Actors of one may store more, without waiting for the learner.
 */
#ifndef TRP_AGENTS_OFFLINE_H
#define TRP_AGENTS_OFFLINE_H

#include "control_agent.h"

/* Of networks alike; `critics` of one value each. */
struct offline {
    const char *who; /* "iql" */
    const uint32_t *hidden;
    trp_activation activation;
    trp_precision precision;
    uint32_t critics; /* 0: it has none */
    float discount;
};

/* Borrows `hidden`. */
struct control_agent offline_parts(const struct offline *offline);

#endif

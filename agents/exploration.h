/* Epsilon-greedy choices: a rate that falls on a schedule and differs between actors, and what it
 * does to the rows of a call. */
#ifndef TRP_AGENTS_EXPLORATION_H
#define TRP_AGENTS_EXPLORATION_H

#include <troupe/agent.h>

/* Actor i of N explores at e^(1 + alpha * i / (N - 1)) (Horgan et al. 2018, section 4), where e
 * falls linearly from start to end while all actors together take `steps` steps. */
struct exploration {
    float start, end, alpha;
    uint64_t steps;
};

/* Of the actor at `place` after `steps`; a greedy one does not explore. */
double exploration_rate(const struct exploration *exploration, const trp_policy_options *place,
                        uint64_t steps);

/* Chooses for the rows that explore, of what they may do, each as likely; marks the others with -1
 * in act->actions. True: there are others. */
bool exploration_draw(double rate, const trp_act *act, uint32_t choices);

/* Of those others: what is worth most by `values`, [rows][choices], of what may be done. */
void exploration_finish(const trp_act *act, uint32_t choices, const float *values);

#endif

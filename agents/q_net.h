/* Networks that say what each choice is worth: what reads observations (torso.h), a recurrent core
 * where one is wanted, and values of actions upon it. */
#ifndef TRP_AGENTS_Q_NET_H
#define TRP_AGENTS_Q_NET_H

#include <troupe/env.h>
#include <troupe/torso.h>

struct q_net {
    const char *who; /* "dqn": begins messages */
    trp_torso network;
    const uint32_t *hidden; /* [TRP_NET_HIDDEN_MAX], of a torso of linear layers */
    trp_activation activation;
    bool dueling, noisy;
    uint32_t atoms; /* numbers for a choice */
    trp_core core;
    uint32_t core_size;
};

/* Its one output is [action_count][atoms]. For an environment that q_net_check() found to fit. */
trp_net_spec q_net_spec(const struct q_net *net, const trp_env_spec *env);

/* INVALID_ARGUMENT says what the environment has for actions or observes, and why the network
 * cannot do with it. */
TRP_MUST_USE trp_status q_net_check(const struct q_net *net, const trp_env_spec *env);

#endif

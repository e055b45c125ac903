/* What an agent of continuous actions consists of: a policy, items, and critics if it has any. */
#ifndef TRP_AGENTS_CONTROL_AGENT_H
#define TRP_AGENTS_CONTROL_AGENT_H

#include "control.h"
#include "critics.h"
#include "transitions.h"

/* Borrows the options that it was made of. */
struct control_agent {
    struct control control;
    struct critics_options critics;
    struct transitions transitions;
};

/* All that can be wrong with it, as trp_agent_impl.check. */
TRP_MUST_USE trp_status control_agent_check(const struct control_agent *agent,
                                            const trp_env_spec *env);

/* INVALID_ARGUMENT: a critic that is asked of `samples` actions at each of so many states would
 * have more rows than an update may have. `who` ("mpo") begins the message. */
TRP_MUST_USE trp_status control_agent_check_rows(const char *who, uint32_t batch_size,
                                                 uint32_t samples);

#endif

/* The parts of CRR: options, table and adder in crr.c, its update in a file of its own. Its policy
 * is control_policy.c's. */
#ifndef TRP_AGENTS_CRR_H
#define TRP_AGENTS_CRR_H

#include <troupe/crr.h>
#include "offline.h"

/* The options inside an agent, defaults filled in: numbers mean themselves, 0 included. */
trp_crr_options crr_options(const trp_agent *agent);

/* Its networks and items, which borrow the options. */
struct control_agent crr_parts(const trp_crr_options *options);

TRP_MUST_USE trp_status crr_updater_create(const trp_agent *agent, const trp_env_spec *env,
                                           const trp_updater_options *options, trp_updater **out);

#endif

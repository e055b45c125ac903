/* The parts of R2D2: options, table and adder in r2d2.c, policy and updater in files of their own.
 */
#ifndef TRP_AGENTS_R2D2_H
#define TRP_AGENTS_R2D2_H

#include <troupe/adder.h>
#include <troupe/r2d2.h>
#include "exploration.h"
#include "q_net.h"

#define R2D2_TABLE "sequences"
#define R2D2_STATE "core_state"
#define R2D2_MASK  "mask"

extern const trp_option_table r2d2_option_table;

/* The options inside an agent, defaults filled in: numbers mean themselves, 0 included. */
trp_r2d2_options r2d2_options(const trp_agent *agent);

/* Its network, which borrows the options. */
struct q_net r2d2_net(const trp_r2d2_options *options);

struct exploration r2d2_exploration(const trp_r2d2_options *options);

/* How steps become items. */
trp_sequence_options r2d2_sequence(const trp_r2d2_options *options);

/* INVALID_ARGUMENT: so many items are more rows than an update may have. */
TRP_MUST_USE trp_status r2d2_check_batch(const trp_r2d2_options *options, uint32_t batch_size);

/* What the policy says of each step: R2D2_STATE as it was before it, of which an item has the first
 * row's, and R2D2_MASK where the environment masks. */
void r2d2_extras(const trp_r2d2_options *options, const trp_env_spec *env, trp_columns *extras);

TRP_MUST_USE trp_status r2d2_policy_create(const trp_agent *agent, const trp_env_spec *env,
                                           const trp_policy_options *options, trp_policy **out);
TRP_MUST_USE trp_status r2d2_updater_create(const trp_agent *agent, const trp_env_spec *env,
                                            const trp_updater_options *options, trp_updater **out);

#endif

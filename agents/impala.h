/* The parts of IMPALA: tables and adder in impala.c, its update in files of their own. */
#ifndef TRP_AGENTS_IMPALA_H
#define TRP_AGENTS_IMPALA_H

#include <troupe/impala.h>
#include <troupe/returns.h>
#include "unroll.h"

#define IMPALA_TABLE "unrolls"

extern const trp_option_table impala_option_table;

/* The options inside an agent, defaults filled in: numbers mean themselves, 0 included. */
trp_impala_options impala_options(const trp_agent *agent);

/* Its network and its items; refers to the options. */
struct unroll impala_unroll(const trp_impala_options *options);

/* What learns it. */
trp_optimizer impala_optimizer(const trp_impala_options *options);

/* ---- the loss ------------------------------------------------------------------------------ */

struct impala_numbers {
    float loss, policy_loss, value_loss, entropy;
    float ratio, clipped; /* means over decisions: of ratios, and of those above rho_bar */
    float decisions;
};

/* On a queue; pointers are its device's, of rows as [steps][sequences]. A row is a decision where a
 * step was taken and another row follows in its item: losses are means over these. */
struct impala_loss_job {
    struct decisions decisions;  /* without mask; says and log_std become gradients */
    bool *mask;                  /* of decisions; becomes all set where no step was taken */
    float *values;               /* gradients afterwards */
    trp_trajectories items;      /* without values and discounts: */
    const float *item_discounts; /* they lack gamma */
    const float *old_log_probs;  /* of the policy that acted */
    trp_vtrace_options vtrace;
    float gamma, entropy_weight, value_weight;
    float *discounts, *log_probs, *entropies, *log_ratios, *advantages, *returns,
        *weights; /* room */
    struct impala_numbers *numbers;
};

void impala_loss_on(trp_queue *queue, const struct impala_loss_job *job);

TRP_MUST_USE trp_status impala_updater_create(const trp_agent *agent, const trp_env_spec *env,
                                              const trp_updater_options *options,
                                              trp_updater **out);

#endif

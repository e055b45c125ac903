/* The parts of A3C: tables and adder in a3c.c, its update in files of their own. */
#ifndef TRP_AGENTS_A3C_H
#define TRP_AGENTS_A3C_H

#include <troupe/a3c.h>
#include <troupe/returns.h>
#include "unroll.h"

#define A3C_TABLE "rollouts"

extern const trp_option_table a3c_option_table;

/* The options inside an agent, defaults filled in: numbers mean themselves, 0 included. */
trp_a3c_options a3c_options(const trp_agent *agent);

/* Its network and its items; refers to the options. */
struct unroll a3c_unroll(const trp_a3c_options *options);

/* What learns it. */
trp_optimizer a3c_optimizer(const trp_a3c_options *options);

/* ---- the loss ------------------------------------------------------------------------------ */

struct a3c_numbers {
    float loss, policy_loss, value_loss, entropy;
    float decisions;
};

/* On a queue; pointers are its device's, of rows as [steps][sequences]. A row is a decision where a
 * step was taken and another row follows in its item: losses are means over these. */
struct a3c_loss_job {
    struct decisions decisions;  /* says and log_std become gradients */
    float *values;               /* gradients afterwards */
    trp_trajectories items;      /* without values and discounts: */
    const float *item_discounts; /* they lack gamma */
    float gamma, entropy_weight, value_weight;
    float *discounts, *log_probs, *entropies, *advantages, *returns, *weights; /* room */
    struct a3c_numbers *numbers;
};

void a3c_loss_on(trp_queue *queue, const struct a3c_loss_job *job);

TRP_MUST_USE trp_status a3c_updater_create(const trp_agent *agent, const trp_env_spec *env,
                                           const trp_updater_options *options, trp_updater **out);

#endif

/* Behaviour cloning: an agent whose update is one step of its policy on what was done. Sources are
 * named in include/troupe/bc.h. All of it is put on the learner's queue. */
#include <stdlib.h>
#include <string.h>

#include <troupe/bc.h>
#include "cloning.h"
#include "control_learner.h"
#include "core/alloc.h"
#include "limits.h"
#include "options.h"
#include "offline.h"

_Static_assert(sizeof(trp_bc_options) <= TRP_AGENT_OPTION_BYTES, "the options fit an agent");

#define ROW(member, ...)                                                                           \
    {                                                                                              \
        TRP_OPTION(trp_bc_options, member), __VA_ARGS__                                            \
    }

static const trp_option bc_rows[] = {
    ROW(hidden, .fallback = "256,256", .max = 65536, .fixed = true,
        .help = "widths of the hidden layers; an empty list: none"),
    ROW(activation, .fallback = "relu", .choices = option_activations, .fixed = true,
        .help = "of the hidden layers"),
    ROW(precision, .choices = option_precisions,
        .help = "bf16: factors of products are rounded to bfloat16, which may be faster"),
    ROW(learning_rate, .fallback = "1e-4", .max = 1e6, .help = "of Adam"),
    ROW(batch_size, .fallback = "256", .min = 1, .max = BATCH_MAX, .unit = "items",
        .help = "of an update"),
};

static const trp_option_table bc_option_table = TRP_OPTION_TABLE("bc", bc_rows, trp_bc_options);

const trp_option_table *trp_bc_option_table(void)
{
    return &bc_option_table;
}

static trp_bc_options bc_options(const trp_agent *agent)
{
    trp_bc_options options;
    memcpy(&options, agent->options.bytes, sizeof options);
    return options;
}

static struct control_agent bc_parts(const trp_bc_options *options)
{
    return offline_parts(&(struct offline){.who = "bc",
                                           .hidden = options->hidden,
                                           .activation = options->activation,
                                           .precision = options->precision,
                                           .discount = 1});
}

/* ---- the update ------------------------------------------------------------------------------ */

struct bc_updater {
    struct control_learner learner;
    struct cloning_numbers turns[2]; /* of the last step and the one before, on the host */
    /* Of the learner's room: */
    float *said[2];   /* [rows][size]: mean and log_std; gradients afterwards */
    float *log_probs; /* [rows] */
    struct cloning_numbers *numbers;
};

static trp_status bc_collect(trp_updater *base, const trp_update *update)
{
    const struct bc_updater *updater = (const struct bc_updater *)base;
    const struct cloning_numbers *numbers = &updater->turns[update->step % 2];
    trp_update_report(update, "loss", (double)numbers->loss);
    trp_update_report(update, "log_prob", (double)numbers->log_prob);
    return TRP_OK;
}

static trp_status bc_step(trp_updater *base, const trp_update *update)
{
    struct bc_updater *updater = (struct bc_updater *)base;
    struct control_batch *batch = &updater->learner.batch;
    TRP_TRY(control_learner_take(&updater->learner, update));
    trp_net_rows rows = control_learner_say(&updater->learner, update, CONTROL_PARAMS,
                                            batch->states, updater->said);
    TRP_TRY(cloning_learn(&updater->learner, update, &rows, updater->said, NULL, updater->log_probs,
                          NULL, updater->numbers));
    trp_queue_copy(update->queue, &updater->turns[update->step % 2], updater->numbers,
                   sizeof *updater->numbers);
    return base->impl->collect ? TRP_OK : bc_collect(base, update);
}

static void bc_init(trp_updater *base, trp_rng *rng, float *const *vectors)
{
    control_learner_init((const struct control_learner *)base, rng, vectors);
}

static void bc_destroy(trp_updater *base)
{
    struct bc_updater *updater = (struct bc_updater *)base;
    control_learner_cleanup(&updater->learner);
    free(updater);
}

static trp_status make_clone(struct bc_updater *updater, const trp_bc_options *options,
                             const trp_env_spec *env, const trp_updater_options *place)
{
    static const trp_updater_impl impl = {
        .init = bc_init, .step = bc_step, .collect = bc_collect, .destroy = bc_destroy};
    struct control_learner *learner = &updater->learner;
    TRP_TRY(control_learner_create(
        learner, &impl,
        &(struct control_learner_options){.agent = bc_parts(options),
                                          .batch_size = options->batch_size,
                                          .learning_rate = options->learning_rate},
        env, place));
    size_t floats = learner->base.sources[0].batch_size * sizeof(float);
    for (size_t i = 0; i < 2; i++)
        TRP_TRY(room_add(&learner->room, floats * learner->batch.box.size, &updater->said[i]));
    TRP_TRY(room_add(&learner->room, floats, &updater->log_probs));
    return room_add(&learner->room, sizeof *updater->numbers, &updater->numbers);
}

static trp_status bc_updater_create(const trp_agent *agent, const trp_env_spec *env,
                                    const trp_updater_options *place, trp_updater **out)
{
    *out = NULL;
    trp_bc_options options = bc_options(agent);
    struct bc_updater *updater = xcalloc(1, sizeof *updater);
    trp_status status = make_clone(updater, &options, env, place);
    if (status != TRP_OK) {
        trp_updater_destroy(&updater->learner.base);
        return status;
    }
    *out = &updater->learner.base;
    return TRP_OK;
}

/* ---- the agent ------------------------------------------------------------------------------- */

static trp_status bc_check(const trp_agent *agent, const trp_env_spec *env)
{
    trp_bc_options options = bc_options(agent);
    struct control_agent parts = bc_parts(&options);
    return control_agent_check(&parts, env);
}

static trp_status bc_tables(const trp_agent *agent, const trp_env_spec *env,
                            trp_agent_table_list *list)
{
    trp_bc_options options = bc_options(agent);
    struct control_agent parts = bc_parts(&options);
    return transitions_tables(&parts.transitions, env, NULL, list);
}

static trp_status bc_policy(const trp_agent *agent, const trp_env_spec *env,
                            const trp_policy_options *place, trp_policy **out)
{
    trp_bc_options options = bc_options(agent);
    struct control_agent parts = bc_parts(&options);
    return control_policy_create(&parts.control, env, place, out);
}

static trp_status bc_adder(const trp_agent *agent, const trp_adder_options *options,
                           trp_adder **out)
{
    trp_bc_options bc = bc_options(agent);
    struct control_agent parts = bc_parts(&bc);
    return transitions_adder(&parts.transitions, options, out);
}

static const trp_agent_impl bc_impl = {
    .name = "bc",
    .options = &bc_option_table,
    .check = bc_check,
    .tables = bc_tables,
    .policy = bc_policy,
    .adder = bc_adder,
    .updater = bc_updater_create,
};

trp_agent trp_bc(const trp_bc_options *options)
{
    return trp_agent_make(&bc_impl, options);
}

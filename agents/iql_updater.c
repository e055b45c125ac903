/* The update of IQL: values of states, then the policy, weighted by the advantages over these as
 * they are now, then both critics, then their targets. All of it is put on the learner's queue. */
#include "iql.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "cloning.h"
#include "control_learner.h"
#include "core/alloc.h"
#include "critic_loss.h"
#include "options.h"

/* Behind those of a learner without a target policy. */
enum { VALUES = CONTROL_TARGET_PARAMS };

/* Of a weight, as in the authors' code. */
static const float weight_most = 100;

struct iql_numbers {
    struct critic_numbers critics;
    struct cloning_numbers policy;
    trp_loss value;
};

struct iql_updater {
    struct control_learner learner;
    trp_iql_options options;
    trp_net_spec value_spec;
    trp_net *value_net;
    trp_net_tensor value_tensors[TRP_NET_TENSORS_MAX];
    struct iql_numbers turns[2]; /* of the last step and the one before, on the host */
    /* Of the learner's room: */
    float *said[2];   /* [rows][size]: mean and log_std; gradients afterwards */
    float *log_probs; /* [rows], as what follows */
    float *least;     /* the lesser target critic's values of what was done */
    float *values;    /* of states; derivatives afterwards */
    float *weights;   /* of what was done */
    float *targets;   /* of critics */
    struct iql_numbers *numbers;
};

/* ---- kernels: pointers are the device's ------------------------------------------------------ */

static void expectile_on(trp_queue *queue, const struct expectile_arguments *job)
{
    static const trp_kernel kernel = {.name = "iql.expectile", .run = expectile_run};
    size_t floats = job->rows * sizeof(float);
    trp_operand operands[] = {
        {offsetof(struct expectile_arguments, q), floats, TRP_READ},
        {offsetof(struct expectile_arguments, q2), floats, TRP_READ},
        {offsetof(struct expectile_arguments, least), floats, TRP_WRITE},
        {offsetof(struct expectile_arguments, values), floats, TRP_READ | TRP_WRITE},
        {offsetof(struct expectile_arguments, loss), sizeof *job->loss, TRP_WRITE},
    };
    trp_queue_run(queue, &kernel, job, sizeof *job, operands, 5);
}

/* ---- phases -------------------------------------------------------------------------------- */

static trp_net_rows value_states(struct iql_updater *updater, const trp_update *update,
                                 const float *states)
{
    trp_net_rows rows = {.rows = updater->learner.batch.rows,
                         .queue = update->queue,
                         .inputs = {states},
                         .outputs = {updater->values}};
    trp_net_forward(updater->value_net, update->vectors[VALUES], &rows);
    return rows;
}

static trp_status learn_state_values(struct iql_updater *updater, const trp_update *update)
{
    struct control_learner *learner = &updater->learner;
    const struct control_batch *batch = &learner->batch;
    control_learner_judge(learner, update, CONTROL_TARGET_CRITICS, batch->states, batch->actions);
    trp_net_rows rows = value_states(updater, update, batch->states);
    expectile_on(update->queue,
                 &(struct expectile_arguments){.rows = batch->rows,
                                               .expectile = updater->options.expectile,
                                               .q = learner->critics.values[0],
                                               .q2 = learner->critics.values[1],
                                               .least = updater->least,
                                               .values = updater->values,
                                               .loss = &updater->numbers->value});
    trp_update_backward(update, VALUES, 0, updater->value_net, &rows,
                        &(trp_net_grads){.outputs = {updater->values}});
    trp_update_watch(update, VALUES, &updater->numbers->value.loss, "value loss");
    return trp_update_apply(update, VALUES);
}

static trp_status clone_better_actions(struct iql_updater *updater, const trp_update *update)
{
    struct control_learner *learner = &updater->learner;
    const struct control_batch *batch = &learner->batch;
    value_states(updater, update, batch->states);
    advantage_weights_on(update->queue, &(struct advantage_weights_arguments){
                                            .batch = {.rows = batch->rows,
                                                      .samples = 1,
                                                      .q = updater->least,
                                                      .policy_q = updater->values,
                                                      .temperature = 1 / updater->options.beta,
                                                      .most = weight_most},
                                            .weights = updater->weights});
    trp_net_rows rows =
        control_learner_say(learner, update, CONTROL_PARAMS, batch->states, updater->said);
    return cloning_learn(learner, update, &rows, updater->said, updater->weights,
                         updater->log_probs, NULL, &updater->numbers->policy);
}

static trp_status learn_critics_of_values(struct iql_updater *updater, const trp_update *update)
{
    struct control_batch *batch = &updater->learner.batch;
    value_states(updater, update, batch->next_states);
    critic_targets_on(update->queue,
                      &(struct critic_targets_arguments){.batch = {.rows = batch->rows,
                                                                   .rewards = batch->rewards,
                                                                   .discounts = batch->discounts,
                                                                   .next_q = updater->values},
                                                         .targets = updater->targets});
    return critics_learn(&updater->learner.critics, update, CONTROL_CRITICS, batch,
                         updater->targets, &updater->numbers->critics);
}

static trp_status iql_collect(trp_updater *base, const trp_update *update)
{
    const struct iql_updater *updater = (const struct iql_updater *)base;
    const struct iql_numbers *numbers = &updater->turns[update->step % 2];
    trp_update_report(update, "critic_loss", (double)numbers->critics.loss);
    trp_update_report(update, "mean_q", (double)numbers->critics.mean_q);
    trp_update_report(update, "value_loss", (double)numbers->value.loss);
    trp_update_report(update, "policy_loss", (double)numbers->policy.loss);
    return TRP_OK;
}

static trp_status iql_step(trp_updater *base, const trp_update *update)
{
    struct iql_updater *updater = (struct iql_updater *)base;
    struct target_rule target = {.rate = updater->options.target_rate};
    TRP_TRY(control_learner_take(&updater->learner, update));
    TRP_TRY(learn_state_values(updater, update));
    TRP_TRY(clone_better_actions(updater, update));
    TRP_TRY(learn_critics_of_values(updater, update));
    control_learner_target(&updater->learner, &target, update);
    trp_queue_copy(update->queue, &updater->turns[update->step % 2], updater->numbers,
                   sizeof *updater->numbers);
    return base->impl->collect ? TRP_OK : iql_collect(base, update);
}

/* ---- life ---------------------------------------------------------------------------------- */

static void iql_init(trp_updater *base, trp_rng *rng, float *const *vectors)
{
    const struct iql_updater *updater = (const struct iql_updater *)base;
    control_learner_init(&updater->learner, rng, vectors);
    trp_net_init(&updater->value_spec, rng, vectors[VALUES]);
}

static void iql_destroy(trp_updater *base)
{
    struct iql_updater *updater = (struct iql_updater *)base;
    trp_net_destroy(updater->value_net);
    control_learner_cleanup(&updater->learner);
    free(updater);
}

static trp_net_spec state_values(const struct control_agent *parts, const trp_env_spec *env)
{
    trp_net_spec spec;
    memset(&spec, 0, sizeof spec);
    uint32_t state = torso_add_input(&spec, env);
    uint32_t last = torso_add_hidden(&spec, state, &parts->control.hidden, "value");
    trp_net_output(&spec, trp_net_add(&spec, (trp_layer){.kind = TRP_LINEAR,
                                                         .name = "value.head",
                                                         .from = {last},
                                                         .size = 1}));
    return spec;
}

static trp_status make_values(struct iql_updater *updater, const struct control_agent *parts,
                              const trp_env_spec *env, uint32_t threads)
{
    trp_updater *base = &updater->learner.base;
    updater->value_spec = state_values(parts, env);
    base->vectors[VALUES] = (trp_vector_spec){
        .name = "values",
        .count = trp_net_param_count(&updater->value_spec),
        .learned = true,
        .optimizer = {.learning_rate = option_itself((double)updater->options.learning_rate)},
        .tensors = updater->value_tensors,
        .tensor_count = trp_net_tensors(&updater->value_spec, updater->value_tensors)};
    base->vector_count = VALUES + 1;
    return trp_net_create(&updater->value_net,
                          &(trp_net_options){.spec = &updater->value_spec,
                                             .batch = base->sources[0].batch_size,
                                             .device = base->device,
                                             .threads = threads,
                                             .precision = parts->control.precision});
}

static trp_status make_implicit(struct iql_updater *updater, const trp_env_spec *env,
                                const trp_updater_options *place)
{
    static const trp_updater_impl impl = {
        .init = iql_init, .step = iql_step, .collect = iql_collect, .destroy = iql_destroy};
    const trp_iql_options *options = &updater->options;
    struct control_agent parts = iql_parts(options);
    struct control_learner *learner = &updater->learner;
    TRP_TRY(control_learner_create(
        learner, &impl,
        &(struct control_learner_options){.agent = parts,
                                          .one_policy = true,
                                          .batch_size = options->batch_size,
                                          .learning_rate = options->learning_rate,
                                          .critic_learning_rate = options->learning_rate},
        env, place));
    size_t floats = learner->base.sources[0].batch_size * sizeof(float);
    const struct {
        void *memory; /* of a pointer */
        size_t bytes;
    } pieces[] = {{&updater->said[0], floats * learner->batch.box.size},
                  {&updater->said[1], floats * learner->batch.box.size},
                  {&updater->log_probs, floats},
                  {&updater->least, floats},
                  {&updater->values, floats},
                  {&updater->weights, floats},
                  {&updater->targets, floats},
                  {&updater->numbers, sizeof *updater->numbers}};
    for (size_t i = 0; i < sizeof pieces / sizeof *pieces; i++)
        TRP_TRY(room_add(&learner->room, pieces[i].bytes, pieces[i].memory));
    return make_values(updater, &parts, env, place->threads);
}

trp_status iql_updater_create(const trp_agent *agent, const trp_env_spec *env,
                              const trp_updater_options *options, trp_updater **out)
{
    *out = NULL;
    struct iql_updater *updater = xcalloc(1, sizeof *updater);
    updater->options = iql_options(agent);
    trp_status status = make_implicit(updater, env, options);
    if (status != TRP_OK) {
        trp_updater_destroy(&updater->learner.base);
        return status;
    }
    *out = &updater->learner.base;
    return TRP_OK;
}

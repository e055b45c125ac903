/* A learner of one's own that ordinary actors pull from: DQN's actors fill the table, and a node
 * written here samples it, learns, and publishes. Actors and evaluator cannot tell it from the
 * built-in one, as it serves troupe.Params and says so (trp_node_options.serves).
 *
 *     troupe launch own_learner.c -- */
#include <stdlib.h>
#include <string.h>

#include <troupe/troupe.h>

enum { BATCH = 64, ACTIONS = 2, TARGET_PERIOD = 200, PUBLISH_EVERY = 10, WAIT_MS = 500 };

/* The network of DQN's policy, whose parameters the actors expect: four observations, two actions,
 * as many hidden units as the agent's options say. */
static trp_net_spec net_spec(void)
{
    return trp_mlp(&(trp_mlp_options){.inputs = 4, .outputs = ACTIONS, .hidden = {64, 64}});
}

static const float discount = 0.99F; /* as the agent has it */

struct learner {
    trp_sampler *sampler;
    trp_columns columns; /* of its batches */
    trp_net *net;
    trp_publisher *publisher;
    size_t count;
    float *params, *target, *grads, *state[TRP_OPTIMIZER_STATES_MAX];
};

static trp_status learner_open(struct learner *learner, trp_channel *replay)
{
    const trp_env_spec *env;
    TRP_TRY(trp_env_find("CartPole-v1", &env));
    trp_net_spec spec = net_spec();
    TRP_TRY(trp_net_create(&learner->net, &(trp_net_options){.spec = &spec, .batch = BATCH}));
    trp_nstep_columns(env, NULL, &learner->columns);
    return trp_sampler_create(&learner->sampler, replay,
                              &(trp_sampler_options){.table = "transitions",
                                                     .columns = learner->columns.specs,
                                                     .column_count = learner->columns.count,
                                                     .batch_size = BATCH,
                                                     .prefetch = 2,
                                                     .limiter_timeout_ms = -1});
}

/* The column of that name of a batch. */
static const void *column(const struct learner *learner, const trp_batch *batch, const char *name)
{
    return batch->columns[trp_columns_find(&learner->columns, name)];
}

static void learner_init(struct learner *learner, uint64_t seed)
{
    trp_rng rng;
    trp_rng_init(&rng, seed, 0);
    trp_net_spec spec = net_spec();
    learner->count = trp_net_param_count(&spec);
    float **vectors[] = {&learner->params, &learner->target, &learner->grads, &learner->state[0],
                         &learner->state[1]};
    for (size_t i = 0; i < sizeof vectors / sizeof vectors[0]; i++)
        *vectors[i] = trp_floats_create(learner->count);
    trp_net_init(&spec, &rng, learner->params);
    learner->publisher = trp_publisher_create(learner->count);
    trp_net_tensor tensors[TRP_NET_TENSORS_MAX];
    char *layout = trp_net_layout(tensors, trp_net_tensors(&spec, tensors), 0);
    trp_publisher_describe(learner->publisher, layout); /* actors of another network will say so */
    free(layout);
    trp_publisher_publish(learner->publisher, learner->params, 1, 0);
}

static void learner_cleanup(struct learner *learner)
{
    trp_sampler_destroy(learner->sampler);
    trp_columns_cleanup(&learner->columns);
    trp_net_destroy(learner->net);
    trp_publisher_destroy(learner->publisher);
    float *vectors[] = {learner->params, learner->target, learner->grads, learner->state[0],
                        learner->state[1]};
    for (size_t i = 0; i < sizeof vectors / sizeof vectors[0]; i++)
        trp_floats_destroy(vectors[i]);
}

static trp_net_rows learner_forward(struct learner *learner, const float *params,
                                    const trp_batch *batch, const char *name, float *q)
{
    trp_net_rows rows = {
        .rows = batch->rows, .inputs = {column(learner, batch, name)}, .outputs = {q}};
    trp_net_forward(learner->net, params, &rows);
    return rows;
}

static trp_status learner_step(struct learner *learner, uint64_t step, const trp_batch *batch)
{
    static const trp_optimizer adam = {.learning_rate = 1e-3};
    float discounts[BATCH], targets[BATCH], errors[BATCH];
    float q[BATCH * ACTIONS], next_online[BATCH * ACTIONS], next_target[BATCH * ACTIONS];
    const float *given = column(learner, batch, "discount");
    for (uint32_t row = 0; row < batch->rows; row++)
        discounts[row] = discount * given[row];
    trp_q_batch rows = {.rows = batch->rows,
                        .actions = ACTIONS,
                        .taken = column(learner, batch, "action"),
                        .rewards = column(learner, batch, "reward"),
                        .discounts = discounts};
    memset(learner->grads, 0, learner->count * sizeof(float));
    if ((step - 1) % TARGET_PERIOD == 0)
        memcpy(learner->target, learner->params, learner->count * sizeof(float));
    learner_forward(learner, learner->target, batch, "next_observation", next_target);
    learner_forward(learner, learner->params, batch, "next_observation", next_online);
    trp_net_rows now = learner_forward(learner, learner->params, batch, "observation", q);
    trp_double_q_targets(&rows, next_online, next_target, targets);
    trp_q_loss(&rows, 1, q, targets, errors, q);
    trp_net_backward(learner->net, learner->params, &now,
                     &(trp_net_grads){.outputs = {q}, .params = learner->grads});
    trp_optimizer_step(&adam, step, 1, learner->params, learner->grads, learner->state, 0,
                       learner->count);
    if (step % PUBLISH_EVERY == 0)
        trp_publisher_publish(learner->publisher, learner->params, 1 + step / PUBLISH_EVERY, step);
    return TRP_OK;
}

static trp_status learner_learn(struct learner *learner, trp_context *context)
{
    for (uint64_t step = 1; !trp_stop_requested(trp_context_stop(context));) {
        trp_batch batch;
        trp_status status = trp_sampler_next(learner->sampler, &batch, WAIT_MS);
        if (status == TRP_DEADLINE_EXCEEDED || status == TRP_UNAVAILABLE)
            continue; /* the table holds back, or its server is away: look at the stop */
        TRP_TRY(status);
        TRP_TRY(learner_step(learner, step, &batch));
        trp_context_report(context, "learner_steps", (double)step++);
    }
    return TRP_OK;
}

static trp_status learner_run(trp_context *context, const void *arg)
{
    const trp_node *replay = arg;
    struct learner learner = {0};
    trp_channel *channel;
    TRP_TRY(trp_context_channel(context, *replay, 0, &channel));
    learner_init(&learner, trp_context_seed(context));
    trp_status status = trp_context_serve(context, trp_publisher_service(learner.publisher), NULL);
    if (status == TRP_OK)
        status = learner_open(&learner, channel);
    if (status == TRP_OK)
        status = learner_learn(&learner, context);
    if (trp_context_withdraw(context, status)) /* nobody is inside the publisher any more */
        learner_cleanup(&learner);
    return status;
}

static trp_status build(trp_program *program, int argc, char **argv)
{
    TRP_TRY(trp_arguments_check(argc, argv, 0));
    trp_agent agent = trp_dqn(&(trp_dqn_options){
        .hidden = {64, 64}, .n_step = 3, .priority_exponent = -1, .samples_per_insert = 32});
    trp_actor_options acting = {.agent = &agent, .env = "CartPole-v1", .episodes = 50};
    acting.replay = trp_add_replay(program, "replay", &(trp_replay_options){.agent = &agent});
    acting.params = trp_add_node(
        program, "learner",
        &(trp_node_options){
            .run = learner_run,
            .arg = &acting.replay,
            .arg_size = sizeof acting.replay,
            .uses = &acting.replay,
            .use_count = 1,
            .serves = (const ProtobufCServiceDescriptor *const[]){trp_params_descriptor()},
            .serve_count = 1});
    trp_add_actors(program, "actor", 2, &acting);
    acting.target_return = 100;
    trp_add_evaluator(program, "evaluator", &acting);
    return TRP_OK;
}

int main(int argc, char **argv)
{
    return trp_main(argc, argv, "own_learner", build);
}

/* The temporal difference loss of DQN. One function does the rows of one thread; a step is three
 * forward passes, that function and a backward pass, all over the same rows, so that several
 * threads meet only at its end. */
#include <troupe/nn.h>

#include <assert.h>
#include <math.h>
#include <string.h>

#include "net.h"

struct q_loss {
    float huber_delta;
    bool single_q;
    uint32_t outputs;
    float scale; /* of a row in the mean */
    const trp_q_batch *batch;
    const float *q, *next_online, *next_target; /* [rows][outputs] */
    const float *targets;                       /* instead of the next_ ones */
    float *td_errors, *dq;
};

uint32_t trp_argmax(const float *values, uint32_t count)
{
    uint32_t best = 0;
    float best_value = -INFINITY;
    for (uint32_t i = 0; i < count; i++) {
        bool better = values[i] > best_value;
        best = better ? i : best;
        best_value = better ? values[i] : best_value;
    }
    return best;
}

static float q_target(const struct q_loss *loss, size_t row)
{
    if (loss->targets)
        return loss->targets[row];
    const float *next = loss->next_target + row * loss->outputs;
    const float *chooser = loss->single_q ? next : loss->next_online + row * loss->outputs;
    float next_value = next[trp_argmax(chooser, loss->outputs)];
    return loss->batch->rewards[row] + loss->batch->discounts[row] * next_value;
}

static struct q_sums q_loss_rows(const struct q_loss *loss, struct rows rows)
{
    const trp_q_batch *batch = loss->batch;
    struct q_sums sums = {0, 0};
    for (size_t row = rows.from; row < rows.to; row++) {
        uint32_t action = (uint32_t)batch->actions[row];
        assert(action < loss->outputs);
        float chosen = loss->q[row * loss->outputs + action];
        float error = q_target(loss, row) - chosen;
        float delta = loss->huber_delta, size = fabsf(error);
        float weight = batch->weights ? batch->weights[row] : 1;
        float huber = size <= delta ? 0.5f * error * error : delta * (size - 0.5f * delta);
        float slope = error > delta ? delta : error < -delta ? -delta : error;
        float *dq = loss->dq + row * loss->outputs;
        for (uint32_t i = 0; i < loss->outputs; i++)
            dq[i] = 0;
        dq[action] = -weight * loss->scale * slope;
        loss->td_errors[row] = error;
        sums.loss += (double)(weight * huber);
        sums.q += (double)chosen;
    }
    return sums;
}

static struct q_loss q_loss_of(const trp_q_options *options, const trp_q_batch *batch,
                               uint32_t outputs)
{
    return (struct q_loss){
        .huber_delta = options && options->huber_delta > 0 ? options->huber_delta : 1,
        .single_q = options && options->single_q,
        .outputs = outputs,
        .scale = 1.0f / (float)batch->rows,
        .batch = batch,
    };
}

static trp_q_result q_mean(struct q_sums sums, uint32_t rows)
{
    return (trp_q_result){.loss = (float)(sums.loss / rows), .mean_q = (float)(sums.q / rows)};
}

trp_q_result trp_q_loss(const trp_q_options *options, const trp_q_batch *batch, uint32_t outputs,
                        const float *q, const float *next_online, const float *next_target,
                        float *td_errors, float *dq)
{
    assert(batch->rows > 0);
    struct q_loss loss = q_loss_of(options, batch, outputs);
    loss.q = q;
    loss.next_online = next_online;
    loss.next_target = next_target;
    loss.td_errors = td_errors;
    loss.dq = dq;
    return q_mean(q_loss_rows(&loss, (struct rows){0, batch->rows}), batch->rows);
}

trp_q_result trp_q_loss_to(const trp_q_options *options, const trp_q_batch *batch, uint32_t outputs,
                           const float *q, const float *targets, float *td_errors, float *dq)
{
    assert(batch->rows > 0);
    struct q_loss loss = q_loss_of(options, batch, outputs);
    loss.q = q;
    loss.targets = targets;
    loss.td_errors = td_errors;
    loss.dq = dq;
    return q_mean(q_loss_rows(&loss, (struct rows){0, batch->rows}), batch->rows);
}

struct q_step {
    trp_net *net;
    struct q_loss loss;
    struct pass target, next, online; /* the forward passes; the last one goes back, too */
    struct q_sums *sums;              /* [threads] */
};

static void q_step_work(void *arg, uint32_t part)
{
    struct q_step *step = arg;
    trp_net *net = step->net;
    const trp_q_batch *batch = step->loss.batch;
    struct rows rows = net_part_rows(net, batch->rows, part);
    net_forward_part(net, &step->target, rows, part);
    if (!step->loss.single_q)
        net_forward_part(net, &step->next, rows, part);
    net_forward_part(net, &step->online, rows, part);
    step->sums[part] = q_loss_rows(&step->loss, rows);
    net_backward_part(net, &step->online, rows, part);
}

static struct pass q_pass(const float *params, const void *states, float *q)
{
    struct pass pass = {.params = params, .steps = 1};
    pass.external[external_index(PLACE_INPUT, 0)] = (void *)(uintptr_t)states; /* only read */
    pass.external[external_index(PLACE_OUTPUT, 0)] = q;
    return pass;
}

trp_q_result trp_q_step(trp_net *net, const trp_q_options *options, const float *params,
                        const float *target_params, const trp_q_batch *batch, float *grads,
                        float *td_errors)
{
    assert(net->backend->element_bytes == sizeof(float));
    assert(batch->rows > 0);
    assert(batch->rows <= net->batch);
    assert(net->program.spec.output_count == 1);
    uint32_t outputs = net->program.graph.values[net->program.spec.outputs[0]].columns;
    struct q_step step = {
        .net = net,
        .loss = q_loss_of(options, batch, outputs),
        .target = q_pass(target_params, batch->next_states, net->q_target),
        .next = q_pass(params, batch->next_states, net->q_online),
        .online = q_pass(params, batch->states, net->q),
        .sums = net->q_sums,
    };
    step.online.grads = grads;
    step.online.external[external_index(PLACE_OUTPUT_GRAD, 0)] = net->q;
    step.loss.q = step.loss.dq = net->q;
    step.loss.next_online = net->q_online;
    step.loss.next_target = net->q_target;
    step.loss.td_errors = td_errors;
    net->rows = batch->rows;
    if (net->team)
        team_run(net->team, q_step_work, &step);
    else
        q_step_work(&step, 0);
    if (net->team)
        net_reduce(net, batch->rows, &step.online);
    struct q_sums sums = {0, 0};
    for (uint32_t i = 0; i < net->threads; i++) {
        sums.loss += net->q_sums[i].loss;
        sums.q += net->q_sums[i].q;
    }
    return q_mean(sums, batch->rows);
}

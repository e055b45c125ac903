#include "conservative.h"

#include "samples.h"
#include "tile.h"

enum { KINDS = 3 };

uint32_t conservative_rows(uint32_t samples)
{
    return KINDS * samples;
}

trp_status conservative_create(struct conservative *conservative, const struct critics *critics,
                               const trp_env_spec *env, uint32_t rows, struct room *room)
{
    size_t floats = rows * sizeof(float), all = floats * KINDS * conservative->samples;
    conservative->state_size = (uint32_t)(trp_tensor_bytes(&env->observations[0]) / sizeof(float));
    const struct {
        void *memory; /* of a pointer */
        size_t bytes;
    } pieces[] = {{&conservative->mean, floats * critics->size},
                  {&conservative->log_std, floats * critics->size},
                  {&conservative->states, all * conservative->state_size},
                  {&conservative->actions, all * critics->size},
                  {&conservative->log_probs, all},
                  {&conservative->numbers, sizeof *conservative->numbers}};
    for (size_t i = 0; i < sizeof pieces / sizeof *pieces; i++)
        TRP_TRY(room_add(room, pieces[i].bytes, pieces[i].memory));
    for (uint32_t i = 0; i < critics->count; i++)
        TRP_TRY(room_add(room, floats, &conservative->taken[i]));
    return TRP_OK;
}

/* ---- samples --------------------------------------------------------------------------------- */

static void uniform_on(trp_queue *queue, const struct uniform_arguments *job)
{
    static const trp_kernel kernel = {.name = "conservative.uniform", .run = uniform_run};
    size_t drawn = ((size_t)(job->rows - 1) * job->stride + job->count) * sizeof(float);
    trp_operand operands[] = {
        {offsetof(struct uniform_arguments, actions), drawn * job->size, TRP_READ | TRP_WRITE},
        {offsetof(struct uniform_arguments, log_probs), drawn, TRP_READ | TRP_WRITE},
        {offsetof(struct uniform_arguments, draw.seed), sizeof *job->draw.seed, TRP_READ},
    };
    trp_queue_run(queue, &kernel, job, sizeof *job, operands, 3);
}

/* What the policy draws at `states`, as the samples of one kind. */
static void draw_policy(const struct conservative *to, const struct control_batch *batch,
                        const trp_update *update, const struct conservative_policy *policy,
                        const float *states, uint32_t kind)
{
    trp_net_rows rows = {.rows = batch->rows,
                         .queue = update->queue,
                         .inputs = {states},
                         .outputs = {to->mean, to->log_std}};
    size_t first = (size_t)kind * to->samples;
    trp_net_forward(policy->net, policy->params, &rows);
    samples_on(update->queue,
               &(struct samples_arguments){.kind = CONTROL_SQUASHED,
                                           .rows = batch->rows,
                                           .size = batch->box.size,
                                           .count = to->samples,
                                           .stride = KINDS * to->samples,
                                           .mean = to->mean,
                                           .log_std = to->log_std,
                                           .draw = {batch->seed, policy->draws + kind},
                                           .actions = to->actions + first * batch->box.size,
                                           .log_probs = to->log_probs + first});
}

static void draw_all(const struct conservative *to, const struct control_batch *batch,
                     const trp_update *update, const struct conservative_policy *policy)
{
    uint32_t all = KINDS * to->samples;
    tile_on(update->queue, &(struct tile){batch->rows, all, to->state_size}, batch->states,
            to->states);
    uniform_on(update->queue, &(struct uniform_arguments){.rows = batch->rows,
                                                          .size = batch->box.size,
                                                          .count = to->samples,
                                                          .stride = all,
                                                          .draw = {batch->seed, policy->draws},
                                                          .actions = to->actions,
                                                          .log_probs = to->log_probs});
    draw_policy(to, batch, update, policy, batch->states, 1);
    draw_policy(to, batch, update, policy, batch->next_states, 2);
}

/* ---- the loss -------------------------------------------------------------------------------- */

#define AT(member) offsetof(struct gap_arguments, member)

static void gaps_on(trp_queue *queue, const struct gap_arguments *job)
{
    static const trp_kernel kernel = {.name = "conservative.gap", .run = gap_run};
    size_t floats = job->batch.rows * sizeof(float), all = floats * job->batch.samples;
    trp_operand operands[3 + 2 * CRITICS_MAX] = {
        {AT(batch.log_probs), all, TRP_READ},
        {AT(batch.weights), floats, TRP_READ},
        {AT(numbers), sizeof *job->numbers, TRP_WRITE},
    };
    size_t used = 3;
    for (uint32_t i = 0; i < job->count; i++) {
        operands[used++] =
            (trp_operand){AT(sampled) + i * sizeof(float *), all, TRP_READ | TRP_WRITE};
        operands[used++] =
            (trp_operand){AT(taken) + i * sizeof(float *), floats, TRP_READ | TRP_WRITE};
    }
    trp_queue_run(queue, &kernel, job, sizeof *job, operands, used);
}

void conservative_add(const struct conservative *conservative, struct critics *critics,
                      const struct control_batch *batch, const trp_update *update, size_t vector,
                      const struct conservative_policy *policy)
{
    struct critics_pass done = {.queue = update->queue,
                                .params = update->vectors[vector],
                                .rows = batch->rows,
                                .states = batch->states,
                                .actions = batch->actions,
                                .values = conservative->taken};
    struct critics_pass sampled = {.queue = update->queue,
                                   .params = update->vectors[vector],
                                   .rows = batch->rows * KINDS * conservative->samples,
                                   .states = conservative->states,
                                   .actions = conservative->actions,
                                   .values = critics->values};
    struct gap_arguments job = {.batch = {.rows = batch->rows,
                                          .samples = KINDS * conservative->samples,
                                          .log_probs = conservative->log_probs,
                                          .weights = batch->weights,
                                          .scale = conservative->scale},
                                .count = critics->count,
                                .numbers = conservative->numbers};
    for (uint32_t i = 0; i < critics->count; i++) {
        job.sampled[i] = critics->values[i];
        job.taken[i] = conservative->taken[i];
    }
    draw_all(conservative, batch, update, policy);
    critics_forward(critics, &done);
    critics_forward(critics, &sampled);
    gaps_on(update->queue, &job);
    critics_backward(critics, &sampled, update->grads[vector]);
    /* A plan keeps one pass: that of what was done is made again, beside its derivatives. */
    done.values = critics->values;
    critics_forward(critics, &done);
    done.values = conservative->taken;
    critics_backward(critics, &done, update->grads[vector]);
}

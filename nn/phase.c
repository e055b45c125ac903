/* How phases of learning end, as kernels of a queue: the arithmetic is optimizer.c's. */
#include <troupe/optimizer.h>

#include <math.h>
#include <string.h>

struct measure {
    const float *grads, *watched;
    trp_phases *phases;
    size_t count;
    bool leaves_out;
};

static void refuse_phase(trp_phases *phases, const struct measure *job)
{
    bool watched = job->watched && !isfinite(*job->watched); /* it comes first, and says more */
    uint64_t place = watched ? job->count : 0;
    while (place < job->count && isfinite(job->grads[place]))
        place++;
    phases->refused = true;
    phases->place = place;
    phases->value = watched ? *job->watched : job->grads[place];
}

static void measure(void *arguments)
{
    const struct measure *job = arguments;
    trp_phases *phases = job->phases;
    phases->norm2 = trp_norm2(job->grads, 0, job->count);
    bool finite = isfinite(phases->norm2) && (!job->watched || isfinite(*job->watched));
    if (!finite && job->leaves_out)
        phases->left_out++;
    else if (!finite && !phases->refused)
        refuse_phase(phases, job);
    phases->skipped = !finite || phases->refused;
}

void trp_phase_measure(trp_queue *queue, const trp_optimizer *optimizer, const float *grads,
                       size_t count, const float *watched, trp_phases *phases)
{
    static const trp_kernel kernel = {"phase.measure", measure};
    struct measure job = {grads, watched, phases, count, optimizer->skip_not_finite};
    trp_operand operands[] = {
        {offsetof(struct measure, grads), count * sizeof *grads, TRP_READ},
        {offsetof(struct measure, watched), sizeof *watched, TRP_READ},
        {offsetof(struct measure, phases), sizeof *phases, TRP_READ | TRP_WRITE}};
    trp_queue_run(queue, &kernel, &job, sizeof job, operands, 3);
}

struct range_step {
    trp_optimizer optimizer;
    float *params; /* all from the range's first on */
    const float *grads;
    float *state[TRP_OPTIMIZER_STATES_MAX];
    const trp_phases *phases;
    size_t count;
};

static void step_range(void *arguments)
{
    const struct range_step *job = arguments;
    const trp_phases *phases = job->phases;
    if (phases->skipped)
        return;
    trp_optimizer_step(&job->optimizer, phases->steps + 1,
                       trp_clip_scale(phases->norm2, (float)job->optimizer.max_norm), job->params,
                       job->grads, job->state, 0, job->count);
}

void trp_phase_step(trp_queue *queue, const trp_optimizer *optimizer, float *params,
                    const float *grads, float *const *state, size_t lo, size_t hi,
                    const trp_phases *phases)
{
    static const trp_kernel kernel = {"phase.step", step_range};
    size_t bytes = (hi - lo) * sizeof *params, states = trp_optimizer_states(optimizer);
    struct range_step job = {.optimizer = *optimizer,
                             .params = params + lo,
                             .grads = grads + lo,
                             .phases = phases,
                             .count = hi - lo};
    trp_operand operands[3 + TRP_OPTIMIZER_STATES_MAX] = {
        {offsetof(struct range_step, params), bytes, TRP_READ | TRP_WRITE},
        {offsetof(struct range_step, grads), bytes, TRP_READ},
        {offsetof(struct range_step, phases), sizeof *phases, TRP_READ}};
    for (size_t i = 0; i < states; i++) {
        job.state[i] = state[i] + lo;
        operands[3 + i] = (trp_operand){offsetof(struct range_step, state) + i * sizeof *job.state,
                                        bytes, TRP_READ | TRP_WRITE};
    }
    trp_queue_run(queue, &kernel, &job, sizeof job, operands, 3 + states);
}

struct phase_end {
    trp_phases *phases;
};

static void end_phase(void *arguments)
{
    const struct phase_end *job = arguments;
    job->phases->steps += !job->phases->skipped;
}

void trp_phase_end(trp_queue *queue, float *grads, size_t count, trp_phases *phases)
{
    static const trp_kernel kernel = {"phase.end", end_phase};
    struct phase_end job = {phases};
    trp_operand operand = {offsetof(struct phase_end, phases), sizeof *phases,
                           TRP_READ | TRP_WRITE};
    trp_queue_run(queue, &kernel, &job, sizeof job, &operand, 1);
    trp_queue_zero(queue, grads, count * sizeof *grads);
}

struct polyak {
    float *target;
    const float *params;
    size_t count;
    float rate;
};

static void polyak(void *arguments)
{
    const struct polyak *job = arguments;
    float *target = job->target;
    for (size_t i = 0; i < job->count; i++)
        target[i] += job->rate * (job->params[i] - target[i]);
}

void trp_polyak_update(trp_queue *queue, float *target, const float *params, float rate,
                       size_t count)
{
    static const trp_kernel kernel = {"polyak", polyak};
    struct polyak job = {target, params, count, rate};
    trp_operand operands[] = {
        {offsetof(struct polyak, target), count * sizeof *target, TRP_READ | TRP_WRITE},
        {offsetof(struct polyak, params), count * sizeof *params, TRP_READ}};
    trp_queue_run(queue, &kernel, &job, sizeof job, operands, 2);
}

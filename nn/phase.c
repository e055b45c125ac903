/* How phases of learning end, as kernels of a queue: the arithmetic is optimizer.c's. */
#include <troupe/optimizer.h>

#include <math.h>
#include <string.h>

#include "core/team.h"
#include "phase.h"

static struct odd find_odd(const float *grads, size_t count)
{
    uint64_t place = 0;
    while (place < count && isfinite(grads[place]))
        place++;
    return (struct odd){place, place < count ? grads[place] : NAN};
}

static void measure(void *arguments)
{
    const struct phase_measure_arguments *job = arguments;
    trp_phases *phases = job->phases;
    struct odd odd = {0};
    phases->norm2 = trp_norm2(job->grads, 0, job->count);
    bool watched = job->watched && !isfinite(*job->watched); /* it comes first, and says more */
    bool finite = isfinite(phases->norm2) && !watched;
    if (watched)
        odd = (struct odd){job->count, *job->watched};
    else if (!finite && !job->leaves_out)
        odd = find_odd(job->grads, job->count);
    decide(phases, finite, job->leaves_out, odd);
}

void trp_phase_measure(trp_queue *queue, const trp_optimizer *optimizer, const float *grads,
                       size_t count, const float *watched, trp_phases *phases)
{
    static const trp_kernel kernel = {.name = "phase.measure", .run = measure};
    struct phase_measure_arguments job = {grads, watched, phases, count,
                                          optimizer->skip_not_finite};
    trp_operand operands[] = {
        {offsetof(struct phase_measure_arguments, grads), count * sizeof *grads, TRP_READ},
        {offsetof(struct phase_measure_arguments, watched), sizeof *watched, TRP_READ},
        {offsetof(struct phase_measure_arguments, phases), sizeof *phases, TRP_READ | TRP_WRITE}};
    trp_queue_run(queue, &kernel, &job, sizeof job, operands, 3);
}

/* ---- of several learners ------------------------------------------------------------------- */

enum { MEASURED_AT_ONCE = 4096 }; /* it is still in the cache */

static void measure_range(void *arguments)
{
    const struct measure_range_arguments *job = arguments;
    float divisor = *job->rows / job->batch_size;
    double norm2;
    memcpy(&norm2, &job->part->norm2, sizeof norm2);
    for (size_t lo = 0; lo < job->count; lo += MEASURED_AT_ONCE) {
        size_t hi = lo + MEASURED_AT_ONCE < job->count ? lo + MEASURED_AT_ONCE : job->count;
        for (size_t i = lo; i < hi; i++)
            job->grads[i] /= divisor;
        norm2 += trp_norm2(job->grads, lo, hi);
    }
    memcpy(&job->part->norm2, &norm2, sizeof norm2);
    if (isfinite(norm2) || job->part->place > 0)
        return;
    struct odd odd = find_odd(job->grads, job->count);
    job->part->place = odd.place < job->count ? job->first + odd.place + 1 : 0;
    memcpy(&job->part->value, &odd.value, sizeof odd.value);
}

void trp_phase_measure_range(trp_queue *queue, float *grads, size_t lo, size_t hi,
                             const float *rows, float batch_size, trp_phase_part *part)
{
    static const trp_kernel kernel = {.name = "phase.measure_range", .run = measure_range};
    struct measure_range_arguments job = {grads + lo, rows, part, lo, hi - lo, batch_size};
    trp_operand operands[] = {
        {offsetof(struct measure_range_arguments, grads), (hi - lo) * sizeof *grads,
         TRP_READ | TRP_WRITE},
        {offsetof(struct measure_range_arguments, rows), sizeof *rows, TRP_READ},
        {offsetof(struct measure_range_arguments, part), sizeof *part, TRP_READ | TRP_WRITE}};
    trp_queue_run(queue, &kernel, &job, sizeof job, operands, 3);
}

static void measure_parts(void *arguments)
{
    const struct measure_parts_arguments *job = arguments;
    trp_phases *phases = job->phases;
    struct odd odd = {job->count, NAN};
    phases->norm2 = 0;
    for (size_t i = 0; i < job->part_count; i++) {
        const trp_phase_part *part = &job->parts[i];
        double norm2;
        memcpy(&norm2, &part->norm2, sizeof norm2);
        phases->norm2 += norm2;
        if (part->place > 0 && part->place - 1 < odd.place) {
            odd.place = part->place - 1;
            memcpy(&odd.value, &part->value, sizeof odd.value);
        }
    }
    bool watched = job->watched && !isfinite(*job->watched);
    if (watched)
        odd = (struct odd){job->count, *job->watched};
    decide(phases, isfinite(phases->norm2) && !watched, job->leaves_out, odd);
}

void trp_phase_measure_parts(trp_queue *queue, const trp_optimizer *optimizer,
                             const trp_phase_part *parts, size_t part_count, size_t count,
                             const float *watched, trp_phases *phases)
{
    static const trp_kernel kernel = {.name = "phase.measure_parts", .run = measure_parts};
    struct measure_parts_arguments job = {parts,      watched, phases,
                                          part_count, count,   optimizer->skip_not_finite};
    trp_operand operands[] = {
        {offsetof(struct measure_parts_arguments, parts), part_count * sizeof *parts, TRP_READ},
        {offsetof(struct measure_parts_arguments, watched), sizeof *watched, TRP_READ},
        {offsetof(struct measure_parts_arguments, phases), sizeof *phases, TRP_READ | TRP_WRITE}};
    trp_queue_run(queue, &kernel, &job, sizeof job, operands, 3);
}

/* ---- steps --------------------------------------------------------------------------------- */

static void step_share(void *arguments, uint32_t share, uint32_t shares)
{
    const struct phase_step_arguments *job = arguments;
    const trp_phases *phases = job->phases;
    if (phases->skipped)
        return;
    trp_optimizer_step(&job->optimizer, phases->steps + 1,
                       trp_clip_scale(phases->norm2, (float)job->optimizer.max_norm), job->params,
                       job->grads, job->state, team_share(job->count, share, shares),
                       team_share(job->count, share + 1, shares));
}

static void step_whole(void *arguments)
{
    step_share(arguments, 0, 1);
}

void trp_phase_step(trp_queue *queue, const trp_optimizer *optimizer, float *params,
                    const float *grads, float *const *state, size_t lo, size_t hi,
                    trp_phases *phases)
{
    static const trp_kernel whole = {.name = "phase.step", .run = step_whole},
                            shared = {
                                .name = "phase.step", .run = step_whole, .run_share = step_share};
    bool sums = trp_optimizer_is_layerwise(optimizer); /* over all of the range */
    size_t bytes = (hi - lo) * sizeof *params, states = trp_optimizer_states(optimizer);
    struct phase_step_arguments job = {.optimizer = *optimizer,
                                       .params = params + lo,
                                       .grads = grads + lo,
                                       .phases = phases,
                                       .count = hi - lo};
    trp_operand operands[3 + TRP_OPTIMIZER_STATES_MAX] = {
        {offsetof(struct phase_step_arguments, params), bytes, TRP_READ | TRP_WRITE},
        {offsetof(struct phase_step_arguments, grads), bytes, TRP_READ},
        {offsetof(struct phase_step_arguments, phases), sizeof *phases,
         sums ? TRP_READ | TRP_WRITE : TRP_READ}};
    for (size_t i = 0; i < states; i++) {
        job.state[i] = state[i] + lo;
        operands[3 + i] =
            (trp_operand){offsetof(struct phase_step_arguments, state) + i * sizeof *job.state,
                          bytes, TRP_READ | TRP_WRITE};
    }
    trp_queue_run(queue, sums ? &whole : &shared, &job, sizeof job, operands, 3 + states);
}

static void end_phase(void *arguments)
{
    const struct phase_end_arguments *job = arguments;
    job->phases->steps += !job->phases->skipped;
}

void trp_phase_end(trp_queue *queue, float *grads, size_t count, trp_phases *phases)
{
    static const trp_kernel kernel = {.name = "phase.end", .run = end_phase};
    struct phase_end_arguments job = {phases};
    trp_operand operand = {offsetof(struct phase_end_arguments, phases), sizeof *phases,
                           TRP_READ | TRP_WRITE};
    trp_queue_run(queue, &kernel, &job, sizeof job, &operand, 1);
    trp_queue_zero(queue, grads, count * sizeof *grads);
}

static void polyak_share(void *arguments, uint32_t share, uint32_t shares)
{
    const struct polyak_arguments *job = arguments;
    float *target = job->target;
    size_t hi = team_share(job->count, share + 1, shares);
    for (size_t i = team_share(job->count, share, shares); i < hi; i++)
        target[i] += job->rate * (job->params[i] - target[i]);
}

static void polyak(void *arguments)
{
    polyak_share(arguments, 0, 1);
}

void trp_polyak_update(trp_queue *queue, float *target, const float *params, float rate,
                       size_t count)
{
    static const trp_kernel kernel = {.name = "polyak", .run = polyak, .run_share = polyak_share};
    struct polyak_arguments job = {target, params, count, rate};
    trp_operand operands[] = {
        {offsetof(struct polyak_arguments, target), count * sizeof *target, TRP_READ | TRP_WRITE},
        {offsetof(struct polyak_arguments, params), count * sizeof *params, TRP_READ}};
    trp_queue_run(queue, &kernel, &job, sizeof job, operands, 2);
}

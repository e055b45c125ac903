#include "mpo_steps.h"

#include <math.h>

#include <troupe/actor_critic_losses.h>
#include <troupe/policy_losses.h>
#include "control.h"
#include "tile.h"

size_t mpo_dual_count(const struct mpo_steps *steps)
{
    return MULTIPLIERS + 2 * (size_t)multiplier_count(steps);
}

void mpo_duals_init(const struct mpo_steps *steps, float temperature, float by_means,
                    float by_deviations, float *duals)
{
    duals[TEMPERATURE] = duals[PENALTY_TEMPERATURE] = temperature;
    for (size_t i = 0; i < multiplier_count(steps); i++) {
        duals[MULTIPLIERS + i] = by_means;
        duals[MULTIPLIERS + multiplier_count(steps) + i] = by_deviations;
    }
}

trp_status mpo_steps_create(struct mpo_steps *steps, uint32_t rows, struct room *room)
{
    size_t states = rows * sizeof(float), said = states * steps->size;
    size_t drawn = states * steps->samples, all = drawn * steps->size;
    const struct {
        void *memory; /* of a pointer */
        size_t bytes;
    } pieces[] = {{&steps->target_mean, said},
                  {&steps->target_log_std, said},
                  {&steps->mean, said},
                  {&steps->log_std, said},
                  {&steps->dmean, said},
                  {&steps->dlog_std, said},
                  {&steps->actions, all},
                  {&steps->cut, all},
                  {&steps->values, drawn},
                  {&steps->next_values, states},
                  {&steps->target_means, all},
                  {&steps->target_log_stds, all},
                  {&steps->learned, all},
                  {&steps->dmeans, all},
                  {&steps->dlog_stds, all},
                  {&steps->log_probs, drawn},
                  {&steps->divergences, 2 * said},
                  {&steps->numbers, sizeof *steps->numbers}};
    for (size_t i = 0; i < sizeof pieces / sizeof *pieces; i++)
        TRP_TRY(room_add(room, pieces[i].bytes, pieces[i].memory));
    return TRP_OK;
}

/* ---- kernels ------------------------------------------------------------------------------- */

#define AT(member) offsetof(struct mpo_arguments, member)
#define RUN(queue, kernel, job, operands)                                                          \
    trp_queue_run(queue, kernel, job, sizeof *(job), operands, sizeof operands / sizeof *operands)

static size_t draw_bytes(const struct mpo_steps *steps)
{
    return mpo_draws(steps) * sizeof(float);
}

static size_t said_bytes(const struct mpo_steps *steps)
{
    return (size_t)steps->rows * steps->size * sizeof(float);
}

void mpo_draw_on(trp_queue *queue, const struct mpo_steps *steps, const struct draw *draw)
{
    static const trp_kernel kernel = {.name = "mpo.draw", .run = mpo_draw_run};
    const struct tile tile = {steps->rows, steps->samples, steps->size};
    tile_on(queue, &tile, steps->target_mean, steps->target_means);
    tile_on(queue, &tile, steps->target_log_std, steps->target_log_stds);
    struct mpo_arguments job = {.steps = *steps, .draw = *draw};
    size_t bytes = draw_bytes(steps) * steps->size;
    trp_operand operands[] = {{AT(steps.target_means), bytes, TRP_READ},
                              {AT(steps.target_log_stds), bytes, TRP_READ},
                              {AT(steps.actions), bytes, TRP_WRITE},
                              {AT(steps.cut), bytes, TRP_WRITE},
                              {AT(draw.seed), sizeof *draw->seed, TRP_READ}};
    RUN(queue, &kernel, &job, operands);
}

/* ---- the E-step ---------------------------------------------------------------------------- */

void mpo_weigh_on(trp_queue *queue, const struct mpo_steps *steps, const float *duals,
                  float *dduals)
{
    static const trp_kernel kernel = {.name = "mpo.weigh", .run = mpo_weigh_run};
    struct mpo_arguments job = {.steps = *steps, .duals = duals, .dduals = dduals};
    size_t drawn = draw_bytes(steps), temperatures = MULTIPLIERS * sizeof(float);
    trp_operand operands[] = {
        {AT(steps.actions), drawn * steps->size, TRP_READ},
        {AT(steps.cut), drawn * steps->size, TRP_READ},
        {AT(steps.values), drawn, TRP_READ | TRP_WRITE},
        {AT(steps.log_probs), drawn, TRP_WRITE},
        {AT(steps.next_values), steps->rows * sizeof(float), TRP_WRITE},
        {AT(steps.numbers), sizeof *steps->numbers, TRP_READ | TRP_WRITE},
        {AT(duals), temperatures, TRP_READ},
        {AT(dduals), temperatures, TRP_READ | TRP_WRITE},
    };
    RUN(queue, &kernel, &job, operands);
}

/* ---- the M-step ---------------------------------------------------------------------------- */

static void clone_on(trp_queue *queue, const struct mpo_steps *steps, bool deviation)
{
    static const trp_kernel kernel = {.name = "mpo.clone", .run = mpo_clone_run};
    tile_on(queue, &(struct tile){steps->rows, steps->samples, steps->size},
            deviation ? steps->log_std : steps->mean, steps->learned);
    struct mpo_arguments job = {.steps = *steps, .deviation = deviation};
    size_t drawn = draw_bytes(steps), all = drawn * steps->size;
    trp_operand operands[] = {
        {AT(steps.learned), all, TRP_READ},
        {deviation ? AT(steps.target_means) : AT(steps.target_log_stds), all, TRP_READ},
        {AT(steps.actions), all, TRP_READ},
        {AT(steps.values), drawn, TRP_READ},
        {AT(steps.log_probs), drawn, TRP_WRITE},
        {AT(steps.dmeans), all, TRP_WRITE},
        {AT(steps.dlog_stds), all, TRP_WRITE},
        {deviation ? AT(steps.dlog_std) : AT(steps.dmean), said_bytes(steps), TRP_WRITE},
        {AT(steps.numbers), sizeof *steps->numbers, TRP_READ | TRP_WRITE},
    };
    RUN(queue, &kernel, &job, operands);
}

static void keep_near_on(trp_queue *queue, const struct mpo_steps *steps, const float *duals,
                         float *dduals)
{
    static const trp_kernel kernel = {.name = "mpo.bound", .run = mpo_bound_run};
    struct mpo_arguments job = {.steps = *steps, .duals = duals, .dduals = dduals};
    size_t said = said_bytes(steps), all = mpo_dual_count(steps) * sizeof(float);
    trp_operand operands[] = {
        {AT(steps.target_mean), said, TRP_READ},
        {AT(steps.target_log_std), said, TRP_READ},
        {AT(steps.mean), said, TRP_READ},
        {AT(steps.log_std), said, TRP_READ},
        {AT(steps.dmean), said, TRP_READ | TRP_WRITE},
        {AT(steps.dlog_std), said, TRP_READ | TRP_WRITE},
        {AT(steps.divergences), 2 * said, TRP_WRITE},
        {AT(steps.numbers), sizeof *steps->numbers, TRP_READ | TRP_WRITE},
        {AT(duals), all, TRP_READ},
        {AT(dduals), all, TRP_READ | TRP_WRITE},
    };
    RUN(queue, &kernel, &job, operands);
}

void mpo_follow_on(trp_queue *queue, const struct mpo_steps *steps, const float *duals,
                   float *dduals)
{
    clone_on(queue, steps, false);
    clone_on(queue, steps, true);
    keep_near_on(queue, steps, duals, dduals);
}

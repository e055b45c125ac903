#include "mpo_steps.h"

#include <math.h>

#include <troupe/actor_critic_losses.h>
#include <troupe/policy_losses.h>
#include "control.h"
#include "tile.h"

/* Where the vector of duals has what. */
enum { TEMPERATURE, PENALTY_TEMPERATURE, MULTIPLIERS };

static uint32_t multiplier_count(const struct mpo_steps *steps)
{
    return steps->joint ? 1 : steps->size;
}

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

/* Of all kernels below; each names what it touches. */
struct mpo_job {
    struct mpo_steps steps;
    const float *duals;
    float *dduals;
    uint64_t seed;
    bool deviation; /* which of the two is learned */
};

#define AT(member) offsetof(struct mpo_job, member)
#define RUN(queue, kernel, job, operands)                                                          \
    trp_queue_run(queue, kernel, job, sizeof *(job), operands, sizeof operands / sizeof *operands)

static uint32_t draws(const struct mpo_steps *steps)
{
    return steps->rows * steps->samples;
}

static size_t draw_bytes(const struct mpo_steps *steps)
{
    return draws(steps) * sizeof(float);
}

static size_t said_bytes(const struct mpo_steps *steps)
{
    return (size_t)steps->rows * steps->size * sizeof(float);
}

static trp_gaussian mpo_gaussian(uint32_t rows, uint32_t size, const float *mean,
                                 const float *log_std)
{
    return control_gaussian(CONTROL_GAUSSIAN, rows, size, mean, log_std);
}

static void draw_samples(void *arguments)
{
    const struct mpo_job *job = arguments;
    const struct mpo_steps *steps = &job->steps;
    trp_gaussian target =
        mpo_gaussian(draws(steps), steps->size, steps->target_means, steps->target_log_stds);
    trp_rng rng;
    trp_rng_init(&rng, job->seed, 0);
    trp_gaussian_sample(&target, &rng, steps->actions, steps->actions, NULL);
    for (size_t i = 0; i < (size_t)draws(steps) * steps->size; i++) {
        float action = steps->actions[i]; /* NaN stays, for the critic's loss to say so */
        steps->cut[i] = action < -1 ? -1 : action > 1 ? 1 : action;
    }
}

void mpo_draw_on(trp_queue *queue, const struct mpo_steps *steps, uint64_t seed)
{
    static const trp_kernel kernel = {"mpo.draw", draw_samples};
    const struct tile tile = {steps->rows, steps->samples, steps->size};
    tile_on(queue, &tile, steps->target_mean, steps->target_means);
    tile_on(queue, &tile, steps->target_log_std, steps->target_log_stds);
    struct mpo_job job = {.steps = *steps, .seed = seed};
    size_t bytes = draw_bytes(steps) * steps->size;
    trp_operand operands[] = {{AT(steps.target_means), bytes, TRP_READ},
                              {AT(steps.target_log_stds), bytes, TRP_READ},
                              {AT(steps.actions), bytes, TRP_WRITE},
                              {AT(steps.cut), bytes, TRP_WRITE}};
    RUN(queue, &kernel, &job, operands);
}

/* ---- the E-step ---------------------------------------------------------------------------- */

/* Of an action: how far it lies beyond the bounds, turned round. */
static void find_costs(const struct mpo_steps *steps, float *costs)
{
    for (size_t row = 0; row < draws(steps); row++) {
        double squares = 0;
        for (size_t i = row * steps->size; i < (row + 1) * steps->size; i++) {
            double beyond = (double)steps->actions[i] - (double)steps->cut[i];
            squares += beyond * beyond;
        }
        costs[row] = (float)-sqrt(squares);
    }
}

static void add_penalty(const struct mpo_job *job)
{
    const struct mpo_steps *steps = &job->steps;
    float *costs = steps->log_probs;
    find_costs(steps, costs);
    steps->numbers->temperature_loss +=
        trp_mpo_weights(&(trp_mpo_batch){.rows = steps->rows,
                                         .samples = steps->samples,
                                         .q = costs,
                                         .temperature = job->duals[PENALTY_TEMPERATURE],
                                         .bound = steps->epsilon_penalty},
                        costs, &job->dduals[PENALTY_TEMPERATURE]);
    for (size_t row = 0; row < draws(steps); row++)
        steps->values[row] += costs[row];
}

static void weigh_samples(void *arguments)
{
    const struct mpo_job *job = arguments;
    const struct mpo_steps *steps = &job->steps;
    for (size_t row = 0; row < steps->rows; row++) {
        double sum = 0;
        for (size_t i = row * steps->samples; i < (row + 1) * steps->samples; i++)
            sum += (double)steps->values[i];
        steps->next_values[row] = (float)(sum / steps->samples);
    }
    steps->numbers->temperature = trp_mpo_dual(job->duals[TEMPERATURE]);
    steps->numbers->temperature_loss =
        trp_mpo_weights(&(trp_mpo_batch){.rows = steps->rows,
                                         .samples = steps->samples,
                                         .q = steps->values,
                                         .temperature = job->duals[TEMPERATURE],
                                         .bound = steps->epsilon},
                        steps->values, &job->dduals[TEMPERATURE]);
    if (steps->penalty)
        add_penalty(job);
}

void mpo_weigh_on(trp_queue *queue, const struct mpo_steps *steps, const float *duals,
                  float *dduals)
{
    static const trp_kernel kernel = {"mpo.weigh", weigh_samples};
    struct mpo_job job = {.steps = *steps, .duals = duals, .dduals = dduals};
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

/* The weighted actions' part: of N(mean, the target's deviation) the mean's gradient, or of N(the
 * target's mean, deviation) the deviation's. */
static void clone(void *arguments)
{
    const struct mpo_job *job = arguments;
    const struct mpo_steps *steps = &job->steps;
    trp_gaussian policy = mpo_gaussian(draws(steps), steps->size,
                                       job->deviation ? steps->target_means : steps->learned,
                                       job->deviation ? steps->learned : steps->target_log_stds);
    trp_gaussian_log_prob(&policy, steps->actions, steps->log_probs);
    float loss = trp_cloning_loss(draws(steps), steps->values, steps->log_probs, steps->log_probs);
    trp_gaussian_backward(&policy, &(trp_gaussian_grads){.actions = steps->actions,
                                                         .log_probs = steps->log_probs,
                                                         .mean = steps->dmeans,
                                                         .log_std = steps->dlog_stds});
    const float *from = job->deviation ? steps->dlog_stds : steps->dmeans;
    float *to = job->deviation ? steps->dlog_std : steps->dmean;
    for (size_t row = 0; row < steps->rows; row++)
        for (size_t i = 0; i < steps->size; i++) {
            double sum = 0;
            for (size_t k = row * steps->samples; k < (row + 1) * steps->samples; k++)
                sum += (double)from[k * steps->size + i];
            to[row * steps->size + i] = (float)sum;
        }
    steps->numbers->policy_loss = (job->deviation ? steps->numbers->policy_loss : 0) + loss;
}

static void clone_on(trp_queue *queue, const struct mpo_steps *steps, bool deviation)
{
    static const trp_kernel kernel = {"mpo.clone", clone};
    tile_on(queue, &(struct tile){steps->rows, steps->samples, steps->size},
            deviation ? steps->log_std : steps->mean, steps->learned);
    struct mpo_job job = {.steps = *steps, .deviation = deviation};
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

/* The derivatives of one of the two divergences, [rows][size], in its place. */
static trp_loss bound_divergence(const struct mpo_job *job, float *divergences, size_t first,
                                 float most)
{
    const struct mpo_steps *steps = &job->steps;
    size_t size = steps->size;
    for (size_t row = 0; steps->joint && row < steps->rows; row++) {
        double sum = 0;
        for (size_t i = 0; i < size; i++)
            sum += (double)divergences[row * size + i];
        divergences[row] = (float)sum;
    }
    trp_loss loss = trp_mpo_bound_loss(&(trp_mpo_bound){.rows = steps->rows,
                                                        .size = multiplier_count(steps),
                                                        .divergences = divergences,
                                                        .multipliers = job->duals + first,
                                                        .bound = most},
                                       divergences, job->dduals + first);
    for (size_t i = steps->rows * size; steps->joint && i-- > 0;)
        divergences[i] = divergences[i / size];
    return loss;
}

static void keep_near(void *arguments)
{
    const struct mpo_job *job = arguments;
    const struct mpo_steps *steps = &job->steps;
    struct mpo_numbers *numbers = steps->numbers;
    float *means = steps->divergences, *stds = means + (size_t)steps->rows * steps->size;
    trp_gaussian target =
        mpo_gaussian(steps->rows, steps->size, steps->target_mean, steps->target_log_std);
    trp_gaussian policy = mpo_gaussian(steps->rows, steps->size, steps->mean, steps->log_std);
    trp_gaussian_decoupled_kl(&target, &policy, means, stds);
    trp_loss mean = bound_divergence(job, means, MULTIPLIERS, steps->epsilon_mean);
    trp_loss deviation = bound_divergence(job, stds, MULTIPLIERS + multiplier_count(steps),
                                          steps->epsilon_deviation);
    trp_gaussian_kl_backward(
        &target, &policy,
        &(trp_gaussian_kl_grads){.means = means,
                                 .stds = stds,
                                 .q = {.mean = steps->dmean, .log_std = steps->dlog_std},
                                 .add = true});
    numbers->policy_loss += mean.loss + deviation.loss;
    numbers->mean_divergence = mean.value;
    numbers->deviation_divergence = deviation.value;
}

static void keep_near_on(trp_queue *queue, const struct mpo_steps *steps, const float *duals,
                         float *dduals)
{
    static const trp_kernel kernel = {"mpo.bound", keep_near};
    struct mpo_job job = {.steps = *steps, .duals = duals, .dduals = dduals};
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

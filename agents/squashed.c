#include "squashed.h"

static trp_gaussian squashed_gaussian(const struct squashed *squashed)
{
    return control_gaussian(CONTROL_SQUASHED, squashed->rows, squashed->size, squashed->mean,
                            squashed->log_std);
}

struct squashed_job {
    struct squashed squashed;
    uint64_t seed;         /* of a draw */
    const float *dactions; /* of the way back */
};

static void draw_squashed(void *arguments)
{
    const struct squashed_job *job = arguments;
    const struct squashed *to = &job->squashed;
    trp_gaussian says = squashed_gaussian(to);
    trp_rng rng;
    trp_rng_init(&rng, job->seed, 0);
    trp_gaussian_sample(&says, &rng, to->noise, to->actions, to->log_probs);
}

#define AT(member) offsetof(struct squashed_job, member)

void squashed_draw_on(trp_queue *queue, const struct squashed *squashed, uint64_t seed)
{
    static const trp_kernel kernel = {"squashed.draw", draw_squashed};
    struct squashed_job job = {.squashed = *squashed, .seed = seed};
    size_t rows = squashed->rows * sizeof(float), numbers = rows * squashed->size;
    trp_operand operands[] = {
        {AT(squashed.mean), numbers, TRP_READ},    {AT(squashed.log_std), numbers, TRP_READ},
        {AT(squashed.noise), numbers, TRP_WRITE},  {AT(squashed.actions), numbers, TRP_WRITE},
        {AT(squashed.log_probs), rows, TRP_WRITE},
    };
    trp_queue_run(queue, &kernel, &job, sizeof job, operands, sizeof operands / sizeof *operands);
}

static void differentiate_squashed(void *arguments)
{
    const struct squashed_job *job = arguments;
    const struct squashed *to = &job->squashed;
    trp_gaussian says = squashed_gaussian(to);
    trp_gaussian_backward(&says, &(trp_gaussian_grads){.noise = to->noise,
                                                       .sample_actions = job->dactions,
                                                       .sample_log_probs = to->log_probs,
                                                       .mean = to->mean,
                                                       .log_std = to->log_std});
}

void squashed_backward_on(trp_queue *queue, const struct squashed *squashed, const float *dactions)
{
    static const trp_kernel kernel = {"squashed.backward", differentiate_squashed};
    struct squashed_job job = {.squashed = *squashed, .dactions = dactions};
    size_t rows = squashed->rows * sizeof(float), numbers = rows * squashed->size;
    trp_operand operands[] = {
        {AT(squashed.mean), numbers, TRP_READ | TRP_WRITE},
        {AT(squashed.log_std), numbers, TRP_READ | TRP_WRITE},
        {AT(squashed.noise), numbers, TRP_READ},
        {AT(squashed.log_probs), rows, TRP_READ},
        {AT(dactions), numbers, TRP_READ},
    };
    trp_queue_run(queue, &kernel, &job, sizeof job, operands, sizeof operands / sizeof *operands);
}

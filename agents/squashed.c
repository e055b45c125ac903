#include "squashed.h"

void squashed_draw_on(trp_queue *queue, const struct squashed *squashed, const struct draw *draw)
{
    static const trp_kernel kernel = {.name = "squashed.draw", .run = squashed_draw_run};
    struct squashed_draw_arguments job = {.squashed = *squashed, .draw = *draw};
    size_t rows = squashed->rows * sizeof(float), numbers = rows * squashed->size;
#define AT(member) offsetof(struct squashed_draw_arguments, member)
    trp_operand operands[] = {
        {AT(squashed.mean), numbers, TRP_READ},    {AT(squashed.log_std), numbers, TRP_READ},
        {AT(squashed.noise), numbers, TRP_WRITE},  {AT(squashed.actions), numbers, TRP_WRITE},
        {AT(squashed.log_probs), rows, TRP_WRITE}, {AT(draw.seed), sizeof *draw->seed, TRP_READ},
    };
#undef AT
    trp_queue_run(queue, &kernel, &job, sizeof job, operands, sizeof operands / sizeof *operands);
}

void squashed_backward_on(trp_queue *queue, const struct squashed *squashed, const float *dactions)
{
    static const trp_kernel kernel = {.name = "squashed.backward", .run = squashed_backward_run};
    struct squashed_backward_arguments job = {.squashed = *squashed, .dactions = dactions};
    size_t rows = squashed->rows * sizeof(float), numbers = rows * squashed->size;
#define AT(member) offsetof(struct squashed_backward_arguments, member)
    trp_operand operands[] = {
        {AT(squashed.mean), numbers, TRP_READ | TRP_WRITE},
        {AT(squashed.log_std), numbers, TRP_READ | TRP_WRITE},
        {AT(squashed.noise), numbers, TRP_READ},
        {AT(squashed.log_probs), rows, TRP_READ},
        {AT(dactions), numbers, TRP_READ},
    };
#undef AT
    trp_queue_run(queue, &kernel, &job, sizeof job, operands, sizeof operands / sizeof *operands);
}

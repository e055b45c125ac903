/* Recurrent layers: the products with the inputs are made for all steps at once, those with the
 * states step by step, and what is elementwise in a step is one kernel (bodies/cells.h). */
#include "nn/cuda/bodies/cells.h"
#include "kernels.h"
#include "plan.h"

struct cell_run {
    const struct lowering *run;
    struct cell_shape shape;
    uint32_t gates, steps, sequences; /* gates: times hidden */
    struct place_on kept;
    size_t state_stride, state_column;
};

static struct cell_run cell_run_of(const struct lowering *run)
{
    const struct graph *graph = &run->net->base.program.graph;
    struct cell_run cell = {.run = run,
                            .shape =
                                graph_cell(run->op->layer, &graph->values[run->op->layer->from[0]]),
                            .steps = run->pass->steps,
                            .sequences = run->rows / run->pass->steps,
                            .kept = span_on(run, run->op->kept),
                            .state_stride = graph->state_width,
                            .state_column = graph->state[run->op->index]};
    cell.gates = cell_gates(cell.shape.kind) * cell.shape.hidden;
    return cell;
}

/* The rows of a step. */
static float *step_on(const struct cell_run *cell, struct place_on place, uint32_t step)
{
    return place.at + (size_t)step * cell->sequences * place.stride;
}

static const uint8_t *resets_of(const struct cell_run *cell, uint32_t step)
{
    const uint8_t *resets = cell->run->pass->resets;
    return resets && step < cell->steps ? resets + (size_t)step * cell->sequences : NULL;
}

/* This layer's columns of a state; NULL stays NULL. */
static float *state_on(const struct cell_run *cell, const void *state)
{
    return state ? (float *)(uintptr_t)state + cell->state_column : NULL;
}

/* ---- forward --------------------------------------------------------------------------------- */

static void forward_step(const struct cell_run *cell, uint32_t step, struct place_on y)
{
    const struct lowering *run = cell->run;
    bool last = step + 1 == cell->steps;
    float *kept = step_on(cell, cell->kept, step);
    work_gemm(run->list, &(struct gemm_job){.a = kept + CELL_BEFORE * cell->shape.hidden,
                                            .b = param_on(run, 1),
                                            .bias = param_on(run, 3),
                                            .c = run->net->scratch.from_h,
                                            .a_stride = cell->kept.stride,
                                            .b_stride = cell->gates,
                                            .c_stride = cell->gates,
                                            .m = cell->sequences,
                                            .n = cell->gates,
                                            .k = cell->shape.hidden});
    work_kernel(
        run->list, &kernel_cell_step,
        &(struct cell_step_arguments){.from_h = run->net->scratch.from_h,
                                      .kept = kept,
                                      .y = step_on(cell, y, step),
                                      .next = last ? NULL : step_on(cell, cell->kept, step + 1),
                                      .next_resets = resets_of(cell, step + 1),
                                      .end = last ? state_on(cell, run->pass->end_state) : NULL,
                                      .kept_stride = cell->kept.stride,
                                      .y_stride = y.stride,
                                      .end_stride = cell->state_stride,
                                      .rows = cell->sequences,
                                      .hidden = cell->shape.hidden,
                                      .kind = cell->shape.kind});
}

void lower_cell(const struct lowering *run)
{
    struct cell_run cell = cell_run_of(run);
    struct place_on x = span_on(run, run->op->a), y = span_on(run, run->op->to);
    work_gemm(run->list, &(struct gemm_job){.a = x.at,
                                            .b = param_on(run, 0),
                                            .bias = param_on(run, 2),
                                            .c = cell.kept.at,
                                            .a_stride = x.stride,
                                            .b_stride = cell.gates,
                                            .c_stride = cell.kept.stride,
                                            .m = run->rows,
                                            .n = cell.gates,
                                            .k = cell.shape.inputs});
    work_kernel(run->list, &kernel_cell_begin,
                &(struct cell_begin_arguments){.state = state_on(&cell, run->pass->state),
                                               .resets = resets_of(&cell, 0),
                                               .kept = cell.kept.at,
                                               .state_stride = cell.state_stride,
                                               .kept_stride = cell.kept.stride,
                                               .rows = cell.sequences,
                                               .hidden = cell.shape.hidden,
                                               .kind = cell.shape.kind});
    for (uint32_t step = 0; step < cell.steps; step++)
        forward_step(&cell, step, y);
}

/* ---- backward ----------------------------------------------------------------------------------
 */

/* What goes to h from columns of kept that follow columns of wh: dh += kept wh'. A GRU's last gate
 * has other gradients for h than for x; they are behind its gates. */
struct gate_columns {
    uint32_t kept, weights, count;
};

static uint32_t columns_to_h(const struct cell_run *cell, struct gate_columns parts[2])
{
    uint32_t hidden = cell->shape.hidden;
    if (cell->shape.kind == CELL_LSTM) {
        parts[0] = (struct gate_columns){0, 0, 4 * hidden};
        return 1;
    }
    parts[0] = (struct gate_columns){0, 0, 2 * hidden};
    parts[1] = (struct gate_columns){3 * hidden, 2 * hidden, hidden};
    return 2;
}

static void backward_step(const struct cell_run *cell, uint32_t step, struct place_on dy)
{
    const struct lowering *run = cell->run;
    float *kept = step_on(cell, cell->kept, step), *carry = run->net->scratch.carry;
    struct gate_columns parts[2];
    uint32_t count = columns_to_h(cell, parts);
    work_kernel(run->list, &kernel_cell_back,
                &(struct cell_back_arguments){.dy = step_on(cell, dy, step),
                                              .kept = kept,
                                              .carry = carry,
                                              .next_resets = resets_of(cell, step + 1),
                                              .dy_stride = dy.stride,
                                              .kept_stride = cell->kept.stride,
                                              .rows = cell->sequences,
                                              .hidden = cell->shape.hidden,
                                              .kind = cell->shape.kind});
    for (uint32_t i = 0; i < count; i++)
        work_gemm(run->list, &(struct gemm_job){.a = kept + parts[i].kept,
                                                .b = param_on(run, 1) + parts[i].weights,
                                                .c = carry,
                                                .a_stride = cell->kept.stride,
                                                .b_stride = cell->gates,
                                                .c_stride = cell->shape.hidden,
                                                .m = cell->sequences,
                                                .n = cell->shape.hidden,
                                                .k = parts[i].count,
                                                .b_turned = true,
                                                .accumulate = true});
}

static void add_cell_weights(const struct cell_run *cell, struct place_on x)
{
    const struct lowering *run = cell->run;
    struct gate_columns parts[2];
    uint32_t count = columns_to_h(cell, parts), hidden = cell->shape.hidden;
    struct gemm_job job = {.a = x.at,
                           .b = cell->kept.at,
                           .c = param_grad_on(run, 0),
                           .a_stride = x.stride,
                           .b_stride = cell->kept.stride,
                           .c_stride = cell->gates,
                           .m = cell->shape.inputs,
                           .n = cell->gates,
                           .k = run->rows,
                           .a_turned = true,
                           .accumulate = true};
    work_gemm(run->list, &job);
    lower_sum(run, cell->kept.at, cell->kept.stride, run->rows, 1, cell->gates,
              param_grad_on(run, 2));
    job.a = cell->kept.at + CELL_BEFORE * hidden;
    job.a_stride = cell->kept.stride;
    job.m = hidden;
    for (uint32_t i = 0; i < count; i++) {
        job.b = cell->kept.at + parts[i].kept;
        job.c = param_grad_on(run, 1) + parts[i].weights;
        job.n = parts[i].count;
        work_gemm(run->list, &job);
        lower_sum(run, job.b, cell->kept.stride, run->rows, 1, parts[i].count,
                  param_grad_on(run, 3) + parts[i].weights);
    }
}

static void move_carry(const struct cell_run *cell, const void *state, bool take)
{
    work_kernel(cell->run->list, &kernel_cell_carry,
                &(struct cell_carry_arguments){.carry = cell->run->net->scratch.carry,
                                               .state = state_on(cell, state),
                                               .resets = resets_of(cell, 0),
                                               .state_stride = cell->state_stride,
                                               .rows = cell->sequences,
                                               .hidden = cell->shape.hidden,
                                               .kind = cell->shape.kind,
                                               .take = take});
}

void lower_cell_back(const struct lowering *run)
{
    struct cell_run cell = cell_run_of(run);
    struct place_on x = span_on(run, run->op->a), dy = span_on(run, run->op->b);
    struct place_on dx = span_on(run, run->op->to);
    move_carry(&cell, run->pass->end_state_grad, true);
    for (uint32_t step = cell.steps; step-- > 0;)
        backward_step(&cell, step, dy);
    if (param_grad_on(run, 0))
        add_cell_weights(&cell, x);
    dx.at = dx_on(run);
    if (dx.at)
        work_gemm(run->list, &(struct gemm_job){.a = cell.kept.at,
                                                .b = param_on(run, 0),
                                                .c = dx.at,
                                                .a_stride = cell.kept.stride,
                                                .b_stride = cell.gates,
                                                .c_stride = dx.stride,
                                                .m = run->rows,
                                                .n = cell.shape.inputs,
                                                .k = cell.gates,
                                                .b_turned = true,
                                                .accumulate = run->op->accumulate});
    if (run->pass->state_grad)
        move_carry(&cell, run->pass->state_grad, false);
}

/* Recurrent cells (nn/cell.h), what of a step is elementwise. A row of `kept` is
 *     LSTM  gates [4 hidden]  h before [hidden]  c before [hidden]  tanh c [hidden]
 *     GRU   gates [3 hidden]  h wn' + bhn [hidden]  h before [hidden]
 * and the gates are, one after the other: x wx + bx, the activated gates, the gradients of their
 * sums. A step leaves to the next one what is before it, with its resets applied. */
#ifndef TRP_NN_CUDA_BODIES_CELLS_H
#define TRP_NN_CUDA_BODIES_CELLS_H

#include "nn/cell.h"
#include "rows.h"

KERNEL_BODY uint32_t cell_width(enum cell_kind kind)
{
    return kind == CELL_LSTM ? 7 : 5; /* of a row of kept, times hidden */
}

enum { CELL_BEFORE = 4 }; /* where h before is, times hidden; c before is behind it */

/* ---- the state before the first step -----------------------------------------------------------
 */

struct cell_begin_arguments {
    const float *state;    /* NULL: zeros */
    const uint8_t *resets; /* NULL: none */
    float *kept;
    size_t state_stride, kept_stride;
    uint32_t rows, hidden;
    enum cell_kind kind;
};

static inline struct kernel_shape cell_begin_shape(const struct cell_begin_arguments *a)
{
    return kernel_of((size_t)a->rows * a->hidden);
}

static inline size_t cell_begin_reaches(const struct cell_begin_arguments *a,
                                        struct kernel_reach *r)
{
    uint32_t states = a->kind == CELL_LSTM ? 2 * a->hidden : a->hidden;
    r[0] =
        (struct kernel_reach){a->state, rows_reach(a->rows, states, a->state_stride, 4), TRP_READ};
    r[1] = (struct kernel_reach){a->resets, a->rows, TRP_READ};
    r[2] = (struct kernel_reach){
        a->kept, rows_reach(a->rows, cell_width(a->kind) * a->hidden, a->kept_stride, 4),
        TRP_READ | TRP_WRITE};
    return 3;
}

KERNEL_BODY void cell_begin_body(const struct cell_begin_arguments *a, const struct kernel_at *at,
                                 void *shared)
{
    size_t i = thread_index(at), row = i / a->hidden, j = i % a->hidden;
    (void)shared;
    if (row >= a->rows)
        return;
    bool zero = !a->state || (a->resets && a->resets[row]);
    const float *state = a->state + row * a->state_stride + j;
    float *before = a->kept + row * a->kept_stride + CELL_BEFORE * a->hidden + j;
    before[0] = zero ? 0 : state[0];
    if (a->kind == CELL_LSTM)
        before[a->hidden] = zero ? 0 : state[a->hidden];
}

/* ---- a step -------------------------------------------------------------------------------------
 */

struct cell_step_arguments {
    const float *from_h; /* [rows][gates * hidden] */
    float *kept, *y;
    float *next;                /* kept of the step behind; NULL: it is the last one */
    const uint8_t *next_resets; /* of that step; NULL: none */
    float *end;                 /* NULL: not wanted */
    size_t kept_stride, y_stride, end_stride;
    uint32_t rows, hidden;
    enum cell_kind kind;
};

static inline struct kernel_shape cell_step_shape(const struct cell_step_arguments *a)
{
    return kernel_of((size_t)a->rows * a->hidden);
}

static inline size_t cell_step_reaches(const struct cell_step_arguments *a, struct kernel_reach *r)
{
    size_t kept = rows_reach(a->rows, cell_width(a->kind) * a->hidden, a->kept_stride, 4);
    uint32_t gates = a->kind == CELL_LSTM ? 4 : 3, states = a->kind == CELL_LSTM ? 2 : 1;
    r[0] = (struct kernel_reach){a->from_h, (size_t)a->rows * gates * a->hidden * sizeof(float),
                                 TRP_READ};
    r[1] = (struct kernel_reach){a->kept, kept, TRP_READ | TRP_WRITE};
    r[2] = (struct kernel_reach){a->y, rows_reach(a->rows, a->hidden, a->y_stride, 4), TRP_WRITE};
    r[3] = (struct kernel_reach){a->next, kept, TRP_READ | TRP_WRITE};
    r[4] = (struct kernel_reach){a->next ? a->next_resets : NULL, a->rows, TRP_READ};
    r[5] = (struct kernel_reach){a->end, rows_reach(a->rows, states * a->hidden, a->end_stride, 4),
                                 TRP_WRITE};
    return 6;
}

/* h and c behind a step. */
struct cell_state_of {
    float h, c;
};

KERNEL_BODY struct cell_state_of lstm_number(float *kept, const float *from_h, uint32_t hidden)
{
    float gates[4];
    for (uint32_t gate = 0; gate < 4; gate++) {
        float sum = kept[gate * hidden] + from_h[gate * hidden];
        gates[gate] = gate == 2 ? tanhf(sum) : sigmoid_cuda(sum);
        kept[gate * hidden] = gates[gate];
    }
    float c = gates[1] * kept[5 * hidden] + gates[0] * gates[2], tanh_c = tanhf(c);
    kept[6 * hidden] = tanh_c;
    struct cell_state_of state = {gates[3] * tanh_c, c};
    return state;
}

KERNEL_BODY struct cell_state_of gru_number(float *kept, const float *from_h, uint32_t hidden)
{
    float r = sigmoid_cuda(kept[0] + from_h[0]);
    float z = sigmoid_cuda(kept[hidden] + from_h[hidden]);
    float n = tanhf(kept[2 * hidden] + r * from_h[2 * hidden]);
    kept[0] = r;
    kept[hidden] = z;
    kept[2 * hidden] = n;
    kept[3 * hidden] = from_h[2 * hidden];
    struct cell_state_of state = {(1 - z) * n + z * kept[4 * hidden], 0};
    return state;
}

KERNEL_BODY void cell_step_body(const struct cell_step_arguments *a, const struct kernel_at *at,
                                void *shared)
{
    size_t i = thread_index(at), row = i / a->hidden, j = i % a->hidden;
    bool lstm = a->kind == CELL_LSTM;
    (void)shared;
    if (row >= a->rows)
        return;
    float *kept = a->kept + row * a->kept_stride + j;
    const float *from_h = a->from_h + row * (lstm ? 4 : 3) * a->hidden + j;
    struct cell_state_of state =
        lstm ? lstm_number(kept, from_h, a->hidden) : gru_number(kept, from_h, a->hidden);
    a->y[row * a->y_stride + j] = state.h;
    if (a->next) {
        float *before = a->next + row * a->kept_stride + CELL_BEFORE * a->hidden + j;
        bool reset = a->next_resets && a->next_resets[row];
        before[0] = reset ? 0 : state.h;
        if (lstm)
            before[a->hidden] = reset ? 0 : state.c;
    }
    if (!a->end)
        return;
    a->end[row * a->end_stride + j] = state.h;
    if (lstm)
        a->end[row * a->end_stride + a->hidden + j] = state.c;
}

/* ---- and back
 * ------------------------------------------------------------------------------------ */

/* `carry` [2][rows][hidden] is the gradient of h and c behind the step, before the resets of the
 * step behind; then of those before it, as far as it does not come through the gates. */
struct cell_back_arguments {
    const float *dy;
    float *kept, *carry;
    const uint8_t *next_resets; /* of the step behind; NULL: none */
    size_t dy_stride, kept_stride;
    uint32_t rows, hidden;
    enum cell_kind kind;
};

static inline struct kernel_shape cell_back_shape(const struct cell_back_arguments *a)
{
    return kernel_of((size_t)a->rows * a->hidden);
}

static inline size_t cell_back_reaches(const struct cell_back_arguments *a, struct kernel_reach *r)
{
    r[0] = (struct kernel_reach){a->dy, rows_reach(a->rows, a->hidden, a->dy_stride, 4), TRP_READ};
    r[1] = (struct kernel_reach){
        a->kept, rows_reach(a->rows, cell_width(a->kind) * a->hidden, a->kept_stride, 4),
        TRP_READ | TRP_WRITE};
    r[2] = (struct kernel_reach){a->carry, (size_t)2 * a->rows * a->hidden * sizeof(float),
                                 TRP_READ | TRP_WRITE};
    r[3] = (struct kernel_reach){a->next_resets, a->rows, TRP_READ};
    return 4;
}

KERNEL_BODY void lstm_number_back(float *kept, uint32_t hidden, float dh, float *carry_c)
{
    float i = kept[0], f = kept[hidden], g = kept[2 * hidden], o = kept[3 * hidden];
    float c_before = kept[5 * hidden], tanh_c = kept[6 * hidden];
    float dc = *carry_c + dh * o * (1 - tanh_c * tanh_c);
    kept[0] = dc * g * i * (1 - i);
    kept[hidden] = dc * c_before * f * (1 - f);
    kept[2 * hidden] = dc * i * (1 - g * g);
    kept[3 * hidden] = dh * tanh_c * o * (1 - o);
    *carry_c = dc * f;
}

/* Behind the gates' gradients is what of the last one goes to h. */
KERNEL_BODY float gru_number_back(float *kept, uint32_t hidden, float dh)
{
    float r = kept[0], z = kept[hidden], n = kept[2 * hidden];
    float dn = dh * (1 - z) * (1 - n * n);
    kept[0] = dn * kept[3 * hidden] * r * (1 - r);
    kept[hidden] = dh * (kept[4 * hidden] - n) * z * (1 - z);
    kept[2 * hidden] = dn;
    kept[3 * hidden] = dn * r;
    return dh * z;
}

KERNEL_BODY void cell_back_body(const struct cell_back_arguments *a, const struct kernel_at *at,
                                void *shared)
{
    size_t i = thread_index(at), row = i / a->hidden, j = i % a->hidden;
    (void)shared;
    if (row >= a->rows)
        return;
    float *kept = a->kept + row * a->kept_stride + j;
    float *carry_h = a->carry + i, *carry_c = carry_h + (size_t)a->rows * a->hidden;
    bool reset = a->next_resets && a->next_resets[row];
    float dh = a->dy[row * a->dy_stride + j] + (reset ? 0 : *carry_h);
    if (a->kind == CELL_GRU) {
        *carry_h = gru_number_back(kept, a->hidden, dh);
        return;
    }
    if (reset)
        *carry_c = 0;
    lstm_number_back(kept, a->hidden, dh, carry_c);
    *carry_h = 0;
}

/* The gradient of the state before the first step; or, with `take`, the carry is made of that of
 * the state at the end. */
struct cell_carry_arguments {
    float *carry;
    float *state; /* NULL: zeros, for `take` alone */
    const uint8_t *resets;
    size_t state_stride;
    uint32_t rows, hidden;
    enum cell_kind kind;
    bool take;
};

static inline struct kernel_shape cell_carry_shape(const struct cell_carry_arguments *a)
{
    return kernel_of((size_t)a->rows * a->hidden);
}

static inline size_t cell_carry_reaches(const struct cell_carry_arguments *a,
                                        struct kernel_reach *r)
{
    uint32_t states = a->kind == CELL_LSTM ? 2 * a->hidden : a->hidden;
    r[0] = (struct kernel_reach){a->carry, (size_t)2 * a->rows * a->hidden * sizeof(float),
                                 a->take ? TRP_WRITE : TRP_READ};
    r[1] = (struct kernel_reach){a->state, rows_reach(a->rows, states, a->state_stride, 4),
                                 a->take ? TRP_READ : TRP_WRITE};
    r[2] = (struct kernel_reach){a->take ? NULL : a->resets, a->rows, TRP_READ};
    return 3;
}

KERNEL_BODY void cell_carry_body(const struct cell_carry_arguments *a, const struct kernel_at *at,
                                 void *shared)
{
    size_t i = thread_index(at), row = i / a->hidden, j = i % a->hidden;
    size_t parts = a->kind == CELL_LSTM ? 2 : 1, apart = (size_t)a->rows * a->hidden;
    (void)shared;
    if (row >= a->rows)
        return;
    for (size_t part = 0; part < parts; part++) {
        float *state = a->state ? a->state + row * a->state_stride + part * a->hidden + j : NULL;
        if (a->take)
            a->carry[part * apart + i] = state ? *state : 0;
        else
            *state = a->resets && a->resets[row] ? 0 : a->carry[part * apart + i];
    }
}

#endif

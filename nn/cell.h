/* Recurrent cells over a time axis. All functions are pure: the state comes in and goes out.
 *
 * LSTM and GRU with PyTorch's equations, gates and two biases; the weights lie the other way round,
 * like those of every layer here: wx[inputs][gates * hidden], wh[hidden][gates * hidden].
 *   LSTM, columns i f g o:  c' = f c + i g,  h' = o tanh c'
 *   GRU, columns r z n:     n = tanh(x wn + bxn + r (h wn' + bhn)),  h' = (1 - z) n + z h
 * A row of state is h, and behind it c for an LSTM.
 *
 * Where resets[step][row] is not 0, the row's state is zeroed before that step, and no gradient
 * goes back over it. A sequence that is cut anywhere, with the state carried over, gives the same
 * bits. */
#ifndef TRP_NN_CELL_H
#define TRP_NN_CELL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum cell_kind { CELL_LSTM, CELL_GRU };

struct cell_shape {
    enum cell_kind kind;
    uint32_t inputs, hidden;
};

static inline uint32_t cell_gates(enum cell_kind kind)
{
    return kind == CELL_LSTM ? 4 : 3;
}

static inline uint32_t cell_state(const struct cell_shape *shape)
{
    return shape->kind == CELL_LSTM ? 2 * shape->hidden : shape->hidden;
}

/* Elements kept from forward for backward, per step and row. LSTM: gates, c before, h before,
 * tanh c. GRU: gates, h wn' + bhn, h before. */
static inline size_t cell_kept(const struct cell_shape *shape)
{
    return (shape->kind == CELL_LSTM ? 7 : 5) * (size_t)shape->hidden;
}

/* x is at x[step * x_step + row * x_row], y the same way. */
struct cell_forward_job {
    struct cell_shape shape;
    uint32_t steps, rows;
    const void *x;
    size_t x_step, x_row;
    const uint8_t *resets; /* [step * reset_step + row]; NULL: none */
    size_t reset_step;
    const void *wx, *wh, *bx, *bh;
    const void *state; /* [rows][state_row]; NULL: zeros */
    size_t state_row;
    void *y; /* h of each step */
    size_t y_step, y_row;
    void *end_state; /* [rows][end_row], may be `state`; NULL: not wanted */
    size_t end_row;
    void *kept; /* steps * rows * cell_kept(), this job's own */
    void *scratch;
};

/* `kept` is what forward left for the same x, steps, rows and resets; it is overwritten. */
struct cell_backward_job {
    struct cell_shape shape;
    uint32_t steps, rows;
    const void *x;
    size_t x_step, x_row;
    const uint8_t *resets;
    size_t reset_step;
    const void *wx, *wh;
    const void *dy;
    size_t dy_step, dy_row;
    const void *dend_state; /* the gradient of end_state; NULL: zeros */
    size_t dend_row;
    void *dwx, *dwh, *dbx, *dbh; /* += or, with `overwrite`, =; all NULL: not wanted */
    void *dx;                    /* may be NULL */
    size_t dx_step, dx_row;
    void *dstate; /* the gradient of `state`, overwritten; may be NULL */
    size_t dstate_row;
    bool overwrite;
    bool accumulate_dx; /* dx: += instead of = */
    void *kept;
    void *scratch;
};

struct cell_kernels {
    /* Elements of scratch that a job of these sizes needs, either way. */
    size_t (*scratch)(const struct cell_shape *shape, uint32_t rows);
    void (*forward)(const struct cell_forward_job *job);
    void (*backward)(const struct cell_backward_job *job);
};

#endif

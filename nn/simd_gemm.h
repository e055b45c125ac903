/* One matrix product serves everything: c (+)= a b, where a is read one element at a time through
 * two strides (so a transposed a costs nothing) and b by rows. Columns are cut into panels of
 * PANEL_VECS vectors and the depth into blocks, and a panel's block of b lies together while all
 * rows pass by. The sum over depth of one element runs in the same order whatever the tile, so a
 * row gives the same bits in any batch of more than one row.
 *
 * Who includes this has the vector operations, says how b is packed, and has tiles of c: those of
 * simd_tiles.h, or others. */

enum {
    PANEL = PANEL_VECS * LANES,
    DEPTH_BLOCK = 256,
    DEPTH_BLOCK_ACROSS = 128, /* where each step of the depth takes another line of a */
};

enum gemm_start { START_ZERO, START_BIAS, START_ADD };
enum gemm_end { END_STORE, END_RELU, END_GATE_RELU, END_GATE_TANH };

static inline enum gemm_end gemm_end_of(enum activation activation)
{
    return activation == ACTIVATION_RELU ? END_RELU : END_STORE;
}

static inline enum gemm_end end_of_gate(enum activation gate)
{
    return gate == ACTIVATION_RELU   ? END_GATE_RELU
           : gate == ACTIVATION_TANH ? END_GATE_TANH
                                     : END_STORE;
}

/* Element (m, k) of a is a[m * a_row + k * a_k]; one of b_k and b_n is 1. */
struct gemm {
    const float *a, *b;
    float *c;
    size_t a_row, a_k, b_k, b_n, c_row;
    size_t rows, columns, depth;
    enum gemm_start start;
    enum gemm_end end;
    const float *bias, *gate; /* START_BIAS; END_GATE_* */
    size_t gate_row;
    float *pack;         /* [DEPTH_BLOCK][PANEL] */
    const float *packed; /* NULL, or all of b by gemm_pack() */
    size_t lacks; /* rows of b that the last steps of the depth are short of, where a step has
                     several */
    size_t strip, a_strip; /* gemm_strips(): a's depth is in strips, from one to the next */
};

/* dx (+)= dy w'. */
static inline struct gemm gemm_of_input(const struct backward_job *job)
{
    return (struct gemm){
        .a = job->dy,
        .a_row = job->dy_stride,
        .a_k = 1,
        .b = job->w,
        .b_k = 1,
        .b_n = job->outputs,
        .pack = job->scratch,
        .c = job->dx,
        .c_row = job->dx_stride,
        .rows = job->rows,
        .columns = job->inputs,
        .depth = job->outputs,
        .start = job->accumulate_dx ? START_ADD : START_ZERO,
        .end = end_of_gate(job->gate),
        .gate = job->x,
        .gate_row = job->x_stride,
    };
}

/* One tile: its corners, its part of the depth and the lanes of its last vector. */
struct gemm_tile {
    const float *a, *b, *bias, *gate;
    float *c;
    size_t b_k, depth, strips; /* strips of `depth` each */
    enum gemm_start start;
    enum gemm_end end;
    part last;
};

/* Vectors that `columns` need, at most a panel, and the lanes of the last one. */
static INLINE size_t panel_vecs(size_t columns, part *last)
{
    size_t vecs = columns >= PANEL ? PANEL_VECS : (columns + LANES - 1) / LANES;
    size_t used = columns >= PANEL ? PANEL : columns;
    *last = part_of((unsigned)(used - (vecs - 1) * LANES));
    return vecs;
}

/* Whether tiles can have a block of b where it is; the includer's. */
static bool b_in_place(const struct gemm *g, size_t columns);

/* Copies b[k..k + depth)[column..column + columns) to rows of PANEL, whole vectors of which are
 * filled up with anything; the includer's. */
static void b_pack(const struct gemm *g, size_t k, size_t depth, size_t column, size_t columns,
                   float *to);

static void tile_place_b(const struct gemm *g, struct gemm_tile *t, size_t k, size_t column,
                         size_t columns)
{
    t->b_k = PANEL;
    if (g->packed) {
        t->b = g->packed + column * g->depth + k * PANEL;
    } else if (b_in_place(g, columns)) {
        t->b = g->b + k * g->b_k + column * g->b_n;
        t->b_k = g->b_k;
    } else {
        t->b = g->pack;
        b_pack(g, k, t->depth, column, columns, g->pack);
    }
}

/* Elements that all of b takes in panels. */
static size_t packed_size(size_t columns, size_t depth)
{
    return (columns + PANEL - 1) / PANEL * PANEL * depth;
}

/* Packs all of b to `to`, for products that have it many times. */
static void gemm_pack(struct gemm *g, float *to)
{
    for (size_t column = 0; column < g->columns; column += PANEL) {
        size_t columns = g->columns - column < PANEL ? g->columns - column : PANEL;
        b_pack(g, 0, g->depth, column, columns, to + column * g->depth);
    }
    g->packed = to;
}

/* All rows of one panel over one block of the depth, tile by tile. */
static void gemm_rows(const struct gemm *g, struct gemm_tile *t, size_t column, size_t k,
                      size_t vecs);

/* One panel of c over one block of the depth. */
static void gemm_block(const struct gemm *g, size_t column, size_t k, size_t depth)
{
    struct gemm_tile t = {
        .depth = depth,
        .strips = 1,
        .bias = g->bias ? g->bias + column : NULL,
        .start = k == 0 ? g->start : START_ADD,
        .end = k + depth == g->depth ? g->end : END_STORE,
    };
    size_t columns = g->columns - column < PANEL ? g->columns - column : PANEL;
    size_t vecs = panel_vecs(columns, &t.last);
    tile_place_b(g, &t, k, column, columns);
    gemm_rows(g, &t, column, k, vecs);
}

static void gemm_run(const struct gemm *g)
{
    size_t block = g->a_k == 1 ? DEPTH_BLOCK : DEPTH_BLOCK_ACROSS;
    for (size_t k = 0; k < g->depth; k += block) {
        size_t depth = g->depth - k < block ? g->depth - k : block;
        for (size_t column = 0; column < g->columns; column += PANEL)
            gemm_block(g, column, k, depth);
    }
}

/* One matrix product serves everything: c (+)= a b, where a is read one element at a time through
 * two strides (so a transposed a costs nothing) and b by rows. A tile of c stays in registers while
 * `depth` runs; columns are cut into panels of PANEL_VECS vectors and the depth into blocks, and a
 * panel's block of b lies together while all rows pass by. The sum over depth of one element runs
 * in the same order whatever the tile, so a row gives the same bits in any batch of more than one
 * row.
 *
 * Who includes this has the vector operations, says what fma_vec() makes of an element of a and a
 * vector of b, and how b is packed. */

enum {
    PANEL = PANEL_VECS * LANES,
    DEPTH_BLOCK = 256,
    DEPTH_BLOCK_ACROSS = 128, /* where each step of the depth takes another line of a */
};

enum gemm_start { START_ZERO, START_BIAS, START_ADD };
enum gemm_end { END_STORE, END_RELU, END_GATE_RELU, END_GATE_TANH };

static inline enum gemm_end end_of(enum activation activation)
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
    size_t lacks;        /* rows of b that the last step of the depth is short of, where a step has
                            several */
    size_t strip, a_strip; /* gemm_strips(): a's depth is in strips, from one to the next */
};

/* One tile: its corners, its part of the depth and the lanes of its last vector. */
struct tile {
    const float *a, *b, *bias, *gate;
    float *c;
    size_t b_k, depth, strips; /* strips of `depth` each */
    enum gemm_start start;
    enum gemm_end end;
    part last;
};

static INLINE vec load_at(const float *p, bool last, part lanes)
{
    return last ? load_part(p, lanes) : load(p);
}

static INLINE void store_at(float *p, vec v, bool last, part lanes)
{
    if (last)
        store_part(p, v, lanes);
    else
        store(p, v);
}

static INLINE void tile_sum(vec sum[TILE_ROWS_MAX][PANEL_VECS], const float *a, size_t a_row,
                            size_t a_k, const float *b, size_t b_k, size_t depth,
                            const unsigned rows, const unsigned vecs)
{
    for (size_t k = 0; k < depth; k++, a += a_k, b += b_k) {
        vec bs[PANEL_VECS];
        UNROLL for (unsigned v = 0; v < vecs; v++) bs[v] = load(b + v * LANES);
        UNROLL for (unsigned r = 0; r < rows; r++)
        {
            vec as = splat(a[r * a_row]);
            UNROLL for (unsigned v = 0; v < vecs; v++) sum[r][v] = fma_vec(as, bs[v], sum[r][v]);
        }
    }
}

static INLINE void tile_start(const struct gemm *g, const struct tile *t,
                              vec sum[TILE_ROWS_MAX][PANEL_VECS], const unsigned rows,
                              const unsigned vecs)
{
    if (t->start == START_ZERO) {
        UNROLL for (unsigned r = 0; r < rows; r++)
        {
            UNROLL for (unsigned v = 0; v < vecs; v++) sum[r][v] = splat(0);
        }
    } else if (t->start == START_BIAS) {
        UNROLL for (unsigned v = 0; v < vecs; v++)
        {
            vec bias = load_at(t->bias + v * LANES, v == vecs - 1, t->last);
            UNROLL for (unsigned r = 0; r < rows; r++) sum[r][v] = bias;
        }
    } else {
        const size_t c_row = g->c_row;
        UNROLL for (unsigned r = 0; r < rows; r++)
        {
            UNROLL for (unsigned v = 0; v < vecs; v++) sum[r][v] =
                load_at(t->c + r * c_row + v * LANES, v == vecs - 1, t->last);
        }
    }
}

static INLINE void tile_store(const struct gemm *g, const struct tile *t,
                              vec sum[TILE_ROWS_MAX][PANEL_VECS], const enum gemm_end end,
                              const unsigned rows, const unsigned vecs)
{
    float *c = t->c;
    const float *gate = t->gate;
    const size_t c_row = g->c_row, gate_row = g->gate_row;
    const part last = t->last;
    UNROLL for (unsigned r = 0; r < rows; r++)
    {
        UNROLL for (unsigned v = 0; v < vecs; v++)
        {
            vec out = sum[r][v];
            if (end == END_RELU) {
                out = max_vec(splat(0), out);
            } else if (end != END_STORE) {
                vec x = load_at(gate + r * gate_row + v * LANES, v == vecs - 1, last);
                if (end == END_GATE_RELU)
                    out = keep_where_positive(out, x);
                else
                    out = out * (splat(1) - x * x);
            }
            store_at(c + r * c_row + v * LANES, out, v == vecs - 1, last);
        }
    }
}

/* `rows` and `vecs` are constants; the branches are outside of the unrolled loops. */
static INLINE void tile_run(const struct gemm *g, const struct tile *t, const unsigned rows,
                            const unsigned vecs)
{
    vec sum[TILE_ROWS_MAX][PANEL_VECS];
    tile_start(g, t, sum, rows, vecs);
    const float *a = t->a, *b = t->b;
    const size_t a_row = g->a_row, a_k = g->a_k, b_k = t->b_k, depth = t->depth;
    size_t more = t->strips;
    do {
        if (a_row == 1) /* as a constant it needs no addresses in registers */
            tile_sum(sum, a, 1, a_k, b, b_k, depth, rows, vecs);
        else
            tile_sum(sum, a, a_row, a_k, b, b_k, depth, rows, vecs);
        a += g->a_strip;
        b += depth * b_k;
    } while (--more > 0);
    switch (t->end) {
    case END_STORE:
        tile_store(g, t, sum, END_STORE, rows, vecs);
        break;
    case END_RELU:
        tile_store(g, t, sum, END_RELU, rows, vecs);
        break;
    case END_GATE_RELU:
        tile_store(g, t, sum, END_GATE_RELU, rows, vecs);
        break;
    case END_GATE_TANH:
        tile_store(g, t, sum, END_GATE_TANH, rows, vecs);
        break;
    }
}

typedef void tile_function(const struct gemm *, const struct tile *);

#define TILE(rows, vecs)                                                                           \
    static void tile_##rows##x##vecs(const struct gemm *g, const struct tile *t)                   \
    {                                                                                              \
        tile_run(g, t, rows, vecs);                                                                \
    }
TILES(TILE)
#undef TILE

/* [vecs - 1][rows - 1]; tiles of `vecs` are at most tile_rows[vecs - 1] high. */
#define TILE(rows, vecs) [vecs - 1][rows - 1] = tile_##rows##x##vecs,
static tile_function *const tiles[PANEL_VECS][TILE_ROWS_MAX] = {TILES(TILE)};
#undef TILE

/* The most rows of a tile: as many sums as there are registers for. */
static const uint8_t tile_rows[PANEL_VECS] = TILE_ROWS;

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

static void tile_place_b(const struct gemm *g, struct tile *t, size_t k, size_t column,
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

/* All rows of one panel, tile by tile; the tiles are about equally high. */
static void gemm_rows(const struct gemm *g, struct tile *t, size_t column, size_t k, size_t vecs)
{
    size_t highest = tile_rows[vecs - 1], count = (g->rows + highest - 1) / highest;
    size_t low = count > 0 ? g->rows / count : 0, higher = g->rows - low * count;
    for (size_t i = 0, row = 0; i < count; i++) {
        size_t rows = low + (i < higher);
        t->a = g->a + row * g->a_row + k * g->a_k;
        t->c = g->c + row * g->c_row + column;
        t->gate = g->gate ? g->gate + row * g->gate_row + column : NULL;
        tiles[vecs - 1][rows - 1](g, t);
        row += rows;
    }
}

/* One panel of c over one block of the depth. */
static void gemm_block(const struct gemm *g, size_t column, size_t k, size_t depth)
{
    struct tile t = {
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

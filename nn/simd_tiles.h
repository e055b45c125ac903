/* Tiles of c that stay in registers while the depth runs, for simd_gemm.h. Who includes this says
 * what fma_vec() makes of an element of a and a vector of b. */

static INLINE vec load_at(const float *p, bool last, part lanes)
{
    return last ? load_part(p, lanes) : load_vec(p);
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
        UNROLL for (unsigned v = 0; v < vecs; v++) bs[v] = load_vec(b + v * LANES);
        UNROLL for (unsigned r = 0; r < rows; r++)
        {
            vec as = splat(a[r * a_row]);
            UNROLL for (unsigned v = 0; v < vecs; v++) sum[r][v] = fma_vec(as, bs[v], sum[r][v]);
        }
    }
}

static INLINE void tile_start(const struct gemm *g, const struct gemm_tile *t,
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

static INLINE void tile_store(const struct gemm *g, const struct gemm_tile *t,
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
static INLINE void tile_run(const struct gemm *g, const struct gemm_tile *t, const unsigned rows,
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

typedef void tile_function(const struct gemm *, const struct gemm_tile *);

#define TILE(rows, vecs)                                                                           \
    static void tile_##rows##x##vecs(const struct gemm *g, const struct gemm_tile *t)              \
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

/* All rows of one panel, tile by tile; the tiles are about equally high. */
static void gemm_rows(const struct gemm *g, struct gemm_tile *t, size_t column, size_t k,
                      size_t vecs)
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

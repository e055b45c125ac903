/* Compressors by the rules of their systems, over groups of ranks: what is sent and what is kept is
 * what was summed up, all ranks have the same bits, and bytes are as the formulas say. */
#include "tests/learner/collective/ranks.h"

#include <math.h>

#include "learner/compress/compress.h"

enum { COUNT = 4 * 512 + 100, SUMS_MAX = 24, COLUMNS = 128, ROWS_OF_MATRIX = 16 };

/* One test: what each rank adds in each sum, and what came of it. */
struct script {
    struct compress_options options;
    const trp_net_tensor *tensors;
    size_t tensor_count, count;
    uint32_t sums;
    float (*gradient)(uint32_t rank, uint32_t sum, size_t i);
    uint32_t joins_at; /* before this sum a new generation begins; 0: never */
    float clip;        /* 0: none */
    bool ranges;       /* each rank needs a range of the sum alone */
    float *out[RANKS_MAX][SUMS_MAX];
    float *rest[RANKS_MAX];
    uint64_t bytes[SUMS_MAX], sent[RANKS_MAX][SUMS_MAX];
};

static trp_status wait_for(void *context, uint64_t ticket)
{
    return rank_wait(context, ticket);
}

/* Of the first rank's range, in the middle of a run; then nothing, and all else. */
static size_t range_end(const struct script *script, uint32_t rank, uint32_t size)
{
    return rank + 1 < size ? 300 : script->count;
}

static void join_script(const struct rank *rank, struct compressor *c, uint32_t sum)
{
    const struct script *script = rank->context;
    size_t ends[RANKS_MAX];
    for (uint32_t i = 0; i < rank->size; i++)
        ends[i] = range_end(script, i, rank->size);
    if (script->ranges)
        compressor_join_ranges(c, rank->rank, rank->size, sum, ends);
    else
        compressor_join(c, rank->rank, rank->size, sum);
}

static void play_script(struct rank *rank)
{
    struct script *script = rank->context;
    size_t count = script->count;
    struct compressor *c = (script->ranges ? compressor_create_ranges : compressor_create)(
        &script->options, count, script->tensors, script->tensor_count);
    struct compress_wire wire = {rank->group, wait_for, rank};
    join_script(rank, c, 0);
    for (uint32_t sum = 0; sum < script->sums && rank->status == TRP_OK; sum++) {
        float *grads = script->out[rank->rank][sum] = xcalloc(count, sizeof *grads);
        if (script->joins_at > 0 && sum == script->joins_at)
            join_script(rank, c, sum);
        for (size_t i = 0; i < count; i++)
            grads[i] = script->gradient(rank->rank, sum, i);
        uint64_t before = trp_collective_read(rank->group).bytes_sent;
        if (rank->rank == 0)
            script->bytes[sum] = compressor_bytes(c);
        if (compressor_sum(c, &wire, grads, script->clip > 0 ? script->clip : 1) != TRP_OK)
            break;
        script->sent[rank->rank][sum] = trp_collective_read(rank->group).bytes_sent - before;
    }
    script->rest[rank->rank] = xcalloc(count, sizeof(float));
    compressor_add_rest(c, script->rest[rank->rank]);
    compressor_destroy(c);
}

/* To rank 0, which has the first. */
static void gather_ranges(struct script *script, uint32_t size)
{
    for (uint32_t rank = 1; rank < size && script->ranges; rank++) {
        size_t lo = range_end(script, rank - 1, size), hi = range_end(script, rank, size);
        for (uint32_t sum = 0; sum < script->sums; sum++)
            memcpy(script->out[0][sum] + lo, script->out[rank][sum] + lo,
                   (hi - lo) * sizeof(float));
    }
}

static void script_run(struct script *script, uint32_t size)
{
    struct ranks ranks;
    script->count = script->count > 0 ? script->count : COUNT;
    ranks_create(&ranks, size);
    ranks_run(&ranks, play_script, script);
    ranks_expect_right(&ranks);
    ranks_destroy(&ranks);
    gather_ranges(script, size);
    for (uint32_t rank = 1; rank < size && !script->ranges; rank++)
        for (uint32_t sum = 0; sum < script->sums; sum++)
            assert_memory_equal(script->out[rank][sum], script->out[0][sum],
                                script->count * sizeof(float));
}

static void script_free(struct script *script)
{
    for (uint32_t rank = 0; rank < RANKS_MAX; rank++) {
        for (uint32_t sum = 0; sum < SUMS_MAX; sum++)
            free(script->out[rank][sum]);
        free(script->rest[rank]);
    }
}

/* Sums that came out and all rests, less all gradients: the largest that is not 0. */
static double lost(const struct script *script, uint32_t size)
{
    double most = 0;
    for (size_t i = 0; i < script->count; i++) {
        double left = 0;
        for (uint32_t sum = 0; sum < script->sums; sum++)
            left += script->out[0][sum][i];
        for (uint32_t rank = 0; rank < size; rank++) {
            left += script->rest[rank][i];
            for (uint32_t sum = 0; sum < script->sums; sum++)
                left -= script->gradient(rank, sum, i);
        }
        most = fabs(left) > most ? fabs(left) : most;
    }
    return most;
}

static double rests(const struct script *script, uint32_t size)
{
    double sum = 0;
    for (uint32_t rank = 0; rank < size; rank++)
        for (size_t i = 0; i < script->count; i++)
            sum += fabs((double)script->rest[rank][i]);
    return sum;
}

/* Two matrices and a vector behind each of them. */
static const trp_net_tensor matrices[] = {
    {.rank = 2,
     .offset = 0,
     .count = ROWS_OF_MATRIX * 96,
     .axis_count = 2,
     .axes = {{ROWS_OF_MATRIX, 96}, {96, 1}}},
    {.rank = 1, .offset = 1536, .count = 100, .axis_count = 1, .axes = {{100, 1}}},
    {.rank = 2, .offset = 1636, .count = 512, .axis_count = 2, .axes = {{4, 128}, {128, 1}}},
};
enum { TENSORS = sizeof matrices / sizeof *matrices };

/* ---- all of them ----------------------------------------------------------------------------- */

/* Of 11 bits, more than bf16 has. */
static float integers(uint32_t rank, uint32_t sum, size_t i)
{
    return (float)((i * 7919 + rank * 104729 + sum * 1299709) % 2039) - 1019;
}

static void sent_and_kept_are_the_gradients_to_the_last_bit(void **state)
{
    (void)state;
    const enum compression kinds[] = {COMPRESS_BF16, COMPRESS_F16, COMPRESS_TOP_K};
    for (size_t k = 0; k < sizeof kinds / sizeof *kinds; k++)
        for (uint32_t size = 1; size <= 4; size++) {
            struct script script = {.options = {.kind = kinds[k], .ratio = 0.05},
                                    .sums = 12,
                                    .joins_at = 7,
                                    .gradient = integers};
            script_run(&script, size);
            assert_true(lost(&script, size) == 0);
            assert_true(kinds[k] == COMPRESS_F16 || rests(&script, size) > 0);
            script_free(&script);
        }
}

static void bytes_are_as_the_formula_says(void **state)
{
    (void)state;
    for (enum compression kind = COMPRESS_BF16; kind < COMPRESSIONS; kind++)
        for (uint32_t size = 1; size <= 4; size++) {
            if (kind == COMPRESS_POWERSGD && size > 2)
                continue; /* small vectors are not summed by rings */
            struct script script = {.options = {.kind = kind, .ratio = 0.05, .bits = 4},
                                    .tensors = matrices,
                                    .tensor_count = TENSORS,
                                    .sums = 2,
                                    .gradient = integers};
            script_run(&script, size);
            for (uint32_t sum = 0; sum < 2; sum++) {
                uint64_t sent = 0;
                for (uint32_t rank = 0; rank < size; rank++)
                    sent += script.sent[rank][sum];
                assert_int_equal(sent, script.bytes[sum]);
            }
            script_free(&script);
        }
}

/* Owners keep nothing, so that what is kept is what was not sent to them; and codes go one way. */
static void who_needs_a_range_of_the_sum_has_it_for_half_the_bytes(void **state)
{
    (void)state;
    for (enum compression kind = COMPRESS_BF16; kind < COMPRESSIONS; kind++)
        for (uint32_t size = 1; size <= 4; size++) {
            struct script script = {.options = {.kind = kind, .ratio = 0.05},
                                    .tensors = matrices,
                                    .tensor_count = TENSORS,
                                    .sums = 12,
                                    .joins_at = 7,
                                    .ranges = true,
                                    .gradient = integers};
            bool is_exact = kind == COMPRESS_BF16 || kind == COMPRESS_F16 || kind == COMPRESS_TOP_K;
            script_run(&script, size);
            assert_true(!is_exact || lost(&script, size) == 0);
            assert_true(kind == COMPRESS_QSGD || lost(&script, size) < 1);
            for (uint32_t sum = 0; sum < 12 && kind != COMPRESS_POWERSGD; sum++) {
                uint64_t sent = 0;
                for (uint32_t rank = 0; rank < size; rank++)
                    sent += script.sent[rank][sum];
                assert_int_equal(sent, script.bytes[sum]);
            }
            if (kind == COMPRESS_BF16 && size == 2) /* 300 numbers, and 1848: blocks of those */
                assert_int_equal(script.bytes[0], 2 * 3712);
            script_free(&script);
        }
}

/* 2048 numbers for 2 ranks: a half each way, in blocks of 128 bytes. */
static void a_sum_of_2048_numbers_sends_so_many_bytes(void **state)
{
    (void)state;
    const struct {
        struct compress_options options;
        uint64_t bytes; /* of both ranks; of floats it is 2 * 8192 */
    } rows[] = {
        {{.kind = COMPRESS_BF16}, 4 * 2048},
        {{.kind = COMPRESS_F16}, 4 * 2048},
        {{.kind = COMPRESS_ONE_BIT}, 4 * 256},                 /* 2 runs of 8 + 64: 144 */
        {{.kind = COMPRESS_QSGD, .bits = 4}, 4 * 640},         /* 2 runs of 4 + 256: 520 */
        {{.kind = COMPRESS_TOP_K, .ratio = 0.0625}, 2 * 1024}, /* 128 of 8 */
        {{.kind = COMPRESS_POWERSGD, .rank = 1}, 2 * 4 * (16 + 128)},
    };
    static const trp_net_tensor square = {
        .rank = 2, .count = 2048, .axis_count = 2, .axes = {{16, 128}, {128, 1}}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        bool matrix = rows[i].options.kind == COMPRESS_POWERSGD;
        struct script script = {.options = rows[i].options,
                                .tensors = &square,
                                .tensor_count = matrix,
                                .count = 2048,
                                .sums = 1,
                                .gradient = integers};
        script_run(&script, 2);
        assert_int_equal(script.sent[0][0] + script.sent[1][0], rows[i].bytes);
        script_free(&script);
    }
}

static void numbers_that_cannot_be_compressed_are_seen(void **state)
{
    (void)state;
    float values[5000] = {0};
    const float unfit[] = {NAN, INFINITY, -INFINITY, 0x1p51F, -0x1p51F};
    values[17] = -0x1p50F;
    assert_true(compress_fits(values, 5000));
    for (size_t i = 0; i < sizeof unfit / sizeof *unfit; i++)
        for (size_t at = 0; at < 5000; at += 4999) {
            values[at] = unfit[i];
            assert_false(compress_fits(values, 5000));
            values[at] = 0;
        }
}

/* ---- casts ----------------------------------------------------------------------------------- */

static double f16_value(uint32_t half)
{
    int exponent = (int)(half >> 10 & 31), mantissa = (int)(half & 1023);
    double size = exponent > 0 ? ldexp(1024 + mantissa, exponent - 25) : ldexp(mantissa, -24);
    return half & 0x8000 ? -size : size;
}

static double bf16_value(uint32_t half)
{
    uint32_t bits = half << 16;
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

/* Every number of the format, every middle between two, and a little to each side of it. */
enum { HALF_CASES = 4, HALVES = 0x7bff };

static float half_case(size_t i, double (*value)(uint32_t half))
{
    uint32_t half = (uint32_t)(i / HALF_CASES) % HALVES;
    float low = (float)value(half), high = (float)value(half + 1), middle = (low + high) / 2;
    const float cases[HALF_CASES] = {low, nextafterf(middle, low), middle,
                                     nextafterf(middle, high)};
    return cases[i % HALF_CASES];
}

static float f16_cases(uint32_t rank, uint32_t sum, size_t i)
{
    (void)rank;
    float value = half_case(i, f16_value);
    return sum == 0 ? value : -value;
}

static void f16_rounds_to_the_nearest_and_of_two_to_the_even_one(void **state)
{
    (void)state;
    struct script script = {.options = {.kind = COMPRESS_F16},
                            .count = HALF_CASES * HALVES,
                            .sums = 1,
                            .gradient = f16_cases};
    script_run(&script, 1);
    for (size_t i = 0; i < script.count; i++) {
        uint32_t half = (uint32_t)(i / HALF_CASES), up = half + 1;
        bool rises = i % HALF_CASES == 3 || (i % HALF_CASES == 2 && half % 2 == 1);
        assert_true(script.out[0][0][i] == (float)f16_value(rises ? up : half));
    }
    script_free(&script);
}

static float bf16_cases(uint32_t rank, uint32_t sum, size_t i)
{
    (void)rank;
    (void)sum;
    uint32_t half = 0x3000 + (uint32_t)(i / HALF_CASES); /* around 1 */
    float low = (float)bf16_value(half), high = (float)bf16_value(half + 1);
    const float cases[HALF_CASES] = {low, nextafterf((low + high) / 2, low), (low + high) / 2,
                                     nextafterf((low + high) / 2, high)};
    return -cases[i % HALF_CASES];
}

static void bf16_rounds_to_the_nearest_and_of_two_to_the_even_one(void **state)
{
    (void)state;
    struct script script = {.options = {.kind = COMPRESS_BF16},
                            .count = HALF_CASES * 0x2000,
                            .sums = 1,
                            .gradient = bf16_cases};
    script_run(&script, 1);
    for (size_t i = 0; i < script.count; i++) {
        uint32_t half = 0x3000 + (uint32_t)(i / HALF_CASES);
        bool rises = i % HALF_CASES == 3 || (i % HALF_CASES == 2 && half % 2 == 1);
        assert_true(script.out[0][0][i] == -(float)bf16_value(rises ? half + 1 : half));
    }
    script_free(&script);
}

static float huge_once(uint32_t rank, uint32_t sum, size_t i)
{
    (void)rank;
    return sum == 0 && i == 3 ? 131008 : 0;
}

/* The rest of a number beyond the format comes in the sums after. */
static void f16_sends_a_number_that_is_too_large_in_parts(void **state)
{
    (void)state;
    struct script script = {.options = {.kind = COMPRESS_F16}, .sums = 3, .gradient = huge_once};
    script_run(&script, 1);
    assert_true(script.out[0][0][3] == 65504 && script.out[0][1][3] == 65504);
    assert_true(script.out[0][2][3] == 0);
    script_free(&script);
}

/* ---- deep gradient compression ----------------------------------------------------------------
 */

static float halves(uint32_t rank, uint32_t sum, size_t i)
{
    return (float)((i * 31 + rank * 17 + sum * 7) % 64) - 32;
}

static void check_momentum(bool keep)
{
    struct script script = {
        .options = {.kind = COMPRESS_TOP_K, .ratio = 1, .momentum = 0.5, .keep_momentum = keep},
        .sums = 8,
        .gradient = halves};
    script_run(&script, 3);
    for (size_t i = 0; i < COUNT; i++)
        for (uint32_t rank = 0, sum = 0; sum < script.sums; sum++) {
            double expected = 0;
            for (rank = 0; rank < 3; rank++) {
                double velocity = 0;
                for (uint32_t t = keep ? 0 : sum; t <= sum; t++)
                    velocity = 0.5 * velocity + halves(rank, t, i);
                expected += velocity;
            }
            assert_true(script.out[0][sum][i] == (float)expected);
        }
    script_free(&script);
}

static void dgc_of_everything_with_masking_is_plain_sgd(void **state)
{
    (void)state;
    check_momentum(false);
}

static void dgc_of_everything_without_masking_is_momentum_sgd(void **state)
{
    (void)state;
    check_momentum(true);
}

/* u and v by the paper's algorithm in double, chosen by sorting. */
struct dgc_rank {
    double u[COUNT], v[COUNT];
};

static int larger_first(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return x < y ? 1 : x > y ? -1 : 0;
}

static void dgc_reference(struct dgc_rank *rank, uint32_t number, uint32_t sum, double momentum,
                          size_t k, double *out)
{
    double sorted[COUNT];
    for (size_t i = 0; i < COUNT; i++) {
        rank->u[i] = momentum * rank->u[i] + integers(number, sum, i);
        rank->v[i] += rank->u[i];
        sorted[i] = fabs(rank->v[i]);
    }
    qsort(sorted, COUNT, sizeof *sorted, larger_first);
    size_t above = 0;
    for (size_t i = 0; i < COUNT; i++)
        above += fabs(rank->v[i]) > sorted[k - 1];
    size_t equal = k - above;
    for (size_t i = 0; i < COUNT; i++) {
        double size = fabs(rank->v[i]);
        bool sends = size > sorted[k - 1] || (size == sorted[k - 1] && equal > 0);
        equal -= size == sorted[k - 1] && sends;
        if (!sends)
            continue;
        out[i] += rank->v[i];
        rank->u[i] = rank->v[i] = 0;
    }
}

static void dgc_sends_the_largest_with_corrected_momentum(void **state)
{
    (void)state;
    struct script script = {.options = {.kind = COMPRESS_TOP_K, .ratio = 0.02, .momentum = 0.5},
                            .sums = 10,
                            .gradient = integers};
    script_run(&script, 2);
    struct dgc_rank *ranks = xcalloc(2, sizeof *ranks);
    for (uint32_t sum = 0; sum < script.sums; sum++) {
        double out[COUNT] = {0};
        for (uint32_t rank = 0; rank < 2; rank++)
            dgc_reference(&ranks[rank], rank, sum, 0.5, 43, out);
        for (size_t i = 0; i < COUNT; i++)
            assert_true(script.out[0][sum][i] == (float)out[i]);
    }
    free(ranks);
    script_free(&script);
}

static float nonzero(uint32_t rank, uint32_t sum, size_t i)
{
    (void)rank;
    (void)sum;
    return (float)(1 + i % 5); /* many are equal */
}

/* 75, 93.75, 98.4375, 99.6 and 99.9 percent are not sent. */
static void dgc_warms_up_to_its_sparsity(void **state)
{
    (void)state;
    enum { NUMBERS_SENT_OF = 1 << 13 };
    struct script script = {.options = {.kind = COMPRESS_TOP_K, .warmup_steps = 8},
                            .count = NUMBERS_SENT_OF,
                            .sums = 10,
                            .gradient = nonzero};
    script_run(&script, 1);
    const size_t expected[] = {2048, 2048, 512, 512, 128, 128, 32, 32, 9, 9};
    for (uint32_t sum = 0; sum < script.sums; sum++) {
        size_t sent = 0;
        for (size_t i = 0; i < script.count; i++)
            sent += script.out[0][sum][i] != 0;
        assert_int_equal(sent, expected[sum]);
    }
    script_free(&script);
}

static void dgc_clips_a_ranks_part_by_the_root_of_their_number(void **state)
{
    (void)state;
    struct compressor *c =
        compressor_create(&(struct compress_options){.kind = COMPRESS_TOP_K}, 8, NULL, 0);
    compressor_join(c, 1, 4, 0);
    assert_true(compressor_part_norm(c, 3) == 1.5);
    compressor_destroy(c);
    struct script script = {.options = {.kind = COMPRESS_TOP_K, .ratio = 1},
                            .sums = 1,
                            .gradient = halves,
                            .clip = 0.25F};
    script_run(&script, 1);
    for (size_t i = 0; i < COUNT; i++)
        assert_true(script.out[0][0][i] == 0.25F * halves(0, 0, i));
    script_free(&script);
}

/* ---- one bit --------------------------------------------------------------------------------- */

/* Half of each column is positive on each rank, and of their sums too; so means are dyadic. */
static float halved_signs(uint32_t rank, uint32_t sum, size_t i)
{
    bool positive = rank == 0 ? i % 2 == 0 : i / 2 % 2 == 0;
    float size = (rank == 0 ? 24 : 8) + (float)((i / 4 + sum) % 4);
    return positive ? size : -size;
}

static void one_bit_keeps_on_both_levels_what_it_does_not_send(void **state)
{
    (void)state;
    struct script script = {
        .options = {.kind = COMPRESS_ONE_BIT}, .count = 2048, .sums = 2, .gradient = halved_signs};
    script_run(&script, 2);
    assert_true(lost(&script, 2) == 0);
    assert_true(rests(&script, 2) > 0);
    script_free(&script);
    /* In a new generation an owner sends as its own what it had not handed on. */
    struct script moved = {.options = {.kind = COMPRESS_ONE_BIT},
                           .count = 2048,
                           .sums = 2,
                           .joins_at = 1,
                           .gradient = halved_signs};
    script_run(&moved, 2);
    assert_true(lost(&moved, 2) == 0);
    script_free(&moved);
}

static void one_bit_of_a_rank_alone_is_the_mean_of_each_sign(void **state)
{
    (void)state;
    struct script script = {.options = {.kind = COMPRESS_ONE_BIT},
                            .tensors = matrices,
                            .tensor_count = TENSORS,
                            .count = 2148,
                            .sums = 1,
                            .gradient = integers};
    script_run(&script, 1);
    const size_t cuts[] = {0, 96, 192, 288}; /* columns of the first matrix */
    for (size_t run = 0; run + 1 < sizeof cuts / sizeof *cuts; run++) {
        double sums[2] = {0}, counts[2] = {0};
        for (size_t i = cuts[run]; i < cuts[run + 1]; i++) {
            sums[integers(0, 0, i) >= 0] += integers(0, 0, i);
            counts[integers(0, 0, i) >= 0]++;
        }
        for (size_t i = cuts[run]; i < cuts[run + 1]; i++) {
            int side = integers(0, 0, i) >= 0;
            assert_true(script.out[0][0][i] == (float)(sums[side] / counts[side]));
        }
    }
    script_free(&script);
}

static float third_of_column(uint32_t rank, uint32_t sum, size_t i)
{
    (void)sum;
    return (float)(i / 512 + 1) / 3 * (rank == 0 ? 1.0F : -0.125F);
}

static void one_bit_of_equal_numbers_is_exact(void **state)
{
    (void)state;
    struct script script = {.options = {.kind = COMPRESS_ONE_BIT},
                            .count = 4096,
                            .sums = 3,
                            .gradient = third_of_column};
    script_run(&script, 2);
    for (size_t i = 0; i < script.count; i++)
        assert_true(script.out[0][2][i] == third_of_column(0, 0, i) + third_of_column(1, 0, i));
    assert_true(rests(&script, 2) == 0);
    script_free(&script);
}

/* ---- qsgd ------------------------------------------------------------------------------------ */

enum { DRAWS = 100000, DRAWN = 16 };

struct drawing {
    double sums[DRAWN], squares[DRAWN];
    uint64_t same;
};

static const float drawn[DRAWN] = {0,    1,     -1,   0.5F, -0.25F, 3,    -2.5F, 0.1F,
                                   0.7F, -0.7F, 1.9F, 0,    -0.01F, 2.2F, 0.33F, -3};

static void draw(struct rank *rank)
{
    struct drawing *drawing = rank->context;
    struct compressor *c = compressor_create(
        &(struct compress_options){.kind = COMPRESS_QSGD, .bits = 3}, DRAWN, NULL, 0);
    struct compress_wire wire = {rank->group, wait_for, rank};
    float before[DRAWN] = {0};
    for (uint32_t i = 0; i < DRAWS; i++) {
        float grads[DRAWN];
        memcpy(grads, drawn, sizeof grads);
        if (compressor_sum(c, &wire, grads, 1) != TRP_OK)
            break;
        drawing->same += memcmp(before, grads, sizeof grads) == 0;
        memcpy(before, grads, sizeof grads);
        for (size_t k = 0; k < DRAWN; k++) {
            drawing->sums[k] += grads[k];
            drawing->squares[k] += (double)grads[k] * grads[k];
        }
    }
    compressor_destroy(c);
}

static void qsgd_is_right_in_the_mean_of_a_hundred_thousand_draws(void **state)
{
    (void)state;
    struct drawing drawing = {0}, again = {0};
    struct ranks ranks;
    ranks_create(&ranks, 1);
    ranks_run(&ranks, draw, &drawing);
    ranks_run(&ranks, draw, &again);
    ranks_destroy(&ranks);
    for (size_t k = 0; k < DRAWN; k++) {
        double mean = drawing.sums[k] / DRAWS;
        double spread = sqrt((drawing.squares[k] / DRAWS - mean * mean) / DRAWS);
        assert_true(fabs(mean - (double)drawn[k]) <= 5 * spread + 1e-6);
        assert_true(drawn[k] == 0 || spread > 0);
    }
    assert_true(drawing.same < DRAWS / 100);               /* each sum draws anew, */
    assert_memory_equal(&drawing, &again, sizeof drawing); /* and all runs the same */
}

/* ---- powersgd -------------------------------------------------------------------------------- */

/* Of rank 2 in each matrix. */
static float of_rank_two(uint32_t rank, uint32_t sum, size_t i)
{
    (void)sum;
    size_t offset = i < 1536 ? 0 : 1636, columns = i < 1536 ? 96 : 128;
    if (i >= 1536 && i < 1636)
        return (float)(i % 7) - 3;
    size_t row = (i - offset) / columns, column = (i - offset) % columns;
    return (float)(row % 4 + 1) * (float)(column % 5) +
           (float)(row * row % 7) * (float)((column * 3 + rank) % 2);
}

static double distance(const struct script *script, uint32_t sum, uint32_t size)
{
    double most = 0;
    for (size_t i = 0; i < script->count; i++) {
        double left = script->out[0][sum][i];
        for (uint32_t rank = 0; rank < size; rank++)
            left -= script->gradient(rank, sum, i);
        most = fabs(left) > most ? fabs(left) : most;
    }
    return most;
}

static void powersgd_sends_a_matrix_of_its_rank_whole(void **state)
{
    (void)state;
    struct script script = {.options = {.kind = COMPRESS_POWERSGD, .rank = 3},
                            .tensors = matrices,
                            .tensor_count = TENSORS,
                            .count = 2148,
                            .sums = 2,
                            .gradient = of_rank_two};
    script_run(&script, 2);
    assert_true(distance(&script, 0, 2) < 1e-3);
    for (size_t i = 1536; i < 1636; i++) /* a vector goes as it is */
        assert_true(script.out[0][1][i] == of_rank_two(0, 1, i) + of_rank_two(1, 1, i));
    script_free(&script);
}

static double mean_distance(const struct script *script, uint32_t size)
{
    double sum2 = 0, all2 = 0;
    for (size_t i = 0; i < script->count; i++) {
        double left = 0, whole = 0;
        for (uint32_t sum = 0; sum < script->sums; sum++)
            left += script->out[0][sum][i];
        for (uint32_t rank = 0; rank < size; rank++)
            whole += script->sums * (double)script->gradient(rank, 0, i);
        sum2 += (left - whole) * (left - whole);
        all2 += whole * whole;
    }
    return sqrt(sum2 / all2);
}

static float always(uint32_t rank, uint32_t sum, size_t i)
{
    (void)sum;
    return integers(rank, 0, i);
}

/* A gradient of full rank: each sum begins from the factor before, and what is left comes later. */
static void powersgd_catches_up_with_a_gradient_of_full_rank(void **state)
{
    (void)state;
    double before = 1;
    for (uint32_t sums = 1; sums <= 16; sums *= 4) {
        struct script script = {.options = {.kind = COMPRESS_POWERSGD, .rank = 2},
                                .tensors = matrices,
                                .tensor_count = TENSORS,
                                .count = 2148,
                                .sums = sums,
                                .gradient = always};
        script_run(&script, 2);
        assert_true(lost(&script, 2) < 0.05);
        assert_true(mean_distance(&script, 2) < 0.95 * before);
        before = mean_distance(&script, 2);
        script_free(&script);
    }
    assert_true(before < 0.5);
}

static float late(uint32_t rank, uint32_t sum, size_t i)
{
    return sum < 2 ? 0 : of_rank_two(rank, sum, i);
}

static void powersgd_begins_anew_after_a_gradient_of_zeros(void **state)
{
    (void)state;
    struct script script = {.options = {.kind = COMPRESS_POWERSGD, .rank = 3},
                            .tensors = matrices,
                            .tensor_count = TENSORS,
                            .count = 2148,
                            .sums = 3,
                            .gradient = late};
    script_run(&script, 2);
    assert_true(distance(&script, 1, 2) == 0);
    assert_true(distance(&script, 2, 2) < 1e-3);
    script_free(&script);
}

/* ---- options --------------------------------------------------------------------------------- */

static void options_are_refused_by_name(void **state)
{
    (void)state;
    const struct {
        struct compress_options options;
        const char *word;
    } rows[] = {{{.ratio = 1.5}, "compression_ratio"},     {{.ratio = NAN}, "compression_ratio"},
                {{.momentum = 1}, "compression_momentum"}, {{.rank = 33}, "compression_rank"},
                {{.bits = 1}, "compression_bits"},         {{.bits = 9}, "compression_bits"}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        assert_int_equal(compress_check(&rows[i].options), TRP_INVALID_ARGUMENT);
        assert_non_null(strstr(trp_last_error(), rows[i].word));
    }
    enum compression kind;
    assert_int_equal(compress_find("gzip", &kind), TRP_INVALID_ARGUMENT);
    assert_non_null(strstr(trp_last_error(), "powersgd"));
    for (enum compression each = COMPRESS_NONE; each < COMPRESSIONS; each++) {
        assert_int_equal(compress_find(compress_name(each), &kind), TRP_OK);
        assert_int_equal(kind, each);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sent_and_kept_are_the_gradients_to_the_last_bit),
        cmocka_unit_test(bytes_are_as_the_formula_says),
        cmocka_unit_test(who_needs_a_range_of_the_sum_has_it_for_half_the_bytes),
        cmocka_unit_test(a_sum_of_2048_numbers_sends_so_many_bytes),
        cmocka_unit_test(numbers_that_cannot_be_compressed_are_seen),
        cmocka_unit_test(f16_rounds_to_the_nearest_and_of_two_to_the_even_one),
        cmocka_unit_test(bf16_rounds_to_the_nearest_and_of_two_to_the_even_one),
        cmocka_unit_test(f16_sends_a_number_that_is_too_large_in_parts),
        cmocka_unit_test(dgc_of_everything_with_masking_is_plain_sgd),
        cmocka_unit_test(dgc_of_everything_without_masking_is_momentum_sgd),
        cmocka_unit_test(dgc_sends_the_largest_with_corrected_momentum),
        cmocka_unit_test(dgc_warms_up_to_its_sparsity),
        cmocka_unit_test(dgc_clips_a_ranks_part_by_the_root_of_their_number),
        cmocka_unit_test(one_bit_keeps_on_both_levels_what_it_does_not_send),
        cmocka_unit_test(one_bit_of_a_rank_alone_is_the_mean_of_each_sign),
        cmocka_unit_test(one_bit_of_equal_numbers_is_exact),
        cmocka_unit_test(qsgd_is_right_in_the_mean_of_a_hundred_thousand_draws),
        cmocka_unit_test(powersgd_sends_a_matrix_of_its_rank_whole),
        cmocka_unit_test(powersgd_catches_up_with_a_gradient_of_full_rank),
        cmocka_unit_test(powersgd_begins_anew_after_a_gradient_of_zeros),
        cmocka_unit_test(options_are_refused_by_name),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

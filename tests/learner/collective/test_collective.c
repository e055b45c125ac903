/* Collective operations: results, order, counters. */
#include "ranks.h"

#include <troupe/rng.h>

/* ---- integer-valued values, whose sums are exact in any order ------------------------------- */

static const size_t counts[] = {0,   1,   2,    31,   32,   33,   63,    64,    65,    100,
                                127, 200, 1000, 4095, 4096, 8191, 16384, 16385, 40000, 100003};
enum { COUNTS = sizeof counts / sizeof *counts, COUNT_MAX = 100003 };

static const trp_collective_type types[] = {TRP_COLLECTIVE_F32, TRP_COLLECTIVE_BF16,
                                            TRP_COLLECTIVE_I32, TRP_COLLECTIVE_U64};
static const size_t type_bytes[] = {4, 2, 4, 8};

/* -4 to 4: five ranks' sums are exact even in bf16. Unsigned ones wrap. */
static int64_t whole_value(uint32_t rank, size_t index)
{
    return (int64_t)((index * 7 + rank * 5 + index / 9) % 9) - 4;
}

static void store_value(void *values, size_t index, trp_collective_type type, int64_t value)
{
    float real = (float)value;
    uint32_t bits;
    memcpy(&bits, &real, sizeof bits);
    switch (type) {
    case TRP_COLLECTIVE_F32:
        ((float *)values)[index] = real;
        break;
    case TRP_COLLECTIVE_BF16:
        ((uint16_t *)values)[index] = (uint16_t)(bits >> 16);
        break;
    case TRP_COLLECTIVE_I32:
        ((int32_t *)values)[index] = (int32_t)value;
        break;
    case TRP_COLLECTIVE_U64:
        ((uint64_t *)values)[index] = (uint64_t)value;
        break;
    }
}

static int64_t combined(uint32_t size, size_t index, trp_collective_type type, trp_collective_op op)
{
    int64_t result = whole_value(0, index);
    for (uint32_t rank = 1; rank < size; rank++) {
        int64_t value = whole_value(rank, index);
        bool larger =
            type == TRP_COLLECTIVE_U64 ? (uint64_t)value > (uint64_t)result : value > result;
        if (op == TRP_COLLECTIVE_SUM)
            result += value;
        else
            result = larger ? value : result;
    }
    return result;
}

struct kind {
    trp_collective_type type;
    trp_collective_op op;
    size_t bytes;
};

static void fill(const struct rank *rank, const struct kind *kind, void *values, size_t count)
{
    for (size_t i = 0; i < count; i++)
        store_value(values, i, kind->type, whole_value(rank->rank, i));
}

/* Values [low, high) that are not what they should be. */
static uint64_t count_wrong(const struct rank *rank, const struct kind *kind, const void *values,
                            const void *expected, size_t low, size_t high)
{
    (void)rank;
    uint64_t wrong = 0;
    for (size_t i = low; i < high; i++)
        wrong += memcmp((const uint8_t *)values + i * kind->bytes,
                        (const uint8_t *)expected + i * kind->bytes, kind->bytes) != 0;
    return wrong;
}

static void reduce_counts(struct rank *rank)
{
    const struct kind *kind = rank->context;
    void *values = xmalloc(COUNT_MAX * kind->bytes), *expected = xmalloc(COUNT_MAX * kind->bytes);
    for (size_t i = 0; i < COUNT_MAX; i++)
        store_value(expected, i, kind->type, combined(rank->size, i, kind->type, kind->op));
    for (size_t i = 0; i < COUNTS; i++) {
        fill(rank, kind, values, counts[i]);
        uint64_t ticket =
            trp_collective_allreduce(rank->group, NULL, values, counts[i], kind->type, kind->op);
        if (rank_wait(rank, ticket) != TRP_OK)
            break;
        rank->wrong += count_wrong(rank, kind, values, expected, 0, counts[i]);
        fill(rank, kind, values, counts[i]);
        ticket = trp_collective_reduce_scatter(rank->group, NULL, values, counts[i], kind->type,
                                               kind->op);
        if (rank_wait(rank, ticket) != TRP_OK)
            break;
        size_t low, high;
        trp_collective_range(rank->group, counts[i], rank->rank, &low, &high);
        rank->wrong += count_wrong(rank, kind, values, expected, low, high);
        ticket = trp_collective_all_gather(rank->group, NULL, values, counts[i], kind->type);
        if (rank_wait(rank, ticket) != TRP_OK)
            break;
        rank->wrong += count_wrong(rank, kind, values, expected, 0, counts[i]);
    }
    free(values);
    free(expected);
}

static void every_rank_has_the_serial_sum_bit_for_bit(void **state)
{
    (void)state;
    for (uint32_t size = 1; size <= 5; size++)
        for (size_t type = 0; type < 4; type++)
            for (int op = TRP_COLLECTIVE_SUM; op <= TRP_COLLECTIVE_MAX; op++) {
                struct kind kind = {types[type], (trp_collective_op)op, type_bytes[type]};
                struct ranks ranks;
                ranks_create(&ranks, size);
                ranks_run(&ranks, reduce_counts, &kind);
                ranks_expect_right(&ranks);
                ranks_destroy(&ranks);
            }
}

/* Every rank sends every other one values that only that one is to have. */
static void exchange_counts(struct rank *rank)
{
    uint32_t size = rank->size;
    int32_t *values = xmalloc(2 * size * COUNT_MAX * sizeof *values);
    for (size_t c = 0; c < COUNTS; c++) {
        size_t count = counts[c];
        trp_collective_counters before = trp_collective_read(rank->group);
        for (size_t i = 0; i < 2 * size * count; i++)
            values[i] = i < size * count ? (int32_t)(rank->rank * 1000003 + i) : -1;
        uint64_t ticket = trp_collective_all_to_all(rank->group, values, count, TRP_COLLECTIVE_I32);
        if (rank_wait(rank, ticket) != TRP_OK)
            break;
        for (uint32_t from = 0; from < size; from++)
            for (size_t i = 0; i < count; i++) {
                int32_t sent = (int32_t)(from * 1000003 + rank->rank * count + i);
                rank->wrong +=
                    values[(size + from) * count + i] != (from == rank->rank ? -1 : sent);
            }
        trp_collective_counters after = trp_collective_read(rank->group);
        rank->wrong += after.bytes_sent - before.bytes_sent != (size - 1) * count * sizeof *values;
    }
    free(values);
}

static void every_rank_has_what_each_other_one_sent_it(void **state)
{
    (void)state;
    for (uint32_t size = 1; size <= 5; size++) {
        struct ranks ranks;
        ranks_create(&ranks, size);
        ranks_run(&ranks, exchange_counts, NULL);
        ranks_expect_right(&ranks);
        ranks_destroy(&ranks);
    }
}

static void shift_counts(struct rank *rank)
{
    uint32_t size = rank->size;
    int32_t *values = xmalloc(2 * COUNT_MAX * sizeof *values);
    for (size_t c = 0; c < COUNTS; c++) {
        uint32_t distance = (uint32_t)c;
        uint32_t from = (rank->rank + (uint32_t)COUNTS * size - distance) % size;
        size_t count = counts[c];
        trp_collective_counters before = trp_collective_read(rank->group);
        for (size_t i = 0; i < 2 * count; i++)
            values[i] = i < count ? (int32_t)(rank->rank * 1000003 + i) : -1;
        uint64_t ticket =
            trp_collective_shift(rank->group, values, count, TRP_COLLECTIVE_I32, distance);
        if (rank_wait(rank, ticket) != TRP_OK)
            break;
        for (size_t i = 0; i < count; i++)
            rank->wrong +=
                values[count + i] != (from == rank->rank ? -1 : (int32_t)(from * 1000003 + i));
        trp_collective_counters after = trp_collective_read(rank->group);
        rank->wrong += after.messages_sent - before.messages_sent != (from != rank->rank);
        rank->wrong += after.bytes_sent - before.bytes_sent !=
                       (from == rank->rank ? 0 : count * sizeof *values);
    }
    free(values);
}

static void a_block_goes_as_many_ranks_further_as_all_say(void **state)
{
    (void)state;
    for (uint32_t size = 1; size <= 6; size++) {
        struct ranks ranks;
        ranks_create(&ranks, size);
        ranks_run(&ranks, shift_counts, NULL);
        ranks_expect_right(&ranks);
        ranks_destroy(&ranks);
    }
}

static void broadcast_counts(struct rank *rank)
{
    const struct kind *kind = rank->context;
    void *values = xmalloc(COUNT_MAX * kind->bytes), *expected = xmalloc(COUNT_MAX * kind->bytes);
    for (size_t i = 0; i < COUNTS; i++) {
        uint32_t root = (uint32_t)(i % rank->size);
        fill(rank, kind, values, counts[i]);
        fill(&(struct rank){.rank = root}, kind, expected, counts[i]);
        uint64_t ticket =
            trp_collective_broadcast(rank->group, NULL, values, counts[i], kind->type, root);
        if (rank_wait(rank, ticket) != TRP_OK)
            break;
        rank->wrong += count_wrong(rank, kind, values, expected, 0, counts[i]);
    }
    free(values);
    free(expected);
}

static void every_rank_has_what_the_root_had(void **state)
{
    (void)state;
    for (uint32_t size = 1; size <= 7; size++) {
        struct kind kind = {TRP_COLLECTIVE_F32, TRP_COLLECTIVE_SUM, 4};
        struct ranks ranks;
        ranks_create(&ranks, size);
        ranks_run(&ranks, broadcast_counts, &kind);
        ranks_expect_right(&ranks);
        ranks_destroy(&ranks);
    }
}

/* ---- any values ----------------------------------------------------------------------------- */

static const size_t odd_counts[] = {1, 7, 777, 5000, 8193, 70001};
enum { ODD_COUNTS = sizeof odd_counts / sizeof *odd_counts, ODD_MAX = 70001 };

static void fill_any(float *values, size_t count, uint32_t rank)
{
    trp_rng rng;
    trp_rng_init(&rng, 7, rank);
    for (size_t i = 0; i < count; i++)
        values[i] = (float)(trp_rng_double(&rng) - 0.5) * (float)(1 << i % 20);
}

static void compare_orders(struct rank *rank)
{
    float(*results)[ODD_MAX] = rank->context;
    float *all = results[rank->rank], *part = xmalloc(ODD_MAX * sizeof *part);
    for (size_t i = 0; i < ODD_COUNTS && rank->status == TRP_OK; i++) {
        size_t count = odd_counts[i], low, high;
        fill_any(all, count, rank->rank);
        fill_any(part, count, rank->rank);
        trp_collective_allreduce(rank->group, NULL, all, count, TRP_COLLECTIVE_F32,
                                 TRP_COLLECTIVE_SUM);
        uint64_t ticket = trp_collective_reduce_scatter(rank->group, NULL, part, count,
                                                        TRP_COLLECTIVE_F32, TRP_COLLECTIVE_SUM);
        rank_wait(rank, ticket);
        trp_collective_range(rank->group, count, rank->rank, &low, &high);
        rank->wrong += memcmp(all + low, part + low, (high - low) * sizeof *all) != 0;
        rank_wait(rank, trp_collective_barrier(rank->group)); /* all have it */
        rank->wrong += memcmp(all, results[0], count * sizeof *all) != 0;
        rank_wait(rank, trp_collective_barrier(rank->group)); /* and looked */
    }
    free(part);
}

static void a_reduced_range_has_the_bits_of_the_whole_reduction(void **state)
{
    (void)state;
    for (uint32_t size = 1; size <= 5; size++) {
        float(*results)[ODD_MAX] = xcalloc(size, sizeof *results);
        struct ranks ranks;
        ranks_create(&ranks, size);
        ranks_run(&ranks, compare_orders, results);
        ranks_expect_right(&ranks);
        ranks_destroy(&ranks);
        free(results);
    }
}

static void ranges_are_whole_lines_and_cover_everything(void **state)
{
    (void)state;
    for (uint32_t size = 1; size <= 5; size++) {
        struct ranks ranks;
        ranks_create(&ranks, size);
        for (size_t i = 0; i < COUNTS; i++) {
            size_t end = 0;
            for (uint32_t rank = 0; rank < size; rank++) {
                size_t low, high;
                trp_collective_range(ranks.at[0].group, counts[i], rank, &low, &high);
                assert_int_equal(low, end);
                assert_true(high >= low);
                assert_true(low % 32 == 0 || low == counts[i]);
                end = high;
            }
            assert_int_equal(end, counts[i]);
        }
        ranks_destroy(&ranks);
    }
}

/* ---- many at a time ------------------------------------------------------------------------- */

enum { MANY = 200, MANY_COUNT = 300 };

static void start_many(struct rank *rank)
{
    float(*values)[MANY_COUNT] = xmalloc(MANY * sizeof *values);
    uint64_t tickets[MANY];
    for (size_t i = 0; i < MANY; i++) {
        for (size_t k = 0; k < MANY_COUNT; k++)
            values[i][k] = (float)(i + rank->rank);
        tickets[i] = trp_collective_allreduce(rank->group, NULL, values[i], MANY_COUNT,
                                              TRP_COLLECTIVE_F32, TRP_COLLECTIVE_SUM);
    }
    for (size_t i = MANY; i-- > 0;) /* the last one first: the others are done by then */
        rank_wait(rank, tickets[i]);
    float ranks = (float)(rank->size * (rank->size - 1) / 2);
    for (size_t i = 0; i < MANY; i++)
        for (size_t k = 0; k < MANY_COUNT; k++)
            rank->wrong += values[i][k] != (float)(i * rank->size) + ranks;
    free(values);
}

static void many_operations_are_on_their_way_at_a_time(void **state)
{
    (void)state;
    struct ranks ranks;
    ranks_create(&ranks, 3);
    ranks_run(&ranks, start_many, NULL);
    ranks_expect_right(&ranks);
    assert_int_equal(trp_collective_read(ranks.at[1].group).operations, MANY);
    ranks_destroy(&ranks);
}

/* ---- counters ------------------------------------------------------------------------------- */

static void reduce_one(struct rank *rank)
{
    size_t count = *(size_t *)rank->context;
    float *values = xcalloc(count, sizeof *values);
    rank_wait(rank, trp_collective_allreduce(rank->group, NULL, values, count, TRP_COLLECTIVE_F32,
                                             TRP_COLLECTIVE_SUM));
    free(values);
}

/* While they are summed it sends all ranges but its own; after, all but its right neighbour's. */
static void a_ring_sends_each_byte_as_often_as_its_formula_says(void **state)
{
    (void)state;
    size_t count = 96 * 1024 + 5;
    for (uint32_t size = 2; size <= 5; size++) {
        struct ranks ranks;
        ranks_create(&ranks, size);
        ranks_run(&ranks, reduce_one, &count);
        ranks_expect_right(&ranks);
        for (uint32_t rank = 0; rank < size; rank++) {
            size_t low, high, right_low, right_high;
            trp_collective *group = ranks.at[rank].group;
            trp_collective_counters counters = trp_collective_read(group);
            trp_collective_range(group, count, rank, &low, &high);
            trp_collective_range(group, count, (rank + 1) % size, &right_low, &right_high);
            size_t sent = 2 * count - (high - low) - (right_high - right_low);
            assert_int_equal(counters.messages_sent, 2 * (size - 1));
            assert_int_equal(counters.messages_received, 2 * (size - 1));
            assert_int_equal(counters.bytes_sent, sent * sizeof(float));
        }
        ranks_destroy(&ranks);
    }
}

static void doubling_sends_everything_log_n_times(void **state)
{
    (void)state;
    size_t count = 100;
    static const uint32_t steps[] = {[2] = 1, [4] = 2, [8] = 3};
    for (uint32_t size = 2; size <= 8; size *= 2) {
        struct ranks ranks;
        ranks_create(&ranks, size);
        ranks_run(&ranks, reduce_one, &count);
        ranks_expect_right(&ranks);
        for (uint32_t rank = 0; rank < size; rank++) {
            trp_collective_counters counters = trp_collective_read(ranks.at[rank].group);
            assert_int_equal(counters.messages_sent, steps[size]);
            assert_int_equal(counters.bytes_sent, steps[size] * count * sizeof(float));
            assert_int_equal(counters.bytes_received, counters.bytes_sent);
        }
        ranks_destroy(&ranks);
    }
}

/* ---- sites ---------------------------------------------------------------------------------- */

/* Uneven ones, in any order of ranks; a letter each. */
static const char *const divisions[] = {"aab", "aba", "abb",  "aabb",  "abab",     "abbb",
                                        "aab", "abc", "aaab", "abbcc", "abcabcab", "aaaaabbc"};
enum { DIVISIONS = sizeof divisions / sizeof *divisions };

static void create_divided(struct ranks *ranks, const char *division)
{
    static const char *const letters[] = {"a", "b", "c"};
    const char *sites[RANKS_MAX];
    uint32_t size = (uint32_t)strlen(division);
    for (uint32_t rank = 0; rank < size; rank++)
        sites[rank] = letters[division[rank] - 'a'];
    ranks_create_with(
        ranks, size,
        &(trp_collective_options){.group = "test", .timeout_ms = 20000, .sites = sites});
}

static void sites_have_the_serial_sum_bit_for_bit(void **state)
{
    (void)state;
    for (size_t i = 0; i < DIVISIONS; i++) {
        size_t type = i % 4;
        bool exact = types[type] != TRP_COLLECTIVE_BF16 || strlen(divisions[i]) <= 5;
        trp_collective_op op = exact && i % 3 ? TRP_COLLECTIVE_SUM : TRP_COLLECTIVE_MAX;
        struct kind kind = {types[type], op, type_bytes[type]};
        struct ranks ranks;
        create_divided(&ranks, divisions[i]);
        ranks_run(&ranks, reduce_counts, &kind);
        ranks_expect_right(&ranks);
        ranks_destroy(&ranks);
    }
}

static void a_range_has_the_bits_of_the_whole_reduction_in_sites(void **state)
{
    (void)state;
    for (size_t i = 0; i < DIVISIONS; i += 3) {
        float(*results)[ODD_MAX] = xcalloc(RANKS_MAX, sizeof *results);
        struct ranks ranks;
        create_divided(&ranks, divisions[i]);
        ranks_run(&ranks, compare_orders, results);
        ranks_expect_right(&ranks);
        ranks_destroy(&ranks);
        free(results);
    }
}

/* Of n ranks in m sites: S bytes 2 (m - 1) times between sites, by first ranks alone, and 2 (n - m)
 * times within them. */
static void expect_bytes_of_sites(const struct ranks *ranks, const char *division, size_t count)
{
    uint64_t away = 0, all = 0, bytes = count * sizeof(float);
    uint32_t sites = 0;
    for (uint32_t rank = 0; rank < ranks->size; rank++) {
        trp_collective_counters counters = trp_collective_read(ranks->at[rank].group);
        bool first = strchr(division, division[rank]) == division + rank;
        bool last = strchr(division + rank + 1, division[rank]) == NULL;
        sites += first;
        away += counters.bytes_sent_away;
        all += counters.bytes_sent;
        if (!first)
            assert_int_equal(counters.bytes_sent_away, 0);
        assert_int_equal(counters.bytes_sent - counters.bytes_sent_away, bytes * (!first + !last));
    }
    assert_int_equal(away, 2 * (sites - 1) * bytes);
    assert_int_equal(all, 2 * (ranks->size - 1) * bytes);
}

static void sites_send_each_other_two_sums_each_as_the_formula_says(void **state)
{
    (void)state;
    static const size_t sizes[] = {1, 100, 96 * 1024 + 5};
    for (size_t i = 0; i < DIVISIONS; i++)
        for (size_t k = 0; k < 3; k++) {
            size_t count = sizes[k];
            struct ranks ranks;
            create_divided(&ranks, divisions[i]);
            ranks_run(&ranks, reduce_one, &count);
            ranks_expect_right(&ranks);
            if (strcmp(divisions[i], "abc") != 0) /* which is a ring, or doubling */
                expect_bytes_of_sites(&ranks, divisions[i], count);
            ranks_destroy(&ranks);
        }
}

static void hosts_are_sites(void **state)
{
    (void)state;
    if (ranks_kind != RANKS_TCP)
        return;
    size_t count = 1000;
    struct ranks ranks;
    ranks_hosts = 2;
    ranks_create(&ranks, 5);
    ranks_hosts = 1;
    ranks_run(&ranks, reduce_one, &count);
    ranks_expect_right(&ranks);
    expect_bytes_of_sites(&ranks, "ababa", count);
    ranks_destroy(&ranks);
}

static void reduce_and_leave(struct rank *rank)
{
    float value = 1;
    rank_wait(rank, trp_collective_allreduce(rank->group, NULL, &value, 1, TRP_COLLECTIVE_F32,
                                             TRP_COLLECTIVE_SUM));
    rank->wrong += rank->status == TRP_OK && value != (float)rank->size;
    trp_collective_destroy(rank->group);
}

/* The others are about to find that it has taken all that they sent. */
static void who_has_everything_may_leave_at_once(void **state)
{
    (void)state;
    int rounds = ranks_kind == RANKS_LOCAL ? 2000 : 20;
    for (int round = 0; round < rounds; round++) {
        struct ranks ranks;
        ranks_create(&ranks, 2 + (uint32_t)round % 4);
        ranks_run(&ranks, reduce_and_leave, NULL);
        ranks_expect_right(&ranks);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_rank_has_the_serial_sum_bit_for_bit),
        cmocka_unit_test(every_rank_has_what_each_other_one_sent_it),
        cmocka_unit_test(a_block_goes_as_many_ranks_further_as_all_say),
        cmocka_unit_test(every_rank_has_what_the_root_had),
        cmocka_unit_test(a_reduced_range_has_the_bits_of_the_whole_reduction),
        cmocka_unit_test(ranges_are_whole_lines_and_cover_everything),
        cmocka_unit_test(many_operations_are_on_their_way_at_a_time),
        cmocka_unit_test(a_ring_sends_each_byte_as_often_as_its_formula_says),
        cmocka_unit_test(doubling_sends_everything_log_n_times),
        cmocka_unit_test(sites_have_the_serial_sum_bit_for_bit),
        cmocka_unit_test(a_range_has_the_bits_of_the_whole_reduction_in_sites),
        cmocka_unit_test(sites_send_each_other_two_sums_each_as_the_formula_says),
        cmocka_unit_test(hosts_are_sites),
        cmocka_unit_test(who_has_everything_may_leave_at_once),
    };
    RANKS_TESTS(tests);
}

/* core/: status, flags, clock, random numbers, stop, queue, turns. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cmocka.h>

#include <troupe/rng.h>
#include <troupe/columns.h>
#include <troupe/tensor.h>
#include "core/alloc.h"
#include "core/background.h"
#include "core/buffer.h"
#include "core/clock.h"
#include "core/flags.h"
#include "core/hash.h"
#include "core/map.h"
#include "core/status.h"
#include "core/limits.h"
#include "core/queue.h"
#include "core/slab.h"
#include "core/status.h"
#include "core/stop.h"
#include "core/thread.h"

/* ---- status ---- */

static void the_last_error_is_the_last_message(void **state)
{
    (void)state;
    assert_int_equal(trp_fail(TRP_NOT_FOUND, "table %s", "a"), TRP_NOT_FOUND);
    assert_string_equal(trp_last_error(), "table a");
    assert_int_equal(status_last_code(), TRP_NOT_FOUND);
    trp_fail(TRP_ABORTED, "while asking: %s", trp_last_error()); /* may quote itself */
    assert_string_equal(trp_last_error(), "while asking: table a");
    status_clear_code();
    assert_int_equal(status_last_code(), TRP_OK);
}

static void a_long_message_is_cut(void **state)
{
    (void)state;
    trp_fail(TRP_INTERNAL, "%02000d", 7);
    assert_int_equal(strlen(trp_last_error()), ERROR_MESSAGE_BYTES_MAX - 1);
}

static void what_a_terminal_would_obey_is_escaped_in_an_error(void **state)
{
    (void)state;
    trp_fail(TRP_ABORTED, "%s", "\x1b[2J\x9bgone\r\n\xe2\x80\xae \xc3\xa9");
    assert_string_equal(trp_last_error(), "\\x1b[2J\\x9bgone\\x0d\\x0a\\u{202e} \xc3\xa9");
    trp_fail(TRP_ABORTED, "again: %s", trp_last_error());
    assert_string_equal(trp_last_error(), "again: \\x1b[2J\\x9bgone\\x0d\\x0a\\u{202e} \xc3\xa9");
}

static void fail_elsewhere(void *arg)
{
    trp_fail(TRP_DATA_LOSS, "elsewhere");
    *(bool *)arg = strcmp(trp_last_error(), "elsewhere") == 0;
}

static void each_thread_has_its_own_error(void **state)
{
    (void)state;
    bool seen = false;
    struct thread thread = {.running = false};
    trp_fail(TRP_NOT_FOUND, "here");
    assert_int_equal(thread_start(&thread, "fails", fail_elsewhere, &seen), TRP_OK);
    thread_stop(&thread);
    assert_true(seen);
    assert_string_equal(trp_last_error(), "here");
    assert_int_equal(status_last_code(), TRP_NOT_FOUND);
}

static void codes_have_names_and_words(void **state)
{
    (void)state;
    assert_string_equal(trp_status_name(TRP_OK), "OK");
    assert_string_equal(trp_status_name(TRP_UNAUTHENTICATED), "UNAUTHENTICATED");
    assert_string_equal(trp_status_words(TRP_INVALID_ARGUMENT), "invalid argument");
    assert_string_equal(trp_status_name((trp_status)99), "UNLISTED");
    assert_string_equal(trp_status_words((trp_status)99), "unlisted status");
}

/* ---- flags ---- */

static void whole_numbers_are_within_bounds_and_without_a_sign(void **state)
{
    (void)state;
    uint64_t value;
    assert_true(flags_u64("10", 1, 10, &value));
    assert_int_equal(value, 10);
    assert_true(flags_u64("18446744073709551615", 0, UINT64_MAX, &value));
    assert_true(value == UINT64_MAX);
    assert_true(flags_u64("1e6", 1, UINT64_MAX, &value));
    assert_int_equal(value, 1000000);
    assert_true(flags_u64("2.5e3", 1, 2500, &value));
    assert_int_equal(value, 2500);
    static const char *const wrong[] = {"",
                                        "-1",
                                        "+1",
                                        " 1",
                                        "1x",
                                        "0x1",
                                        "11",
                                        "0",
                                        "2.5",
                                        "1e",
                                        "1e1x",
                                        "1e2",
                                        "1e30",
                                        "nan",
                                        "5e-1",
                                        ".5e1",
                                        "18446744073709551616"};
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++)
        assert_false(flags_u64(wrong[i], 1, 10, &value));
}

static void whole_numbers_with_a_point_or_an_exponent_are_exact(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        uint64_t value;
    } right[] = {{"1e16", 10000000000000000},
                 {"9007199254740993.0", 9007199254740993},
                 {"1.8446744073709551615e19", UINT64_MAX},
                 {"18446744073709551615000e-3", UINT64_MAX},
                 {"0.00012e5", 12},
                 {"1000000000000000000000000e-24", 1},
                 {"0e99999999999999999999", 0},
                 {"0.000000000000000000000", 0},
                 {"7.000000000000000000000000000000", 7},
                 {"100E-1", 10}};
    static const char *const wrong[] = {
        "1.8446744073709551616e19", "9007199254740993.5", "1e20", "1e-1", "123e-400", "0.00012e4"};
    uint64_t value;
    for (size_t i = 0; i < sizeof right / sizeof right[0]; i++) {
        assert_true(flags_u64(right[i].text, 0, UINT64_MAX, &value));
        assert_true(value == right[i].value);
    }
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++)
        assert_false(flags_u64(wrong[i], 0, UINT64_MAX, &value));
}

/* ---- clock ---- */

static void a_fake_clock_stands_until_it_is_advanced(void **state)
{
    (void)state;
    struct clock clock = clock_fake(1000);
    struct deadline deadline = deadline_in_ms(&clock, 5);
    assert_int_equal(deadline_left_ns(deadline, &clock), 5000000);
    clock_advance(&clock, 4999999);
    assert_false(deadline_passed(deadline, &clock));
    clock_advance(&clock, 1);
    assert_true(deadline_passed(deadline, &clock));
    clock_advance(&clock, 1000);
    assert_int_equal(deadline_left_ns(deadline, &clock), 0);
}

static void deadlines_saturate(void **state)
{
    (void)state;
    struct clock clock = clock_fake(INT64_MAX - 1000);
    assert_int_equal(deadline_in_ms(&clock, -1).at_ns, INT64_MAX);
    assert_int_equal(deadline_in_ms(&clock, 1).at_ns, INT64_MAX);
    assert_int_equal(deadline_in_ms(&clock_monotonic, INT64_MAX).at_ns, INT64_MAX);
    assert_false(deadline_passed(DEADLINE_NEVER, &clock));
    assert_int_equal(deadline_left_ns(DEADLINE_NEVER, &clock), INT64_MAX);
}

/* ---- buffer and sizes ---- */

static void a_buffer_grows_and_keeps_its_bytes(void **state)
{
    (void)state;
    struct buffer buffer = {0};
    for (uint32_t i = 0; i < 1000; i++)
        buffer_append(&buffer, (trp_bytes){(const uint8_t *)&i, sizeof i});
    assert_int_equal(buffer_bytes(&buffer).size, 4000);
    uint32_t last;
    memcpy(&last, buffer.data + 3996, sizeof last);
    assert_int_equal(last, 999);
    buffer_clear(&buffer);
    assert_int_equal(buffer.size, 0);
    buffer_cleanup(&buffer);
}

static void sizes_that_overflow_are_noticed(void **state)
{
    (void)state;
    size_t size;
    assert_true(size_mul(3, 4, &size));
    assert_int_equal(size, 12);
    assert_false(size_mul(SIZE_MAX / 2, 3, &size));
    assert_true(size_add(SIZE_MAX - 1, 1, &size));
    assert_false(size_add(SIZE_MAX, 1, &size));
}

/* ---- random numbers ---- */

static void numbers_are_those_of_the_reference(void **state)
{
    (void)state;
    /* xoshiro256++ from the state 1, 2, 3, 4. */
    static const uint64_t expected[] = {41943041,
                                        58720359,
                                        3588806011781223,
                                        3591011842654386,
                                        9228616714210784205U,
                                        9973669472204895162U};
    trp_rng rng = {{1, 2, 3, 4}};
    for (size_t i = 0; i < sizeof expected / sizeof *expected; i++)
        assert_true(trp_rng_u64(&rng) == expected[i]);
}

static void a_seed_repeats_and_streams_differ(void **state)
{
    (void)state;
    trp_rng a, b, other;
    trp_rng_init(&a, 7, 1);
    trp_rng_init(&b, 7, 1);
    trp_rng_init(&other, 7, 2);
    uint32_t equal = 0;
    for (uint32_t i = 0; i < 1000; i++) {
        uint64_t value = trp_rng_u64(&a);
        assert_true(value == trp_rng_u64(&b));
        equal += value == trp_rng_u64(&other);
    }
    assert_int_equal(equal, 0);
    assert_true(trp_rng_entropy() != trp_rng_entropy());
}

static void numbers_stay_in_their_range(void **state)
{
    (void)state;
    trp_rng rng;
    trp_rng_init(&rng, 1, 0);
    uint32_t counts[3] = {0};
    double sum = 0, squares = 0;
    for (uint32_t i = 0; i < 30000; i++) {
        counts[trp_rng_below(&rng, 3)]++;
        double uniform = trp_rng_double(&rng), normal = trp_rng_normal(&rng);
        assert_true(uniform >= 0 && uniform < 1);
        sum += normal;
        squares += normal * normal;
    }
    for (uint32_t i = 0; i < 3; i++)
        assert_in_range(counts[i], 9600, 10400); /* 5 sigma are 408 */
    assert_true(sum / 30000 > -0.03 && sum / 30000 < 0.03);
    assert_true(squares / 30000 > 0.95 && squares / 30000 < 1.05);
}

/* ---- stop ---- */

struct watched {
    struct stop_watch watch;
    uint32_t fired;
};

static void count_fire(struct stop_watch *watch)
{
    ((struct watched *)watch)->fired++;
}

static void request(void *arg)
{
    trp_stop_request(arg);
}

static void a_stop_request_is_seen_by_waiters_and_watches(void **state)
{
    (void)state;
    trp_stop *stop = trp_stop_create();
    struct watched kept = {0}, removed = {0}, late = {0}, none = {0};
    assert_false(trp_stop_requested(stop));
    assert_false(trp_stop_requested(NULL));
    assert_false(trp_stop_wait(stop, 1));
    stop_watch_add(stop, &kept.watch, count_fire);
    stop_watch_add(stop, &removed.watch, count_fire);
    stop_watch_add(NULL, &none.watch, count_fire);
    stop_watch_remove(&removed.watch);
    struct thread thread = {.running = false};
    assert_int_equal(thread_start(&thread, "request", request, stop), TRP_OK);
    assert_true(trp_stop_wait(stop, -1));
    thread_stop(&thread);
    trp_stop_request(stop);
    stop_watch_add(stop, &late.watch, count_fire);
    stop_watch_remove(&kept.watch);
    stop_watch_remove(&late.watch);
    stop_watch_remove(&none.watch);
    assert_int_equal(kept.fired, 1);
    assert_int_equal(removed.fired, 0);
    assert_int_equal(late.fired, 1);
    assert_int_equal(none.fired, 0);
    trp_stop_destroy(stop);
    trp_stop_destroy(NULL);
}

/* ---- background ---- */

struct errand {
    pthread_t thread;
    int nice;
    trp_status status;
};

static trp_status run_errand(void *arg)
{
    struct errand *errand = arg;
    errand->thread = pthread_self();
    errand->nice = getpriority(PRIO_PROCESS, 0); /* of this thread, on Linux */
    return errand->status == TRP_OK ? TRP_OK : trp_fail(errand->status, "it rains");
}

static void work_in_the_background_steps_back_and_says_how_it_ended(void **state)
{
    (void)state;
    int before = getpriority(PRIO_PROCESS, 0);
    struct background background;
    struct errand first = {.status = TRP_OK}, second = {.status = TRP_DATA_LOSS};
    assert_int_equal(background_start(&background, "errands"), TRP_OK);
    assert_int_equal(background_run(&background, run_errand, &first), TRP_OK);
    trp_fail(TRP_ABORTED, "something else");
    assert_int_equal(background_run(&background, run_errand, &second), TRP_DATA_LOSS);
    assert_string_equal(trp_last_error(), "it rains");
    background_stop(&background);
    assert_true(pthread_equal(first.thread, second.thread)); /* LMDB wants that */
    assert_false(pthread_equal(first.thread, pthread_self()));
    assert_true(first.nice > before || before == 19);
    assert_int_equal(getpriority(PRIO_PROCESS, 0), before);
}

/* ---- queue ---- */

static void a_queue_says_when_it_is_full_empty_or_closed(void **state)
{
    (void)state;
    struct queue *queue = queue_create(2);
    const struct deadline soon = deadline_in_ms(&clock_monotonic, 5);
    int items[3];
    void *item;
    assert_int_equal(queue_pop(queue, &item, soon), TRP_DEADLINE_EXCEEDED);
    assert_int_equal(queue_try_push(queue, &items[0]), TRP_OK);
    assert_int_equal(queue_push(queue, &items[1], DEADLINE_NEVER), TRP_OK);
    assert_int_equal(queue_try_push(queue, &items[2]), TRP_RESOURCE_EXHAUSTED);
    assert_int_equal(queue_push(queue, &items[2], soon), TRP_DEADLINE_EXCEEDED);
    assert_int_equal(queue_size(queue), 2);
    queue_close(queue);
    queue_close(queue);
    assert_int_equal(queue_try_push(queue, &items[2]), TRP_CANCELLED);
    assert_int_equal(queue_push(queue, &items[2], DEADLINE_NEVER), TRP_CANCELLED);
    for (int i = 0; i < 2; i++) { /* what was inside still comes, in order */
        assert_int_equal(queue_pop(queue, &item, DEADLINE_NEVER), TRP_OK);
        assert_ptr_equal(item, &items[i]);
    }
    assert_int_equal(queue_pop(queue, &item, DEADLINE_NEVER), TRP_CANCELLED);
    queue_destroy(queue);
    queue_destroy(NULL);
}

enum { ITEMS = 2000 };

static void produce(void *arg)
{
    for (uintptr_t i = 1; i <= ITEMS; i++)
        if (queue_push(arg, (void *)i, DEADLINE_NEVER) != TRP_OK)
            return;
}

static void producers_and_a_consumer_lose_nothing(void **state)
{
    (void)state;
    struct queue *queue = queue_create(3);
    struct thread threads[3] = {{.running = false}};
    for (size_t i = 0; i < 3; i++)
        assert_int_equal(thread_start(&threads[i], "produce", produce, queue), TRP_OK);
    uintptr_t sum = 0;
    for (size_t i = 0; i < 3 * ITEMS; i++) {
        void *item;
        assert_int_equal(queue_pop(queue, &item, DEADLINE_NEVER), TRP_OK);
        sum += (uintptr_t)item;
    }
    assert_int_equal(sum, 3 * (uintptr_t)ITEMS * (ITEMS + 1) / 2);
    for (size_t i = 0; i < 3; i++)
        thread_stop(&threads[i]);
    queue_destroy(queue);
}

/* ---- turns ---- */

enum { PLAYERS = 4, ROUNDS = 50 };

struct player {
    struct turns *turns;
    struct thread thread;
    uint32_t index;
    uint32_t *order; /* shared: turns let one run at a time */
    uint32_t *count;
    struct mutex *mutex;
    struct cond *changed;
};

static void play(void *arg)
{
    struct player *player = arg;
    turns_join(player->turns, player->index);
    for (uint32_t round = 0; round < ROUNDS; round++) {
        player->order[(*player->count)++] = player->index;
        if (round % 2) {
            turns_pass();
        } else { /* waiting gives the turn away too */
            mutex_lock(player->mutex);
            cond_wait(player->changed, player->mutex, DEADLINE_NEVER);
            mutex_unlock(player->mutex);
        }
    }
    turns_leave();
}

static void threads_take_turns_in_order(void **state)
{
    (void)state;
    struct turns *turns = turns_create(PLAYERS);
    struct player players[PLAYERS] = {{.turns = NULL}};
    uint32_t order[PLAYERS * ROUNDS], count = 0;
    struct mutex mutex;
    struct cond changed;
    mutex_init(&mutex);
    cond_init(&changed);
    assert_false(turns_active());
    turns_pass(); /* nothing on a thread without turns */
    for (uint32_t i = PLAYERS; i-- > 0;) {
        players[i] = (struct player){.turns = turns,
                                     .index = i,
                                     .order = order,
                                     .count = &count,
                                     .mutex = &mutex,
                                     .changed = &changed};
        assert_int_equal(thread_start(&players[i].thread, "player", play, &players[i]), TRP_OK);
    }
    for (uint32_t i = 0; i < PLAYERS; i++)
        thread_stop(&players[i].thread);
    assert_int_equal(count, PLAYERS * ROUNDS);
    for (uint32_t i = 0; i < count; i++)
        assert_int_equal(order[i], i % PLAYERS);
    cond_cleanup(&changed);
    mutex_cleanup(&mutex);
    turns_destroy(turns);
    turns_destroy(NULL);
}

enum { HASHED = 1024 };

static uint32_t places_used(uint64_t (*key)(uint64_t))
{
    bool used[HASHED] = {false};
    uint32_t count = 0;
    for (uint64_t i = 0; i < HASHED; i++) {
        uint32_t place = hash_place(key(i), HASHED);
        assert_true(place < HASHED);
        count += !used[place];
        used[place] = true;
    }
    return count;
}

static uint64_t counted(uint64_t i)
{
    return i;
}
static uint64_t upper(uint64_t i)
{
    return i << 54;
}

/* Times 2^64 / phi, the usual multiplier, these are 0, 1, 2 and so on: all in the first place. */
static uint64_t chosen(uint64_t i)
{
    return i * UINT64_C(0xf1de83e19937733d);
}

/* A fair throw of n balls into n places leaves n / e of them empty. */
static void keys_spread_whoever_chose_them(void **state)
{
    (void)state;
    assert_int_equal(chosen(1) * UINT64_C(0x9e3779b97f4a7c15), 1);
    assert_true(places_used(counted) > HASHED / 2);
    assert_true(places_used(upper) > HASHED / 2);
    assert_true(places_used(chosen) > HASHED / 2);
}

/* Test vectors of draft-eastlake-fnv. */
static void bytes_have_the_hash_that_fnv_1a_says(void **state)
{
    (void)state;
    assert_int_equal(hash_bytes(HASH_BYTES_EMPTY, "", 0), UINT64_C(0xcbf29ce484222325));
    assert_int_equal(hash_bytes(HASH_BYTES_EMPTY, "a", 1), UINT64_C(0xaf63dc4c8601ec8c));
    uint64_t begun = hash_bytes(HASH_BYTES_EMPTY, "foo", 3);
    assert_int_equal(hash_bytes(begun, "bar", 3), UINT64_C(0x85944171f73967e8));
}

static void dtypes_have_names_and_sizes(void **state)
{
    (void)state;
    uint32_t known = 0;
    for (int32_t number = 0; number < 64; number++) {
        trp_dtype dtype = (trp_dtype)number;
        const char *name = trp_dtype_name(dtype);
        if (strcmp(name, "?") == 0) {
            assert_int_equal(trp_dtype_size(dtype), 0);
            continue;
        }
        known++;
        assert_int_equal(trp_dtype_parse(name), number);
        assert_true((trp_dtype_size(dtype) > 0) == (dtype != TRP_STRING));
    }
    assert_int_equal(known, 23);
    assert_int_equal(trp_dtype_size(TRP_COMPLEX128), 16);
    assert_int_equal(trp_dtype_size(TRP_BFLOAT16), 2);
    assert_int_equal(trp_dtype_parse("float31"), 0);
}

static void slabs_give_each_size_its_own_memory_again(void **state)
{
    (void)state;
    enum { COUNT = 5000 };
    static uint8_t *taken[COUNT];
    static size_t sizes[COUNT];
    struct slabs slabs = {0};
    size_t bytes[2];
    trp_rng rng;
    trp_rng_init(&rng, 1, 0);
    for (int round = 0; round < 4; round++) {
        for (size_t i = 0; i < COUNT; i++) {
            if (taken[i]) {
                for (size_t at = 0; at < sizes[i]; at++)
                    assert_int_equal(taken[i][at], (uint8_t)i); /* nobody else wrote there */
                slab_give(&slabs, taken[i], sizes[i]);
                taken[i] = NULL;
            }
            if (trp_rng_below(&rng, 3) == 0)
                continue;
            sizes[i] = 1 + trp_rng_below(&rng, SLAB_BYTES_MAX + 200);
            taken[i] = slab_take(&slabs, sizes[i]);
            assert_int_equal((uintptr_t)taken[i] % SLAB_STEP, 0);
            memset(taken[i], (uint8_t)i, sizes[i]);
        }
    }
    for (size_t i = 0; i < COUNT; i++)
        slab_give(&slabs, taken[i], sizes[i]);
    for (int round = 0; round < 2; round++) { /* the same sizes: nothing new is needed */
        for (size_t i = 0; i < COUNT; i++)
            taken[i] = slab_take(&slabs, sizes[i]);
        bytes[round] = slabs.bytes;
        for (size_t i = 0; i < COUNT; i++)
            slab_give(&slabs, taken[i], sizes[i]);
    }
    assert_int_equal(bytes[0], bytes[1]);
    slabs_cleanup(&slabs);
    assert_int_equal(slabs.bytes, 0);
}

/* ---- maps ------------------------------------------------------------------------------- */

/* Against an array that is looked at from one end to the other. */
static void a_map_has_what_was_put_and_not_removed(void **state)
{
    (void)state;
    enum { KEYS = 500, STEPS = 20000 };
    uint64_t values[KEYS] = {0};
    struct map map = {0};
    trp_rng rng;
    trp_rng_init(&rng, 1, 1);
    for (int round = 0; round < STEPS; round++) {
        uint64_t key = trp_rng_below(&rng, KEYS);
        uint32_t count = 0;
        if (values[key] && round % 2) {
            map_remove(&map, key);
            values[key] = 0;
        } else {
            uint64_t *value = map_at(&map, key);
            assert_int_equal(*value, values[key]);
            values[key] = *value = (uint64_t)round + 1;
        }
        for (uint64_t each = 0; each < KEYS; each++) {
            assert_int_equal(map_get(&map, each), values[each]);
            count += values[each] != 0;
        }
        assert_int_equal(map.count, count);
    }
    map_clear(&map);
    for (uint64_t key = 0; key < 100; key++)
        assert_int_equal(map_get(&map, key), 0);
    *map_at(&map, 7) = 1;
    assert_int_equal(map_get(&map, 7), 1);
    assert_int_equal(map.count, 1);
    map_cleanup(&map);
    assert_int_equal(map.count, 0);
    assert_int_equal(map_get(&map, 7), 0);
}

static void kept_errors_come_back(void **state)
{
    (void)state;
    (void)trp_fail(TRP_NOT_FOUND, "the first");
    char *kept = error_keep();
    (void)trp_fail(TRP_INTERNAL, "of a cleanup");
    assert_int_equal(error_back(TRP_NOT_FOUND, kept), TRP_NOT_FOUND);
    assert_string_equal(trp_last_error(), "the first");
}

/* ---- columns ------------------------------------------------------------------------------- */

static void assert_columns_differ(const trp_columns *have, const trp_columns *want, const char *how)
{
    assert_int_equal(trp_columns_check(have, want, "table t"), TRP_INVALID_ARGUMENT);
    assert_string_equal(trp_last_error(), how);
}

static void columns_that_differ_are_named_with_both_shapes(void **state)
{
    (void)state;
    const trp_tensor_spec number = {.name = "reward", .dtype = TRP_FLOAT32};
    const trp_tensor_spec frame = {.name = "frame", .dtype = TRP_UINT8, .rank = 2, .shape = {4, 3}};
    trp_columns a = {0}, b = {0};
    assert_int_equal(trp_columns_check(&a, &b, "table t"), TRP_OK);
    trp_columns_add(&a, NULL, &number);
    assert_columns_differ(&a, &b, "table t: column 0 is reward float32[], expected nothing");
    trp_columns_add_all(&b, &a);
    trp_columns_add_steps(&a, "view", &frame, 20);
    trp_columns_add_steps(&b, "view", &frame, 21);
    assert_columns_differ(
        &a, &b, "table t: column 1 is view uint8[20, 4, 3], expected view uint8[21, 4, 3]");
    assert_int_equal(trp_columns_find(&a, "view"), 1);
    assert_int_equal(trp_columns_find(&a, "frame"), 2);
    trp_columns_cleanup(&b);
    trp_columns_add_all(&b, &a);
    assert_int_equal(trp_columns_check(&a, &b, "table t"), TRP_OK);
    trp_columns_cleanup(&a);
    trp_columns_cleanup(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_map_has_what_was_put_and_not_removed),
        cmocka_unit_test(kept_errors_come_back),
        cmocka_unit_test(the_last_error_is_the_last_message),
        cmocka_unit_test(a_long_message_is_cut),
        cmocka_unit_test(what_a_terminal_would_obey_is_escaped_in_an_error),
        cmocka_unit_test(each_thread_has_its_own_error),
        cmocka_unit_test(codes_have_names_and_words),
        cmocka_unit_test(whole_numbers_are_within_bounds_and_without_a_sign),
        cmocka_unit_test(whole_numbers_with_a_point_or_an_exponent_are_exact),
        cmocka_unit_test(a_fake_clock_stands_until_it_is_advanced),
        cmocka_unit_test(deadlines_saturate),
        cmocka_unit_test(a_buffer_grows_and_keeps_its_bytes),
        cmocka_unit_test(sizes_that_overflow_are_noticed),
        cmocka_unit_test(numbers_are_those_of_the_reference),
        cmocka_unit_test(a_seed_repeats_and_streams_differ),
        cmocka_unit_test(numbers_stay_in_their_range),
        cmocka_unit_test(a_stop_request_is_seen_by_waiters_and_watches),
        cmocka_unit_test(work_in_the_background_steps_back_and_says_how_it_ended),
        cmocka_unit_test(a_queue_says_when_it_is_full_empty_or_closed),
        cmocka_unit_test(producers_and_a_consumer_lose_nothing),
        cmocka_unit_test(keys_spread_whoever_chose_them),
        cmocka_unit_test(bytes_have_the_hash_that_fnv_1a_says),
        cmocka_unit_test(dtypes_have_names_and_sizes),
        cmocka_unit_test(slabs_give_each_size_its_own_memory_again),
        cmocka_unit_test(threads_take_turns_in_order),
        cmocka_unit_test(columns_that_differ_are_named_with_both_shapes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

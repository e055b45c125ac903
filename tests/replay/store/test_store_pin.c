/* Chunks that are sent from where they lie: what is pinned stays as it is until it is returned,
 * from whatever thread, and nobody else has to wait for it. */
#include "open_store_fixture.h"

#include <stdatomic.h>

#include "core/thread.h"
#include "tests/core/patience.h"

enum { WAIT_MS = 20000, LARGE = 28000 };

/* Inserts items of one chunk each and deletes them again, so that free pages are used. */
static void recycle(struct fixture *fixture, uint32_t count)
{
    struct item *items[16];
    for (uint32_t done = 0; done < count; done += 16) {
        for (uint32_t i = 0; i < 16; i++) {
            items[i] = fixture_item(fixture->store, 1000000 + done + i, LARGE);
            insert(fixture, items[i]);
        }
        assert_int_equal(store_commit(fixture->store), TRP_OK);
        for (uint32_t i = 0; i < 16; i++) {
            store_item_delete(fixture->store, items[i]);
            store_item_destroy(fixture->store, items[i]);
        }
        assert_int_equal(store_commit(fixture->store), TRP_OK);
    }
}

/* A stored item. */
static struct item *stored(struct fixture *fixture, uint64_t key, size_t size)
{
    struct item *item = fixture_item(fixture->store, key, size);
    insert(fixture, item);
    assert_int_equal(store_commit(fixture->store), TRP_OK);
    return item;
}

static struct pin *pin_chunks(struct fixture *fixture, struct item *item, uint8_t *rest)
{
    struct pin *pin = store_pin_begin(fixture->store);
    chunk_ref(item->chunks[0]);
    assert_int_equal(store_pin_chunk(fixture->store, pin, item->chunks[0], rest), TRP_OK);
    return pin;
}

/* Pins the item's chunk and deletes the item. */
static struct pin *pin_last(struct fixture *fixture, struct item *item, uint8_t *rest)
{
    struct pin *pin = pin_chunks(fixture, item, rest);
    store_item_delete(fixture->store, item);
    store_item_destroy(fixture->store, item);
    assert_int_equal(store_commit(fixture->store), TRP_OK);
    return pin;
}

static void expect_bytes(const struct pin *pin, const uint8_t *rest, uint64_t seed, size_t size)
{
    size_t count, at = 0;
    uint8_t *expected = xmalloc(size);
    const trp_bytes *parts = pin_parts(pin, &count);
    fixture_fill(expected, size, seed);
    for (size_t i = 0; i < count; i++) {
        assert_memory_equal(parts[i].data, expected + at, parts[i].size);
        at += parts[i].size;
    }
    assert_in_range(at, 1, size);
    assert_memory_equal(rest, expected + at, size - at);
    free(expected);
}

static void what_is_pinned_stays_while_the_store_recycles(void **state)
{
    struct fixture *fixture = *state;
    /* A rest that is too small to have a page, one that has, none, and a sum in a page of its own.
     */
    static const size_t sizes[] = {6144, 4080 * 2 + 2047, 4080 * 2 + 2048, 4080 * 3, 4080 * 3 - 2};
    enum { COUNT = sizeof sizes / sizeof *sizes };
    struct pin *pins[COUNT];
    uint8_t rests[COUNT][2048];
    fixture_open(fixture, (struct store_options){0});
    for (size_t i = 0; i < COUNT; i++)
        pins[i] = pin_last(fixture, stored(fixture, i + 1, sizes[i]), rests[i]);
    recycle(fixture, 2000);
    for (size_t i = 0; i < COUNT; i++) {
        expect_bytes(pins[i], rests[i], i + 1, sizes[i]);
        pin_return(pins[i]);
    }
    assert_false(store_pins_collect(fixture->store));
}

/* Its pages are known then; a rest that has none was written anew meanwhile, and elsewhere. */
static void what_is_pinned_twice_is_the_same(void **state)
{
    struct fixture *fixture = *state;
    static const size_t sizes[] = {4080 * 2 + 2047, 4080 * 3};
    uint8_t rest[2048];
    fixture_open(fixture, (struct store_options){0});
    for (size_t i = 0; i < 2; i++) {
        struct item *item = stored(fixture, i + 1, sizes[i]);
        pin_return(pin_chunks(fixture, item, rest));
        recycle(fixture, 200);
        memset(rest, 0, sizeof rest);
        struct pin *pin = pin_last(fixture, item, rest);
        expect_bytes(pin, rest, i + 1, sizes[i]);
        pin_return(pin);
    }
    assert_false(store_pins_collect(fixture->store));
}

static void what_is_small_or_not_stored_is_not_pinned(void **state)
{
    struct fixture *fixture = *state;
    fixture_open(fixture, (struct store_options){0});
    struct item *small = stored(fixture, 1, 6143), *large = fixture_item(fixture->store, 2, LARGE);
    assert_int_equal(store_chunk_pinnable(small->chunks[0]), 0);
    insert(fixture, large);
    assert_int_equal(store_chunk_pinnable(large->chunks[0]), 0);
    assert_int_equal(store_commit(fixture->store), TRP_OK);
    assert_int_equal(store_chunk_pinnable(large->chunks[0]), LARGE);
    store_item_destroy(fixture->store, small);
    store_item_destroy(fixture->store, large);
}

static void pins_are_bounded_and_come_back(void **state)
{
    struct fixture *fixture = *state;
    enum { MAX_BYTES = 64 << 20 };
    uint8_t rest[2048];
    struct pin *pins[1000];
    uint32_t count = 0;
    struct store_stats before, after;
    fixture_open(fixture, (struct store_options){.max_bytes = MAX_BYTES});
    uint64_t room = store_pin_room(fixture->store);
    assert_in_range(room, LARGE, MAX_BYTES / 8);
    recycle(fixture, 160);
    store_stats(fixture->store, &before);
    for (; store_pin_room(fixture->store) >= LARGE; count++)
        pins[count] = pin_last(fixture, stored(fixture, count + 1, LARGE), rest);
    assert_int_equal(count, room / LARGE);
    for (uint32_t i = 0; i < count; i++)
        pin_return(pins[i]);
    assert_true(store_pin_room(fixture->store) < LARGE); /* not collected */
    assert_false(store_pins_collect(fixture->store));
    assert_int_equal(store_pin_room(fixture->store), room);
    assert_int_equal(store_commit(fixture->store), TRP_OK);
    recycle(fixture, 1600);
    store_stats(fixture->store, &after);
    assert_int_equal(after.chunks, 0);
    assert_true(after.file_bytes < before.file_bytes + room + (4 << 20));
}

struct returner {
    struct pin *pin;
    struct mutex mutex;
    struct cond wake;
    bool go;
};

static void return_when_told(void *arg)
{
    struct returner *returner = arg;
    mutex_lock(&returner->mutex);
    while (!returner->go)
        cond_wait(&returner->wake, &returner->mutex, DEADLINE_NEVER);
    mutex_unlock(&returner->mutex);
    pin_return(returner->pin);
}

static void pins_that_are_out_are_waited_for(void **state)
{
    struct fixture *fixture = *state;
    struct returner returner = {.go = false};
    struct thread thread = {0};
    uint8_t rest[2048];
    fixture_open(fixture, (struct store_options){0});
    returner.pin = pin_last(fixture, stored(fixture, 1, LARGE), rest);
    mutex_init(&returner.mutex);
    cond_init(&returner.wake);
    assert_int_equal(thread_start(&thread, "returns", return_when_told, &returner), TRP_OK);
    assert_true(store_pins_collect(fixture->store));
    assert_false(store_pins_wait(fixture->store, deadline_in_ms(&clock_monotonic, 0)));
    mutex_lock(&returner.mutex);
    returner.go = true;
    cond_signal(&returner.wake);
    mutex_unlock(&returner.mutex);
    assert_true(store_pins_wait(fixture->store, deadline_in_ms(&clock_monotonic, WAIT_MS)));
    thread_stop(&thread);
    cond_cleanup(&returner.wake);
    mutex_cleanup(&returner.mutex);
}

static void a_pin_outlives_its_store(void **state)
{
    struct fixture *fixture = *state;
    uint8_t rests[2][2048];
    struct pin *pins[2];
    fixture_open(fixture, (struct store_options){0});
    for (uint64_t i = 0; i < 2; i++)
        pins[i] = pin_last(fixture, stored(fixture, i + 1, LARGE), rests[i]);
    fixture_close(fixture);
    for (uint64_t i = 0; i < 2; i++) {
        expect_bytes(pins[i], rests[i], i + 1, LARGE);
        pin_return(pins[i]);
    }
}

struct returners {
    struct pin **pins;
    uint32_t count;
    _Atomic uint32_t done;
};

static void return_all(void *arg)
{
    struct returners *self = arg;
    for (uint32_t i = 0; i < self->count; i++) {
        pin_return(self->pins[i]);
        atomic_fetch_add(&self->done, 1);
    }
}

static void pins_that_come_back_while_the_store_closes_are_freed(void **state)
{
    enum { ROUNDS = 20, COUNT = 10000 };
    struct fixture *fixture = *state;
    struct pin **pins = xcalloc(COUNT, sizeof *pins);
    uint8_t rest[2048];
    for (uint64_t round = 1; round <= ROUNDS; round++) {
        struct returners returners = {.pins = pins, .count = COUNT};
        struct thread thread = {0};
        fixture_open(fixture, (struct store_options){0});
        struct item *item = stored(fixture, round, LARGE);
        for (uint32_t i = 0; i < COUNT; i++) {
            pins[i] = store_pin_begin(fixture->store);
            chunk_ref(item->chunks[0]);
            assert_int_equal(store_pin_chunk(fixture->store, pins[i], item->chunks[0], rest),
                             TRP_OK);
        }
        store_item_destroy(fixture->store, item);
        assert_int_equal(thread_start(&thread, "returns", return_all, &returners), TRP_OK);
        struct deadline deadline = patience();
        while (atomic_load(&returners.done) < COUNT / 8)
            still_patient(deadline, "pins to come back");
        fixture_close(fixture); /* what was lost is for the sanitizer to find */
        thread_stop(&thread);
    }
    free(pins);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, fixture_setup, fixture_teardown)
    const struct CMUnitTest tests[] = {
        TEST(what_is_pinned_stays_while_the_store_recycles),
        TEST(what_is_pinned_twice_is_the_same),
        TEST(what_is_small_or_not_stored_is_not_pinned),
        TEST(pins_are_bounded_and_come_back),
        TEST(pins_that_are_out_are_waited_for),
        TEST(a_pin_outlives_its_store),
        TEST(pins_that_come_back_while_the_store_closes_are_freed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

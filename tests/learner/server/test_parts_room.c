/* The memory for gradients that come in parts, on a clock that the test moves: who has it and who
 * waits for it follows from what came last, and when. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "learner/server/limits.h"
#include "learner/server/parts_room.h"

enum { COUNT = 1000, BYTES = COUNT * sizeof(float), WORKERS = 3 };

struct table {
    struct clock clock;
    struct parts_room room;
    struct staged_parts workers[WORKERS];
};

/* Room for two gradients of three. */
static void table_begin(struct table *table)
{
    *table = (struct table){.clock = clock_fake(1)};
    table->room = (struct parts_room){.clock = &table->clock, .limit = 3 * BYTES - 1};
}

static void table_end(struct table *table)
{
    for (size_t i = 0; i < WORKERS; i++)
        parts_room_leave(&table->room, &table->workers[i]);
    assert_int_equal(table->room.bytes, 0);
}

/* A part of a worker's gradient comes. */
static trp_status part_comes(struct table *table, uint32_t worker)
{
    struct staged_parts *staged = &table->workers[worker];
    TRP_TRY(parts_room_take(&table->room, staged, COUNT));
    staged->number = 7;
    staged->heard_ns = clock_now_ns(&table->clock);
    return TRP_OK;
}

static void is_complete(struct table *table, uint32_t worker)
{
    table->workers[worker].number = 0;
}

static void check_waits(struct table *table, uint32_t worker)
{
    assert_int_equal(part_comes(table, worker), TRP_RESOURCE_EXHAUSTED);
    assert_string_equal(trp_last_error(), "8000 of 11999 bytes (in_flight_bytes) are of pushes "
                                          "that are not complete, a gradient has 4000");
    assert_null(table->workers[worker].numbers);
}

static void who_finds_no_room_waits_until_a_gradient_is_complete(void **state)
{
    struct table table;
    (void)state;
    table_begin(&table);
    assert_int_equal(part_comes(&table, 0), TRP_OK);
    assert_int_equal(part_comes(&table, 1), TRP_OK);
    check_waits(&table, 2);
    is_complete(&table, 1);
    assert_int_equal(part_comes(&table, 1), TRP_OK); /* the next one, where the last one was */
    check_waits(&table, 2);
    is_complete(&table, 1);
    assert_int_equal(part_comes(&table, 2), TRP_OK);
    assert_null(table.workers[1].numbers);
    assert_non_null(table.workers[0].numbers);
    check_waits(&table, 1);
    table_end(&table);
}

static void parts_keep_their_room_as_long_as_they_come(void **state)
{
    struct table table;
    (void)state;
    table_begin(&table);
    assert_int_equal(part_comes(&table, 0), TRP_OK);
    for (int i = 0; i < 10; i++) {
        assert_int_equal(part_comes(&table, 1), TRP_OK);
        clock_advance(&table.clock, STAGED_SILENCE_MS * INT64_C(100000));
    }
    check_waits(&table, 2); /* the first one is silent for as long as it may be */
    clock_advance(&table.clock, 1);
    assert_int_equal(part_comes(&table, 2), TRP_OK);
    assert_null(table.workers[0].numbers);
    assert_int_equal(table.workers[0].number, 0); /* what comes of it now is of another one */
    assert_non_null(table.workers[1].numbers);
    table_end(&table);
}

static void what_never_has_room_is_refused_for_good(void **state)
{
    struct table table;
    struct staged_parts long_one = {0};
    (void)state;
    table_begin(&table);
    assert_int_equal(parts_room_take(&table.room, &long_one, 3 * (size_t)COUNT),
                     TRP_FAILED_PRECONDITION);
    assert_null(long_one.numbers);
    assert_int_equal(part_comes(&table, 0), TRP_OK);
    table_end(&table);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(who_finds_no_room_waits_until_a_gradient_is_complete),
        cmocka_unit_test(parts_keep_their_room_as_long_as_they_come),
        cmocka_unit_test(what_never_has_room_is_refused_for_good),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* A full store of small items, each of which shares its leaf of the file with thirty others: what
 * changes any of them goes on, or is refused, at any rate, and room comes back. */
#include "tests/replay/store_fixture.h"

#include "cli/limits.h"

enum {
    STORE_BYTES = 24 << 20,
    ITEM_BYTES = 4,
    ITEMS_MAX = 1 << 18,
    FILL_GROUP = 1024,
    TRIES_MAX = 60, /* of a second at most each */
};

struct room {
    char *dir;
    uint64_t max_bytes;
    struct store *store;
    uint32_t table;
    struct item **items; /* any order */
    size_t count;
    double *priorities; /* by key: what was committed or is in the group */
    uint64_t next_key, draws;
    size_t removed; /* keys that the store had when it was opened */
};

static uint64_t draw(struct room *room, uint64_t below)
{
    return fixture_hash(++room->draws) % below;
}

static void removed_count(void *arg, const struct removed_record *removed)
{
    size_t *count = arg;
    (void)removed;
    ++*count;
}

static void room_open(struct room *room)
{
    struct store_options options = {.dir = room->dir, .max_bytes = room->max_bytes};
    struct loaded loaded = {0};
    if (store_create(&room->store, &options) != TRP_OK || load_all(room->store, &loaded) != TRP_OK)
        fail_msg("%s", trp_last_error());
    assert_int_equal(loaded.count, room->count);
    for (size_t i = 0; i < loaded.count; i++) {
        room->items[i] = loaded.items[i];
        assert_true(loaded.items[i]->priority == room->priorities[loaded.items[i]->key]);
    }
    free(loaded.items);
    free(loaded.tables);
    room->removed = 0;
    assert_int_equal(store_removed_load(room->store, removed_count, &room->removed), TRP_OK);
}

/* A group of any size is written, a second's worth at a time. */
static void commit(struct room *room)
{
    for (unsigned tries = 0; tries < TRIES_MAX; tries++) {
        trp_status status = store_commit(room->store);
        if (status == TRP_OK)
            return;
        if (status != TRP_RESOURCE_EXHAUSTED)
            fail_msg("%s", trp_last_error());
    }
    fail_msg("a group is never written: %s", trp_last_error());
}

static void room_close(struct room *room)
{
    for (size_t i = 0; i < room->count; i++)
        store_item_destroy(room->store, room->items[i]);
    store_destroy(room->store);
    room->store = NULL;
}

static void reopen(struct room *room)
{
    commit(room);
    room_close(room);
    room_open(room);
}

static trp_status insert(struct room *room)
{
    struct item *item = fixture_item(room->store, room->next_key, ITEM_BYTES);
    trp_status status = store_admit(room->store, item);
    if (status == TRP_ABORTED) {
        commit(room);
        status = store_admit(room->store, item);
    }
    if (status != TRP_OK) {
        store_item_destroy(room->store, item);
        return status;
    }
    assert_true(room->count < ITEMS_MAX && room->next_key < 2 * ITEMS_MAX);
    store_item_insert(room->store, room->table, item);
    room->priorities[room->next_key++] = item->priority;
    room->items[room->count++] = item;
    return TRP_OK;
}

static void fill(struct room *room)
{
    trp_status status;
    while ((status = insert(room)) == TRP_OK)
        if (room->count % FILL_GROUP == 0)
            commit(room);
    assert_int_equal(status, TRP_RESOURCE_EXHAUSTED);
    assert_non_null(strstr(trp_last_error(), "no room for an item ("));
    commit(room);
}

static void update(struct room *room, size_t index, double priority)
{
    struct item *item = room->items[index];
    item->priority = room->priorities[item->key] = priority;
    store_item_priority(room->store, item);
}

static void erase(struct room *room, size_t index)
{
    struct item *item = room->items[index];
    struct removed_record removed = {
        .key = item->key, .at_ns = 1, .table_id = room->table, .fingerprint = 1};
    store_removed_note(room->store, &removed);
    store_item_delete(room->store, item);
    store_item_destroy(room->store, item);
    room->items[index] = room->items[--room->count];
}

static void erase_any(struct room *room, size_t count)
{
    for (; count > 0 && room->count > 0; count--)
        erase(room, draw(room, room->count));
    commit(room);
}

static int setup_of(void **state, uint64_t max_bytes)
{
    struct room *room = xcalloc(1, sizeof *room);
    room->max_bytes = max_bytes;
    room->dir = fixture_dir("/tmp");
    room->items = xcalloc(ITEMS_MAX, sizeof *room->items);
    room->priorities = xcalloc(2 * ITEMS_MAX, sizeof *room->priorities);
    room_open(room);
    room->table = store_table_put(room->store, "t", "name=t", (trp_bytes){0});
    fill(room);
    *state = room;
    return 0;
}

static int setup(void **state)
{
    return setup_of(state, STORE_BYTES);
}

static int setup_smallest(void **state)
{
    return setup_of(state, STORE_MAX_BYTES_MIN);
}

static int teardown(void **state)
{
    struct room *room = *state;
    if (room->store)
        room_close(room);
    fixture_remove(room->dir);
    free(room->items);
    free(room->priorities);
    free(room);
    return 0;
}

/* ---- cases ---------------------------------------------------------------------------------- */

static void updates_at_any_rate_go_on(void **state)
{
    struct room *room = *state;
    for (unsigned life = 0; life < 2; life++) {
        for (unsigned group = 0; group < 40; group++) {
            for (uint64_t i = draw(room, 20000); i > 0; i--)
                update(room, draw(room, room->count), group + (double)i / 32768);
            commit(room);
        }
        reopen(room);
    }
    assert_int_equal(insert(room), TRP_RESOURCE_EXHAUSTED);
}

static void any_items_of_a_full_store_can_go(void **state)
{
    struct room *room = *state;
    size_t full = room->count;
    while (room->count > full / 2)
        erase_any(room, 1024);
    reopen(room);
    while (room->count > 1000)
        erase_any(room, 1024);
    while (store_idle(room->store))
        ;
    for (size_t i = 0; i < full / 2; i++) {
        assert_int_equal(insert(room), TRP_OK);
        if (i % FILL_GROUP == 0)
            commit(room);
    }
    reopen(room);
}

static void a_group_may_change_more_than_the_log_holds(void **state)
{
    struct room *room = *state;
    size_t full = room->count;
    for (unsigned round = 0; round < 2; round++)
        for (size_t i = 0; i < room->count; i++)
            update(room, draw(room, room->count), (double)(round + i));
    commit(room);
    reopen(room);
    for (size_t i = 0; i < full / 4; i++) {
        update(room, draw(room, room->count), (double)i);
        erase(room, draw(room, room->count));
    }
    commit(room);
    reopen(room);
}

static void one_item_that_changes_often_takes_no_room(void **state)
{
    struct room *room = *state;
    for (unsigned i = 0; i < 4000000; i++)
        update(room, 7, i);
    assert_int_equal(store_commit(room->store), TRP_OK);
    for (unsigned i = 0; i < 4000000; i++) {
        room->items[9]->times_sampled = (int32_t)i;
        store_item_sampled(room->store, room->items[9]);
        if (i % 1000 == 0)
            update(room, 9, i);
    }
    assert_int_equal(store_commit(room->store), TRP_OK);
    uint64_t key = room->items[9]->key;
    reopen(room);
    for (size_t i = 0; i < room->count; i++)
        if (room->items[i]->key == key)
            assert_int_equal(room->items[i]->times_sampled, 3999999);
}

static void the_smallest_store_goes_on_too(void **state)
{
    struct room *room = *state;
    assert_true(room->count > 1000);
    for (unsigned group = 0; group < 200; group++) {
        for (uint64_t i = draw(room, 5000); i > 0; i--)
            update(room, draw(room, room->count), (double)i);
        commit(room);
    }
    reopen(room);
    while (room->count > 100)
        erase_any(room, 50);
    while (store_idle(room->store))
        ;
    for (unsigned i = 0; i < 500; i++)
        assert_int_equal(insert(room), TRP_OK);
    reopen(room);
}

/* Whatever comes in whatever order: it is done or refused, and in the end there is room. */
static void a_mixture_of_everything_ends(void **state)
{
    enum { STEPS = 400, SIGNATURE_BYTES = 100000 };
    struct room *room = *state;
    uint8_t *signature = xcalloc(1, SIGNATURE_BYTES);
    uint64_t inserted = 0;
    for (unsigned step = 0; step < STEPS; step++) {
        size_t size = (size_t)1 << draw(room, 15);
        assert_true(room->count > 0);
        switch (draw(room, 8)) {
        case 0:
            erase_any(room, 4 * size < room->count / 2 ? 4 * size : room->count / 2);
            break;
        case 1:
            while (size-- > 0 && room->next_key < 2 * ITEMS_MAX && insert(room) == TRP_OK)
                inserted++;
            break;
        case 2:
            for (; size > 0; size--) {
                struct item *item = room->items[draw(room, room->count)];
                item->times_sampled++;
                store_item_sampled(room->store, item);
            }
            break;
        case 3:
            commit(room);
            trp_bytes bytes = {signature, draw(room, SIGNATURE_BYTES)};
            trp_status status = store_admit_table(room->store, bytes, true);
            if (status == TRP_OK)
                store_table_put(room->store, "t", "name=t", bytes);
            else
                assert_int_equal(status, TRP_RESOURCE_EXHAUSTED);
            break;
        case 4:
            while (draw(room, 1000) > 0 && store_idle(room->store))
                ;
            break;
        case 5:
            if (step % 4 == 0)
                reopen(room);
            break;
        default:
            for (; size > 0; size--)
                update(room, draw(room, room->count), (double)size);
        }
        if (draw(room, 3) == 0)
            commit(room);
    }
    assert_true(inserted > 1000);
    erase_any(room, room->count / 8 * 7);
    while (store_idle(room->store))
        ;
    for (size_t i = 0; i < 1000; i++)
        assert_int_equal(insert(room), TRP_OK);
    reopen(room);
    free(signature);
}

/* Groups of more than are taken out at once otherwise, and no end of them. */
static void removed_keys_are_bounded(void **state)
{
    enum { GROUPS = 100, GROUP_KEYS = 6000, KEYS_MAX = STORE_BYTES / 16 / 24 + 2 * GROUP_KEYS };
    struct room *room = *state;
    erase_any(room, room->count / 2);
    while (store_idle(room->store))
        ;
    for (unsigned group = 0; group < GROUPS; group++) {
        for (unsigned i = 0; i < GROUP_KEYS; i++) {
            struct removed_record removed = {.key = group * GROUP_KEYS + i,
                                             .at_ns = group,
                                             .table_id = room->table,
                                             .fingerprint = 1};
            store_removed_note(room->store, &removed);
        }
        commit(room);
    }
    reopen(room);
    assert_in_range(room->removed, GROUP_KEYS, KEYS_MAX);
}

/* Every change to `priority` becomes one that no store writes. */
static unsigned log_damage(const struct room *room, double priority)
{
    char *path = fixture_path(room->dir, "data.mdb");
    int fd = open(path, O_RDWR);
    const uint64_t none = UINT64_MAX;
    off_t size = lseek(fd, 0, SEEK_END);
    uint8_t *bytes = xmalloc((size_t)size);
    unsigned count = 0;
    assert_int_equal(pread(fd, bytes, (size_t)size, 0), size);
    const uint8_t *end = bytes + size, *at = bytes;
    while ((at = memmem(at, (size_t)(end - at), &priority, sizeof priority)) != NULL) {
        assert_int_equal(pwrite(fd, &none, sizeof none, at - bytes - 8), 8);
        at += sizeof priority;
        count++;
    }
    close(fd);
    free(bytes);
    free(path);
    return count;
}

static void a_log_that_cannot_be_read_is_what_the_failure_says(void **state)
{
    enum { CHANGES = 1000, GROUPS_MAX = 1000 };
    struct room *room = *state;
    trp_status status = TRP_OK;
    for (unsigned i = 0; i < CHANGES; i++)
        update(room, i, 1234.5678);
    commit(room);
    assert_true(log_damage(room, 1234.5678) >= CHANGES);
    for (unsigned group = 0; status == TRP_OK && group < GROUPS_MAX; group++) {
        for (unsigned i = 0; i < CHANGES; i++)
            update(room, draw(room, room->count), group);
        status = store_commit(room->store);
    }
    assert_int_equal(status, TRP_DATA_LOSS);
    assert_non_null(strstr(trp_last_error(), "the change log"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(the_smallest_store_goes_on_too, setup_smallest, teardown),
        cmocka_unit_test_setup_teardown(updates_at_any_rate_go_on, setup, teardown),
        cmocka_unit_test_setup_teardown(any_items_of_a_full_store_can_go, setup, teardown),
        cmocka_unit_test_setup_teardown(a_group_may_change_more_than_the_log_holds, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(one_item_that_changes_often_takes_no_room, setup, teardown),
        cmocka_unit_test_setup_teardown(a_mixture_of_everything_ends, setup, teardown),
        cmocka_unit_test_setup_teardown(removed_keys_are_bounded, setup, teardown),
        cmocka_unit_test_setup_teardown(a_log_that_cannot_be_read_is_what_the_failure_says, setup,
                                        teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

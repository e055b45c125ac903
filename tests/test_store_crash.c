/* kill -9 at random moments: whatever was acknowledged is there, exactly, and nothing else.
 *
 * A child works on the store and says after each commit how many groups it has done. What it does
 * follows from the round and the group, so its parent can do the same to a plain list. */
#include "store_fixture.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <sys/wait.h>

#include "core/clock.h"

enum { ROUNDS = 20, ITEMS_MAX = 4000, OPERATIONS_MAX = 40, DEADLINE_MS = 20000 };

struct entry {
    uint64_t key;
    double priority;
    int32_t times;
    size_t size;
    struct item *item; /* in the child */
};

struct state {
    struct entry items[ITEMS_MAX];
    size_t count;
    uint64_t next_key;
    struct store_table table;
};

struct draws {
    uint64_t state;
};

static uint64_t draw(struct draws *draws, uint64_t below)
{
    draws->state += UINT64_C(0x9E3779B97F4A7C15);
    return fixture_hash(draws->state) % below;
}

/* ---- what a group does: to the list, and to the store if there is one ----------------------- */

static void insert(struct state *state, struct draws *draws, struct store *store)
{
    size_t size = draw(draws, 4) ? draw(draws, 300) : draw(draws, 40000);
    struct entry *entry = &state->items[state->count++];
    *entry = (struct entry){.key = state->next_key++, .size = size};
    entry->priority = (double)entry->key / 2;
    state->table.inserts++;
    if (!store)
        return;
    entry->item = fixture_item(store, entry->key, size);
    trp_status status = store_admit(store, entry->item);
    for (unsigned again = 0; status == TRP_ABORTED && again < 1000; again++)
        status = store_admit(store, entry->item); /* the helper has yet to begin */
    if (status != TRP_OK)
        _exit(3);
    store_item_insert(store, state->table.id, entry->item);
}

static void erase(struct state *state, size_t index, struct store *store)
{
    struct entry *entry = &state->items[index];
    state->table.deletes++;
    if (store) {
        store_item_delete(store, state->table.id, entry->item);
        store_item_destroy(store, entry->item);
    }
    memmove(entry, entry + 1, (--state->count - index) * sizeof *entry);
}

static void operate(struct state *state, struct draws *draws, struct store *store)
{
    uint64_t kind = draw(draws, 100);
    if (state->count < ITEMS_MAX && (kind < 45 || state->count == 0)) {
        insert(state, draws, store);
        return;
    }
    size_t index = draw(draws, state->count);
    struct entry *entry = &state->items[index];
    if (kind < 70) {
        entry->priority = (double)draw(draws, 1000000);
        if (store) {
            entry->item->priority = entry->priority;
            store_item_priority(store, state->table.id, entry->item);
        }
    } else if (kind < 80) {
        entry->times++;
        state->table.samples++;
        if (store) {
            entry->item->times_sampled = entry->times;
            store_item_sampled(store, state->table.id, entry->item);
        }
    } else {
        erase(state, kind < 90 ? index : 0, store);
    }
}

static void do_group(struct state *state, uint64_t round, uint64_t group, struct store *store)
{
    struct draws draws = {round * 1000003 + group};
    for (uint64_t left = 1 + draw(&draws, OPERATIONS_MAX); left > 0; left--)
        operate(state, &draws, store);
    if (store)
        store_table_counters(store, &state->table);
}

/* ---- child ---------------------------------------------------------------------------------- */

static void work(const char *dir, struct state *state, uint64_t round, int acks)
{
    struct store *store;
    struct loaded loaded = {0};
    struct store_options options = {.dir = dir, .cache_bytes = 100000};
    if (store_create(&store, &options) != TRP_OK ||
        store_load(store, loaded_add, &loaded) != TRP_OK || loaded.count != state->count)
        _exit(1);
    for (size_t index = 0; index < loaded.count; index++)
        state->items[index].item = loaded.items[index];
    for (uint64_t group = 0;; group++) {
        do_group(state, round, group, store);
        if (store_commit(store) != TRP_OK)
            _exit(2);
        uint64_t done = group + 1;
        if (write(acks, &done, sizeof done) != sizeof done)
            _exit(0);
        if (group % 3 == 0)
            store_idle(store);
    }
}

/* ---- parent --------------------------------------------------------------------------------- */

/* Reads acks until `wanted`, lets the child go on for a moment, kills it; the last ack. */
static uint64_t kill_after(pid_t child, int acks, uint64_t wanted, int64_t more_ns)
{
    uint64_t done = 0;
    struct deadline deadline = deadline_in_ms(&clock_monotonic, DEADLINE_MS);
    struct pollfd ready = {.fd = acks, .events = POLLIN};
    while (done < wanted) {
        if (deadline_passed(deadline, &clock_monotonic) || poll(&ready, 1, DEADLINE_MS) != 1 ||
            read(acks, &done, sizeof done) != sizeof done)
            break;
    }
    int64_t until = clock_now_ns(&clock_monotonic) + more_ns;
    while (clock_now_ns(&clock_monotonic) < until)
        ;
    kill(child, SIGKILL);
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    while (read(acks, &done, sizeof done) == sizeof done)
        ;
    if (WIFEXITED(status))
        fail_msg("the child gave up: %d", WEXITSTATUS(status));
    assert_true(done >= wanted);
    return done;
}

static bool state_matches(struct store *store, const struct loaded *loaded,
                          const struct state *state)
{
    size_t tables;
    const struct store_table *table = store_tables(store, &tables);
    if (loaded->count != state->count || tables != 1 || table->inserts != state->table.inserts ||
        table->deletes != state->table.deletes || table->samples != state->table.samples)
        return false;
    for (size_t index = 0; index < state->count; index++) {
        const struct entry *entry = &state->items[index];
        const struct item *item = loaded->items[index];
        if (item->key != entry->key || item->priority != entry->priority ||
            item->times_sampled != entry->times)
            return false;
        fixture_check_chunk(store, item->chunks[0], entry->key, entry->size);
    }
    return true;
}

/* The store is what `groups` groups made of `state`, or one more: that one was committed and could
 * not be acknowledged. */
static void check_after(const char *dir, struct state *state, uint64_t round, uint64_t groups,
                        bool read_only)
{
    struct store *store;
    struct loaded loaded = {0};
    struct store_options options = {.dir = dir, .read_only = read_only};
    if (store_create(&store, &options) != TRP_OK ||
        store_load(store, loaded_add, &loaded) != TRP_OK)
        fail_msg("%s", trp_last_error());
    for (uint64_t group = 0; group < groups; group++)
        do_group(state, round, group, NULL);
    if (!state_matches(store, &loaded, state)) {
        do_group(state, round, groups, NULL);
        assert_true(state_matches(store, &loaded, state));
    }
    struct store_stats stats;
    store_stats(store, &stats);
    assert_int_equal(stats.chunks, state->count);
    if (!read_only)
        assert_int_equal(stats.unswept, 0);
    loaded_cleanup(store, &loaded);
    store_destroy(store);
}

static void a_killed_store_has_all_that_was_acknowledged(void **test_state)
{
    (void)test_state;
    char *dir = fixture_dir("/tmp");
    struct state *state = xcalloc(1, sizeof *state);
    struct store *store;
    struct store_options options = {.dir = dir};
    assert_int_equal(store_create(&store, &options), TRP_OK);
    state->table.id = store_table_put(store, "t", "name=t", (trp_bytes){0});
    assert_int_equal(store_commit(store), TRP_OK);
    store_destroy(store);
    struct draws draws = {7};
    for (uint64_t round = 1; round <= ROUNDS; round++) {
        int acks[2];
        assert_int_equal(pipe(acks), 0);
        pid_t child = fork(); /* no store is open here */
        assert_true(child >= 0);
        if (child == 0) {
            close(acks[0]);
            work(dir, state, round, acks[1]);
        }
        close(acks[1]);
        uint64_t done =
            kill_after(child, acks[0], draw(&draws, 200), (int64_t)draw(&draws, 2000000));
        close(acks[0]);
        check_after(dir, state, round, done, round % 4 == 0);
    }
    free(state);
    fixture_remove(dir);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_killed_store_has_all_that_was_acknowledged),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

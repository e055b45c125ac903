/* kill -9 at random moments: whatever was acknowledged is there, exactly, and nothing else.
 *
 * A child works on the store and says after each commit how many groups it has done. What it does
 * follows from the round and the group, so its parent can do the same to a plain list. */
#include "store_script.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <sys/wait.h>

#include "core/clock.h"

enum { ROUNDS = 20, DEADLINE_MS = 20000 };

/* ---- child ---------------------------------------------------------------------------------- */

static void work(const char *dir, struct state *state, uint64_t round, int acks)
{
    struct store *store;
    struct loaded loaded = {0};
    struct store_options options = {.dir = dir, .cache_bytes = 100000};
    if (store_create(&store, &options) != TRP_OK || load_all(store, &loaded) != TRP_OK ||
        loaded.count != state->count)
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
    if (!WIFSIGNALED(status) || WTERMSIG(status) != SIGKILL)
        fail_msg("the child gave up: %d", status);
    assert_true(done >= wanted);
    return done;
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
        (round % 2 ? load_in_pieces(store, &loaded, round) : load_all(store, &loaded)) != TRP_OK)
        fail_msg("%s", trp_last_error());
    while (!read_only && store_idle(store))
        ;
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
    state->items_max = SCRIPT_ITEMS_MAX;
    state->size_max = 40000;
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

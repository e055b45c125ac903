/* Work over large tables that nobody waits for. A table that is emptied is empty for everybody at
 * once and for good, one with smaller limits has no more than they allow; the work that is left is
 * nobody's concern. The server is a process of its own, which is killed for good. */
#include "tests/replay/replay_fixture.h"

#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>

#include "core/clock.h"
#include "tests/core/patience.h"
#include "replay.pb-c.h"

extern char **environ;

enum { ITEMS = 20000, MESSAGE_ITEMS = 400, SHARED = 10, LINES_MAX = 3 };

struct site {
    struct replay replay; /* its channel leads to the process */
    char *address;
    pid_t pid; /* 0: none */
};

static const char *const lines[LINES_MAX] = {
    "name=t sampler=lifo max_size=1000000",
    /* Its items have chunks of t's. */
    "name=u sampler=fifo max_times_sampled=1 max_size=1000000",
    "name=v sampler=prioritized(1) max_size=1000000",
};

/* ---- the process ------------------------------------------------------------------------- */

/* Serves until it is killed; says so when it can. */
static int serve(const char *dir, const char *address)
{
    trp_table_options tables[LINES_MAX], *parsed[LINES_MAX];
    for (size_t i = 0; i < LINES_MAX; ++i) {
        assert_int_equal(trp_table_options_parse(lines[i], &parsed[i]), TRP_OK);
        tables[i] = *parsed[i];
    }
    trp_replay_server *server;
    trp_replay_server_options options = {
        .dir = dir, .tables = tables, .table_count = LINES_MAX, .server.address = address};
    assert_int_equal(trp_replay_server_create(&server, &options), TRP_OK);
    assert_int_equal(trp_replay_server_start(server), TRP_OK);
    assert_int_equal(write(STDOUT_FILENO, "", 1), 1);
    while (pause() != 0)
        continue;
    return 0;
}

static void site_start(struct site *site)
{
    char *arguments[] = {"test", "--serve", site->replay.dir, site->address, NULL}, ready;
    int out[2];
    posix_spawn_file_actions_t actions;
    assert_int_equal(pipe2(out, O_CLOEXEC), 0);
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, out[1], STDOUT_FILENO);
    assert_int_equal(posix_spawn(&site->pid, "/proc/self/exe", &actions, NULL, arguments, environ),
                     0);
    posix_spawn_file_actions_destroy(&actions);
    close(out[1]);
    assert_int_equal(read(out[0], &ready, 1), 1);
    close(out[0]);
    assert_int_equal(trp_channel_create(&site->replay.channel, site->address, NULL), TRP_OK);
}

static void site_kill(struct site *site)
{
    trp_channel_destroy(site->replay.channel);
    site->replay.channel = NULL;
    if (site->pid > 0) {
        assert_int_equal(kill(site->pid, SIGKILL), 0);
        assert_int_equal(waitpid(site->pid, NULL, 0), site->pid);
    }
    site->pid = 0;
}

static void site_restart(struct site *site)
{
    site_kill(site);
    site_start(site);
}

static int site_setup(void **state)
{
    struct site *site = xcalloc(1, sizeof *site);
    site->replay.dir = fixture_dir("/tmp");
    site->address = xasprintf("unix:%s/socket", site->replay.dir);
    site_start(site);
    *state = site;
    return 0;
}

static int site_teardown(void **state)
{
    struct site *site = *state;
    site_kill(site);
    fixture_remove(site->replay.dir);
    free(site->address);
    free(site);
    return 0;
}

/* ---- what is asked of it ----------------------------------------------------------------- */

/* Items `first` to `first + count - 1` of a table with value 10 * key + `version`; every tenth
 * chunk is in u, too, when `shared`. Confirmed. */
static void fill_table(const struct site *site, const char *table, uint64_t first, uint32_t count,
                       int64_t version, bool shared)
{
    trp_stream *stream = open_stream(&site->replay, "InsertStream");
    uint64_t *keys = xcalloc(2 * MESSAGE_ITEMS, sizeof *keys);
    struct built *built = built_create(0);
    for (uint64_t key = first, end; key < first + count; key = end) {
        uint32_t sent = 0;
        end = key + MESSAGE_ITEMS < first + count ? key + MESSAGE_ITEMS : first + count;
        for (; key < end; ++key) {
            add_chunk(built, (struct chunk_spec){.key = key, .value = (int64_t)key * 10 + version});
            add_simple_item(built, keys[sent++] = key, table, 1, key);
            if (shared && key % SHARED == 0)
                add_simple_item(built, keys[sent++] = key, "u", 1, key);
        }
        send_built(stream, built);
        assert_confirmed(stream, keys, sent);
    }
    built_destroy(built);
    free(keys);
    trp_stream_destroy(stream);
}

static void fill(const struct site *site, uint64_t first, uint32_t count, int64_t version,
                 bool shared)
{
    fill_table(site, "t", first, count, version, shared);
}

static void reset(const struct site *site)
{
    assert_int_equal(reset_table(&site->replay, "t"), TRP_OK);
}

static int64_t size_of(const struct site *site, const char *table)
{
    return table_state(&site->replay, table).size;
}

static void assert_shared_items_are_whole(const struct site *site)
{
    struct sampled *samples = xcalloc(ITEMS / SHARED, sizeof *samples);
    trp_stream *stream = open_stream(&site->replay, "SampleStream");
    send_sample_request(stream, "u", ITEMS / SHARED, WAIT_MS);
    receive_samples(stream, samples, ITEMS / SHARED);
    for (uint64_t i = 0; i < ITEMS / SHARED; ++i) {
        assert_int_equal(samples[i].key, (i + 1) * SHARED);
        assert_int_equal(samples[i].value, (i + 1) * SHARED * 10);
    }
    trp_stream_destroy(stream);
    free(samples);
}

static ProtobufCService *replay_service(const struct site *site)
{
    ProtobufCService *service;
    assert_int_equal(
        trp_channel_service(site->replay.channel, &troupe__replay__descriptor, &service), TRP_OK);
    return service;
}

static Troupe__ReplayTablesResponse *tables_of(const struct site *site)
{
    Troupe__ReplayTablesRequest request = TROUPE__REPLAY_TABLES_REQUEST__INIT;
    ProtobufCMessage *reply;
    assert_int_equal(trp_call(replay_service(site), "Tables", &request.base, &reply, NULL), TRP_OK);
    return (Troupe__ReplayTablesResponse *)reply;
}

/* Of all tables, with those that are on their way out of the file. */
static int64_t stored_items(const struct site *site)
{
    Troupe__ReplayTablesResponse *reply = tables_of(site);
    int64_t items = (int64_t)reply->store->items;
    troupe__replay_tables_response__free_unpacked(reply, NULL);
    return items;
}

static void wait_for_stored_items(const struct site *site, int64_t items)
{
    struct deadline deadline = deadline_in_ms(&clock_monotonic, WAIT_MS);
    while (stored_items(site) != items)
        assert_false(deadline_passed(deadline, &clock_monotonic));
}

/* ---- tests ------------------------------------------------------------------------------- */

static void a_table_is_empty_for_good_once_its_reset_is_confirmed(void **state)
{
    struct site *site = *state;
    fill(site, 1, ITEMS, 0, true);
    reset(site);
    site_restart(site);
    assert_int_equal(size_of(site, "t"), 0);
    assert_int_equal(size_of(site, "u"), ITEMS / SHARED);
    assert_int_equal(table_state(&site->replay, "t").inserts, 0);
    site_restart(site); /* while what is left is removed */
    wait_for_stored_items(site, ITEMS / SHARED);
    assert_shared_items_are_whole(site);
    site_restart(site);
    assert_int_equal(size_of(site, "t"), 0);
}

static void the_same_keys_come_again_right_after_a_reset(void **state)
{
    struct site *site = *state;
    fill(site, 1, ITEMS, 0, true);
    reset(site);
    fill(site, 1, 1000, 7, false);
    assert_int_equal(size_of(site, "t"), 1000);
    assert_int_equal(sample_one(&site->replay, "t").value, 10007);
    site_restart(site);
    assert_int_equal(size_of(site, "t"), 1000);
    assert_int_equal(sample_one(&site->replay, "t").value, 10007);
    wait_for_stored_items(site, 1000 + ITEMS / SHARED);
    assert_shared_items_are_whole(site);
    assert_int_equal(mutate_key(&site->replay, "t", 1000, false, 0, true), TRP_OK);
    assert_int_equal(sample_one(&site->replay, "t").value, 9997);
}

static void a_reset_comes_while_an_earlier_one_is_carried_out(void **state)
{
    struct site *site = *state;
    fill(site, 1, ITEMS, 0, true);
    reset(site);
    fill(site, 1, 2000, 1, false);
    reset(site);
    reset(site);
    fill(site, 5, 3, 2, false);
    assert_int_equal(sample_one(&site->replay, "t").value, 72);
    site_restart(site);
    reset(site);
    fill(site, 5, 3, 3, false);
    site_restart(site);
    assert_int_equal(size_of(site, "t"), 3);
    assert_int_equal(sample_one(&site->replay, "t").value, 73);
    wait_for_stored_items(site, 3 + ITEMS / SHARED);
    assert_shared_items_are_whole(site);
}

static void samplers_wait_through_a_reset(void **state)
{
    struct site *site = *state;
    struct sampled sample;
    fill(site, 1, ITEMS, 0, false);
    trp_stream *waits = open_stream(&site->replay, "SampleStream");
    send_sample_request(waits, "v", 1, WAIT_MS);
    assert_int_equal(reset_table(&site->replay, "v"), TRP_OK);
    reset(site);
    trp_stream *stream = open_stream(&site->replay, "SampleStream");
    send_sample_request(stream, "t", 1, WAIT_MS);
    fill(site, 3, 1, 5, false);
    insert_items(&site->replay, "v", 4, 1);
    receive_samples(stream, &sample, 1);
    assert_int_equal(sample.value, 35);
    receive_samples(waits, &sample, 1);
    assert_int_equal(sample.value, 40);
    trp_stream_destroy(stream);
    trp_stream_destroy(waits);
}

static void a_checkpoint_has_nothing_of_what_was_reset(void **state)
{
    struct site *site = *state;
    trp_message *reply;
    trp_replay_report report;
    fill(site, 1, ITEMS, 0, true);
    reset(site);
    site_restart(site);
    fill(site, 1, 7, 1, false);
    assert_int_equal(unary(&site->replay, "Checkpoint", trp_message_create(0), &reply), TRP_OK);
    Deepmind__Reverb__CheckpointResponse *response = deepmind__reverb__checkpoint_response__unpack(
        NULL, trp_message_size(reply), trp_message_data(reply));
    trp_message_destroy(reply);
    assert_int_equal(trp_replay_verify(response->checkpoint_path, &report), TRP_OK);
    assert_int_equal(report.items, ITEMS / SHARED + 7);
    assert_int_equal(report.damaged, 0);
    trp_replay_report_cleanup(&report);
    deepmind__reverb__checkpoint_response__free_unpacked(response, NULL);
    site_kill(site);
    assert_int_equal(trp_replay_verify(site->replay.dir, &report), TRP_OK);
    assert_int_equal(report.items, ITEMS / SHARED + 7);
    assert_int_equal(report.damaged, 0);
    trp_replay_report_cleanup(&report);
}

/* That it is under way is seen after the others were answered. */
static void others_are_served_while_a_reset_is_carried_out(void **state)
{
    struct site *site = *state;
    bool under_way = false;
    for (uint64_t attempt = 0; attempt < 20 && !under_way; ++attempt) {
        fill(site, 1, 2 * ITEMS, 0, false);
        reset(site);
        insert_items(&site->replay, "v", attempt + 1, 1);
        assert_int_equal(sample_one(&site->replay, "v").value % 10, 0);
        assert_int_equal(size_of(site, "t"), 0);
        under_way = stored_items(site) > (int64_t)attempt + 1;
    }
    assert_true(under_way);
}

/* ---- smaller limits ---------------------------------------------------------------------- */

enum { LIMIT = 100 };

static trp_future *shrink(const struct site *site)
{
    Troupe__ReplayAlterTableRequest request = TROUPE__REPLAY_ALTER_TABLE_REQUEST__INIT;
    request.options = "name=t max_size=100";
    request.shrink = true;
    return trp_call_async(replay_service(site), "AlterTable", &request.base,
                          &(trp_call_options){.timeout_ms = WAIT_MS});
}

enum { MANY = 2 * ITEMS };

/* Puts MANY items into a table that may have them. */
static void refill(const struct site *site)
{
    Troupe__ReplayAlterTableRequest request = TROUPE__REPLAY_ALTER_TABLE_REQUEST__INIT;
    ProtobufCMessage *reply;
    request.options = "name=t max_size=1000000";
    reset(site);
    assert_int_equal(trp_call(replay_service(site), "AlterTable", &request.base, &reply, NULL),
                     TRP_OK);
    protobuf_c_message_free_unpacked(reply, NULL);
    fill(site, 1, MANY, 0, false);
}

static bool shrinking(const struct site *site)
{
    Troupe__ReplayTablesResponse *reply = tables_of(site);
    bool altered = reply->tables[0]->max_size == LIMIT, over = reply->tables[0]->size > LIMIT;
    troupe__replay_tables_response__free_unpacked(reply, NULL);
    return altered && over;
}

/* Looks until the table shrinks or has shrunk; true: it still does. */
static bool seen_shrinking(const struct site *site, trp_future *future, ProtobufCMessage **reply)
{
    bool under_way = false;
    for (bool ended = false; !ended && !under_way;) {
        under_way = shrinking(site);
        ended = trp_future_wait(future, 0, reply) != TRP_DEADLINE_EXCEEDED;
    }
    return under_way;
}

/* Who is told of the new limit and of more items than that is served before the end. */
static void a_table_shrinks_while_others_insert_and_sample(void **state)
{
    struct site *site = *state;
    bool under_way = false;
    struct deadline look = patience();
    trp_stream *inserts = open_stream(&site->replay, "InsertStream");
    trp_stream *samples = open_stream(&site->replay, "SampleStream");
    for (uint64_t attempt = 0; !under_way; ++attempt) {
        uint64_t key = 10 * MANY * (attempt + 1);
        struct sampled sample;
        ProtobufCMessage *reply = NULL;
        still_patient(look, "a look at a table that shrinks");
        refill(site);
        trp_future *future = shrink(site);
        under_way = seen_shrinking(site, future, &reply);
        struct deadline deadline = patience();
        do {
            still_patient(deadline, "the end of shrinking");
            send_simple(inserts, ++key, "t", 1, 1);
            assert_confirmed(inserts, &key, 1);
            send_sample_request(samples, "t", 1, WAIT_MS);
            receive_samples(samples, &sample, 1);
            assert_int_equal(sample.key, key);
        } while (!reply && trp_future_wait(future, 0, &reply) == TRP_DEADLINE_EXCEEDED);
        assert_in_range(((Troupe__ReplayAlterTableResponse *)reply)->removed, ITEMS, 2 * MANY);
        protobuf_c_message_free_unpacked(reply, NULL);
        trp_future_destroy(future);
        assert_int_equal(size_of(site, "t"), LIMIT);
    }
    trp_stream_destroy(inserts);
    trp_stream_destroy(samples);
}

static void a_table_that_was_to_shrink_goes_on_after_a_kill(void **state)
{
    struct site *site = *state;
    bool under_way = false;
    struct deadline look = patience();
    while (!under_way) {
        refill(site);
        trp_future *future = shrink(site);
        ProtobufCMessage *reply = NULL;
        still_patient(look, "a look at a table that shrinks");
        under_way = seen_shrinking(site, future, &reply);
        if (reply)
            protobuf_c_message_free_unpacked(reply, NULL);
        trp_future_destroy(future);
    }
    site_restart(site);
    struct deadline deadline = deadline_in_ms(&clock_monotonic, WAIT_MS);
    while (size_of(site, "t") > LIMIT)
        assert_false(deadline_passed(deadline, &clock_monotonic));
    assert_int_equal(size_of(site, "t"), LIMIT);
    insert_items(&site->replay, "t", 10 * ITEMS, 1);
    assert_int_equal(sample_one(&site->replay, "t").key, 10 * ITEMS);
}

/* ---- looking ----------------------------------------------------------------------------- */

static void the_heaviest_of_many_items_is_seen_first(void **state)
{
    struct site *site = *state;
    Troupe__ReplayItemsRequest request = TROUPE__REPLAY_ITEMS_REQUEST__INIT;
    request.table = "v";
    request.count = 1;
    fill_table(site, "v", 1, 2 * ITEMS, 0, false);
    const uint64_t heaviest[] = {1, 2 * ITEMS, 777};
    for (size_t i = 0; i < sizeof heaviest / sizeof *heaviest; ++i) {
        ProtobufCMessage *reply;
        double priority = 2 + (double)i;
        assert_int_equal(mutate_key(&site->replay, "v", heaviest[i], true, priority, false),
                         TRP_OK);
        assert_int_equal(trp_call(replay_service(site), "Items", &request.base, &reply, NULL),
                         TRP_OK);
        assert_int_equal(((Troupe__ReplayItemsResponse *)reply)->items[0]->key, heaviest[i]);
        protobuf_c_message_free_unpacked(reply, NULL);
    }
}

int main(int argc, char **argv)
{
    if (argc == 4 && strcmp(argv[1], "--serve") == 0)
        return serve(argv[2], argv[3]);
#define TEST(name) cmocka_unit_test_setup_teardown(name, site_setup, site_teardown)
    const struct CMUnitTest tests[] = {
        TEST(a_table_is_empty_for_good_once_its_reset_is_confirmed),
        TEST(the_same_keys_come_again_right_after_a_reset),
        TEST(a_reset_comes_while_an_earlier_one_is_carried_out),
        TEST(samplers_wait_through_a_reset),
        TEST(a_checkpoint_has_nothing_of_what_was_reset),
        TEST(others_are_served_while_a_reset_is_carried_out),
        TEST(a_table_shrinks_while_others_insert_and_sample),
        TEST(a_table_that_was_to_shrink_goes_on_after_a_kill),
        TEST(the_heaviest_of_many_items_is_seen_first),
    };
#undef TEST
    return cmocka_run_group_tests(tests, NULL, NULL);
}

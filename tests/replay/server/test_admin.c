/* troupe.Replay: looking at the items of a table, fetching them, and making, dropping and altering
 * tables while streams are open. */
#include "tests/replay/replay_fixture.h"

#include <troupe/writer.h>
#include "replay.pb-c.h"
#include "replay/engine/limits.h"

static ProtobufCService *replay_service(const struct replay *replay)
{
    ProtobufCService *service;
    assert_int_equal(trp_channel_service(replay->channel, &troupe__replay__descriptor, &service),
                     TRP_OK);
    return service;
}

static trp_status call(const struct replay *replay, const char *method, const void *request,
                       void *reply)
{
    ProtobufCMessage *message = NULL;
    trp_status status = trp_call(replay_service(replay), method, request, &message, NULL);
    if (reply)
        *(ProtobufCMessage **)reply = message;
    else if (message)
        protobuf_c_message_free_unpacked(message, NULL);
    return status;
}

static void call_ok(const struct replay *replay, const char *method, const void *request,
                    void *reply)
{
    trp_status status = call(replay, method, request, reply);
    if (status != TRP_OK)
        print_error("%s: %s\n", method, trp_last_error());
    assert_int_equal(status, TRP_OK);
}

static void assert_says(const char *text)
{
    if (!strstr(trp_last_error(), text))
        print_error("expected '%s' in '%s'\n", text, trp_last_error());
    assert_non_null(strstr(trp_last_error(), text));
}

/* ---- Items ------------------------------------------------------------------------------- */

static Troupe__ReplayItemsResponse *items(const struct replay *replay, Troupe__ReplayOrder order,
                                          uint32_t count, uint64_t offset,
                                          Troupe__ReplayFilter *filter)
{
    Troupe__ReplayItemsRequest request = TROUPE__REPLAY_ITEMS_REQUEST__INIT;
    Troupe__ReplayItemsResponse *reply;
    request.table = "t";
    request.count = count;
    request.order = order;
    request.offset = offset;
    request.filter = filter;
    call_ok(replay, "Items", &request, &reply);
    return reply;
}

static void assert_keys(Troupe__ReplayItemsResponse *reply, const uint64_t *keys, size_t count)
{
    assert_int_equal(reply->n_items, count);
    for (size_t i = 0; i < count; ++i)
        assert_int_equal(reply->items[i]->key, keys[i]);
    troupe__replay_items_response__free_unpacked(reply, NULL);
}

#define KEYS(...)                                                                                  \
    (const uint64_t[]){__VA_ARGS__}, sizeof((const uint64_t[]){__VA_ARGS__}) / sizeof(uint64_t)
#define ORDER(name) TROUPE__REPLAY_ORDER__REPLAY_ORDER_##name

/* Keys 1 to 6 with priorities 30 10 20 20 50 0; key 2 was sampled twice and key 5 once. */
static void open_six(struct replay *replay, const char *line)
{
    static const double priorities[] = {30, 10, 20, 20, 50, 0};
    OPEN(line);
    trp_stream *stream = open_stream(replay, "InsertStream");
    for (uint64_t key = 1; key <= 6; ++key) {
        send_simple(stream, key, "t", priorities[key - 1], (int64_t)key * 10);
        assert_confirmed(stream, &key, 1);
    }
    trp_stream_destroy(stream);
}

static void items_come_in_the_order_asked_for(void **state)
{
    struct replay *replay = *state;
    open_six(replay, "name=t sampler=max_heap");
    assert_int_equal(sample_one(replay, "t").key, 5);
    assert_keys(items(replay, ORDER(SAMPLER), 0, 0, NULL), KEYS(5, 1, 3, 4, 2, 6));
    assert_keys(items(replay, ORDER(OLDEST), 0, 0, NULL), KEYS(1, 2, 3, 4, 5, 6));
    assert_keys(items(replay, ORDER(NEWEST), 0, 0, NULL), KEYS(6, 5, 4, 3, 2, 1));
    assert_keys(items(replay, ORDER(HIGHEST), 0, 0, NULL), KEYS(5, 1, 3, 4, 2, 6));
    assert_keys(items(replay, ORDER(LOWEST), 0, 0, NULL), KEYS(6, 2, 3, 4, 1, 5));
    assert_keys(items(replay, ORDER(MOST_SAMPLED), 2, 0, NULL), KEYS(5, 1));
    assert_keys(items(replay, ORDER(LEAST_SAMPLED), 5, 0, NULL), KEYS(1, 2, 3, 4, 6));
    assert_keys(items(replay, ORDER(HIGHEST), 2, 3, NULL), KEYS(4, 2));
    assert_int_equal(table_state(replay, "t").samples, 1); /* looking is no sample */
}

static void items_are_counted_by_the_filter(void **state)
{
    struct replay *replay = *state;
    open_six(replay, "name=t sampler=max_heap");
    Troupe__ReplayFilter filter = TROUPE__REPLAY_FILTER__INIT;
    filter.has_min_priority = filter.has_max_priority = true;
    filter.min_priority = 10;
    filter.max_priority = 30;
    Troupe__ReplayItemsResponse *reply = items(replay, ORDER(OLDEST), 2, 1, &filter);
    assert_int_equal(reply->matches, 4);
    assert_int_equal(reply->table_size, 6);
    assert_true(reply->min_priority == 10);
    assert_true(reply->max_priority == 30);
    assert_string_equal(reply->order, "oldest first");
    assert_int_equal(reply->items[0]->sequence, reply->items[1]->sequence - 1);
    assert_keys(reply, KEYS(2, 3));
    filter = (Troupe__ReplayFilter)TROUPE__REPLAY_FILTER__INIT;
    filter.max_age_seconds = 3600;
    reply = items(replay, ORDER(OLDEST), 1, 0, &filter);
    assert_int_equal(reply->matches, 6);
    troupe__replay_items_response__free_unpacked(reply, NULL);
    filter.min_age_seconds = 3600;
    reply = items(replay, ORDER(OLDEST), 1, 0, &filter);
    assert_int_equal(reply->matches, 0);
    assert_true(reply->max_priority == 0);
    troupe__replay_items_response__free_unpacked(reply, NULL);
}

static void items_are_found_by_key(void **state)
{
    struct replay *replay = *state;
    open_six(replay, "name=t");
    Troupe__ReplayFilter filter = TROUPE__REPLAY_FILTER__INIT;
    uint64_t keys[] = {5, 77, 2, 5};
    filter.n_keys = 4;
    filter.keys = keys;
    assert_keys(items(replay, ORDER(OLDEST), 0, 0, &filter), KEYS(2, 5));
}

static void items_of_a_large_table_are_walked_in_slices(void **state)
{
    enum { COUNT = 50000 };
    struct replay *replay = *state;
    OPEN("name=t sampler=uniform");
    trp_stream *stream = open_stream(replay, "InsertStream");
    struct built *built = built_create(64 * 1024);
    for (uint64_t key = 1; key <= COUNT;) {
        uint64_t keys[500];
        add_chunk(built, (struct chunk_spec){.key = 1, .value = 1});
        for (int i = 0; i < 500; ++i, ++key) {
            keys[i] = key;
            add_simple_item(built, key, "t", (double)(key % 1000), 1);
        }
        send_built(stream, built);
        assert_confirmed(stream, keys, 500);
    }
    built_destroy(built);
    trp_stream_destroy(stream);
    Troupe__ReplayItemsResponse *reply = items(replay, ORDER(HIGHEST), 3, 49, NULL);
    assert_int_equal(reply->matches, COUNT);
    assert_true(reply->max_priority == 999);
    assert_keys(reply, KEYS(49999, 998, 1998));
}

/* ---- tables ------------------------------------------------------------------------------ */

static trp_status create_table(const struct replay *replay, const char *line)
{
    Troupe__ReplayCreateTableRequest request = TROUPE__REPLAY_CREATE_TABLE_REQUEST__INIT;
    request.options = (char *)line;
    return call(replay, "CreateTable", &request, NULL);
}

static trp_status drop_table(const struct replay *replay, const char *name, bool only_if_empty)
{
    Troupe__ReplayDropTableRequest request = TROUPE__REPLAY_DROP_TABLE_REQUEST__INIT;
    request.table = (char *)name;
    request.only_if_empty = only_if_empty;
    return call(replay, "DropTable", &request, NULL);
}

static trp_status alter_table(const struct replay *replay, const char *line, bool shrink,
                              bool dry_run, Troupe__ReplayAlterTableResponse **reply)
{
    Troupe__ReplayAlterTableRequest request = TROUPE__REPLAY_ALTER_TABLE_REQUEST__INIT;
    request.options = (char *)line;
    request.shrink = shrink;
    request.dry_run = dry_run;
    return call(replay, "AlterTable", &request, reply);
}

static void state_id(const struct replay *replay, uint64_t id[2])
{
    trp_message *reply;
    assert_int_equal(unary(replay, "ServerInfo", trp_message_create(0), &reply), TRP_OK);
    Deepmind__Reverb__ServerInfoResponse *info = deepmind__reverb__server_info_response__unpack(
        NULL, trp_message_size(reply), trp_message_data(reply));
    id[0] = info->tables_state_id->high;
    id[1] = info->tables_state_id->low;
    deepmind__reverb__server_info_response__free_unpacked(info, NULL);
    trp_message_destroy(reply);
}

static char *options_of(const struct replay *replay, const char *name)
{
    Troupe__ReplayTablesRequest request = TROUPE__REPLAY_TABLES_REQUEST__INIT;
    Troupe__ReplayTablesResponse *reply;
    char *options = NULL;
    call_ok(replay, "Tables", &request, &reply);
    for (size_t i = 0; i < reply->n_tables; ++i)
        if (strcmp(reply->tables[i]->name, name) == 0)
            options = xstrdup(reply->tables[i]->options);
    troupe__replay_tables_response__free_unpacked(reply, NULL);
    return options;
}

static void assert_options(const struct replay *replay, const char *name, const char *part)
{
    char *options = options_of(replay, name);
    assert_non_null(options);
    if (!strstr(options, part))
        print_error("expected '%s' in '%s'\n", part, options);
    assert_non_null(strstr(options, part));
    free(options);
}

static void a_created_table_serves_at_once_and_survives_a_crash(void **state)
{
    struct replay *replay = *state;
    uint64_t before[2], after[2];
    OPEN("name=t");
    state_id(replay, before);
    assert_int_equal(create_table(replay, "name=new sampler=fifo max_size=7"), TRP_OK);
    state_id(replay, after);
    assert_memory_not_equal(before, after, sizeof before);
    insert_items(replay, "new", 1, 9);
    assert_int_equal(sample_one(replay, "new").key, 3);
    crash(replay, NULL);
    OPEN("name=t"); /* nobody has to name it */
    assert_int_equal(table_state(replay, "new").size, 7);
    assert_int_equal(table_state(replay, "new").inserts, 9);
    assert_int_equal(sample_one(replay, "new").key, 3);
    assert_options(replay, "new", "max_size=7");
}

static void a_dropped_table_ends_its_streams_and_no_others(void **state)
{
    struct replay *replay = *state;
    const char *line = "name=gone limiter=queue(1) max_times_sampled=1";
    OPEN("name=t", line, "name=third");
    insert_items(replay, "gone", 1, 1);
    insert_items(replay, "t", 1, 1);
    trp_stream *held = open_stream(replay, "InsertStream");
    send_simple(held, 2, "gone", 1, 2); /* the queue is full */
    trp_stream *other = open_stream(replay, "InsertStream");
    assert_int_equal(drop_table(replay, "gone", true), TRP_FAILED_PRECONDITION);
    assert_says("not empty");
    assert_int_equal(reset_table(replay, "gone"), TRP_OK); /* lets the held one in */
    assert_confirmed(held, (const uint64_t[]){2}, 1);
    send_simple(held, 3, "gone", 1, 3);
    trp_stream *waiting = open_stream(replay, "SampleStream");
    send_sample_request(waiting, "third", 1, -1);
    assert_int_equal(drop_table(replay, "gone", false), TRP_OK);
    assert_ends(held, TRP_NOT_FOUND, "Priority table gone was not found");
    assert_int_equal(drop_table(replay, "third", true), TRP_OK);
    assert_ends(waiting, TRP_NOT_FOUND, "Priority table third was not found");
    uint64_t key = 5;
    send_simple(other, key, "t", 1, 50);
    assert_confirmed(other, &key, 1);
    send_simple(other, 6, "gone", 1, 60);
    assert_ends(other, TRP_NOT_FOUND, "Priority table gone was not found");
    assert_int_equal(drop_table(replay, "gone", false), TRP_NOT_FOUND);
    crash(replay, NULL);
    OPEN("name=t");
    assert_int_equal(table_state(replay, "t").size, 2);
}

static void a_table_dropped_while_it_is_sampled_ends_the_stream(void **state)
{
    struct replay *replay = *state;
    OPEN("name=t", "name=big max_times_sampled=1");
    trp_stream *inserts = open_stream(replay, "InsertStream");
    struct built *built = built_create(2 << 20);
    for (uint64_t key = 1; key <= 40; ++key) {
        add_chunk(built, (struct chunk_spec){.key = key, .bytes = 1 << 20});
        add_simple_item(built, key, "big", 1, key);
        send_built(inserts, built);
        assert_confirmed(inserts, &key, 1);
    }
    trp_stream *samples = open_stream(replay, "SampleStream");
    send_sample_request(samples, "big", 40, -1);
    trp_message *message = NULL;
    assert_int_equal(trp_stream_receive(samples, &message, WAIT_MS), TRP_OK);
    assert_int_equal(drop_table(replay, "big", false), TRP_OK);
    trp_status status = TRP_OK;
    while (status == TRP_OK) { /* what was drawn comes still */
        trp_message_destroy(message);
        message = NULL;
        status = trp_stream_receive(samples, &message, WAIT_MS);
    }
    assert_int_equal(status, TRP_NOT_FOUND);
    assert_says("Priority table big was not found");
    trp_stream_destroy(samples);
    trp_stream_destroy(inserts);
    built_destroy(built);
    insert_items(replay, "t", 1, 1);
}

static void a_new_table_inherits_nothing_from_a_dropped_one(void **state)
{
    struct replay *replay = *state;
    OPEN("name=t", "name=a sampler=fifo");
    insert_items(replay, "a", 1, 5);
    sample_one(replay, "a");
    assert_int_equal(drop_table(replay, "a", false), TRP_OK);
    assert_int_equal(create_table(replay, "name=a sampler=lifo"), TRP_OK);
    crash(replay, NULL);
    OPEN("name=t");
    struct table_state empty = table_state(replay, "a");
    assert_int_equal(empty.size, 0);
    assert_int_equal(empty.inserts, 0);
    assert_int_equal(empty.samples, 0);
    assert_int_equal(empty.unique, 0);
    insert_items(replay, "a", 1, 2);
    assert_int_equal(sample_one(replay, "a").key, 2);
}

static void tables_that_cannot_be_are_refused(void **state)
{
    static const struct {
        const char *line;
        trp_status status;
        const char *text;
    } rows[] = {
        {"name=t", TRP_ALREADY_EXISTS, "table t exists"},
        {"sampler=fifo", TRP_INVALID_ARGUMENT, "name=... is missing"},
        {"name=u sampler=best", TRP_INVALID_ARGUMENT, "sampler=best"},
        {"name=u signature=/etc/passwd", TRP_INVALID_ARGUMENT, "is not read by the server"},
        {"name=u max_size=0", TRP_INVALID_ARGUMENT, "max_size"},
    };
    struct replay *replay = *state;
    OPEN("name=t");
    for (size_t i = 0; i < sizeof rows / sizeof *rows; ++i) {
        assert_int_equal(create_table(replay, rows[i].line), rows[i].status);
        assert_says(rows[i].text);
    }
}

/* ---- alter ------------------------------------------------------------------------------- */

static void a_table_shrinks_only_when_it_may(void **state)
{
    struct replay *replay = *state;
    Troupe__ReplayAlterTableResponse *reply;
    open_six(replay, "name=t sampler=fifo");
    assert_int_equal(alter_table(replay, "name=t max_size=4", false, false, NULL),
                     TRP_FAILED_PRECONDITION);
    assert_says("would remove 2 of them");
    assert_int_equal(alter_table(replay, "name=t max_size=4", true, true, &reply), TRP_OK);
    assert_int_equal(reply->removed, 2);
    assert_int_equal(reply->n_changes, 1);
    assert_string_equal(reply->changes[0], "max_size: 1000000 -> 4");
    troupe__replay_alter_table_response__free_unpacked(reply, NULL);
    assert_int_equal(table_state(replay, "t").size, 6); /* it was a dry run */
    assert_int_equal(alter_table(replay, "name=t max_size=4", true, false, &reply), TRP_OK);
    assert_int_equal(reply->removed, 2);
    troupe__replay_alter_table_response__free_unpacked(reply, NULL);
    assert_keys(items(replay, ORDER(OLDEST), 0, 0, NULL), KEYS(3, 4, 5, 6));
    assert_int_equal(alter_table(replay, "name=u max_size=4", true, false, NULL), TRP_NOT_FOUND);
    assert_int_equal(alter_table(replay, "max_size=4", true, false, NULL), TRP_INVALID_ARGUMENT);
}

static void what_a_lower_max_times_sampled_uses_up_goes(void **state)
{
    static const char *const half = "name=t max_times_sampled=2";
    struct replay *replay = *state;
    Troupe__ReplayAlterTableResponse *reply;
    open_six(replay, "name=t sampler=fifo max_times_sampled=5");
    for (int i = 0; i < 3; ++i) /* of key 1: it would never come to 2 again */
        sample_one(replay, "t");
    assert_int_equal(alter_table(replay, half, false, false, NULL), TRP_FAILED_PRECONDITION);
    assert_says("1 item that came to max_times_sampled=2 already");
    assert_int_equal(alter_table(replay, half, true, true, &reply), TRP_OK);
    assert_int_equal(reply->removed, 1);
    troupe__replay_alter_table_response__free_unpacked(reply, NULL);
    assert_int_equal(alter_table(replay, half, true, false, &reply), TRP_OK);
    assert_int_equal(reply->removed, 1);
    troupe__replay_alter_table_response__free_unpacked(reply, NULL);
    assert_keys(items(replay, ORDER(OLDEST), 0, 0, NULL), KEYS(2, 3, 4, 5, 6));
    sample_one(replay, "t");
    assert_int_equal(sample_one(replay, "t").key, 2);
    assert_int_equal(sample_one(replay, "t").key, 3);
    assert_int_equal(alter_table(replay, "name=t max_times_sampled=3", false, false, NULL), TRP_OK);
    crash(replay, NULL);
    OPEN("name=t sampler=fifo max_times_sampled=5");
    assert_keys(items(replay, ORDER(OLDEST), 0, 0, NULL), KEYS(3, 4, 5, 6));
}

static void sampler_and_remover_change_with_a_restart_only(void **state)
{
    struct replay *replay = *state;
    open_six(replay, "name=t sampler=fifo");
    assert_int_equal(alter_table(replay, "name=t sampler=lifo", false, false, NULL),
                     TRP_FAILED_PRECONDITION);
    assert_says("table t: sampler and remover do not change");
    assert_int_equal(alter_table(replay, "name=t remover=min_heap", false, true, NULL),
                     TRP_FAILED_PRECONDITION);
    assert_int_equal(sample_one(replay, "t").key, 1);
    crash(replay, NULL);
    OPEN("name=t sampler=lifo remover=min_heap");
    assert_int_equal(sample_one(replay, "t").key, 6);
    assert_int_equal(alter_table(replay, "name=t max_size=4", true, false, NULL), TRP_OK);
    assert_keys(items(replay, ORDER(OLDEST), 0, 0, NULL), KEYS(1, 3, 4, 5));
}

static void assert_streams(const struct replay *replay, int64_t expected)
{
    Troupe__ReplayTablesRequest request = TROUPE__REPLAY_TABLES_REQUEST__INIT;
    Troupe__ReplayTablesResponse *reply;
    call_ok(replay, "Tables", &request, &reply);
    assert_int_equal(reply->streams, expected);
    troupe__replay_tables_response__free_unpacked(reply, NULL);
}

static void open_streams_are_counted(void **state)
{
    struct replay *replay = *state;
    OPEN("name=t");
    assert_streams(replay, 0);
    trp_stream *one = open_stream(replay, "InsertStream");
    trp_stream *other = open_stream(replay, "SampleStream");
    assert_streams(replay, 2);
    trp_stream_destroy(one);
    assert_streams(replay, 1);
    trp_stream_destroy(other);
}

static void sign_table(const struct replay *replay, trp_tensor_spec spec)
{
    Troupe__ReplayAlterTableRequest request = TROUPE__REPLAY_ALTER_TABLE_REQUEST__INIT;
    trp_bytes signature;
    assert_int_equal(trp_signature_encode(&spec, 1, &signature), TRP_OK);
    request.options = (char *)"name=t";
    request.has_signature = true;
    request.signature = (ProtobufCBinaryData){signature.size, (uint8_t *)signature.data};
    call_ok(replay, "AlterTable", &request, NULL);
    free((uint8_t *)signature.data);
}

static void a_writer_follows_a_signature_that_changes(void **state)
{
    struct replay *replay = *state;
    trp_tensor_spec column = {.name = "x", .dtype = TRP_INT64};
    const trp_item_column newest = {.column = 0, .length = 1, .squeeze = true};
    int64_t value = 5;
    trp_writer *writer;
    OPEN("name=t");
    sign_table(replay, (trp_tensor_spec){.name = "x", .dtype = TRP_FLOAT32});
    assert_int_equal(
        trp_writer_create(&writer, replay->channel,
                          &(trp_writer_options){.columns = &column, .column_count = 1}),
        TRP_OK);
    assert_int_equal(trp_writer_append(writer, (const void *[]){&value}), TRP_OK);
    for (int i = 0; i < 2; ++i)
        assert_int_equal(trp_writer_create_item(writer, "t", 1, &newest, 1, WAIT_MS, NULL),
                         TRP_INVALID_ARGUMENT);
    sign_table(replay, column);
    assert_int_equal(trp_writer_create_item(writer, "t", 1, &newest, 1, WAIT_MS, NULL), TRP_OK);
    assert_int_equal(trp_writer_flush(writer, 0, WAIT_MS), TRP_OK);
    trp_writer_destroy(writer);
}

/* A priority that the new sampler cannot have counts as 0 for it, also while others are drawn. */
static void priorities_of_another_sampler_poison_no_draw(void **state)
{
    struct replay *replay = *state;
    OPEN("name=t sampler=max_heap");
    insert_items(replay, "t", 1, 4);
    assert_int_equal(mutate_key(replay, "t", 3, true, -5, false), TRP_OK);
    assert_int_equal(mutate_key(replay, "t", 4, true, 1.0 / 0.0, false), TRP_OK);
    crash(replay, NULL);
    OPEN("name=t sampler=prioritized(1) replacement=no");
    for (int round = 0; round < 20; ++round) {
        uint64_t seen = 0;
        trp_stream *stream = open_stream(replay, "SampleStream");
        send_sample_request(stream, "t", 4, -1);
        struct sampled samples[4];
        receive_samples(stream, samples, 4);
        for (int i = 0; i < 4; ++i)
            seen |= UINT64_C(1) << samples[i].key;
        trp_stream_destroy(stream);
        assert_int_equal(seen, 0x1e);
        assert_true(sample_one(replay, "t").key <= 2);
    }
}

static void what_an_alteration_removed_and_is_sent_again_stays_away(void **state)
{
    struct replay *replay = *state;
    OPEN("name=t");
    insert_items(replay, "t", 1, 5);
    assert_int_equal(mutate_key(replay, "t", 5, false, 0, true), TRP_OK);
    replay_close(replay);
    OPEN("name=t");
    assert_int_equal(alter_table(replay, "name=t max_size=2", true, false, NULL), TRP_OK);
    insert_items(replay, "t", 1, 2);
    insert_items(replay, "t", 5, 1);
    assert_keys(items(replay, ORDER(OLDEST), 0, 0, NULL), KEYS(3, 4));
    assert_int_equal(table_state(replay, "t").inserts, 5);
}

static void an_altered_limiter_lets_those_in_who_wait(void **state)
{
    struct replay *replay = *state;
    uint64_t key = 2;
    OPEN("name=t limiter=queue(1)");
    insert_items(replay, "t", 1, 1);
    trp_stream *stream = open_stream(replay, "InsertStream");
    send_simple(stream, key, "t", 1, 20);
    assert_int_equal(alter_table(replay, "name=t limiter=queue(5)", false, false, NULL), TRP_OK);
    assert_confirmed(stream, &key, 1);
    trp_stream_destroy(stream);
}

static void an_alteration_outlives_a_restart_until_the_options_change(void **state)
{
    struct replay *replay = *state;
    OPEN("name=t max_size=100");
    assert_int_equal(alter_table(replay, "name=t max_size=50", false, false, NULL), TRP_OK);
    crash(replay, NULL);
    OPEN("name=t max_size=100"); /* says what it said before */
    assert_options(replay, "t", "max_size=50");
    replay_close(replay);
    OPEN("name=t max_size=200"); /* a new word */
    assert_options(replay, "t", "max_size=200");
    replay_close(replay);
    OPEN("name=t max_size=100"); /* and another one */
    assert_options(replay, "t", "max_size=100");
}

/* ---- files ------------------------------------------------------------------------------- */

static void a_stopped_server_answers_too_but_changes_nothing(void **state)
{
    struct replay *replay = *state;
    trp_replay_files *files;
    Troupe__ReplayFetchRequest fetch_request = TROUPE__REPLAY_FETCH_REQUEST__INIT;
    Troupe__ReplayFetchResponse *fetched;
    Troupe__ReplayDropTableRequest drop = TROUPE__REPLAY_DROP_TABLE_REQUEST__INIT;
    open_six(replay, "name=t");
    replay_close(replay);
    assert_int_equal(trp_replay_files_open(&files, replay->dir), TRP_OK);
    ProtobufCService *service = trp_replay_files_service(files);
    fetch_request.table = drop.table = "t";
    assert_int_equal(trp_call(service, "Fetch", &fetch_request.base, (void *)&fetched, NULL),
                     TRP_OK);
    assert_true(fetched->samples.len > 0);
    troupe__replay_fetch_response__free_unpacked(fetched, NULL);
    assert_int_equal(trp_call(service, "DropTable", &drop.base, NULL, NULL),
                     TRP_FAILED_PRECONDITION);
    assert_says("start one");
    trp_replay_files_close(files);
}

static void questions_without_an_answer_say_why(void **state)
{
    struct replay *replay = *state;
    Troupe__ReplayItemsRequest request = TROUPE__REPLAY_ITEMS_REQUEST__INIT;
    OPEN("name=t");
    request.table = "nope";
    assert_int_equal(call(replay, "Items", &request, NULL), TRP_NOT_FOUND);
    request.table = "t";
    request.offset = 1 << 20;
    assert_int_equal(call(replay, "Items", &request, NULL), TRP_INVALID_ARGUMENT);
    request.offset = 0;
    request.order = (Troupe__ReplayOrder)99;
    assert_int_equal(call(replay, "Items", &request, NULL), TRP_INVALID_ARGUMENT);
    Troupe__ReplayFetchRequest fetch_request = TROUPE__REPLAY_FETCH_REQUEST__INIT;
    fetch_request.table = "nope";
    assert_int_equal(call(replay, "Fetch", &fetch_request, NULL), TRP_NOT_FOUND);
}

/* Signatures of 1 MB in a store of 16 MB: of what is refused nothing is seen, then or later. */
static void a_table_that_has_no_room_changes_nothing(void **state)
{
    struct replay *replay = *state;
    /* A TensorSpec that has a long field that nobody knows. */
    static uint8_t signature[1000011] = {0x8a, 2,    0xc6, 0x84, 0x3d, 0x18,
                                         1,    0x7a, 0xc0, 0x84, 0x3d};
    trp_table_options *table;
    assert_int_equal(trp_table_options_parse("name=t max_size=100", &table), TRP_OK);
    trp_replay_server_options options = {
        .dir = replay->dir, .tables = table, .table_count = 1, .max_bytes = 16 << 20};
    assert_int_equal(trp_replay_server_create(&replay->server, &options), TRP_OK);
    replay->channel = trp_channel_create_local(trp_replay_server_rpc(replay->server));
    trp_table_options_destroy(table);

    Troupe__ReplayCreateTableRequest create = TROUPE__REPLAY_CREATE_TABLE_REQUEST__INIT;
    create.signature = (ProtobufCBinaryData){sizeof signature, signature};
    trp_status status = TRP_OK;
    size_t count = 0;
    for (; status == TRP_OK && count < 16; count += status == TRP_OK) {
        create.options = xasprintf("name=new%zu", count);
        status = call(replay, "CreateTable", &create, NULL);
        free(create.options);
    }
    assert_says("no room for a table");
    assert_int_equal(status, TRP_RESOURCE_EXHAUSTED);
    Troupe__ReplayTablesRequest request = TROUPE__REPLAY_TABLES_REQUEST__INIT;
    Troupe__ReplayTablesResponse *tables;
    call_ok(replay, "Tables", &request, &tables);
    assert_int_equal(tables->n_tables, count + 1);
    troupe__replay_tables_response__free_unpacked(tables, NULL);
    Troupe__ReplayAlterTableRequest alter = TROUPE__REPLAY_ALTER_TABLE_REQUEST__INIT;
    alter.options = "name=t max_size=7";
    alter.has_signature = true;
    alter.signature = create.signature;
    assert_int_equal(call(replay, "AlterTable", &alter, NULL), TRP_RESOURCE_EXHAUSTED);
    insert_items(replay, "t", 1, 20);
    assert_int_equal(table_state(replay, "t").size, 20); /* not 7 */
    crash(replay, NULL);
    OPEN("name=t max_size=100"); /* else: FAILED_PRECONDITION, a stored table is missing */
    assert_int_equal(table_state(replay, "t").size, 20);
    assert_int_equal(create_table(replay, "name=new"), TRP_OK);
}

static void signatures_of_all_tables_have_a_bound(void **state)
{
    enum { BYTES = 1000000 };
    struct replay *replay = *state;
    static uint8_t signature[BYTES + 11] = {0x8a, 2,    0xc6, 0x84, 0x3d, 0x18,
                                            1,    0x7a, 0xc0, 0x84, 0x3d};
    OPEN("name=t");
    Troupe__ReplayCreateTableRequest create = TROUPE__REPLAY_CREATE_TABLE_REQUEST__INIT;
    create.signature = (ProtobufCBinaryData){sizeof signature, signature};
    trp_status status = TRP_OK;
    for (size_t count = 0; status == TRP_OK && count <= REPLAY_SIGNATURES_BYTES_MAX / BYTES;
         count++) {
        create.options = xasprintf("name=new%zu", count);
        status = call(replay, "CreateTable", &create, NULL);
        free(create.options);
    }
    assert_says("those of all tables");
    assert_int_equal(status, TRP_RESOURCE_EXHAUSTED);
    Troupe__ReplayAlterTableRequest alter = TROUPE__REPLAY_ALTER_TABLE_REQUEST__INIT;
    alter.options = "name=t max_size=7";
    assert_int_equal(call(replay, "AlterTable", &alter, NULL), TRP_OK);
    alter.has_signature = true;
    alter.signature = create.signature;
    assert_int_equal(call(replay, "AlterTable", &alter, NULL), TRP_RESOURCE_EXHAUSTED);
    alter.options = "name=new0";
    assert_int_equal(call(replay, "AlterTable", &alter, NULL), TRP_OK); /* it has as many */
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, replay_setup, replay_teardown)
    const struct CMUnitTest tests[] = {
        TEST(items_come_in_the_order_asked_for),
        TEST(items_are_counted_by_the_filter),
        TEST(items_are_found_by_key),
        TEST(items_of_a_large_table_are_walked_in_slices),
        TEST(a_created_table_serves_at_once_and_survives_a_crash),
        TEST(a_dropped_table_ends_its_streams_and_no_others),
        TEST(signatures_of_all_tables_have_a_bound),
        TEST(a_table_that_has_no_room_changes_nothing),
        TEST(a_table_dropped_while_it_is_sampled_ends_the_stream),
        TEST(a_new_table_inherits_nothing_from_a_dropped_one),
        TEST(tables_that_cannot_be_are_refused),
        TEST(a_table_shrinks_only_when_it_may),
        TEST(what_a_lower_max_times_sampled_uses_up_goes),
        TEST(sampler_and_remover_change_with_a_restart_only),
        TEST(open_streams_are_counted),
        TEST(a_writer_follows_a_signature_that_changes),
        TEST(priorities_of_another_sampler_poison_no_draw),
        TEST(what_an_alteration_removed_and_is_sent_again_stays_away),
        TEST(an_altered_limiter_lets_those_in_who_wait),
        TEST(an_alteration_outlives_a_restart_until_the_options_change),
        TEST(a_stopped_server_answers_too_but_changes_nothing),
        TEST(questions_without_an_answer_say_why),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

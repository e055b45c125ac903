/* `troupe replay` against a server that lies: what it says reaches no terminal as it is, and what
 * it leaves out or sizes wrongly is a message, not a crash. */
#include "cli_tools.h"

#include <troupe/rpc.h>
#include "core/thread.h"
#include "replay.pb-c.h"

typedef Troupe__Replay_Service replay_service;

/* Answers with what a test put here; its own thread reads it while `troupe` runs. */
struct liar {
    replay_service base;
    struct mutex mutex; /* of what it answers */
    Troupe__ReplayTablesResponse *tables;
    Troupe__ReplayItemsResponse items;
    Troupe__ReplayFetchResponse fetch;
    void (*fetch_step)(Troupe__ReplayFetchResponse *fetch); /* before each answer, or NULL */
    trp_bytes sample;                                       /* what a SampleStream gives */
};

/* Of a table that is as it should be, apart from its words. */
struct answer {
    Troupe__ReplayTablesResponse tables;
    Troupe__ReplayStore store;
    Troupe__ReplayTable table, *all[1];
    Troupe__ReplayLimiter limiter;
    Troupe__ReplayWaiter waiter, *waiters[1];
    char *columns[1];
};

struct stage {
    struct desk *desk;
    struct liar liar;
    trp_server *server;
    const char *address;
    struct answer answer; /* outlives the test: the server has it until it ends */
};

#define ESCAPES "\033]0;title\a\033[31m\302\233\342\200\256\177"
#define ESCAPED "\\x1b]0;title\\x07\\x1b[31m\\u{9b}\\u{202e}\\x7f"

/* What was put there is seen by the server's threads, and the other way round. */
static void liar_agree(struct liar *liar)
{
    mutex_lock(&liar->mutex);
    mutex_unlock(&liar->mutex);
}

#define assert_lied(stage, status, ...)                                                            \
    do {                                                                                           \
        liar_agree(&(stage)->liar);                                                                \
        assert_troupe((stage)->desk, status, __VA_ARGS__);                                         \
        liar_agree(&(stage)->liar);                                                                \
    } while (0)

static void on_tables(replay_service *service, const Troupe__ReplayTablesRequest *in,
                      Troupe__ReplayTablesResponse_Closure done, void *data)
{
    (void)in;
    struct liar *liar = (struct liar *)service;
    mutex_lock(&liar->mutex);
    done(liar->tables, data);
    mutex_unlock(&liar->mutex);
}

static void on_items(replay_service *service, const Troupe__ReplayItemsRequest *in,
                     Troupe__ReplayItemsResponse_Closure done, void *data)
{
    (void)in;
    struct liar *liar = (struct liar *)service;
    mutex_lock(&liar->mutex);
    done(&liar->items, data);
    mutex_unlock(&liar->mutex);
}

static void on_fetch(replay_service *service, const Troupe__ReplayFetchRequest *in,
                     Troupe__ReplayFetchResponse_Closure done, void *data)
{
    (void)in;
    struct liar *liar = (struct liar *)service;
    mutex_lock(&liar->mutex);
    if (liar->fetch_step)
        liar->fetch_step(&liar->fetch);
    done(&liar->fetch, data);
    mutex_unlock(&liar->mutex);
}

static void on_drop_table(replay_service *service, const Troupe__ReplayDropTableRequest *in,
                          Troupe__ReplayDone_Closure done, void *data)
{
    (void)service;
    (void)in;
    trp_fail(TRP_FAILED_PRECONDITION, "no: " ESCAPES);
    done(NULL, data);
}

static void on_sample_opened(void *service, trp_server_call *call)
{
    (void)service;
    trp_server_call_read(call);
}

static void on_sample(void *service, trp_server_call *call, trp_message *message)
{
    struct liar *liar = service;
    liar_agree(liar);
    trp_bytes bytes = liar->sample;
    trp_message_destroy(message);
    message = trp_message_create(bytes.size);
    memcpy(trp_message_data(message), bytes.data, bytes.size);
    trp_server_call_send(call, message);
    trp_server_call_read(call);
}

static void on_sample_half_closed(void *service, trp_server_call *call)
{
    (void)service;
    trp_server_call_finish(call, TRP_OK, NULL);
}

static void on_sample_closed(void *service, trp_server_call *call)
{
    (void)service;
    (void)call;
}

static const trp_raw_method sample_method = {.path = "/deepmind.reverb.ReverbService/SampleStream",
                                             .opened = on_sample_opened,
                                             .received = on_sample,
                                             .half_closed = on_sample_half_closed,
                                             .closed = on_sample_closed};

static int stage_setup(void **state)
{
    struct stage *stage = xcalloc(1, sizeof *stage);
    desk_setup((void **)&stage->desk);
    stage->liar.base = (replay_service){.base = TROUPE__REPLAY__BASE_INIT,
                                        .tables = on_tables,
                                        .items = on_items,
                                        .fetch = on_fetch,
                                        .drop_table = on_drop_table};
    mutex_init(&stage->liar.mutex);
    troupe__replay_items_response__init(&stage->liar.items);
    troupe__replay_fetch_response__init(&stage->liar.fetch);
    assert_int_equal(trp_server_create(&stage->server, NULL), TRP_OK);
    assert_int_equal(trp_server_add(stage->server, &stage->liar.base.base, NULL), TRP_OK);
    assert_int_equal(trp_server_add_raw(stage->server, &sample_method, 1, &stage->liar, NULL),
                     TRP_OK);
    assert_int_equal(trp_server_start(stage->server), TRP_OK);
    stage->address = trp_server_address(stage->server);
    *state = stage;
    return 0;
}

static int stage_teardown(void **state)
{
    struct stage *stage = *state;
    void *desk = stage->desk;
    trp_server_destroy(stage->server);
    mutex_cleanup(&stage->liar.mutex);
    desk_teardown(&desk);
    free(stage);
    return 0;
}

/* ---- a table that is as it should be, apart from its words ---------------------------------- */

static void answer_fill(struct stage *stage, const char *word)
{
    struct answer *answer = &stage->answer;
    char *text = (char *)(uintptr_t)word;
    troupe__replay_tables_response__init(&answer->tables);
    troupe__replay_store__init(&answer->store);
    troupe__replay_table__init(&answer->table);
    troupe__replay_limiter__init(&answer->limiter);
    troupe__replay_waiter__init(&answer->waiter);
    answer->store.dir = answer->tables.version = answer->table.name = text;
    answer->table.options = answer->table.blocked = answer->table.warning = text;
    answer->waiter.peer = answer->columns[0] = text;
    answer->table.limiter = &answer->limiter;
    answer->waiters[0] = &answer->waiter;
    answer->table.waiters = answer->waiters;
    answer->table.n_waiters = 1;
    answer->table.columns = answer->columns;
    answer->table.n_columns = 1;
    answer->all[0] = &answer->table;
    answer->tables.tables = answer->all;
    answer->tables.n_tables = 1;
    answer->tables.store = &answer->store;
    answer->tables.pid = 1;
    stage->liar.tables = &answer->tables;
}

/* Printable ASCII, newlines, and the tabs of JSON. */
static void assert_clean(struct desk *desk, const char *name)
{
    char *text = scene_read(&desk->at, name);
    for (const char *at = text; *at; at++)
        if (*at != '\n' && *at != '\t' && (*at < ' ' || *at > '~'))
            fail_msg("byte %02x in '%s'", (unsigned char)*at, text);
    free(text);
}

static void what_a_server_says_is_escaped(void **state)
{
    struct stage *stage = *state;
    answer_fill(stage, "x" ESCAPES "y");
    static const char *const commands[] = {"ls %s",         "ls %s --names",   "info %s",
                                           "ls %s -o json", "info %s -o json", "top %s -n1 -d0.01"};
    for (size_t i = 0; i < sizeof commands / sizeof *commands; i++) {
        char *line = xasprintf(commands[i], stage->address);
        assert_lied(stage, 0, "replay %s", line);
        assert_file_contains(&stage->desk->at, "out",
                             strstr(line, "json") ? "x\\u001b]0;title\\u0007\\u001b[31m\\u009b"
                                                    "\\u202e\\u007fy"
                                                  : "x" ESCAPED "y");
        assert_clean(stage->desk, "out");
        free(line);
    }
    assert_lied(stage, 3, "replay info %s nope", stage->address);
    assert_one_error(stage->desk, "it has: x" ESCAPED "y");
    assert_clean(stage->desk, "err");
}

static void what_was_typed_is_echoed_escaped(void **state)
{
    struct stage *stage = *state;
    answer_fill(stage, "t");
    const struct {
        const char *line;
        int status;
    } rows[] = {
        {"replay info %s 'a" ESCAPES "'", 3},
        {"replay ls %s '--output=" ESCAPES "'", 2},
        {"replay ls %s '--" ESCAPES "'", 2},
        {"replay drop %s t --yes", 1}, /* a server's message */
        {"replay dump %s t 'a" ESCAPES "'", 2},
        {"replay load %s 'a" ESCAPES ".jsonl'", 1},
        {"replay create %s 'name=" ESCAPES "'", 2},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        char *line = xasprintf(rows[i].line, stage->address);
        assert_lied(stage, rows[i].status, "%s", line);
        assert_one_error(stage->desk, "\\x1b]0;title\\x07");
        assert_clean(stage->desk, "err");
        free(line);
    }
}

/* ---- what it leaves out ---------------------------------------------------------------------- */

static void an_answer_that_lacks_a_part_is_a_message(void **state)
{
    struct stage *stage = *state;
    answer_fill(stage, "t");
    stage->answer.table.limiter = NULL;
    static const char *const commands[] = {"ls", "info", "top -n1"};
    for (size_t i = 0; i < sizeof commands / sizeof *commands; i++) {
        assert_lied(stage, 1, "replay %s %s", commands[i], stage->address);
        assert_one_error(stage->desk, "the answer to Tables lacks its 'limiter'");
    }
    stage->answer.table.limiter = &stage->answer.limiter;
    stage->answer.tables.store = NULL;
    for (size_t i = 0; i < sizeof commands / sizeof *commands; i++) {
        assert_lied(stage, 1, "replay %s %s", commands[i], stage->address);
        assert_one_error(stage->desk, "the answer to Tables lacks its 'store'");
    }
}

/* ---- what it sizes wrongly ------------------------------------------------------------------- */

static void items_that_are_none_end_a_dump_and_are_no_wrong_usage(void **state)
{
    struct stage *stage = *state;
    Troupe__ReplayFetchResponse *fetch = &stage->liar.fetch;
    Troupe__ReplayItem item = TROUPE__REPLAY_ITEM__INIT, *items[] = {&item};
    Troupe__ReplayFetchRest rest = TROUPE__REPLAY_FETCH_REST__INIT;
    uint8_t bytes[] = "\x0a\x7f\xff\xff";
    answer_fill(stage, "t");
    fetch->samples = (ProtobufCBinaryData){sizeof bytes - 1, bytes};
    fetch->more = 1;
    stage->liar.items.items = items;
    stage->liar.items.n_items = 1;
    assert_lied(stage, 1, "replay dump %s t out.jsonl", stage->address);
    assert_one_error(stage->desk, "what came is malformed: ");
    assert_lied(stage, 1, "replay peek %s t 1", stage->address);
    assert_one_error(stage->desk, "what came is malformed: ");
    stage->liar.sample = (trp_bytes){bytes, sizeof bytes - 1};
    assert_lied(stage, 1, "replay sample %s t", stage->address);
    assert_one_error(stage->desk, "what came is malformed: ");
    for (int parts = 0; parts < 2; parts++) { /* of an item that never comes */
        fetch->samples.len = 0;
        fetch->rest = parts ? &rest : NULL;
        assert_lied(stage, 1, "replay dump %s t out.jsonl", stage->address);
        assert_one_error(stage->desk, "sends the same items again");
    }
}

static void step_nothing(Troupe__ReplayFetchResponse *fetch)
{
    (void)fetch;
}

static void step_part(Troupe__ReplayFetchResponse *fetch)
{
    fetch->rest->bytes++;
}

static void step_chunk(Troupe__ReplayFetchResponse *fetch)
{
    fetch->rest->chunks++;
}

static void step_gone(Troupe__ReplayFetchResponse *fetch)
{
    fetch->gone = true;
    fetch->rest->sequence = ++fetch->last + 1;
}

static void step_page(Troupe__ReplayFetchResponse *fetch)
{
    fetch->rest = NULL;
    fetch->more = true;
    fetch->samples.len = 0;
    fetch->last++;
}

static void a_server_that_always_has_more_to_come_is_left(void **state)
{
    enum { PART = 1 << 20 };
    struct stage *stage = *state;
    Troupe__ReplayFetchResponse *fetch = &stage->liar.fetch;
    Troupe__ReplayItem item = TROUPE__REPLAY_ITEM__INIT, *items[] = {&item};
    Troupe__ReplayFetchRest rest = TROUPE__REPLAY_FETCH_REST__INIT;
    uint8_t *part = xcalloc(1, PART);
    const struct {
        void (*step)(Troupe__ReplayFetchResponse *fetch);
        size_t size;
        const char *error;
    } rows[] = {
        {step_nothing, PART, "sends the same items again"},
        {step_part, 7, "sends a part of 7 bytes, and says that there is more"},
        {step_chunk, PART - 1, "sends a part of 1048575 bytes, and says that there is more"},
        {step_gone, PART, "sends a part of an item that has gone"},
        {step_page, 0, "no item came in 1 s, in many answers"},
    };
    answer_fill(stage, "t");
    stage->liar.items.items = items;
    stage->liar.items.n_items = 1;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        rest = (Troupe__ReplayFetchRest)TROUPE__REPLAY_FETCH_REST__INIT;
        rest.sequence = 1;
        fetch->rest = &rest;
        fetch->samples = (ProtobufCBinaryData){rows[i].size, part};
        stage->liar.fetch_step = rows[i].step;
        assert_lied(stage, 1, "replay peek %s t 1 --timeout 1", stage->address);
        assert_one_error(stage->desk, rows[i].error);
    }
    free(part);
}

#define CASE(name) cmocka_unit_test_setup_teardown(name, stage_setup, stage_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(what_a_server_says_is_escaped),
        CASE(what_was_typed_is_echoed_escaped),
        CASE(an_answer_that_lacks_a_part_is_a_message),
        CASE(items_that_are_none_end_a_dump_and_are_no_wrong_usage),
        CASE(a_server_that_always_has_more_to_come_is_left),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

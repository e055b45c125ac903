/* Parameters that are too many for one reply: a version comes whole, whatever the learner does
 * meanwhile, and what is kept for that is bounded. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <troupe/params.h>
#include <troupe/publisher.h>
#include <troupe/rpc.h>
#include "core/alloc.h"
#include "core/board.h"
#include "core/limits.h"
#include "learner/limits.h"
#include "params.pb-c.h"

enum { LARGE = PARAMS_PART_BYTES / 8 * 13, LARGE_PARTS = 7 }; /* floats: six parts and a half */

struct large {
    Troupe__Params_Service service; /* asks the publisher's; one call at a time */
    trp_server *server;
    trp_channel *channel;
    ProtobufCService *far; /* the service, over a socket */
    trp_publisher *publisher;
    trp_publisher *successor; /* takes over before the rest is asked for; NULL: nobody does */
    float *params;
    uint64_t version; /* newest */
    uint64_t at_rest; /* so many more are published before each rest is asked for */
    bool mixes;       /* the rest is always the newest version's */
    uint32_t calls;
};

static void large_publish(struct large *large)
{
    large->version++;
    for (size_t i = 0; i < LARGE; i++)
        large->params[i] = (float)large->version;
    trp_publisher_publish(large->publisher, large->params, large->version, 0);
}

static void large_pull(Troupe__Params_Service *service, const Troupe__PullRequest *request,
                       Troupe__PullReply_Closure closure, void *closure_data)
{
    struct large *large = (struct large *)service;
    large->calls++;
    for (uint64_t i = 0; request->rest_of > 0 && i < large->at_rest; i++)
        large_publish(large);
    if (request->rest_of > 0 && large->successor) {
        trp_publisher_destroy(large->publisher);
        large->publisher = large->successor;
        large->successor = NULL;
        large->version += 10;
        large_publish(large);
    }
    Troupe__Params_Service *inner =
        (Troupe__Params_Service *)trp_publisher_service(large->publisher);
    Troupe__PullRequest asked = *request;
    if (large->mixes && request->rest_of > 0)
        asked.rest_of = large->version;
    inner->pull(inner, &asked, closure, closure_data);
}

static const Troupe__Params_Service large_service = TROUPE__PARAMS__INIT(large_);

static int setup_large(void **state)
{
    struct large *large = xcalloc(1, sizeof *large);
    large->service = large_service;
    large->publisher = trp_publisher_create(LARGE);
    large->params = xmalloc(LARGE * sizeof(float));
    large_publish(large);
    *state = large;
    if (trp_server_create(&large->server, &(trp_server_options){.threads = 1}) != TRP_OK ||
        trp_server_add(large->server, &large->service.base, NULL) != TRP_OK ||
        trp_server_start(large->server) != TRP_OK ||
        trp_channel_create(&large->channel, trp_server_address(large->server), NULL) != TRP_OK)
        return 1;
    return trp_channel_service(large->channel, trp_params_descriptor(), &large->far) != TRP_OK;
}

static int teardown_large(void **state)
{
    struct large *large = *state;
    trp_channel_destroy(large->channel);
    trp_server_destroy(large->server);
    trp_publisher_destroy(large->publisher);
    free(large->params);
    free(large);
    return 0;
}

/* That does not give up, and is elsewhere. */
static trp_params_client *patient_client(ProtobufCService *service, trp_params_precision precision)
{
    trp_params_client *client;
    const trp_params_client_options options = {
        .service = service, .timeout_ms = 60000, .no_share = true, .precision = precision};
    assert_int_equal(trp_params_client_create(&client, &options), TRP_OK);
    return client;
}

static void assert_all_are(const trp_params_client *client, uint64_t version)
{
    trp_params_state got = trp_params_client_state(client);
    assert_int_equal(got.version, version);
    assert_int_equal(got.count, LARGE);
    for (size_t i = 0; i < LARGE; i++)
        if (got.params[i] != (float)version)
            fail_msg("parameter %zu of version %d is %g", i, (int)version, (double)got.params[i]);
}

static void check_whole(struct large *large, ProtobufCService *service)
{
    trp_params_client *client = patient_client(service, TRP_PARAMS_FLOAT32);
    const trp_moments seen = {3, 1, 2};
    const trp_client_counts other = {
        .name = "actor/1", .statistics = (trp_moments *)&seen, .statistic_count = 1};
    assert_int_equal(trp_publisher_restore(large->publisher, &other), TRP_OK);
    large_publish(large);
    uint64_t version = large->version;
    large->calls = 0;
    large->at_rest = 2;
    assert_int_equal(trp_params_client_pull(client, 0, 0, NULL), TRP_OK);
    assert_int_equal(large->calls, LARGE_PARTS);
    assert_all_are(client, version);
    assert_int_equal(trp_params_client_state(client).statistic_count, 1);
    assert_memory_equal(trp_params_client_state(client).statistics, &seen, sizeof seen);
    large->at_rest = 0;
    assert_int_equal(trp_params_client_pull(client, 0, 0, NULL), TRP_OK);
    assert_all_are(client, large->version);
    assert_int_equal(trp_params_client_state(client).pulls, 2);
    trp_params_client_destroy(client);
}

static void a_version_comes_whole_whatever_is_published_meanwhile(void **state)
{
    struct large *large = *state;
    check_whole(large, &large->service.base);
    check_whole(large, large->far);
}

/* Parts of the one before are still on their way then. */
static void a_learner_that_restarts_amid_a_version_sends_its_own(void **state)
{
    struct large *large = *state;
    ProtobufCService *services[] = {&large->service.base, large->far};
    for (size_t i = 0; i < 2; i++) {
        trp_params_client *client = patient_client(services[i], TRP_PARAMS_FLOAT32);
        uint64_t version = large->version;
        large->successor = trp_publisher_create(LARGE);
        large->calls = 0;
        assert_int_equal(trp_params_client_pull(client, 0, 0, NULL), TRP_OK);
        assert_all_are(client, version + 11);
        if (i == 0)
            assert_int_equal(large->calls, LARGE_PARTS + 1);
        trp_params_client_destroy(client);
    }
}

static void versions_are_never_mixed(void **state)
{
    struct large *large = *state;
    ProtobufCService *services[] = {&large->service.base, large->far};
    large->mixes = true;
    large->at_rest = 1;
    for (size_t i = 0; i < 2; i++) {
        trp_params_client *client = patient_client(services[i], TRP_PARAMS_FLOAT32);
        assert_int_equal(trp_params_client_pull(client, 0, 0, NULL), TRP_DATA_LOSS);
        assert_int_equal(trp_params_client_state(client).version, 0);
        trp_params_client_destroy(client);
    }
}

/* Several on their way, each to its place, in memory that had other versions before. */
static void parts_come_to_their_places(void **state)
{
    struct large *large = *state;
    for (int precision = TRP_PARAMS_FLOAT32; precision <= TRP_PARAMS_BF16; precision++) {
        trp_params_client *client = patient_client(large->far, (trp_params_precision)precision);
        for (int turn = 0; turn < 4; turn++) {
            large->version++;
            for (size_t i = 0; i < LARGE; i++) /* a half has them, too */
                large->params[i] = (float)((i / 1000 + large->version) % 251);
            trp_publisher_publish(large->publisher, large->params, large->version, 0);
            assert_int_equal(trp_params_client_pull(client, 0, 0, NULL), TRP_OK);
            trp_params_state got = trp_params_client_state(client);
            assert_int_equal(got.version, large->version);
            assert_int_equal(got.count, LARGE);
            assert_memory_equal(got.params, large->params, LARGE * sizeof(float));
        }
        trp_params_client_destroy(client);
    }
}

static void a_number_that_is_none_is_found_in_any_part(void **state)
{
    struct large *large = *state;
    static const size_t places[] = {0, LARGE / 2, LARGE - 1};
    for (int precision = TRP_PARAMS_FLOAT32; precision <= TRP_PARAMS_BF16; precision++) {
        trp_params_client *client = patient_client(large->far, (trp_params_precision)precision);
        for (size_t i = 0; i < sizeof places / sizeof *places; i++) {
            large_publish(large);
            assert_int_equal(trp_params_client_pull(client, 0, 0, NULL), TRP_OK);
            uint64_t version = large->version++;
            large->params[places[i]] = NAN;
            trp_publisher_publish(large->publisher, large->params, large->version, 0);
            assert_int_equal(trp_params_client_pull(client, 0, 0, NULL), TRP_OUT_OF_RANGE);
            assert_all_are(client, version);
        }
        trp_params_client_destroy(client);
    }
}

/* ---- versions that are sent from where they lie -----------------------------------------------
 */

static void board_publish(struct board *board, float *numbers, uint64_t version)
{
    numbers[0] = (float)version;
    board_write(board, numbers, version, 0, NULL, 0);
}

static void of_those_that_are_sent_only_so_many_stay(void **state)
{
    (void)state;
    enum { COUNT = 100, TURNS = 30 };
    struct board *board = board_create(COUNT, false);
    float numbers[COUNT] = {0};
    const struct board_version *lent[BOARD_LENT];
    for (uint64_t version = 1; version <= BOARD_LENT + 1; version++) {
        board_publish(board, numbers, version);
        const struct board_version *held = board_hold(board);
        bool lends = board_lend(board, held);
        assert_int_equal(lends, version <= BOARD_LENT);
        if (lends)
            lent[version - 1] = held;
        board_release(board, held);
    }
    assert_true(board_lend(board, lent[0])); /* one that is lent already */
    for (uint64_t version = BOARD_LENT + 2; version < BOARD_LENT + TURNS; version++)
        board_publish(board, numbers, version);
    board_take_back(board, lent[0]);
    board_unref(board); /* they outlive its owner */
    for (size_t i = 0; i < BOARD_LENT; i++) {
        assert_int_equal(lent[i]->version, i + 1);
        assert_true(lent[i]->numbers[0] == (float)(i + 1));
    }
    const struct board_version *newest = board_hold(board);
    board_take_back(board, lent[0]);
    assert_true(board_lend(board, newest)); /* there is room again */
    board_release(board, newest);
    for (size_t i = 1; i < BOARD_LENT; i++)
        board_take_back(board, lent[i]);
    board_take_back(board, newest);
}

/* What a publisher answers: a version, and which bytes of it. */
struct answer {
    uint64_t version, from;
    size_t size;
};

static void note_answer(const Troupe__PullReply *reply, void *data)
{
    *(struct answer *)data = (struct answer){reply->version, reply->params_from, reply->params.len};
}

static struct answer ask_part(struct large *large, uint64_t version, uint64_t of, uint64_t from)
{
    struct answer answer;
    Troupe__PullRequest request = TROUPE__PULL_REQUEST__INIT;
    request.version = version;
    request.rest_of = of;
    request.rest_from = from;
    large_pull(&large->service, &request, note_answer, &answer);
    return answer;
}

static void assert_answer(struct answer answer, uint64_t version, uint64_t from, size_t size)
{
    assert_int_equal(answer.version, version);
    assert_int_equal(answer.from, from);
    assert_int_equal(answer.size, size);
}

static void only_a_few_versions_are_kept_for_slow_readers(void **state)
{
    enum { PART = PARAMS_PART_BYTES, LAST = PART / 2, LAST_FROM = 6 * PART };
    struct large *large = *state;
    assert_answer(ask_part(large, 0, 0, 0), 1, 0, PART);
    large_publish(large);
    assert_answer(ask_part(large, 0, 0, 0), 2, 0, PART);
    large_publish(large); /* 1 and 2 are lent: nobody begins with 3, nor with 4 */
    large_publish(large);
    assert_answer(ask_part(large, 0, 0, 0), 2, 0, PART);
    assert_answer(ask_part(large, 2, 0, 0), 2, 0, 0);
    assert_answer(ask_part(large, 0, 3, PART), 2, 0, PART); /* 3 is gone */
    assert_answer(ask_part(large, 0, 1, PART), 1, PART, PART);
    assert_answer(ask_part(large, 0, 1, LAST_FROM), 1, LAST_FROM, LAST);
    assert_answer(ask_part(large, 0, 1, PART), 4, 0, PART); /* so is 1 now, and 4 may be lent */
    assert_answer(ask_part(large, 0, 2, LAST_FROM), 2, LAST_FROM, LAST); /* of three readers */
    assert_answer(ask_part(large, 0, 2, PART), 2, PART, PART);
    assert_answer(ask_part(large, 0, 2, UINT64_MAX), 4, 0, PART);
}

/* ---- what a publisher would never do ----------------------------------------------------------
 */

struct parts {
    Troupe__Params_Service service;
    size_t bytes;
    uint64_t from, of;
};

static void parts_pull(Troupe__Params_Service *service, const Troupe__PullRequest *request,
                       Troupe__PullReply_Closure closure, void *closure_data)
{
    (void)request;
    const struct parts *parts = (const struct parts *)service;
    uint8_t bytes[64] = {0};
    Troupe__PullReply reply = TROUPE__PULL_REPLY__INIT;
    reply.version = 1;
    reply.params = (ProtobufCBinaryData){.data = bytes, .len = parts->bytes};
    reply.params_from = parts->from;
    reply.params_bytes = parts->of;
    closure(&reply, closure_data);
}

static const Troupe__Params_Service parts_service = TROUPE__PARAMS__INIT(parts_);

static void parts_that_fit_nowhere_are_data_loss(void **state)
{
    (void)state;
    const struct {
        size_t bytes;
        uint64_t from, of;
    } rows[] = {{64, 0, 128}, {64, 64, 128}, {0, 0, 128}, {64, 0, 63}, {64, 0, 60}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct parts parts = {.service = parts_service,
                              .bytes = rows[i].bytes,
                              .from = rows[i].from,
                              .of = rows[i].of};
        trp_params_client *client;
        const trp_params_client_options options = {.service = &parts.service.base, .give_up_ms = 1};
        assert_int_equal(trp_params_client_create(&client, &options), TRP_OK);
        trp_status status = trp_params_client_pull(client, 0, 0, NULL);
        /* The first row is a part, and another first part for its rest: again, until it is late. */
        assert_int_equal(status, i == 0 ? TRP_UNAVAILABLE : TRP_DATA_LOSS);
        assert_int_equal(trp_params_client_state(client).version, 0);
        trp_params_client_destroy(client);
    }
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup_large, teardown_large)
    const struct CMUnitTest tests[] = {
        TEST(a_version_comes_whole_whatever_is_published_meanwhile),
        TEST(a_learner_that_restarts_amid_a_version_sends_its_own),
        TEST(versions_are_never_mixed),
        TEST(parts_come_to_their_places),
        TEST(a_number_that_is_none_is_found_in_any_part),
        cmocka_unit_test(of_those_that_are_sent_only_so_many_stay),
        TEST(only_a_few_versions_are_kept_for_slow_readers),
        cmocka_unit_test(parts_that_fit_nowhere_are_data_loss),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

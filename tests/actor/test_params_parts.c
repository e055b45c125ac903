/* Parameters that are too many for one reply: a version comes whole, whatever the learner does
 * meanwhile, and what is kept for that is bounded. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <troupe/params.h>
#include <troupe/publisher.h>
#include "core/alloc.h"
#include "learner/limits.h"
#include "params.pb-c.h"

enum { LARGE = PARAMS_PART_BYTES / 8 * 5, LARGE_PARTS = 3 }; /* floats: two parts and a half */

struct large {
    Troupe__Params_Service service; /* asks the publisher's */
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
    return 0;
}

static int teardown_large(void **state)
{
    struct large *large = *state;
    trp_publisher_destroy(large->publisher);
    free(large->params);
    free(large);
    return 0;
}

/* That does not give up, and is elsewhere. */
static trp_params_client *patient_client(struct large *large)
{
    trp_params_client *client;
    const trp_params_client_options options = {
        .service = &large->service.base, .timeout_ms = 60000, .no_share = true};
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

static void a_version_comes_whole_whatever_is_published_meanwhile(void **state)
{
    struct large *large = *state;
    trp_params_client *client = patient_client(large);
    const trp_moments seen = {3, 1, 2};
    const trp_client_counts other = {
        .name = "actor/1", .statistics = (trp_moments *)&seen, .statistic_count = 1};
    assert_int_equal(trp_publisher_restore(large->publisher, &other), TRP_OK);
    large_publish(large);
    large->at_rest = 2;
    assert_int_equal(trp_params_client_pull(client, 0, 0, NULL), TRP_OK);
    assert_int_equal(large->calls, LARGE_PARTS);
    assert_all_are(client, 2);
    assert_int_equal(trp_params_client_state(client).statistic_count, 1);
    assert_memory_equal(trp_params_client_state(client).statistics, &seen, sizeof seen);
    large->at_rest = 0;
    assert_int_equal(trp_params_client_pull(client, 0, 0, NULL), TRP_OK);
    assert_all_are(client, large->version);
    assert_int_equal(trp_params_client_state(client).pulls, 2);
    trp_params_client_destroy(client);
}

static void a_learner_that_restarts_amid_a_version_sends_its_own(void **state)
{
    struct large *large = *state;
    trp_params_client *client = patient_client(large);
    large->successor = trp_publisher_create(LARGE);
    assert_int_equal(trp_params_client_pull(client, 0, 0, NULL), TRP_OK);
    assert_all_are(client, 12);
    assert_int_equal(large->calls, LARGE_PARTS + 1);
    trp_params_client_destroy(client);
}

static void versions_are_never_mixed(void **state)
{
    struct large *large = *state;
    trp_params_client *client = patient_client(large);
    large->mixes = true;
    large->at_rest = 1;
    assert_int_equal(trp_params_client_pull(client, 0, 0, NULL), TRP_DATA_LOSS);
    assert_int_equal(trp_params_client_state(client).version, 0);
    trp_params_client_destroy(client);
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
    enum { PART = PARAMS_PART_BYTES, LAST = PART / 2, LAST_FROM = 2 * PART };
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
        TEST(only_a_few_versions_are_kept_for_slow_readers),
        cmocka_unit_test(parts_that_fit_nowhere_are_data_loss),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

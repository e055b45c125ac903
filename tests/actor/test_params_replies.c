/* Replies that no publisher sends: a client refuses them, and takes what comes after. And reports
 * that no client makes: a publisher refuses them, and counts what comes after. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include <troupe/params.h>
#include <troupe/publisher.h>
#include <troupe/rpc.h>
#include "core/alloc.h"
#include "params.pb-c.h"

enum { NAN_HALF = 0x7fc0, ONE_HALF = 0x3f80, MANY = 1 << 20 };

/* Answers each pull with a version of `count` numbers as halves, all of them `half`. */
struct halves_service {
    Troupe__Params_Service service; /* first */
    uint64_t version;
    size_t count;
    uint16_t half;
};

static void halves_pull(Troupe__Params_Service *service, const Troupe__PullRequest *request,
                        Troupe__PullReply_Closure closure, void *closure_data)
{
    (void)request;
    struct halves_service *halves = (struct halves_service *)service;
    uint16_t *numbers = xcalloc(halves->count, sizeof *numbers);
    for (size_t i = 0; i < halves->count; i++)
        numbers[i] = halves->half;
    Troupe__PullReply reply = TROUPE__PULL_REPLY__INIT;
    reply.version = ++halves->version;
    reply.precision = TROUPE__PRECISION__BFLOAT16;
    reply.params = (ProtobufCBinaryData){halves->count * sizeof *numbers, (uint8_t *)numbers};
    closure(&reply, closure_data);
    free(numbers);
}

static const Troupe__Params_Service halves_functions = TROUPE__PARAMS__INIT(halves_);

/* The first one says nothing of how large the parameters are. */
static void a_version_that_was_refused_leaves_no_room_for_a_larger_one(void **state)
{
    (void)state;
    struct halves_service halves = {.service = halves_functions, .count = 1, .half = NAN_HALF};
    trp_params_client *client;
    const trp_params_client_options options = {.service = &halves.service.base,
                                               .precision = TRP_PARAMS_BF16};
    assert_int_equal(trp_params_client_create(&client, &options), TRP_OK);
    assert_int_equal(trp_params_client_pull(client, 0, 0, NULL), TRP_OUT_OF_RANGE);
    halves.count = MANY;
    halves.half = ONE_HALF;
    assert_int_equal(trp_params_client_pull(client, 0, 0, NULL), TRP_OK);
    trp_params_state got = trp_params_client_state(client);
    assert_int_equal(got.count, MANY);
    for (size_t i = 0; i < MANY; i++)
        assert_true(got.params[i] == 1);
    halves.count = 1;
    assert_int_equal(trp_params_client_pull(client, 0, 0, NULL), TRP_DATA_LOSS);
    trp_params_client_destroy(client);
}

/* The sum of all would begin at 0 again. */
static void nobody_reports_more_than_can_be_added_up(void **state)
{
    (void)state;
    trp_publisher *publisher = trp_publisher_create(1);
    ProtobufCService *service = trp_publisher_service(publisher);
    static const struct {
        uint64_t steps, episodes;
        trp_status status;
    } reports[] = {
        {UINT64_MAX, 0, TRP_INVALID_ARGUMENT},
        {7, UINT64_MAX, TRP_INVALID_ARGUMENT},
        {UINT64_C(1) << 46, 0, TRP_INVALID_ARGUMENT},
        {(UINT64_C(1) << 46) - 1, 3, TRP_OK},
    };
    for (size_t i = 0; i < sizeof reports / sizeof *reports; i++) {
        Troupe__PullRequest pull = TROUPE__PULL_REQUEST__INIT;
        pull.client = (char *)(uintptr_t) "actor/0";
        pull.steps = reports[i].steps;
        pull.episodes = reports[i].episodes;
        assert_int_equal(trp_call(service, "Pull", &pull.base, NULL, NULL), reports[i].status);
    }
    trp_client_counts totals = trp_publisher_totals(publisher);
    assert_int_equal(totals.steps, (UINT64_C(1) << 46) - 1);
    assert_int_equal(totals.episodes, 3);
    trp_publisher_destroy(publisher);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_version_that_was_refused_leaves_no_room_for_a_larger_one),
        cmocka_unit_test(nobody_reports_more_than_can_be_added_up),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

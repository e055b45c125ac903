/* Parameters from the publisher to clients, in one process and over a socket: pull if newer, counts
 * that survive restarts, versions that never go back, failures that surface. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include <troupe/actor.h>
#include <troupe/checkpoint.h>
#include <troupe/log.h>
#include "core/alloc.h"
#include "core/clock.h"
#include "core/thread.h"
#include <troupe/publisher.h>
#include "params.pb-c.h"

enum { COUNT = 48 };

struct fixture {
    trp_publisher *publisher;
    trp_server *server;
    trp_channel *channel;
    ProtobufCService *service;
};

static struct fixture *fixture_create(bool remote)
{
    struct fixture *fixture = xcalloc(1, sizeof *fixture);
    fixture->publisher = trp_publisher_create(COUNT);
    assert_int_equal(trp_server_create(&fixture->server, NULL), TRP_OK);
    assert_int_equal(
        trp_server_add(fixture->server, trp_publisher_service(fixture->publisher), NULL), TRP_OK);
    if (remote) {
        assert_int_equal(trp_server_start(fixture->server), TRP_OK);
        assert_int_equal(
            trp_channel_create(&fixture->channel, trp_server_address(fixture->server), NULL),
            TRP_OK);
    } else {
        fixture->channel = trp_channel_create_local(fixture->server);
    }
    assert_int_equal(
        trp_channel_service(fixture->channel, &troupe__params__descriptor, &fixture->service),
        TRP_OK);
    return fixture;
}

static int setup_local(void **state)
{
    *state = fixture_create(false);
    return 0;
}

static int setup_remote(void **state)
{
    *state = fixture_create(true);
    return 0;
}

static int teardown(void **state)
{
    struct fixture *fixture = *state;
    trp_channel_destroy(fixture->channel);
    trp_server_destroy(fixture->server);
    trp_publisher_destroy(fixture->publisher);
    free(fixture);
    return 0;
}

static void publish(struct fixture *fixture, uint64_t version)
{
    float params[COUNT];
    for (size_t i = 0; i < COUNT; i++)
        params[i] = (float)version;
    trp_publisher_publish(fixture->publisher, params, version, 10 * version);
}

static trp_params_client *client_create(ProtobufCService *service, const char *name)
{
    trp_params_client *client;
    assert_int_equal(
        trp_params_client_create(
            &client,
            &(trp_params_client_options){.service = service, .name = name, .give_up_ms = 1}),
        TRP_OK);
    return client;
}

/* ---- pull if newer ------------------------------------------------------------------------- */

static void a_pull_brings_only_what_is_newer(void **state)
{
    struct fixture *fixture = *state;
    trp_params_client *client = client_create(fixture->service, "actor/0");
    bool newer = true;
    assert_int_equal(trp_params_client_pull(client, 0, 0, &newer), TRP_OK);
    assert_false(newer); /* nothing is published */
    assert_int_equal(trp_params_client_state(client).version, 0);

    publish(fixture, 3);
    assert_int_equal(trp_params_client_pull(client, 0, 0, &newer), TRP_OK);
    assert_true(newer);
    trp_params_state got = trp_params_client_state(client);
    assert_int_equal(got.version, 3);
    assert_int_equal(got.count, COUNT);
    assert_int_equal(got.learner_steps, 30);
    for (size_t i = 0; i < COUNT; i++)
        assert_float_equal(got.params[i], 3, 0);

    assert_int_equal(trp_params_client_pull(client, 0, 0, &newer), TRP_OK);
    assert_false(newer);
    assert_ptr_equal(trp_params_client_state(client).params, got.params);
    assert_int_equal(trp_params_client_state(client).fetched, 1);

    publish(fixture, 4);
    assert_int_equal(trp_params_client_pull(client, 0, 0, &newer), TRP_OK);
    assert_true(newer);
    assert_float_equal(trp_params_client_state(client).params[COUNT - 1], 4, 0);
    assert_int_equal(trp_params_client_state(client).pulls, 4);
    trp_params_client_destroy(client);
}

static void waiting_ends_with_the_first_version_or_the_deadline(void **state)
{
    struct fixture *fixture = *state;
    trp_params_client *client = client_create(fixture->service, "actor/0");
    assert_int_equal(trp_params_client_wait(client, 1), TRP_DEADLINE_EXCEEDED);
    publish(fixture, 1);
    assert_int_equal(trp_params_client_wait(client, 10000), TRP_OK);
    assert_int_equal(trp_params_client_state(client).version, 1);
    trp_params_client_destroy(client);
}

static void a_vector_of_a_megabyte_arrives_whole(void **state)
{
    (void)state;
    enum { BIG = 300000 };
    trp_publisher *publisher = trp_publisher_create(BIG);
    float *params = xcalloc(BIG, sizeof *params);
    for (size_t i = 0; i < BIG; i++)
        params[i] = (float)i;
    trp_publisher_publish(publisher, params, 1, 0);
    trp_params_client *client = client_create(trp_publisher_service(publisher), NULL);
    assert_int_equal(trp_params_client_pull(client, 0, 0, NULL), TRP_OK);
    trp_params_state got = trp_params_client_state(client);
    assert_int_equal(got.count, BIG);
    assert_memory_equal(got.params, params, BIG * sizeof *params);
    trp_params_client_destroy(client);
    trp_publisher_destroy(publisher);
    free(params);
}

/* ---- counts -------------------------------------------------------------------------------- */

static void counts_go_on_after_a_client_restarted(void **state)
{
    struct fixture *fixture = *state;
    publish(fixture, 1);
    trp_params_client *first = client_create(fixture->service, "actor/0");
    assert_int_equal(trp_params_client_sync(first, 0, 0, NULL), TRP_OK);
    assert_int_equal(trp_params_client_sync(first, 100, 7, NULL), TRP_OK);
    trp_params_client_destroy(first);

    trp_params_client *second = client_create(fixture->service, "actor/0");
    assert_int_equal(trp_params_client_sync(second, 0, 0, NULL), TRP_OK);
    trp_params_state got = trp_params_client_state(second);
    assert_int_equal(got.base_steps, 100);
    assert_int_equal(got.base_episodes, 7);
    assert_int_equal(trp_params_client_sync(second, 20, 1, NULL), TRP_OK);
    assert_int_equal(trp_params_client_state(second).total_steps, 120);
    assert_int_equal(trp_params_client_state(second).base_steps, 100);
    assert_int_equal(trp_publisher_totals(fixture->publisher).episodes, 8);
    trp_params_client_destroy(second);
}

static void reports_that_are_repeated_or_late_change_nothing(void **state)
{
    struct fixture *fixture = *state;
    publish(fixture, 1);
    trp_params_client *client = client_create(fixture->service, "actor/0");
    const uint64_t reports[] = {0, 50, 50, 30, 60};
    for (size_t i = 0; i < sizeof reports / sizeof *reports; i++)
        assert_int_equal(trp_params_client_sync(client, reports[i], 0, NULL), TRP_OK);
    assert_int_equal(trp_params_client_state(client).total_steps, 60);
    trp_params_client_destroy(client);
}

static void totals_are_of_all_clients_that_have_a_name(void **state)
{
    struct fixture *fixture = *state;
    publish(fixture, 1);
    const char *names[] = {"actor/0", "actor/1", "", NULL};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        trp_params_client *client = client_create(fixture->service, names[i]);
        assert_int_equal(trp_params_client_pull(client, 10, 1, NULL), TRP_OK);
        trp_params_client_destroy(client);
    }
    assert_int_equal(trp_publisher_totals(fixture->publisher).steps, 20);
    assert_int_equal(trp_publisher_totals(fixture->publisher).episodes, 2);
}

static void names_that_cannot_be_saved_are_refused(void **state)
{
    struct fixture *fixture = *state;
    char longest[200];
    memset(longest, 'a', sizeof longest);
    longest[sizeof longest - 1] = '\0';
    const char *names[] = {longest, "actor\n0", "act\x9bor"};
    for (size_t i = 0; i < 3; i++) {
        trp_params_client *client = client_create(fixture->service, names[i]);
        assert_int_equal(trp_params_client_pull(client, 0, 0, NULL), TRP_INVALID_ARGUMENT);
        assert_non_null(strstr(trp_last_error(), "client name"));
        trp_params_client_destroy(client);
    }
    assert_int_equal(trp_publisher_totals(fixture->publisher).steps, 0);
}

static void restored_counts_never_lower_those_that_were_reported(void **state)
{
    struct fixture *fixture = *state;
    trp_client_counts counts = {.name = "actor/0", .steps = 100, .episodes = 3};
    assert_int_equal(trp_publisher_restore(fixture->publisher, &counts), TRP_OK);
    counts.steps = 40;
    assert_int_equal(trp_publisher_restore(fixture->publisher, &counts), TRP_OK);
    assert_int_equal(trp_publisher_totals(fixture->publisher).steps, 100);
}

/* ---- statistics ------------------------------------------------------------------------------ */

static void report_numbers(trp_params_client *client, trp_moments *seen, size_t count, double first)
{
    for (size_t i = 0; i < count; i++)
        trp_moments_add(seen, first + (double)i);
    trp_params_client_report(client, seen, 1);
    assert_int_equal(trp_params_client_sync(client, 0, 0, NULL), TRP_OK);
}

/* One request as anybody could send it. */
static trp_status pull_raw(struct fixture *fixture, const char *name, const double *numbers,
                           size_t count)
{
    Troupe__PullRequest request = TROUPE__PULL_REQUEST__INIT;
    ProtobufCMessage *reply = NULL;
    request.client = (char *)name;
    request.statistics = (double *)numbers;
    request.n_statistics = count;
    trp_status status = trp_call(fixture->service, "Pull", &request.base, &reply,
                                 &(trp_call_options){.timeout_ms = 10000});
    if (reply)
        protobuf_c_message_free_unpacked(reply, NULL);
    return status;
}

/* What the next version is published with. */
static trp_moments published(struct fixture *fixture, uint64_t version)
{
    publish(fixture, version);
    trp_params_client *reader = client_create(fixture->service, NULL);
    assert_int_equal(trp_params_client_pull(reader, 0, 0, NULL), TRP_OK);
    trp_params_state got = trp_params_client_state(reader);
    assert_int_equal(got.version, version);
    assert_true(got.statistic_count <= 1);
    trp_moments sum = got.statistic_count > 0 ? got.statistics[0] : (trp_moments){0};
    trp_params_client_destroy(reader);
    return sum;
}

static void assert_counted(trp_moments got, size_t count)
{
    trp_moments expected = {0};
    for (size_t i = 0; i < count; i++)
        trp_moments_add(&expected, (double)i);
    assert_float_equal(got.count, count, 0);
    assert_float_equal(got.mean, expected.mean, 1e-9);
    assert_float_equal(got.squares, expected.squares, 1e-9 * expected.squares);
}

/* Numbers 0 to 99 by two clients, one of which lives twice; reports are repeated. */
static void statistics_of_all_lives_count_once(void **state)
{
    struct fixture *fixture = *state;
    trp_moments one = {0}, two = {0}, again = {0};
    assert_counted(published(fixture, 1), 0);
    trp_params_client *first = client_create(fixture->service, "actor/0");
    trp_params_client *second = client_create(fixture->service, "actor/1");
    report_numbers(first, &one, 0, 0);
    report_numbers(second, &two, 0, 0);
    report_numbers(first, &one, 30, 0);
    report_numbers(first, &one, 0, 0);
    report_numbers(second, &two, 50, 30);
    assert_counted(published(fixture, 2), 80);
    trp_params_client_destroy(first);
    first = client_create(fixture->service, "actor/0");
    report_numbers(first, &again, 0, 0);
    assert_counted(published(fixture, 3), 80);
    report_numbers(first, &again, 15, 80);
    report_numbers(first, &again, 5, 95);
    report_numbers(second, &two, 0, 0);
    assert_counted(published(fixture, 4), 100);
    trp_params_client_destroy(first);
    trp_params_client_destroy(second);
}

static void a_late_report_of_statistics_changes_nothing(void **state)
{
    struct fixture *fixture = *state;
    static const double early[3] = {2, 0.5, 0.5}, late[3] = {3, 1, 2};
    publish(fixture, 1);
    assert_int_equal(pull_raw(fixture, "actor/0", late, 3), TRP_OK);
    assert_int_equal(pull_raw(fixture, "actor/0", early, 3), TRP_OK);
    assert_counted(published(fixture, 2), 3);
}

static void restored_statistics_are_what_a_client_goes_on_from(void **state)
{
    struct fixture *fixture = *state;
    trp_moments old = {0}, fresh = {0};
    for (size_t i = 0; i < 40; i++)
        trp_moments_add(&old, (double)i);
    trp_client_counts counts = {.name = "actor/0", .statistics = &old, .statistic_count = 1};
    assert_int_equal(trp_publisher_restore(fixture->publisher, &counts), TRP_OK);
    assert_counted(published(fixture, 1), 40);
    trp_params_client *client = client_create(fixture->service, "actor/0");
    report_numbers(client, &fresh, 0, 0);
    report_numbers(client, &fresh, 10, 40);
    assert_counted(published(fixture, 2), 50);
    size_t count;
    trp_client_counts *all = trp_publisher_counts(fixture->publisher, &count);
    assert_int_equal(count, 1);
    assert_counted(all[0].statistics[0], 50);
    trp_publisher_counts_free(all, count);
    trp_params_client_destroy(client);
}

static void statistics_that_are_none_are_refused_by_name(void **state)
{
    struct fixture *fixture = *state;
    static const double good[3] = {2, 1, 1};
    static const double wrong[][3] = {{-2, 1, 1}, {NAN, 1, 1}, {2, INFINITY, 1}, {2, 1, -1}};
    static double many[3 * (TRP_STATISTICS_MAX + 1)];
    publish(fixture, 1);
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        assert_int_equal(pull_raw(fixture, "actor/0", wrong[i], 3), TRP_INVALID_ARGUMENT);
        assert_non_null(strstr(trp_last_error(), "client actor/0: statistic 0 has count "));
    }
    assert_int_equal(pull_raw(fixture, "actor/0", good, 2), TRP_INVALID_ARGUMENT);
    assert_non_null(strstr(trp_last_error(), "client actor/0 reports statistics of 2 numbers"));
    assert_int_equal(pull_raw(fixture, "actor/0", many, 3 * (TRP_STATISTICS_MAX + 1)),
                     TRP_INVALID_ARGUMENT);
    assert_int_equal(pull_raw(fixture, "", good, 3), TRP_OK); /* nobody's */
    assert_float_equal(published(fixture, 2).count, 0, 0);
}

static void actors_that_normalise_different_numbers_are_named_both(void **state)
{
    struct fixture *fixture = *state;
    static const double numbers[6] = {2, 1, 1, 2, 1, 1};
    publish(fixture, 1);
    assert_int_equal(pull_raw(fixture, "actor/0", numbers, 3), TRP_OK);
    assert_int_equal(pull_raw(fixture, "collector/1", numbers, 6), TRP_FAILED_PRECONDITION);
    assert_non_null(strstr(trp_last_error(),
                           "client collector/1 reports statistics of 2 numbers, client actor/0 of "
                           "1: all actors of a learner need the same normalising wrappers"));
    assert_float_equal(published(fixture, 2).count, 2, 0);
}

static void a_stranger_does_not_say_how_many_numbers_are_normalised(void **state)
{
    struct fixture *fixture = *state;
    static const double numbers[6] = {2, 1, 1, 2, 1, 1};
    trp_publisher_expect_statistics(fixture->publisher, 1);
    publish(fixture, 1);
    assert_int_equal(pull_raw(fixture, "stranger", numbers, 6), TRP_FAILED_PRECONDITION);
    assert_non_null(strstr(trp_last_error(), "client stranger reports statistics of 2 numbers, the "
                                             "learner's environment normalises 1"));
    trp_params_client *evaluator = client_create(fixture->service, "");
    assert_int_equal(trp_params_client_pull(evaluator, 0, 0, NULL), TRP_OK);
    assert_int_equal(trp_params_client_state(evaluator).statistic_count, 0); /* nobody had any */
    trp_params_client_destroy(evaluator);
    assert_int_equal(pull_raw(fixture, "actor/0", numbers, 3), TRP_OK);
    assert_float_equal(published(fixture, 2).count, 2, 0);
}

static void clients_together_report_no_more_than_fits(void **state)
{
    struct fixture *fixture = *state;
    enum { CLIENTS = (1 << 22) / TRP_STATISTICS_MAX };
    double *many = xcalloc(3 * (size_t)TRP_STATISTICS_MAX, sizeof *many);
    for (size_t i = 0; i < TRP_STATISTICS_MAX; i++)
        many[3 * i] = 1;
    for (int i = 0; i <= CLIENTS; i++) {
        char name[32];
        snprintf(name, sizeof name, "actor/%d", i);
        assert_int_equal(pull_raw(fixture, name, many, 3 * (size_t)TRP_STATISTICS_MAX),
                         i < CLIENTS ? TRP_OK : TRP_RESOURCE_EXHAUSTED);
    }
    assert_non_null(strstr(trp_last_error(), "client actor/64: statistics of all clients"));
    free(many);
}

/* As many as may be, each twice: who looks each up among all is at it for a minute. */
static void tens_of_thousands_of_clients_are_told_apart(void **state)
{
    enum { CLIENTS = 65536 };
    (void)state;
    trp_publisher *publisher = trp_publisher_create(COUNT);
    char name[32];
    for (uint64_t i = 0; i < 2 * CLIENTS; i++) {
        uint64_t client = i % CLIENTS, life = i / CLIENTS;
        snprintf(name, sizeof name, "actor/%d", (int)client);
        const trp_client_counts counts = {
            .name = name, .steps = client + life, .episodes = client / 2};
        assert_int_equal(trp_publisher_restore(publisher, &counts), TRP_OK);
    }
    const uint64_t sum = (uint64_t)CLIENTS * (CLIENTS - 1) / 2;
    assert_int_equal(trp_publisher_totals(publisher).steps, sum + CLIENTS);
    assert_int_equal(trp_publisher_restore(publisher, &(trp_client_counts){.name = "one more"}),
                     TRP_RESOURCE_EXHAUSTED);
    size_t count;
    trp_client_counts *all = trp_publisher_counts(publisher, &count);
    assert_int_equal(count, CLIENTS);
    for (size_t i = 0; i < count; i++)
        assert_true(all[i].steps == i + 1 && all[i].episodes == i / 2);
    trp_publisher_counts_free(all, count);
    trp_publisher_destroy(publisher);
}

static void statistics_are_in_the_file_of_the_parameters(void **state)
{
    (void)state;
    static const trp_moments seen[2] = {{3, 1, 2}, {4, -1, 0.5}};
    static const float params[2] = {1, 2};
    char path[] = "/tmp/troupe-test-XXXXXX";
    trp_moments *got;
    size_t count;
    close(mkstemp(path));
    trp_params_state written = {
        .params = params, .count = 2, .version = 1, .statistics = seen, .statistic_count = 2};
    assert_int_equal(trp_params_write(path, &written, NULL), TRP_OK);
    assert_int_equal(trp_params_load_statistics(path, &got, &count), TRP_OK);
    assert_int_equal(count, 2);
    assert_memory_equal(got, seen, sizeof seen);
    free(got);
    written.statistic_count = 0;
    assert_int_equal(trp_params_write(path, &written, NULL), TRP_OK);
    assert_int_equal(trp_params_load_statistics(path, &got, &count), TRP_OK);
    assert_int_equal(count, 0);
    assert_null(got);
    trp_moments broken[2] = {{3, 1, -2}};
    written.statistics = broken;
    written.statistic_count = 2;
    assert_int_equal(trp_params_write(path, &written, NULL), TRP_OK);
    assert_int_equal(trp_params_load_statistics(path, &got, &count), TRP_DATA_LOSS);
    unlink(path);
}

/* ---- a scripted service: what a publisher would never do ------------------------------------- */

struct script {
    Troupe__Params_Service service;
    uint32_t failures; /* so often, then replies */
    trp_status failure;
    uint64_t version;
    size_t bytes;
    uint32_t calls;
    trp_stop *stop; /* requested by the first call, when set */
};

static void script_pull(Troupe__Params_Service *service, const Troupe__PullRequest *request,
                        Troupe__PullReply_Closure closure, void *closure_data)
{
    (void)request;
    struct script *script = (struct script *)service;
    script->calls++;
    if (script->stop)
        trp_stop_request(script->stop);
    if (script->calls <= script->failures) {
        trp_fail(script->failure, "script: away");
        closure(NULL, closure_data);
        return;
    }
    uint8_t bytes[256] = {0};
    Troupe__PullReply reply = TROUPE__PULL_REPLY__INIT;
    reply.version = script->version;
    reply.params = (ProtobufCBinaryData){.data = bytes, .len = script->bytes};
    closure(&reply, closure_data);
}

static const Troupe__Params_Service script_service = TROUPE__PARAMS__INIT(script_);

static void an_older_version_never_replaces_a_newer_one(void **state)
{
    (void)state;
    struct script script = {.service = script_service, .version = 9, .bytes = 64};
    trp_params_client *client = client_create(&script.service.base, NULL);
    bool newer;
    assert_int_equal(trp_params_client_pull(client, 0, 0, &newer), TRP_OK);
    const float *params = trp_params_client_state(client).params;
    for (uint64_t version = 0; version < 9; version++) {
        script.version = version;
        assert_int_equal(trp_params_client_pull(client, 0, 0, &newer), TRP_OK);
        assert_false(newer);
        assert_int_equal(trp_params_client_state(client).version, 9);
        assert_ptr_equal(trp_params_client_state(client).params, params);
    }
    trp_params_client_destroy(client);
}

static void parameters_of_another_size_are_data_loss(void **state)
{
    (void)state;
    const size_t wrong[] = {0, 63, 128};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        struct script script = {.service = script_service, .version = 1, .bytes = 64};
        trp_params_client *client = client_create(&script.service.base, NULL);
        assert_int_equal(trp_params_client_pull(client, 0, 0, NULL), TRP_OK);
        script.version = 2;
        script.bytes = wrong[i];
        assert_int_equal(trp_params_client_pull(client, 0, 0, NULL), TRP_DATA_LOSS);
        assert_int_equal(trp_params_client_state(client).version, 1);
        trp_params_client_destroy(client);
    }
}

static void check_retries(trp_status failure)
{
    struct script script = {
        .service = script_service, .version = 1, .bytes = 64, .failures = 1000, .failure = failure};
    trp_params_client *client = client_create(&script.service.base, NULL);
    assert_int_equal(trp_params_client_pull(client, 0, 0, NULL), failure);
    assert_string_equal(trp_last_error(), "script: away");
    assert_true(script.calls >= 2);

    script.failures = script.calls + 1; /* fails once more, then it is back */
    assert_int_equal(trp_params_client_pull(client, 0, 0, NULL), TRP_OK);
    assert_int_equal(trp_params_client_state(client).version, 1);
    trp_params_client_destroy(client);
}

static void a_version_that_is_not_finite_is_refused_by_place_and_tensor(void **state)
{
    struct fixture *fixture = *state;
    static const float wrong[] = {NAN, INFINITY, -INFINITY};
    static const char *const words[] = {"version 2: number 5 of the parameters is nan, in",
                                        "version 3: number 5 of the parameters is inf, in",
                                        "version 4: number 5 of the parameters is -inf, in"};
    trp_publisher_describe(fixture->publisher, "a.weight [5] at 0 (5 by 1)\n"
                                               "a.bias [2][4] at 5 (2 by 4, 4 by 1)\n"
                                               "b.weight [35] at 13 (35 by 1)\n");
    publish(fixture, 1);
    trp_params_client *client = client_create(fixture->service, "actor/0");
    assert_int_equal(trp_params_client_pull(client, 0, 0, NULL), TRP_OK);
    float params[COUNT] = {0};
    for (size_t i = 0; i < 3; i++) {
        params[5] = wrong[i];
        trp_publisher_publish(fixture->publisher, params, 2 + i, 0);
        assert_int_equal(trp_params_client_pull(client, 0, 0, NULL), TRP_OUT_OF_RANGE);
        assert_non_null(strstr(trp_last_error(), words[i]));
        assert_non_null(strstr(trp_last_error(), "in a.bias [2][4], which begins at number 5"));
        assert_int_equal(trp_params_client_state(client).version, 1);
    }
    publish(fixture, 5);
    assert_int_equal(trp_params_client_pull(client, 0, 0, NULL), TRP_OK);
    assert_int_equal(trp_params_client_state(client).version, 5);
    trp_params_client_destroy(client);
}

static void a_failure_is_retried_and_then_surfaces(void **state)
{
    (void)state;
    check_retries(TRP_UNAVAILABLE);
}

/* "Too many clients": a minute later there are as many. */
static void a_final_failure_is_not_retried(void **state)
{
    (void)state;
    struct script script = {
        .service = script_service, .failures = 1000, .failure = TRP_RESOURCE_EXHAUSTED};
    trp_params_client *client = client_create(&script.service.base, NULL);
    assert_int_equal(trp_params_client_pull(client, 0, 0, NULL), TRP_RESOURCE_EXHAUSTED);
    assert_int_equal(script.calls, 1);
    trp_params_client_destroy(client);
}

/* Its failures would be retried for a minute. */
static void a_wait_for_a_learner_that_is_away_ends_in_time(void **state)
{
    (void)state;
    struct script script = {
        .service = script_service, .failures = 1000, .failure = TRP_UNAVAILABLE};
    trp_params_client *client;
    assert_int_equal(trp_params_client_create(
                         &client, &(trp_params_client_options){.service = &script.service.base,
                                                               .give_up_ms = INT64_MAX}),
                     TRP_OK);
    assert_int_equal(trp_params_client_wait(client, 30), TRP_UNAVAILABLE);
    assert_string_equal(trp_last_error(), "script: away");
    assert_true(script.calls < 1000);
    trp_params_client_destroy(client);
}

static void a_stop_ends_the_retries(void **state)
{
    (void)state;
    struct script script = {
        .service = script_service, .failures = 1000, .failure = TRP_UNAVAILABLE};
    script.stop = trp_stop_create();
    trp_params_client *client;
    assert_int_equal(trp_params_client_create(
                         &client, &(trp_params_client_options){.service = &script.service.base,
                                                               .stop = script.stop}),
                     TRP_OK);
    assert_int_equal(trp_params_client_pull(client, 0, 0, NULL), TRP_CANCELLED);
    assert_int_equal(script.calls, 1);
    trp_params_client_destroy(client);
    trp_stop_destroy(script.stop);
}

static void a_service_of_another_type_is_refused(void **state)
{
    (void)state;
    ProtobufCServiceDescriptor descriptor = {.magic = PROTOBUF_C__SERVICE_DESCRIPTOR_MAGIC,
                                             .name = "troupe.Other"};
    ProtobufCService service = {.descriptor = &descriptor};
    trp_params_client *client;
    assert_int_equal(
        trp_params_client_create(&client, &(trp_params_client_options){.service = &service}),
        TRP_INVALID_ARGUMENT);
    assert_null(client);
    assert_non_null(strstr(trp_last_error(), "troupe.Other"));
}

/* ---- threads ------------------------------------------------------------------------------- */

struct puller {
    struct thread thread;
    ProtobufCService *service;
    _Atomic bool *done;
    const char *name;
    _Atomic uint32_t versions; /* different ones that it has seen */
    bool torn, backwards;
};

static void pull_until_done(void *arg)
{
    struct puller *puller = arg;
    trp_params_client *client = client_create(puller->service, puller->name);
    uint64_t steps = 0, version = 0;
    while (!atomic_load(puller->done)) {
        if (trp_params_client_pull(client, steps++, 0, NULL) != TRP_OK)
            puller->torn = true;
        trp_params_state got = trp_params_client_state(client);
        puller->backwards = puller->backwards || got.version < version;
        if (got.version != version)
            puller->versions++;
        version = got.version;
        for (size_t i = 0; i < got.count; i++)
            puller->torn = puller->torn || got.params[i] != (float)version;
    }
    trp_params_client_destroy(client);
}

static void every_reader_sees_whole_versions_in_order(void **state)
{
    struct fixture *fixture = *state;
    _Atomic bool done = false;
    struct puller pullers[3] = {{.name = "a"}, {.name = "b"}, {.name = "c"}};
    for (size_t i = 0; i < 3; i++) {
        pullers[i].service = fixture->service;
        pullers[i].done = &done;
        assert_int_equal(thread_start(&pullers[i].thread, "puller", pull_until_done, &pullers[i]),
                         TRP_OK);
    }
    struct deadline deadline = deadline_in_ms(&clock_monotonic, 20000);
    uint32_t least = 0;
    for (uint64_t version = 1; least < 50 && !deadline_passed(deadline, &clock_monotonic);
         version++) {
        publish(fixture, version);
        least = UINT32_MAX;
        for (size_t i = 0; i < 3; i++)
            least = pullers[i].versions < least ? pullers[i].versions : least;
    }
    atomic_store(&done, true);
    for (size_t i = 0; i < 3; i++) {
        thread_stop(&pullers[i].thread);
        assert_false(pullers[i].torn);
        assert_false(pullers[i].backwards);
    }
    assert_true(least >= 50);
}

/* ---- files --------------------------------------------------------------------------------- */

struct recorder {
    trp_policy base;
    float params[COUNT];
};

static trp_status recorder_load(trp_policy *base, const float *params, size_t count)
{
    if (count != COUNT)
        return trp_fail(TRP_INVALID_ARGUMENT, "recorder: %zu parameters", count);
    memcpy(((struct recorder *)base)->params, params, count * sizeof *params);
    return TRP_OK;
}

static const trp_policy_impl recorder_impl = {.load = recorder_load};

static void a_version_survives_in_a_file(void **state)
{
    (void)state;
    char dir[] = "/tmp/test_params.XXXXXX";
    assert_non_null(mkdtemp(dir));
    char *path = xasprintf("%s/params.safetensors", dir);
    float params[COUNT];
    for (size_t i = 0; i < COUNT; i++)
        params[i] = (float)i / 3;
    trp_params_state saved = {.params = params, .count = COUNT, .version = 42};
    assert_int_equal(trp_params_write(path, &saved, NULL), TRP_OK);
    struct recorder recorder = {.base.impl = &recorder_impl};
    uint64_t version = 0;
    assert_int_equal(trp_params_load(path, &recorder.base, &version), TRP_OK);
    assert_int_equal(version, 42);
    assert_memory_equal(recorder.params, params, sizeof params);

    params[7] = NAN;
    assert_int_equal(trp_params_write(path, &saved, NULL), TRP_OK);
    assert_int_equal(trp_params_load(path, &recorder.base, NULL), TRP_OUT_OF_RANGE);
    assert_non_null(strstr(trp_last_error(), "number 7 of the parameters is nan"));
    params[7] = 0;

    saved.count = COUNT - 1;
    assert_int_equal(trp_params_write(path, &saved, NULL), TRP_OK);
    assert_int_equal(trp_params_load(path, &recorder.base, NULL), TRP_INVALID_ARGUMENT);
    trp_checkpoint_tensor other = {
        .name = "x", .type = TRP_CHECKPOINT_F32, .rank = 1, .shape = {1}, .data = params};
    assert_int_equal(trp_checkpoint_write(path, &other, 1, NULL, 0), TRP_OK);
    assert_int_equal(trp_params_load(path, &recorder.base, NULL), TRP_FAILED_PRECONDITION);
    assert_int_equal(unlink(path), 0);
    assert_int_equal(trp_params_load(path, &recorder.base, NULL), TRP_NOT_FOUND);
    assert_int_equal(rmdir(dir), 0);
    free(path);
}

#define LOCAL_AND_REMOTE(test)                                                                     \
    cmocka_unit_test_setup_teardown(test, setup_local, teardown),                                  \
        cmocka_unit_test_setup_teardown(test, setup_remote, teardown)

int main(void)
{
    trp_log_set_level(TRP_ERROR); /* failures below are on purpose */
    const struct CMUnitTest tests[] = {
        LOCAL_AND_REMOTE(a_pull_brings_only_what_is_newer),
        LOCAL_AND_REMOTE(waiting_ends_with_the_first_version_or_the_deadline),
        LOCAL_AND_REMOTE(counts_go_on_after_a_client_restarted),
        LOCAL_AND_REMOTE(reports_that_are_repeated_or_late_change_nothing),
        LOCAL_AND_REMOTE(totals_are_of_all_clients_that_have_a_name),
        LOCAL_AND_REMOTE(names_that_cannot_be_saved_are_refused),
        LOCAL_AND_REMOTE(every_reader_sees_whole_versions_in_order),
        cmocka_unit_test_setup_teardown(restored_counts_never_lower_those_that_were_reported,
                                        setup_local, teardown),
        LOCAL_AND_REMOTE(statistics_of_all_lives_count_once),
        LOCAL_AND_REMOTE(a_late_report_of_statistics_changes_nothing),
        LOCAL_AND_REMOTE(restored_statistics_are_what_a_client_goes_on_from),
        LOCAL_AND_REMOTE(statistics_that_are_none_are_refused_by_name),
        LOCAL_AND_REMOTE(actors_that_normalise_different_numbers_are_named_both),
        LOCAL_AND_REMOTE(a_stranger_does_not_say_how_many_numbers_are_normalised),
        cmocka_unit_test_setup_teardown(clients_together_report_no_more_than_fits, setup_local,
                                        teardown),
        cmocka_unit_test(tens_of_thousands_of_clients_are_told_apart),
        cmocka_unit_test(statistics_are_in_the_file_of_the_parameters),
        cmocka_unit_test(a_vector_of_a_megabyte_arrives_whole),
        cmocka_unit_test(an_older_version_never_replaces_a_newer_one),
        cmocka_unit_test(parameters_of_another_size_are_data_loss),
        LOCAL_AND_REMOTE(a_version_that_is_not_finite_is_refused_by_place_and_tensor),
        cmocka_unit_test(a_failure_is_retried_and_then_surfaces),
        cmocka_unit_test(a_final_failure_is_not_retried),
        cmocka_unit_test(a_wait_for_a_learner_that_is_away_ends_in_time),
        cmocka_unit_test(a_stop_ends_the_retries),
        cmocka_unit_test(a_service_of_another_type_is_refused),
        cmocka_unit_test(a_version_survives_in_a_file),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

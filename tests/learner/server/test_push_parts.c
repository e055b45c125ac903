/* Gradients that come to a parameter server in parts: together they are one push, whichever way
 * they come, and what is no part of it takes no effect. Those that are not complete take no memory
 * for good; how long they may take it is test_parts_room.c's, by a clock of its own. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <troupe/nn.h>
#include <troupe/parameter_server.h>
#include <troupe/rpc.h>
#include "core/alloc.h"
#include "core/clock.h"
#include "learner/modes/limits.h"
#include "learner/modes/server_link.h"
#include "learner/modes/vectors.h"
#include "learner/server/keys.h"
#include "parameter_server.pb-c.h"

enum { COUNT = 9000, PART = COUNT / 3, WORKERS = 2 };

static const uint64_t all[2] = {0, COUNT};

/* ---- one call after the other -----------------------------------------------------------------
 */

struct asked {
    trp_parameter_server *server;
    float grads[COUNT];
    uint64_t sequence;
};

static void join(struct asked *asked, uint32_t worker)
{
    Troupe__ServerOptimizer sgd = TROUPE__SERVER_OPTIMIZER__INIT;
    Troupe__ServerJoinRequest join = TROUPE__SERVER_JOIN_REQUEST__INIT;
    sgd.kind = TRP_SGD;
    sgd.learning_rate = 1;
    join.workers = WORKERS;
    join.vector = (char[]){"params"};
    join.name = (char[]){"learner/0"};
    join.count = COUNT;
    join.optimizer = &sgd;
    join.worker = worker;
    join.values = (ProtobufCBinaryData){sizeof asked->grads, (uint8_t *)asked->grads};
    assert_int_equal(
        trp_call(trp_parameter_server_service(asked->server), "Join", &join.base, NULL, NULL),
        TRP_OK);
}

static int setup_with(void **state, uint64_t in_flight_bytes)
{
    struct asked *asked = xcalloc(1, sizeof *asked);
    const trp_parameter_server_options options = {.rule = TRP_SERVER_ASYNC,
                                                  .in_flight_bytes = in_flight_bytes};
    assert_int_equal(trp_parameter_server_create(&asked->server, "server/0", &options, NULL),
                     TRP_OK);
    for (uint32_t i = 0; i < WORKERS; i++)
        join(asked, i);
    for (size_t i = 0; i < COUNT; i++)
        asked->grads[i] = -(float)(i + 1);
    *state = asked;
    return 0;
}

static int setup_asked(void **state)
{
    return setup_with(state, 0);
}

/* For one gradient and a part of another. */
static int setup_narrow(void **state)
{
    return setup_with(state, sizeof((struct asked *)0)->grads + PART * sizeof(float));
}

static int setup_too_narrow(void **state)
{
    return setup_with(state, sizeof((struct asked *)0)->grads - 1);
}

static int teardown_asked(void **state)
{
    struct asked *asked = *state;
    trp_parameter_server_destroy(asked->server);
    free(asked);
    return 0;
}

static Troupe__ServerPushRequest part_of(struct asked *asked, uint64_t number, size_t first,
                                         size_t count)
{
    Troupe__ServerPushRequest push = TROUPE__SERVER_PUSH_REQUEST__INIT;
    push.vector = (char *)(uintptr_t) "params";
    push.scale = 1;
    push.sequence = asked->sequence;
    push.keys = keys_hash(all, 2);
    push.n_ranges = 2;
    push.ranges = (uint64_t *)(uintptr_t)all;
    push.gradients =
        (ProtobufCBinaryData){count * sizeof(float), (uint8_t *)(asked->grads + first)};
    push.part_from = first * sizeof(float);
    push.part_of = sizeof asked->grads;
    push.parts = number;
    return push;
}

static trp_status push_part(struct asked *asked, const Troupe__ServerPushRequest *push, bool *part)
{
    ProtobufCMessage *reply;
    TRP_TRY(
        trp_call(trp_parameter_server_service(asked->server), "Push", &push->base, &reply, NULL));
    *part = ((Troupe__ServerPushReply *)reply)->part;
    protobuf_c_message_free_unpacked(reply, NULL);
    return TRP_OK;
}

static void give_part(struct asked *asked, uint64_t number, size_t first, bool completes)
{
    bool part;
    Troupe__ServerPushRequest push = part_of(asked, number, first, PART);
    assert_int_equal(push_part(asked, &push, &part), TRP_OK);
    assert_int_equal(part, !completes);
    asked->sequence += completes;
}

/* Each number is `times` its place, and so many pushes were taken. */
static void check_values(const struct asked *asked, float times, uint64_t version)
{
    Troupe__ServerPullRequest pull = TROUPE__SERVER_PULL_REQUEST__INIT;
    ProtobufCMessage *message;
    pull.vector = (char *)(uintptr_t) "params";
    pull.keys = keys_hash(all, 2);
    pull.n_ranges = 2;
    pull.ranges = (uint64_t *)(uintptr_t)all;
    assert_int_equal(
        trp_call(trp_parameter_server_service(asked->server), "Pull", &pull.base, &message, NULL),
        TRP_OK);
    const Troupe__ServerPullReply *reply = (const Troupe__ServerPullReply *)message;
    assert_int_equal(reply->version, version);
    const float *values = (const float *)(const void *)reply->values.data;
    for (size_t i = 0; i < COUNT; i++)
        assert_true(values[i] == times * (float)(i + 1));
    protobuf_c_message_free_unpacked(message, NULL);
}

static void parts_in_any_order_are_one_push(void **state)
{
    struct asked *asked = *state;
    static const size_t orders[][3] = {{0, 1, 2}, {2, 0, 1}, {1, 2, 0}};
    for (uint64_t turn = 0; turn < 3; turn++)
        for (size_t i = 0; i < 3; i++)
            give_part(asked, 7 + turn, orders[turn][i] * PART, i == 2);
    check_values(asked, 3, 3);
}

static void parts_with_another_number_begin_anew(void **state)
{
    struct asked *asked = *state;
    give_part(asked, 1, 0, false);
    give_part(asked, 1, PART, false);
    for (size_t i = 0; i < COUNT; i++)
        asked->grads[i] *= 2;
    give_part(asked, 2, 2 * PART, false); /* would be the last one of 1 */
    give_part(asked, 2, PART, false);
    give_part(asked, 2, 0, true);
    check_values(asked, 2, 1);
    give_part(asked, 2, 0, false); /* of that one again */
    check_values(asked, 2, 1);
}

/* Both workers' are on their way at a time. */
static void each_worker_has_its_own_parts(void **state)
{
    struct asked *asked = *state;
    for (size_t i = 0; i < 3; i++)
        for (uint32_t worker = 0; worker < WORKERS; worker++) {
            bool part;
            Troupe__ServerPushRequest push = part_of(asked, 5, i * PART, PART);
            push.worker = worker;
            assert_int_equal(push_part(asked, &push, &part), TRP_OK);
            assert_int_equal(part, i < 2);
        }
    check_values(asked, 2, 2);
}

static void a_part_that_fits_nowhere_is_refused(void **state)
{
    struct asked *asked = *state;
    enum { BYTES = COUNT * sizeof(float) };
    static const struct {
        uint64_t from, of, number;
        size_t size;
    } rows[] = {
        {0, BYTES, 1, 0},          {1, BYTES, 1, 4},         {0, BYTES, 1, 3},
        {BYTES, BYTES, 1, 4},      {BYTES - 4, BYTES, 1, 8}, {0, BYTES - 4, 1, 4},
        {0, BYTES + 4, 1, 4},      {0, BYTES, 0, 4},         {UINT64_MAX - 3, BYTES, 1, 4},
        {0, UINT64_MAX - 3, 1, 4},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        bool part;
        Troupe__ServerPushRequest push = part_of(asked, rows[i].number, 0, PART);
        push.part_from = rows[i].from;
        push.part_of = rows[i].of;
        push.gradients.len = rows[i].size;
        assert_int_equal(push_part(asked, &push, &part), TRP_INVALID_ARGUMENT);
        assert_non_null(strstr(trp_last_error(), "learner/0 pushed"));
    }
    bool part;
    Troupe__ServerPushRequest code = part_of(asked, 1, 0, PART);
    code.compression = (char[]){"top-k"}; /* a code has no parts */
    assert_int_equal(push_part(asked, &code, &part), TRP_INVALID_ARGUMENT);
    check_values(asked, 0, 0);
    for (size_t i = 0; i < 3; i++)
        give_part(asked, 3, i * PART, i == 2);
    check_values(asked, 1, 1);
}

/* All that was scaled by what the last part says is looked at, whatever came before. */
static void parts_that_are_not_finite_together_are_refused(void **state)
{
    struct asked *asked = *state;
    bool part;
    float kept = asked->grads[PART + 5];
    asked->grads[PART + 5] = NAN;
    give_part(asked, 1, 0, false);
    give_part(asked, 1, PART, false);
    asked->grads[PART + 5] = kept;
    Troupe__ServerPushRequest last = part_of(asked, 1, 2 * PART, PART);
    assert_int_equal(push_part(asked, &last, &part), TRP_INVALID_ARGUMENT);
    give_part(asked, 2, 0, false);
    give_part(asked, 2, PART, false);
    last = part_of(asked, 2, 2 * PART, PART);
    last.scale = 1e38F;
    assert_int_equal(push_part(asked, &last, &part), TRP_INVALID_ARGUMENT);
    check_values(asked, 0, 0);
    for (size_t i = 0; i < 3; i++)
        give_part(asked, 3, i * PART, i == 2);
    check_values(asked, 1, 1);
}

static trp_status part_of_worker(struct asked *asked, uint32_t worker, size_t place,
                                 uint64_t sequence, bool *part)
{
    Troupe__ServerPushRequest push = part_of(asked, 1 + sequence, place * PART, PART);
    push.worker = worker;
    push.sequence = sequence;
    return push_part(asked, &push, part);
}

static void push_of_worker(struct asked *asked, uint32_t worker, uint64_t sequence, size_t first)
{
    for (size_t i = first; i < 3; i++) {
        bool part;
        assert_int_equal(part_of_worker(asked, worker, i, sequence, &part), TRP_OK);
        assert_int_equal(part, i < 2);
    }
}

static void who_joins_again_leaves_the_room_of_its_parts(void **state)
{
    struct asked *asked = *state;
    bool part;
    assert_int_equal(part_of_worker(asked, 0, 0, 0, &part), TRP_OK);
    assert_int_equal(part_of_worker(asked, 0, 1, 0, &part), TRP_OK);
    join(asked, 0);
    push_of_worker(asked, 1, 0, 0);
    push_of_worker(asked, 0, 0, 0);
    check_values(asked, 2, 2);
}

/* The parts that came before are gone with the room: the others do not complete them. */
static void parts_that_stop_coming_leave_their_room(void **state)
{
    struct asked *asked = *state;
    bool part;
    assert_int_equal(part_of_worker(asked, 0, 0, 0, &part), TRP_OK);
    assert_int_equal(part_of_worker(asked, 0, 1, 0, &part), TRP_OK);
    struct deadline give_up = deadline_in_ms(&clock_monotonic, 20000);
    while (part_of_worker(asked, 1, 0, 0, &part) == TRP_RESOURCE_EXHAUSTED)
        assert_false(deadline_passed(give_up, &clock_monotonic));
    push_of_worker(asked, 1, 0, 1);
    check_values(asked, 1, 1);
    assert_int_equal(part_of_worker(asked, 0, 2, 0, &part), TRP_OK);
    assert_true(part);
    check_values(asked, 1, 1);
    for (size_t i = 0; i < 3; i++) /* it tries again */
        give_part(asked, 9, i * PART, i == 2);
    check_values(asked, 2, 2);
}

static void a_gradient_that_never_has_room_is_refused_for_good(void **state)
{
    bool part;
    assert_int_equal(part_of_worker(*state, 0, 0, 0, &part), TRP_FAILED_PRECONDITION);
    assert_non_null(strstr(trp_last_error(), "learner/0 pushed to 'params': a gradient of "));
    assert_non_null(strstr(trp_last_error(), "in_flight_bytes"));
}

/* ---- a learner elsewhere ----------------------------------------------------------------------
 */

enum { NUMBERS = SERVER_PART_BYTES / 4 * 5 + 77 }; /* five parts and a bit */

/* Between a learner and its server, one call at a time. */
struct between {
    Troupe__ParameterServer_Service service;
    trp_parameter_server *server;
    trp_server *rpc;
    trp_channel *channel;
    ProtobufCService *far;
    uint32_t pushes, strays; /* strays: calls behind which a part of another push comes */
    uint32_t pulls;
    bool forgets;    /* whoever has joined */
    uint32_t torn;   /* the pull that is made one of its own, behind a push of another worker */
    uint64_t others; /* pushes of that, of 1 for each number */
    float *ones;
};

static Troupe__ParameterServer_Service *inner_of(Troupe__ParameterServer_Service *service)
{
    struct between *between = (struct between *)service;
    return (Troupe__ParameterServer_Service *)trp_parameter_server_service(between->server);
}

static void ignore_join(const Troupe__ServerJoinReply *reply, void *data)
{
    (void)reply;
    (void)data;
}

static void pass_join(Troupe__ParameterServer_Service *service,
                      const Troupe__ServerJoinRequest *request,
                      Troupe__ServerJoinReply_Closure closure, void *data)
{
    Troupe__ServerJoinRequest other = *request;
    inner_of(service)->join(inner_of(service), request, closure, data);
    other.worker = 1;
    other.name = (char[]){"learner/1"};
    inner_of(service)->join(inner_of(service), &other, ignore_join, NULL);
}

static void ignore_reply(const Troupe__ServerPushReply *reply, void *data)
{
    (void)reply;
    (void)data;
}

static void push_ones(struct between *between)
{
    static const uint64_t numbers[] = {0, NUMBERS};
    Troupe__ServerPushRequest push = TROUPE__SERVER_PUSH_REQUEST__INIT;
    push.worker = 1;
    push.vector = (char *)(uintptr_t) "params";
    push.scale = -1;
    push.sequence = between->others++;
    push.keys = keys_hash(numbers, 2);
    push.n_ranges = 2;
    push.ranges = (uint64_t *)(uintptr_t)numbers;
    push.gradients =
        (ProtobufCBinaryData){NUMBERS * sizeof(float), (uint8_t *)(void *)between->ones};
    inner_of(&between->service)->push(inner_of(&between->service), &push, ignore_reply, NULL);
}

static void pass_pull(Troupe__ParameterServer_Service *service,
                      const Troupe__ServerPullRequest *request,
                      Troupe__ServerPullReply_Closure closure, void *data)
{
    struct between *between = (struct between *)service;
    Troupe__ServerPullRequest pull = *request;
    if (between->forgets) {
        Troupe__ServerPullReply strange = TROUPE__SERVER_PULL_REPLY__INIT;
        strange.unknown_worker = true;
        closure(&strange, data);
        return;
    }
    if (++between->pulls == between->torn) {
        push_ones(between);
        pull.parts++;
    }
    inner_of(service)->pull(inner_of(service), &pull, closure, data);
}

static void pass_push(Troupe__ParameterServer_Service *service,
                      const Troupe__ServerPushRequest *request,
                      Troupe__ServerPushReply_Closure closure, void *data)
{
    struct between *between = (struct between *)service;
    if (between->forgets) {
        Troupe__ServerPushReply strange = TROUPE__SERVER_PUSH_REPLY__INIT;
        strange.unknown_keys = true;
        closure(&strange, data);
        return;
    }
    inner_of(service)->push(inner_of(service), request, closure, data);
    Troupe__ServerPushRequest stray = *request;
    stray.parts = 99;
    if (between->pushes++ < between->strays)
        inner_of(service)->push(inner_of(service), &stray, ignore_reply, NULL);
}

static const Troupe__ParameterServer_Service between_functions =
    TROUPE__PARAMETER_SERVER__INIT(pass_);

static void between_start(struct between *between)
{
    const trp_parameter_server_options options = {.rule = TRP_SERVER_ASYNC};
    *between = (struct between){.service = between_functions, .ones = trp_floats_create(NUMBERS)};
    for (size_t i = 0; i < NUMBERS; i++)
        between->ones[i] = 1;
    assert_int_equal(trp_parameter_server_create(&between->server, "server/0", &options, NULL),
                     TRP_OK);
    assert_int_equal(trp_server_create(&between->rpc, &(trp_server_options){.threads = 1}), TRP_OK);
    assert_int_equal(trp_server_add(between->rpc, &between->service.base, NULL), TRP_OK);
    assert_int_equal(trp_server_start(between->rpc), TRP_OK);
    assert_int_equal(trp_channel_create(&between->channel, trp_server_address(between->rpc), NULL),
                     TRP_OK);
    assert_int_equal(
        trp_channel_service(between->channel, trp_parameter_server_descriptor(), &between->far),
        TRP_OK);
}

static void between_end(struct between *between)
{
    trp_channel_destroy(between->channel);
    trp_server_destroy(between->rpc);
    trp_parameter_server_destroy(between->server);
    trp_floats_destroy(between->ones);
}

static void link_start(struct server_link *link, struct server_links *links,
                       struct vectors *vectors, trp_queue **queue)
{
    static const trp_vector_spec spec = {.name = "params",
                                         .count = NUMBERS,
                                         .learned = true,
                                         .optimizer = {.kind = TRP_SGD, .learning_rate = 1}};
    trp_device *device;
    assert_int_equal(trp_device_find(&device, NULL), TRP_OK);
    assert_int_equal(trp_queue_create(queue, device), TRP_OK);
    assert_int_equal(vectors_create(vectors, device, *queue, &spec, 1), TRP_OK);
    *link = (struct server_link){.links = links, .vector = &vectors->each[0], .hi = NUMBERS};
    assert_int_equal(server_link_join(link, 0), TRP_OK);
    for (size_t i = 0; i < NUMBERS; i++)
        vectors->each[0].grads[i] = -(float)(i % 1000);
}

struct elsewhere {
    struct between between;
    struct vectors vectors;
    trp_queue *queue;
    trp_learner_servers servers;
    struct learners_options group;
    struct server_links links;
    struct server_link link;
};

static void elsewhere_start(struct elsewhere *here)
{
    between_start(&here->between);
    here->servers = (trp_learner_servers){
        .name = "server", .services = &here->between.far, .count = 1, .workers = 2};
    here->group = (struct learners_options){.name = "learner", .timeout_ms = 20000};
    here->links = (struct server_links){
        .servers = &here->servers, .group = &here->group, .learner = "learner/0"};
    link_start(&here->link, &here->links, &here->vectors, &here->queue);
}

static void elsewhere_end(struct elsewhere *here)
{
    server_link_close(&here->link);
    vectors_cleanup(&here->vectors);
    trp_queue_destroy(here->queue);
    between_end(&here->between);
}

/* Some of them are mixed with those of another push, until a try that is not. What it pulls is of
 * one version, also where its parts are not. */
static void a_learner_elsewhere_pushes_once_and_pulls_what_is_whole(void **state)
{
    (void)state;
    struct elsewhere here;
    elsewhere_start(&here);
    struct between *between = &here.between;
    struct vector *vector = &here.vectors.each[0];
    for (uint32_t round = 1; round <= 3; round++) {
        between->pushes = between->pulls = 0;
        between->strays = round == 2 ? 3 : 0;
        between->torn = round == 3 ? 4 : 0;
        assert_int_equal(server_link_push(&here.link, vector->grads, 1, true), TRP_OK);
        assert_int_equal(here.link.clock, round);
        assert_int_equal(server_link_pull(&here.link), TRP_OK);
        assert_int_equal(here.link.version, round + between->others);
        assert_true(round > 1 || between->pulls == 6); /* later on some may be in one call */
        assert_int_equal(between->others, round == 3);
        assert_int_equal(between->pushes, round == 2 ? 12 : 6);
        for (size_t i = 0; i < NUMBERS; i++)
            assert_true(((float *)vector->values.here)[i] ==
                        (float)round * (float)(i % 1000) + (float)between->others);
    }
    elsewhere_end(&here);
}

static void a_server_that_never_knows_its_learner_is_given_up(void **state)
{
    (void)state;
    struct elsewhere here;
    elsewhere_start(&here);
    here.between.forgets = true;
    assert_int_equal(server_link_pull(&here.link), TRP_FAILED_PRECONDITION);
    assert_non_null(strstr(trp_last_error(), "server/0 does not know learner/0"));
    assert_int_equal(server_link_push(&here.link, here.vectors.each[0].grads, 1, true),
                     TRP_FAILED_PRECONDITION);
    here.between.forgets = false; /* it has begun again */
    assert_int_equal(server_link_push(&here.link, here.vectors.each[0].grads, 1, true), TRP_OK);
    assert_int_equal(server_link_pull(&here.link), TRP_OK);
    elsewhere_end(&here);
}

int main(void)
{
#define TEST(name)   cmocka_unit_test_setup_teardown(name, setup_asked, teardown_asked)
#define NARROW(name) cmocka_unit_test_setup_teardown(name, setup_narrow, teardown_asked)
    const struct CMUnitTest tests[] = {
        TEST(parts_in_any_order_are_one_push),
        TEST(parts_with_another_number_begin_anew),
        TEST(each_worker_has_its_own_parts),
        TEST(a_part_that_fits_nowhere_is_refused),
        TEST(parts_that_are_not_finite_together_are_refused),
        NARROW(who_joins_again_leaves_the_room_of_its_parts),
        NARROW(parts_that_stop_coming_leave_their_room),
        cmocka_unit_test_setup_teardown(a_gradient_that_never_has_room_is_refused_for_good,
                                        setup_too_narrow, teardown_asked),
        cmocka_unit_test(a_learner_elsewhere_pushes_once_and_pulls_what_is_whole),
        cmocka_unit_test(a_server_that_never_knows_its_learner_is_given_up),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

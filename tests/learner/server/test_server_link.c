/* A learner at servers that answer what none should: no answer holds it for good, and what it says
 * of one is of that one. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <troupe/rng.h>
#include "core/alloc.h"
#include "core/clock.h"
#include "learner/modes/mode.h"
#include "learner/modes/server_link.h"
#include "learner/server/shard.h"
#include "parameter_server.pb-c.h"
#include "tests/core/patience.h"

enum { COUNT = 32, SERVERS = 2, TIMEOUT_MS = 100 };

/* ---- servers that say what a test wants -------------------------------------------------------
 */

struct liar {
    Troupe__ParameterServer_Service service; /* first */
    enum shard_answer answer;                /* to pushes */
    bool wait;                               /* the answer to pulls */
    bool silent;                             /* learner 1 */
    uint64_t asked;                          /* pushes and pulls */
};

static void lie_join(Troupe__ParameterServer_Service *service,
                     const Troupe__ServerJoinRequest *request,
                     Troupe__ServerJoinReply_Closure closure, void *data)
{
    Troupe__ServerJoinReply reply = TROUPE__SERVER_JOIN_REPLY__INIT;
    (void)service;
    (void)request;
    closure(&reply, data);
}

static void lie_push(Troupe__ParameterServer_Service *service,
                     const Troupe__ServerPushRequest *request,
                     Troupe__ServerPushReply_Closure closure, void *data)
{
    struct liar *liar = (struct liar *)service;
    Troupe__ServerPushReply reply = TROUPE__SERVER_PUSH_REPLY__INIT;
    uint32_t learner = 1;
    (void)request;
    liar->asked++;
    reply.answer = liar->answer;
    reply.n_silent = liar->silent;
    reply.silent = &learner;
    closure(&reply, data);
}

static void lie_pull(Troupe__ParameterServer_Service *service,
                     const Troupe__ServerPullRequest *request,
                     Troupe__ServerPullReply_Closure closure, void *data)
{
    struct liar *liar = (struct liar *)service;
    Troupe__ServerPullReply reply = TROUPE__SERVER_PULL_REPLY__INIT;
    float values[COUNT] = {0};
    liar->asked++;
    reply.wait = liar->wait;
    if (!reply.wait && request->n_ranges > 0)
        reply.values = (ProtobufCBinaryData){
            (request->ranges[1] - request->ranges[0]) * sizeof *values, (uint8_t *)values};
    reply.unknown_keys = !reply.wait && request->n_ranges == 0;
    closure(&reply, data);
}

static const Troupe__ParameterServer_Service liar_functions = TROUPE__PARAMETER_SERVER__INIT(lie_);

struct place {
    struct liar liars[SERVERS];
    ProtobufCService *services[SERVERS];
    trp_learner_servers servers;
    struct learners_options group;
    struct vectors vectors;
    trp_queue *queue;
};

static void place_begin(struct place *place)
{
    static const trp_vector_spec spec = {.name = "params",
                                         .count = COUNT,
                                         .learned = true,
                                         .optimizer = {.kind = TRP_SGD, .learning_rate = 1}};
    trp_device *device;
    *place = (struct place){.group = {.name = "learner", .timeout_ms = TIMEOUT_MS}};
    for (size_t i = 0; i < SERVERS; i++) {
        place->liars[i].service = liar_functions;
        place->services[i] = &place->liars[i].service.base;
    }
    place->servers = (trp_learner_servers){.name = "server",
                                           .services = place->services,
                                           .count = SERVERS,
                                           .options.no_share = true,
                                           .workers = 2};
    assert_int_equal(trp_device_find(&device, NULL), TRP_OK);
    assert_int_equal(trp_queue_create(&place->queue, device), TRP_OK);
    assert_int_equal(vectors_create(&place->vectors, device, place->queue, &spec, 1), TRP_OK);
}

static void place_end(struct place *place)
{
    vectors_cleanup(&place->vectors);
    trp_queue_destroy(place->queue);
}

/* ---- answers without an end -------------------------------------------------------------------
 */

static trp_status push(struct server_link *link)
{
    return server_link_push(link, link->vector->grads, 1, true);
}

static void check_is_given_up(struct server_link *link, trp_status (*call)(struct server_link *),
                              const char *words)
{
    struct liar *liar = (struct liar *)link->links->servers->services[link->server];
    liar->asked = 0;
    int64_t since_ns = clock_now_ns(&clock_monotonic);
    assert_int_equal(call(link), TRP_DEADLINE_EXCEEDED);
    /* The other learner's time, twice; a server's that begins again; and a call's. */
    int64_t took_ms = (clock_now_ns(&clock_monotonic) - since_ns) / 1000000;
    assert_true(took_ms >= 4 * TIMEOUT_MS);
    /* At most a push and two pulls in 10 ms, once it is seen that the server does not wait. */
    assert_in_range(liar->asked, 2, (uint64_t)took_ms / 10 * 3 + 60);
    if (!strstr(trp_last_error(), words))
        fail_msg("%s", trp_last_error());
}

static void a_server_that_never_lets_a_learner_go_on_is_given_up_by_name(void **state)
{
    (void)state;
    struct place place;
    place_begin(&place);
    struct server_links links = {
        .servers = &place.servers, .group = &place.group, .learner = (char[]){"learner/0"}};
    struct server_link link = {
        .links = &links, .vector = &place.vectors.each[0], .server = 1, .hi = COUNT};
    assert_int_equal(server_link_join(&link, 0), TRP_OK);
    place.liars[1].wait = true;
    check_is_given_up(&link, server_link_pull,
                      "Pull of 'params' at server/1: it has had learner/0 "
                      "wait for 0.4 s, which is longer than");
    check_is_given_up(&link, server_link_fetch, "Pull of 'params' at server/1: it has");
    place.liars[1].answer = SHARD_EARLY;
    check_is_given_up(&link, push, "at server/1: it has had learner/0 wait");
    place.liars[1].answer = SHARD_AHEAD;
    check_is_given_up(&link, push, "Push of 'params' at server/1: it has had learner/0 wait");
    place.liars[1].wait = false;
    place.liars[1].answer = SHARD_EARLY; /* though nobody is to be waited for */
    check_is_given_up(&link, push, "Push of 'params' at server/1: it has had learner/0 wait");
    server_link_close(&link);
    place_end(&place);
}

/* ---- members that servers do not hear of ------------------------------------------------------
 */

static const uint32_t members[] = {0, 1};

/* Where a group of two meets. */
struct meeting_place {
    trp_rendezvous base;
    uint64_t newest;
    uint32_t breaks;
    char *why;
};

static trp_status announce_there(trp_rendezvous *base, const char *address)
{
    (void)base;
    (void)address;
    return TRP_OK;
}

static trp_status next_there(trp_rendezvous *base, uint64_t after, int64_t timeout_ms,
                             trp_generation *generation)
{
    const struct meeting_place *there = (const struct meeting_place *)base;
    (void)timeout_ms;
    assert_true(after < there->newest);
    *generation = (trp_generation){.number = there->newest, .size = 2, .members = members};
    return TRP_OK;
}

static uint64_t newest_there(const trp_rendezvous *base)
{
    return ((const struct meeting_place *)base)->newest;
}

static void broken_there(trp_rendezvous *base, uint64_t number, const char *why)
{
    struct meeting_place *there = (struct meeting_place *)base;
    assert_int_equal(number, there->newest);
    there->breaks++;
    free(there->why);
    there->why = xstrdup(why);
}

static struct mode *mode_that_meets(struct place *place)
{
    struct mode *mode;
    trp_rng rng;
    struct mode_meeting meeting = {.rng = &rng};
    trp_rng_init(&rng, 1, 0);
    assert_int_equal(mode_create(&mode, &place->vectors,
                                 &(struct mode_options){.name = "server",
                                                        .group = place->group,
                                                        .servers = &place->servers}),
                     TRP_OK);
    assert_int_equal(mode->impl->meet(mode, &meeting), TRP_OK);
    return mode;
}

/* One without a batch, at whose end servers say whom they hear of. */
static void end_round(struct mode *mode)
{
    struct mode_round round = {.has_batch = false};
    assert_int_equal(mode->impl->end(mode, &round), TRP_OK);
}

static void who_is_silent_at_one_server_is_missed_with_its_words(void **state)
{
    static const trp_rendezvous_impl impl = {.announce = announce_there,
                                             .next = next_there,
                                             .newest = newest_there,
                                             .broken = broken_there};
    (void)state;
    for (size_t i = 0; i < SERVERS; i++) {
        struct place place;
        struct meeting_place there = {.base.impl = &impl, .newest = 1};
        place_begin(&place);
        place.group.rendezvous = &there.base;
        struct mode *mode = mode_that_meets(&place);
        place.liars[i].silent = true; /* the other one hears of it, and says so before or after */
        end_round(mode);
        assert_int_equal(there.breaks, 0); /* that was before the generation */
        struct deadline deadline = patience();
        while (there.breaks == 0) {
            look_again_soon(deadline, "the other one to be missed");
            end_round(mode);
        }
        assert_int_equal(there.breaks, 1);
        char *words = xasprintf("learner/1 has not pushed 'params' to server/%zu for 5.1 s", i);
        assert_string_equal(there.why, words); /* those who are idle have more patience */
        free(words);
        place.liars[i].silent = false;
        there.newest = 2;
        end_round(mode); /* enters the next generation */
        end_round(mode); /* of which servers have said nothing yet, or that all are there */
        assert_int_equal(there.breaks, 1);
        mode->impl->destroy(mode);
        free(there.why);
        place_end(&place);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_server_that_never_lets_a_learner_go_on_is_given_up_by_name),
        cmocka_unit_test(who_is_silent_at_one_server_is_missed_with_its_words),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

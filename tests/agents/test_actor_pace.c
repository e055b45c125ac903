/* How old what actors insert into a queue may be: how often they ask for parameters, and how many
 * sequences stand in front of the queue. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <troupe/impala.h>
#include <troupe/log.h>
#include <troupe/publisher.h>
#include "core/alloc.h"
#include "core/thread.h"
#include "params.pb-c.h"

enum { COPIES = 2, UNROLL = 8, ROOM = 3, STEPS = 200, PULLS_MAX = 64, HELD_BACK_MS = 1000 };

/* A real publisher, and a service in front of it that remembers which steps actors reported, but
 * for none, which they do until they have parameters. */
struct pace {
    trp_agent agent;
    const trp_env_spec *env;
    trp_policy *policy;
    trp_publisher *publisher;
    Troupe__Params_Service service;
    uint64_t reported[PULLS_MAX];
    size_t pulls;
    char dir[32];
    trp_replay_server *server;
    trp_channel *channel;
};

static void pace_pull(Troupe__Params_Service *service, const Troupe__PullRequest *request,
                      Troupe__PullReply_Closure closure, void *closure_data)
{
    struct pace *pace =
        (struct pace *)(void *)((uint8_t *)service - offsetof(struct pace, service));
    assert_true(pace->pulls < PULLS_MAX);
    if (request->steps > 0)
        pace->reported[pace->pulls++] = request->steps;
    Troupe__Params_Service *real =
        (Troupe__Params_Service *)(void *)trp_publisher_service(pace->publisher);
    real->pull(real, request, closure, closure_data);
}

static const Troupe__Params_Service pace_service = TROUPE__PARAMS__INIT(pace_);

/* Of an agent whose queue has room for `batches` times ROOM unrolls. */
static int start(void **state, uint32_t batches)
{
    struct pace *pace = xcalloc(1, sizeof *pace);
    pace->agent = trp_impala(&(trp_impala_options){
        .hidden = {4}, .unroll = UNROLL, .batch_size = ROOM, .queue_batches = batches});
    pace->service = pace_service;
    assert_int_equal(trp_env_find("Catch", &pace->env), TRP_OK);
    assert_int_equal(trp_agent_policy_create(&pace->policy, &pace->agent, "Catch",
                                             &(trp_policy_options){.rows = COPIES}),
                     TRP_OK);
    pace->publisher = trp_publisher_create(pace->policy->param_count);
    float *params = xcalloc(pace->policy->param_count, sizeof *params);
    trp_publisher_publish(pace->publisher, params, 1, 1);
    free(params);

    trp_agent_table_list list;
    strcpy(pace->dir, "/tmp/troupe-pace-XXXXXX");
    assert_non_null(mkdtemp(pace->dir));
    assert_int_equal(trp_agent_tables(&pace->agent, "Catch", &list), TRP_OK);
    assert_int_equal(trp_replay_server_create(
                         &pace->server, &(trp_replay_server_options){.dir = pace->dir,
                                                                     .tables = list.tables,
                                                                     .table_count = list.count}),
                     TRP_OK);
    trp_agent_table_list_cleanup(&list);
    pace->channel = trp_channel_create_local(trp_replay_server_rpc(pace->server));
    *state = pace;
    return 0;
}

static int start_small(void **state)
{
    return start(state, 1);
}

static int start_large(void **state)
{
    return start(state, STEPS);
}

static int end(void **state)
{
    struct pace *pace = *state;
    trp_channel_destroy(pace->channel);
    trp_replay_server_destroy(pace->server);
    char *remove = xasprintf("rm -r %s", pace->dir);
    assert_int_equal(system(remove), 0);
    free(remove);
    trp_publisher_destroy(pace->publisher);
    trp_policy_destroy(pace->policy);
    free(pace);
    return 0;
}

/* In turns, where it is not the clock that decides when to ask. */
static void act(struct pace *pace, trp_agent_actor_options options)
{
    trp_actor *actor;
    options.name = "actor/0";
    options.env = "Catch";
    options.copies = COPIES;
    options.replay = pace->channel;
    options.params = &pace->service.base;
    options.max_steps = STEPS;
    struct turns *turns = turns_create(1);
    turns_join(turns, 0);
    assert_int_equal(trp_agent_actor_create(&actor, &pace->agent, &options), TRP_OK);
    assert_int_equal(trp_actor_run(actor), TRP_OK);
    trp_actor_destroy(actor);
    turns_leave();
    turns_destroy(turns);
}

static void an_actor_asks_for_parameters_once_an_unroll(void **state)
{
    struct pace *pace = *state;
    act(pace, (trp_agent_actor_options){0});
    for (uint64_t i = 0; i < STEPS / (COPIES * UNROLL); i++)
        assert_int_equal(pace->reported[i], (i + 1) * COPIES * UNROLL);
}

static void an_actor_asks_as_often_as_it_is_told(void **state)
{
    struct pace *pace = *state;
    act(pace, (trp_agent_actor_options){.pull_every_steps = 100});
    assert_int_equal(pace->reported[0], 100);
}

/* It asks when it has to wait. */
static void an_actor_that_waits_for_versions_does_not_ask_in_between(void **state)
{
    struct pace *pace = *state;
    act(pace, (trp_agent_actor_options){.sync_every_items = STEPS});
    assert_int_equal(pace->reported[0], 64); /* as every actor in turns */
}

static void add_step(trp_adder *adder, uint32_t copy)
{
    float board[50] = {0}, log_prob = -1;
    int32_t action = 0;
    adder->impl->add(adder, copy,
                     &(trp_transition){.action = &action,
                                       .discount = 1,
                                       .next_observations = (const void *const[]){board},
                                       .version = 1,
                                       .extras = (const void *const[]){&log_prob}});
}

static void few_unrolls_stand_in_front_of_a_full_queue(void **state)
{
    struct pace *pace = *state;
    trp_adder *adder;
    assert_int_equal(pace->agent.impl->adder(&pace->agent,
                                             &(trp_adder_options){.replay = pace->channel,
                                                                  .env = pace->env,
                                                                  .extras = &pace->policy->extras,
                                                                  .copies = COPIES,
                                                                  .seed = 5},
                                             &adder),
                     TRP_OK);
    float board[50] = {0};
    for (uint32_t copy = 0; copy < COPIES; copy++)
        adder->impl->first(adder, copy, (const void *const[]){board});
    trp_status status = TRP_OK;
    for (uint32_t step = 0; step < 100 * UNROLL && status == TRP_OK; step++) {
        for (uint32_t copy = 0; copy < COPIES; copy++)
            add_step(adder, copy);
        status = adder->impl->push(adder, HELD_BACK_MS);
    }
    assert_int_equal(status, TRP_DEADLINE_EXCEEDED);
    assert_int_equal(adder->impl->items(adder), ROOM + 2 * COPIES);
    trp_adder_destroy(adder);
}

int main(void)
{
    trp_log_set_level(TRP_ERROR);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(an_actor_asks_for_parameters_once_an_unroll, start_large,
                                        end),
        cmocka_unit_test_setup_teardown(an_actor_asks_as_often_as_it_is_told, start_large, end),
        cmocka_unit_test_setup_teardown(an_actor_that_waits_for_versions_does_not_ask_in_between,
                                        start_large, end),
        cmocka_unit_test_setup_teardown(few_unrolls_stand_in_front_of_a_full_queue, start_small,
                                        end),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* What somebody writes who has Troupe installed and nothing else: an environment of his own that
 * DQN learns, and nodes of his own that talk over a service of his own. tests/check_install.sh
 * builds and runs it in every way there is. */
#include <stdio.h>
#include <string.h>

#include <troupe/troupe.h>

#include "judge.pb-c.h"

/* ---- an environment: go right until the end of the street ---------------------------------- */

struct street {
    float place;
};

static trp_status street_reset(void *state, trp_rng *rng)
{
    struct street *street = state;
    street->place = (float)trp_rng_below(rng, 3);
    return TRP_OK;
}

static trp_status street_step(void *state, trp_rng *rng, const void *action,
                              trp_env_outcome *outcome)
{
    (void)rng;
    struct street *street = state;
    street->place += *(const int32_t *)action ? 1.0F : -1.0F;
    outcome->reward = street->place >= 4 ? 1 : 0;
    outcome->terminated = street->place >= 4 || street->place < 0;
    return TRP_OK;
}

static void street_observe(const void *state, void *observation)
{
    memcpy(observation, state, sizeof(float));
}

static const trp_env_impl street = {
    .spec = {.name = "Street",
             .observation = {.name = "place", .dtype = TRP_FLOAT32, .rank = 1, .shape = {1}},
             .action_kind = TRP_ACTION_DISCRETE,
             .action_count = 2},
    .state_bytes = sizeof(struct street),
    .reset = street_reset,
    .step = street_step,
    .observe = street_observe,
};

/* ---- a node that serves, and nodes that call it -------------------------------------------- */

enum { PLAYERS = 2 };

static _Atomic int judged;

static void judge_judge(User__Judge_Service *service, const User__Board *board,
                        User__Verdict_Closure closure, void *closure_data)
{
    (void)service;
    User__Verdict verdict = USER__VERDICT__INIT;
    for (size_t i = 0; i < board->n_numbers; i++)
        verdict.sum += board->numbers[i];
    verdict.words = (char *)"well played";
    closure(&verdict, closure_data);
    judged++;
}

/* Ends the program when every player was judged and the learner has learned. */
static trp_status judge_wait(trp_context *context, trp_node replay)
{
    trp_channel *channel;
    trp_status status = trp_context_channel(context, replay, 0, &channel);
    while (status == TRP_OK && !trp_stop_wait(trp_context_stop(context), 20)) {
        trp_table_info table;
        size_t count;
        status = trp_replay_info(channel, &table, 1, &count, 10000);
        if (status == TRP_OK && count == 1 && table.samples > 0 && judged == PLAYERS)
            trp_context_stop_program(context, true, "judged and learned");
    }
    return status;
}

static trp_status judge_run(trp_context *context, const void *arg)
{
    static User__Judge_Service service = USER__JUDGE__INIT(judge_);
    trp_server *server;
    trp_status status =
        trp_server_create(&server, &(trp_server_options){.address = trp_context_address(context)});
    if (status == TRP_OK)
        status = trp_server_add(server, &service.base, NULL);
    if (status == TRP_OK)
        status = trp_context_serve(context, server);
    if (status == TRP_OK)
        status = judge_wait(context, *(const trp_node *)arg);
    if (trp_context_withdraw(context))
        trp_server_destroy(server);
    return status;
}

static trp_status player_run(trp_context *context, const void *arg)
{
    const trp_node *judge = arg;
    ProtobufCService *service;
    trp_status status = trp_dial(context, *judge, &user__judge__descriptor, &service);
    if (status != TRP_OK)
        return status;
    int32_t numbers[] = {40, 1, (int32_t)trp_context_index(context)};
    User__Board board = USER__BOARD__INIT;
    board.numbers = numbers;
    board.n_numbers = 3;
    ProtobufCMessage *reply;
    status = trp_call(service, "Judge", &board.base, &reply, NULL);
    if (status != TRP_OK)
        return status;
    const User__Verdict *verdict = (const User__Verdict *)reply;
    if (strcmp(verdict->words, "well played") == 0)
        trp_context_report(context, "sum", (double)verdict->sum);
    protobuf_c_message_free_unpacked(reply, NULL);
    trp_stop_wait(trp_context_stop(context), -1);
    return TRP_OK;
}

/* ---- the program --------------------------------------------------------------------------- */

static trp_status build(trp_program *program, int argc, char **argv)
{
    (void)argc;
    (void)argv;
    trp_agent agent = trp_dqn(&(trp_dqn_options){.hidden = {8},
                                                 .batch_size = 8,
                                                 .min_replay_size = 50,
                                                 .replay_size = 1000,
                                                 .samples_per_insert = -1});
    trp_node replay = trp_add_replay(program, "replay", &(trp_replay_options){.agent = &agent});
    trp_node learner = trp_add_learner(program, "learner",
                                       &(trp_learner_options){.agent = &agent, .replay = replay});
    trp_add_actors(program, "actor", 1,
                   &(trp_actor_options){
                       .agent = &agent, .env = "Street", .replay = replay, .params = learner});
    trp_node judge = trp_add_node(program, "judge",
                                  &(trp_node_options){.run = judge_run,
                                                      .arg = &replay,
                                                      .arg_size = sizeof replay,
                                                      .uses = &replay,
                                                      .use_count = 1});
    trp_add_node(program, "player",
                 &(trp_node_options){.run = player_run,
                                     .arg = &judge,
                                     .arg_size = sizeof judge,
                                     .uses = &judge,
                                     .use_count = 1,
                                     .count = PLAYERS});
    return TRP_OK;
}

int main(int argc, char **argv)
{
    if (trp_env_register(&street) != TRP_OK) {
        fprintf(stderr, "%s\n", trp_last_error());
        return 1;
    }
    return trp_main(argc, argv, "user", build);
}

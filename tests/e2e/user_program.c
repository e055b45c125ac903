/* What somebody writes who has Troupe installed and nothing else: an environment of his own that
 * DQN learns, and nodes of his own that talk over a service of his own. tests/check_install.sh
 * builds and runs it in every way there is. */
#include <stdio.h>
#include <string.h>

#include <troupe/troupe.h>

#include "judge.pb-c.h"
#include "params.pb-c.h" /* of the installed params.proto */

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

static void street_observe(const void *state, void *const *observations)
{
    memcpy(observations[0], state, sizeof(float));
}

static const trp_env_impl street = {
    .spec = {.name = "Street",
             .observations = {{.name = "place", .dtype = TRP_FLOAT32, .rank = 1, .shape = {1}}},
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

/* What the judge watches. */
struct watched {
    trp_node replay, learner;
};

/* Code generated here meets the library's own, in this process or in another. */
static trp_status look_at_parameters(trp_context *context, trp_node learner)
{
    ProtobufCService *params;
    TRP_TRY(trp_dial(context, learner, 0, &troupe__params__descriptor, &params));
    Troupe__PullRequest request = TROUPE__PULL_REQUEST__INIT;
    request.client = (char *)"";
    ProtobufCMessage *message;
    TRP_TRY(trp_call(params, "Pull", &request.base, &message, NULL));
    Troupe__PullReply *reply = (Troupe__PullReply *)message;
    bool some = reply->version > 0 && reply->params.len > 0;
    troupe__pull_reply__free_unpacked(reply, NULL);
    return some ? TRP_OK : trp_fail(TRP_INTERNAL, "there are no parameters");
}

/* Ends the program when every player was judged and the learner has learned. */
static trp_status judge_wait(trp_context *context, const struct watched *watched)
{
    trp_channel *channel;
    trp_status status = trp_context_channel(context, watched->replay, 0, &channel);
    if (status == TRP_OK)
        status = look_at_parameters(context, watched->learner);
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
    TRP_TRY(trp_context_serve(context, &service.base, NULL));
    return judge_wait(context, arg);
}

/* What a player gets, and what of it may be set: --set player.first=40. */
struct player {
    trp_node judge;
    int32_t first;
};

static const trp_option player_rows[] = {
    {TRP_OPTION(struct player, first), .fallback = "30", .min = -100, .max = 100,
     .help = "the first number on its board"},
};
static const trp_option_table player_table = TRP_OPTION_TABLE("player", player_rows, struct player);

static trp_status player_run(trp_context *context, const void *arg)
{
    const struct player *player = arg;
    ProtobufCService *service;
    trp_status status = trp_dial(context, player->judge, 0, &user__judge__descriptor, &service);
    if (status != TRP_OK)
        return status;
    int32_t numbers[] = {player->first, 1, (int32_t)trp_context_index(context)};
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
    struct watched watched = {replay, learner};
    trp_node judge = trp_add_node(program, "judge",
                                  &(trp_node_options){.run = judge_run,
                                                      .arg = &watched,
                                                      .arg_size = sizeof watched,
                                                      .uses = (trp_node[]){replay, learner},
                                                      .use_count = 2});
    trp_add_node(program, "player",
                 &(trp_node_options){.run = player_run,
                                     .arg = &(struct player){.judge = judge},
                                     .arg_size = sizeof(struct player),
                                     .options = &player_table,
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

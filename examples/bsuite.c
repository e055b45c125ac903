/* Scores of bsuite: an agent learns an experiment from its first episode to its last, in one
 * setting of it or in all.
 *
 *     ./bsuite dqn catch/0                  a setting, as bsuite calls it
 *     ./bsuite ppo umbrella_length          all of them, and the experiment's score
 *     ./bsuite r2d2 memory_len/13 7 trace=21 period=21
 *                                           with seed 7, and options of the agent
 *     ./bsuite dqn bandit/0 1 loss=c51 value_least=-2 value_most=2
 *                                           so C51, QR-DQN and Munchausen are there, too
 *
 * Agents are all of those that make one choice: dqn, r2d2, ppo, impala, a3c. A score is about all
 * that one actor did, so there is one, with one copy of the environment, and parts take turns: the
 * same seed gives the same score. */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <troupe/troupe.h>

enum { RUNS_MAX = 32, NAME_BYTES = 96 };

/* ---- agents ---------------------------------------------------------------------------------- */

/* The settings of bsuite's own DQN: one without double Q-learning, on squares of errors. But values
 * are of three steps, as Troupe's are: its single steps learn cartpole later, and fall back. And
 * the rate is half of its own, with which it sees later what an umbrella is worth fourteen steps
 * on, behind rewards that are noise. */
static trp_agent dqn(void)
{
    return trp_dqn(&(trp_dqn_options){
        .hidden = {64, 64},
        .no_double = true,
        .learning_rate = 5e-4F,
        .huber_delta = 1e6F,
        .max_gradient_norm = -1,
        .batch_size = 32,
        .samples_per_insert = 32, /* a learner step for each step of the actor */
        .replay_size = 10000,
        .min_replay_size = 100,
        .priority_exponent = -1,
        .target_period = 4,
        .epsilon_start = 0.05F,
        .epsilon_end = 0.05F,
    });
}

/* One copy, so few steps in an update, of which the more the surer. With tanh for relu, or longer
 * traces, some seed missed a column of catch for good; short traces also keep most of the noise on
 * the way out of what the choice of an umbrella is told. Layers that the value shares (.shared) are
 * better at umbrellas, and worse at cartpole. */
static trp_agent ppo(void)
{
    return trp_ppo(&(trp_ppo_options){.hidden = {64, 64},
                                      .activation = TRP_RELU,
                                      .gae_lambda = 0.8F,
                                      .unroll = 256,
                                      .batch_size = 1,
                                      .epochs = 12,
                                      .minibatches = 4,
                                      .learning_rate = 7e-4F,
                                      .value_clip = -1});
}

/* One copy and one sequence an update: it is as near to its actor as an agent can be, so V-trace
 * has nothing to correct. */
static trp_agent impala(void)
{
    return trp_impala(&(trp_impala_options){.hidden = {64, 64},
                                            .activation = TRP_RELU,
                                            .unroll = 5,
                                            .batch_size = 1,
                                            .learning_rate = 2e-3F});
}

/* The same of A2C: one learner. */
static trp_agent a3c(void)
{
    return trp_a3c(&(trp_a3c_options){.hidden = {64, 64},
                                      .activation = TRP_RELU,
                                      .unroll = 5,
                                      .batch_size = 1,
                                      .adam = true,
                                      .learning_rate = 2e-3F});
}

/* An item is an episode of the memory tasks, or a part of a longer one. */
static trp_agent r2d2(void)
{
    return trp_r2d2(&(trp_r2d2_options){
        .hidden = {64},
        .core_size = 64,
        .burn_in = -1,
        .trace = 40,
        .period = 40,
        .n_step = 5,
        .batch_size = 32,
        .samples_per_insert = 32,
        .target_period = 100,
        .replay_size = 5000,
        .min_replay_size = 64,
        .epsilon_start = 0.05F,
        .epsilon_end = 0.05F,
    });
}

static const struct {
    const char *name;
    trp_agent (*make)(void);
    uint64_t sync_every_items; /* of agents that learn from what they just did */
} agents[] = {
    {"dqn", dqn, 0}, {"r2d2", r2d2, 0}, {"ppo", ppo, 1}, {"impala", impala, 1}, {"a3c", a3c, 1},
};

enum { AGENTS = sizeof agents / sizeof agents[0] };

/* ---- one run --------------------------------------------------------------------------------- */

/* What is to be run, and how it went: the nodes are threads of this process. */
static struct {
    char env[NAME_BYTES];
    trp_agent agent;
    uint64_t sync_every_items;
    const trp_bsuite_experiment *experiment;
    trp_bsuite_run run;
} task;

struct player {
    trp_node replay, learner;
};

static trp_status play(trp_context *context, const void *arg)
{
    const struct player *player = arg;
    trp_channel *replay;
    ProtobufCService *params;
    trp_actor *actor;
    TRP_TRY(trp_context_channel(context, player->replay, 0, &replay));
    TRP_TRY(trp_dial(context, player->learner, 0, trp_params_descriptor(), &params));
    trp_agent_actor_options options = {
        .name = trp_context_name(context),
        .env = task.env,
        .replay = replay,
        .params = params,
        .stop = trp_context_stop(context),
        .seed = trp_context_seed(context),
        .max_episodes = (uint64_t)task.experiment->episodes,
        .pull_every_steps = 1, /* as on bsuite's one thread */
        .sync_every_items = task.sync_every_items,
    };
    TRP_TRY(trp_agent_actor_create(&actor, &task.agent, &options));
    trp_status status = trp_actor_run(actor);
    trp_actor_counters counters = trp_actor_read(actor);
    trp_actor_destroy(actor);
    if (status == TRP_OK)
        status = trp_bsuite_read(task.env, counters.metrics, counters.metric_count, &task.run);
    return status;
}

static trp_status run_setting(uint32_t setting, const trp_run_options *options)
{
    snprintf(task.env, sizeof task.env, "bsuite/%s?setting=%" PRIu32, task.experiment->name,
             setting);
    trp_program *program = trp_program_create("bsuite");
    trp_node replay = trp_add_replay(program, "replay",
                                     &(trp_replay_options){.agent = &task.agent, .env = task.env});
    struct player player = {.replay = replay,
                            .learner = trp_add_learner(program, "learner",
                                                       &(trp_learner_options){.agent = &task.agent,
                                                                              .env = task.env,
                                                                              .replay = replay,
                                                                              .publish_every = 1})};
    trp_add_node(program, "player",
                 &(trp_node_options){.run = play,
                                     .arg = &player,
                                     .arg_size = sizeof player,
                                     .uses = &player.replay,
                                     .use_count = 2});
    trp_run_result result;
    trp_status status = trp_run(program, options, &result);
    trp_program_destroy(program);
    return status;
}

/* ---- all runs -------------------------------------------------------------------------------- */

static void print_run(const trp_bsuite_run *run)
{
    const trp_bsuite_experiment *experiment = task.experiment;
    printf("%s/%-3" PRIu32 " %6" PRId64 " episodes, %s %g", experiment->name, run->setting,
           run->episodes, experiment->total, run->total);
    if (experiment->best)
        printf(", %s %g", experiment->best, run->best);
    printf(", score %.4f\n", trp_bsuite_score(experiment, run, 1));
    fflush(stdout);
}

/* Settings from `first` to `last`. */
static trp_status run_all(uint32_t first, uint32_t last, const trp_run_options *options)
{
    trp_bsuite_run runs[RUNS_MAX];
    uint32_t count = 0;
    for (uint32_t setting = first; setting <= last; setting++) {
        TRP_TRY(run_setting(setting, options));
        runs[count++] = task.run;
        print_run(&task.run);
    }
    printf("%s: score %.4f\n", task.experiment->name,
           trp_bsuite_score(task.experiment, runs, count));
    return TRP_OK;
}

static trp_status choose_agent(const char *name)
{
    for (size_t i = 0; i < AGENTS; i++) {
        if (strcmp(agents[i].name, name) != 0)
            continue;
        task.agent = agents[i].make();
        task.sync_every_items = agents[i].sync_every_items;
        return TRP_OK;
    }
    char names[NAME_BYTES] = "";
    for (size_t i = 0; i < AGENTS; i++)
        snprintf(names + strlen(names), sizeof names - strlen(names), " %s", agents[i].name);
    return trp_fail(TRP_NOT_FOUND, "no agent '%s'; there are:%s", name, names);
}

static trp_status choose_seed(const char *text, uint64_t *seed)
{
    char *end;
    errno = 0;
    *seed = strtoull(text, &end, 10);
    if (*text < '1' || *text > '9' || *end || errno != 0)
        return trp_fail(TRP_INVALID_ARGUMENT, "the seed '%s' is not a whole number above 0", text);
    return TRP_OK;
}

/* NAME=VALUE: an option of the agent. */
static trp_status set_option(char *text)
{
    char *value = strchr(text, '=');
    if (!value)
        return trp_fail(TRP_INVALID_ARGUMENT, "'%s' is no NAME=VALUE", text);
    *value++ = '\0';
    return trp_options_set(task.agent.impl->options, task.agent.options.bytes, text, value);
}

/* EXPERIMENT or EXPERIMENT/SETTING. */
static trp_status choose_settings(char *text, uint32_t *first, uint32_t *last)
{
    char *slash = strchr(text, '/'), *end = NULL;
    if (slash)
        *slash++ = '\0';
    TRP_TRY(trp_bsuite_find(text, &task.experiment));
    *first = 0;
    *last = task.experiment->settings - 1;
    if (!slash)
        return TRP_OK;
    unsigned long setting = strtoul(slash, &end, 10);
    if (end == slash || *end || setting > *last)
        return trp_fail(TRP_INVALID_ARGUMENT, "%s has settings 0 to %" PRIu32 ", not '%s'", text,
                        *last, slash);
    *first = *last = (uint32_t)setting;
    return TRP_OK;
}

int main(int argc, char **argv)
{
    if (argc < 3) {
        fprintf(stderr, "usage: bsuite AGENT EXPERIMENT[/SETTING] [SEED [NAME=VALUE...]]\n");
        return 2;
    }
    uint32_t first, last;
    trp_run_options options = {.deterministic = true, .seed = 1};
    trp_status status = choose_agent(argv[1]);
    if (status == TRP_OK && argc > 3)
        status = choose_seed(argv[3], &options.seed);
    for (int i = 4; status == TRP_OK && i < argc; i++)
        status = set_option(argv[i]);
    if (status == TRP_OK)
        status = choose_settings(argv[2], &first, &last);
    if (status == TRP_OK)
        status = run_all(first, last, &options);
    if (status == TRP_OK)
        return 0;
    fprintf(stderr, "bsuite: %s\n", trp_last_error());
    return 1;
}

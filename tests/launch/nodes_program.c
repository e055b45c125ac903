/* A program for tests of the built-in nodes: DQN on a game of one step, and a scenario (the
 * argument after "--") that decides what goes wrong. */
#include <fcntl.h>
#include <inttypes.h>
#include <math.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <troupe/troupe.h>
#include "core/alloc.h"
#include "core/log.h"

enum { TROUBLE_EPISODE = 50 };

static const char *scenario = "plays";
static const char *process_node;  /* whose process this is; NULL: that of all of them */
static _Atomic uint32_t episodes; /* of this process */

static bool is(const char *name)
{
    return strcmp(scenario, name) == 0;
}

/* ---- the game: say which side of the coin is shown ---------------------------------------- */

struct coin {
    int32_t side;
};

/* "NODE NUMBER" to the file draws: what nodes draw can be compared. */
static void note_draw(uint64_t draw)
{
    char line[128];
    int size = snprintf(line, sizeof line, "%s %016" PRIx64 "\n", log_origin_get().node, draw);
    int fd = open("draws", O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
    if (fd < 0 || write(fd, line, (size_t)size) != size)
        abort();
    close(fd);
}

static trp_status coin_reset(void *state, trp_rng *rng)
{
    uint64_t draw = trp_rng_u64(rng);
    ((struct coin *)state)->side = draw & 1;
    if (is("draws"))
        note_draw(draw);
    return TRP_OK;
}

/* Once in a run, and never an evaluator. */
static bool stumbles(void)
{
    if ((!is("stumbles") && !is("stumbles_alone")) || episodes < TROUBLE_EPISODE ||
        strcmp(process_node ? process_node : log_origin_get().node, "actor/0") != 0)
        return false;
    int fd = open("stumbled", O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (fd >= 0)
        close(fd);
    return fd >= 0;
}

static trp_status coin_step(void *state, trp_rng *rng, const void *action, trp_env_outcome *outcome)
{
    const struct coin *coin = state;
    (void)rng;
    outcome->reward = coin->side == *(const int32_t *)action;
    outcome->terminated = true;
    if (is("talks"))
        trp_log(TRP_INFO, "the coin shows side=%d", (int)coin->side);
    if (access("lose-it", F_OK) == 0)
        return trp_fail(TRP_DATA_LOSS, "the coin is lost");
    if (stumbles())
        return trp_fail(TRP_DATA_LOSS, "the coin rolls away");
    if (++episodes != TROUBLE_EPISODE)
        return TRP_OK;
    if (is("pays_nan"))
        outcome->reward = NAN;
    if (is("exits"))
        exit(0);
    return TRP_OK;
}

static void coin_observe(const void *state, void *const *observations)
{
    *(float *)observations[0] = (float)((const struct coin *)state)->side;
}

static const trp_env_impl coin_impl = {
    .spec = {.name = "Coin",
             .observations = {{.name = "side", .dtype = TRP_FLOAT32, .rank = 1, .shape = {1}}},
             .action_kind = TRP_ACTION_DISCRETE,
             .action_count = 2},
    .state_bytes = sizeof(struct coin),
    .reset = coin_reset,
    .step = coin_step,
    .observe = coin_observe,
};

/* ---- a node that fills many tables --------------------------------------------------------- */

enum { TABLES = 6 };

static const char *const tables[TABLES] = {"t0", "t1", "t2", "t3", "t4", "t5"};
static trp_node store;

static trp_status filler_run(trp_context *context, const void *arg)
{
    static const trp_tensor_spec number = {.name = "number", .dtype = TRP_INT32};
    static const trp_item_column column = {.age = 0, .length = 1};
    trp_channel *channel;
    trp_writer *writer;
    (void)arg;
    TRP_TRY(trp_context_channel(context, store, 0, &channel));
    TRP_TRY(trp_writer_create(
        &writer, channel,
        &(trp_writer_options){.columns = &number, .column_count = 1, .history = 1}));
    int32_t step = 1;
    trp_status status = trp_writer_append(writer, (const void *const[]){&step});
    for (size_t i = 0; status == TRP_OK && i < TABLES; i++)
        status = trp_writer_create_item(writer, tables[i], 1, &column, 1, 30000, NULL);
    if (status == TRP_OK)
        status = trp_writer_end_episode(writer, false, 30000);
    trp_writer_destroy(writer);
    if (status == TRP_OK)
        trp_stop_wait(trp_context_stop(context), -1);
    return status;
}

/* Tells its index, and a member of the group something that the other does not. */
static trp_status counter_run(trp_context *context, const void *arg)
{
    uint32_t index = trp_context_index(context);
    (void)arg;
    trp_context_report(context, "index", index);
    if (index == 1)
        trp_context_report(context, "lines_read", 1234);
    trp_stop_wait(trp_context_stop(context), -1);
    return TRP_OK;
}

static void build_filler(trp_program *program)
{
    trp_table_options options[TABLES] = {0};
    for (size_t i = 0; i < TABLES; i++)
        options[i] = (trp_table_options){.name = tables[i], .max_size = 10};
    store = trp_add_replay(program, "store",
                           &(trp_replay_options){.tables = options, .table_count = TABLES});
    trp_add_node(program, "filler",
                 &(trp_node_options){.run = filler_run, .uses = &store, .use_count = 1});
    trp_add_node(program, "counter", &(trp_node_options){.run = counter_run, .count = 2});
}

/* ---- parameters larger than a message ------------------------------------------------------- */

enum { LARGE = 100 << 18, LARGE_VERSIONS = 2 }; /* floats: 100 MiB */
static trp_node giver;

/* Version v is a vector of v, and there is a next one every few milliseconds. */
static trp_status giver_run(trp_context *context, const void *arg)
{
    trp_publisher *publisher = trp_publisher_create(LARGE);
    float *params = trp_floats_create(LARGE);
    uint64_t version = 0;
    (void)arg;
    trp_status status = trp_context_serve(context, trp_publisher_service(publisher), NULL);
    while (status == TRP_OK && !trp_stop_wait(trp_context_stop(context), 5)) {
        version++;
        for (size_t i = 0; i < LARGE; i++)
            params[i] = (float)version;
        trp_publisher_publish(publisher, params, version, 0);
    }
    trp_floats_destroy(params);
    if (trp_context_withdraw(context, status))
        trp_publisher_destroy(publisher);
    return status;
}

static trp_status take_version(trp_context *context, trp_params_client *client)
{
    bool newer = false;
    while (!newer && !trp_stop_requested(trp_context_stop(context)))
        TRP_TRY(trp_params_client_pull(client, 0, 0, &newer));
    trp_params_state state = trp_params_client_state(client);
    for (size_t i = 0; i < state.count; i++)
        if (state.count != LARGE || state.params[i] != (float)state.version)
            return trp_fail(TRP_DATA_LOSS, "parameter %zu of %zu is not %" PRIu64, i, state.count,
                            state.version);
    return TRP_OK;
}

static trp_status taker_run(trp_context *context, const void *arg)
{
    trp_params_client *client;
    (void)arg;
    TRP_TRY(trp_context_params(context, giver, 0, &client));
    trp_status status = trp_params_client_wait(client, 60000);
    for (int i = 0; i < LARGE_VERSIONS && status == TRP_OK; i++)
        status = take_version(context, client);
    if (status == TRP_OK)
        trp_context_stop_program(context, true, "large versions were taken");
    return status;
}

static void build_large(trp_program *program)
{
    static const ProtobufCServiceDescriptor *serves[2];
    serves[0] = trp_params_descriptor();
    giver = trp_add_node(program, "giver",
                         &(trp_node_options){.run = giver_run, .serves = serves, .serve_count = 1});
    trp_add_node(program, "taker",
                 &(trp_node_options){.run = taker_run, .uses = &giver, .use_count = 1});
}

/* ---- a node with options of its own -------------------------------------------------------- */

struct telling {
    uint32_t rounds;
    float rate;
    uint32_t widths[3];
    const char *title;
};

static const trp_option telling_rows[] = {
    {TRP_OPTION(struct telling, rounds), .fallback = "3", .min = 1, .max = 9, .help = "to play"},
    {TRP_OPTION(struct telling, rate), .fallback = "0.1", .max = 1, .help = "of success"},
    {TRP_OPTION(struct telling, widths), .fallback = "2", .help = "of three", .fixed = true},
    {TRP_OPTION(struct telling, title), .help = "of the game"},
};
static const trp_option_table telling_table =
    TRP_OPTION_TABLE("telling", telling_rows, struct telling);

/* Its options and seed to RUN_DIR/told. */
static trp_status teller_run(trp_context *context, const void *arg)
{
    const struct telling *options = arg;
    char path[4096];
    snprintf(path, sizeof path, "%s/told", trp_context_run_dir(context));
    FILE *file = fopen(path, "ae");
    if (!file)
        abort();
    fprintf(file, "rounds=%u rate=%a widths=%u,%u,%u title=%s seed=%" PRIu64 "\n", options->rounds,
            (double)options->rate, options->widths[0], options->widths[1], options->widths[2],
            options->title ? options->title : "(none)", trp_context_seed(context));
    fclose(file);
    return TRP_OK;
}

/* ---- who calls a learner that fails ------------------------------------------------------- */

static trp_node teacher;

/* In the run's directory; caller frees. */
static char *in_run_dir(const trp_context *context, const char *name)
{
    return xasprintf("%s/%s", trp_context_run_dir(context), name);
}

static void make_empty_file(const char *path)
{
    int fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0666);
    if (fd < 0)
        abort();
    close(fd);
}

static trp_status dial_teacher(trp_context *context)
{
    ProtobufCService *service;
    return trp_dial(context, teacher, 0, trp_params_descriptor(), &service);
}

/* Takes the learner's checkpoints away, and does not stop when it is told to. */
static trp_status deaf_run(trp_context *context, const void *arg)
{
    char *saved = in_run_dir(context, "learner"), *away = in_run_dir(context, "away");
    char *asked = in_run_dir(context, "asked");
    (void)arg;
    TRP_TRY(dial_teacher(context));
    if (rename(saved, away) != 0)
        abort();
    make_empty_file(saved);
    trp_stop_wait(trp_context_stop(context), -1);
    make_empty_file(asked);
    for (;;)
        poll(NULL, 0, 1000);
}

/* Comes while the learner is withdrawn. */
static trp_status late_run(trp_context *context, const void *arg)
{
    char *asked = in_run_dir(context, "asked");
    (void)arg;
    for (int looks = 0; access(asked, F_OK) != 0 && looks < 6000; looks++)
        poll(NULL, 0, 5);
    free(asked);
    return dial_teacher(context);
}

static void add_callers(trp_program *program, trp_node learner)
{
    teacher = learner;
    trp_add_node(program, "deaf",
                 &(trp_node_options){.run = deaf_run, .uses = &teacher, .use_count = 1});
    trp_add_node(program, "late",
                 &(trp_node_options){.run = late_run, .uses = &teacher, .use_count = 1});
}

/* ---- graph -------------------------------------------------------------------------------- */

static trp_status build(trp_program *program, int argc, char **argv)
{
    if (argc > 1)
        scenario = argv[1];
    if (is("tells")) {
        trp_add_node(program, "teller",
                     &(trp_node_options){.run = teller_run,
                                         .arg = &(struct telling){.title = "go"},
                                         .arg_size = sizeof(struct telling),
                                         .options = &telling_table});
        return TRP_OK;
    }
    if (is("gives_large")) {
        build_large(program);
        return TRP_OK;
    }
    if (is("fills_tables")) {
        build_filler(program);
        return TRP_OK;
    }
    /* Of 8 hidden ones all are dead from the beginning in one run of a thousand. */
    trp_agent agent = trp_dqn(&(trp_dqn_options){.n_step = 1,
                                                 .hidden = {32},
                                                 .batch_size = 16,
                                                 .learning_rate = 1e-2F,
                                                 .epsilon_steps = 200,
                                                 .samples_per_insert = 4,
                                                 .min_replay_size = 64});
    trp_actor_options acting = {.agent = &agent, .env = "Coin", .episodes = 20};
    acting.replay = trp_add_replay(program, "replay", &(trp_replay_options){.agent = &agent});
    acting.params = trp_add_learner(
        program, "learner", &(trp_learner_options){.agent = &agent, .replay = acting.replay});
    trp_add_actors(program, "actor", 1, &acting);
    if (is("stumbles_alone"))
        return TRP_OK;
    trp_add_actors(program, "collector", 1, &acting);
    trp_add_evaluator(program, "evaluator", &acting);
    trp_add_evaluator(program, "examiner", &acting);
    if (is("fails_to_the_deaf"))
        add_callers(program, acting.params);
    return TRP_OK;
}

int main(int argc, char **argv)
{
    for (int i = 1; i < argc; i++)
        if (strncmp(argv[i], "--node=", 7) == 0)
            process_node = argv[i] + 7;
    if (trp_env_register(&coin_impl) != TRP_OK)
        return 1;
    return trp_main(argc, argv, "coin", build);
}

/* trp_run(): programs inside this test, one after the other. */
#include <math.h>
#include <poll.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include <troupe/troupe.h>
#include "core/alloc.h"

struct scratch {
    char dir[32];
    char *run; /* below it */
};

static int setup(void **state)
{
    struct scratch *scratch = xcalloc(1, sizeof *scratch);
    strcpy(scratch->dir, "/tmp/test_embedded.XXXXXX");
    assert_non_null(mkdtemp(scratch->dir));
    scratch->run = xasprintf("%s/run", scratch->dir);
    *state = scratch;
    return 0;
}

static int teardown(void **state)
{
    struct scratch *scratch = *state;
    char *command = xasprintf("rm -rf %s", scratch->dir);
    assert_int_equal(system(command), 0);
    free(command);
    free(scratch->run);
    free(scratch);
    return 0;
}

/* The bytes of a file; the caller frees them. */
static trp_bytes read_whole(const char *path)
{
    FILE *file = fopen(path, "rb");
    assert_non_null(file);
    assert_int_equal(fseek(file, 0, SEEK_END), 0);
    long size = ftell(file);
    assert_true(size > 0);
    rewind(file);
    uint8_t *data = xcalloc((size_t)size, 1);
    assert_int_equal(fread(data, 1, (size_t)size, file), size);
    fclose(file);
    return (trp_bytes){data, (size_t)size};
}

static trp_program *catch_program_of(trp_agent agent, uint32_t shards)
{
    trp_program *program = trp_program_create("catch");
    trp_node replay =
        trp_add_replay(program, "replay", &(trp_replay_options){.agent = &agent, .shards = shards});
    trp_node learner = trp_add_learner(program, "learner",
                                       &(trp_learner_options){.agent = &agent, .replay = replay});
    trp_add_actors(
        program, "actor", 2,
        &(trp_actor_options){.agent = &agent, .env = "Catch", .replay = replay, .params = learner});
    return program;
}

static trp_program *catch_program(uint32_t shards)
{
    return catch_program_of(trp_dqn(&(trp_dqn_options){.hidden = {8}, .min_replay_size = 64}),
                            shards);
}

static void a_program_runs_inside_a_test_and_goes_on(void **state)
{
    struct scratch *scratch = *state;
    const char *first[] = {"learner.max_steps=20"}, *second[] = {"learner.max_steps=50"};
    trp_run_options options = {.run_dir = scratch->run, .sets = first, .set_count = 1, .seed = 1};
    trp_run_result result;
    trp_program *program = catch_program(1);
    assert_int_equal(trp_run(program, &options, &result), TRP_OK);
    assert_string_equal(result.reason, "learner/0: 20 learner steps done");
    trp_program_destroy(program);

    program = catch_program(1);
    options.resume = true;
    options.sets = second;
    assert_int_equal(trp_run(program, &options, &result), TRP_OK);
    assert_string_equal(result.reason, "learner/0: 50 learner steps done");
    trp_program_destroy(program);
    char *path = NULL, *learner = xasprintf("%s/learner", result.run_dir);
    assert_int_equal(trp_learner_checkpoint_find(learner, &path), TRP_OK);
    assert_non_null(strstr(path, "00050.safetensors"));
    free(learner);
    free(path);
}

static void what_nodes_log_is_in_logs_and_not_on_standard_error(void **state)
{
    struct scratch *scratch = *state;
    const char *sets[] = {"learner.max_steps=20"};
    trp_run_options options = {.run_dir = scratch->run, .sets = sets, .set_count = 1};
    trp_program *program = catch_program(1);
    char *log = xasprintf("%s/logs/learner-0.log", scratch->run);
    FILE *errors = tmpfile();
    assert_non_null(errors);
    int kept = dup(STDERR_FILENO);
    assert_int_equal(dup2(fileno(errors), STDERR_FILENO), STDERR_FILENO);
    trp_log_set_level(TRP_INFO);
    trp_status status = trp_run(program, &options, NULL);
    trp_log_set_level(TRP_ERROR);
    assert_int_equal(dup2(kept, STDERR_FILENO), STDERR_FILENO);
    close(kept);
    assert_int_equal(status, TRP_OK);
    char text[4096] = "";
    rewind(errors);
    text[fread(text, 1, sizeof text - 1, errors)] = '\0';
    fclose(errors);
    assert_null(strstr(text, " info "));
    trp_bytes logged = read_whole(log);
    assert_non_null(memmem(logged.data, logged.size, " info ", strlen(" info ")));
    free((void *)logged.data);
    free(log);
    trp_program_destroy(program);
}

/* ---- rollouts -----------------------------------------------------------------------------------
 */

/* Two learners that step environments themselves, and the checkpoint of each. */
static void run_rollouts(const struct scratch *scratch, uint64_t seed, trp_bytes checkpoints[2])
{
    trp_run_options options = {.run_dir = scratch->run, .seed = seed, .deterministic = true};
    trp_run_result result;
    trp_program *program = trp_program_create("rollouts");
    trp_agent agent = trp_dqn(&(trp_dqn_options){.hidden = {8}, .n_step = 2});
    trp_learner_options learner = {.agent = &agent, .env = "Catch", .envs = 3, .max_steps = 40};
    trp_add_learner(program, "left", &learner);
    trp_add_learner(program, "right", &learner);
    if (trp_run(program, &options, &result) != TRP_OK)
        fail_msg("%s", trp_last_error());
    trp_program_destroy(program);
    for (size_t i = 0; i < 2; i++) {
        char *path, *dir = xasprintf("%s/%s", result.run_dir, i ? "right" : "left");
        assert_int_equal(trp_learner_checkpoint_find(dir, &path), TRP_OK);
        checkpoints[i] = read_whole(path);
        free(path);
        free(dir);
    }
    char *command = xasprintf("rm -rf %s", scratch->run);
    assert_int_equal(system(command), 0);
    free(command);
}

static bool same_bytes(trp_bytes a, trp_bytes b)
{
    return a.size == b.size && memcmp(a.data, b.data, a.size) == 0;
}

static void deterministic_learners_that_act_repeat_bit_for_bit(void **state)
{
    trp_bytes first[2], again[2], other[2];
    run_rollouts(*state, 5, first);
    run_rollouts(*state, 5, again);
    run_rollouts(*state, 6, other);
    for (size_t i = 0; i < 2; i++) {
        assert_true(same_bytes(first[i], again[i]));
        assert_false(same_bytes(first[i], other[i]));
        free((void *)first[i].data);
        free((void *)again[i].data);
        free((void *)other[i].data);
    }
}

/* ---- offline ------------------------------------------------------------------------------------
 */

static trp_status learn_offline(const struct scratch *scratch, const char *dataset,
                                trp_run_result *result)
{
    char *run_dir = xasprintf("%s/offline", scratch->dir);
    trp_program *program = trp_program_create("offline");
    trp_agent agent = trp_dqn(&(trp_dqn_options){.hidden = {8}});
    trp_add_learner(program, "learner",
                    &(trp_learner_options){
                        .agent = &agent, .env = "Catch", .dataset = dataset, .dataset_epochs = 2});
    trp_status status = trp_run(program, &(trp_run_options){.run_dir = run_dir}, result);
    trp_program_destroy(program);
    free(run_dir);
    return status;
}

/* A run of a few steps in the scratch's directory. */
static void learn_catch(const struct scratch *scratch, trp_run_result *result)
{
    const char *sets[] = {"learner.max_steps=20"};
    const trp_run_options options = {
        .run_dir = scratch->run, .sets = sets, .set_count = 1, .seed = 1};
    trp_program *program = catch_program(1);
    assert_int_equal(trp_run(program, &options, result), TRP_OK);
    trp_program_destroy(program);
}

static void a_learner_without_actors_learns_from_what_a_run_stored(void **state)
{
    struct scratch *scratch = *state;
    trp_run_result result;
    learn_catch(scratch, &result);
    char *dataset = xasprintf("%s/replay", result.run_dir);
    trp_run_result refused;
    assert_int_equal(learn_offline(scratch, result.run_dir, &refused), TRP_INVALID_ARGUMENT);
    assert_non_null(strstr(trp_last_error(), "a run and no replay store; its store is "));
    assert_non_null(strstr(trp_last_error(), dataset));
    char *no_store = xasprintf("%s/learner", result.run_dir);
    assert_int_equal(learn_offline(scratch, no_store, &refused), TRP_INVALID_ARGUMENT);
    assert_non_null(strstr(trp_last_error(), "learner, in which there is no replay store"));
    free(no_store);
    assert_int_equal(learn_offline(scratch, dataset, &result), TRP_OK);
    assert_non_null(strstr(result.reason, " learner steps done"));
    char *path = NULL, *learner = xasprintf("%s/learner", result.run_dir);
    assert_int_equal(trp_learner_checkpoint_find(learner, &path), TRP_OK);
    free(learner);
    free(path);
    free(dataset);
}

static void a_dataset_that_is_not_there_ends_the_run(void **state)
{
    struct scratch *scratch = *state;
    trp_run_result result;
    assert_int_equal(learn_offline(scratch, "/tmp/no-store-here", &result), TRP_NOT_FOUND);
    assert_non_null(strstr(trp_last_error(), "/tmp/no-store-here"));
}

/* ---- shards -------------------------------------------------------------------------------------
 */

static trp_node sharded;

/* Until both shards have items that were sampled; then the program ends. */
static trp_status watch_shards(trp_context *context, const void *arg)
{
    (void)arg;
    for (uint32_t shard = 0; shard < 2;) {
        trp_channel *channel;
        trp_table_info info = {.samples = 0};
        size_t count;
        TRP_TRY(trp_context_channel(context, sharded, shard, &channel));
        TRP_TRY(trp_replay_info(channel, &info, 1, &count, 10000));
        shard += info.size > 0 && info.samples > 0;
        if (trp_stop_wait(trp_context_stop(context), 5))
            return TRP_OK;
    }
    trp_context_stop_program(context, true, "both shards were sampled");
    return TRP_OK;
}

static void actors_write_to_all_shards_and_a_learner_samples_from_all(void **state)
{
    struct scratch *scratch = *state;
    trp_run_options options = {.run_dir = scratch->run, .seed = 1, .max_seconds = 50};
    trp_run_result result;
    trp_program *program = catch_program(2);
    sharded = (trp_node){1};
    trp_add_node(program, "watch",
                 &(trp_node_options){.run = watch_shards, .uses = &sharded, .use_count = 1});
    assert_int_equal(trp_run(program, &options, &result), TRP_OK);
    assert_string_equal(result.reason, "watch/0: both shards were sampled");
    trp_program_destroy(program);
    for (int shard = 0; shard < 2; shard++) {
        char *dir = xasprintf("%s/replay.%d", result.run_dir, shard);
        trp_replay_report report;
        assert_int_equal(trp_replay_verify(dir, &report), TRP_OK);
        assert_true(report.items > 0);
        trp_replay_report_cleanup(&report);
        free(dir);
    }
}

static void shards_have_an_address_each(void **state)
{
    (void)state;
    trp_program *program = trp_program_create("sharded");
    trp_table_options table = {.name = "t", .max_size = 1};
    trp_replay_options options = {
        .tables = &table, .table_count = 1, .shards = 3, .address = "localhost:7777"};
    trp_add_replay(program, "replay", &options);
    assert_int_equal(trp_run(program, NULL, NULL), TRP_INVALID_ARGUMENT);
    assert_non_null(strstr(trp_last_error(), "replay 'replay': .address is set: 3 shards cannot "
                                             "all listen at localhost:7777"));
    trp_program_destroy(program);
}

static trp_status fail_at_once(trp_context *context, const void *arg)
{
    (void)arg;
    trp_context_report(context, "held", 7);
    return trp_fail(TRP_DATA_LOSS, "%s lost it", trp_context_name(context));
}

static void the_first_failure_is_the_status(void **state)
{
    struct scratch *scratch = *state;
    trp_program *program = trp_program_create("failing");
    trp_add_node(program, "clumsy", &(trp_node_options){.run = fail_at_once});
    trp_run_result result;
    assert_int_equal(trp_run(program, &(trp_run_options){.run_dir = scratch->run}, &result),
                     TRP_DATA_LOSS);
    assert_string_equal(trp_last_error(), "clumsy/0: clumsy/0 lost it");
    assert_string_equal(result.reason, trp_last_error());
    trp_program_destroy(program);
    char *metrics = xasprintf("%s/metrics.csv", result.run_dir);
    trp_bytes rows = read_whole(metrics);
    assert_non_null(memmem(rows.data, rows.size, "clumsy/0,held,7", 15));
    free((void *)rows.data);
    free(metrics);
}

static trp_status fail_without_words(trp_context *context, const void *arg)
{
    (void)context;
    (void)arg;
    trp_status forgotten = trp_fail(TRP_UNAVAILABLE, "somebody was away");
    return forgotten == TRP_UNAVAILABLE ? TRP_INTERNAL : TRP_OK;
}

static void a_failure_without_words_is_not_given_those_of_another(void **state)
{
    struct scratch *scratch = *state;
    trp_program *program = trp_program_create("failing");
    trp_add_node(program, "mute", &(trp_node_options){.run = fail_without_words});
    assert_int_equal(trp_run(program, &(trp_run_options){.run_dir = scratch->run}, NULL),
                     TRP_INTERNAL);
    assert_string_equal(trp_last_error(),
                        "mute/0: it returned INTERNAL, and no trp_fail() said why; the last words "
                        "were: somebody was away");
    trp_program_destroy(program);
}

/* Whether every row of a table has as many commas as its first. */
static bool rows_are_whole(const char *path)
{
    trp_bytes text = read_whole(path);
    size_t commas = 0, wanted = 0;
    bool whole = text.data[text.size - 1] == '\n';
    for (size_t i = 0; i < text.size && whole; i++) {
        commas += text.data[i] == ',';
        if (text.data[i] != '\n')
            continue;
        wanted = wanted ? wanted : commas;
        whole = commas == wanted;
        commas = 0;
    }
    free((void *)text.data);
    return whole;
}

static void a_row_that_a_full_disk_cut_short_is_not_the_beginning_of_another(void **state)
{
    struct scratch *scratch = *state;
    trp_program *program = trp_program_create("failing");
    trp_add_node(program, "clumsy", &(trp_node_options){.run = fail_at_once});
    trp_run_options options = {.run_dir = scratch->run};
    assert_int_equal(trp_run(program, &options, NULL), TRP_DATA_LOSS);
    char *path = xasprintf("%s/metrics.csv", scratch->run);
    FILE *metrics = fopen(path, "a");
    assert_non_null(metrics);
    assert_true(fputs("1795434555.688,clumsy/0,he", metrics) >= 0);
    fclose(metrics);
    assert_false(rows_are_whole(path));
    options.resume = true;
    assert_int_equal(trp_run(program, &options, NULL), TRP_DATA_LOSS);
    assert_true(rows_are_whole(path));
    free(path);
    trp_program_destroy(program);
}

static void a_run_that_cannot_begin_says_why(void **state)
{
    (void)state;
    trp_run_options options = {.run_dir = "/proc/nowhere/run"};
    trp_run_result result;
    trp_program *program = trp_program_create("failing");
    trp_add_node(program, "clumsy", &(trp_node_options){.run = fail_at_once});
    assert_int_not_equal(trp_run(program, &options, &result), TRP_OK);
    assert_string_equal(result.reason, trp_last_error());
    assert_non_null(strstr(result.reason, "/proc/nowhere"));
    trp_program_destroy(program);
}

static void a_run_directory_without_a_name_is_refused(void **state)
{
    (void)state;
    trp_program *program = trp_program_create("failing");
    trp_add_node(program, "clumsy", &(trp_node_options){.run = fail_at_once});
    assert_int_equal(trp_run(program, &(trp_run_options){.run_dir = ""}, NULL),
                     TRP_INVALID_ARGUMENT);
    assert_string_equal(trp_last_error(), "the name of the run directory is empty");
    trp_program_destroy(program);
}

static trp_status end_at_once(trp_context *context, const void *arg)
{
    (void)context, (void)arg;
    return TRP_OK;
}

/* It is the caller's, who may give it another name when it is whole. */
static void a_run_in_a_directory_that_is_given_leaves_latest_alone(void **state)
{
    struct scratch *scratch = *state;
    char *runs = xasprintf("%s/runs", scratch->dir), *latest = xasprintf("%s/latest", runs);
    char *inside = xasprintf("%s/data.half", runs), *first, *second;
    trp_run_result result;
    assert_int_equal(setenv("TROUPE_RUNS", runs, 1), 0);
    trp_program *program = trp_program_create("brief");
    trp_add_node(program, "brief", &(trp_node_options){.run = end_at_once});
    assert_int_equal(trp_run(program, NULL, &result), TRP_OK);
    first = realpath(latest, NULL);
    assert_string_equal(first, result.run_dir);
    assert_int_equal(trp_run(program, &(trp_run_options){.run_dir = inside}, &result), TRP_OK);
    assert_string_equal(result.run_dir, inside);
    second = realpath(latest, NULL);
    assert_string_equal(second, first);
    trp_program_destroy(program);
    assert_int_equal(unsetenv("TROUPE_RUNS"), 0);
    free(second);
    free(first);
    free(inside);
    free(latest);
    free(runs);
}

static void a_wrong_graph_or_option_is_refused(void **state)
{
    struct scratch *scratch = *state;
    const char *sets[] = {"learner.max_stepz=20"};
    trp_run_options options = {.run_dir = scratch->run, .sets = sets, .set_count = 1};
    trp_program *program = catch_program(1);
    assert_int_equal(trp_run(program, &options, NULL), TRP_INVALID_ARGUMENT);
    assert_non_null(strstr(trp_last_error(), "did you mean 'max_steps'"));
    trp_program_destroy(program);
    program = trp_program_create("empty");
    assert_int_equal(trp_run(program, &(trp_run_options){.max_seconds = NAN}, NULL),
                     TRP_INVALID_ARGUMENT);
    assert_int_equal(trp_run(program, NULL, NULL), TRP_INVALID_ARGUMENT);
    trp_program_destroy(program);
}

/* ---- a store of one's own -------------------------------------------------------------------- */

static trp_node store;

/* Reverb's Checkpoint, then the program ends. */
static trp_status take_checkpoint(trp_context *context, const void *arg)
{
    trp_channel *channel;
    trp_stream *stream;
    trp_message *reply = NULL;
    (void)arg;
    TRP_TRY(trp_context_channel(context, store, 0, &channel));
    TRP_TRY(trp_stream_open(&stream, channel, "/deepmind.reverb.ReverbService/Checkpoint", NULL));
    trp_status status = trp_stream_send(stream, trp_message_create(0), 10000);
    if (status == TRP_OK)
        status = trp_stream_receive(stream, &reply, 30000);
    trp_message_destroy(reply);
    trp_stream_destroy(stream);
    trp_context_stop_program(context, status == TRP_OK, "checkpoint taken");
    return status;
}

static trp_status insert_one(trp_context *context, const void *arg)
{
    static const trp_tensor_spec number = {.name = "number", .dtype = TRP_INT32};
    static const trp_item_column column = {.length = 1};
    trp_writer_options options = {.columns = &number, .column_count = 1, .history = 1};
    trp_channel *channel;
    trp_writer *writer;
    int32_t step = 1;
    TRP_TRY(trp_context_channel(context, store, 0, &channel));
    TRP_TRY(trp_writer_create(&writer, channel, &options));
    trp_status status = trp_writer_append(writer, (const void *const[]){&step});
    if (status == TRP_OK)
        status = trp_writer_create_item(writer, "t", 1, &column, 1, 10000, NULL);
    if (status == TRP_OK)
        status = trp_writer_flush(writer, 0, 10000);
    trp_writer_destroy(writer);
    return status == TRP_OK ? take_checkpoint(context, arg) : status;
}

/* Items in the store at `dir` after a run whose only user is `body`. */
static uint64_t items_after(struct scratch *scratch, const char *run, trp_node_body body,
                            const trp_replay_options *replay)
{
    trp_table_options table = {.name = "t", .max_size = 10};
    trp_replay_options options = *replay;
    options.tables = &table;
    options.table_count = 1;
    trp_program *program = trp_program_create("keeper");
    store = trp_add_replay(program, "store", &options);
    trp_add_node(program, "user", &(trp_node_options){.run = body, .uses = &store, .use_count = 1});
    char *run_dir = xasprintf("%s/%s", scratch->dir, run);
    trp_run_result result;
    assert_int_equal(trp_run(program, &(trp_run_options){.run_dir = run_dir}, &result), TRP_OK);
    assert_string_equal(result.reason, "user/0: checkpoint taken");
    trp_program_destroy(program);
    free(run_dir);
    trp_replay_report report;
    assert_int_equal(trp_replay_verify(options.dir, &report), TRP_OK);
    uint64_t items = report.items;
    trp_replay_report_cleanup(&report);
    return items;
}

static void a_store_outlives_its_run_and_is_restored(void **state)
{
    struct scratch *scratch = *state;
    char *first = xasprintf("%s/first", scratch->dir),
         *second = xasprintf("%s/second", scratch->dir);
    trp_replay_options replay = {.dir = first};
    assert_int_equal(items_after(scratch, "a", insert_one, &replay), 1);
    assert_int_equal(items_after(scratch, "b", insert_one, &replay), 2);
    char *root = xasprintf("%s/checkpoints", first);
    char *checkpoint = trp_replay_newest_checkpoint(root);
    assert_non_null(checkpoint);
    assert_int_equal(items_after(scratch, "c", insert_one, &replay), 3);
    replay = (trp_replay_options){.dir = second, .restore = checkpoint};
    assert_int_equal(items_after(scratch, "d", take_checkpoint, &replay), 2);
    assert_int_equal(items_after(scratch, "e", insert_one, &replay), 3); /* not restored again */
    free(checkpoint);
    free(root);
    free(first);
    free(second);
}

static void on_signal(int signal)
{
    (void)signal;
}

static trp_status wait_for_stop(trp_context *context, const void *arg)
{
    (void)arg;
    trp_stop_wait(trp_context_stop(context), -1);
    return TRP_OK;
}

static void signals_stay_the_callers(void **state)
{
    struct scratch *scratch = *state;
    struct sigaction mine = {.sa_handler = on_signal}, after;
    sigset_t before_mask, after_mask;
    sigaction(SIGTERM, &mine, NULL);
    sigprocmask(SIG_BLOCK, NULL, &before_mask);
    trp_program *program = trp_program_create("short");
    trp_add_node(program, "waiter", &(trp_node_options){.run = wait_for_stop});
    trp_run_result result;
    trp_run_options options = {.run_dir = scratch->run, .max_seconds = 0.05};
    assert_int_equal(trp_run(program, &options, &result), TRP_OK);
    assert_string_equal(result.reason, "0.05 seconds are over");
    trp_program_destroy(program);
    sigaction(SIGTERM, NULL, &after);
    sigprocmask(SIG_BLOCK, NULL, &after_mask);
    assert_ptr_equal(after.sa_handler, on_signal);
    assert_int_equal(sigismember(&after_mask, SIGTERM), sigismember(&before_mask, SIGTERM));
    signal(SIGTERM, SIG_DFL);
}

/* ---- nodes that do not end --------------------------------------------------------------------
 */

static trp_stop *let_go;
static atomic_int ended_well;

/* Heeds no stop before the test's own. */
static trp_status go_on(trp_context *context, const void *arg)
{
    (void)arg;
    trp_stop_wait(let_go, -1);
    trp_context_report(context, "late", 1);
    trp_stop_wait(trp_context_stop(context), -1);
    return TRP_OK;
}

static trp_status end_well(trp_context *context, const void *arg)
{
    trp_status status = wait_for_stop(context, arg);
    atomic_fetch_add(&ended_well, 1);
    return status;
}

/* Two nodes that do not end, and one that they use: it is stopped after them. */
static trp_program *stubborn_program(void)
{
    trp_program *program = trp_program_create("stubborn");
    trp_node used = trp_add_node(program, "used", &(trp_node_options){.run = end_well});
    trp_add_node(program, "stubborn",
                 &(trp_node_options){.run = go_on, .count = 2, .uses = &used, .use_count = 1});
    return program;
}

static void a_node_that_does_not_end_is_named_and_left(void **state)
{
    struct scratch *scratch = *state;
    trp_run_options options = {.run_dir = scratch->run, .max_seconds = 0.05, .grace_seconds = 0.5};
    trp_run_result result;
    let_go = trp_stop_create();
    trp_program *program = stubborn_program();
    assert_int_equal(trp_run(program, &options, &result), TRP_DEADLINE_EXCEEDED);
    assert_string_equal(trp_last_error(),
                        "stubborn/0: it did not stop within 0.5 s and goes on as a thread; did not "
                        "stop either: stubborn/1");
    assert_string_equal(result.reason, trp_last_error());
    assert_int_equal(atomic_load(&ended_well), 1);
    trp_program_destroy(program); /* the threads still use it */

    program = stubborn_program();
    options.resume = true;
    options.grace_seconds = 0;
    assert_int_equal(trp_run(program, &options, &result), TRP_FAILED_PRECONDITION);
    assert_non_null(strstr(trp_last_error(), "a run is going on here"));
    trp_stop_request(let_go);
    trp_status status = TRP_FAILED_PRECONDITION;
    for (int tries = 0; tries < 2000 && status == TRP_FAILED_PRECONDITION; tries++) {
        status = trp_run(program, &options, &result);
        poll(NULL, 0, status == TRP_FAILED_PRECONDITION ? 5 : 0);
    }
    assert_int_equal(status, TRP_OK);
    trp_program_destroy(program);
    trp_stop_destroy(let_go);
}

/* No --set makes an agent another one. */
static void another_agent_does_not_go_on_with_a_run(void **state)
{
    struct scratch *scratch = *state;
    trp_run_result result;
    learn_catch(scratch, &result);
    trp_program *program =
        catch_program_of(trp_r2d2(&(trp_r2d2_options){.hidden = {8}, .core_size = 8}), 1);
    const trp_run_options options = {.run_dir = scratch->run, .resume = true, .seed = 1};
    assert_int_equal(trp_run(program, &options, &result), TRP_FAILED_PRECONDITION);
    assert_non_null(strstr(trp_last_error(), "groups.actor.agent is r2d2, was dqn"));
    assert_non_null(
        strstr(trp_last_error(),
               ": use the program that it was started with, and its arguments, or start"));
    trp_program_destroy(program);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
    trp_log_set_level(TRP_ERROR);
    const struct CMUnitTest tests[] = {
        TEST(a_program_runs_inside_a_test_and_goes_on),
        TEST(what_nodes_log_is_in_logs_and_not_on_standard_error),
        TEST(deterministic_learners_that_act_repeat_bit_for_bit),
        TEST(another_agent_does_not_go_on_with_a_run),
        TEST(a_learner_without_actors_learns_from_what_a_run_stored),
        TEST(a_program_runs_inside_a_test_and_goes_on),
        TEST(a_dataset_that_is_not_there_ends_the_run),
        TEST(a_program_runs_inside_a_test_and_goes_on),
        TEST(actors_write_to_all_shards_and_a_learner_samples_from_all),
        TEST(shards_have_an_address_each),
        TEST(the_first_failure_is_the_status),
        TEST(a_failure_without_words_is_not_given_those_of_another),
        TEST(a_row_that_a_full_disk_cut_short_is_not_the_beginning_of_another),
        TEST(a_run_that_cannot_begin_says_why),
        TEST(a_run_directory_without_a_name_is_refused),
        TEST(a_run_in_a_directory_that_is_given_leaves_latest_alone),
        TEST(a_wrong_graph_or_option_is_refused),
        TEST(signals_stay_the_callers),
        TEST(a_node_that_does_not_end_is_named_and_left),
        TEST(a_store_outlives_its_run_and_is_restored),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

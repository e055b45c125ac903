/* A run whose replay server or launcher is killed goes on where it was: every item the server had
 * acknowledged is there, and the learner continues from its checkpoint. With the real example. */
#include "tests/launch/launch_tools.h"

#include <inttypes.h>

#include <cjson/cJSON.h>

#include <troupe/checkpoint.h>
#include <troupe/learner.h>

enum { ITEMS_BEFORE_THE_CRASH = 3000, STEPS_AFTER_IT = 50, ACTORS = 4 };

struct table {
    uint64_t size, inserts;
    pid_t pid; /* of the server; 0: read from files */
};

static uint64_t number_of(const cJSON *json, const char *key)
{
    const cJSON *item = cJSON_GetObjectItemCaseSensitive(json, key);
    assert_true(cJSON_IsNumber(item));
    return (uint64_t)item->valuedouble;
}

/* What `troupe replay info` says of the first table of an address or directory. False: no answer.
 */
static bool look_inside(const struct scene *scene, const char *target, struct table *table)
{
    struct scene other = {.pid = 0};
    snprintf(other.dir, sizeof other.dir, "/tmp/troupe-test-XXXXXX");
    assert_non_null(mkdtemp(other.dir));
    char *path =
        target[0] == '/' || strchr(target, ':') ? xstrdup(target) : scene_path(scene, target);
    const char *argv[] = {TROUPE_CLI, "replay", "info", path, "-o", "json", NULL};
    bool answered = scene_run(&other, argv) == 0;
    if (!answered) {
        char *text = scene_read(&other, "err");
        print_message("%s", text);
        free(text);
    } else {
        char *text = scene_read(&other, "out");
        cJSON *json = cJSON_Parse(text);
        assert_non_null(json);
        const cJSON *first =
            cJSON_GetArrayItem(cJSON_GetObjectItemCaseSensitive(json, "tables"), 0);
        assert_non_null(first);
        const cJSON *limiter = cJSON_GetObjectItemCaseSensitive(first, "limiter");
        *table = (struct table){.size = number_of(first, "size"),
                                .inserts = number_of(limiter, "inserts"),
                                .pid = (pid_t)number_of(json, "pid")};
        cJSON_Delete(json);
        free(text);
    }
    nftw(other.dir, remove_entry, 16, FTW_DEPTH | FTW_PHYS);
    free(path);
    return answered;
}

/* The newest checkpoint in RUN_DIR/learner: steps of the learner, and of the actors as it knows. */
struct learned {
    uint64_t steps, actor_steps;
};

static struct learned learned_so_far(const struct scene *scene)
{
    char *path = scene_path(scene, "run/learner"), *newest = NULL;
    trp_checkpoint *checkpoint;
    struct learned learned = {0};
    if (trp_learner_checkpoint_find(path, &newest) != TRP_OK ||
        trp_checkpoint_read(&checkpoint, newest) != TRP_OK)
        fail_msg("%s", trp_last_error());
    for (size_t i = 0; i < trp_checkpoint_tensor_count(checkpoint); i++) {
        const trp_checkpoint_tensor *tensor = trp_checkpoint_tensor_at(checkpoint, i);
        const uint64_t *values = tensor->data;
        if (strcmp(tensor->name, "learner.steps") == 0)
            learned.steps = values[0];
        for (size_t k = 0; strcmp(tensor->name, "learner.client_steps") == 0 && k < ACTORS; k++) {
            assert_int_equal(tensor->shape[0], ACTORS);
            learned.actor_steps += values[k];
        }
    }
    trp_checkpoint_destroy(checkpoint);
    free(newest);
    free(path);
    return learned;
}

/* The values of a metric in the order of metrics.csv: the first at or after byte `from`. */
static double first_metric_after(const struct scene *scene, size_t from, const char *metric)
{
    char *text = scene_read(scene, "run/metrics.csv");
    char *pattern = xasprintf(",%s,", metric);
    assert_true(strlen(text) > from);
    const char *at = strstr(text + from, pattern);
    if (!at)
        fail_msg("no %s in:\n%s", metric, text + from);
    double value = strtod(at + strlen(pattern), NULL);
    free(pattern);
    free(text);
    return value;
}

static double last_metric(const struct scene *scene, const char *metric)
{
    char *text = scene_read(scene, "run/metrics.csv"), *pattern = xasprintf(",%s,", metric);
    double value = 0;
    for (const char *at = text; (at = strstr(at, pattern));) {
        at += strlen(pattern);
        value = strtod(at, NULL);
    }
    free(pattern);
    free(text);
    return value;
}

static size_t metrics_size(const struct scene *scene)
{
    char *text = scene_read(scene, "run/metrics.csv");
    size_t size = strlen(text);
    free(text);
    return size;
}

struct nodes {
    pid_t pids[16];
    size_t count;
};

static struct nodes nodes_of(const struct scene *scene)
{
    char path[64];
    struct nodes nodes = {.count = 0};
    snprintf(path, sizeof path, "/proc/%d/task/%d/children", scene->pid, scene->pid);
    FILE *file = fopen(path, "re");
    assert_non_null(file);
    while (nodes.count < 16 && fscanf(file, "%d", &nodes.pids[nodes.count]) == 1)
        nodes.count++;
    fclose(file);
    assert_int_equal(nodes.count, 3 + ACTORS);
    return nodes;
}

/* Runs the example until the live table has some items; what it then said. */
static struct table run_until_items(struct scene *scene)
{
    const char *argv[] = {DQN_CARTPOLE, "--run-dir=run", "--seed=1", "--target-return=100000",
                          NULL};
    scene_start(scene, argv);
    scene_await(scene, "run/addresses", "replay/0 ");
    scene_await(scene, "run/metrics.csv", ",learner_steps,");
    char *addresses = scene_read(scene, "run/addresses");
    char *address = strstr(addresses, "replay/0 ") + strlen("replay/0 ");
    address[strcspn(address, "\n")] = '\0';
    struct table table = {0};
    struct deadline deadline = patience();
    while (!look_inside(scene, address, &table) || table.inserts < ITEMS_BEFORE_THE_CRASH)
        look_again_soon(deadline, "items in the table");
    free(addresses);
    return table;
}

static void resume(struct scene *scene, uint64_t steps)
{
    char *flag = xasprintf("--max-steps=%" PRIu64, steps);
    const char *argv[] = {DQN_CARTPOLE, "--run-dir=run", "--resume", "--target-return=100000", flag,
                          NULL};
    int status = scene_run(scene, argv);
    if (status != 0) {
        char *text = scene_read(scene, "err");
        fail_msg("the resumed run ended with %d:\n%s", status, text);
    }
    free(flag);
}

/* What a node did in earlier lives is not what it did in the first second of this one; without
 * anything to compare with the line says nothing. */
static void assert_first_line_has_no_rate_of_0(const struct scene *scene)
{
    char *text = scene_read(scene, "out"), *line = strstr(text, "  version ");
    if (line) {
        *line = '\0';
        if (strstr(text, "learner steps 0/s") || strstr(text, "actor steps 0/s"))
            fail_msg("a rate of 0 in:\n%s", text);
    }
    free(text);
}

/* Nothing that was acknowledged is missing now, and the run goes on from its checkpoint. */
static void assert_goes_on(struct scene *scene, const struct table *seen)
{
    struct learned learned = learned_so_far(scene);
    uint64_t steps = learned.steps;
    struct table stored;
    assert_true(look_inside(scene, "run/replay", &stored));
    assert_true(stored.inserts >= seen->inserts);
    assert_int_equal(stored.size, stored.inserts);

    size_t before = metrics_size(scene);
    resume(scene, steps + STEPS_AFTER_IT);
    assert_true(first_metric_after(scene, before, "items") >= (double)stored.size);
    assert_true(first_metric_after(scene, before, "learner_steps") >= (double)steps);
    assert_first_line_has_no_rate_of_0(scene);
    char *resumed = xasprintf("learner resumed steps=%" PRIu64, steps);
    assert_file_contains(scene, "run/logs/learner-0.log", resumed);
    free(resumed);
    struct learned more = learned_so_far(scene);
    assert_int_equal(more.steps, steps + STEPS_AFTER_IT);
    assert_true(more.actor_steps >= learned.actor_steps);
    struct table after;
    assert_true(look_inside(scene, "run/replay", &after));
    assert_true(after.inserts >= stored.inserts);
}

static const char warning[] = "Z warn "; /* behind the time, in logs and on the terminal */

/* Every user of the server has something to say. The terminal shows it until the launcher knows of
 * the death, which a busy machine may tell it late; then the logs alone have it. */
static void assert_nobody_complains_after(const struct scene *scene, const char *failure)
{
    char *text = scene_read(scene, "err"), *known = strstr(text, failure);
    if (!known || strstr(known, warning))
        fail_msg("%s:\n%s", known ? "a complaint of what is known" : "no such failure", text);
    free(text);
    assert_file_contains(scene, "run/logs/actor-0.log", warning);
}

static void a_run_survives_the_death_of_its_replay_server(void **state)
{
    struct scene *scene = *state;
    struct table seen = run_until_items(scene);
    assert_true(seen.pid > 1);
    kill(seen.pid, SIGKILL);
    assert_int_equal(scene_wait(scene), 1);
    assert_last_line(scene, "err", "failed: replay/0: it was killed by signal 9 (Killed)");
    assert_file_contains(scene, "err", "dqn_cartpole --resume=run --target-return=100000\n");
    assert_nobody_complains_after(scene, "replay/0 failed: it was killed by");
    struct learned learned = learned_so_far(scene);
    assert_true((double)learned.steps == summed_up(scene, "err", " learner steps"));
    double actor_steps = summed_up(scene, "err", " actor steps");
    assert_true(actor_steps >= ITEMS_BEFORE_THE_CRASH);
    /* All but those that no actor has told the learner of: it hears of them every 50 ms. */
    assert_true((double)learned.actor_steps > actor_steps / 2);
    assert_goes_on(scene, &seen);
    assert_file_contains(scene, "out", "learner steps in all lives\n");
}

static void a_run_survives_the_death_of_its_launcher(void **state)
{
    struct scene *scene = *state;
    struct table seen = run_until_items(scene);
    struct nodes nodes = nodes_of(scene);
    double steps = last_metric(scene, "learner_steps");
    kill(scene->pid, SIGKILL);
    assert_int_equal(scene_wait(scene), 1000 + SIGKILL);
    struct deadline deadline = patience();
    for (size_t i = 0; i < nodes.count; i++)
        while (process_lives(nodes.pids[i]))
            look_again_soon(deadline, "the nodes' end");
    assert_true(steps > 0);
    assert_true((double)learned_so_far(scene).steps >= steps);
    assert_goes_on(scene, &seen);
}

static void a_run_that_is_interrupted_says_where_its_parameters_are(void **state)
{
    struct scene *scene = *state;
    run_until_items(scene);
    kill(scene->pid, SIGINT);
    assert_int_equal(scene_wait(scene), 128 + SIGINT);
    assert_last_line(scene, "err", "stopped by signal 2 (Interrupt); go on with: ");
    assert_file_contains(scene, "run/logs/learner-0.log",
                         "learner learns vector=params numbers=4610 body.0.weight=[64][4] "
                         "body.1.weight=[64][64] head.weight=[2][64]\n");
    char *text = scene_read(scene, "err");
    const char *path = strstr(text, "  parameters:     ");
    if (!path)
        fail_msg("no parameters in:\n%s", text);
    path += strlen("  parameters:     ");
    char *file = xasprintf("%.*s", (int)strcspn(path, "\n"), path);
    char *saved = scene_path(scene, file), *flag = xasprintf("--params=%s", saved);
    const char *argv[] = {DQN_CARTPOLE, "eval", flag, "--episodes=3", NULL};
    assert_int_equal(scene_run(scene, argv), 0);
    free(text);
    free(file);
    free(saved);
    free(flag);
}

static void another_program_does_not_resume_it(void **state)
{
    struct scene *scene = *state;
    const char *first[] = {CATCH, "--run-dir=run", "--max-steps=1", NULL};
    assert_int_equal(scene_run(scene, first), 0);
    const char *second[] = {DQN_CARTPOLE, "--run-dir=run", "--resume", NULL};
    assert_int_equal(scene_run(scene, second), 2);
    assert_last_line(
        scene, "err",
        "a run of program 'catch', not of 'dqn_cartpole': --resume=DIR names another run");
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, scene_setup, scene_teardown)

int main(void)
{
    static const struct CMUnitTest tests[] = {
        TEST(a_run_survives_the_death_of_its_replay_server),
        TEST(a_run_survives_the_death_of_its_launcher),
        TEST(a_run_that_is_interrupted_says_where_its_parameters_are),
        TEST(another_program_does_not_resume_it),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

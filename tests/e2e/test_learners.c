/* Two learners with one set of parameters, of which one is killed, stopped or missing: the real
 * example, in processes. */
#include "learners.h"

#include <math.h>
#include <sys/stat.h>

#include <troupe/learner.h>

/* ---- a run ----------------------------------------------------------------------------------- */

static void learners_start(struct scene *scene, const char *const *more)
{
    const char *argv[16] = {DQN_LEARNERS,
                            "--run-dir=run",
                            "--seed=1",
                            "--grace=20",
                            "--set=learner.collective_timeout_ms=1500",
                            "--set=evaluator.target_return=0"};
    size_t count = 6;
    while (*more)
        argv[count++] = *more++;
    scene_start(scene, argv);
}

#define START(...) learners_start(scene, (const char *const[]){__VA_ARGS__, NULL})

/* A learner is ended; the other one goes on, the first comes back, and both learn. */
static void check_comes_back(struct scene *scene, uint32_t index, int signal)
{
    uint64_t generation = last_generation(scene);
    double steps = fmax(reported(scene, 0, "learner_steps"), reported(scene, 1, "learner_steps"));
    pid_t pid = pid_of(scene, index);
    assert_int_equal(kill(pid, signal), 0);
    await_restart(scene, index, pid);
    await_generation(scene,
                     generation + 1); /* of both, if it is back at once; else there are two */
    await_steps(scene, 1 - index, steps + 20);
    await_steps(scene, index, steps + 20); /* it has the state, and takes part */
}

static void check_words(const struct scene *scene, uint32_t index, const char *how)
{
    char *words = xasprintf("learner/%u failed: %s", index, how);
    assert_file_contains(scene, "err", words);
    free(words);
}

/* ---- one of two --------------------------------------------------------------------------------
 */

static void who_is_killed_comes_back(void **state)
{
    struct scene *scene = *state;
    START("--launch=processes");
    await_steps(scene, 1, 20);
    check_comes_back(scene, 0, SIGKILL); /* the one that publishes */
    check_comes_back(scene, 0, SIGKILL); /* now the other one does */
    check_comes_back(scene, 1, SIGKILL); /* which is this */
    check_words(scene, 0,
                "it was killed by signal 9 (Killed): the others go on, it is started again");
    kill(scene->pid, SIGINT);
    assert_int_equal(scene_wait(scene), 128 + SIGINT);
    assert_file_contains(scene, "err", "learner/0:      failed 2 times, began again 2 times");
    assert_file_contains(scene, "err", "learner/1:      failed 1 time, began again 1 time");
}

/* Each steps by itself there. */
static void who_is_killed_between_two_means_comes_back(void **state)
{
    struct scene *scene = *state;
    START("--launch=processes", "--set=learner.mode=local_sgd", "--set=learner.local_steps=8",
          "--set=learner.outer_momentum=0.25");
    await_steps(scene, 1, 20);
    check_comes_back(scene, 0, SIGKILL);
    check_comes_back(scene, 1, SIGSTOP);
    check_words(scene, 1, "the other learners of learner waited 1.5 s for it");
    kill(scene->pid, SIGINT);
    assert_int_equal(scene_wait(scene), 128 + SIGINT);
}

/* Each swaps with others after every step. */
static void who_is_killed_among_gossips_comes_back(void **state)
{
    struct scene *scene = *state;
    START("--launch=processes", "--set=learner.mode=gossip", "--set=learner.count=3");
    await_steps(scene, 2, 20);
    check_comes_back(scene, 0, SIGKILL);
    check_comes_back(scene, 1, SIGSTOP);
    check_words(scene, 1, "the other learners of learner waited 1.5 s for it");
    kill(scene->pid, SIGINT);
    assert_int_equal(scene_wait(scene), 128 + SIGINT);
}

static void await_checkpoint(const struct scene *scene)
{
    struct deadline deadline = patience();
    char *dir = scene_path(scene, "run/learner"), *newest = NULL;
    while (trp_learner_checkpoint_find(dir, &newest) != TRP_OK)
        look_again_soon(deadline, "a checkpoint");
    free(newest);
    free(dir);
}

/* What it had of the optimizer's state is in the checkpoint alone, to which the other one goes
 * back.
 */
static void who_is_killed_with_a_part_of_the_state_comes_back(void **state)
{
    struct scene *scene = *state;
    START("--launch=processes", "--set=learner.mode=sharded", "--set=learner.checkpoint_every_s=1");
    await_steps(scene, 1, 20);
    await_checkpoint(scene);
    check_comes_back(scene, 0, SIGKILL);
    check_words(scene, 0,
                "it was killed by signal 9 (Killed): the others go on, it is started again");
    assert_file_contains(scene, "run/logs/learner-1.log", "learner goes back to its checkpoint");
    check_comes_back(scene, 1, SIGSTOP);
    check_words(scene, 1, "the other learners of learner waited 1.5 s for it");
    assert_file_contains(scene, "run/logs/learner-0.log", "learner goes back to its checkpoint");
    kill(scene->pid, SIGINT);
    assert_int_equal(scene_wait(scene), 128 + SIGINT);
}

/* There is none to go back to. */
static void
who_is_killed_with_a_part_of_the_state_before_a_checkpoint_ends_the_program(void **state)
{
    struct scene *scene = *state;
    START("--launch=processes", "--set=learner.mode=sharded",
          "--set=learner.checkpoint_every_s=100000");
    await_steps(scene, 1, 20);
    assert_int_equal(kill(pid_of(scene, 0), SIGKILL), 0);
    assert_int_equal(scene_wait(scene), 1);
    check_words(scene, 0, "it was killed by signal 9 (Killed)");
    assert_last_line(scene, "err",
                     "who had the whole state is gone, and there is no checkpoint to go back to");
}

/* The first learner of each of two sites, of which one has two. */
static void who_is_killed_at_a_site_comes_back(void **state)
{
    struct scene *scene = *state;
    START("--launch=processes", "--set=learner.mode=gaia", "--set=learner.count=3",
          "--set=learner.sites=east,west,west");
    await_steps(scene, 2, 20);
    check_comes_back(scene, 0, SIGKILL);
    check_comes_back(scene, 1, SIGSTOP);
    check_words(scene, 1, "the other learners of learner waited 1.5 s for it");
    kill(scene->pid, SIGINT);
    assert_int_equal(scene_wait(scene), 128 + SIGINT);
    assert_file_contains(scene, "run/logs/learner-2.log", "gaia sent numbers=");
}

/* What a learner has sent in its life, by the last line of its log. */
static uint64_t sent_in_log(const struct scene *scene, uint32_t index, const char *what)
{
    char *name = xasprintf("run/logs/learner-%u.log", index), *log = scene_read(scene, name);
    uint64_t bytes = 0;
    for (const char *at = log; (at = strstr(at, what)); at++)
        bytes = strtoull(at + strlen(what), NULL, 10);
    free(log);
    free(name);
    return bytes;
}

/* The first learner of a site sums up with those of the others; the rest sends the group's state at
 * most to another site. */
static void who_leads_a_site_is_killed_and_comes_back(void **state)
{
    struct scene *scene = *state;
    START("--launch=processes", "--set=learner.count=3", "--set=learner.sites=east,east,west");
    await_steps(scene, 2, 20);
    check_comes_back(scene, 0, SIGKILL); /* then learner 1 leads the east */
    check_comes_back(scene, 1, SIGKILL); /* and now 0 */
    await_steps(scene, 1, reported(scene, 1, "learner_steps") + 300);
    kill(scene->pid, SIGINT);
    assert_int_equal(scene_wait(scene), 128 + SIGINT);
    assert_true(sent_in_log(scene, 0, " to_other_sites=") > 300 * 4 * 1000);
    assert_true(sent_in_log(scene, 1, " sent_bytes=") > 300 * 4 * 1000);
    assert_true(sent_in_log(scene, 1, " to_other_sites=") <
                sent_in_log(scene, 1, " sent_bytes=") / 4);
}

static void sites_have_a_name_for_each_learner(void **state)
{
    struct scene *scene = *state;
    const char *const wrong[] = {"--set=learner.sites=east", "--set=learner.sites=a,b,c",
                                 "--set=learner.sites=a,", "--set=learner.sites=,a"};
    for (size_t i = 0; i < 4; i++) {
        START("--launch=threads", wrong[i]);
        assert_int_equal(scene_wait(scene), 2);
        assert_file_contains(scene, "err", "is not a name for each of 2 learners");
        scene_empty(scene);
    }
}

/* The evaluator stands still until learner `index` was killed and is back: nothing ends before. */
static void check_target_is_reached(struct scene *scene, uint32_t index)
{
    pid_t evaluator = await_pid(scene, "run/logs/evaluator-0.log");
    assert_int_equal(kill(evaluator, SIGSTOP), 0);
    await_steps(scene, 0, 1);
    check_comes_back(scene, index, SIGKILL);
    assert_int_equal(kill(evaluator, SIGCONT), 0);
    assert_int_equal(scene_wait(scene), 0);
    assert_file_contains(scene, "out", "the target of 150 is reached");
    char *words = xasprintf("learner/%" PRIu32 ":      failed 1 time, began again 1 time", index);
    assert_file_contains(scene, "out", words);
    free(words);
}

static void the_target_is_reached_all_the_same(void **state)
{
    struct scene *scene = *state;
    START("--launch=processes", "--set=evaluator.target_return=150",
          "--set=agent.learning_rate=1e-3"); /* so that it takes some seconds */
    check_target_is_reached(scene, 0);
    assert_file_contains(scene, "err", "generation 2 of learner: learner/1");
}

static void who_hangs_is_left_out_and_comes_back(void **state)
{
    struct scene *scene = *state;
    START("--launch=processes");
    await_steps(scene, 0, 20);
    for (uint32_t index = 0; index < 2; index++) {
        check_comes_back(scene, index, SIGSTOP);
        check_words(scene, index, "the other learners of learner waited 1.5 s for it");
    }
    kill(scene->pid, SIGINT);
    assert_int_equal(scene_wait(scene), 128 + SIGINT);
}

/* Before the first generation, and right after one has begun. */
static void who_is_killed_at_once_comes_back(void **state)
{
    struct scene *scene = *state;
    START("--launch=processes");
    for (uint32_t index = 0; index < 2; index++) {
        struct deadline deadline = patience();
        pid_t pid;
        while ((pid = pid_of(scene, index)) == 0)
            look_again_soon(deadline, "a learner");
        kill(pid, SIGKILL);
        await_restart(scene, index, pid);
    }
    await_steps(scene, 0, 20);
    uint64_t generation = last_generation(scene);
    pid_t pid = pid_of(scene, 0), other = pid_of(scene, 1);
    kill(pid, SIGKILL);
    await_generation(scene, generation + 1);
    await_restart(scene, 0, pid);
    assert_int_equal(pid_of(scene, 1), other);
    await_generation(scene, generation + 2);
    kill(pid_of(scene, 0), SIGKILL);
    await_generation(scene, generation + 4);
    await_steps(scene, 0, reported(scene, 1, "learner_steps") + 20);
    kill(scene->pid, SIGINT);
    assert_int_equal(scene_wait(scene), 128 + SIGINT);
}

/* With 1 bit for a number, and a loss on the way: rests are there again, or anew. */
static void the_target_is_reached_with_one_bit_gradients(void **state)
{
    struct scene *scene = *state;
    START("--launch=processes", "--set=learner.compression=one-bit",
          "--set=evaluator.target_return=150", "--set=agent.learning_rate=1e-3");
    check_target_is_reached(scene, 1);
}

/* ---- the group ends ----------------------------------------------------------------------------
 */

static void a_failure_may_end_the_program(void **state)
{
    struct scene *scene = *state;
    const int signals[] = {SIGKILL, SIGSTOP};
    const char *const how[] = {"it was killed by signal 9 (Killed)",
                               "the other learners of learner waited 1.5 s for it"};
    for (uint32_t i = 0; i < 4; i++) {
        START("--launch=processes", "--set=learner.on_failure=stop");
        await_steps(scene, 0, 20);
        kill(pid_of(scene, i % 2), signals[i / 2]);
        assert_int_equal(scene_wait(scene), 1);
        char *words = xasprintf("failed: learner/%u: %s", i % 2, how[i / 2]);
        assert_last_line(scene, "err", words);
        free(words);
        char *err = scene_read(scene, "err");
        assert_null(strstr(err, "did not stop within")); /* the survivor has ended by itself */
        free(err);
        scene_empty(scene);
    }
}

static void too_few_learners_end_the_program(void **state)
{
    struct scene *scene = *state;
    START("--launch=processes", "--set=learner.min_learners=2", "--set=learner.restarts=0");
    await_steps(scene, 0, 20);
    kill(pid_of(scene, 1), SIGKILL);
    assert_int_equal(scene_wait(scene), 1);
    assert_last_line(scene, "err",
                     "failed: learner/1: 1 of 2 members of learner are left, it needs 2: "
                     "learner/1: it was killed by signal 9 (Killed)");
}

/* That nobody knows what was learned is not all that has to be told. */
static void when_all_are_killed_at_once_the_reason_is_told(void **state)
{
    struct scene *scene = *state;
    START("--launch=processes");
    await_steps(scene, 1, 20);
    /* Nobody sees the end of one before that of the other. */
    pid_t pids[] = {scene->pid, pid_of(scene, 0), pid_of(scene, 1)};
    for (uint32_t i = 0; i < 3; i++)
        assert_int_equal(kill(pids[i], SIGSTOP), 0);
    for (uint32_t i = 1; i < 3; i++)
        assert_int_equal(kill(pids[i], SIGKILL), 0);
    assert_int_equal(kill(pids[0], SIGCONT), 0);
    assert_int_equal(scene_wait(scene), 1);
    assert_last_line(scene, "err",
                     "it was killed by signal 9 (Killed); every member of learner that knew what "
                     "it had learned is gone");
}

static void who_may_not_come_back_stays_away(void **state)
{
    struct scene *scene = *state;
    START("--launch=processes", "--set=learner.restarts=0", "--set=learner.max_steps=1000000");
    await_steps(scene, 1, 20);
    double steps = reported(scene, 0, "learner_steps");
    kill(pid_of(scene, 0), SIGKILL);
    await_generation(scene, 2);
    await_steps(scene, 1, steps + 200);
    assert_int_equal(last_generation(scene), 2);
    kill(scene->pid, SIGINT);
    assert_int_equal(scene_wait(scene), 128 + SIGINT);
    assert_file_contains(scene, "err", "learner/0:      failed 1 time, began again 0 times");
}

/* ---- another number of learners ----------------------------------------------------------------
 */

static void a_run_goes_on_with_another_number_of_learners(void **state)
{
    struct scene *scene = *state;
    const char *const numbers[] = {"--set=learner.count=2", "--set=learner.count=3",
                                   "--set=learner.count=1", "--set=learner.count=2"};
    const char *const limits[] = {"--set=learner.max_steps=100", "--set=learner.max_steps=200",
                                  "--set=learner.max_steps=300", "--set=learner.max_steps=400"};
    uint64_t generation = 0;
    double actor_steps = 0;
    for (uint32_t i = 0; i < 4; i++) {
        START(launch_modes[i % 2], numbers[i], limits[i], i > 0 ? "--resume" : "--seed=1");
        assert_int_equal(scene_wait(scene), 0);
        char *words = xasprintf("%u learner steps done", 100 * (i + 1));
        assert_file_contains(scene, "out", words);
        free(words);
        assert_int_equal(summed_up(scene, "out", " learner steps"), 100 * (i + 1));
        assert_true(summed_up(scene, "out", " actor steps") >= actor_steps);
        actor_steps = summed_up(scene, "out", " actor steps");
        assert_true(i == 2 || last_generation(scene) > generation);
        generation = last_generation(scene);
        assert_int_equal(count_in(scene, "err", "resumed with learner.count="), i > 0);
    }
}

static void a_group_that_is_resumed_without_a_checkpoint_says_so_once(void **state)
{
    struct scene *scene = *state;
    START("--set=learner.max_steps=50", "--seed=1");
    assert_int_equal(scene_wait(scene), 0);
    assert_file_lacks(scene, "err", "begins anew");
    const char *away[] = {"/bin/rm", "-r", "run/learner", NULL};
    assert_int_equal(scene_run(scene, away), 0);
    START("--set=learner.max_steps=50", "--resume");
    assert_int_equal(scene_wait(scene), 0);
    assert_int_equal(count_in(scene, "err", "learner begins anew: there is no checkpoint"), 1);
}

/* The terminal has what is of all of them, and each one's log what is its own. */
static void a_group_is_told_of_once(void **state)
{
    struct scene *scene = *state;
    for (uint32_t i = 0; i < 2; i++) {
        scene_empty(scene);
        START(launch_modes[i], "--set=learner.max_steps=50", "--set=learner.mode=sharded");
        assert_int_equal(scene_wait(scene), 0);
        assert_int_equal(count_in(scene, "out", "generation 1 of learner: 2 learners, sharded\n"),
                         1);
        assert_file_lacks(scene, "err", "learner/0: ");
        assert_file_lacks(scene, "err", "learner/1: ");
        assert_file_lacks(scene, "err", "generation");
        assert_file_lacks(scene, "err", "group=learner");
        assert_file_lacks(scene, "err", "learner learns");
        assert_file_contains(scene, "run/logs/learner-1.log", "learner learns vector=");
        assert_file_contains(scene, "run/logs/learner-1.log", "lanes group=learner");
        assert_file_contains(scene, "run/logs/learner-1.log", "learner leaves group=learner");
    }
}

/* Without names they are hosts, and this is one. */
static void gaia_needs_no_names_of_sites(void **state)
{
    struct scene *scene = *state;
    START("--launch=threads", "--set=learner.mode=gaia", "--set=learner.max_steps=50");
    assert_int_equal(scene_wait(scene), 0);
    assert_file_contains(scene, "out", "50 learner steps done");
    assert_file_contains(scene, "err",
                         "learner 'learner': the mode is gaia, and all learners are at one site, "
                         "this host, as .sites is not set: ");
}

/* Each has two connections to each other one, with both ends in the process. */
static void too_many_learners_for_one_process_are_refused_with_numbers(void **state)
{
    struct scene *scene = *state;
    char *command = xasprintf("ulimit -n 256; exec %s --run-dir=run --launch=threads "
                              "--set=learner.count=12",
                              DQN_LEARNERS);
    const char *argv[] = {"/bin/bash", "-c", command, NULL};
    assert_int_equal(scene_run(scene, argv), 2);
    free(command);
    assert_last_line(scene, "err",
                     "18 nodes need 442 open files in one process, and the hard limit is 256: "
                     "raise it (ulimit -Hn), start them as processes or start fewer nodes");
}

static void a_deterministic_run_refuses_a_group(void **state)
{
    struct scene *scene = *state;
    START("--launch=threads", "--deterministic");
    assert_int_equal(scene_wait(scene), 2);
    assert_last_line(scene, "err",
                     "learner 'learner': 2 learners learn together, in a "
                     "deterministic run a learner learns alone");
    char *run = scene_path(scene, "run");
    assert_int_equal(access(run, F_OK), -1); /* nothing has begun */
    free(run);
}

/* Of momentum the mode alone knows, when it begins. */
static void who_cannot_learn_so_is_not_started_again(void **state)
{
    struct scene *scene = *state;
    START("--set=learner.mode=dogwild", "--set=agent.optimizer=sgd", "--set=agent.momentum=0.9");
    assert_int_equal(scene_wait(scene), 1);
    assert_last_line(scene, "err", "the optimizer is sgd with momentum, and the mode dogwild has ");
    char *err = scene_read(scene, "err");
    assert_null(strstr(err, "it is started again"));
    assert_null(strstr(err, "go on with:")); /* it would fail again */
    assert_contains(err, "  once mended:    ");
    free(err);
}

/* As on a full disk: a directory is where the file would be written. */
static void numbers_that_cannot_be_kept_end_the_program(void **state)
{
    struct scene *scene = *state;
    static const char *const modes[] = {"--launch=processes", "--launch=threads"};
    for (size_t i = 0; i < 2; i++) {
        scene_empty(scene);
        const char *away[] = {"/bin/mkdir", "-p", "run/.generations.new", NULL};
        assert_int_equal(scene_run(scene, away), 0);
        START(modes[i]);
        assert_int_equal(scene_wait(scene), 1);
        assert_last_line(scene, "err", "generations: Is a directory: learners cannot go on, as a ");
        char *out = scene_read(scene, "out");
        assert_null(strstr(out, "generation 1 of learner")); /* nobody was told of it */
        free(out);
    }
}

/* As on a full disk, from here on. */
static void keep_no_more_numbers(const struct scene *scene)
{
    char *away = scene_path(scene, "run/.generations.new");
    assert_int_equal(mkdir(away, 0700), 0);
    free(away);
}

static void assert_is_saved(const struct scene *scene)
{
    char *dir = scene_path(scene, "run/learner"), *newest;
    assert_int_equal(trp_learner_checkpoint_find(dir, &newest), TRP_OK);
    free(newest);
    free(dir);
}

/* The one that saves dies just then; of numbers one is kept ahead. */
static void who_is_left_saves_though_numbers_cannot_be_kept(void **state)
{
    struct scene *scene = *state;
    struct deadline deadline = patience();
    START("--launch=processes", "--set=learner.restarts=0",
          "--set=learner.checkpoint_every_s=100000");
    await_steps(scene, 1, 20);
    keep_no_more_numbers(scene);
    assert_int_equal(kill(pid_of(scene, 0), SIGKILL), 0);
    for (bool said = false; !said; look_again_soon(deadline, "what is said of numbers")) {
        char *err = scene_read(scene, "err");
        said = strstr(err, "Is a directory: learners of learner go on, and can no more once ");
        free(err);
    }
    await_steps(scene, 1, reported(scene, 1, "learner_steps") + 20);
    kill(scene->pid, SIGINT);
    assert_int_equal(scene_wait(scene), 128 + SIGINT);
    assert_is_saved(scene);
}

/* It comes back, for which one more is needed. */
static void who_is_left_saves_before_numbers_end_the_program(void **state)
{
    struct scene *scene = *state;
    START("--launch=processes", "--set=learner.checkpoint_every_s=100000");
    await_steps(scene, 1, 20);
    keep_no_more_numbers(scene);
    assert_int_equal(kill(pid_of(scene, 0), SIGKILL), 0);
    assert_int_equal(scene_wait(scene), 1);
    assert_last_line(scene, "err", "generations: Is a directory: learners cannot go on, as a ");
    assert_is_saved(scene);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(who_is_killed_comes_back, scene_setup, scene_teardown),
        cmocka_unit_test_setup_teardown(who_is_killed_between_two_means_comes_back, scene_setup,
                                        scene_teardown),
        cmocka_unit_test_setup_teardown(who_is_killed_among_gossips_comes_back, scene_setup,
                                        scene_teardown),
        cmocka_unit_test_setup_teardown(who_is_killed_with_a_part_of_the_state_comes_back,
                                        scene_setup, scene_teardown),
        cmocka_unit_test_setup_teardown(
            who_is_killed_with_a_part_of_the_state_before_a_checkpoint_ends_the_program,
            scene_setup, scene_teardown),
        cmocka_unit_test_setup_teardown(who_is_killed_at_a_site_comes_back, scene_setup,
                                        scene_teardown),
        cmocka_unit_test_setup_teardown(who_leads_a_site_is_killed_and_comes_back, scene_setup,
                                        scene_teardown),
        cmocka_unit_test_setup_teardown(sites_have_a_name_for_each_learner, scene_setup,
                                        scene_teardown),
        cmocka_unit_test_setup_teardown(the_target_is_reached_all_the_same, scene_setup,
                                        scene_teardown),
        cmocka_unit_test_setup_teardown(the_target_is_reached_with_one_bit_gradients, scene_setup,
                                        scene_teardown),
        cmocka_unit_test_setup_teardown(who_hangs_is_left_out_and_comes_back, scene_setup,
                                        scene_teardown),
        cmocka_unit_test_setup_teardown(who_is_killed_at_once_comes_back, scene_setup,
                                        scene_teardown),
        cmocka_unit_test_setup_teardown(a_failure_may_end_the_program, scene_setup, scene_teardown),
        cmocka_unit_test_setup_teardown(too_few_learners_end_the_program, scene_setup,
                                        scene_teardown),
        cmocka_unit_test_setup_teardown(when_all_are_killed_at_once_the_reason_is_told, scene_setup,
                                        scene_teardown),
        cmocka_unit_test_setup_teardown(who_may_not_come_back_stays_away, scene_setup,
                                        scene_teardown),
        cmocka_unit_test_setup_teardown(a_run_goes_on_with_another_number_of_learners, scene_setup,
                                        scene_teardown),
        cmocka_unit_test_setup_teardown(a_deterministic_run_refuses_a_group, scene_setup,
                                        scene_teardown),
        cmocka_unit_test_setup_teardown(who_cannot_learn_so_is_not_started_again, scene_setup,
                                        scene_teardown),
        cmocka_unit_test_setup_teardown(who_is_left_saves_though_numbers_cannot_be_kept,
                                        scene_setup, scene_teardown),
        cmocka_unit_test_setup_teardown(who_is_left_saves_before_numbers_end_the_program,
                                        scene_setup, scene_teardown),
        cmocka_unit_test_setup_teardown(numbers_that_cannot_be_kept_end_the_program, scene_setup,
                                        scene_teardown),
        cmocka_unit_test_setup_teardown(a_group_that_is_resumed_without_a_checkpoint_says_so_once,
                                        scene_setup, scene_teardown),
        cmocka_unit_test_setup_teardown(a_group_is_told_of_once, scene_setup, scene_teardown),
        cmocka_unit_test_setup_teardown(gaia_needs_no_names_of_sites, scene_setup, scene_teardown),
        cmocka_unit_test_setup_teardown(too_many_learners_for_one_process_are_refused_with_numbers,
                                        scene_setup, scene_teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* Learners whose networks compute on several threads: those of every agent do. */
#include "device_run.h"

#include <dirent.h>
#include <poll.h>

#include "core/clock.h"

/* Threads of this process that compute for another one. */
static uint32_t team_threads(void)
{
    uint32_t count = 0;
    DIR *tasks = opendir("/proc/self/task");
    assert_non_null(tasks);
    for (struct dirent *entry; (entry = readdir(tasks));) {
        char *path = xasprintf("/proc/self/task/%s/comm", entry->d_name), name[32] = "";
        FILE *file = fopen(path, "r");
        if (file && fgets(name, sizeof name, file))
            count += strcmp(name, "team\n") == 0;
        if (file)
            fclose(file);
        free(path);
    }
    closedir(tasks);
    return count;
}

static uint32_t expected, found; /* beside the learner's own, when a batch is given */

/* A thread has its name when it has begun, and is there a moment after it was joined. */
static void find_threads(trp_device *device, uint64_t number)
{
    (void)device, (void)number;
    struct deadline deadline = deadline_in_ms(&clock_monotonic, 10000);
    while ((found = team_threads()) != expected && !deadline_passed(deadline, &clock_monotonic))
        poll(NULL, 0, 1);
}

static void check_threads(const char *env, const trp_agent *agent, uint32_t threads)
{
    struct run run;
    expected = threads > 1 ? threads - 1 : 0;
    run_begin(&run, &(struct wanted){.env = env,
                                     .agent = *agent,
                                     .gives = find_threads,
                                     .steps = 3,
                                     .publish_every = 1,
                                     .threads = threads});
    OR_FAIL(run.status);
    if (found != expected)
        fail_msg("%s learns with %u threads beside its own, expected %u", agent->impl->name, found,
                 expected);
    remove_dir(run.dir);
    run_end(&run);
}

static void networks_of_every_agent_compute_on_so_many(void **state)
{
    const struct {
        const char *env;
        trp_agent agent;
    } rows[] = {
        {"CartPole-v1", trp_dqn(&(trp_dqn_options){.hidden = {16}})},
        {"CartPole-v1", trp_ppo(&(trp_ppo_options){.hidden = {16}, .unroll = 5})},
        {"CartPole-v1", trp_impala(&(trp_impala_options){.hidden = {16}, .unroll = 5})},
        {"CartPole-v1", trp_a3c(&(trp_a3c_options){.hidden = {16}, .batch_size = 4})},
        {"CartPole-v1",
         trp_r2d2(&(trp_r2d2_options){
             .hidden = {16}, .core_size = 8, .burn_in = 3, .trace = 4, .period = 4})},
        {"Pendulum-v1", trp_td3(&(trp_td3_options){.hidden = {16}})},
        {"Pendulum-v1", trp_sac(&(trp_sac_options){.hidden = {16}})},
        {"Pendulum-v1", trp_d4pg(&(trp_d4pg_options){.hidden = {16}, .critic_hidden = {16}})},
        {"Pendulum-v1", trp_mpo(&(trp_mpo_options){.hidden = {16}, .critic_hidden = {16}})},
        {"Pendulum-v1", trp_bc(&(trp_bc_options){.hidden = {16}})},
        {"Pendulum-v1", trp_iql(&(trp_iql_options){.hidden = {16}})},
        {"Pendulum-v1", trp_crr(&(trp_crr_options){.hidden = {16}})},
    };
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        check_threads(rows[i].env, &rows[i].agent, 0);
        check_threads(rows[i].env, &rows[i].agent, 3);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(networks_of_every_agent_compute_on_so_many),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

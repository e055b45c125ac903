/* Learning to hold a pendulum up from what another agent stored, without trying anything: TD3+BC,
 * CQL, IQL or CRR; BC, which does what was done on average, cannot. SAC stores its steps first,
 * from the first ones at random to the last ones, when it nearly can.
 *
 *     ./offline_pendulum                        stores what SAC does, then learns from it by TD3+BC
 *     ./offline_pendulum -- iql                 the same by another agent
 *     ./offline_pendulum -- cql RUN/replay      from a store that is there */
#define _GNU_SOURCE /* nftw() */
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <troupe/troupe.h>

enum { STORED = 12000 }; /* SAC's learner steps, and about as many of its actor's */
static const char data_dir[] = "runs/offline_pendulum-data";
static const char store_dir[] = "runs/offline_pendulum-data/replay";
static const char store_file[] = "runs/offline_pendulum-data/replay/data.mdb";
static const char half_dir[] = "runs/offline_pendulum-data.half"; /* until it is whole */
static const char lock_file[] = "runs/offline_pendulum-data.lock";

static trp_agent agent_of(const char *name)
{
    if (strcmp(name, "bc") == 0)
        return trp_bc(&(trp_bc_options){.hidden = {64, 64}, .learning_rate = 1e-3F});
    if (strcmp(name, "iql") == 0)
        return trp_iql(&(trp_iql_options){
            .hidden = {64, 64}, .learning_rate = 1e-3F, .expectile = 0.9F, .beta = 0.5F});
    if (strcmp(name, "crr") == 0)
        return trp_crr(&(trp_crr_options){.hidden = {64, 64},
                                          .critics = 2,
                                          .target_period = 500,
                                          .learning_rate = 1e-3F,
                                          .critic_learning_rate = 1e-3F});
    if (strcmp(name, "cql") == 0)
        return trp_sac(
            &(trp_sac_options){.hidden = {64, 64},
                               .learning_rate = 1e-3F,
                               .critic_learning_rate = 1e-3F,
                               .temperature_learning_rate = 1e-3F,
                               .batch_size = 64,
                               .conservative = 1,
                               .bc_steps = -1, /* most of what SAC did at first is at random */
                               .conservative_samples = 4});
    if (strcmp(name, "td3_bc") != 0)
        return (trp_agent){0};
    return trp_td3(&(trp_td3_options){.hidden = {64, 64},
                                      .learning_rate = 1e-3F,
                                      .critic_learning_rate = 1e-3F,
                                      .imitation = 10});
}

/* ---- the store ---------------------------------------------------------------------------- */

/* SAC's replay server keeps all that it did. */
static trp_status run_sac(void)
{
    trp_agent agent = trp_sac(&(trp_sac_options){.hidden = {64, 64},
                                                 .batch_size = 64,
                                                 .learning_rate = 1e-3F,
                                                 .critic_learning_rate = 1e-3F,
                                                 .temperature_learning_rate = 1e-3F,
                                                 .random_steps = 2000,
                                                 .min_replay_size = 1000,
                                                 .samples_per_insert = 64});
    trp_program *program = trp_program_create("offline_pendulum-data");
    trp_actor_options acting = {.agent = &agent, .env = "Pendulum-v1"};
    acting.replay = trp_add_replay(program, "replay", &(trp_replay_options){.agent = &agent});
    acting.params = trp_add_learner(
        program, "learner",
        &(trp_learner_options){.agent = &agent, .replay = acting.replay, .max_steps = STORED});
    trp_add_actors(program, "actor", 1, &acting);
    trp_status status = trp_run(program, &(trp_run_options){.run_dir = half_dir, .seed = 1}, NULL);
    trp_program_destroy(program);
    return status;
}

static int remove_entry(const char *path, const struct stat *info, int type, struct FTW *place)
{
    (void)info, (void)type, (void)place;
    return remove(path);
}

/* Before it takes its time: what has the name of the store, a link to nothing also, is somebody's.
 */
static trp_status check_name(void)
{
    struct stat info;
    if (lstat(data_dir, &info) != 0)
        return TRP_OK;
    return trp_fail(TRP_FAILED_PRECONDITION, "%s is there, but %s is not: move it away", data_dir,
                    store_file);
}

/* What was interrupted has SAC's first steps only, which are random: it is made again. */
static trp_status store(void)
{
    TRP_TRY(check_name());
    if (access(half_dir, F_OK) == 0) {
        printf("offline_pendulum: storing was interrupted; all of %s is made again\n", half_dir);
        if (nftw(half_dir, remove_entry, 16, FTW_DEPTH | FTW_PHYS) != 0)
            return trp_fail(TRP_FAILED_PRECONDITION, "cannot remove %s: %s", half_dir,
                            strerror(errno));
    }
    printf("offline_pendulum: SAC stores what it does in %s\n", store_dir);
    fflush(stdout);
    TRP_TRY(run_sac());
    if (rename(half_dir, data_dir) != 0)
        return trp_fail(TRP_FAILED_PRECONDITION, "cannot make %s of %s: %s", data_dir, half_dir,
                        strerror(errno));
    return TRP_OK;
}

static bool is_whole(void)
{
    return access(store_file, F_OK) == 0;
}

/* One program stores; those that come later have it. */
static trp_status prepare(void)
{
    if (is_whole())
        return TRP_OK;
    mkdir("runs", 0777);
    int lock = open(lock_file, O_RDWR | O_CREAT | O_CLOEXEC, 0666);
    if (lock < 0)
        return trp_fail(TRP_FAILED_PRECONDITION, "cannot open %s: %s", lock_file, strerror(errno));
    if (flock(lock, LOCK_EX | LOCK_NB) != 0) {
        const char *words = errno == EWOULDBLOCK ? "another program stores now" : strerror(errno);
        trp_status status =
            trp_fail(TRP_FAILED_PRECONDITION, "cannot lock %s: %s", lock_file, words);
        close(lock);
        return status;
    }
    trp_status status = is_whole() ? TRP_OK : store();
    close(lock);
    return status;
}

/* ---- the program -------------------------------------------------------------------------- */

static trp_status build(trp_program *program, int argc, char **argv)
{
    TRP_TRY(trp_arguments_check(argc, argv, 2));
    trp_agent agent = agent_of(argc > 1 ? argv[1] : "td3_bc");
    if (!agent.impl)
        return trp_fail(TRP_INVALID_ARGUMENT, "'%s' is none of td3_bc, bc, iql, crr, cql", argv[1]);
    if (argc <= 2)
        trp_program_prepare(program, prepare);
    trp_node learner =
        trp_add_learner(program, "learner",
                        &(trp_learner_options){.agent = &agent,
                                               .env = "Pendulum-v1",
                                               .dataset = argc > 2 ? argv[2] : store_dir,
                                               .dataset_shuffle = 20000,
                                               .max_steps = 200000});
    trp_add_evaluator(program, "evaluator",
                      &(trp_actor_options){.agent = &agent,
                                           .env = "Pendulum-v1",
                                           .params = learner,
                                           .episodes = 100,
                                           .target_return = -200});
    return TRP_OK;
}

int main(int argc, char **argv)
{
    return trp_main(argc, argv, "offline_pendulum", build);
}

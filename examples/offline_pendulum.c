/* Learning to hold a pendulum up from what another agent stored, without trying anything: TD3+BC,
 * CQL, IQL or CRR; BC, which does what was done on average, cannot. SAC stores its steps first,
 * from the first ones at random to the last ones, when it nearly can.
 *
 *     ./offline_pendulum                        stores what SAC does, then learns from it by TD3+BC
 *     ./offline_pendulum -- iql                 the same by another agent
 *     ./offline_pendulum -- cql RUN/replay      from a store that is there */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <troupe/troupe.h>

enum { STORED = 12000 }; /* SAC's learner steps, and about as many of its actor's */
static const char data_dir[] = "runs/offline_pendulum-data";
static const char store_dir[] = "runs/offline_pendulum-data/replay";

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
        return trp_sac(&(trp_sac_options){.hidden = {64, 64},
                                          .learning_rate = 1e-3F,
                                          .critic_learning_rate = 1e-3F,
                                          .temperature_learning_rate = 1e-3F,
                                          .batch_size = 64,
                                          .conservative = 1,
                                          .conservative_samples = 4});
    if (strcmp(name, "td3_bc") != 0)
        return (trp_agent){0};
    return trp_td3(&(trp_td3_options){.hidden = {64, 64},
                                      .learning_rate = 1e-3F,
                                      .critic_learning_rate = 1e-3F,
                                      .imitation = 10});
}

static trp_status build(trp_program *program, int argc, char **argv)
{
    TRP_TRY(trp_arguments_check(argc, argv, 2));
    trp_agent agent = agent_of(argc > 1 ? argv[1] : "td3_bc");
    if (!agent.impl)
        return trp_fail(TRP_INVALID_ARGUMENT, "'%s' is none of td3_bc, bc, iql, crr, cql", argv[1]);
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

/* SAC's replay server keeps all that it did. */
static trp_status store(void)
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
    printf("offline_pendulum: SAC stores what it does in %s\n", store_dir);
    fflush(stdout);
    trp_run_result result;
    trp_status status =
        trp_run(program, &(trp_run_options){.run_dir = data_dir, .seed = 1}, &result);
    trp_program_destroy(program);
    return status;
}

/* Whether this process is to begin with it: no node of a run that is going, and no store is there
 * or given. */
static bool lacks_data(int argc, char **argv)
{
    int words = 0;
    for (int i = 1, behind = 0; i < argc; i++) {
        if (strncmp(argv[i], "--node=", 7) == 0 || strcmp(argv[i], "graph") == 0)
            return false;
        words += behind;
        behind |= strcmp(argv[i], "--") == 0;
    }
    FILE *there = fopen("runs/offline_pendulum-data/replay/data.mdb", "r");
    if (there)
        fclose(there);
    return words < 2 && !there;
}

int main(int argc, char **argv)
{
    if (lacks_data(argc, argv) && store() != TRP_OK) {
        fprintf(stderr, "offline_pendulum: %s\n", trp_last_error());
        return EXIT_FAILURE;
    }
    return trp_main(argc, argv, "offline_pendulum", build);
}

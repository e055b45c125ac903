/* An agent of continuous actions on Pendulum-v1, small: `control_program [OPTIONS] -- AGENT
 * ACTORS`.
 */
#include <stdlib.h>
#include <string.h>

#include <troupe/troupe.h>

static trp_agent agent_of(const char *name)
{
    if (strcmp(name, "sac") == 0)
        return trp_sac(&(trp_sac_options){.hidden = {8},
                                          .batch_size = 16,
                                          .random_steps = 50,
                                          .min_replay_size = 50,
                                          .samples_per_insert = 16,
                                          .priority_exponent = 0.6F});
    if (strcmp(name, "d4pg") == 0)
        return trp_d4pg(&(trp_d4pg_options){.hidden = {8},
                                            .critic_hidden = {8},
                                            .batch_size = 16,
                                            .target_period = 10,
                                            .min_replay_size = 50,
                                            .samples_per_insert = 16,
                                            .priority_exponent = 0.6F});
    if (strcmp(name, "mpo") == 0)
        return trp_mpo(&(trp_mpo_options){.hidden = {8},
                                          .critic_hidden = {8},
                                          .batch_size = 16,
                                          .samples = 4,
                                          .target_period = 10,
                                          .min_replay_size = 50,
                                          .samples_per_insert = 16});
    return trp_td3(&(trp_td3_options){.hidden = {8},
                                      .batch_size = 16,
                                      .n_step = 3,
                                      .random_steps = 50,
                                      .min_replay_size = 50,
                                      .samples_per_insert = 16});
}

static trp_status build(trp_program *program, int argc, char **argv)
{
    if (argc != 3)
        return trp_fail(TRP_INVALID_ARGUMENT, "usage: -- AGENT ACTORS");
    trp_agent agent = agent_of(argv[1]);
    trp_actor_options acting = {.agent = &agent, .env = "Pendulum-v1"};
    acting.replay = trp_add_replay(program, "replay", &(trp_replay_options){.agent = &agent});
    acting.params = trp_add_learner(
        program, "learner",
        &(trp_learner_options){.agent = &agent, .replay = acting.replay, .max_steps = 200});
    trp_add_actors(program, "actor", (uint32_t)strtoul(argv[2], NULL, 10), &acting);
    return TRP_OK;
}

int main(int argc, char **argv)
{
    return trp_main(argc, argv, "control", build);
}

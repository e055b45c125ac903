/* DQN learns Acrobot-v1: two links swing up, driven at the joint between them only. Each step until
 * then costs 1.
 *
 *     ./dqn_acrobot                        a process per node, until 80 steps do on average
 *     ./dqn_acrobot -- rainbow             the same with all parts of Rainbow
 *     ./dqn_acrobot --launch=threads       everything in this process */
#include <string.h>

#include <troupe/troupe.h>

static trp_status build(trp_program *program, int argc, char **argv)
{
    trp_dqn_options options = {
        .hidden = {128, 128},
        .dueling = true, /* half the steps */
        .batch_size = 64,
        .samples_per_insert = 64, /* a learner step for each of the environment's */
        .epsilon_steps = 5000,
    };
    bool rainbow = argc > 1 && strcmp(argv[1], "rainbow") == 0;
    TRP_TRY(trp_arguments_check(argc, argv, rainbow));
    if (rainbow) {
        /* Double Q-learning, priorities and three steps are DQN's defaults, dueling is above. */
        options.loss = TRP_DQN_C51;
        options.value_least = -100; /* -1 / (1 - discount): it never gets up */
        options.value_most = 1;
        options.noisy = true;
    }
    trp_agent agent = trp_dqn(&options);

    trp_node replay = trp_add_replay(program, "replay", &(trp_replay_options){.agent = &agent});
    trp_node learner = trp_add_learner(program, "learner",
                                       &(trp_learner_options){
                                           .agent = &agent,
                                           .replay = replay,
                                       });
    trp_add_actors(program, "actor", 1,
                   &(trp_actor_options){
                       .agent = &agent,
                       .env = "Acrobot-v1",
                       .envs = 4,
                       .replay = replay,
                       .params = learner,
                   });
    trp_add_evaluator(program, "evaluator",
                      &(trp_actor_options){
                          .agent = &agent,
                          .env = "Acrobot-v1",
                          .params = learner,
                          .episodes = 100,
                          .target_return = -80,
                      });
    return TRP_OK;
}

int main(int argc, char **argv)
{
    return trp_main(argc, argv, "dqn_acrobot", build);
}

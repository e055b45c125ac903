/* DQN learns CartPole-v1 with two learners whose parameters lie on two servers, half on each. A
 * learner may be three steps ahead of the slower one, no more: stale synchronous parallel. A server
 * that dies is started again with what it has answered, and learners wait for it meanwhile. In the
 * end each server says how far ahead a learner ever was.
 *
 *     ./ps                                  a process per node, until the pole stays up
 *     kill -9 PID-OF-server/0               which runs/.../logs/server-0.log has: nothing is lost
 *     ./ps --set server.rule=async          nobody waits
 *     ./ps --set server.rule=sync           learners in step, with the mean of their gradients */
#include <troupe/troupe.h>

static trp_status build(trp_program *program, int argc, char **argv)
{
    TRP_TRY(trp_arguments_check(argc, argv, 0));
    trp_agent agent = trp_dqn(&(trp_dqn_options){
        .n_step = 3,
        .hidden = {64, 64},
        .learning_rate = 2e-3F,
        .target_period = 50,
        .samples_per_insert = 64,
    });

    trp_node replay = trp_add_replay(program, "replay", &(trp_replay_options){.agent = &agent});
    trp_node server = trp_add_parameter_server(program, "server", 2,
                                               &(trp_parameter_server_options){
                                                   .rule = TRP_SERVER_SSP,
                                                   .slack = 3,
                                                   .restarts = 10,
                                               });
    trp_node learner = trp_add_learner(program, "learner",
                                       &(trp_learner_options){
                                           .agent = &agent,
                                           .replay = replay,
                                           .batch_size = 64, /* of each learner */
                                           .count = 2,
                                           .mode = TRP_LEARNERS_SERVER,
                                           .server = server,
                                           .on_failure = TRP_ON_FAILURE_CONTINUE,
                                           .restarts = 10,
                                       });
    trp_add_actors(program, "actor", 4,
                   &(trp_actor_options){
                       .agent = &agent,
                       .env = "CartPole-v1",
                       .replay = replay,
                       .params = learner, /* whichever of them publishes */
                   });
    trp_add_evaluator(program, "evaluator",
                      &(trp_actor_options){
                          .agent = &agent,
                          .env = "CartPole-v1",
                          .params = learner,
                          .episodes = 100,
                          .target_return = 475,
                      });
    return TRP_OK;
}

int main(int argc, char **argv)
{
    return trp_main(argc, argv, "ps", build);
}

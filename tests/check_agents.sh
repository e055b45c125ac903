#!/usr/bin/env bash
# Each agent's example, where Troupe is installed, to its target or, where that takes long, for some steps.
. tests/installed.sh

# Its own target takes it a minute of a processor that is its own; the other one may not find the goal for as long.
options=(--set evaluator.target_return=-100)
run 'the target of -100 is reached' dqn_acrobot.c
options=(--set learner.max_steps=3000)
run 'done: learner/0: 3000 learner steps done' qrdqn_mountaincar.c
# Its target takes half a minute of a processor.
options=(--set learner.max_steps=2)
run 'done: learner/0: 2 learner steps done' ppo_frames.c
options=()
run 'the target of 475 is reached' a3c.c
args=(chain)
run 'the target of 0.99 is reached' a3c.c
args=()
run 'the target of 475 is reached' ppo_cartpole.c
run 'the target of 475 is reached' dqn_learners.c
run 'the target of 475 is reached' impala_cartpole.c
args=(Catch 1)
run 'the target of 0.95 is reached' impala_cartpole.c
args=(fused)
run 'the target of 475 is reached' ppo_cartpole.c
run 'the target of 475 is reached' impala_cartpole.c
args=()
run 'the target of 0.9 is reached' r2d2_memory.c
run 'the target of -200 is reached' d4pg_pendulum.c
run 'the target of -200 is reached' mpo_pendulum.c
run 'the target of -170 is reached' sac_pendulum.c
run 'the target of -170 is reached' td3_pendulum.c
run 'the target of -200 is reached' offline_pendulum.c
args=(iql) # from what is stored by now; its target takes half a minute of a processor
options=(--set learner.max_steps=1000)
run 'done: learner/0: 1000 learner steps done' offline_pendulum.c

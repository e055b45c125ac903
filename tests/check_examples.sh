#!/usr/bin/env bash
# The examples of nodes, services and of what users write themselves, and the shapes of other algorithms
# (tests/shapes_*.c, toy sized, 100 learner steps), where Troupe is installed.
. tests/installed.sh

run 'hello, visitor/2' hello.c hello.proto
run 'done: consumer/0: the squares add up to 8555' consumers.c work.proto
run '^.*200 calls in [2-4][0-9] batches' batching.c work.proto
run 'the call was cancelled' waiting.c work.proto
grep -q 'waited for the stop' waiting.log
run 'the target of 195 is reached' own_agent.c
# A queue in one process, for long: who falls behind on it must not stand still.
timeout 60 usr/bin/troupe launch own_agent.c -- --launch=threads --run-dir=long --seed=1 \
    --set evaluator.target_return=501 --set learner.max_steps=3000 >long.log 2>&1 &&
    grep -q 'done: learner/0: 3000 learner steps done' long.log || { tail -5 long.log; exit 1; }
run 'the target of 100 is reached' own_learner.c
run 'the target of 0.9 is reached' own_env.c
for shape in ppo impala r2d2 sac; do
    run 'done: learner/0: 100 learner steps done' shapes_$shape.c
done
args=(fused) # the learner steps the environment: no replay, no actors
run 'done: learner/0: 100 learner steps done' shapes_ppo.c
grep -q 'time: .* [1-9][0-9]* actor steps' shapes_ppo.log
args=()
run 'every node that no other uses has ended' shapes_a3c.c
for mode in processes threads; do
    grep -q 'learner/1,learner_steps,100,' shapes_a3c-$mode/metrics.csv
done
for words in 'ppo bandit/0 1' 'impala bandit/0' 'a3c bandit/0' 'dqn bandit/0 1 loss=c51 value_least=-2 value_most=2'; do
    timeout 60 usr/bin/troupe launch bsuite.c -- $words >bsuite.log 2>&1 &&
        grep -q '^bandit: score 0.9' bsuite.log || { echo "bsuite $words"; cat bsuite.log; exit 1; }
done
while read -r words; do
    read -r said
    ! timeout 60 usr/bin/troupe launch bsuite.c -- $words >bsuite.log 2>&1 </dev/null && grep -q "^bsuite: $said" bsuite.log ||
        { echo "bsuite $words, wanted: $said"; cat bsuite.log; exit 1; }
done <<'END'
nobody bandit/0
no agent 'nobody'; there are: dqn r2d2 ppo impala a3c
dqn bandit/0 abc
the seed 'abc' is not a whole number
dqn bandit/0 0
the seed '0' is not a whole number
END
args=(own_learner-processes/replay)
run 'offline: done: ' offline.c
run 'done: learner/0: 100 learner steps done' shapes_offline.c

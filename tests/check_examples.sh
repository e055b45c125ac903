#!/usr/bin/env bash
# The examples, and the shapes of other algorithms (tests/shapes_*.c, toy sized, 100 learner
# steps), as somebody runs them who has Troupe installed and nothing else: compiled by `troupe launch`
# from files outside of the tree, in processes and in threads, each to its own end.
set -euo pipefail
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
cmake --install "$BUILD_DIR" --prefix "$dir/usr" >"$dir/log" || { cat "$dir/log"; exit 1; }
cp examples/*.c examples/*.proto tests/shapes_*.c "$dir"
cd "$dir"
export CC="$CC -Wextra -Werror"

# run WORDS FILE...: the program ends well, having said WORDS. It gets `options`, and the arguments in `args`.
args=() options=()
run() {
    local words=$1 mode name
    shift
    name=${1%.c}
    for mode in processes threads; do
        rm -rf "$name-$mode"
        timeout 100 usr/bin/troupe launch "$@" -- --launch=$mode --run-dir="$name-$mode" --seed=1 \
            "${options[@]}" -- "${args[@]}" >"$name.log" 2>&1 && grep -q -- "$words" "$name.log" ||
            { echo "$* --launch=$mode, wanted: $words"; cat "$name.log"; exit 1; }
    done
}

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
args=(fused) # the learner steps the environments: no replay, no actors
run 'the target of 475 is reached' ppo_cartpole.c
run 'the target of 475 is reached' impala_cartpole.c
run 'done: learner/0: 100 learner steps done' shapes_ppo.c
grep -q 'time: .* [1-9][0-9]* actor steps' shapes_ppo.log
args=()
run 'the target of 0.9 is reached' r2d2_memory.c
run 'the target of -200 is reached' d4pg_pendulum.c
run 'the target of -200 is reached' mpo_pendulum.c
run 'the target of -170 is reached' sac_pendulum.c
run 'the target of -170 is reached' td3_pendulum.c
run 'the target of -200 is reached' offline_pendulum.c
args=(iql) # from what is stored by now
run 'the target of -200 is reached' offline_pendulum.c
args=()
run 'every node that no other uses has ended' shapes_a3c.c
for mode in processes threads; do
    grep -q 'learner/1,learner_steps,100,' shapes_a3c-$mode/metrics.csv
done
timeout 60 usr/bin/troupe launch bsuite.c -- ppo bandit/0 1 >bsuite.log 2>&1 &&
    grep -q '^bandit: score 0.9' bsuite.log || { cat bsuite.log; exit 1; }
args=(own_learner-processes/replay)
run 'offline: done: ' offline.c
run 'done: learner/0: 100 learner steps done' shapes_offline.c

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
# What is wrong is refused, and help is given, before anything is stored.
learn=(timeout 60 usr/bin/troupe launch offline_pendulum.c --)
"${learn[@]}" --help >help.log && grep -q '^Usage: ' help.log || { cat help.log; exit 1; }
for words in '-- nonsense' '--set=learner.speed=1' '--set=learner.device=cuda:15' --resume=nowhere dance; do
    rc=0
    "${learn[@]}" $words >wrong.log 2>&1 || rc=$?
    [ $rc = 2 ] && [ "$(wc -l <wrong.log)" = 1 ] || { echo "offline_pendulum $words: status $rc"; cat wrong.log; exit 1; }
done
! ls -d runs/offline_pendulum-data* 2>/dev/null || { echo 'something was stored for what is refused'; exit 1; }
# So is what has the store's name and is none; a lock says what is wrong with it.
mkdir -p runs
refused() { # WORDS...
    rc=0
    "${learn[@]}" >wrong.log 2>&1 || rc=$?
    [ $rc != 0 ] && [ $rc != 124 ] && grep -qF "$*" wrong.log || { echo "not refused as '$*': status $rc"; cat wrong.log; exit 1; }
    [ ! -e runs/offline_pendulum-data.half ] || { echo "something was stored for '$*'"; exit 1; }
}
ln -s nowhere runs/offline_pendulum-data
refused 'runs/offline_pendulum-data is there, but'
rm runs/offline_pendulum-data
mkdir runs/offline_pendulum-data
refused 'runs/offline_pendulum-data is there, but'
rmdir runs/offline_pendulum-data
rm runs/offline_pendulum-data.lock
mkdir runs/offline_pendulum-data.lock
refused 'cannot open runs/offline_pendulum-data.lock: Is a directory'
rmdir runs/offline_pendulum-data.lock
flock runs/offline_pendulum-data.lock true
exec {held}<>runs/offline_pendulum-data.lock
flock "$held"
refused 'cannot lock runs/offline_pendulum-data.lock: another program stores now'
exec {held}>&-
# A store that was interrupted is made again from its beginning. All that follows learns from that one.
usr/bin/troupe launch offline_pendulum.c -- --run-dir=half >half.log 2>&1 &
half=$!
for ((i = 0; i < 2000; i++)); do
    [ ! -e runs/offline_pendulum-data.half/replay/data.mdb ] || break
    sleep 0.02
done
kill $half
! wait $half || { echo 'a half store was learned from'; cat half.log; exit 1; }
"${learn[@]}" --run-dir=whole --set learner.max_steps=1 >whole.log 2>&1 && grep -q 'was interrupted' whole.log &&
    usr/bin/troupe replay ls runs/offline_pendulum-data/replay >ls.log && grep -q '^transitions *1[2-9][0-9][0-9][0-9] ' ls.log ||
    { echo 'a store that was interrupted is not made again'; cat whole.log ls.log; exit 1; }
options=(--set learner.max_steps=300)
for agent in bc cql crr iql; do
    args=($agent)
    run 'done: learner/0: 300 learner steps done' offline_pendulum.c
done
options=() args=()
run 'the target of -200 is reached' offline_pendulum.c

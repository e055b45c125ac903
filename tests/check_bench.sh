#!/usr/bin/env bash
# A benchmark that is killed takes its servers with it, and its stores; rows are shown by any awk. That
# of the agents counts who reaches the target within its steps, nobody else, and compares runs that took turns.
set -euo pipefail
dir=$(mktemp -d)
trap 'kill -KILL "$bench" 2>/dev/null || true; rm -rf "$dir"' EXIT
wait_until() { # WORDS COMMAND...
    local words=$1
    shift
    for _ in $(seq 200); do
        "$@" && return
        sleep 0.1
    done
    echo "not in 20 s: $words"
    exit 1
}
serving() { compgen -G "$dir/*/ADDRESS" >/dev/null && pgrep -f -- "--dir $dir/" >/dev/null; }
none_serves() { ! pgrep -f -- "--dir $dir/" >/dev/null; }
no_store() { [ -z "$(ls -A "$dir")" ]; }

"$BUILD_DIR/bench_durable" "$dir" >/dev/null &
bench=$!
wait_until 'a server of the benchmark' serving
kill -KILL "$bench"
wait_until 'no server is left' none_serves
wait_until 'no store is left' no_store

row=$'insert\t200\titems/s\t400\ta ceiling\t50\ta peer'
awk -f bench/rows.awk <<<"$row" | grep -E '^insert +200 items/s +400 +50%  a ceiling +50 +4.00x$' >/dev/null ||
    { echo 'the table does not show its row'; exit 1; }
awk -f bench/rows.awk <<<$'learn\t200\tsteps\t100\tone actor' | grep -E '^learn +200 steps +100 +50%  one actor' >/dev/null ||
    { echo 'twice as many steps are not half as good'; exit 1; }
awk -f bench/rows.awk <<<$'a row\tskipped: no GPU' | grep '^a row  *skipped: no GPU$' >/dev/null ||
    { echo 'the table does not show what it skips'; exit 1; }
awk -v output=json -f bench/rows.awk <<<"$row" | grep '"share": 0.500, .*"ratio": 4.000' >/dev/null ||
    { echo 'the JSON does not show its row'; exit 1; }

# Stands in for an example: seed 1 fails, 2 ends without the target, 3 takes too many steps.
cat >"$dir/ppo_cartpole" <<'EOF'
#!/usr/bin/env bash
for word; do
    case $word in
    --seed=*) seed=${word#*=} ;;
    --run-dir=*) run=${word#*=} ;;
    esac
done
mkdir "$run"
steps=$((seed == 3 ? 1000000 : 1000 * seed))
echo "time,node,metric,last,mean,count
1,actor/0,actor_steps,7,7,1
2,actor/0,actor_steps,2000000,7,1" >"$run/metrics.csv"
echo "version,learner_steps,actor_steps,episodes,mean
1,1,9,100,10
2,2,$steps,200,500" >"$run/evaluator.csv"
[ "$seed" = 2 ] || touch "$run/params.safetensors"
[ "$seed" != 1 ]
EOF
chmod +x "$dir/ppo_cartpole"
bench/agents.py --bin "$dir" --keep "$dir/runs" ppo_cartpole >"$dir/rows" 2>"$dir/said"
grep -q $'^ppo_cartpole: seeds that reach CartPole-v1 to 475\t2\tseeds\t5\t' "$dir/rows" &&
    grep -q $'^ppo_cartpole: steps to it, median\t4500\tsteps\t' "$dir/rows" ||
    { echo 'the agents are not counted'; cat "$dir/rows" "$dir/said"; exit 1; }

# Cases that are compared take turns, and the one that the other is beside is its ceiling. IMPALA's steps
# are those that its learner learned from, 256 at a time, whatever actors say; of 15 seeds.
cat >"$dir/impala_cartpole" <<'EOF'
#!/usr/bin/env bash
for word; do
    case $word in
    --seed=*) seed=${word#*=} ;;
    --run-dir=*) run=${word#*=} ;;
    esac
done
mkdir "$run"
printf 'version,learner_steps,actor_steps,episodes,mean\n1,%d,7,200,500\n' $((seed * word)) >"$run/evaluator.csv"
touch "$run/params.safetensors"
EOF
chmod +x "$dir/impala_cartpole"
bench/agents.py --bin "$dir" impala_cartpole_2 impala_cartpole_1 >"$dir/rows" 2>"$dir/said"
turns=$(sed -n 's/^bench: impala_cartpole_\([12]\) seed \([12]\):.*/\1 of \2/p' "$dir/said" | paste -sd ,)
[ "$turns" = '2 of 1,1 of 1,2 of 2,1 of 2' ] &&
    grep -q $'^impala_cartpole_2: steps to it, median\t4096\tsteps\t2048\timpala_cartpole_1\t' "$dir/rows" ||
    { echo "no turns: $turns"; cat "$dir/rows" "$dir/said"; exit 1; }

# Learners that send each other bytes say how many when they leave, of each generation; servers count them; and some send none.
for program in dqn_learners ps; do
    cat >"$dir/$program" <<'EOF'
#!/usr/bin/env bash
says=yes
for word; do
    case $word in
    --run-dir=*) run=${word#*=} ;;
    --set=learner.mode=hogwild) says= ;;
    esac
done
mkdir -p "$run/logs"
{
    echo time,node,metric,last,mean,count
    printf '2,learner/%d,learner_steps,100,7,1\n' 0 1
    [ "${0##*/}" = dqn_learners ] || printf '2,server/%d,push_bytes,3250,7,1\n2,server/%d,pull_bytes,1000,7,1\n' 0 0 1 1
} >"$run/metrics.csv"
for learner in 0 1; do
    [ -z "$says" ] || printf 't info  %s\n' 'learner leaves group=learner generation=1 sent_bytes=5000 to_other_sites=7' \
        'learner leaves group=learner generation=2 sent_bytes=1000 to_other_sites=7' \
        'gaia sent numbers=3 of=4 bytes=200 whole_vectors_are=9000 barriers=0' >"$run/logs/learner-$learner.log"
done
printf 'version,learner_steps,actor_steps,episodes,mean\n1,1,1000,200,500\n' >"$run/evaluator.csv"
touch "$run/params.safetensors"
EOF
    chmod +x "$dir/$program"
done
bench/agents.py --bin "$dir" dqn_learners ps_async dqn_hogwild >"$dir/rows" 2>"$dir/said"
for row in 'dqn_learners: bytes of a learner in a step, median\t62\tB' \
    'ps_async: bytes of a learner in a step, median\t85\tB' \
    'dqn_hogwild: bytes of a learner in a step, median\t-\tB'; do
    grep -qF "$(printf "$row")" "$dir/rows" || { echo "no row '$row'"; cat "$dir/rows" "$dir/said"; exit 1; }
done
awk -f bench/rows.awk -v output=json "$dir/rows" | python3 -m json.tool >"$dir/json" || { echo 'rows are no JSON'; exit 1; }

# The same for those that learn from a store, which is made without one and then named: a seed ends with a return of -100
# times it; d3rlpy gets as many steps as the median seed took, and the file of the store's steps.
cat >"$dir/offline_pendulum" <<'EOF'
#!/usr/bin/env bash
for word; do
    case $word in
    --seed=*) seed=${word#*=} ;;
    --run-dir=*) run=${word#*=} ;;
    esac
done
mkdir -p "$run"
case $word in
bc)
    mkdir -p runs/offline_pendulum-data/replay
    printf 'time,node,metric,last,mean,count\n1,actor/0,return,-9,7,1\n2,actor/0,return,-500.5,7,1\n' \
        >runs/offline_pendulum-data/metrics.csv ;;
*/runs/offline_pendulum-data/replay)
    [ -d "$word" ] || exit 1
    printf 'version,learner_steps,actor_steps,episodes,mean\n1,%d,0,200,%d\n' $((1000 * seed)) $((-100 * seed)) >"$run/evaluator.csv"
    touch "$run/params.safetensors" ;;
esac
EOF
cat >"$dir/troupe" <<'EOF'
#!/usr/bin/env bash
[ "$1 $2 $4" = 'replay dump transitions' ] && [ -d "$3" ] && touch "$5"
EOF
mkdir -p "$dir/peer/d3rlpy/bin"
cat >"$dir/peer/d3rlpy/bin/python" <<'EOF'
#!/usr/bin/env bash
[ "$1 $2 $3" = 'bench/peers/d3rlpy_return.py cql 3000' ] && [ -f "$4" ] && printf 'words\n-160.5 2.5 7\n'
EOF
chmod +x "$dir/offline_pendulum" "$dir/troupe" "$dir/peer/d3rlpy/bin/python"
bench/agents.py --bin "$dir" --keep "$dir/runs" --peer "$dir/peer" offline_cql >"$dir/rows" 2>"$dir/said"
for row in 'offline: mean return of the stored episodes\t-500.5' 'offline_cql: seeds that reach Pendulum-v1 to -200\t5' \
    'offline_cql: learner steps, median\t3000' 'offline_cql: mean return at the end, mean over seeds\t-300' \
    'offline_cql: standard error of that\t70.7107' "offline_cql: d3rlpy's mean return after as many steps, one seed\t-160.5"; do
    grep -qF "$(printf "$row")" "$dir/rows" || { echo "no row '$row'"; cat "$dir/rows" "$dir/said"; exit 1; }
done

# Stands in for the example: a regret is better when it is small.
cat >"$dir/bsuite" <<'EOF'
#!/usr/bin/env bash
echo "$2  10000 episodes, total_regret 3414, score 0.0000"
echo "$2: score 0.5000"
EOF
chmod +x "$dir/bsuite"
bench/bsuite.py --bin "$dir" 'dqn umbrella_length/11' 'dqn catch/0' >"$dir/rows"
grep -q $'^bsuite, dqn catch/0\t0.0000\tscore\t0.9\t' "$dir/rows" &&
    awk -f bench/rows.awk "$dir/rows" | grep -E 'umbrella_length/11 +3414 regret +6828 +200%' >/dev/null ||
    { cat "$dir/rows"; echo 'a score is not compared with what it has to be'; exit 1; }

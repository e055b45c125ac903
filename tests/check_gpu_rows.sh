#!/usr/bin/env bash
# scripts/gpu-check tells what happened, on a machine that has a GPU: programs of this test stand for ours, and for NVIDIA's and PyTorch's.
set -euo pipefail
cd "$(dirname "$0")/.."
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
there=$dir/gpu-bundle table=$dir/table
mkdir -p "$there/bin" "$there/lib" "$dir/tools"
cp scripts/gpu-check "$there/"
program() { { echo '#!/bin/bash'; cat; } >"$1" && chmod +x "$1"; } # FILE, of the lines that come in
program "$dir/tools/nvidia-smi" <<'END'
case $1 in -L) echo 'GPU 0: NVIDIA H200 (UUID: GPU-1)' ;; *) echo 'NVIDIA H200, 580.159.04, 143771 MiB' ;; esac
END
program "$dir/tools/python3" <<'END'
echo "python3 has $LD_LIBRARY_PATH" >>"$SEEN"
[ "$1" = -c ] || printf 'peer\t%s\n' "$2"
END
for name in test_plans test_phases test_virtual_ranks test_nccl_gpu test_gpu_together test_gpu_learner test_policies bench_gpu bench_gpu_acting bench_gpu_feed bench_gpu_ranks dqn_cartpole ppo_cartpole ppo_frames; do
    program "$there/bin/$name" <<<'exit 0'
done
check() { # ARGS...: as that machine has it; the exit status is in $status
    status=0
    env -i PATH="$dir/tools:/usr/bin:/bin" HOME="$dir" SEEN="$dir/seen" LD_LIBRARY_PATH=/the/machines "$there/gpu-check" --out "$table" "$@" >"$dir/said" 2>&1 || status=$?
}
wants() { grep -qE -- "$1" "$table" || { echo "no row '$1' in:"; cat "$table" "$dir/said"; exit 1; }; }
lacks() { ! grep -E -- "$1" "$table" || { echo "rows that should not be:"; cat "$table"; exit 1; }; }

# All is well: what tests print between tabs is a row, and each device and library that was found is named once.
program "$there/bin/test_plans" <<'END'
echo "INFO device cuda:0 is NVIDIA H200, of compute capability 9.0, with 1 of 2 MiB free; products: cuBLASLt 13.1.0 (/a/lib)" >&2
printf '[ RUN      ] one\n[       OK ] one\nfarthest\t1e-06\n'
END
cp "$there/bin/test_plans" "$there/bin/test_phases"
program "$there/bin/test_nccl_gpu" <<'END'
printf '[ RUN      ] joins\nskipped: no NCCL (libnccl.so.2 is nowhere)\n[  SKIPPED ] joins\n'
END
check correct
[ "$status" = 0 ] || { cat "$table"; exit 1; }
wants '^GPU +NVIDIA H200, 580.159.04, 143771 MiB$'
wants '^test_plans: one +passed$'
wants '^farthest +1e-06$'
wants '^test_nccl_gpu: joins +skipped: no NCCL \(libnccl.so.2 is nowhere\)$'
[ "$(grep -c 'products: cuBLASLt 13.1.0 (/a/lib) *$' "$table")" = 1 ] || { cat "$table"; exit 1; }
grep -q '1 of 2 MiB free' "$table.log"

# That our program finds no GPU is no row that is skipped; nor is it with failures, crashes, and what is printed in their midst.
program "$there/bin/test_plans" <<'END'
printf '[ RUN      ] none\nskipped: no NCCL (it is nowhere)\n[  SKIPPED ] none\n[ RUN      ] unsaid\n[  SKIPPED ] unsaid\n'
printf '[ RUN      ] two\nskipped: no GPU (device cuda:0: no driver)\n[  SKIPPED ] two\n[  SKIPPED ] 1 test(s), listed below:\n[  SKIPPED ] two\n'
END
program "$there/bin/test_phases" <<'END'
printf '[ RUN      ] told\n'; printf 'ERROR: loss is 2: not 1\n[  ERROR   ] --- [   LINE   ] --- here\n[  FAILED  ] told\n' >&2
printf '[ RUN      ] fine\n[       OK ] fine\n'; printf '[  ERROR   ] --- 0 != 0x1\n[  FAILED  ] wrong\n[  FAILED  ] 1 test(s), listed below:\n[  FAILED  ] wrong\n' >&2; exit 1
END
program "$there/bin/test_policies" <<<'echo "CUDA is gone" >&2; exit 70'
program "$there/bin/test_virtual_ranks" <<<'echo "WARN device cuda:0: a list of 3 works is no graph, and is run work by work: no (cudaErrorUnknown)" >&2'
check correct
[ "$status" = 1 ] || { echo "it ended with $status"; exit 1; }
wants '^test_plans: two +FAILED: the machine has a GPU, and the program found none: device cuda:0: no driver$'
wants '^test_plans: unsaid +FAILED: the machine has a GPU, and the program found none$'
wants '^test_phases: wrong +FAILED: 0 != 0x1$'
wants '^test_phases: told +FAILED: loss is 2: not 1$'
wants '^test_phases: fine +passed$'
wants '^test_policies +FAILED: it ended with 70: CUDA is gone$'
wants '^  device cuda:0: a list of 3 works is no graph, .*cudaErrorUnknown\) +FAILED: all that we run are to be graphs$'
[ "$(grep -c FAILED "$table")" = 6 ] || { cat "$table"; exit 1; }
program "$there/bin/test_virtual_ranks" <<<'exit 0'
program "$there/bin/test_plans" <<<'exit 0'
program "$there/bin/test_phases" <<<'exit 0'
program "$there/bin/bench_gpu" <<<'echo "bench_gpu: no driver" >&2; printf "MLP\tskipped: no GPU\n"'
check bench
wants '^MLP +FAILED: the machine has a GPU, and the program found none: bench_gpu: no driver$'
[ "$status" = 1 ]

# Times of ceilings and peers, of what is better when less and of what is better when more; PyTorch keeps the machine's libraries.
program "$there/bin/bench_gpu" <<'END'
echo "bench_gpu has $LD_LIBRARY_PATH" >>"$SEEN"
printf 'MLP\t20\tus/step\t5\talone\t40\tPyTorch\nrate\t30\tsteps/s\t60\tthe bus\n  host\t3\tus/step, p99 9\t0\t\nbare\t0\tus\t0\t\t4\tPyTorch\n'
[ "${2:-}" != --peer ] || "$3" a "b c"
END
check peer sanitize
[ "$status" = 0 ] || { cat "$table"; exit 1; }
wants '^MLP +20 us/step; alone 5: 0.25; PyTorch 40: 2.00x$'
wants '^rate +30 steps/s; the bus 60: 0.50$'
wants '^  host +3 us/step, p99 9$'
wants '^bare +0 us; PyTorch 4: x$'
wants '^peer +b c$'
wants '^memcheck, test_phases +skipped: there is no compute-sanitizer$'
[ "$(sort -u "$dir/seen" | grep python3)" = 'python3 has /the/machines' ] || { cat "$dir/seen"; exit 1; }
grep -qx "bench_gpu has $there/lib:/the/machines" "$dir/seen"

# A part takes half of what is left at most; its rows are there as they come; what there is no time for is not run.
program "$there/bin/test_plans" <<<'printf "[       OK ] early\n"; sleep 100'
program "$there/bin/test_phases" <<<'printf "[       OK ] late\n"'
program "$there/bin/bench_gpu" <<<'printf "MLP\t1\tus/step\t0\t\n"; sleep 100'
began=$SECONDS
check correct bench --for 6
[ $((SECONDS - began)) -lt 30 ] || { echo "it took $((SECONDS - began)) s"; exit 1; }
wants '^test_plans: early +passed$'
wants '^test_plans +FAILED: it was not done in its time$'
wants '^test_phases +not run: no time is left$'
wants '^MLP +1 us/step$'
wants '^bench_gpu +FAILED: it was not done in its time$'
lacks 'late'
[ "$status" = 1 ]

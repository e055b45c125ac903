#!/usr/bin/env bash
# What scripts/gpu-bundle packs is all that scripts/gpu-check needs: unpacked elsewhere it comes to its end, and its programs find the library
# for GPUs, which says what is missing here. Also where the machine's libc is too old, and nobody else gets the bundle's libraries.
#   check_gpu_bundle.sh BIN
set -euo pipefail
cd "$(dirname "$0")/.."
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
fail() { echo "$1"; cat gpu-check.txt; exit 1; }
scripts/gpu-bundle --bin "$1" "$dir/bundle.tar.xz" # no larger than it may be
tar -C "$dir" -xJf "$dir/bundle.tar.xz"
# No path of this build is left: its own libraries are out of sight.
cd "$dir/gpu-bundle"
check() { env -i PATH="$PATH" HOME="$dir" ./gpu-check "$@" >"$dir/said" 2>&1 || { cat "$dir/said"; exit 1; }; }
! compgen -G '/dev/nvidia[0-9]*' >/dev/null && ! command -v nvidia-smi /usr/local/nvidia/bin/nvidia-smi /usr/lib/wsl/lib/nvidia-smi >/dev/null || { echo "skipped: there is a GPU, which takes up to 25 minutes"; exit 0; }
check
! grep -e FAILED -e '^libc' gpu-check.txt || fail "rows that should not be"
for part in correct train bench peer sanitize; do
    grep -q "^== $part" gpu-check.txt || fail "part $part is missing"
done
skipped=$(grep -c 'skipped: no GPU$' gpu-check.txt)
[ "$skipped" -ge 30 ] || fail "only $skipped rows say that they were skipped:"
for program in dqn_cartpole ppo_frames; do
    env -i PATH="$PATH" HOME="$dir" LD_LIBRARY_PATH="$PWD/lib" "bin/$program" --run-dir="$dir/$program" --device=cuda:0 >"$dir/said" 2>&1 && exit 1
    grep -q 'cuda:0: .*this host has no driver' "$dir/said" || { cat "$dir/said"; exit 1; }
done

# By the bundle's own libc, as on a machine with an older one.
rows_of() { sed -n '/^== bench/,/bench took/s/ *skipped: no GPU$//p' gpu-check.txt; }
native=$(rows_of)
echo GLIBC_9.99 >needs
check bench
grep -q '^libc  *older than GLIBC_9.99' gpu-check.txt || fail "the machine's libc was taken"
! grep FAILED gpu-check.txt || fail "rows that should not be"
[ "$(rows_of)" = "$native" ] || fail "not the same rows by the bundle's libc:"

# A peer is told what to do and answers, or not, by turns with ours; it has every case, by its name.
cat >"$dir/python" <<'END'
#!/bin/bash
while IFS= read -r line; do
    case $line in
    run) echo 1e9 ;;
    *$'\tf32') echo "ready $1 of $2" ;;
    *$'\tbf16') exit 1 ;;
    *) echo 'it has no tf32' ;;
    esac
done
END
chmod +x "$dir/python"
env -i PATH="$PATH" HOME="$dir" LD_LIBRARY_PATH="$PWD/lib" bin/bench_gpu cpu --only MLP --peer "$dir/python" >"$dir/said"
grep -qP '^MLP 2x256, B=256, f32\t[0-9.e+]+\tus/step\t0\t[a-z ]*\t1e\+09\tbench/peers/torch_gpu.py of cpu$' "$dir/said" &&
    grep -qP '^  PyTorch: MLP 2x256, B=256, bf16\tskipped: it has ended$' "$dir/said" &&
    grep -qP '^  PyTorch: MLP 2x256, B=256, tf32\tskipped: it has no tf32$' "$dir/said" &&
    grep -qP '^MLP 2x256, B=256, tf32\t[0-9.e+]+\tus/step\t0\t[a-z ]*\t0\t' "$dir/said" || { cat "$dir/said"; exit 1; }
bin/bench_gpu cuda:15 2>/dev/null | sed -n 's/, f32\t.*//p' | while IFS= read -r name; do
    grep -qF "    \"$name\": (" bench/peers/torch_gpu.py || { echo "torch_gpu.py has no '$name'"; exit 1; }
done

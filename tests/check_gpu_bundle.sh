#!/usr/bin/env bash
# What scripts/gpu-bundle packs is all that scripts/gpu-check needs: unpacked elsewhere it comes to its end, and its programs find the library
# for GPUs, which says what is missing here.
#   check_gpu_bundle.sh BIN
set -euo pipefail
cd "$(dirname "$0")/.."
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
scripts/gpu-bundle --bin "$1" "$dir/bundle.tar.xz" # no larger than it may be
tar -C "$dir" -xJf "$dir/bundle.tar.xz"
# No path of this build is left: its own libraries are out of sight.
cd "$dir/gpu-bundle"
env -i PATH="$PATH" HOME="$dir" ./gpu-check >"$dir/said" || { cat "$dir/said"; exit 1; }
! grep FAILED gpu-check.txt
for part in correct train bench peer sanitize; do
    grep -q "^== $part" gpu-check.txt || { echo "part $part is missing"; exit 1; }
done
grep -q '^GPU  *none' gpu-check.txt || exit 0
skipped=$(grep -c 'skipped: no GPU$' gpu-check.txt)
[ "$skipped" -ge 30 ] || { echo "only $skipped rows say that they were skipped:"; cat gpu-check.txt; exit 1; }
for program in dqn_cartpole ppo_frames; do
    env -i PATH="$PATH" HOME="$dir" LD_LIBRARY_PATH="$PWD/lib" "bin/$program" --run-dir="$dir/$program" --device=cuda:0 >"$dir/said" 2>&1 && exit 1
    grep -q 'cuda:0: .*this host has no driver' "$dir/said" || { cat "$dir/said"; exit 1; }
done

#!/usr/bin/env bash
# scripts/gpu-check comes to its end without a GPU, with every row skipped and none failed.
#   check_gpu_check.sh BIN
set -euo pipefail
cd "$(dirname "$0")/.."
out=$(mktemp)
trap 'rm -f "$out"' EXIT
! compgen -G '/dev/nvidia[0-9]*' >/dev/null && ! command -v nvidia-smi /usr/local/nvidia/bin/nvidia-smi /usr/lib/wsl/lib/nvidia-smi >/dev/null || { echo "skipped: there is a GPU"; exit 0; }
scripts/gpu-check --bin "$1" --out "$out" >/dev/null
! grep FAILED "$out" || exit 1
skipped=$(grep -c 'skipped: no GPU$' "$out")
[ "$skipped" -ge 30 ] || { echo "only $skipped rows say that they were skipped:"; cat "$out"; exit 1; }
grep -q '^evaluator on the GPU, .*: share of forward and copies alone  *skipped: no GPU$' "$out"
grep -q '^learner fed by replay on the host, 84x84x4, B=512  *skipped: no GPU$' "$out"
for part in correct train bench peer sanitize; do
    grep -q "^== $part" "$out" || { echo "part $part is missing"; exit 1; }
done

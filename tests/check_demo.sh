#!/usr/bin/env bash
# scripts/demo says how far its build has come, and of a build that fails what the compiler said.
set -euo pipefail
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
mkdir -p "$dir/scripts" "$dir/bin" "$dir/build/release"
cp scripts/demo "$dir/scripts/"
printf '#!/bin/sh\necho "setup: nothing to install"\n' >"$dir/scripts/setup"
printf '#!/bin/sh\necho "ran $*"\n' >"$dir/build/release/dqn_cartpole"

# Stands in for cmake: its build fails where a file says so.
cat >"$dir/bin/cmake" <<'END'
#!/bin/sh
[ "$1" = --build ] || { echo '-- Configuring done'; exit 0; }
for step in 1 2 3 4; do echo "[$step/4] Building C object $step.c.o"; done
[ ! -e fails ] || { echo "4.c: error: no"; exit 1; }
END
chmod +x "$dir/scripts/setup" "$dir/bin/cmake" "$dir/build/release/dqn_cartpole"
fails() { echo "$1:"; cat "$dir/said"; exit 1; }

PATH="$dir/bin:$PATH" "$dir/scripts/demo" --seed=3 >"$dir/said" 2>&1 || fails 'it failed'
grep -q '^demo: built 20 % (1 of 4 steps)$' "$dir/said" || fails 'no first step'
grep -q '^demo: built 100 % (4 of 4 steps)$' "$dir/said" || fails 'no last step'
grep -q '^ran --seed=3$' "$dir/said" || fails 'the program did not run'

touch "$dir/fails"
! PATH="$dir/bin:$PATH" "$dir/scripts/demo" >"$dir/said" 2>&1 || fails 'it did not fail'
grep -q '^4.c: error: no$' "$dir/said" || fails 'nothing of the compiler'
! grep -q '^ran' "$dir/said" || fails 'the program ran'

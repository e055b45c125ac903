#!/usr/bin/env bash
# The tests' test: ctest must report a failing and a hanging test, or a green run means nothing.
set -euo pipefail
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
cat >"$dir/CTestTestfile.cmake" <<'EOF'
add_test(passes true)
add_test(fails false)
add_test(hangs tail -f /dev/null)
set_tests_properties(hangs PROPERTIES TIMEOUT 1)
EOF
status=0
output=$(cd "$dir" && ctest 2>&1) || status=$?
[ "$status" -ne 0 ] || { echo "ctest passed a failing test"; exit 1; }
grep -q 'fails.*Failed' <<<"$output" || { echo "the failing test is not reported: $output"; exit 1; }
grep -q 'hangs.*Timeout' <<<"$output" || { echo "the hanging test is not reported: $output"; exit 1; }
grep -q '33% tests passed' <<<"$output" || { echo "the passing test is not counted: $output"; exit 1; }

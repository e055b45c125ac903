# For scripts that run examples as somebody does who has Troupe installed and nothing else: compiled by `troupe launch`
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

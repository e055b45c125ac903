#!/usr/bin/env bash
# Every ```c block of README.md and docs/ that includes <troupe/troupe.h> compiles and links, and
# every block says the same as the file that its first line names ("/* examples/x.c */"). So does
# every example of functions in a public header; those of one comment are one file.
set -euo pipefail
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
awk -v dir="$dir" '
    /^```c$/ { inside = 1; file = sprintf("%s/%02d.c", dir, ++count); next }
    /^```/   { if (inside) close(file); inside = 0 }
    inside   { print > file }' README.md docs/*.md
awk -v dir="$dir" '
    FNR == 1 { name = FILENAME; sub(".*/", "", name); count = 0 }
    /^\/\*/  { begun = 0 }
    /^ \*     (static|int|typedef) / && !begun {
        file = dir "/" name "." ++count ".c"
        begun = 1
        print "#include <string.h>\n#include <troupe/troupe.h>" > file
        print "#pragma GCC diagnostic ignored \"-Wunused-function\"" > file
        print "#pragma GCC diagnostic ignored \"-Wunused-parameter\"" > file
    }
    begun && /^ \*     / { print substr($0, 8) > file }' include/troupe/*.h
for example in device.h.1 distributions.h.1 env.h.1 env.h.2 losses.h.1 nn.h.1 options.h.1 policy_losses.h.1 \
    program.h.1 returns.h.1 source.h.1; do
    [ -e "$dir/$example.c" ] || { echo "${example%.*} lacks example ${example##*.}"; exit 1; }
done
compiled=0
for file in "$dir"/*.c; do
    named=$(sed -n '1s|^/\* \(examples/[a-z_]*\.c\) \*/$|\1|p' "$file")
    if [ -n "$named" ]; then
        diff <(tail -n +2 "$file") "$named" || { echo "differs from $named"; exit 1; }
    fi
    grep -q '<troupe/troupe.h>' "$file" || continue
    mode=(-fsyntax-only)
    if grep -qE '^int main\(' "$file"; then
        mode=("-L$BUILD_DIR" -ltroupe -Wl,-rpath,"$BUILD_DIR" -o "$dir/program")
    fi
    "$CC" -std=gnu11 -Wall -Wextra -Werror -Iinclude $(pkg-config --cflags libprotobuf-c) \
        "$file" "${mode[@]}" || { cat "$file"; exit 1; }
    compiled=$((compiled + 1))
done
[ "$compiled" -gt 0 ] || { echo "no snippet was compiled"; exit 1; }
echo "$compiled snippets"

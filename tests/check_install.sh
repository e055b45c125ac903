#!/usr/bin/env bash
# An installed Troupe can be used through pkg-config and through find_package, and exports trp_ only.
set -euo pipefail
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
cmake --install "$BUILD_DIR" --prefix "$dir/usr" >"$dir/log" || { cat "$dir/log"; exit 1; }
lib=$(dirname "$(find "$dir/usr" -name libtroupe.so)")

cat >"$dir/main.c" <<'EOF'
#include <troupe/troupe.h>
#include <stdio.h>

int main(void)
{
    return puts(trp_version()) < 0;
}
EOF
export PKG_CONFIG_PATH=$lib/pkgconfig
"$CC" -std=c11 "$dir/main.c" -o "$dir/by_pkg_config" $(pkg-config --cflags --libs troupe)
[ "$(LD_LIBRARY_PATH=$lib "$dir/by_pkg_config")" = 0.1.0 ]

cat >"$dir/CMakeLists.txt" <<'EOF'
cmake_minimum_required(VERSION 3.25)
project(user C)
find_package(troupe 0.1 REQUIRED)
add_executable(user main.c)
target_link_libraries(user PRIVATE troupe::troupe)
EOF
cmake -S "$dir" -B "$dir/build" -DCMAKE_PREFIX_PATH="$dir/usr" -DCMAKE_C_COMPILER="$CC" >"$dir/log" ||
    { cat "$dir/log"; exit 1; }
cmake --build "$dir/build" >"$dir/log" || { cat "$dir/log"; exit 1; }
[ "$("$dir/build/user")" = 0.1.0 ]

foreign=$(nm -D --defined-only "$lib/libtroupe.so" | awk '{print $3}' | grep -v '^trp_' || true)
[ -z "$foreign" ] || { echo "exported without the prefix: $foreign"; exit 1; }

# The installed tool compiles a launch file against the installed library.
CC=$CC "$dir/usr/bin/troupe" launch examples/catch.c -- graph >"$dir/graph"
grep -q 'catch: 5 nodes in 4 groups' "$dir/graph"

# Its manual pages and completion came along.
[ -s "$dir/usr/share/man/man1/troupe-replay-ls.1" ]
grep -q '_troupe troupe' "$dir/usr/share/bash-completion/completions/troupe"

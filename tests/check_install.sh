#!/usr/bin/env bash
# A program of a user's own (tests/e2e/user_program.c) builds against an installed Troupe through
# pkg-config, find_package and `troupe launch`, and runs in processes and threads. The library
# exports trp_ only.
set -euo pipefail
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
cmake --install "$BUILD_DIR" --prefix "$dir/usr" >"$dir/log" || { cat "$dir/log"; exit 1; }
lib=$(dirname "$(find "$dir/usr" -name libtroupe.so)")
cp tests/e2e/user_program.c "$dir"
protoc-c --c_out="$dir" -Itests/proto tests/proto/judge.proto
protoc-c --c_out="$dir" -I"$dir/usr/share/troupe/proto" "$dir/usr/share/troupe/proto/params.proto"

has() { # FILE WORDS
    grep -q -- "$2" "$1" || { echo "'$2' is not in:"; cat "$1"; exit 1; }
}

# check COMMAND...: the program runs to its end and every node of it did what it is for.
check() {
    local mode run
    for mode in processes threads; do
        run=$(mktemp -d "$dir/run-XXXX")
        timeout 60 "$@" --launch=$mode --run-dir="$run/run" --seed=1 --set player.first=40 >"$run/log" 2>&1 ||
            { echo "$* --launch=$mode:"; cat "$run/log"; exit 1; }
        has "$run/log" 'done: judge/0: judged and learned'
        has "$run/run/metrics.csv" 'player/0,sum,41,41,1'
        has "$run/run/metrics.csv" 'player/1,sum,42,42,1'
        has "$run/run/metrics.csv" 'actor/0,actor_steps,'
    done
}

flags=$(PKG_CONFIG_PATH=$lib/pkgconfig pkg-config --cflags --libs troupe)
"$CC" -std=c11 -Wall -Wextra -Werror "$dir/user_program.c" "$dir"/{judge,params}.pb-c.c -o "$dir/user" $flags
check "$dir/user"

cat >"$dir/CMakeLists.txt" <<'END'
cmake_minimum_required(VERSION 3.25)
project(user C)
find_package(troupe 0.1 REQUIRED)
add_executable(user user_program.c judge.pb-c.c params.pb-c.c)
target_link_libraries(user PRIVATE troupe::troupe)
END
cmake -S "$dir" -B "$dir/build" -DCMAKE_PREFIX_PATH="$dir/usr" -DCMAKE_C_COMPILER="$CC" >"$dir/log" ||
    { cat "$dir/log"; exit 1; }
cmake --build "$dir/build" >"$dir/log" || { cat "$dir/log"; exit 1; }
check "$dir/build/user"

# A launch file is one file. The tool finds the library that it was installed with by itself, wherever
# that is.
printf '#include "%s"\n' judge.pb-c.c params.pb-c.c user_program.c >"$dir/whole.c"
cp -a "$dir/usr" "$dir/a prefix"
CC=$CC check "$dir/a prefix/bin/troupe" launch "$dir/whole.c" --

[ "$("$dir/build/user" --version)" = "troupe 0.1.0" ]
foreign=$(nm -D --defined-only "$lib/libtroupe.so" | awk '{print $3}' | grep -v '^trp_' || true)
[ -z "$foreign" ] || { echo "exported without the prefix: $foreign"; exit 1; }

# Its manual pages and completion came along.
[ -s "$dir/usr/share/man/man1/troupe-replay-ls.1" ]
has "$dir/usr/share/bash-completion/completions/troupe" '_troupe troupe'

#!/usr/bin/env bash
# Every public header compiles alone, as C11 and as C++17, without a warning, and cites no file that
# a user does not have.
set -uo pipefail
flags=(-Iinclude $(pkg-config --cflags libprotobuf-c) -Wall -Wextra -Wpedantic -Werror -fsyntax-only)
bad=0
for header in include/troupe/*.h; do # included, as users do: not all that it defines is used
    include="#include <troupe/${header##*/}>"
    "${CC:-cc}" -std=c11 -x c "${flags[@]}" - <<<"$include" || bad=1
    g++ -std=c++17 -x c++ "${flags[@]}" - <<<"$include" || bad=1
done
grep -nE '(core|rpc|nn|replay|envs|actor|learner|agents|launch|cli)/[a-z_/]+\.(h|c|proto)' \
    include/troupe/*.h && bad=1
exit $bad

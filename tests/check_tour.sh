#!/usr/bin/env bash
# What docs/tour.md, docs/glossary.md and CONTRIBUTING.md name is there: paths, files without a
# folder, `folder/` and `function()`. A function is there when a line of a source begins with it.
set -uo pipefail
bad=0 checked=0
missing() { # PAGE NAME
    echo "$1: $2 does not exist"
    bad=1
}
folders=(core rpc nn envs replay actor learner agents launch cli include)
functions=$(grep -rhoE --include='*.[ch]' '^[a-z].*\(' "${folders[@]}" | grep -oE '\b[a-z_0-9]+\(' | sort -u)
files=$(find "${folders[@]}" examples scripts tests docs bench cmake -type f)
for page in docs/tour.md docs/glossary.md CONTRIBUTING.md; do
    for name in $(grep -oE '[a-z_0-9][a-z_0-9/]*\.(c|h|sh|md|proto)\b' "$page" | sort -u); do
        grep -qE "(^|/)$name\$" <<<"$files" || missing "$page" "$name"
        checked=$((checked + 1))
    done
    for name in $(grep -oE '`[a-z_][a-z_/]*/`' "$page" | tr -d '`' | sort -u); do
        [ -d "$name" ] || [ -d "replay/$name" ] || missing "$page" "$name"
        checked=$((checked + 1))
    done
    for name in $(grep -oE '`[a-z_0-9]+\(\)`' "$page" | tr -d '`)' | sort -u); do
        grep -qxF "$name" <<<"$functions" || missing "$page" "$name)"
        checked=$((checked + 1))
    done
done
[ "$checked" -ge 100 ] || missing tests/check_tour.sh "what is to be checked ($checked names)"
[ $bad -eq 0 ] && echo "$checked names"
exit $bad

#!/usr/bin/env bash
# The real dm-reverb client works against `troupe replay serve`. The first run makes a virtual
# environment and keeps it: in build/ for the builds of the presets, else in the build's own folder;
# TROUPE_REVERB_VENV names one that exists. Without the client the test fails: it never skips.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
: "${BUILD_DIR:?names the build folder}"
client='dm-reverb[tensorflow]==0.14.0'

case $BUILD_DIR/ in
"$PWD"/build/*) venv=$PWD/build/reverb-venv ;;
*) venv=$BUILD_DIR/reverb-venv ;;
esac
venv=${TROUPE_REVERB_VENV:-$venv}

find_python() {
    local python
    for python in python3.11 python3; do
        if "$python" -c 'import sys; sys.exit(sys.version_info[:2] != (3, 11))' 2>/dev/null; then
            echo "$python"
            return
        fi
    done
    echo "dm-reverb 0.14 needs Python 3.11: neither python3.11 nor python3 is one" >&2
    return 1
}

has_client() {
    "$venv/bin/python" -c 'from importlib.metadata import version as v
import sys
sys.exit(v("dm-reverb") != "0.14.0" or not v("tensorflow"))' 2>/dev/null
}

install_client() {
    local python
    python=$(find_python)
    rm -rf "$venv"
    "$python" -m venv "$venv" || { echo "cannot make $venv: is python3-venv installed?"; exit 1; }
    "$venv/bin/pip" install --quiet --disable-pip-version-check --retries 5 "$client" ||
        { echo "cannot install $client: the test needs a package index"; exit 1; }
    touch "$venv/complete"
}

if [ -n "${TROUPE_REVERB_VENV:-}" ]; then
    has_client || { echo "no dm-reverb 0.14.0 in TROUPE_REVERB_VENV=$venv"; exit 1; }
else
    mkdir -p "$(dirname "$venv")"
    exec 9>"$venv.lock"
    flock 9 # two builds may get here at once
    [ -e "$venv/complete" ] && has_client || install_client
    exec 9>&-
fi
exec "$venv/bin/python" tests/python/test_dm_reverb.py "$@"

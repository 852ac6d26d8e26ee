#!/bin/bash
# Installs what building needs, and builds: tests/bench/prepare.sh TARGET... (part of the other scripts here).
set -eu
root=$(cd "$(dirname "$0")/../.." && pwd)
"$root/deploy/local/packages.sh" build model
[[ -f $root/build/build.ninja ]] || cmake -S "$root" -B "$root/build" -G Ninja -DCMAKE_BUILD_TYPE=Release
ninja -C "$root/build" "$@"

#!/bin/bash
# Prints the engine's targets beside what this machine does: tests/bench/engine.sh [--quick]
#
# Run it while nothing else runs; about three minutes. It builds, fetches the models that are missing
# (0.7 GB in all) and measures with `penstock-bench engine`. --quick: one short repeat of each case.
set -eu
root=$(cd "$(dirname "$0")/../.." && pwd)
"$root/tests/bench/prepare.sh" penstock-bench penstock-eval >&2
exec python3 "$root/tests/bench/engine.py" "$@"

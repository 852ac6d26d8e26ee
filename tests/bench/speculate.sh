#!/bin/bash
# Prints what guessing tokens gains beside its targets: tests/bench/speculate.sh [--quick]
#
# Run it while nothing else runs; about ten minutes. It builds, fetches the models that are missing
# (1.6 GB in all) and measures with `penstock-bench speculate`. --quick: one repeat of each case.
set -eu
root=$(cd "$(dirname "$0")/../.." && pwd)
"$root/tests/bench/prepare.sh" penstock-bench >&2
exec python3 "$root/tests/bench/speculate.py" "$@"

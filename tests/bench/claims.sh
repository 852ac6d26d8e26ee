#!/bin/bash
# Measures the claims that this system rests on, and prints each beside what it should be: tests/bench/claims.sh [--quick]
#
# Continuous against static batching, the decode rate of 4-bit against 8-bit weights, how many sequences
# a quantised KV cache holds, and what the size of a prompt's chunks costs. Run it while nothing else runs;
# about four minutes. --quick: smaller loads.
set -eu
root=$(cd "$(dirname "$0")/../.." && pwd)
"$root/tests/bench/prepare.sh" penstock-bench >&2
exec python3 "$root/tests/bench/claims.py" "$@"

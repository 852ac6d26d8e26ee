#!/bin/bash
# Prints the targets of the whole server beside what this machine does: tests/bench/server.sh [OPTION]...
#
# Run it while nothing else runs; about seven minutes. It builds, gets the default model, and starts the cluster of
# deploy/local/up.sh afresh (a router, a prefill and a decode worker) with 0.75 GB of KV space; every row is measured in
# that one placement of the workers. interfere, flood and served have such a cluster with 1.4 GB: their answers grow long.
#
#   --quick               short windows, and without the row that waits for every prompt of the flood
#   --client load.py      a load generator to use in place of penstock-bench; ../shared/examples/load.py is
#                         taken where it is there, and "--client none" takes penstock-bench all the same
#   --set ROLE:KEY=VALUE  a setting of router, prefill or decode (repeatable), to compare placements
#   --only ROW,...        of: start, one, interfere, flood, served, eight, crowd, memory
#   --repeats N           each row N times, of which the best counts (default 1)
set -eu
root=$(cd "$(dirname "$0")/../.." && pwd)
case ${1-} in -h | --help)
    sed -n '2,/^set -eu/s/^# \{0,1\}//p' "$0"
    exit 0
    ;;
esac
"$root/tests/bench/prepare.sh" penstock-bench penstock-router penstock-prefill penstock-decode >&2
export PYTHONDONTWRITEBYTECODE=1
exec python3 "$root/tests/bench/server.py" "$@"

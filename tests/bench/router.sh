#!/bin/bash
# Prints what one router process takes on one core: tests/bench/router.sh [requests|thousand|streams|flood|memory]...
#
# A real router runs on the first core alone; workers without an engine and clients run on the others, over loopback, with
# the real protocols (tests/bench/router/). Targets on one core: 50,000 events/s; 100,000 streamed tokens/s where tokens
# that wait together leave as one event; 5,000 open streams in 50 MB beyond the base and the ids that recovery needs.
# "thousand" is 500 prefill and 500 decode workers. Figures "a whole core" are events and tokens divided by the router's own processor time.
#
#   SECONDS_EACH=4       length of a window
#   RATES=25000,50000    tokens a second that "streams" asks for, one after another
#   BATCH_THREADS=true   control.batch_threads of the router
#   ROUTER_SET="a=b ..." further settings of the router
set -eu
root=$(cd "$(dirname "$0")/../.." && pwd)
case ${1-} in -h | --help)
    sed -n '2,/^set -eu/s/^# \{0,1\}//p' "$0"
    exit 0
    ;;
esac
build=${PENSTOCK_BUILD_DIR:-$root/build}
[[ -n ${ROUTER_BENCH_BUILT-} ]] || "$root/tests/bench/prepare.sh" penstock-router router-load tiny-model >&2
folder=$(mktemp -d /tmp/penstock-router-bench-XXXXXX)
router=
stop() {
    if [[ -n $router ]]; then
        kill -9 "$router" 2>/dev/null || true
        wait "$router" 2>/dev/null || true
    fi
    router=
}
trap 'stop; rm -rf "$folder"' EXIT
"$build/tools/tiny-model" "$folder/load.gguf"
last=$(($(nproc) - 1))
others=1-$last
((last > 0)) || others=0

start() {
    local http=$((20000 + RANDOM % 20000)) set=()
    for setting in "http.listen=127.0.0.1:$http" "control.listen=ipc://$folder/control" "router.model=$folder/load.gguf" \
        "router.model_name=load" http.connections_max=20000 http.connections_per_address=20000 router.running_max=20000 \
        admission.interactive_queue=20000 policy.local_prefill_tokens=${LOCAL_TOKENS:-1000000} control.batch_threads=${BATCH_THREADS:-true} ${ROUTER_SET-}; do
        set+=(--set "$setting")
    done
    ulimit -n "$(ulimit -Hn)"
    : >"$folder/log"
    taskset -c 0 "$build/bin/penstock-router" "${set[@]}" >"$folder/log" 2>&1 &
    router=$!
    load=(taskset -c "$others" "$build/tools/router-load" --pid "$router" --control "ipc://$folder/control"
        --http "127.0.0.1:$http" --model "$folder/load.gguf" --seconds "${SECONDS_EACH:-4}")
    for ((i = 0; i < 100; i++)); do
        grep -q "ready for workers" "$folder/log" && return
        sleep 0.05
    done
    cat "$folder/log" >&2
    exit 1
}

run() {
    start
    "${load[@]}" "$@" || { tail -5 "$folder/log" >&2; exit 1; }
    stop
}

(($# > 0)) || set -- requests thousand streams flood memory
for part in "$@"; do
    case $part in
    requests)
        run --requests 32 --prompt-words 100
        LOCAL_TOKENS=8 run --requests 32 --prompt-words 100 --prefill 4 --max-tokens 2
        ;;
    thousand)
        LOCAL_TOKENS=8 run --requests 64 --prompt-words 100 --prefill 500 --workers 500 --max-tokens 2
        ;;
    streams) run --streams 1000 --max-tokens 1500 --rate "${RATES:-25000,50000,75000}" ;;
    flood) run --streams 1000 --max-tokens 1500 --rate "${FLOOD:-100000,0}" ;;
    memory) run --memory 5000 --prompt-tokens 500 --max-tokens 1000 ;;
    *)
        echo "router.sh: the part \"$part\" is not known; try --help" >&2
        exit 2
        ;;
    esac
done

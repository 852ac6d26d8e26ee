#!/bin/bash
# A whole cluster on this machine, from nothing to a streamed answer. `--help` lists the options.
#
# This part brings what is missing (Debian packages, the build, the default model); deploy/local/up.py then
# starts the cluster, asks a question and keeps it up until Ctrl-C. Written are only the build folder,
# the cache ($XDG_CACHE_HOME/penstock, default ~/.cache/penstock) and run/ in the checkout.
set -u
root=$(cd "$(dirname "$0")/../.." && pwd)

usage() {
    cat <<'USAGE'
usage: deploy/local/up.sh [OPTION]...

Builds Penstock, gets a small model, starts a router, prefill and decode workers on this machine, asks one
question, prints the answer as it comes and the request's time line, and stays up until Ctrl-C.

  --once           stop after the answer; exit status 0 only if it was complete
  --model FILE     serve this GGUF file instead of the default model
  --prefill N      prefill workers (default 1; 0: decode workers compute prompts themselves)
  --decode N       decode workers (default 1)
  --port P         port of the API on 127.0.0.1 (default 8080)
  --question TEXT  what to ask
  --no-install     install no Debian packages; say which are missing
  --build-dir DIR  default: build
USAGE
}
say() {
    printf '%s\n' "$*" >&2
}
fail() {
    say "up.sh: $*"
    exit 1
}
whole_number() { # NAME VALUE MIN MAX
    [[ $2 =~ ^[0-9]{1,5}$ ]] && (($2 >= $3 && $2 <= $4)) && return
    say "up.sh: $1 is \"$2\"; it must be a whole number from $3 to $4"
    exit 2
}

once=() install=() model='' prefill=1 decode=1 port=8080 build=$root/build question=()
while (($#)); do
    option=$1 value=''
    case $option in
    --model=* | --prefill=* | --decode=* | --port=* | --question=* | --build-dir=*)
        value=${option#*=} option=${option%%=*}
        ;;
    --model | --prefill | --decode | --port | --question | --build-dir)
        (($# > 1)) || { say "up.sh: $option needs a value"; exit 2; }
        value=$2
        shift
        ;;
    esac
    shift
    case $option in
    --once) once=(--once) ;;
    --model) model=$value ;;
    --prefill) prefill=$value ;;
    --decode) decode=$value ;;
    --port) port=$value ;;
    --question) question=(--question "$value") ;;
    --no-install) install=(--no-install) ;;
    --build-dir) build=$value ;;
    -h | --help)
        usage
        exit 0
        ;;
    *)
        say "up.sh: the option $option is not known; --help lists the options"
        exit 2
        ;;
    esac
done
whole_number --prefill "$prefill" 0 64
whole_number --decode "$decode" 1 64
whole_number --port "$port" 1 65535
[[ -z $model || -r $model ]] || fail "the model file $model cannot be read"

"$root/deploy/local/packages.sh" "${install[@]}" build model || exit 1

mkdir -p "$build" || fail "the build folder $build cannot be made"
step() { # on a terminal a step shows itself, in a log only its failure does
    say "$1"
    shift
    if [[ -t 2 ]]; then
        "$@" >&2
    else
        "$@" >"$build/step.log" 2>&1 || { tail -n 40 "$build/step.log" >&2; false; }
    fi
}
programs=(penstock penstock-router penstock-prefill penstock-decode)
step "configuring $build" cmake -S "$root" -B "$build" -G Ninja || fail "the build could not be configured"
step "building ${programs[*]}" ninja -C "$build" -j "$(nproc)" "${programs[@]}" || fail "the build failed"

if [[ -z $model ]]; then
    model=$("$root/deploy/model/fetch.sh") || exit 1
fi
export PYTHONDONTWRITEBYTECODE=1
exec python3 "$root/deploy/local/up.py" "${once[@]}" "${question[@]}" --model "$model" --prefill "$prefill" \
    --decode "$decode" --port "$port" --build-dir "$build"

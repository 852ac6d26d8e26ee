#!/bin/bash
# Makes sure that Debian packages are there.
#
#   deploy/local/packages.sh [--no-install] GROUP...
#
# GROUPs: build (compile Penstock), model (fetch the default model), test (run every test but those of the page),
# browser (those too: `tests/run --tag browser`; 125 MB). Nothing is done where nothing is missing. Missing packages are
# installed with apt as root or through sudo; where neither is possible, or with --no-install, the exact command to run is
# printed and the exit status is 1. Progress goes to standard error.
set -u

build_packages=(gcc libc6-dev cmake ninja-build pkg-config protobuf-c-compiler
    libprotobuf-c-dev libnng-dev libucx-dev libevent-dev libssl-dev libconfig-dev libjansson-dev
    libpcre2-dev libutf8proc-dev libxxhash-dev libcmocka-dev)
model_packages=(python3 python3-pip ca-certificates)
test_packages=(python3 python3-pip python3-venv ca-certificates curl iproute2 iptables procps
    clang libclang-rt-14-dev)
browser_packages=(chromium fonts-dejavu-core)

say() {
    printf '%s\n' "$*" >&2
}

install=yes
wanted=()
for argument in "$@"; do
    case $argument in
    --no-install) install=no ;;
    build) wanted+=("${build_packages[@]}") ;;
    model) wanted+=("${model_packages[@]}") ;;
    test) wanted+=("${test_packages[@]}") ;;
    browser) wanted+=("${browser_packages[@]}") ;;
    *)
        say "packages.sh: unknown group $argument; there are build, model, test, browser"
        exit 2
        ;;
    esac
done

if ! command -v dpkg-query >/dev/null; then
    say "This is not a Debian system, so packages are not checked. Needed here are the equivalents of:"
    say "  ${wanted[*]}"
    exit 0
fi

missing=()
for package in "${wanted[@]}"; do
    state=$(dpkg-query -W -f '${db:Status-Status}' "$package" 2>/dev/null)
    [[ $state == installed ]] || missing+=("$package")
done
((${#missing[@]})) || exit 0

command=(apt-get install -y --no-install-recommends "${missing[@]}")
as_root=()
if ((EUID != 0)); then
    as_root=(sudo)
    # Without a terminal sudo could not ask for a password.
    if ! command -v sudo >/dev/null || { [[ ! -t 0 ]] && ! sudo -n true 2>/dev/null; }; then
        install=no
    fi
fi
if [[ $install == no ]]; then
    say "${#missing[@]} Debian packages are missing. Install them as root, then start again:"
    say "  ${command[*]}"
    exit 1
fi

log=$(mktemp)
trap 'rm -f "$log"' EXIT
run() {
    "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive "$@" \
        -o DPkg::Lock::Timeout=300 -o Acquire::Retries=3 >"$log" 2>&1 </dev/null
}
say "installing ${#missing[@]} packages: ${missing[*]}"
if ! run apt-get update || ! run "${command[@]}"; then
    tail -n 20 "$log" >&2
    say "The packages could not be installed. Mend what apt says above, or run as root:"
    say "  ${command[*]}"
    exit 1
fi
say "installed"

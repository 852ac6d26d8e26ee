#!/bin/bash
# Prints the path of promtool, with which tests check the metrics text; fetches it once where it is missing.
#
# Debian has it in the package prometheus, whose installation would start a server, so only the one program
# is taken out of the package. Where that fails, the status is 1 and the tests that need it skip.
set -u
command -v promtool && exit 0
folder=${XDG_CACHE_HOME:-$HOME/.cache}/penstock/tools
if [[ -x $folder/promtool ]]; then
    echo "$folder/promtool"
    exit 0
fi
work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT
chmod 755 "$work"
cd "$work" || exit 1
if ! { apt-get download -q prometheus && dpkg-deb --fsys-tarfile prometheus_*.deb | tar -x ./usr/bin/promtool; } \
    >log 2>&1 </dev/null; then
    echo "promtool could not be fetched: $(tail -n 1 log)" >&2
    exit 1
fi
mkdir -p "$folder" && mv usr/bin/promtool "$folder/.promtool.$$" && mv "$folder/.promtool.$$" "$folder/promtool" &&
    echo "$folder/promtool"

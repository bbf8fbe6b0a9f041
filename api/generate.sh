#!/bin/sh
# Regenerates the Go code of every .proto below this directory. All tools come
# from the Go module proxy, at versions pinned in generate/.
set -eu
cd "$(dirname "$0")"
files=$(find . -name '*.proto' | sed 's|^\./||' | LC_ALL=C sort)
# shellcheck disable=SC2086 # one argument per file is what is wanted
cd generate && go run . .. $files

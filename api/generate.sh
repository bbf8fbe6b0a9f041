#!/bin/sh
# Regenerates the Go code of every .proto below this directory and of those in
# internal/lockpb. All tools come from the Go module proxy, at versions pinned in
# generate/.
set -eu
cd "$(dirname "$0")"
# generate ROOT, relative to this directory
generate() {
	files=$(cd "$1" && find . -name '*.proto' | sed 's|^\./||' | LC_ALL=C sort)
	# shellcheck disable=SC2086 # one argument per file is what is wanted
	(cd generate && go run . "../$1" $files)
}
generate .
generate ../internal/lockpb

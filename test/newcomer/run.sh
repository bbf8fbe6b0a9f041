#!/usr/bin/env bash
# Goes a newcomer's way with the commands of README.md alone: from a clean clone to a server, to a cluster of three
# with its page, and to a sidecar. Prints how long each step takes.
#
#   test/newcomer/run.sh             with the module and build caches of this machine
#   EMPTY=1 test/newcomer/run.sh     with empty ones: all modules are downloaded and compiled
#
# The documentation's ports and directories are used as they are: as root in a network namespace of its own, so that
# nothing else on the machine is met; otherwise they have to be free.
set -euo pipefail
cd "$(dirname "$0")/../.."
root=$PWD

if [ "${1:-}" != inside ]; then
	work=$(mktemp -d)
	trap 'chmod -R u+w "$work"; rm -rf "$work"' EXIT
	if [ -n "${EMPTY:-}" ]; then export GOMODCACHE=$work/modules GOCACHE=$work/cache; fi
	export WORK=$work BEGAN=$(date +%s.%N)
	# Building needs the network, what follows must not.
	"$0" inside build
	if [ "$(id -u)" = 0 ] && unshare -n true 2>/dev/null; then
		unshare -n "$0" inside run
	else
		"$0" inside run
	fi
	exit
fi

# blocks SECTION: the shell blocks of a section of README.md, each ended by a line of its own.
blocks() {
	awk -v section="## $1" '
		/^## / { on = $0 == section }
		on && /^```sh$/ { inside = 1; next }
		inside && /^```$/ { inside = 0; print "#end"; next }
		on && inside' README.md
}
# block SECTION N: its N-th.
block() {
	local text
	text=$(blocks "$1" | awk -v n="$2" 'BEGIN { i = 1 } /^#end$/ { i++; next } i == n')
	[ -n "$text" ] || { echo "README.md has no block $2 in \"$1\"" >&2 && exit 1; }
	printf '%s\n' "$text"
}
reached() { printf '%7.1f s  %s\n' "$(echo "$(date +%s.%N) - $BEGAN" | bc)" "$1"; }
# until COMMAND...: tries it for a while; a loaded machine is slower than the documentation's pauses.
until_ok() {
	for _ in $(seq 300); do
		if "$@" >/dev/null 2>&1; then return; fi
		sleep 0.2
	done
	echo "it never worked: $*" >&2
	exit 1
}

if [ "$2" = build ]; then
	# Not from GitHub: the commit that is to be tested.
	git clone -q "$root" "$WORK/stoa"
	cd "$WORK/stoa"
	block Install 1 | grep -v '^git clone' >"$WORK/install"
	bash -e "$WORK/install"
	reached "the three programs are built"
	exit
fi

ip link set lo up 2>/dev/null || true
cd "$WORK/stoa"
# What a failure leaves behind ends with the script.
trap 'kill $(jobs -p) 2>/dev/null || true; wait' EXIT
[ ! -e /tmp/stoa ] || { echo "/tmp/stoa is there already" >&2 && exit 1; }

eval "$(block 'Start one server' 1) >$WORK/server.log 2>&1 &"
server=$!
until_ok bin/stoactl endpoint health
block 'Start one server' 2 | grep -v watch >"$WORK/client"
bash -e "$WORK/client" | tee "$WORK/out"
grep -qx hello "$WORK/out"
reached "a server has a key"
kill -INT $server
wait $server

three=$(block 'Start a cluster of three' 1)
eval "${three%%bin/stoactl*}"
until_ok bin/stoactl --endpoints 127.0.0.1:12379 endpoint health --cluster
eval "bin/stoactl${three#*bin/stoactl}"
reached "a cluster of three runs"
page=http://127.0.0.1:12381/ui/
grep -qF "$page" README.md
until_ok curl -sf "$page"
curl -sf "$page" | grep -q '<title>'
reached "its page is there: $page"

sidecar=$(block 'Start a sidecar' 1)
eval "${sidecar%%sleep*}"
until_ok bin/stoactl --endpoints 127.0.0.1:23790 endpoint health
eval "${sidecar#*sleep 1}" | tee "$WORK/out"
grep -qx blue "$WORK/out"
reached "a sidecar answers"

eval "$(block 'Start a sidecar' 2)"
[ ! -e /tmp/stoa ]
reached "all have stopped"

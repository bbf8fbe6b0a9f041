#!/usr/bin/env bash
# Runs etcd's package integration (go.etcd.io/etcd/tests/v3/integration) on stoa. Its tests start etcd's servers in their own
# process; here each member is a process of the server.
#
#   test/etcd/integration.sh                         bin/stoa at 1, 2 and 4 partitions
#   SERVER=bin/peers/etcd test/etcd/integration.sh   etcd itself, with the same changes, to prove them right
#   PARTITIONS="1 2" PACKAGES="integration integration/clientv3/lease" TESTS='^TestLease' test/etcd/integration.sh
#   QUICK=1 test/etcd/integration.sh                 what takes half a minute, at 2 partitions
#
# The tests are unchanged, word for word. In the framework under them
#
#   - a member has a process (process.go.txt, flags.go.txt) in the place of an EtcdServer,
#   - its peers reach that over connections that tests can cut (network.go.txt),
#   - and a tick takes 50 ms instead of 10: a process isn't scheduled as soon as a goroutine is.
#
# integration-skipped.txt has the tests that aren't run, with the reasons.
set -euo pipefail
cd "$(dirname "$0")/../.."
root=$PWD

server=${SERVER:-bin/stoa}
. test/etcd/module.sh
all='integration integration/clientv3'
all+=" $(echo integration/clientv3/{concurrency,connectivity,examples,experimental/recipes,lease,naming,watch}) integration/proxy/grpcproxy"
packages=${PACKAGES:-$all}
partitions=${PARTITIONS:-1 2 4}
tests=${TESTS:-.}
if [ -n "${QUICK:-}" ]; then
	packages=${PACKAGES:-integration integration/clientv3/lease}
	partitions=${PARTITIONS:-2}
	tests=${TESTS:-'^Test(MoveLeaderService|NetworkPartition5MembersLeaderInMajority|PauseMember|TLSClusterOf3|V3TxnTooManyOps|LeaseRevokeNewAfterClose)$'}
fi
[ "$server" = bin/stoa ] || partitions=${PARTITIONS:-1}

work=$root/bin/etcd-integration
mkdir -p "$work/bin"
binary() { echo "$work/bin/${1//\//_}.test"; }

go run ./test/peers
if [ "$server" = bin/stoa ]; then CGO_ENABLED=0 go build -o bin/stoa ./cmd/stoa; fi
program=$(realpath "$server")

stamp=$(stamp test/etcd/{integration,module}.sh test/etcd/{process,flags,network}.go.txt)
if [ "$(cat "$work/stamp" 2>/dev/null)" != "$stamp" ]; then
	echo "building etcd's tests $version" >&2
	checkout "$work/tests"
	cd "$work/tests"
	export GOWORK=off GOTOOLCHAIN=local
	# change FILE FROM TO: once, or not at all.
	change() {
		[ "$(grep -cF "$2" "$1")" = 1 ] || { echo "$0: $1 has not one line with: $2" >&2 && exit 1; }
		sed -i "s|$(printf '%s' "$2" | sed 's/[].*[\\]/\\&/g')|$3|" "$1"
	}
	for file in process flags network; do cp "$root/test/etcd/$file.go.txt" "framework/integration/stoa_$file.go"; done
	cluster=framework/integration/cluster.go
	change $cluster '*etcdserver.EtcdServer' '*process\n\tcfg MemberConfig'
	change $cluster 'm.Metrics = mcfg.Metrics' '&\n\tm.cfg = mcfg'
	change $cluster 'etcdserver.NewServer(m.ServerConfig)' 'startProcess(m)'
	# What is built around a server, its listeners and their handlers, a process has by itself; then some imports are unused.
	change $cluster 'm.Server.Start()' '/*'
	change $cluster 'if m.GRPCURL != "" && m.Client == nil {' '*/ &'
	{ go build -mod=mod -gcflags=-e ./framework/integration 2>&1 || true; } |
		sed -n "s|^$cluster:\([0-9]*\):.*imported and not used.*|\1d|p" | sed -i -f - $cluster
	# A bridge between a client and a server ends when it reaches no server, as one that is about to listen.
	change framework/integration/bridge.go 'if oerr != nil {' '&\n\t\t\tinc.Close()\n\t\t\tcontinue'
	change framework/config/cluster.go 'TickDuration = 10 *' 'TickDuration = 50 *'
	rm integration/cache_test.go # imports go.etcd.io/etcd/cache/v3, which not every Go proxy has
	for package in $all; do
		go test -mod=mod -c -o "$(binary "$package")" "./$package"
	done
	cd "$root"
	echo "$stamp" >"$work/stamp"
fi

export TMPDIR
TMPDIR=$(mktemp -d -p "$work") # on a disk
trap 'rm -rf "$TMPDIR"' EXIT

list=test/etcd/integration-skipped.txt
# none WHAT NAMES: there is no such thing.
none() { [ -z "$2" ] || { echo "$list: no $1 is called" $2 >&2 && exit 1; }; }
none package "$(comm -23 <(awk '/^[^#]/ { print $1 }' $list | sort -u) <(tr ' ' '\n' <<<"$all" | sort))"
# skipped PACKAGE PARTITIONS: its tests that aren't run, as a regular expression.
skipped() {
	none "test of $1" "$(comm -23 <(awk -v package="$1" '$1 == package { print $2 }' $list | sort) \
		<(cd "$work/tests/$1" && "$(binary "$1")" -test.list . 2>/dev/null | sort))"
	awk -v package="$1" -v also="$([ "$2" = 1 ] || echo several) $([[ $server != */etcd ]] || echo etcd)" \
		'$1 == package && (!$3 || index(also, $3)) { names = names "|" $2 } END { print "^(" substr(names, 2) ")$" }' $list
}

status=0
# run PACKAGE PARTITIONS. When its tests end, be they killed, so do their servers.
run() {
	local log=$work/$(basename "$server")-p$2-${1//\//_}.log verdict=ok skip
	skip=$(skipped "$1" "$2")
	echo "== $server, package $1, P = $2 (log: $log)"
	if ! (cd "$work/tests/$1" && SERVER=$program STOA_PARTITIONS=$2 \
		"$(binary "$1")" -test.run "$tests" -test.skip "$skip" -test.v -test.timeout 60m) >"$log" 2>&1; then
		verdict=FAILED
		status=1
	fi
	grep -aE '^ *--- FAIL|^panic: ' "$log" || true
	echo "$verdict: $(grep -acE '^--- PASS' "$log" || true) passed, $(grep -acE '^--- FAIL' "$log" || true) failed, $(grep -acE '^--- SKIP' "$log" || true) skipped by themselves"
}
for p in $partitions; do
	for package in $packages; do run "$package" "$p"; done
done
exit $status

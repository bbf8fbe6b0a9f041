#!/usr/bin/env bash
# Runs etcd's robustness tests (go.etcd.io/etcd/tests/v3, package robustness) on stoa: their traffic, their faults
# of processes, networks and members, and their checks of what clients and watches have seen.
#
#   test/etcd/robustness.sh                  one round of each scenario
#   ROUNDS=20 test/etcd/robustness.sh
#   SERVER=bin/peers/etcd test/etcd/robustness.sh   etcd itself, with the same changes
#   OWN_NETWORK=1 test/etcd/robustness.sh    beside other tests of etcd's, in a network namespace of its own
#
# What is changed in a copy of the module:
#
#   - The order of what was written comes from the watches of all clients (robustness.go.txt), since stoa's log isn't
#     etcd's. So a compaction whose outcome is unknown may have happened: no log says that it has not. And a deletion by
#     a client can't be told from one by the end of a lease: none counts as the only one of its key.
#   - Compactions are drawn from behind the one before, up to the revision in the status of the first member. If that was cut off
#     it is behind, and the package panics: rand.Int63n of a negative number.
#   - Failpoints that are compiled into etcd are left out. docs/testing.md says what stands in for them.
#
# One partition: the model counts revisions, and with several a write that changes nothing leaves a gap.
set -euo pipefail
cd "$(dirname "$0")/../.."
root=$PWD

server=${SERVER:-bin/stoa}
. test/etcd/module.sh
rounds=${ROUNDS:-1}

work=$root/bin/etcd-robustness
mkdir -p "$work/bin"
exec 9>>"${TMPDIR:-/tmp}/stoa-etcd-tests.lock" # as run.sh: fixed ports
[ -n "${OWN_NETWORK:-}" ] || flock 9

go run ./test/peers
if [ "$server" = bin/stoa ]; then CGO_ENABLED=0 go build -o bin/stoa ./cmd/stoa; fi

stamp=$(stamp test/etcd/robustness.sh test/etcd/module.sh test/etcd/robustness.go.txt)
if [ "$(cat "$work/stamp" 2>/dev/null)" != "$stamp" ]; then
	checkout "$work/tests"
	cp test/etcd/robustness.go.txt "$work/tests/robustness/stoa_persisted_test.go"
	cd "$work/tests"
	# change FILE FROM TO: once, or not at all.
	change() {
		[ "$(grep -cF "$2" "$1")" = 1 ] || { echo "$0: $1 has not one line with: $2" >&2 && exit 1; }
		sed -i "s|$(printf '%s' "$2" | sed 's/[].*[\\]/\\&/g')|$3|" "$1"
	}
	change robustness/main_test.go 'report.PersistedRequestsCluster(lg, c)' 'persistedByWatches(clientReports)'
	change robustness/validate/patch_history.go 'if arg.persistedCount == 0 && resp.Error != "" {' 'if false {'
	change robustness/validate/patch_history.go 'clientDeleteCount := countClientDeletes(reports)' \
		'&\n\tfor key := range clientDeleteCount {\n\t\tclientDeleteCount[key]++\n\t}'
	change robustness/traffic/etcd.go 'random.RandRange(lastRev, resp.Header.Revision+5)' \
		'random.RandRange(lastRev, max(lastRev, resp.Header.Revision)+5)'
	sed -i 's/e2e.WithGoFailEnabled(true)/e2e.WithGoFailEnabled(false)/' robustness/scenarios/scenarios.go
	GOWORK=off GOTOOLCHAIN=local go test -mod=mod -tags e2e -c -o "$work/robustness.test" ./robustness
	cd "$root"
	echo "$stamp" >"$work/stamp"
fi

daemon "$work/bin/etcd" 1
ln -sf "$root/bin/peers/etcdctl" "$root/bin/peers/etcdutl" "$work/bin/"
rm -rf "$work/results"
mkdir -p "$work/results"
cd "$work/tests/robustness"
log=$work/robustness.log
echo "== $server, package robustness, $rounds rounds (log: $log; histories: $work/results)"
verdict=ok
RESULTS_DIR="$work/results" "$work/robustness.test" -test.run '^TestRobustnessExploratory$' -test.v -test.count "$rounds" -test.timeout 0 \
	-bin-dir "$work/bin" >"$log" 2>&1 9>&- || verdict=FAILED
# By scenario and fault; and what went wrong.
grep -oE '^ {8}--- (PASS|FAIL): [^ ]+' "$log" | sed -E 's|.*(PASS\|FAIL): TestRobustnessExploratory/|\1 |' | sort | uniq -c || true
grep -E 'main_test.go:[0-9]+: ' "$log" | cut -c -300 || true
echo "$verdict"
[ "$verdict" = ok ]

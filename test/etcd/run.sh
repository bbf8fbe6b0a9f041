#!/usr/bin/env bash
# Runs etcd's own tests (go.etcd.io/etcd/tests/v3, packages common and e2e, over real
# processes) on stoa: the daemon stands in etcd's place, beside the real etcdctl
# and etcdutl, or with stoactl in etcdctl's place, or with a sidecar in front of each member.
#
#   test/etcd/run.sh                      bin/stoa at 1 and at 2 partitions
#   SERVER=bin/peers/etcd test/etcd/run.sh   etcd itself, to prove the tests right
#   PARTITIONS="1 2 4" TESTS='^TestKV' SKIP='Serializable' E2E= test/etcd/run.sh
#   TESTS= test/etcd/run.sh               only package e2e
#   QUICK=1 test/etcd/run.sh              of e2e only what takes a minute
#   CTL=bin/stoactl test/etcd/run.sh      stoactl in etcdctl's place
#   FRONT=sidecar test/etcd/run.sh        clients connect to sidecars (in the clear)
#
# TESTS and E2E are the tests of the two packages, as regular expressions; empty: none.
#
# One file is added to the module: cases.go.txt, the matrix of clusters: in the clear, and, unless
# QUICK, with TLS.
set -euo pipefail
cd "$(dirname "$0")/../.."
root=$PWD

server=${SERVER:-bin/stoa}
. test/etcd/module.sh
ctl=${CTL:-bin/peers/etcdctl}
front=${FRONT:-}
partitions=${PARTITIONS:-1 2}
# All of package common that needs no older etcd.
users='|Auth(Disable|WriteKey|RevokeWithDelete|JWTOnly|LeaseRevoke|RoleRevokeDuringOps|MemberList)|HashKVWithUserAuth'
tls=
if [ -z "${QUICK:-}" ]; then
	users='|Auth.*|User.*|Role.*|RootRole|.*With(No|Invalid|Root|User)Auth'
	tls=1
fi
tests=${TESTS-"^Test(KV.*|Txn.*|Watch.*|Lease.*|Compact|Status|Endpoint.*|VerifyHashKV.*|DefragOnline|Alarm.*|Member(List|Add|Remove)|WaitLeader.*$users)\$"}
# Those of package e2e that pass; docs/etcd-tests.md has all of them, with the reasons of those left out.
quick='CtlV3Member(List|ListWithHex|ListSerializable|Add|AddAsLearner|UpdateNoTLS)|CtlV3ConsistentMemberList|RemoveNonExistingMember|MemberReplace'
quick+='|ForceNewCluster_MemberCount|Issue6361|RestoreCompactionRevBump|V3LearnerMetricRecover'
quick+='|CtlV3Elect'
if command -v curl >/dev/null; then quick+='|CurlV3(KVBasicOperation|Watch|LockOperations|CampaignNoTLS)'; fi
slow='CtlV3MemberUpdate.*|CtlV3MemberAddAsLearnerWithOneMemberDown|MemberReplaceWithLearner|RuntimeReconfig.*|ForceNewCluster.*|Reproduce20340|V3LearnerMetric.*'
slow+='|CtlV3(SerializableRead|LinearizableRead|CompletionBash|DefragOffline|Put.*|Get(Timeout|Format|Rev|MinMax.*|KeysOnly|CountOnly)|DelTimeout|LeaseKeepAlive.*)'
slow+='|CtlV3(MakeMirror.*|MoveLeaderScenarios|RoleAddTimeout|Snapshot.*|Version|DialWithHTTPScheme|Watch.*)|UtlV3CompletionBash|ClusterVersion'
slow+='|Etcd(MultiPeer|PeerCNAuth|PeerMultiCNAuth|PeerNameAuth|ListenMetricsURLsWithMissingClientTLSInfo|HealthyWithTinySnapshotCatchupEntries|TLSVersion|DeprecatedFlags|AdvertiseClientUnix)'
slow+='|BootstrapDefragFlag|SnapshotCatchupEntriesFlag|GracefulShutdown|HTTPHealthHandler|NoErrorLogsDuringNormalOperations|V3Metrics.*|WarningApplyDuration'
slow+='|TxnRangeConsistency|LeaseRevoke_ClientSwitchToOtherMember|DeleteEventDrop_Issue18089|StartWatcherFromCompactedRevision|ServerJsonLogging|ConnectionRejectMessage|CurlV3.*|CurlWatchIssue19509|ConnectionMultiplexing|CtlV3Lock.*|CtlV3Elect'
slow+='|CtlV3Auth(CertCN|CertCNWithWithConcurrentOperation|CertCNAndUsername|CertCNAndUsernameNoPassword|MemberUpdate|FromKeyPerm|AndWatch|AndWatchJWT|EndpointHealth|Snapshot|SnapshotJWT)'
slow+='|AuthCluster|Auth_CVE_2021_28235|CtlV3GetAuthStatus|CtlV3MemberPromoteWithAuth.*|WatchWithLowPermissionUser|CtlV3GetRevokedCRL.*|V2Deprecation(NotYet|EnforceDefaultValue)'
if [ -n "${QUICK:-}" ]; then slow='^$'; fi
changes='CtlV3Member(List|ListWithHex|ListSerializable|Add|Update|AddAsLearner).*|CtlV3ConsistentMemberList|RemoveNonExistingMember|MemberReplace.*|RuntimeReconfig.*'
changes+='|ForceNewCluster.*|Reproduce20340|V3LearnerMetric.*|Issue6361|RestoreCompactionRevBump|CurlV3ClusterOperations'
e2e=${E2E-"^Test($quick|$slow)\$"}

go run ./test/peers
if [ "$server" = bin/stoa ]; then
	CGO_ENABLED=0 go build -o bin/stoa ./cmd/stoa
fi
if [ "$ctl" = bin/stoactl ]; then
	CGO_ENABLED=0 go build -o bin/stoactl ./cmd/stoactl
fi
suffix=
if [ "$front" = sidecar ]; then # a sidecar's clients need no TLS
	suffix=-sidecar
	tls=
	# The sidecar is who connects to the member; and whose clients use TLS needs no sidecar.
	skip='^Test(Authority|CtlV3PutClientTLSFlagByEnv|CtlV3GetRevokedCRL.*|CtlV3(LeaseKeepAlive|MemberUpdate|Watch|WatchInteractive)Client.*TLS.*'
	skip+='|CtlV3DialWithHTTPScheme|V3LearnerMetric.*|CurlV3AuthClientTLSCertAuth|CurlV3_MaxStreams_.*_TLS_.*|CurlWatchIssue19509)$'
	skip+='|^TestCtlV3MoveLeaderScenarios$/^Secure|^TestNoErrorLogsDuringNormalOperations$/auto_tls_\((all|client)\)|^TestCurlV3KV.*$/^(all|client)TLS$'
	SKIP=${SKIP:-$skip}
fi

work=$root/bin/etcd-tests
mkdir -p "$work"
# etcd's framework has fixed ports, so two runs at once on one machine would meet. What a run that broke off has left
# running doesn't keep the lock.
exec 9>>"${TMPDIR:-/tmp}/stoa-etcd-tests.lock"
flock 9

stamp=$(stamp test/etcd/run.sh test/etcd/module.sh test/etcd/cases.go.txt)
if [ "$(cat "$work/stamp" 2>/dev/null)" != "$stamp" ]; then
	echo "building etcd's tests $version" >&2
	checkout "$work/tests"
	cp test/etcd/cases.go.txt "$work/tests/common/stoa_cases_test.go"
	rm -f "$work"/*.test
	echo "$stamp" >"$work/stamp"
fi
# compile PACKAGE: its tests. Tagged cluster_proxy, they start a grpc-proxy in front of each member.
compile() {
	[ ! -x "$work/$1$suffix.test" ] || return 0
	(cd "$work/tests" && GOWORK=off GOTOOLCHAIN=local go test -mod=mod -tags "e2e${suffix:+ cluster_proxy}" -c -o "$work/$1$suffix.test" "./$1")
}
if [ -n "$tests" ]; then compile common; fi
if [ -n "$e2e" ]; then compile e2e; fi

status=0
# run PACKAGE TESTS PARTITIONS
run() {
	local bin=$work/bin$suffix-p$3 log=$work/$1$suffix-p$3.log verdict=ok
	mkdir -p "$bin"
	if [ -n "$suffix" ]; then
		daemon "$bin/stoa" "$3"
		ln -sf "$root/test/etcd/sidecar.sh" "$bin/etcd"
	else
		daemon "$bin/etcd" "$3"
	fi
	ln -sf "$(realpath "$ctl")" "$bin/etcdctl"
	ln -sf "$root/bin/peers/etcdutl" "$bin/"
	echo "== $server${front:+ behind a $front}, $(basename "$ctl"), package $1, P = $3 (log: $log)"
	if ! (cd "$work/tests/$1" && STOA_TLS=$tls "$work/$1$suffix.test" \
		-test.run "$2" -test.skip "${SKIP:-^$}" -test.v -test.timeout 40m -bin-dir "$bin") >"$log" 2>&1 9>&-; then
		verdict=FAILED
		status=1
	fi
	grep -E '^ *--- FAIL' "$log" || true
	echo "$verdict: $(grep -cE '^ *--- PASS' "$log" || true) passed, $(grep -cE '^ *--- FAIL' "$log" || true) failed, $(grep -cE '^ *--- SKIP' "$log" || true) skipped"
}
for p in $partitions; do
	if [ -n "$tests" ]; then run common "$tests" "$p"; fi
	if [ -n "$e2e" ]; then run e2e "$e2e" "$p"; fi
done
# What changes members is run with more groups that have to follow, too.
if [ -z "${PARTITIONS:-}${TESTS:-}${E2E:-}${QUICK:-}$front" ] && [ "$server" = bin/stoa ]; then
	run common '^Test(Auth)?Member(List|Add|Remove)$' 4
	run e2e "^Test($changes)\$" 4
fi
exit $status

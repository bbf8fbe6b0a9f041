#!/usr/bin/env bash
# Stands in etcd's place beside a binary `stoa` (run.sh): a server is one of stoa's, and
# `grpc-proxy`, which etcd's tests start in front of each member, a sidecar.
set -euo pipefail
stoa=$(dirname "$0")/stoa
[ "${1:-}" = grpc-proxy ] || exec "$stoa" "$@"

shift 2 # grpc-proxy start
args=(--when-away=wait)
while [ $# -gt 0 ]; do
	case $1 in
	--listen-addr) address=$2 && args+=("--listen-client-urls=http://$2") ;;
	--endpoints)
		args+=("--endpoints=$2")
		[[ $2 != https:* ]] || { echo "$0: tests of clients with TLS aren't run through sidecars" >&2 && exit 1; }
		;;
	# For members with TLS. These tests give it as soon as the members' peers have it.
	--cert | --key | --cacert | --client-crl-file) ;;
	--metrics-addr) args+=("--listen-metrics-urls=$2") ;;
	--advertise-client-url | --data-dir) ;;
	*) echo "$0: the sidecar has nothing like $1" >&2 && exit 1 ;;
	esac
	shift 2
done
# What the tests wait for.
(
	until (exec 3<>"/dev/tcp/${address%:*}/${address#*:}") 2>/dev/null; do sleep 0.02; done
	echo "started gRPC proxy"
) &
exec "$stoa" sidecar "${args[@]}"

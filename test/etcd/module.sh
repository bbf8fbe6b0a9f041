# What run.sh, robustness.sh and integration.sh have in common. Sourced, with $root and $server set.

version=v3.7.3

# checkout DIR: etcd's tests. The module comes from the Go proxy; it is copied because files of it are changed, and
# because the replace directives of its go.mod point beside it.
checkout() {
	local from
	from=$(cd "$root/test/peers/etcd" && GOWORK=off go mod download -json "go.etcd.io/etcd/tests/v3@$version" | sed -n 's/.*"Dir": "\(.*\)".*/\1/p')
	rm -rf "$1"
	cp -r "$from" "$1"
	chmod -R u+w "$1"
	(
		cd "$1"
		export GOWORK=off GOTOOLCHAIN=local
		go mod edit -toolchain=none $(sed -n 's/^\t\(go.etcd.io[^ ]*\) => .*/-dropreplace=\1/p' go.mod)
	)
}

# stamp FILE...: of what a checkout was made.
stamp() { echo "$version-$(cat "$@" | sha256sum | cut -c1-16)"; }

# daemon FILE PARTITIONS: the server. etcd's framework writes its command line, and lets nothing of the
# environment through but what begins with ETCD_ and the like.
daemon() {
	rm -f "$1" # a link that is written through would be the program itself
	printf '#!/bin/sh\nSTOA_PARTITIONS=%s exec %s "$@"\n' "$2" "$(realpath "$server")" >"$1"
	chmod +x "$1"
}

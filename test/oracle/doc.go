// Package oracle compares package auth with etcd's own store of users and roles: random
// requests, the same errors and answers. It is a module of its own, so that stoa's doesn't
// depend on etcd's server.
//
//	make test-oracle              100,000 requests
//	cd test/oracle && go test -requests 1000000
package oracle

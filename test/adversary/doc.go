// Package adversary has an authenticated client without any rights, and clients who are
// nobody, try everything that a server offers: each method of each gRPC service, sessions,
// extensions, watches, JSON over HTTP and over websockets, pages, and the port of the peers.
//
// There are twins: two servers, alike but for the keys, leases' keys, extensions and history
// that the client must not know of. It makes the same generated request of both. The answers
// must be the same up to what etcd itself tells every user, which forgiven_test.go lists; nothing
// may change, and no server may fail.
//
// The methods are those of cmd/stoa/testdata/methods.txt, which a test there compares with
// the services that are registered: a new method is asked for from then on, with requests
// that are made from its descriptor.
//
//	go test ./test/adversary -requests 100000 -seed 7 -args --grpc-transport=grpc-go
package adversary

// Package clients has etcd clients of other languages, on other HTTP/2 implementations than
// grpc-go's, use a real server: over each of its gRPC transports, plain and with TLS.
//
//	python      grpcio, with stubs compiled from etcd's .proto files   gRPC's C core
//	javascript  etcd3                                                  grpc-js over Node's nghttp2
//	java        jetcd                                                  grpc-java over netty
//	rust        etcd-client                                            tonic over hyper and h2
//
// Each is one program with the same scenario: keys and their history; ranges with limit and
// count; both branches of a transaction; a lease, kept alive and revoked; a watch with 1,000
// events; two streams at once; a value of 1.4 MB; errors with their codes and texts; 1,000
// concurrent calls on one connection; a call past its deadline and one that the client cancels,
// both of which the server must end, too; 300 cancelled streams; a server that is stopped,
// killed and started again; users.
//
// The programs' interface: the arguments are HOST:PORT and, for TLS, the file of the authority's
// certificate. A program prints its problems, and nothing else but the lines "stop" and "kill",
// which ask for a restart of the server; it then waits for "done" on its standard input. Its exit
// code is 0 if there was no problem.
//
// With SCENARIO=composed in the environment a program does what can be done through a sidecar of several
// clusters, of which keys under /two/b/ are in another one; "stop" and "kill" concern the sidecar. Those in Python and
// JavaScript can.
//
// Builds go below bin/clients. The languages' package registries must be reachable.
// STOA_COMPAT_SERVER=etcd runs the programs on etcd, as a check of the scenario itself.
//
//	make test-clients
//	make test-clients LANGS="python rust"
package clients

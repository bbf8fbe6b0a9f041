// Package interop runs grpc's interoperability cases, as grpc-go has them, against the own
// gRPC transport. It is a module of its own, so that stoa's doesn't depend on the credentials
// and load reports that grpc-go's package of cases brings.
//
//	make test-interop
package interop

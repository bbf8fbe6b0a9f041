// Package incoming finds a field in the metadata of a gRPC request, as
// google.golang.org/grpc/metadata.ValueFromIncomingContext does, but without a copy, and without comparing a field that is
// missing with all that are there: some are looked up for every request.
//
// Invariant: what it finds is in the context nearest to the handler, whichever transport or gateway made it.
//
// It must not import any other package of stoa.
package incoming

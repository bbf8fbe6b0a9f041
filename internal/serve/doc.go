// Package serve opens the ports of a server and hands each connection to the
// server of its protocol.
//
// A client port carries gRPC and HTTP, a peer port the peer service and two
// HTTP pages, a metrics port HTTP alone. The protocol of a connection is
// detected from its first bytes: a TLS hello, HTTP/2's preface (gRPC), or
// anything else (HTTP/1). Behind TLS the protocol comes from ALPN: see tls.go
// for how gRPC is told from a browser that speaks HTTP/2.
//
//	accept ─► first bytes ─┬─ preface ──────────────► grpc.Server
//	                       ├─ TLS ─► ALPN ─┬─ gRPC ─► grpc.Server
//	                       │               └─ other ► http.Server
//	                       └─ other ────────────────► http.Server
//
// Dial is a way to the gRPC server from within the process, for the gateway.
//
// Invariants:
//
//  1. Listen opens all ports or none; an error names the flag and the URL.
//  2. A silent connection costs a goroutine for at most helloTimeout, and
//     never delays accepting another one.
//  3. gRPC connections are handed to the gRPC server itself, never through
//     net/http, unless a client offers both over TLS.
//  4. While memory is scarce, a connection whose client doesn't read isn't read. Shed closes the
//     one that has sent the most.
//  5. After Stop no goroutine of this package is left.
//
// The pages get their data through the small interfaces Health and Members.
// The package must not import any other package of stoa than version.
package serve

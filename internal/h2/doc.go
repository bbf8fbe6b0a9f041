// Package h2 is a gRPC server with an HTTP/2 transport of its own, for servers that answer
// many small calls.
//
// One goroutine reads a connection. It parses frames in place, remembers the headers that
// a client repeats, and when the message of a call is complete it calls the handler if that
// answers at once, and starts a goroutine for it otherwise. A handler whose answer depends on an
// event returns without it ([Later]); the answers of an event are made together. Answers are
// appended to one buffer; the first goroutine to find no write under way writes all of it, those
// of others included.
//
//	socket ─► reader ─► conn.handle ─┬─ HEADERS ─► header.go: request, method
//	                                 ├─ DATA ────► receive.go: message ─► handler's goroutine
//	                                 └─ others ──► control.go
//	handler ─► finish, SendMsg ─► send.go: windows ─► conn.out ─► write.go ─► socket
//	Later ─► answers ─► later.go ─► finish, of all that are ready
//
// The [Server] is a [grpc.ServiceRegistrar]: generated code registers on it unchanged, and its
// handlers find metadata, peer and deadline in their context as with grpc-go. grpc-go's
// encoding, status, metadata and credentials packages are used as they are.
//
// Invariants:
//
//  1. What a peer can make a connection hold is bounded: by windows, by the limits in [Options],
//     and by ending to read from a peer that doesn't read itself.
//  2. No handler holds up its connection: one that is called on the goroutine that reads
//     ([Options].Inline) has another goroutine read before it waits, or returns.
//  3. Of a connection, everything but its reader is guarded by conn.mu; no handler, codec or
//     system call runs under it.
//  4. After Stop no goroutine of this package is left but handlers that don't return.
//
// DESIGN.md says why. The package knows nothing of stoa.
package h2

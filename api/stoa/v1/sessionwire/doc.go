// Package sessionwire reads and writes the messages of stoa.v1.Sessions by hand.
//
// Most of a session's cost is in its messages: generated code makes an object
// for every request and reply. Here a batch is one slice that is reused, and
// bodies are slices of the received message.
//
// Invariants:
//
//  1. It is the same format as session.proto's: it accepts and refuses the same
//     input as the generated code, with the same result (fuzzed).
//  2. Decoded values alias the input, and keep the entire message alive.
//
// Client and server both use it, through [Codec] or with a codec of their own.
package sessionwire

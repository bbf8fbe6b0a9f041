// Package sessionwire reads and writes the messages of stoa.v1.Sessions by hand.
//
// A session's cost is its messages': generated code makes an object for every
// request and reply. Here a batch is one slice that is used again, and bodies are
// pieces of the message that they came in.
//
// Invariants:
//
//  1. It is the same format as session.proto's: whatever the generated code
//     reads or refuses, this reads alike or refuses (fuzzed).
//  2. What is decoded aliases its input. Who keeps it keeps the whole message.
//
// Client and server both use it, through [Codec] or with a codec of their own.
package sessionwire

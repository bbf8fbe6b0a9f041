// Package memory bounds what clients can make a server hold: their requests in progress, their
// streams, and the answers that they haven't taken yet.
//
// A server has a limit of memory ([Default], --memory-limit). Go's collector works the harder
// the nearer the server comes to it; but what is alive can't be collected. Keys and values are
// bounded by the quota of the backend. All else that grows with the clients is bounded here, by
// one [Budget]: requests may take a quarter of what the keys have left of the limit, and so may
// streams, watches and answers; requests that are arriving have half as much. Once it is used up, new
// ones are refused at once, so that those in progress end.
//
// Invariants:
//
//  1. What has entered a Budget leaves it, once, whether the call ends well, badly or never
//     ran; an answer also if gRPC drops it with its connection.
//  2. A small call costs the Budget no memory that another core writes to: counters are
//     striped, and added up five to fifty times a second, the oftener the less is left.
//  3. However much memory the keys take, a sixteenth of the limit is left to requests: a
//     server that is full can still be asked to delete.
//
// A nil *Budget has no bounds. The package imports nothing of stoa and of gRPC only its
// buffers; time and the heap's size are injected.
//
// In: rpc's calls and codec, and how many watches there are. Out: the refusals.
package memory

// Package gateway translates HTTP requests with JSON bodies (/v3/...) into gRPC
// calls, and their answers back, in the same way as etcd's servers.
//
// The translation is grpc-gateway's, with etcd's routes and settings: names of
// fields as in the .proto files, bytes in base64, 64-bit integers as strings,
// errors as {"code", "message"} under the HTTP status of their gRPC code. An
// answer of a stream is one line, {"result": ...}. Over a websocket each line is a message.
//
// Invariants:
//
//  1. A request reaches the services by the connection that New was given, and
//     by no other way: what they check for gRPC clients they check for these.
//  2. What a request may occupy in memory before it is decoded is bounded.
//
// The package must not import any other package of stoa than the messages of its
// services.
//
// In: an HTTP server calls the handler. Out: calls on the connection.
package gateway

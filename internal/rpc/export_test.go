package rpc

import "google.golang.org/grpc"

// OpenSession carries a session of a node over a stream without a network.
func OpenSession(n interface {
	Node
	Sessions
}, stream grpc.ServerStream) error {
	o := Options{}.withDefaults()
	s := &sessionServer{info: n, sessions: n, maxOps: o.MaxTxnOps, maxBytes: o.MaxRequestBytes}
	return s.open(stream)
}

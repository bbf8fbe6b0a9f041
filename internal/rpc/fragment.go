package rpc

import (
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"github.com/stoa-kv/stoa/internal/watch"
)

// sendWatch sends a response in one message, or in pieces of less than limit
// bytes if its watcher allows that and it is larger. A single event is never
// split.
func sendWatch(r watch.Response, limit int, send func(*pb.WatchResponse) error) error {
	if !r.Fragment || len(r.Events) < 2 || proto.Size(r.WatchResponse) < limit {
		return send(r.WatchResponse)
	}
	base := proto.Size(&pb.WatchResponse{Header: r.Header, WatchId: r.WatchId, Fragment: true})
	for rest := r.Events; len(rest) > 0; {
		n, size := 1, base+eventSize(rest[0])
		for n < len(rest) {
			if size += eventSize(rest[n]); size >= limit {
				break
			}
			n++
		}
		piece := &pb.WatchResponse{Header: r.Header, WatchId: r.WatchId, Events: rest[:n], Fragment: n < len(rest)}
		if err := send(piece); err != nil {
			return err
		}
		rest = rest[n:]
	}
	return nil
}

// eventSize is what an event adds to a response.
func eventSize(e *mvccpb.Event) int {
	const tag = 1
	return tag + protowire.SizeBytes(proto.Size(e))
}

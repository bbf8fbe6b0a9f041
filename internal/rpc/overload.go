package rpc

import (
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc/mem"

	stoapb "github.com/stoa-kv/stoa/api/stoa/v1"
	"github.com/stoa-kv/stoa/internal/lockpb"
	"github.com/stoa-kv/stoa/internal/memory"
)

// refusable are the methods that are refused when memory is full. All others keep leases alive,
// free memory or show what is wrong.
var refusable = map[string]bool{
	pb.KV_Range_FullMethodName:         true,
	pb.KV_RangeStream_FullMethodName:   true,
	pb.KV_Put_FullMethodName:           true,
	pb.KV_DeleteRange_FullMethodName:   true,
	pb.KV_Txn_FullMethodName:           true,
	pb.Watch_Watch_FullMethodName:      true,
	pb.Lease_LeaseGrant_FullMethodName: true, pb.Lease_LeaseTimeToLive_FullMethodName: true, pb.Lease_LeaseLeases_FullMethodName: true,
	pb.Maintenance_Snapshot_FullMethodName: true,
	lockpb.Lock_Lock_FullMethodName:        true, lockpb.Lock_Unlock_FullMethodName: true,
	lockpb.Election_Campaign_FullMethodName: true, lockpb.Election_Proclaim_FullMethodName: true,
	lockpb.Election_Leader_FullMethodName: true, lockpb.Election_Observe_FullMethodName: true, lockpb.Election_Resign_FullMethodName: true,
	stoapb.Sessions_Open_FullMethodName: true,
}

// refuse refuses a call of which only the headers have come, if its request would find no memory.
func (c *calls) refuse(method string) error {
	level := c.memory.Unary()
	if streamed := c.memory.Streamed(); level != streamed && c.byMethod[method] == &c.streams {
		level = streamed
	}
	if level == memory.Open || level == memory.Full && !refusable[method] {
		return nil
	}
	c.memory.Refuse()
	return rpctypes.ErrGRPCRequestTooManyRequests
}

const (
	// largeRequest is the size, in bytes, from which on a request counts by its size, and not
	// as one of many calls only.
	largeRequest = 4 << 10
	// copies is how often a request is in memory while it is carried out: decoded, as a
	// command, and in a log entry.
	copies = 3
)

// room is a bound of the memory, as an h2.Room.
type room struct {
	take func(n int64) bool
	give func(n int64)
}

// arriving is the room for requests that are arriving.
func arriving(b *memory.Budget) room { return room{b.Arrive, b.Arrived} }

// lasting is that for large headers of calls that may last (of streams, and of others whose request is there), and for calls whose answers wait.
func lasting(b *memory.Budget) room { return room{b.Hold, b.Held} }

// Take implements h2.Room.
func (r room) Take(n int) error {
	if !r.take(int64(n)) {
		return rpctypes.ErrGRPCRequestTooManyRequests
	}
	return nil
}

// Give implements h2.Room.
func (r room) Give(n int) { r.give(int64(n)) }

// decode takes the memory for a unary call's request, and decodes it.
func (c *capture) decode(with codec, data mem.BufferSlice) error {
	if n := data.Len(); n >= largeRequest {
		if c.refused = !c.memory.Take(int64(n) * copies); c.refused {
			return nil
		}
		c.held = int64(n) * copies
	}
	return with.Unmarshal(data, c.req)
}

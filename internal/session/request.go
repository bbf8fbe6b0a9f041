package session

import (
	"context"

	"google.golang.org/protobuf/proto"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"

	stoapb "github.com/stoa-kv/stoa/api/stoa/v1"
	"github.com/stoa-kv/stoa/internal/kvwire"
)

// Request is the request of an Op, validated, and then its answer. The services
// that decode and encode share it with the node that carries it out.
type Request struct {
	Kind  stoapb.Kind
	Level stoapb.Level
	// Body is the marshalled request, Message the same, nil until needed: for a
	// put without flags and a get of one key, of which Key is enough.
	Body    []byte
	Message proto.Message
	Key     []byte

	// Response is the answer. A read of keys is answered by Found instead, and a get
	// of one key without Message by Kv, none if there is no such key.
	Response proto.Message
	Found    *kvwire.RangeResponse
	Kv       kvwire.KeyValue
}

// RevisionOnly tells whether the answer says nothing but its revision: that to a put without
// flags, unless an extension gave it when the put came the first time.
func (r *Request) RevisionOnly() bool {
	put, _ := r.Response.(*pb.PutResponse)
	return r.Kind == stoapb.Kind_PUT && r.Message == nil && put.GetPrevKv() == nil
}

// Item is a request and its place in the order, in one allocation.
type Item struct {
	Op
	Request
}

// NewItems returns memory for the requests of a message.
func NewItems(n int) []Item {
	items := make([]Item, n)
	for i := range items {
		items[i].Op.Request = &items[i].Request
	}
	return items
}

// Sink sends a session's replies and events, in order. One goroutine at a time
// calls it.
type Sink interface {
	Reply(op *Op)
	// Event hands over events of the watch that request seq created.
	Event(seq uint64, r *pb.WatchResponse)
	// Placement hands over the present partition map.
	Placement(m *stoapb.PartitionMap)
	// Bytes is the number of bytes that wait to be sent.
	Bytes() int
	// Flush sends them. It blocks while the client doesn't read.
	Flush() error
}

// Handle is a session on a server, for the stream that carries it.
type Handle interface {
	// Start allows calls of the Sink.
	Start()
	// Take takes the requests of one message and the number up to which replies
	// have been received. It returns when there is room for more.
	Take(ctx context.Context, items []Item, answered uint64) error
	// Drain ends it once its accepted requests are replied to.
	Drain()
	// Done is closed when it has ended; Err is the reason, nil if its client
	// closed it.
	Done() <-chan struct{}
	Err() error
	// Close reports that the stream has ended.
	Close()
}

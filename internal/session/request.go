package session

import (
	"context"

	"google.golang.org/protobuf/proto"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"

	stoapb "github.com/stoa-kv/stoa/api/stoa/v1"
	"github.com/stoa-kv/stoa/internal/kvwire"
)

// Request is what an Op asks for, checked for its form, and then the answer. It is
// what the services that decode and encode and the node that carries out share.
type Request struct {
	Kind  stoapb.Kind
	Level stoapb.Level
	// Body is the marshalled request, Message the same, nil while nobody needs it:
	// for a put without flags and a get of one key, of which Key is enough.
	Body    []byte
	Message proto.Message
	Key     []byte

	// Response is the answer. A read of keys is answered by Found instead, and a get
	// of one key without Message by Kv, none if there is no such key.
	Response proto.Message
	Found    *kvwire.RangeResponse
	Kv       kvwire.KeyValue
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

// Sink takes what a session has to say, in order. One goroutine at a time calls it.
type Sink interface {
	Reply(op *Op)
	// Event hands over events of the watch that request seq created.
	Event(seq uint64, r *pb.WatchResponse)
	// Placement hands over where keys live now.
	Placement(m *stoapb.PartitionMap)
	// Bytes is how much waits to be sent.
	Bytes() int
	// Flush sends it. It may take as long as the client does.
	Flush() error
}

// Handle is a session on a server, for the stream that carries it.
type Handle interface {
	// Start lets it speak.
	Start()
	// Take takes the requests of one message and the number up to which replies
	// have been received. It returns when there is room for more.
	Take(ctx context.Context, items []Item, answered uint64) error
	// Drain ends it once what it has taken is replied to.
	Drain()
	// Done is closed when it has ended; Err says why, nil if its client closed it.
	Done() <-chan struct{}
	Err() error
	// Close says that the stream has ended.
	Close()
}

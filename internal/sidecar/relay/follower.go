package relay

import (
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/stoa-kv/stoa/internal/protofield"
)

// A Follower gets all events of a range, inside the calls of the hub that take them from a member:
// before any local client does.
type Follower interface {
	// Begin: what comes from now on is above rev. There may be a gap to what came before.
	Begin(rev int64)
	// Take gives the events that come next, each revision whole; none for progress. With them
	// everything at or below the header's revision has come.
	Take(header *pb.ResponseHeader, events []Event)
	// End: nothing comes any more.
	End(reason string)
}

// Follow has a follower get the events of the keys from one on, up to another, until End.
func (h *Hub) Follow(key, end []byte, f Follower) {
	h.span(spanKey{key: string(key), end: string(end), followed: true}).follower = f
}

// Unfollow ends that, without a call of End.
func (h *Hub) Unfollow(key, end []byte) {
	if s := h.spans[spanKey{key: string(key), end: string(end), followed: true}]; s != nil {
		s.follower = nil
		h.release(s)
	}
}

// Want asks for progress until all followers have got everything at or below a revision. It is for
// the caller to ask again: a member that is behind may tell a lower one.
func (h *Hub) Want(rev int64) {
	h.wanted = max(h.wanted, rev)
	h.askProgress()
}

// ErrCluster is the error of streams that have followed another cluster than the one that answers now.
var ErrCluster = status.Error(codes.Unavailable, "stoa sidecar: the members are those of another cluster now")

// unfollow ends a follower.
func (s *span) unfollow(reason string) {
	if f := s.follower; f != nil {
		s.follower = nil
		f.End(reason)
	}
}

// short reports whether a follower waits for progress.
func (h *Hub) short() bool {
	for _, s := range h.spans {
		if s.follower != nil && s.open && s.at < h.wanted {
			return true
		}
	}
	return false
}

func (h *Hub) header(rev int64) *pb.ResponseHeader {
	return &pb.ResponseHeader{ClusterId: h.cluster, MemberId: h.member, RaftTerm: h.term, Revision: rev}
}

// tell has the follower of a span know what has come.
func (s *span) tell(events []event) {
	if s.follower != nil {
		s.follower.Take(s.hub.header(s.at), events)
	}
}

// An Event is one change of a key: the field of a response, with the tag.
type Event struct {
	rev   int64
	field []byte
}

type event = Event

// Revision is the one of the change.
func (e Event) Revision() int64 { return e.rev }

// KeyValue is the encoded key-value; that of a deletion has no more than a key and a revision.
func (e Event) KeyValue() (kv []byte, deleted bool) {
	const kindField, kvField = 1, 2
	_, _, tag := protowire.ConsumeTag(e.field)
	body, _ := protowire.ConsumeBytes(e.field[tag:])
	kind, _ := protofield.Find(body, kindField, protowire.VarintType)
	of, _ := protofield.Find(body, kvField, protowire.BytesType)
	return of.Bytes, kind.Varint != 0
}

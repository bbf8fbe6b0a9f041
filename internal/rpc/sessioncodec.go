package rpc

import (
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"

	stoapb "github.com/stoa-kv/stoa/api/stoa/v1"
	"github.com/stoa-kv/stoa/api/stoa/v1/sessionwire"
	"github.com/stoa-kv/stoa/internal/kvwire"
	"github.com/stoa-kv/stoa/internal/session"
)

// Most of a busy session are puts and gets of one key. These are read by hand, and an
// answer is written where it goes, without a message in between.

func decodeThen(r *session.Request, m proto.Message, check func() error) error {
	if err := proto.Unmarshal(r.Body, m); err != nil {
		return errBody
	}
	r.Message = m
	return check()
}

var errBody = status.Error(codes.InvalidArgument, "stoa: a request's body is not what its kind says")

func checkSessionPut(r *session.Request) error {
	p, err := kvwire.ReadPut(r.Body)
	switch {
	case err != nil:
		return errBody
	case !p.Plain():
		m := p.Message()
		r.Message = m
		return checkPut(m)
	case len(p.Key) == 0:
		return rpctypes.ErrGRPCEmptyKey
	}
	r.Key = p.Key
	return nil
}

func checkSessionRange(r *session.Request) error {
	if key, ok := kvwire.ReadGet(r.Body); ok {
		if r.Key = key; len(key) == 0 {
			return rpctypes.ErrGRPCEmptyKey
		}
		return nil
	}
	m := new(pb.RangeRequest)
	return decodeThen(r, m, func() error {
		if m.GetSerializable() {
			r.Level = stoapb.Level_FAST
		}
		return checkRange(m)
	})
}

// sessionSink encodes a session's replies and events into one message until it
// is sent.
type sessionSink struct {
	stream  grpc.ServerStream
	message sessionwire.Encoded
	usual   int // bytes of the message before
	audit   *ofSession
}

// Messages begin with memory for a quarter more than the one before.
const smallMessage, largeMessage = 3 << 10, 72 << 10

func (s *sessionSink) buffer() []byte {
	if s.message.Bytes == nil {
		s.message = sessionwire.NewEncoded(min(max(smallMessage, s.usual+s.usual/4), largeMessage))
	}
	return *s.message.Bytes
}

// Bytes implements session.Sink.
func (s *sessionSink) Bytes() int {
	if s.message.Bytes == nil {
		return 0
	}
	return len(*s.message.Bytes)
}

// Flush implements session.Sink.
func (s *sessionSink) Flush() error {
	s.buffer()
	m := s.message
	s.message, s.usual = sessionwire.Encoded{}, len(*m.Bytes)
	return s.stream.SendMsg(m)
}

// Reply implements session.Sink.
func (s *sessionSink) Reply(op *session.Op) {
	s.audit.replied(op)
	r := op.Request.(*session.Request)
	head := sessionwire.Reply{Seq: op.Seq, Revision: op.Revision}
	switch {
	case op.Err != nil:
		st := status.Convert(toStatus(op.Err))
		head.Code, head.Message, head.Revision = uint32(st.Code()), st.Message(), 0
		b := sessionwire.AppendReplyHead(s.buffer(), &head, 0)
		*s.message.Bytes = b
	case r.Kv.Exists():
		s.found(&head, &kvwire.RangeResponse{Kvs: []kvwire.KeyValue{r.Kv}, Count: 1})
	case r.Found != nil:
		s.found(&head, r.Found)
	case r.Response == nil || r.RevisionOnly():
		b := sessionwire.AppendReplyHead(s.buffer(), &head, 0)
		*s.message.Bytes = b
	default:
		s.body(&head, r.Response)
	}
}

// Event implements session.Sink.
func (s *sessionSink) Event(seq uint64, r *pb.WatchResponse) {
	s.audit.event(r)
	s.body(&sessionwire.Reply{Seq: seq, Event: true, Revision: r.GetHeader().GetRevision()}, r)
}

// Placement implements session.Sink.
func (s *sessionSink) Placement(m *stoapb.PartitionMap) {
	// A batch is the sequence of its fields: one with the map alone is appended.
	b, err := (&sessionwire.ServerBatch{PartitionMap: m}).AppendTo(s.buffer())
	if err == nil {
		*s.message.Bytes = b
	}
}

func (s *sessionSink) body(head *sessionwire.Reply, m proto.Message) {
	size := proto.Size(m)
	b := sessionwire.AppendReplyHead(s.buffer(), head, size)
	b, err := proto.MarshalOptions{UseCachedSize: true}.MarshalAppend(b, m)
	if err != nil { // a string that is not UTF-8: etcd's messages have none
		head.Code, head.Message = uint32(codes.Internal), err.Error()
		b = sessionwire.AppendReplyHead(s.buffer(), head, 0)
	}
	*s.message.Bytes = b
}

func (s *sessionSink) found(head *sessionwire.Reply, r *kvwire.RangeResponse) {
	b := sessionwire.AppendReplyHead(s.buffer(), head, r.Size())
	*s.message.Bytes = r.AppendTo(b)
}

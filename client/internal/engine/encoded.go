package engine

import (
	"context"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protowire"

	stoapb "github.com/stoa-kv/stoa/api/stoa/v1"
)

// Encoded adds a request that is encoded already: kind is PUT, RANGE, DELETE_RANGE or TXN,
// body the message of etcd's API. The future has the encoded response. Reads are strict, unless
// the message says serializable.
func (b *Batch) Encoded(kind stoapb.Kind, body []byte) *Future[[]byte] {
	f := new(encodedFuture)
	level := Strict
	if kind == stoapb.Kind_RANGE && serializable(body) {
		level = Fast
	}
	b.add(request{kind: kind, level: level, body: body, to: f}, "", false)
	return await(b, &f.Future)
}

// serializable tells whether an encoded RangeRequest says so.
func serializable(body []byte) (says bool) {
	_ = eachField(body, func(field protowire.Number, v uint64, _ []byte) error {
		if field == rangeSerializable {
			says = v != 0
		}
		return nil
	})
	return says
}

// Invoke carries out a call by itself, in no order with the session's requests, on the connection of its stream.
func (s *Session) Invoke(ctx context.Context, method string, in, out any, opts ...grpc.CallOption) error {
	s.mu.Lock()
	st := s.stream
	if st != nil {
		st.conn.borrow() // detach takes the lock before it releases
	}
	s.mu.Unlock()
	if st == nil {
		return errNoStream
	}
	defer st.conn.release()
	return st.conn.Invoke(ctx, method, in, out, opts...)
}

var errNoStream = status.Error(codes.Unavailable, "client: the session has no connection at present")

type encodedFuture struct{ Future[[]byte] }

func (f *encodedFuture) answer(a *arrival) {
	if err := a.err(); err != nil {
		f.fail(err)
		return
	}
	b, err := a.encoded()
	f.resolve(b, err)
}

// Fields of etcd's ResponseHeader, and of a response the header.
const (
	headerCluster  = protowire.Number(1)
	headerMember   = protowire.Number(2)
	headerRevision = protowire.Number(3)
	headerTerm     = protowire.Number(4)

	responseHeader = protowire.Number(1)
)

// encoded is the response with its whole header: that of the body has no more than a
// revision.
func (a *arrival) encoded() ([]byte, error) {
	body := a.body
	if field, kind, n := protowire.ConsumeTag(body); n > 0 && field == responseHeader && kind == protowire.BytesType {
		size := protowire.ConsumeFieldValue(field, kind, body[n:])
		if size < 0 {
			return nil, errMalformed
		}
		body = body[n+size:]
	}
	from, revision := a.from, uint64(a.revision)
	size := varintField(from.cluster) + varintField(from.member) + varintField(revision) + varintField(from.term)
	b := make([]byte, 0, 1+protowire.SizeBytes(size)+len(body))
	b = protowire.AppendTag(b, responseHeader, protowire.BytesType)
	b = protowire.AppendVarint(b, uint64(size))
	b = appendVarint(b, headerCluster, from.cluster)
	b = appendVarint(b, headerMember, from.member)
	b = appendVarint(b, headerRevision, revision)
	b = appendVarint(b, headerTerm, from.term)
	return append(b, body...), nil
}

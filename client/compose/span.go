package compose

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"go.etcd.io/etcd/api/v3/mvccpb"
	"google.golang.org/protobuf/proto"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
)

// span is a read of a range over several routes, as a read of each, in the
// order of the keys. They are requests as all others: each that changes cluster
// is synced, and waits for the one before. So the answer is not of one point in
// time, but that of a client that reads piece by piece.
type span struct {
	asked  *pb.RangeRequest
	pieces []segment
	kind   kind // of the reads of the pieces
}

// span cuts a read up. Nil: no cut is needed.
func (t *routing) span(q *pb.RangeRequest) (*span, error) {
	from, to := bounds(q.Key, q.RangeEnd)
	pieces, gaps := t.segments(from, to)
	switch {
	case len(pieces) == 1 && !gaps:
		return nil, nil
	case len(pieces) == 0:
		return nil, fmt.Errorf("%w: range %s", ErrNoRoute, spell(from, to))
	}
	if err := checkAllReserved(pieces); err != nil {
		return nil, err
	}
	if len(pieces) == 1 {
		return &span{asked: q, pieces: pieces, kind: read}, nil
	}
	refused := ""
	switch {
	case q.Revision != 0:
		refused = "reading at a revision, which is one cluster's,"
	case q.MinModRevision != 0 || q.MaxModRevision != 0 || q.MinCreateRevision != 0 || q.MaxCreateRevision != 0:
		refused = "choosing by revisions, which are one cluster's,"
	case q.SortTarget == pb.RangeRequest_MOD || q.SortTarget == pb.RangeRequest_CREATE:
		refused = "sorting by revisions, which are one cluster's,"
	case q.SortTarget == pb.RangeRequest_VALUE && q.KeysOnly:
		refused = "sorting by values that are not asked for"
	}
	if refused != "" {
		return nil, fmt.Errorf("%w: %s of range %s, which has %s", ErrNotOverSpan, refused, spell(from, to), t.spellAll(pieces))
	}
	return &span{asked: q, pieces: pieces, kind: read}, nil
}

func (s *span) locked() bool {
	return slices.ContainsFunc(s.pieces, func(p segment) bool { return p.locked })
}

// errUnanswered is that of a piece as long as its cluster hasn't answered.
var errUnanswered = errors.New("compose: no answer yet")

// readSpan reads all pieces, none between them, and hands over the merged answer, or
// the first error. waits is the cluster of the first piece that is unanswered.
func (c *core) readSpan(ctx context.Context, s *span, done func(proto.Message, error)) (waits func() *cluster) {
	var mu sync.Mutex
	answers := make([]*pb.RangeResponse, len(s.pieces))
	errs := slices.Repeat([]error{errUnanswered}, len(s.pieces))
	left := len(s.pieces)
	waits = func() *cluster {
		mu.Lock()
		defer mu.Unlock()
		at := max(0, slices.IndexFunc(errs, func(err error) bool { return errors.Is(err, errUnanswered) }))
		return c.links[s.pieces[at].cluster].cluster
	}
	came := func(i int) func(proto.Message, error) {
		return func(m proto.Message, err error) {
			mu.Lock()
			answers[i], _ = m.(*pb.RangeResponse)
			errs[i] = err
			left--
			last := left == 0
			mu.Unlock()
			if !last {
				return
			}
			if err := first(errs); err != nil {
				done(nil, err)
				return
			}
			done(s.merge(answers), nil)
		}
	}
	var refused []func()
	c.mu.Lock()
	for i := range s.pieces {
		r := s.request(i)
		r.done = came(i)
		if err := c.place(ctx, r); err != nil {
			refused = append(refused, func() { r.done(nil, err) })
		}
	}
	c.mu.Unlock()
	for _, f := range refused {
		f()
	}
	return waits
}

// request reads one piece. A limit holds for each: the first of all are among the
// first of each.
func (s *span) request(i int) *request {
	piece := &s.pieces[i]
	q := proto.Clone(s.asked).(*pb.RangeRequest)
	q.Key, q.RangeEnd = piece.there()
	return &request{placement: piece.read(q), kind: s.kind}
}

// merge makes one answer. Its header has no revision, unless there is one piece.
func (s *span) merge(answers []*pb.RangeResponse) *pb.RangeResponse {
	if len(answers) == 1 {
		return answers[0]
	}
	all := &pb.RangeResponse{Header: &pb.ResponseHeader{}}
	for _, a := range answers {
		all.Kvs = append(all.Kvs, a.Kvs...)
		all.Count += a.Count
		all.More = all.More || a.More
	}
	s.sort(all.Kvs)
	if limit := int(s.asked.Limit); limit > 0 && len(all.Kvs) > limit {
		all.Kvs, all.More = all.Kvs[:limit], true
	}
	return all
}

// sort sorts as etcd does: by keys unless asked otherwise, upwards unless asked
// otherwise.
func (s *span) sort(kvs []*mvccpb.KeyValue) {
	by := func(a, b *mvccpb.KeyValue) int { return bytes.Compare(a.Key, b.Key) }
	switch s.asked.SortTarget {
	case pb.RangeRequest_VERSION:
		by = func(a, b *mvccpb.KeyValue) int { return cmp.Compare(a.Version, b.Version) }
	case pb.RangeRequest_CREATE:
		by = func(a, b *mvccpb.KeyValue) int { return cmp.Compare(a.CreateRevision, b.CreateRevision) }
	case pb.RangeRequest_MOD:
		by = func(a, b *mvccpb.KeyValue) int { return cmp.Compare(a.ModRevision, b.ModRevision) }
	case pb.RangeRequest_VALUE:
		by = func(a, b *mvccpb.KeyValue) int { return bytes.Compare(a.Value, b.Value) }
	}
	slices.SortStableFunc(kvs, func(a, b *mvccpb.KeyValue) int {
		if s.asked.SortOrder == pb.RangeRequest_DESCEND {
			return by(b, a)
		}
		return by(a, b)
	})
}

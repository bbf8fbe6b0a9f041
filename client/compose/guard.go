package compose

import (
	"context"
	"fmt"
	"slices"

	"google.golang.org/protobuf/proto"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"

	"github.com/stoa-kv/stoa/client/compose/internal/commit"
)

// guard makes a request of one cluster wait for transactions over clusters that have its keys:
// an update is executed only if none of them is locked, and a read has the locks beside it.
type guard struct {
	inner proto.Message
	locks []*pb.RangeRequest // those of its keys, each once
	has   map[lockRange]bool
	reads bool
}

type lockRange struct{ key, end string }

// guarded sends a request, again while keys of it are locked.
func (c *Client) guarded(ctx context.Context, r *request) (proto.Message, error) {
	if err := refuseLeases(r.message); err != nil {
		return nil, err
	}
	l := c.shared.locker
	l.start()
	g := newGuard(r.message)
	of := c.core.links[r.cluster].cluster
	for attempt := 0; ; attempt++ {
		one := &request{placement: placement{cluster: r.cluster, message: g.message()}, kind: r.kind, session: r.session}
		m, err := c.wait(ctx, one)
		if err != nil {
			return nil, err
		}
		met := g.met(of, m.(*pb.TxnResponse))
		if len(met) == 0 {
			answer := g.answer(m.(*pb.TxnResponse))
			if answer == nil {
				return nil, fmt.Errorf("%w: an extension of cluster %s handles transactions of the keys", ErrTransactions, of.name)
			}
			if r.back != nil {
				answer = r.back(answer)
			}
			return answer, nil
		}
		if err := l.resolve(ctx, r.cluster, met, attempt); err != nil {
			return nil, err
		}
		if r.kind == read {
			r.kind = syncedRead // a local one may show the lock for longer
		}
	}
}

// refuseLeases: a lease would delete keys while they are locked.
func refuseLeases(m proto.Message) error {
	switch m := m.(type) {
	case *pb.PutRequest:
		if m.Lease != 0 {
			return fmt.Errorf("%w: key %q with a lease", ErrTransactions, m.Key)
		}
	case *pb.TxnRequest:
		for _, op := range slices.Concat(m.Success, m.Failure) {
			if err := refuseLeases(inside(op)); err != nil {
				return err
			}
		}
	}
	return nil
}

// inside is the request that an operation has.
func inside(op *pb.RequestOp) proto.Message {
	switch o := op.Request.(type) {
	case *pb.RequestOp_RequestRange:
		return o.RequestRange
	case *pb.RequestOp_RequestPut:
		return o.RequestPut
	case *pb.RequestOp_RequestDeleteRange:
		return o.RequestDeleteRange
	case *pb.RequestOp_RequestTxn:
		return o.RequestTxn
	}
	return nil
}

func newGuard(m proto.Message) *guard {
	g := &guard{inner: m, has: map[lockRange]bool{}, reads: kindOf(m) == read}
	g.add(m)
	return g
}

func (g *guard) add(m proto.Message) {
	switch m := m.(type) {
	case *pb.RangeRequest:
		g.key(m.Key, m.RangeEnd)
	case *pb.PutRequest:
		g.key(m.Key, nil)
	case *pb.DeleteRangeRequest:
		g.key(m.Key, m.RangeEnd)
	case *pb.TxnRequest:
		for _, c := range m.Compare {
			g.key(c.Key, c.RangeEnd)
		}
		for _, op := range slices.Concat(m.Success, m.Failure) {
			g.add(inside(op))
		}
	}
}

// mostLocks bounds the locks that one answer shows: those after them are met next.
const mostLocks = 64

func (g *guard) key(key, end []byte) {
	r := &pb.RangeRequest{Key: []byte(commit.LockPrefix + string(key)), Limit: mostLocks}
	switch {
	case len(end) == 1 && end[0] == 0:
		r.RangeEnd = []byte(behindLocks)
	case len(end) > 0:
		r.RangeEnd = []byte(commit.LockPrefix + string(end))
	}
	if of := (lockRange{string(r.Key), string(r.RangeEnd)}); !g.has[of] {
		g.has[of] = true
		g.locks = append(g.locks, r)
	}
}

// behindLocks is the first key behind those of all locks.
var behindLocks = commit.LockPrefix[:len(commit.LockPrefix)-1] + "0"

// message is made anew for each attempt: sending changes it.
func (g *guard) message() *pb.TxnRequest {
	t := &pb.TxnRequest{}
	if g.reads {
		t.Success = append(t.Success, opOf(proto.Clone(g.inner)))
		for _, l := range g.locks {
			t.Success = append(t.Success, opOf(proto.Clone(l)))
		}
		return t
	}
	for _, l := range g.locks {
		t.Compare = append(t.Compare, &pb.Compare{Key: l.Key, RangeEnd: l.RangeEnd, Target: pb.Compare_CREATE,
			Result: pb.Compare_EQUAL, TargetUnion: &pb.Compare_CreateRevision{}})
		t.Failure = append(t.Failure, opOf(proto.Clone(l)))
	}
	t.Success = append(t.Success, opOf(proto.Clone(g.inner)), proof())
	return t
}

func opOf(m proto.Message) *pb.RequestOp {
	switch m := m.(type) {
	case *pb.RangeRequest:
		return &pb.RequestOp{Request: &pb.RequestOp_RequestRange{RequestRange: m}}
	case *pb.PutRequest:
		return &pb.RequestOp{Request: &pb.RequestOp_RequestPut{RequestPut: m}}
	case *pb.DeleteRangeRequest:
		return &pb.RequestOp{Request: &pb.RequestOp_RequestDeleteRange{RequestDeleteRange: m}}
	case *pb.TxnRequest:
		return &pb.RequestOp{Request: &pb.RequestOp_RequestTxn{RequestTxn: m}}
	}
	return nil
}

// met are the locks in an answer.
func (g *guard) met(of *cluster, a *pb.TxnResponse) []commit.Met {
	of.id.Store(a.Header.GetClusterId())
	responses := a.Responses
	switch {
	case g.reads && a.Succeeded:
		responses = a.Responses[1:]
	case g.reads || a.Succeeded:
		return nil
	}
	var kvs []*commit.KV
	for _, r := range responses {
		for _, kv := range r.GetResponseRange().GetKvs() {
			kvs = append(kvs, fromKV(kv))
		}
	}
	return commit.MetIn(of.id.Load(), kvs)
}

// answer is the one to the inner request; nil: it was not executed, though nothing is locked, for an extension has answered.
func (g *guard) answer(a *pb.TxnResponse) proto.Message {
	if !a.Succeeded || !g.reads && !executed(a) {
		return nil
	}
	switch r := a.Responses[0].Response.(type) {
	case *pb.ResponseOp_ResponseRange:
		r.ResponseRange.Header = a.Header
		return r.ResponseRange
	case *pb.ResponseOp_ResponsePut:
		r.ResponsePut.Header = a.Header
		return r.ResponsePut
	case *pb.ResponseOp_ResponseDeleteRange:
		r.ResponseDeleteRange.Header = a.Header
		return r.ResponseDeleteRange
	case *pb.ResponseOp_ResponseTxn:
		r.ResponseTxn.Header = a.Header
		return r.ResponseTxn
	}
	return nil
}

// readPieces reads a range over several routes, some of which have transactions, one piece
// after the other.
func (c *Client) readPieces(ctx context.Context, s *span) (proto.Message, error) {
	answers := make([]*pb.RangeResponse, len(s.pieces))
	for i := range s.pieces {
		r := s.request(i)
		r.session = c.session
		do := c.wait
		if r.locked {
			do = c.guarded
		}
		m, err := do(ctx, r)
		if err != nil {
			return nil, err
		}
		answers[i] = m.(*pb.RangeResponse)
	}
	return s.merge(answers), nil
}

package engine

import (
	"context"
	"fmt"

	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"

	stoapb "github.com/stoa-kv/stoa/api/stoa/v1"
)

// Functions for clients built over sessions, as compose is: to get answers
// before their waiters do, to inspect options, and to abandon a session.

// Promise is a future that is not resolved by a session.
type Promise[T any] struct{ Future[T] }

// Resolve resolves the future, once.
func (p *Promise[T]) Resolve(value T, err error) { p.resolve(value, err) }

// GetThen is GetAsync of one key, whose answer then gets before the waiters do,
// and may change. It is called in the order of the answers and must not block.
// An error means that nothing was sent, and then is not called.
func (r Reader) GetThen(ctx context.Context, key string, then func(*clientv3.GetResponse, error) (*clientv3.GetResponse, error)) (*Future[*clientv3.GetResponse], error) {
	f := new(getFuture)
	f.then = then
	q := request{kind: stoapb.Kind_RANGE, level: r.level, key: key, plain: true, to: f}
	return &f.Future, r.s.send(ctx, &q)
}

// HeldGet is a read whose answer To gets: it decides when the future has which one.
// It must be neither copied nor sent twice.
type HeldGet struct {
	getFuture
	To interface {
		// Answered has the answer, which it may change, or an error. It is called once, in the order of the
		// answers, and must not block.
		Answered(*clientv3.GetResponse, error)
	}
}

func (h *HeldGet) answer(a *arrival) {
	err := a.err()
	if err == nil {
		err = h.read(a)
	}
	if err != nil {
		h.fail(err)
		return
	}
	h.To.Answered((*clientv3.GetResponse)(&h.response), nil)
}

func (h *HeldGet) fail(err error) { h.To.Answered(nil, err) }

// Resolve resolves the future, once.
func (h *HeldGet) Resolve(a *clientv3.GetResponse, err error) { h.resolve(a, err) }

// Awaited is the future.
func (h *HeldGet) Awaited() *Future[*clientv3.GetResponse] { return &h.Future }

// GetHeld sends a read of one key. An error means that nothing was sent, and that To gets nothing.
func (r Reader) GetHeld(ctx context.Context, key string, h *HeldGet) error {
	q := request{kind: stoapb.Kind_RANGE, level: r.level, key: key, plain: true, to: h}
	return r.s.send(ctx, &q)
}

// SendHeld sends any read, as GetHeld does.
func (r Reader) SendHeld(ctx context.Context, m *pb.RangeRequest, h *HeldGet) error {
	q := r.s.marshalled(m, r.level, h)
	return r.s.send(ctx, &q)
}

// PutThen is PutAsync of one key, as GetThen is GetAsync.
func (s *Session) PutThen(ctx context.Context, key, val string, then func(*clientv3.PutResponse, error) (*clientv3.PutResponse, error)) (*Future[*clientv3.PutResponse], error) {
	f := new(putFuture)
	f.then = then
	q := request{kind: stoapb.Kind_PUT, key: key, value: val, plain: true, to: f}
	return &f.Future, s.send(ctx, &q)
}

// SendThen sends a message of etcd's KV service; then has its answer. An error means
// that nothing was sent, and then is not called.
func (r Reader) SendThen(ctx context.Context, m proto.Message, then func(proto.Message, error)) error {
	var to answerable
	switch m.(type) {
	case *pb.RangeRequest:
		f := new(getFuture)
		f.then = func(v *clientv3.GetResponse, err error) (*clientv3.GetResponse, error) {
			then((*pb.RangeResponse)(v), err)
			return v, err
		}
		to = f
	case *pb.PutRequest:
		f := new(putFuture)
		f.then = func(v *clientv3.PutResponse, err error) (*clientv3.PutResponse, error) {
			then((*pb.PutResponse)(v), err)
			return v, err
		}
		to = f
	case *pb.DeleteRangeRequest:
		f := new(deleteFuture)
		f.then = func(v *clientv3.DeleteResponse, err error) (*clientv3.DeleteResponse, error) {
			then((*pb.DeleteRangeResponse)(v), err)
			return v, err
		}
		to = f
	case *pb.TxnRequest:
		f := new(txnFuture)
		f.then = func(v *clientv3.TxnResponse, err error) (*clientv3.TxnResponse, error) {
			then((*pb.TxnResponse)(v), err)
			return v, err
		}
		to = f
	default:
		return fmt.Errorf("client: a session can't carry %T", m)
	}
	q := r.s.marshalled(m, r.level, to)
	return r.s.send(ctx, &q)
}

// Counts are the requests that were sent, and those of them that were answered, also with an error.
func (s *Session) Counts() (sent, got int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return int64(s.backlog.next()) - 1, int64(s.backlog.first) - 1
}

// Abandon ends the session without telling the servers: unanswered requests
// fail with why, and may have taken effect or not. The lease expires by itself.
func (s *Session) Abandon(why error) { s.end(why) }

// Message is the message of etcd's KV service that an operation stands for.
func Message(op clientv3.Op) (proto.Message, error) {
	var rec recorder
	if _, err := clientv3.NewKVFromKVClient(&rec, nil).Do(context.Background(), op); err != nil {
		return nil, err
	}
	return rec.asked, nil
}

var errEphemeral = fmt.Errorf("%w: a key that is Ephemeral is put through one", ErrNoSession)

// refuseEphemeral is for calls outside of a session: OwnLease has no meaning
// for servers.
func refuseEphemeral(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption) error {
	if m, ok := req.(proto.Message); ok {
		if _, err := Bind(m, 0); err != nil {
			return err
		}
	}
	return invoke(ctx, method, req, reply, cc, opts...)
}

// Bind gives the keys of a message that are Ephemeral a lease, and tells whether there
// are any. Without a lease, 0, they are refused.
func Bind(m proto.Message, lease int64) (bound bool, err error) {
	switch m := m.(type) {
	case *pb.PutRequest:
		if m.Lease != int64(OwnLease) {
			return false, nil
		}
		if lease == 0 {
			return false, errEphemeral
		}
		m.Lease = lease
		return true, nil
	case *pb.TxnRequest:
		return bindTxn(m, lease)
	}
	return false, nil
}

func bindTxn(t *pb.TxnRequest, lease int64) (bound bool, err error) {
	for _, ops := range [][]*pb.RequestOp{t.Success, t.Failure} {
		for _, op := range ops {
			var one bool
			switch o := op.Request.(type) {
			case *pb.RequestOp_RequestPut:
				one, err = Bind(o.RequestPut, lease)
			case *pb.RequestOp_RequestTxn:
				one, err = bindTxn(o.RequestTxn, lease)
			}
			if err != nil {
				return false, err
			}
			bound = bound || one
		}
	}
	return bound, nil
}

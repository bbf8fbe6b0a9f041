package engine

import (
	"context"
	"errors"

	clientv3 "go.etcd.io/etcd/client/v3"

	stoapb "github.com/stoa-kv/stoa/api/stoa/v1"
)

// Reader reads through a session at one level: Session.At. A session is a Reader
// at its own.
type Reader struct {
	s     *Session
	level Level
}

// At reads at another level than the session's own. The order is still the
// session's.
func (r Reader) At(l Level) Reader { return Reader{s: r.s, level: l} }

// GetAsync reads without waiting for the answer.
func (r Reader) GetAsync(key string, opts ...clientv3.OpOption) *Future[*clientv3.GetResponse] {
	return r.get(context.Background(), key, opts)
}

// Get reads a key, or the range that the options say. clientv3.WithSerializable is
// the level Fast.
func (r Reader) Get(ctx context.Context, key string, opts ...clientv3.OpOption) (*clientv3.GetResponse, error) {
	return inPlace(ctx, func() *Future[*clientv3.GetResponse] { return r.get(ctx, key, opts) })
}

// inPlace does a synchronous operation. A read that was overtaken is sent
// again, in a new place: its caller has sent nothing after the old one.
func inPlace[T any](ctx context.Context, do func() *Future[T]) (T, error) {
	for {
		if v, err := do().Wait(ctx); !errors.Is(err, ErrOvertaken) {
			return v, err
		}
	}
}

func (r Reader) get(ctx context.Context, key string, opts []clientv3.OpOption) *Future[*clientv3.GetResponse] {
	f := new(getFuture)
	q := r.getRequest(f, key, opts)
	if err := r.s.send(ctx, &q); err != nil {
		f.fail(err)
	}
	return &f.Future
}

func (r Reader) getRequest(f *getFuture, key string, opts []clientv3.OpOption) request {
	if len(opts) > 0 {
		return r.s.requestOf(clientv3.OpGet(key, opts...), r.level, f)
	}
	return request{kind: stoapb.Kind_RANGE, level: r.level, key: key, plain: true, to: f}
}

// DoAsync sends any operation, of etcd's type, without waiting for the answer.
func (r Reader) DoAsync(op clientv3.Op) *Future[clientv3.OpResponse] {
	return r.do(context.Background(), op)
}

// Do is DoAsync and Wait.
func (r Reader) Do(ctx context.Context, op clientv3.Op) (clientv3.OpResponse, error) {
	return inPlace(ctx, func() *Future[clientv3.OpResponse] { return r.do(ctx, op) })
}

func (r Reader) do(ctx context.Context, op clientv3.Op) *Future[clientv3.OpResponse] {
	f := new(opFuture)
	q := r.opRequest(f, op)
	if err := r.s.send(ctx, &q); err != nil {
		f.fail(err)
	}
	return &f.Future
}

func (r Reader) opRequest(f *opFuture, op clientv3.Op) request {
	switch {
	case op.IsPut():
		f.inner = new(putFuture)
	case op.IsGet():
		f.inner = new(getFuture)
	case op.IsDelete():
		f.inner = new(deleteFuture)
	case op.IsTxn():
		f.inner = new(txnFuture)
	}
	return r.s.requestOf(op, r.level, f)
}

// TxnAsync sends a transaction without waiting for the answer: if all of cmps
// hold, the operations of then are done, else those of otherwise, at one revision.
// The level counts if none of them writes.
func (r Reader) TxnAsync(cmps []clientv3.Cmp, then, otherwise []clientv3.Op) *Future[*clientv3.TxnResponse] {
	f := new(txnFuture)
	q := r.s.requestOf(clientv3.OpTxn(cmps, then, otherwise), r.level, f)
	if err := r.s.send(context.Background(), &q); err != nil {
		f.fail(err)
	}
	return &f.Future
}

// Txn builds a transaction as etcd's clients do: If, Then, Else, Commit.
func (r Reader) Txn(ctx context.Context) clientv3.Txn { return r.KV().Txn(ctx) }

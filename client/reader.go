package client

import (
	"context"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/stoa-kv/stoa/client/internal/engine"
)

// Reader is a session at one level, with those of its methods that may read.
// Writes are the session's. A Session is a Reader at its own level; At makes
// one at another.
type Reader struct{ e engine.Reader }

// engine returns the reader; for a zero Reader, one of an ended session.
func (r Reader) engine() engine.Reader {
	if r.e == (engine.Reader{}) {
		return engine.None().Reader
	}
	return r.e
}

// At reads at another level than the session's own. The order is still the
// session's.
func (r Reader) At(l Level) Reader { return Reader{r.engine().At(engine.Level(l))} }

// GetAsync reads without waiting for the answer.
func (r Reader) GetAsync(key string, opts ...clientv3.OpOption) *Future[*clientv3.GetResponse] {
	return future(r.engine().GetAsync(key, opts...))
}

// Get reads a key, or the range that the options say. clientv3.WithSerializable is
// the level Fast.
func (r Reader) Get(ctx context.Context, key string, opts ...clientv3.OpOption) (*clientv3.GetResponse, error) {
	return r.engine().Get(ctx, key, opts...)
}

// DoAsync sends any operation, of etcd's type, without waiting for the answer.
func (r Reader) DoAsync(op clientv3.Op) *Future[clientv3.OpResponse] {
	return future(r.engine().DoAsync(op))
}

// Do is DoAsync and Wait.
func (r Reader) Do(ctx context.Context, op clientv3.Op) (clientv3.OpResponse, error) {
	return r.engine().Do(ctx, op)
}

// TxnAsync sends a transaction without waiting for the answer: if all of cmps hold,
// the operations of then are done, else those of otherwise, at one revision. The level
// counts if none of them writes.
func (r Reader) TxnAsync(cmps []clientv3.Cmp, then, otherwise []clientv3.Op) *Future[*clientv3.TxnResponse] {
	return future(r.engine().TxnAsync(cmps, then, otherwise))
}

// Txn builds a transaction as etcd's clients do: If, Then, Else, Commit.
func (r Reader) Txn(ctx context.Context) clientv3.Txn { return r.engine().Txn(ctx) }

// KV is etcd's KV at the reader's level.
func (r Reader) KV() clientv3.KV { return r.engine().KV() }

// Watcher is etcd's Watcher at the reader's level. Each of its watches has a channel
// of its own, so it doesn't show the order among several watches; a Feed does.
func (r Reader) Watcher() clientv3.Watcher { return r.engine().Watcher() }

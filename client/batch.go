package client

import (
	"context"

	clientv3 "go.etcd.io/etcd/client/v3"

	stoapb "github.com/stoa-kv/stoa/api/stoa/v1"
	"github.com/stoa-kv/stoa/client/internal/engine"
)

// Batch collects operations that are sent together, in order: others of the
// same session come before all or after all of them. A batch is not a
// transaction; each operation takes effect by itself.
//
// A batch is for one goroutine and is sent once. Its futures have answers only after
// Send.
type Batch struct{ e *engine.Batch }

// BatchOption changes a batch.
type BatchOption struct{ independent bool }

// Independent gives up the order among the operations of the batch, not the
// order between them and the requests before and after. They are sent partition
// by partition then, which saves a rendezvous at each change of partition.
func Independent() BatchOption { return BatchOption{independent: true} }

// Batch starts a batch whose reads are at the reader's level.
func (r Reader) Batch(opts ...BatchOption) *Batch {
	independent := false
	for _, o := range opts {
		independent = independent || o.independent
	}
	return &Batch{r.engine().Batch(independent)}
}

// engine returns the batch; for a zero Batch, one of an ended session.
func (b *Batch) engine() *engine.Batch {
	if b.e == nil {
		b.e = engine.NoBatch()
	}
	return b.e
}

// Len is the number of operations.
func (b *Batch) Len() int { return b.engine().Len() }

// Put adds a put.
func (b *Batch) Put(key, val string, opts ...clientv3.OpOption) *Future[*clientv3.PutResponse] {
	return future(b.engine().Put(key, val, opts...))
}

// Get adds a read.
func (b *Batch) Get(key string, opts ...clientv3.OpOption) *Future[*clientv3.GetResponse] {
	return future(b.engine().Get(key, opts...))
}

// Delete adds a deletion.
func (b *Batch) Delete(key string, opts ...clientv3.OpOption) *Future[*clientv3.DeleteResponse] {
	return future(b.engine().Delete(key, opts...))
}

// Txn adds a transaction.
func (b *Batch) Txn(cmps []clientv3.Cmp, then, otherwise []clientv3.Op) *Future[*clientv3.TxnResponse] {
	return future(b.engine().Txn(cmps, then, otherwise))
}

// Do adds any operation.
func (b *Batch) Do(op clientv3.Op) *Future[clientv3.OpResponse] { return future(b.engine().Do(op)) }

// Encoded adds a request that is encoded already, for programs that pass on the requests of
// others: kind is PUT, RANGE, DELETE_RANGE or TXN, body the message of etcd's API. The future has
// the encoded response. Reads are strict, unless the message says serializable; Ephemeral has
// no encoding. body must not be changed before Send.
func (b *Batch) Encoded(kind stoapb.Kind, body []byte) *Future[[]byte] {
	return future(b.engine().Encoded(kind, body))
}

// Send sends all of it. It waits only while Config.Pending requests are
// unanswered; if ctx ends meanwhile, or an operation is refused, nothing was
// sent and no future gets an answer.
func (b *Batch) Send(ctx context.Context) error { return b.engine().Send(ctx) }

// Run sends the batch, unless that was done, and waits for all answers. The error
// joins those of all operations that failed.
func (b *Batch) Run(ctx context.Context) error { return b.engine().Run(ctx) }

package engine

import (
	"context"
	"errors"
	"slices"

	clientv3 "go.etcd.io/etcd/client/v3"
)

// Batch collects operations that are sent together, in order: others of the
// same session come before all or after all of them. A batch is not a
// transaction; each operation takes effect by itself.
//
// A batch is for one goroutine and is sent once. Its futures have answers only
// after Send.
type Batch struct {
	r           Reader
	independent bool
	requests    []request
	places      []uint32 // of the requests, if they are independent
	waits       []func(context.Context) error
	sent        bool
}

var errSentTwice = errors.New("client: the batch was sent before")

// Batch starts a batch whose reads are at the reader's level. An independent one gives
// up the order among its operations.
func (r Reader) Batch(independent bool) *Batch { return &Batch{r: r, independent: independent} }

// Len is the number of operations.
func (b *Batch) Len() int { return len(b.requests) }

// Put adds a put.
func (b *Batch) Put(key, val string, opts ...clientv3.OpOption) *Future[*clientv3.PutResponse] {
	f := new(putFuture)
	b.add(b.r.s.putRequest(f, key, val, opts), key, true)
	return await(b, &f.Future)
}

// Get adds a read.
func (b *Batch) Get(key string, opts ...clientv3.OpOption) *Future[*clientv3.GetResponse] {
	f := new(getFuture)
	b.add(b.r.getRequest(f, key, opts), key, len(opts) == 0)
	return await(b, &f.Future)
}

// Delete adds a deletion.
func (b *Batch) Delete(key string, opts ...clientv3.OpOption) *Future[*clientv3.DeleteResponse] {
	f := new(deleteFuture)
	b.add(b.r.s.deleteRequest(f, key, opts), key, len(opts) == 0)
	return await(b, &f.Future)
}

// Txn adds a transaction.
func (b *Batch) Txn(cmps []clientv3.Cmp, then, otherwise []clientv3.Op) *Future[*clientv3.TxnResponse] {
	f := new(txnFuture)
	b.add(b.r.s.requestOf(clientv3.OpTxn(cmps, then, otherwise), b.r.level, f), "", false)
	return await(b, &f.Future)
}

// Do adds any operation.
func (b *Batch) Do(op clientv3.Op) *Future[clientv3.OpResponse] {
	f := new(opFuture)
	b.add(b.r.opRequest(f, op), string(op.KeyBytes()), !op.IsTxn() && op.RangeBytes() == nil)
	return await(b, &f.Future)
}

func (b *Batch) add(r request, key string, oneKey bool) {
	b.requests = append(b.requests, r)
	if !b.independent {
		return
	}
	place := ^uint32(0) // several partitions, maybe: after all others
	if oneKey {
		place, _ = b.r.s.c.placement.partition([]byte(key))
	}
	b.places = append(b.places, place)
}

func await[T any](b *Batch, f *Future[T]) *Future[T] {
	b.waits = append(b.waits, func(ctx context.Context) error {
		_, err := f.Wait(ctx)
		return err
	})
	return f
}

// Send sends all of it. It waits only while Config.Pending requests are
// unanswered; if ctx ends meanwhile, or an operation is refused, nothing was
// sent and no future gets an answer.
func (b *Batch) Send(ctx context.Context) error {
	if b.sent {
		return errSentTwice
	}
	if err := b.r.s.sendAll(ctx, b.arranged()); err != nil {
		return err
	}
	b.sent = true
	return nil
}

// arranged is the order in which the requests go.
func (b *Batch) arranged() []request {
	if !b.independent {
		return b.requests
	}
	order := make([]int, len(b.requests))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(x, y int) int {
		return int(int64(b.places[x]) - int64(b.places[y]))
	})
	sorted := make([]request, len(order))
	for i, from := range order {
		sorted[i] = b.requests[from]
	}
	return sorted
}

// Run sends the batch, unless that was done, and waits for all answers. The errors
// are those of all operations that failed.
func (b *Batch) Run(ctx context.Context) error {
	if !b.sent {
		if err := b.Send(ctx); err != nil {
			return err
		}
	}
	var errs []error
	for _, wait := range b.waits {
		if err := wait(ctx); err != nil {
			errs = append(errs, err)
		}
		if ctx.Err() != nil {
			break
		}
	}
	return errors.Join(errs...)
}

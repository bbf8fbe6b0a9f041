package migrate

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/stoa-kv/stoa/test/process"
)

// Connect opens a client of a server.
func Connect(s *process.Server) (*clientv3.Client, error) {
	return clientv3.New(clientv3.Config{Endpoints: []string{s.ClientURL}, DialTimeout: 10 * time.Second, Logger: zap.NewNop()})
}

// fillers is the number of clients that fill a cluster.
const fillers = 32

// Shape is the content of a source.
type Shape struct {
	Keys   int // without leases
	Leases int // with one key each, and every tenth with two; every hundredth with none
	Value  int // bytes
	TTL    int64
}

// Fill writes a source's content.
func Fill(ctx context.Context, c *clientv3.Client, s Shape) error {
	value := strings.Repeat("v", s.Value)
	const batch = 100
	err := parallel(ctx, (s.Keys+batch-1)/batch, func(ctx context.Context, i int) error {
		var ops []clientv3.Op
		for k := i * batch; k < min((i+1)*batch, s.Keys); k++ {
			ops = append(ops, clientv3.OpPut(key(k), value))
		}
		_, err := c.Txn(ctx).Then(ops...).Commit()
		return err
	})
	if err != nil {
		return fmt.Errorf("filling the source: %w", err)
	}
	err = parallel(ctx, s.Leases, func(ctx context.Context, i int) error {
		l, err := c.Grant(ctx, s.TTL+int64(i%7))
		if err != nil || i%100 == 0 {
			return err
		}
		keys := []string{fmt.Sprintf("/leased/%d/k", i)}
		if i%10 == 0 {
			keys = append(keys, fmt.Sprintf("/leased/%d/l", i))
		}
		for _, k := range keys {
			if _, err := c.Put(ctx, k, value, clientv3.WithLease(l.ID)); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("leases of the source: %w", err)
	}
	return nil
}

func key(k int) string { return fmt.Sprintf("/data/%d/%d", k%100, k) }

func parallel(ctx context.Context, n int, fn func(ctx context.Context, i int) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var next atomic.Int64
	var done sync.WaitGroup
	for range fillers {
		done.Go(func() {
			for i := int(next.Add(1)) - 1; i < n && ctx.Err() == nil; i = int(next.Add(1)) - 1 {
				if err := fn(ctx, i); err != nil {
					cancel(err)
				}
			}
		})
	}
	done.Wait()
	return context.Cause(ctx)
}

// Writer changes a source at a rate until it is stopped: puts, deletions, transactions of
// several keys up to the largest that etcd takes, keys that get and lose leases, leases that
// end.
type Writer struct {
	Written atomic.Int64

	c      *clientv3.Client
	shape  Shape
	cancel context.CancelFunc
	done   sync.WaitGroup
	err    error
}

// writers is the number of clients that share a rate: enough for 1,000/s at a server that takes a quarter of a
// second for a write, on a machine that does all of this.
const writers = 256

// StartWriter starts one with so many requests a second.
func StartWriter(c *clientv3.Client, s Shape, rate int) *Writer {
	w := &Writer{c: c, shape: s}
	ctx, cancel := context.WithCancel(context.Background())
	w.cancel = cancel
	var once sync.Once
	each := time.Second * writers / time.Duration(rate)
	for i := range writers {
		w.done.Go(func() {
			if err := w.run(ctx, rand.New(rand.NewPCG(uint64(i), 1)), each*time.Duration(i+1)/writers, each); err != nil && ctx.Err() == nil {
				once.Do(func() { w.err = err })
			}
		})
	}
	return w
}

// Stop returns the first error of a request.
func (w *Writer) Stop() error {
	w.cancel()
	w.done.Wait()
	return w.err
}

// run writes after a time, in which the others begin, too, and at an interval.
func (w *Writer) run(ctx context.Context, r *rand.Rand, first, each time.Duration) error {
	tick := time.NewTicker(first)
	defer tick.Stop()
	for began := false; ; began = true {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return nil
		}
		if !began {
			tick.Reset(each)
		}
		if err := w.write(ctx, r); err != nil {
			return err
		}
		w.Written.Add(1)
	}
}

func (w *Writer) write(ctx context.Context, r *rand.Rand) error {
	k, value := key(r.IntN(w.shape.Keys+w.shape.Keys/10+1)), fmt.Sprint(r.Uint64())
	switch n := r.IntN(1000); {
	case n < 5: // as many as etcd takes, more than fit beside the mark
		return w.txn(ctx, r, 128)
	case n < 50:
		return w.txn(ctx, r, 2+r.IntN(10))
	case n < 60:
		return w.lease(ctx, k, value)
	case n < 200:
		_, err := w.c.Delete(ctx, k)
		return err
	}
	_, err := w.c.Put(ctx, k, value)
	return err
}

func (w *Writer) txn(ctx context.Context, r *rand.Rand, n int) error {
	var ops []clientv3.Op
	first := r.IntN(w.shape.Keys + 1)
	for i := range n {
		if k := key(first + i); i%5 == 4 {
			ops = append(ops, clientv3.OpDelete(k))
		} else {
			ops = append(ops, clientv3.OpPut(k, fmt.Sprint(r.Uint64())))
		}
	}
	_, err := w.c.Txn(ctx).Then(ops...).Commit()
	return err
}

// lease is one that ends soon, or is revoked.
func (w *Writer) lease(ctx context.Context, k, value string) error {
	l, err := w.c.Grant(ctx, 3)
	if err == nil {
		_, err = w.c.Put(ctx, k, value, clientv3.WithLease(l.ID))
	}
	if err == nil && len(k)%2 == 0 {
		_, err = w.c.Revoke(ctx, l.ID)
	}
	if errors.Is(err, rpctypes.ErrLeaseNotFound) {
		err = nil // it has ended before, on a slow machine
	}
	return err
}

// Compactor compacts a source at intervals, to its newest revision, until the context ends.
func Compactor(ctx context.Context, c *clientv3.Client, each time.Duration) error {
	last := int64(0)
	tick := time.NewTicker(each)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return nil
		}
		r, err := c.Get(ctx, "/none")
		if err == nil && r.Header.Revision > last {
			last = r.Header.Revision
			_, err = c.Compact(ctx, last)
		}
		if err != nil && ctx.Err() == nil && !errors.Is(err, context.DeadlineExceeded) {
			return fmt.Errorf("compacting: %w", err)
		}
	}
}

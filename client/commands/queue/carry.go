package queue

import (
	"context"
	"time"

	"github.com/stoa-kv/stoa/client/commands"
	"github.com/stoa-kv/stoa/client/mirror"
	"github.com/stoa-kv/stoa/client/mirror/cluster"
)

// carry carries out the commands in one cluster until it fails.
func (t *term) carry(ctx context.Context, i int) error {
	there, err := t.Dial(ctx, t.set[i])
	if err != nil {
		return err
	}
	target := cluster.NewTarget(there, cluster.Span{}, t.keys.Mark())
	carrier, r, err := t.begin(ctx, i, target)
	if err != nil {
		return err
	}
	defer r.pages()
	retry := t.retry(t.set[0])
	for {
		entries, err := r.next(ctx)
		if err != nil {
			if !retry(ctx, err) {
				return err
			}
			continue
		}
		if len(entries) == 0 {
			continue
		}
		t.mu.Lock()
		carrier.Add(entries...)
		t.newest = max(t.newest, r.read)
		t.mu.Unlock()
		t.passed()
		if err := t.write(ctx, i, target, carrier, r); err != nil {
			return err
		}
	}
}

// begin reads where the cluster is. The mark is read before the queue's revision, which it must
// not be ahead of.
func (t *term) begin(ctx context.Context, i int, target *cluster.Target) (*commands.Carrier, *reader, error) {
	value, at, err := target.Mark(ctx)
	if err != nil {
		return nil, nil, err
	}
	rec, err := readRecord(ctx, t.home, t.keys)
	if err != nil {
		return nil, nil, err
	}
	c, err := commands.NewCarrier(commands.CarrierConfig{
		Cluster: i, Limits: t.limits, Owner: t.owner, Now: func() int64 { return time.Now().UnixMilli() },
		Queue: rec.cluster, Revision: rec.revision, Done: rec.done.Entry, Mark: value, At: at,
	})
	if err != nil {
		return nil, nil, err
	}
	t.mu.Lock()
	t.carriers[i] = c
	t.mu.Unlock()
	return c, &reader{c: t.home, keys: t.keys, clusters: len(t.set), read: rec.done.Entry}, nil
}

// write executes all transactions that the carrier asks for. While the cluster doesn't answer,
// nothing is read ahead.
func (t *term) write(ctx context.Context, i int, target mirror.Target, c *commands.Carrier, r *reader) error {
	again := t.retry(t.set[i])
	for {
		t.mu.Lock()
		txn, ok := c.Next()
		t.mu.Unlock()
		if !ok {
			return nil
		}
		done, err := mirror.Commit(ctx, target, txn, func(ctx context.Context, err error) bool {
			r.pages()
			return again(ctx, err)
		})
		if err != nil {
			return err
		}
		t.mu.Lock()
		changes := c.Wrote(done.Revision)
		mark := c.Mark()
		t.mu.Unlock()
		t.passed()
		if t.Observer.Carried != nil {
			t.Observer.Carried(t.set[i], changes, mark)
		}
	}
}

// passed wakes the finisher.
func (t *term) passed() {
	select {
	case t.progress <- struct{}{}:
	default:
	}
}

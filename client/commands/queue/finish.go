package queue

import (
	"context"
	"slices"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/stoa-kv/stoa/client/commands"
)

// finish removes what all clusters have had, and says so, until it fails.
func (t *term) finish(ctx context.Context) error {
	rec, err := readRecord(ctx, t.home, t.keys)
	if err != nil {
		return err
	}
	f := commands.NewFinisher(rec.done, rec.at, t.limits.Ops)
	for {
		for {
			next, ok := t.finishable(f)
			if !ok {
				break
			}
			if err := t.finishOne(ctx, f, next); err != nil {
				return err
			}
		}
		select {
		case <-t.progress:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

func (t *term) finishable(f *commands.Finisher) (commands.Finish, bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if slices.Contains(t.carriers, nil) {
		return commands.Finish{}, false
	}
	return f.Next(t.carriers)
}

func (t *term) finishOne(ctx context.Context, f *commands.Finisher, next commands.Finish) error {
	var ops []clientv3.Op
	for client, number := range next.Remove {
		ops = append(ops, clientv3.OpDelete(t.keys.entry(client, 0), clientv3.WithRange(t.keys.entry(client, number+1))))
	}
	if next.Done != nil {
		ops = append(ops, clientv3.OpPut(t.keys.Done(), string(next.Done)))
	}
	retry := t.retry(t.set[0])
	for {
		asking, cancel := context.WithTimeout(ctx, requestTimeout)
		r, err := t.home.Txn(asking).If(clientv3.Compare(clientv3.ModRevision(t.keys.Done()), "=", next.If)).
			Then(ops...).Else(clientv3.OpGet(t.keys.Done())).Commit()
		cancel()
		switch {
		case err != nil && retry(ctx, err):
			continue
		case err != nil:
			return err
		case !r.Succeeded:
			return t.found(f, r)
		}
		t.mu.Lock()
		f.Wrote(r.Header.Revision, t.carriers)
		t.mu.Unlock()
		if next.Done != nil && t.Observer.Finished != nil {
			t.Observer.Finished(f.Done())
		}
		return nil
	}
}

// found adopts the record that was there instead: the one whose answer was lost, or another
// executor's.
func (t *term) found(f *commands.Finisher, r *clientv3.TxnResponse) error {
	var value []byte
	var at int64
	if kvs := r.Responses[0].GetResponseRange().GetKvs(); len(kvs) > 0 {
		value, at = kvs[0].Value, kvs[0].ModRevision
	}
	done, err := commands.ParseDone(value)
	if err == nil {
		f.Found(done, at)
	}
	return err
}

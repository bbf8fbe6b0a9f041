package cluster

import (
	"bytes"
	"context"
	"errors"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/stoa-kv/stoa/client/mirror"
)

var _ mirror.Target = (*Target)(nil)

// Target is a cluster that is written.
type Target struct {
	*pager
	c    *clientv3.Client
	mark string
}

// NewTarget returns the keys of a span as a target, whose mark is under the given key.
func NewTarget(c *clientv3.Client, span Span, mark string) *Target {
	return &Target{pager: newPager(c, span), c: c, mark: mark}
}

// Page implements mirror.Target.
func (t *Target) Page(ctx context.Context, from []byte, revision int64) ([]mirror.KV, []byte, error) {
	kvs, next, err := t.page(ctx, from, revision)
	for i, kv := range kvs {
		if string(kv.Key) == t.mark {
			kvs = append(kvs[:i:i], kvs[i+1:]...)
			break
		}
	}
	return kvs, next, err
}

// Mark implements mirror.Target.
func (t *Target) Mark(ctx context.Context) (value []byte, modRevision int64, err error) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	r, err := t.c.Get(ctx, t.mark)
	if err != nil || len(r.Kvs) == 0 {
		return nil, 0, err
	}
	return r.Kvs[0].Value, r.Kvs[0].ModRevision, nil
}

// Commit implements mirror.Target.
func (t *Target) Commit(ctx context.Context, txn mirror.Txn) (mirror.Result, error) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	ops := make([]clientv3.Op, 0, len(txn.Ops)+1)
	for _, op := range txn.Ops {
		ops = append(ops, operation(op))
	}
	switch {
	case txn.Finish:
		ops = append(ops, clientv3.OpDelete(t.mark))
	case txn.Mark != nil:
		ops = append(ops, clientv3.OpPut(t.mark, string(txn.Mark), clientv3.WithPrevKV()))
	default:
		ops = append(ops, clientv3.OpTxn(nil, nil, nil)) // which succeeds where it is executed
	}
	conditions := []clientv3.Cmp{clientv3.Compare(clientv3.ModRevision(t.mark), "=", txn.If)}
	if txn.If != 0 {
		conditions = append(conditions, clientv3.Compare(clientv3.Value(t.mark), "=", string(txn.Was)))
	}
	r, err := t.c.Txn(ctx).If(conditions...).Then(ops...).Else(clientv3.OpGet(t.mark)).Commit()
	if err != nil {
		return mirror.Result{}, err
	}
	if r.Succeeded {
		return mirror.Result{Revision: r.Header.Revision}, t.verify(ctx, txn, r)
	}
	result := mirror.Result{Revision: r.Header.Revision, Refused: true}
	if kvs := r.Responses[0].GetResponseRange().GetKvs(); len(kvs) > 0 {
		result.Mark, result.ModRevision = kvs[0].Value, kvs[0].ModRevision
	}
	return result, nil
}

// errExtended: the cluster has given a transaction to an extension with a handler of txn for one of its keys.
var errExtended = errors.New("the transaction was not executed: an extension of the cluster handles those of the keys")

// verify fails if a transaction was answered and not executed. Its last operation tells: what an extension has answered, it shows
// neither the mark that was there, nor that something was deleted, nor that a transaction inside has succeeded.
func (t *Target) verify(ctx context.Context, txn mirror.Txn, r *clientv3.TxnResponse) error {
	last := r.Responses[len(r.Responses)-1]
	executed := false
	switch {
	case txn.Finish:
		executed = last.GetResponseDeleteRange().GetDeleted() > 0
	case txn.Mark == nil:
		executed = last.GetResponseTxn().GetSucceeded()
	case txn.If != 0:
		executed = last.GetResponsePut().GetPrevKv() != nil
	default: // there was no mark
		value, _, err := t.Mark(ctx)
		if err != nil {
			return err
		}
		executed = bytes.Equal(value, txn.Mark)
	}
	if !executed {
		return errExtended
	}
	return nil
}

func operation(op mirror.Op) clientv3.Op {
	switch {
	case op.Delete:
		return clientv3.OpDelete(string(op.Key))
	case op.Lease != 0:
		return clientv3.OpPut(string(op.Key), "", clientv3.WithIgnoreValue(), clientv3.WithLease(clientv3.LeaseID(op.Lease)))
	}
	return clientv3.OpPut(string(op.Key), string(op.Value))
}

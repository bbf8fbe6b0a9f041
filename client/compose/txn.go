package compose

import (
	"context"

	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
)

// txn is etcd's way of building a transaction, over a composition. The error is
// kept beside it: etcd's client would remove a cluster's name from it.
type txn struct {
	inner clientv3.Txn
	over  *txnOver
}

// txnOver is the part of etcd's KV service that a transaction needs.
type txnOver struct {
	messages
	err error
}

func newTxn(ctx context.Context, c *Client) clientv3.Txn {
	over := &txnOver{messages: messages{c}}
	return &txn{inner: clientv3.NewKVFromKVClient(over, nil).Txn(ctx), over: over}
}

func (o *txnOver) Txn(ctx context.Context, in *pb.TxnRequest, _ ...grpc.CallOption) (*pb.TxnResponse, error) {
	a, err := o.messages.Txn(ctx, in)
	o.err = err
	return a, err
}

func (t *txn) If(cs ...clientv3.Cmp) clientv3.Txn {
	t.inner = t.inner.If(cs...)
	return t
}

func (t *txn) Then(ops ...clientv3.Op) clientv3.Txn {
	t.inner = t.inner.Then(ops...)
	return t
}

func (t *txn) Else(ops ...clientv3.Op) clientv3.Txn {
	t.inner = t.inner.Else(ops...)
	return t
}

func (t *txn) Commit() (*clientv3.TxnResponse, error) {
	a, err := t.inner.Commit()
	if t.over.err != nil {
		return nil, t.over.err
	}
	return a, err
}

package queue

import (
	"context"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/stoa-kv/stoa/client/commands"
)

// record is what is done, as it was read from the queue's cluster.
type record struct {
	done     commands.Done
	at       int64  // revision of the record, 0: there is none
	cluster  uint64 // ID
	revision int64  // of the cluster
}

func readRecord(ctx context.Context, c *clientv3.Client, keys Keys) (r record, err error) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	got, err := c.Get(ctx, keys.Done())
	if err != nil {
		return r, err
	}
	r.cluster, r.revision = got.Header.ClusterId, got.Header.Revision
	if len(got.Kvs) > 0 {
		r.at = got.Kvs[0].ModRevision
		r.done, err = commands.ParseDone(got.Kvs[0].Value)
	}
	return r, err
}

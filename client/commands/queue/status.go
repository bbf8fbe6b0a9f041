package queue

import (
	"context"
	"fmt"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/stoa-kv/stoa/client/commands"
)

// Status is how far a queue is.
type Status struct {
	// Clusters are the set, in its order: the queue is in the first.
	Clusters []string
	// Entries is the number of batches that not all clusters have had, Clients that of the
	// clients that may send.
	Entries, Clients int64
	// Done is up to where all clusters have had the commands.
	Done commands.Done
	// Marks are up to where each cluster has: zero if it never had any.
	Marks []commands.Mark
}

// Read reads how far a queue is. ask makes requests to a cluster, twice perhaps, and bounds their time; an error names the cluster. What the answers say
// is looked at behind that: that they can't be read is no reason to ask another member.
func Read(ctx context.Context, clusters []string, ask func(ctx context.Context, cluster string, with func(context.Context, *clientv3.Client) error) error) (Status, error) {
	keys, set := Of(clusters)
	s := Status{Clusters: set, Marks: make([]commands.Mark, len(set))}
	for i, name := range set {
		var queue *clientv3.TxnResponse
		var mark *clientv3.GetResponse
		err := ask(ctx, name, func(ctx context.Context, c *clientv3.Client) (err error) {
			if i == 0 {
				queue, err = askQueue(ctx, c, keys)
			}
			if err == nil {
				mark, err = c.Get(ctx, keys.Mark())
			}
			return err
		})
		if err == nil && i == 0 {
			err = s.takeQueue(queue)
		}
		if err == nil && len(mark.Kvs) > 0 {
			s.Marks[i], err = commands.ParseMark(mark.Kvs[0].Value)
		}
		if err != nil {
			return s, fmt.Errorf("cluster %q: %w", name, err)
		}
	}
	return s, nil
}

// askQueue asks for what takeQueue takes.
func askQueue(ctx context.Context, c *clientv3.Client, keys Keys) (*clientv3.TxnResponse, error) {
	count := func(prefix string) clientv3.Op {
		return clientv3.OpGet(prefix, clientv3.WithPrefix(), clientv3.WithCountOnly())
	}
	return c.Txn(ctx).Then(count(keys.entries()), count(keys.client("")), clientv3.OpGet(keys.Done())).Commit()
}

func (s *Status) takeQueue(r *clientv3.TxnResponse) (err error) {
	s.Entries, s.Clients = r.Responses[0].GetResponseRange().Count, r.Responses[1].GetResponseRange().Count
	if kvs := r.Responses[2].GetResponseRange().Kvs; len(kvs) > 0 {
		s.Done, err = commands.ParseDone(kvs[0].Value)
	}
	return err
}

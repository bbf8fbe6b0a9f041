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

// Read reads how far a queue is. ask makes requests to a cluster, and bounds their time; an error names the cluster.
func Read(ctx context.Context, clusters []string, ask func(ctx context.Context, cluster string, with func(context.Context, *clientv3.Client) error) error) (Status, error) {
	keys, set := Of(clusters)
	s := Status{Clusters: set, Marks: make([]commands.Mark, len(set))}
	for i, name := range set {
		err := ask(ctx, name, func(ctx context.Context, c *clientv3.Client) (err error) {
			if i == 0 {
				err = s.readQueue(ctx, c, keys)
			}
			if err == nil {
				s.Marks[i], err = readMark(ctx, c, keys)
			}
			return err
		})
		if err != nil {
			return s, fmt.Errorf("cluster %q: %w", name, err)
		}
	}
	return s, nil
}

func (s *Status) readQueue(ctx context.Context, c *clientv3.Client, keys Keys) error {
	count := func(prefix string) clientv3.Op {
		return clientv3.OpGet(prefix, clientv3.WithPrefix(), clientv3.WithCountOnly())
	}
	r, err := c.Txn(ctx).Then(count(keys.entries()), count(keys.client("")), clientv3.OpGet(keys.Done())).Commit()
	if err != nil {
		return err
	}
	s.Entries, s.Clients = r.Responses[0].GetResponseRange().Count, r.Responses[1].GetResponseRange().Count
	if kvs := r.Responses[2].GetResponseRange().Kvs; len(kvs) > 0 {
		s.Done, err = commands.ParseDone(kvs[0].Value)
	}
	return err
}

func readMark(ctx context.Context, c *clientv3.Client, keys Keys) (m commands.Mark, err error) {
	r, err := c.Get(ctx, keys.Mark())
	if err == nil && len(r.Kvs) > 0 {
		m, err = commands.ParseMark(r.Kvs[0].Value)
	}
	return m, err
}

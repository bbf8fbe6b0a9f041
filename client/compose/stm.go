package compose

import (
	"context"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/concurrency"
)

// STM executes a function that reads and writes keys, as one transaction over the clusters that
// have them, again until nothing that it has read has changed meanwhile. The keys' routes must
// have Transactions if they are in several clusters. A function whose transaction will not
// take effect may see values of different moments.
func (c *Client) STM(ctx context.Context, apply func(concurrency.STM) error) (*clientv3.TxnResponse, error) {
	if err := c.check(); err != nil {
		return nil, err
	}
	return concurrency.NewSTM(c.Etcd(), apply, concurrency.WithAbortContext(ctx), concurrency.WithIsolation(concurrency.RepeatableReads))
}

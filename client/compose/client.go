package compose

import (
	"context"
	"errors"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/stoa-kv/stoa/client"
)

// Client is one logical client of a composition: all its requests, to whichever
// clusters, have one order. It implements clientv3.KV, clientv3.Watcher and
// clientv3.Lease. All methods may be called by any number of goroutines at once;
// goroutines that need no common order should have a client each (Fork).
type Client struct {
	cfg Config
}

var (
	_ clientv3.KV      = (*Client)(nil)
	_ clientv3.Watcher = (*Client)(nil)
	_ clientv3.Lease   = (*Client)(nil)
)

var errSkeleton = errors.New("compose: not built yet")

// New makes a client. It connects to a cluster when it is first used.
func New(cfg Config) (*Client, error) { return &Client{cfg: cfg.withDefaults()}, nil }

// Fork makes another logical client, with an order of its own, over the same
// connections. Closing it leaves this one open.
func (c *Client) Fork() *Client { return &Client{cfg: c.cfg} }

// Close ends the client, and if New made it, the connections of all its forks.
func (c *Client) Close() error { return nil }

// Stats counts what the client has done.
func (c *Client) Stats() Stats { return Stats{} }

// Route tells which cluster has a key, and what the key is called there.
func (c *Client) Route(key string) (cluster, keyThere string, err error) {
	return "", "", errSkeleton
}

// Sync makes all later reads of a cluster reflect what was acknowledged to anybody
// before.
func (c *Client) Sync(ctx context.Context, cluster string) error { return errSkeleton }

// Put puts a key.
func (c *Client) Put(ctx context.Context, key, val string, opts ...clientv3.OpOption) (*clientv3.PutResponse, error) {
	return nil, errSkeleton
}

// Get reads a key, or the range that the options say.
func (c *Client) Get(ctx context.Context, key string, opts ...clientv3.OpOption) (*clientv3.GetResponse, error) {
	return nil, errSkeleton
}

// GetStream is Get, in one piece.
func (c *Client) GetStream(ctx context.Context, key string, opts ...clientv3.OpOption) (clientv3.GetStreamChan, error) {
	return nil, errSkeleton
}

// Delete deletes a key, or the range that the options say, which must lie in one
// cluster.
func (c *Client) Delete(ctx context.Context, key string, opts ...clientv3.OpOption) (*clientv3.DeleteResponse, error) {
	return nil, errSkeleton
}

// Compact is refused: a revision is one cluster's. CompactCluster does it.
func (c *Client) Compact(ctx context.Context, rev int64, opts ...clientv3.CompactOption) (*clientv3.CompactResponse, error) {
	return nil, errSkeleton
}

// Do does any operation.
func (c *Client) Do(ctx context.Context, op clientv3.Op) (clientv3.OpResponse, error) {
	return clientv3.OpResponse{}, errSkeleton
}

// Txn builds a transaction, whose keys must all live in one cluster.
func (c *Client) Txn(ctx context.Context) clientv3.Txn { return nil }

// PutAsync puts without waiting for the answer.
func (c *Client) PutAsync(key, val string, opts ...clientv3.OpOption) *client.Future[*clientv3.PutResponse] {
	return failed[*clientv3.PutResponse](errSkeleton)
}

// GetAsync reads without waiting for the answer.
func (c *Client) GetAsync(key string, opts ...clientv3.OpOption) *client.Future[*clientv3.GetResponse] {
	return failed[*clientv3.GetResponse](errSkeleton)
}

// DeleteAsync deletes without waiting for the answer.
func (c *Client) DeleteAsync(key string, opts ...clientv3.OpOption) *client.Future[*clientv3.DeleteResponse] {
	return failed[*clientv3.DeleteResponse](errSkeleton)
}

// TxnAsync sends a transaction without waiting for the answer.
func (c *Client) TxnAsync(cmps []clientv3.Cmp, then, otherwise []clientv3.Op) *client.Future[*clientv3.TxnResponse] {
	return failed[*clientv3.TxnResponse](errSkeleton)
}

// DoAsync sends any operation without waiting for the answer.
func (c *Client) DoAsync(op clientv3.Op) *client.Future[clientv3.OpResponse] {
	return failed[clientv3.OpResponse](errSkeleton)
}

func failed[T any](err error) *client.Future[T] {
	p := new(client.Promise[T])
	var none T
	p.Resolve(none, err)
	return &p.Future
}

// Watch watches a key, or a range that lies in one cluster, as etcd's Watcher does.
func (c *Client) Watch(ctx context.Context, key string, opts ...clientv3.OpOption) clientv3.WatchChan {
	return nil
}

// RequestProgress asks for progress on all watches that were opened with Watch.
func (c *Client) RequestProgress(ctx context.Context) error { return errSkeleton }

// Grant grants a lease of one number in all clusters.
func (c *Client) Grant(ctx context.Context, ttl int64) (*clientv3.LeaseGrantResponse, error) {
	return nil, errSkeleton
}

// Revoke revokes a lease in all clusters.
func (c *Client) Revoke(ctx context.Context, id clientv3.LeaseID) (*clientv3.LeaseRevokeResponse, error) {
	return nil, errSkeleton
}

// TimeToLive is the shortest that the clusters say, with the keys of all.
func (c *Client) TimeToLive(ctx context.Context, id clientv3.LeaseID, opts ...clientv3.LeaseOption) (*clientv3.LeaseTimeToLiveResponse, error) {
	return nil, errSkeleton
}

// Leases are those that all clusters have.
func (c *Client) Leases(ctx context.Context) (*clientv3.LeaseLeasesResponse, error) {
	return nil, errSkeleton
}

// KeepAlive keeps a lease alive in all clusters until ctx ends or one has lost it.
func (c *Client) KeepAlive(ctx context.Context, id clientv3.LeaseID) (<-chan *clientv3.LeaseKeepAliveResponse, error) {
	return nil, errSkeleton
}

// KeepAliveOnce keeps a lease alive in all clusters once.
func (c *Client) KeepAliveOnce(ctx context.Context, id clientv3.LeaseID) (*clientv3.LeaseKeepAliveResponse, error) {
	return nil, errSkeleton
}

// Etcd is an etcd client made of this one, for code that takes a *clientv3.Client.
// Closing it leaves this one open.
func (c *Client) Etcd() *clientv3.Client { return nil }

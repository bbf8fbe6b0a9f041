package compose

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/stoa-kv/stoa/client/internal/engine"
)

// Client is one logical client of a composition: all its requests, over all
// clusters, have one order. It implements clientv3.KV, clientv3.Watcher and
// clientv3.Lease. New makes one; a zero Client fails every call. All methods
// may be called by any number of goroutines at once; goroutines that need no
// common order should have a client each (Fork).
type Client struct {
	core    *core
	shared  *shared
	root    bool     // New made it
	session *Session // the session's client, nil without one
	synced  bool     // all reads are
}

var (
	_ clientv3.KV      = (*Client)(nil)
	_ clientv3.Watcher = (*Client)(nil)
	_ clientv3.Lease   = (*Client)(nil)
)

// shared is the state common to a client and its forks.
type shared struct {
	cfg      Config
	routes   *routing
	clusters []*cluster
	watch    *watchdog
	locker   *locker
	mu       sync.Mutex
	forks    map[*core]struct{}
	leased   map[clientv3.LeaseID][]*cluster // where sessions have leases
	closed   bool                            // forks are, too
}

// New makes a client. It connects to a cluster when that is first used.
func New(cfg Config) (*Client, error) {
	if err := cfg.check(); err != nil {
		return nil, err
	}
	cfg = cfg.withDefaults()
	names := slices.Sorted(maps.Keys(cfg.Clusters))
	routes, err := newRouting(names, cfg.Routes, cfg.Local)
	if err != nil {
		return nil, err
	}
	s := &shared{cfg: cfg, routes: routes, watch: newWatchdog(cfg.Timeout, 32), forks: map[*core]struct{}{}, leased: map[clientv3.LeaseID][]*cluster{}}
	for i, name := range names {
		s.clusters = append(s.clusters, newCluster(name, i, cfg))
	}
	s.locker = newLocker(cfg, s.clusters)
	c := s.client()
	c.root = true
	return c, nil
}

func (s *shared) client() *Client {
	c := &Client{core: newCore(s.cfg, s.routes, s.clusters, s.watch), shared: s}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		c.core.close()
	} else {
		s.forks[c.core] = struct{}{}
	}
	return c
}

// Fork makes another logical client, with an order of its own, over the same
// connections. Closing it leaves this one open.
func (c *Client) Fork() *Client {
	if c.check() != nil {
		return &Client{}
	}
	return c.shared.client()
}

// Close ends the client, and if New made it, all its forks and connections.
// Waiting requests fail with ErrClosed.
func (c *Client) Close() error {
	if c.check() != nil {
		return nil
	}
	s := c.shared
	s.mu.Lock()
	cores := []*core{c.core}
	if c.root {
		cores, s.closed = slices.Collect(maps.Keys(s.forks)), true
	}
	for _, one := range cores {
		delete(s.forks, one)
	}
	s.mu.Unlock()
	var all sync.WaitGroup
	for _, one := range cores {
		all.Go(one.close)
	}
	all.Wait()
	if c.root {
		s.locker.close()
		for _, of := range s.clusters {
			of.close()
		}
	}
	return nil
}

// Stats returns the client's counters.
func (c *Client) Stats() Stats {
	if c.check() != nil {
		return Stats{}
	}
	return c.core.stats()
}

// Route returns the cluster of a key, and the key's name there.
func (c *Client) Route(key string) (cluster, keyThere string, err error) {
	if err := c.check(); err != nil {
		return "", "", err
	}
	r, err := c.core.routes.of(key)
	if err != nil {
		return "", "", err
	}
	return c.core.routes.names[r.cluster], r.keyThere(key), nil
}

// Sync makes all later reads of a cluster show what was acknowledged to any
// client before. It is ordered like any other request, as a read.
func (c *Client) Sync(ctx context.Context, cluster string) error {
	if err := c.check(); err != nil {
		return err
	}
	at := slices.Index(c.core.routes.names, cluster)
	if at < 0 {
		return errors.New("compose: there is no cluster " + cluster)
	}
	return c.readNothing(ctx, at, syncedRead)
}

// Synced is this client, in the same order, with reads that are all synced:
// each shows what was acknowledged to any client before it was sent, for any
// cluster. No read is local then.
func (c *Client) Synced() *Client {
	if c.check() != nil {
		return &Client{}
	}
	of := *c
	of.root, of.synced = false, true
	return &of
}

// Etcd is an etcd client made of this one, for code that takes a *clientv3.Client,
// as etcd's package concurrency. Closing it leaves this one open.
func (c *Client) Etcd() *clientv3.Client {
	lg := zap.NewNop()
	if c.check() == nil {
		lg = c.core.cfg.Logger
	}
	e := clientv3.NewCtxClient(context.Background(), clientv3.WithZapLogger(lg))
	e.KV, e.Watcher, e.Lease = c, stayOpen{c}, stayOpen{c}
	return e
}

type stayOpen struct{ *Client }

func (stayOpen) Close() error { return nil }

func failed[T any](err error) *engine.Future[T] {
	p := new(engine.Promise[T])
	var none T
	p.Resolve(none, err)
	return &p.Future
}

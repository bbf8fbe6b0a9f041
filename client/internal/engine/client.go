package engine

import (
	"context"
	"fmt"
	"sync"

	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"

	stoapb "github.com/stoa-kv/stoa/api/stoa/v1"
)

// Client talks to a stoa cluster. All of etcd's client is in it, one gRPC call per
// request; sessions are opened from it.
type Client struct {
	*clientv3.Client
	cfg        Config
	partitions stoapb.PartitionsClient
	conns      *connections
	roster     *roster
	placement  atlas

	mu       sync.Mutex
	sessions map[*Session]struct{}
	closed   bool
}

// New makes a client. It returns before a connection is established, unless
// there is a password to be exchanged.
func New(cfg Config) (*Client, error) {
	if err := cfg.check(); err != nil {
		return nil, err
	}
	cfg = cfg.withDefaults()
	c, err := clientv3.New(cfg.etcd())
	if err != nil {
		return nil, fmt.Errorf("client: connecting to %v: %w", cfg.Endpoints, err)
	}
	return wrap(c, cfg), nil
}

// Of makes a Client of an etcd client, which stays usable by itself; sessions go
// to its endpoints with its credentials. Closing one closes the other.
func Of(c *clientv3.Client) *Client {
	return wrap(c, Config{Endpoints: c.Endpoints(), Logger: c.GetLogger()}.withDefaults())
}

func wrap(etcd *clientv3.Client, cfg Config) *Client {
	c := &Client{
		Client:     etcd,
		cfg:        cfg,
		partitions: stoapb.NewPartitionsClient(etcd.ActiveConnection()),
		sessions:   map[*Session]struct{}{},
	}
	c.conns = newConnections(etcd.Dial)
	c.roster = newRoster(etcd.Endpoints, c.askMember)
	return c
}

// Close gives up all sessions, whose leases run out unless they were closed, and
// all connections.
func (c *Client) Close() error {
	c.mu.Lock()
	c.closed = true
	var left []*Session
	for s := range c.sessions {
		left = append(left, s)
	}
	c.mu.Unlock()
	c.roster.stop()
	for _, s := range left {
		s.end(ErrSessionClosed)
		<-s.stopped
	}
	c.conns.close()
	return c.Client.Close()
}

// Partitions is the state of the partition groups on the server that answers;
// others may have applied more or less. A server of etcd's answers with the
// gRPC code Unimplemented.
func (c *Client) Partitions(ctx context.Context) (*stoapb.ListPartitionsResponse, error) {
	return c.partitions.List(ctx, &stoapb.ListPartitionsRequest{})
}

// askMember asks one endpoint for its member ID and the leader's.
func (c *Client) askMember(ctx context.Context, endpoint string) (*stoapb.ListPartitionsResponse, error) {
	conn, err := c.conns.acquire(endpoint)
	if err != nil {
		return nil, err
	}
	defer conn.release()
	return stoapb.NewPartitionsClient(conn).List(ctx, &stoapb.ListPartitionsRequest{}, grpc.WaitForReady(true))
}

// enlist keeps account of a session, so that Close finds it and the roster is
// watched while there are any.
func (c *Client) enlist(s *Session) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return ErrSessionClosed
	}
	c.sessions[s] = struct{}{}
	c.roster.follow(c.leaderMoved)
	return nil
}

func (c *Client) delist(s *Session) {
	c.mu.Lock()
	delete(c.sessions, s)
	c.mu.Unlock()
}

// leaderMoved sends the sessions after the leader.
func (c *Client) leaderMoved(leader uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for s := range c.sessions {
		s.moveTo(leader)
	}
}

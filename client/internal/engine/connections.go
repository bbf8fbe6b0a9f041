package engine

import (
	"fmt"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/connectivity"
)

// linger is the time for which an idle connection is kept: a session that has
// lost its stream may reconnect at once.
const linger = 10 * time.Second

// connections holds one gRPC connection per endpoint, shared by all streams to
// it, while it is used, and for linger after. A connection is per endpoint, and
// not balanced over all as that of the etcd client, because a session chooses
// its member.
type connections struct {
	dial func(endpoint string) (*grpc.ClientConn, error)
	mu   sync.Mutex
	open map[string]*connection
	over bool // the client is closed
}

type connection struct {
	*grpc.ClientConn
	pool     *connections
	endpoint string
	users    int
	idle     *time.Timer // closes it; nil if it was never idle
}

func newConnections(dial func(string) (*grpc.ClientConn, error)) *connections {
	return &connections{dial: dial, open: map[string]*connection{}}
}

func (p *connections) acquire(endpoint string) (*connection, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.over {
		return nil, ErrSessionClosed
	}
	c := p.open[endpoint]
	if c != nil && c.users == 0 && c.GetState() == connectivity.TransientFailure {
		// A new one doesn't wait for the end of a back-off. (ResetConnectBackoff races with
		// grpc-go's own goroutines.)
		c.idle.Stop()
		_ = c.Close()
		c = nil
	}
	if c == nil {
		conn, err := p.dial(endpoint)
		if err != nil {
			return nil, fmt.Errorf("client: connecting to %s: %w", endpoint, err)
		}
		c = &connection{ClientConn: conn, pool: p, endpoint: endpoint}
		p.open[endpoint] = c
	}
	if c.idle != nil {
		c.idle.Stop()
	}
	c.users++
	return c, nil
}

// borrow is acquire for a connection that is in use.
func (c *connection) borrow() {
	c.pool.mu.Lock()
	defer c.pool.mu.Unlock()
	c.users++
}

func (c *connection) release() {
	p := c.pool
	p.mu.Lock()
	defer p.mu.Unlock()
	c.users--
	switch {
	case c.users > 0:
	case p.over:
		p.drop(c)
	default:
		c.idle = time.AfterFunc(linger, c.closeIdle)
	}
}

func (c *connection) closeIdle() {
	p := c.pool
	p.mu.Lock()
	defer p.mu.Unlock()
	if c.users == 0 && p.open[c.endpoint] == c {
		p.drop(c)
	}
}

// drop closes a connection that nobody uses. It needs the lock.
func (p *connections) drop(c *connection) {
	delete(p.open, c.endpoint)
	_ = c.Close()
}

// close closes idle connections, for good. Those in use are closed by their last user.
func (p *connections) close() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.over = true
	for _, c := range p.open {
		if c.users == 0 {
			c.idle.Stop()
			p.drop(c)
		}
	}
}

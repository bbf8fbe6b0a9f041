package front

import (
	"context"
	"net"
	"sync/atomic"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/peer"

	"github.com/stoa-kv/stoa/internal/serve"
)

// Limits bound the calls of one local connection that are in progress: those that end by themselves, and not
// streams without an end. 0: no bound.
type Limits struct {
	Requests int64
	Bytes    int64 // of their requests
}

// Credentials are serve.Credentials whose connections are a Connection.
func (l Limits) Credentials() credentials.TransportCredentials {
	return limited{serve.Credentials(), l}
}

type limited struct {
	credentials.TransportCredentials
	limits Limits
}

// ServerHandshake implements credentials.TransportCredentials. It is called once for each connection.
func (l limited) ServerHandshake(c net.Conn) (net.Conn, credentials.AuthInfo, error) {
	c, info, err := l.TransportCredentials.ServerHandshake(c)
	return c, &Connection{AuthInfo: info, limits: l.limits}, err
}

func (l limited) Clone() credentials.TransportCredentials { return l }

// A Connection is a local client's: how much it has left of its Limits, and how new the answers are that it
// has got. A nil one has no bounds, and has got none.
type Connection struct {
	credentials.AuthInfo
	limits          Limits
	requests, bytes atomic.Int64
	seen            atomic.Int64
}

// Of is the connection of a call.
func Of(ctx context.Context) *Connection {
	p, _ := peer.FromContext(ctx)
	if p == nil {
		return nil
	}
	c, _ := p.AuthInfo.(*Connection)
	return c
}

// Admit takes a call with a request of so many bytes, to be released, or refuses it with etcd's error.
func Admit(ctx context.Context, bytes func() int) (*Connection, int64, error) {
	c := Of(ctx)
	if c == nil || c.limits == (Limits{}) {
		return nil, 0, nil
	}
	n := int64(bytes())
	requests, all := c.requests.Add(1), c.bytes.Add(n)
	// One request is always taken, however large: it would never be otherwise.
	if c.limits.Requests > 0 && requests > c.limits.Requests || c.limits.Bytes > 0 && all > c.limits.Bytes && all > n {
		c.Release(n)
		return nil, 0, rpctypes.ErrGRPCRequestTooManyRequests
	}
	return c, n, nil
}

// Release ends a call that was admitted.
func (c *Connection) Release(bytes int64) {
	if c != nil {
		c.requests.Add(-1)
		c.bytes.Add(-bytes)
	}
}

// Seen is the highest revision of the answers that the connection has got.
func (c *Connection) Seen() int64 {
	if c == nil {
		return 0
	}
	return c.seen.Load()
}

// See has the connection have got an answer of a revision. It is called before the client gets it.
func (c *Connection) See(rev int64) {
	if c == nil {
		return
	}
	for {
		seen := c.seen.Load()
		if rev <= seen || c.seen.CompareAndSwap(seen, rev) {
			return
		}
	}
}

// Forget has it have got nothing newer than a revision: the cluster has another history.
func (c *Connection) Forget(rev int64) {
	if c != nil {
		c.seen.Store(rev)
	}
}

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

// Credentials are serve.Credentials whose connections have an Allowance.
func (l Limits) Credentials() credentials.TransportCredentials {
	if l == (Limits{}) {
		return serve.Credentials()
	}
	return limited{serve.Credentials(), l}
}

type limited struct {
	credentials.TransportCredentials
	limits Limits
}

// ServerHandshake implements credentials.TransportCredentials. It is called once for each connection.
func (l limited) ServerHandshake(c net.Conn) (net.Conn, credentials.AuthInfo, error) {
	c, info, err := l.TransportCredentials.ServerHandshake(c)
	return c, &Allowance{AuthInfo: info, limits: l.limits}, err
}

func (l limited) Clone() credentials.TransportCredentials { return l }

// Allowance is what a connection has left of its Limits. A nil one has no bounds.
type Allowance struct {
	credentials.AuthInfo
	limits          Limits
	requests, bytes atomic.Int64
}

// Admit takes a call with a request of so many bytes, to be released, or refuses it with etcd's error.
func Admit(ctx context.Context, bytes func() int) (*Allowance, int64, error) {
	p, _ := peer.FromContext(ctx)
	if p == nil {
		return nil, 0, nil
	}
	a, _ := p.AuthInfo.(*Allowance)
	if a == nil {
		return nil, 0, nil
	}
	n := int64(bytes())
	requests, all := a.requests.Add(1), a.bytes.Add(n)
	// One request is always taken, however large: it would never be otherwise.
	if a.limits.Requests > 0 && requests > a.limits.Requests || a.limits.Bytes > 0 && all > a.limits.Bytes && all > n {
		a.Release(n)
		return nil, 0, rpctypes.ErrGRPCRequestTooManyRequests
	}
	return a, n, nil
}

// Release ends a call that was admitted.
func (a *Allowance) Release(bytes int64) {
	if a != nil {
		a.requests.Add(-1)
		a.bytes.Add(-bytes)
	}
}

package composed

import (
	"context"
	"sync"
	"sync/atomic"

	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/stats"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"

	"github.com/stoa-kv/stoa/client/compose"
)

// clients are the composition's clients, one for each connection. They are told of connections as a
// stats.Handler of the gRPC server.
type clients struct {
	root *compose.Client
	most int // 0: no bound
	open atomic.Int64
	wg   sync.WaitGroup
}

// connection is a local client's, with its client of the composition once that is needed.
type connection struct {
	of *clients

	mu     sync.Mutex
	client *compose.Client
	ended  bool
}

type connectionKey struct{}

// TagConn implements stats.Handler.
func (c *clients) TagConn(ctx context.Context, _ *stats.ConnTagInfo) context.Context {
	return context.WithValue(ctx, connectionKey{}, &connection{of: c})
}

// HandleConn implements stats.Handler.
func (c *clients) HandleConn(ctx context.Context, s stats.ConnStats) {
	if _, ended := s.(*stats.ConnEnd); ended {
		if one, ok := ctx.Value(connectionKey{}).(*connection); ok {
			one.close()
		}
	}
}

// TagRPC implements stats.Handler.
func (c *clients) TagRPC(ctx context.Context, _ *stats.RPCTagInfo) context.Context { return ctx }

// HandleRPC implements stats.Handler.
func (c *clients) HandleRPC(context.Context, stats.RPCStats) {}

// of is the client that a call belongs to. A call with a token is refused: its user isn't the one in
// the composition's file.
func (c *clients) of(ctx context.Context) (*compose.Client, error) {
	md, _ := metadata.FromIncomingContext(ctx)
	if len(md[rpctypes.TokenFieldNameGRPC]) > 0 || len(md[rpctypes.TokenFieldNameSwagger]) > 0 {
		return nil, errToken
	}
	one, ok := ctx.Value(connectionKey{}).(*connection)
	if !ok {
		return nil, errNoConnection
	}
	return one.fork()
}

func (one *connection) fork() (*compose.Client, error) {
	one.mu.Lock()
	defer one.mu.Unlock()
	if one.ended {
		return nil, asStatus(compose.ErrClosed)
	}
	if one.client == nil {
		if n := one.of.open.Add(1); one.of.most > 0 && n > int64(one.of.most) {
			one.of.open.Add(-1)
			return nil, errTooManyClients
		}
		one.client = one.of.root.Fork()
	}
	return one.client, nil
}

// close ends the client in the background: it waits for its sessions.
func (one *connection) close() {
	one.mu.Lock()
	defer one.mu.Unlock()
	if one.ended = true; one.client == nil {
		return
	}
	client := one.client
	one.of.open.Add(-1)
	one.of.wg.Go(func() { _ = client.Close() })
}

package rpc

import (
	"context"
	"sync"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc"

	"github.com/stoa-kv/stoa/internal/incoming"
)

// A client may require in a request's metadata that its server has a leader. A
// call is refused if there is none. A stream that is open is ended only after
// the leader was missing at three checks in a row, one election timeout apart:
// to connect again costs a client more than to wait.
const missedChecks = 3

type leaderGuard struct {
	info Info

	mu      sync.Mutex
	streams map[*guarded]struct{}

	stop chan struct{}
	done chan struct{}
}

func newLeaderGuard(info Info, every time.Duration) *leaderGuard {
	g := &leaderGuard{info: info, streams: map[*guarded]struct{}{}, stop: make(chan struct{}), done: make(chan struct{})}
	go g.run(every)
	return g
}

func (g *leaderGuard) close() {
	close(g.stop)
	<-g.done
}

func (g *leaderGuard) run(every time.Duration) {
	defer close(g.done)
	tick := time.NewTicker(every)
	defer tick.Stop()
	missed := 0
	for {
		select {
		case <-g.stop:
			return
		case <-tick.C:
		}
		if g.info.Leader() != 0 {
			missed = 0
			continue
		}
		if missed++; missed >= missedChecks {
			g.endAll()
		}
	}
}

func (g *leaderGuard) endAll() {
	g.mu.Lock()
	defer g.mu.Unlock()
	for s := range g.streams {
		s.cancel(rpctypes.ErrGRPCNoLeader)
	}
	clear(g.streams)
}

func demanded(ctx context.Context) bool {
	return incoming.First(ctx, rpctypes.MetadataRequireLeaderKey) == rpctypes.MetadataHasLeader
}

// check refuses a call that demands a leader when there is none.
func (g *leaderGuard) check(ctx context.Context) error {
	if g.info.Leader() == 0 && demanded(ctx) {
		return rpctypes.ErrGRPCNoLeader
	}
	return nil
}

// guarded is a stream that ends when the leader is gone for long.
type guarded struct {
	grpc.ServerStream
	ctx    context.Context
	cancel context.CancelCauseFunc
}

func (s *guarded) Context() context.Context { return s.ctx }

// watch puts a stream that demands a leader under guard; release must be called
// when its handler returns.
func (g *leaderGuard) watch(stream grpc.ServerStream) (_ grpc.ServerStream, release func()) {
	if !demanded(stream.Context()) {
		return stream, func() {}
	}
	s := &guarded{ServerStream: stream}
	s.ctx, s.cancel = context.WithCancelCause(stream.Context())
	g.mu.Lock()
	g.streams[s] = struct{}{}
	g.mu.Unlock()
	return s, func() {
		g.mu.Lock()
		delete(g.streams, s)
		g.mu.Unlock()
		s.cancel(nil)
	}
}

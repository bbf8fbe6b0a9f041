package compose

import (
	"context"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"google.golang.org/grpc"

	"github.com/stoa-kv/stoa/client/mirror"
	mirrored "github.com/stoa-kv/stoa/client/mirror/cluster"
	mirrorworker "github.com/stoa-kv/stoa/client/mirror/worker"
)

// A worker that reaches the target, and home no longer, leaves the mirror to another one.
func TestMirrorWhoseWorkerIsCutOffFromHome(t *testing.T) {
	m := newMirrorTest(t, startEach(t, "stoa", "stoa"), 0)
	lines := &cuttable{}
	home, err := clientv3.New(clientv3.Config{
		Endpoints: m.servers[0], DialOptions: []grpc.DialOption{grpc.WithContextDialer(lines.dial)}, Logger: zap.NewNop(),
	})
	require.NoError(t, err)
	t.Cleanup(func() { home.Close() })

	work := func(home *clientv3.Client) (elected chan struct{}) {
		elected = make(chan struct{}, 100)
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		cfg := mirrorworker.Config{Home: home, Target: m.target, Keys: mirrored.Mirrored{Prefix: m.prefix}, TTL: executorLease}
		cfg.Observer.Elected = func(mirror.Mark, bool) { elected <- struct{}{} }
		go func() { ended <- mirrorworker.Run(ctx, cfg) }()
		t.Cleanup(func() {
			cancel()
			require.NoError(t, <-ended)
		})
		return elected
	}
	<-work(home)
	other := work(m.home)
	n := m.count(0, 5)
	m.caughtUp()
	require.Empty(t, other)
	lines.cut()
	m.count(n, 5)
	select {
	case <-other:
	case <-time.After(time.Minute):
		require.Fail(t, "no other worker goes on")
	}
	m.caughtUp()
}

// cuttable are connections over which nothing comes any more once they are cut, and no others are made.
type cuttable struct {
	wires
	gone atomic.Bool
}

func (c *cuttable) dial(ctx context.Context, address string) (net.Conn, error) {
	if c.gone.Load() {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	return c.wires.dial(ctx, address)
}

func (c *cuttable) cut() {
	c.gone.Store(true)
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, w := range c.open {
		w.deaf.Store(true)
	}
}

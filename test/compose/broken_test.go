package compose

import (
	"context"
	"errors"
	"math/rand/v2"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"

	stoapb "github.com/stoa-kv/stoa/api/stoa/v1"
	"github.com/stoa-kv/stoa/test/compose/osc"
)

// Connections break all the time, after answers were lost: what is sent again, reads
// with updates behind them among it, stays in its place.
func TestBrokenConnections(t *testing.T) {
	for _, server := range []string{"stoa", "etcd"} {
		t.Run(server, func(t *testing.T) {
			all := start(t, server, 2, false)
			require.NoError(t, all.broken(t))
		})
	}
	t.Run("without a word about what was sent before it is found", func(t *testing.T) {
		all := start(t, "stoa", 2, false)
		var v *osc.Violation
		for range 5 {
			if err := all.broken(t, grpc.WithChainStreamInterceptor(forget)); errors.As(err, &v) {
				t.Log(v)
				return
			}
		}
		t.Error("not found: no answer was lost between a read and an update, or the checker is blind")
	})
}

// broken runs clients over connections that break, and checks their history.
func (all clusters) broken(t *testing.T, options ...grpc.DialOption) error {
	seed := *seedFlag
	if seed == 0 {
		seed = uint64(time.Now().UnixNano())
	}
	t.Logf("seed %d", seed)
	h := osc.NewHistory()
	wires := &wires{}
	crew := all.crew(t, oneOrder, h, seed, append(options, grpc.WithContextDialer(wires.dial))...)
	ctx, cancel := context.WithTimeout(t.Context(), *loadTime)
	defer cancel()
	var work sync.WaitGroup
	for _, w := range crew {
		work.Go(func() { w.run(ctx) })
	}
	rnd, cut := rand.New(rand.NewPCG(seed, 1000)), 0
	for sleep(ctx, time.Duration(10+rnd.IntN(60))*time.Millisecond) {
		cut += wires.cut(rnd)
	}
	work.Wait()
	for _, w := range crew {
		require.Empty(t, w.errs)
	}
	t.Logf("%d connections were broken", cut)
	require.Greater(t, cut, 10)
	return all.check(t, h)
}

// wires are the connections of clients, to be cut.
type wires struct {
	mu   sync.Mutex
	open []*wire
}

// wire is a connection that can lose incoming data.
type wire struct {
	net.Conn
	deaf   atomic.Bool
	closed chan struct{}
	once   sync.Once
}

func (ws *wires) dial(ctx context.Context, address string) (net.Conn, error) {
	conn, err := new(net.Dialer).DialContext(ctx, "tcp", address)
	if err != nil {
		return nil, err
	}
	w := &wire{Conn: conn, closed: make(chan struct{})}
	ws.mu.Lock()
	defer ws.mu.Unlock()
	ws.open = append(ws.open, w)
	return w, nil
}

// cut breaks one of the connections: answers are lost for a moment, while requests still
// arrive, and then it is over.
func (ws *wires) cut(rnd *rand.Rand) int {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	if len(ws.open) == 0 {
		return 0
	}
	i := rnd.IntN(len(ws.open))
	w := ws.open[i]
	ws.open = append(ws.open[:i], ws.open[i+1:]...)
	w.deaf.Store(true)
	time.AfterFunc(time.Duration(rnd.IntN(10))*time.Millisecond, func() { _ = w.Close() })
	return 1
}

func (w *wire) Read(b []byte) (int, error) {
	n, err := w.Conn.Read(b)
	if w.deaf.Load() {
		<-w.closed
		return 0, net.ErrClosed
	}
	return n, err
}

func (w *wire) Close() error {
	w.once.Do(func() { close(w.closed) })
	return w.Conn.Close()
}

// forget makes sessions omit the requests of earlier streams from the opening,
// so that reads can be overtaken.
func forget(ctx context.Context, desc *grpc.StreamDesc, cc *grpc.ClientConn, method string, open grpc.Streamer, opts ...grpc.CallOption) (grpc.ClientStream, error) {
	s, err := open(ctx, desc, cc, method, opts...)
	return forgetful{s}, err
}

type forgetful struct{ grpc.ClientStream }

func (f forgetful) SendMsg(m any) error {
	if b, ok := m.(*stoapb.ClientBatch); ok && b.Open != nil {
		b.Open.Sent = 0
	}
	return f.ClientStream.SendMsg(m)
}

package host

import (
	"context"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"
	"pgregory.net/rapid"

	"github.com/stoa-kv/stoa/internal/serve"
	"github.com/stoa-kv/stoa/internal/sidecar"
	"github.com/stoa-kv/stoa/internal/sidecar/relay"
)

// sidecarSettings are how a sidecar is started.
type sidecarSettings struct {
	Namespace string
	Cache     []string
	Waits     bool // while no member can be reached
	Unbatched bool
	Alone     bool // each watch, and each stream of keep-alives, is one at a member
	Recent    int  // revisions that are kept for watches; 0: as many as usual
	Own       bool // stoa's own transport
}

func drawSidecar(t *rapid.T) sidecarSettings {
	return sidecarSettings{
		Namespace: rapid.SampledFrom([]string{"", "", "", "/p/", "/q", "/"}).Draw(t, "namespace"),
		Cache:     rapid.SampledFrom([][]string{nil, nil, {"/p/"}, {"/"}}).Draw(t, "cache"),
		Waits:     rapid.Bool().Draw(t, "waits"),
		Unbatched: rapid.SampledFrom([]bool{false, false, false, true}).Draw(t, "unbatched"),
		Alone:     rapid.SampledFrom([]bool{false, false, false, true}).Draw(t, "alone"),
		Recent:    rapid.SampledFrom([]int{0, 0, 1, 4}).Draw(t, "recent"),
		Own:       rapid.SampledFrom([]bool{false, false, true}).Draw(t, "own"),
	}
}

// here is the name of a cluster's key in the namespace; false if it is outside.
func (s sidecarSettings) here(key string) (name string, ok bool) {
	return strings.CutPrefix(key, s.Namespace)
}

// span is a range of the namespace as the cluster has it.
func (s sidecarSettings) span(from, end string) (string, string) {
	last := "\xff\xff"
	if s.Namespace != "" {
		last = clientv3.GetPrefixRangeEnd(s.Namespace)
	}
	switch end {
	case "":
		return s.Namespace + from, ""
	case "\x00":
		return s.Namespace + from, last
	default:
		return s.Namespace + from, s.Namespace + end
	}
}

// simSidecar is a sidecar, over its restarts.
type simSidecar struct {
	sidecarSettings
	t      *testing.T
	name   string
	local  *wires                                // between clients and sidecars
	within func(what string, do func())          // does what must not hang
	dead   *sync.WaitGroup                       // of those that were killed
	start  func(*simLife) (sidecarServer, error) // one that serves nothing yet
	life   *simLife
	down   atomic.Bool
}

// sidecarServer is a sidecar, whatever is behind it.
type sidecarServer interface {
	Serve(clients, meters []*serve.Port) error
	Stop(context.Context)
}

// simLife is one process of a sidecar.
type simLife struct {
	server sidecarServer

	mu     sync.Mutex
	killed bool
	ways   []*cable // to the cluster
}

// over is how the process connects to the cluster, as long as it lives.
func (l *simLife) over(r *rig, w *wires) []grpc.DialOption {
	return append(r.over(w), grpc.WithContextDialer(func(ctx context.Context, to string) (net.Conn, error) {
		c, err := w.dial(ctx, to)
		if err != nil {
			return nil, err
		}
		way := c.(*cable)
		l.mu.Lock()
		defer l.mu.Unlock()
		if l.killed {
			way.cut()
			return nil, syscall.ECONNREFUSED
		}
		l.ways = append(l.ways, way)
		return c, nil
	}))
}

// newSidecar is a sidecar in front of the cluster.
func (w *sidecarWorld) newSidecar(i int, settings sidecarSettings) *simSidecar {
	s := &simSidecar{t: w.t, sidecarSettings: settings, name: sidecarAddress(i), local: w.local, within: w.within, dead: &w.dead}
	s.start = func(l *simLife) (sidecarServer, error) { return sidecar.New(w.config(s, l)) }
	return s
}

func (w *sidecarWorld) config(s *simSidecar, l *simLife) sidecar.Config {
	rig, wires := w.cluster.rig, w.cluster.wires
	up := sidecar.Upstream{DialTimeout: time.Second, KeepAliveTime: 10 * time.Second, KeepAliveTimeout: 6 * time.Second, DialOptions: l.over(rig, wires)}
	for _, server := range rig.servers {
		up.Endpoints = append(up.Endpoints, server.endpoint())
	}
	if w.plan.Users {
		up.Username, up.Password = s.user(), clientPassword
	}
	c := sidecar.Config{
		Upstream: up, Namespace: s.Namespace, CacheMemory: 1 << 20, WaitWhenAway: s.Waits, Unbatched: s.Unbatched, OwnTransport: s.Own,
		Uncoalesced: s.Alone, UncoalescedKeepAlives: s.Alone,
	}
	if !s.Alone {
		c.Cache = s.Cache
	}
	if s.Recent > 0 {
		c.Recent = relay.Options{Entries: s.Recent, Bytes: 1 << 10, Total: 1 << 12, Fragment: 100}
	}
	return c
}

func (s *simSidecar) begin() {
	var err error
	s.life = &simLife{}
	s.life.server, err = s.start(s.life)
	require.NoError(s.t, err)
	s.down.Store(false)
	require.NoError(s.t, s.life.server.Serve([]*serve.Port{serve.Over(s.local.listen(s.name, s.down.Load))}, nil))
}

// end stops the sidecar, whose calls may end within a time.
func (s *simSidecar) end(drain time.Duration) {
	s.down.Store(true)
	ctx, cancel := context.WithTimeout(context.Background(), drain)
	defer cancel()
	s.within("the end of a sidecar", func() { s.life.server.Stop(ctx) })
}

// kill ends the sidecar's process without a word: of what it has sent, some bytes or all arrive, and it sends nothing more. What is left of it here
// is without connections.
func (s *simSidecar) kill() {
	s.down.Store(true)
	l := s.life
	l.mu.Lock()
	l.killed = true
	s.local.cutAll(s.name)
	for _, way := range l.ways {
		way.cut()
	}
	l.mu.Unlock()
	s.dead.Go(func() {
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		l.server.Stop(ctx)
	})
}

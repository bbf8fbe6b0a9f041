package extensions

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/stoa-kv/stoa/client"
	"github.com/stoa-kv/stoa/test/process"
)

// pace is how often the plain client puts.
const pace = 5 * time.Millisecond

// world is a cluster under attack.
type world struct {
	*process.Cluster
	t       *testing.T
	ctx     context.Context
	setting setting
	cli     *clientv3.Client // the attacker's
	until   time.Time        // when an attack that has no end of its own is over
}

func newWorld(t *testing.T, nodes int, s setting) *world {
	c := process.StartT(t, process.Spec{Nodes: nodes, Partitions: 2})
	w := (&world{Cluster: c, setting: s}).on(t)
	if s.limits != "" {
		_, err := w.cli.Put(w.ctx, "/em/.limits", s.limits)
		require.NoError(t, err)
	}
	return w
}

// on is the world for another test.
func (w *world) on(t *testing.T) *world {
	next := &world{Cluster: w.Cluster, t: t, ctx: t.Context(), setting: w.setting}
	next.cli = next.clientAs("attacker")
	return next
}

func (w *world) clientAs(id string) *clientv3.Client {
	cli, err := clientv3.New(clientv3.Config{
		Endpoints: w.Endpoints(), DialTimeout: 10 * time.Second, Logger: zap.NewNop(), DialOptions: client.Identify(id),
	})
	require.NoError(w.t, err)
	w.t.Cleanup(func() { cli.Close() })
	return cli
}

// session is a session of the attacker at one of the servers.
func (w *world) session(server int) *client.Session { return w.sessionAs("attacker", server) }

func (w *world) sessionAs(id string, server int) *client.Session {
	endpoint := w.Endpoints()[server%len(w.Servers)]
	c, err := client.New(client.Config{Endpoints: []string{endpoint}, ClientID: id})
	require.NoError(w.t, err)
	w.t.Cleanup(func() { _ = c.Close() })
	s, err := c.Session(w.ctx)
	require.NoError(w.t, err)
	return s
}

// plain puts keys at its pace, whether or not earlier puts are answered, for as long as
// do takes, and returns how long each took.
func (w *world) plain(do func()) []time.Duration {
	w.t.Helper()
	cli := w.clientAs("plain")
	stop := make(chan struct{})
	var puts sync.WaitGroup
	var mu sync.Mutex
	var took []time.Duration
	var failed error
	put := func(i int) {
		began := time.Now()
		_, err := cli.Put(w.ctx, fmt.Sprintf("/plain/%d/key", i%100), "value") // of all partitions
		mu.Lock()
		defer mu.Unlock()
		took, failed = append(took, time.Since(began)), errors.Join(failed, err)
	}
	puts.Go(func() {
		tick := time.NewTicker(pace)
		defer tick.Stop()
		for i := 0; ; i++ {
			select {
			case <-stop:
				return
			case <-tick.C:
				puts.Go(func() { put(i) })
			}
		}
	})
	do()
	close(stop)
	puts.Wait()
	require.NoError(w.t, failed)
	slices.Sort(took)
	return took
}

func percentile(sorted []time.Duration, p float64) time.Duration {
	if len(sorted) == 0 {
		return 0
	}
	return sorted[min(len(sorted)-1, int(p*float64(len(sorted))))]
}

// term is the present leader and its term.
func (w *world) term() [2]uint64 {
	s, err := w.cli.Status(w.ctx, w.Endpoints()[0])
	require.NoError(w.t, err)
	return [2]uint64{s.Leader, s.RaftTerm}
}

// memory is the most that a server has resident.
func (w *world) memory() int64 {
	most := int64(0)
	for _, s := range w.Servers {
		n, err := s.Resident()
		require.NoError(w.t, err)
		most = max(most, n)
	}
	return most
}

// restart stops all servers and starts them again.
func (w *world) restart() {
	for _, s := range w.Servers {
		require.NoError(w.t, s.Kill())
	}
	ctx, cancel := context.WithTimeout(w.ctx, time.Minute)
	defer cancel()
	for _, s := range w.Servers {
		require.NoError(w.t, s.Start())
	}
	for _, s := range w.Servers {
		require.NoError(w.t, s.WaitReady(ctx))
	}
}

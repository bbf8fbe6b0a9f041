package host

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"

	"github.com/stoa-kv/stoa/internal/auth"
	"github.com/stoa-kv/stoa/internal/version"
)

// simCluster is three servers and the network before them.
type simCluster struct {
	name    string
	rig     *rig
	wires   *wires
	ledger  ledger
	links   sync.WaitGroup
	ends    []func()
	governs turn
}

// newSimCluster makes one of several. Its network takes up to slow, and its hubs pause for up to pause, both in ms.
func newSimCluster(t *testing.T, nth int, seed uint64, slow, pause int) *simCluster {
	c := &simCluster{name: fmt.Sprint("c", nth), wires: newWires(seed+uint64(nth), time.Duration(slow)*time.Millisecond), governs: make(turn, 1), ledger: ledger{has: map[[2]int64]bool{}, rights: map[int64]uint64{}}}
	c.rig = &rig{t: t, nth: uint64(nth), tick: 20 * time.Millisecond, pause: time.Duration(pause) * time.Millisecond, latency: 200 * time.Microsecond, level: version.Newest, applied: c.ledger.apply, ruled: func(*auth.State) {}}
	return c
}

// start starts a cluster, with a key that is no client's.
func (c *simCluster) start(t *testing.T, key string, limit time.Duration) {
	c.rig.start()
	for _, s := range c.rig.servers {
		for _, l := range s.links {
			c.links.Go(l.carry)
		}
		c.ends = append(c.ends, s.serve(c.wires))
	}
	require.Eventually(t, func() bool {
		_, err := front{s: c.rig.servers[0]}.Put(own(context.Background()), &pb.PutRequest{Key: []byte(key)})
		return err == nil
	}, limit, 10*time.Millisecond)
}

func (c *simCluster) stop() {
	for _, end := range c.ends {
		end()
	}
	c.rig.stop(&c.links)
}

func (c *simCluster) cut() {
	if one := c.wires.some(""); one != nil {
		one.cut()
	}
}

// trouble is one thing that happens to the cluster or to a server of it. Calls of its clients have so much time.
func (c *simCluster) trouble(what string, s *rigServer, rng *rand.Rand, timeout time.Duration) {
	switch what {
	case "cut":
		c.cut()
	case "silence":
		c.wires.stallAll(time.Duration(rng.IntN(2 * int(timeout))))
	case "refuse":
		c.rig.shut.Store(true)
		c.wires.cutAll("")
		time.Sleep(time.Duration(rng.IntN(int(timeout))))
		c.rig.shut.Store(false)
	default:
		c.rig.strike(what, s, c.wires, rng, timeout)
	}
}

// strike is one thing that happens to the servers, or to one of them, which is isolated for so long at most.
func (r *rig) strike(what string, s *rigServer, wires *wires, rng *rand.Rand, longest time.Duration) {
	switch what {
	case "cut all":
		wires.cutAll("")
	case "lead":
		s.process.Load().core.Load().Replica.TransferAll(stressVoters[rng.IntN(3)])
	case "replace":
		s.replace()
	case "restart":
		if rng.IntN(2) == 0 {
			wires.cutAll(s.endpoint())
		}
		s.restart()
		wires.cutAll(s.endpoint())
	case "isolate":
		r.isolate(s, true)
		time.Sleep(time.Duration(rng.IntN(int(longest))))
		r.isolate(s, false)
	case "unlink":
		l := s.links[stressVoters[rng.IntN(3)]]
		l.cut.Store(true)
		time.Sleep(time.Duration(rng.IntN(200)) * time.Millisecond)
		l.cut.Store(false)
	case "full":
		r.alarm(pb.AlarmRequest_ACTIVATE)
		time.Sleep(time.Duration(rng.IntN(100)) * time.Millisecond)
		r.alarm(pb.AlarmRequest_DEACTIVATE)
	}
}

// within does what must not hang.
func (f *findings) within(what string, limit time.Duration, story func() string, do func()) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		do()
	}()
	select {
	case <-done:
	case <-time.After(limit):
		f.found("%s hangs: %s", what, stacks())
		panic(strings.Join(f.failures, "\n") + story()) // nothing else would end it
	}
}

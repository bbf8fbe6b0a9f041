//go:build faults

package faults

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc"

	"github.com/stoa-kv/stoa/test/process"
)

// A leader is removed and stopped around that, while the others go on and acknowledge writes. Reads that it is
// asked for meanwhile, and answers once it continues, show these writes, or fail. (A removed leader of etcd
// is the leader of a configuration of one other member, in its own eyes, and confirms reads by itself.)
func TestARemovedLeaderReadsNothingStale(t *testing.T) {
	bin, err := process.UnderTest()
	require.NoError(t, err)
	for _, parts := range []int{1, 4} {
		if parts > 1 && !bin.Stoa {
			continue
		}
		for _, nodes := range []int{2, 3} {
			t.Run(fmt.Sprintf("P=%d/%d members", parts, nodes), func(t *testing.T) { removeStopped(t, nodes, parts) })
		}
	}
}

// stops are the moments at which the leader is stopped: when its removal is asked for, at random in the time that this
// takes, and when it has been answered.
var stops = []struct {
	name string
	come func(rnd *rand.Rand, answered <-chan struct{})
}{
	{"as the removal is asked for", func(*rand.Rand, <-chan struct{}) {}},
	{"during the removal", func(rnd *rand.Rand, _ <-chan struct{}) {
		time.Sleep(time.Duration(rnd.IntN(30_000)) * time.Microsecond)
	}},
	{"when it has been answered", func(_ *rand.Rand, answered <-chan struct{}) { <-answered }},
}

func removeStopped(t *testing.T, nodes, parts int) {
	rnd := rand.New(rand.NewPCG(seedOf(t), 16))
	c := start(t, process.Spec{Nodes: nodes, Partitions: parts, Args: []string{"--strict-reconfig-check=false"}})
	r := &roster{t: t, c: c, conns: map[string]*grpc.ClientConn{}}
	for i := range 2 * len(stops) {
		at := stops[i%len(stops)]
		leader := r.leader()
		id := r.idOf(leader.Name)
		r.mu.Lock()
		c.Servers = slices.DeleteFunc(slices.Clone(c.Servers), func(s *process.Server) bool { return s == leader })
		r.mu.Unlock()

		f := &freshness{}
		end := f.run(t, c.Servers[0], leader)
		answered := make(chan struct{})
		var stopping sync.WaitGroup
		stopping.Go(func() {
			at.come(rnd, answered)
			if leader.Pause() == nil { // else it has ended
				f.stopped.Store(true)
				time.Sleep(3 * time.Second) // in which the others elect another one, if they can
				f.stopped.Store(false)
				_ = leader.Resume()
			}
		})
		r.askToRemove(leader.Name, id)
		close(answered)
		stopping.Wait()
		code, err := leader.Wait(time.Minute)
		require.NoError(t, err, "%s doesn't end", leader.Name)
		require.Zero(t, code)
		end()
		t.Logf("%s, stopped %s, answered %d reads, of which %d were asked for while it was stopped, and failed %d beside %d writes",
			leader.Name, at.name, f.answered.Load(), f.late.Load(), f.failed.Load(), f.writes.Load())
		r.join(fmt.Sprintf("m%d", i))
	}
}

// leader waits until a server knows that it is the leader.
func (r *roster) leader() *process.Server {
	r.t.Helper()
	at := -1
	require.Eventually(r.t, func() bool {
		at = leaderOf(r.t.Context(), r.c)
		return at >= 0
	}, time.Minute, 100*time.Millisecond, "there is no leader")
	return r.c.Servers[at]
}

// freshness compares reads at one server with the writes that another has acknowledged before.
type freshness struct {
	acked   [4]atomic.Int64 // the last revision of each key
	stopped atomic.Bool     // the server that is asked to read
	// Counts of writes, and of reads; late are those that were asked for while the server was stopped, and answered.
	writes, answered, late, failed atomic.Int64
}

// run writes at one server and reads at another until the function that it returns is called.
func (f *freshness) run(t *testing.T, writes, reads *process.Server) (end func()) {
	ctx, cancel := context.WithCancel(t.Context())
	conns := make([]pb.KVClient, 2)
	for i, s := range []*process.Server{writes, reads} {
		conn, err := dial(s.ClientURL)
		require.NoError(t, err)
		t.Cleanup(func() { conn.Close() })
		conns[i] = pb.NewKVClient(conn)
	}
	var work sync.WaitGroup
	work.Go(func() {
		for n := 0; ctx.Err() == nil; n++ {
			f.write(ctx, conns[0], n%len(f.acked))
			time.Sleep(5 * time.Millisecond)
		}
	})
	work.Go(func() {
		for n := 0; ctx.Err() == nil; n++ { // a read that a stopped server keeps waiting holds up no other
			work.Go(func() { f.read(ctx, t, conns[1], n%len(f.acked)) })
			time.Sleep(20 * time.Millisecond)
		}
	})
	return func() {
		cancel()
		work.Wait()
	}
}

func freshKey(k int) []byte { return fmt.Appendf(nil, "/fresh-%d/key", k) }

func (f *freshness) write(ctx context.Context, kv pb.KVClient, k int) {
	ctx, cancel := context.WithTimeout(ctx, 300*time.Millisecond) // it may be lost with a leader
	defer cancel()
	if resp, err := kv.Put(ctx, &pb.PutRequest{Key: freshKey(k)}); err == nil {
		f.acked[k].Store(resp.Header.Revision)
		f.writes.Add(1)
	}
}

func (f *freshness) read(ctx context.Context, t *testing.T, kv pb.KVClient, k int) {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	acked, stopped := f.acked[k].Load(), f.stopped.Load()
	resp, err := kv.Range(ctx, &pb.RangeRequest{Key: freshKey(k)})
	if err != nil {
		f.failed.Add(1)
		return
	}
	f.answered.Add(1)
	if stopped {
		f.late.Add(1)
	}
	shown := int64(0)
	for _, kv := range resp.Kvs {
		shown = kv.ModRevision
	}
	if shown < acked {
		t.Errorf("a read shows revision %d of %s, and revision %d had been acknowledged when it was asked for (stopped: %v)", shown, freshKey(k), acked, stopped)
	}
}

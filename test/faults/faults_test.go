//go:build faults

package faults

import (
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"
	"github.com/stretchr/testify/require"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/stoa-kv/stoa/test/process"
)

var (
	loadTime = flag.Duration("load", 30*time.Second, "how long each case runs")
	seedFlag = flag.Uint64("seed", 0, "seed of the faults and the load (0: from the clock)")
	clients  = flag.Int("clients", 8, "clients at work")
	rest     = flag.Duration("pause", 1500*time.Millisecond, "the longest time between two faults")
)

func TestFaults(t *testing.T) {
	bin, err := process.UnderTest()
	require.NoError(t, err)
	cases := map[string][]string{
		"kill":  {"kill one", "kill the leader", "kill two", "kill all", "kill one twice"},
		"pause": {"pause one", "pause the leader", "pause two", "pause the leader for long", "pause one, kill another"},
	}
	for _, parts := range []int{1, 3} {
		if parts > 1 && !bin.Stoa {
			continue
		}
		for _, name := range []string{"kill", "pause"} {
			t.Run(fmt.Sprintf("%s/P=%d", name, parts), func(t *testing.T) { runFaults(t, 3, parts, cases[name]) })
		}
		t.Run(fmt.Sprintf("kill/one node/P=%d", parts), func(t *testing.T) { runFaults(t, 1, parts, []string{"kill one", "pause one"}) })
	}
	if bin.Stoa {
		t.Run("clocks", func(t *testing.T) { runFaults(t, 3, 3, clocks) })
	}
}

// TestResize: the number of partitions changes, while servers are killed.
func TestResize(t *testing.T) {
	bin, err := process.UnderTest()
	require.NoError(t, err)
	if !bin.Stoa {
		t.Skip("it has no partitions")
	}
	runFaults(t, 3, 3, []string{"resize", "resize, kill one", "resize, kill the leader", "kill all"})
}

// TestSidecars: the clients connect to two sidecars, which are killed, too.
func TestSidecars(t *testing.T) {
	bin, err := process.UnderTest()
	require.NoError(t, err)
	if !bin.Stoa {
		t.Skip("a sidecar without sessions only forwards")
	}
	for _, parts := range []int{1, 3} {
		t.Run(fmt.Sprintf("P=%d", parts), func(t *testing.T) {
			runFaultsThrough(t, 2, 3, parts, []string{"kill one", "kill the leader", "kill all", "kill a sidecar", "pause the leader", "pause a sidecar"})
		})
	}
}

func runFaults(t *testing.T, nodes, parts int, names []string) {
	runFaultsThrough(t, 0, nodes, parts, names)
}

// startSidecars starts sidecars of a cluster. The second keeps the keys in memory.
func startSidecars(t *testing.T, c *process.Cluster, n int) (all []*process.Server) {
	t.Helper()
	for i := range n {
		var flags []string
		if i%2 == 1 {
			flags = append(flags, "--cache=/faults/")
		}
		s, err := c.Sidecar(fmt.Sprintf("sidecar%d", i+1), flags...)
		require.NoError(t, err)
		t.Cleanup(func() { _ = s.Kill() })
		require.NoError(t, s.Start())
		require.NoError(t, s.WaitReady(t.Context()))
		all = append(all, s)
	}
	return all
}

// runFaultsThrough has the clients use sidecars, if there are any.
func runFaultsThrough(t *testing.T, sidecars, nodes, parts int, names []string) {
	runFaultsOn(t, process.Spec{Binary: binaryFor(t, names), Nodes: nodes, Partitions: parts}, sidecars, nil, names)
}

// runFaultsOn has the servers change to another release, too, if there is one.
func runFaultsOn(t *testing.T, spec process.Spec, sidecars int, later *process.Binary, names []string) {
	seed := seedOf(t)
	c := start(t, spec)
	asked := c.Servers
	if sidecars > 0 {
		asked = startSidecars(t, c, sidecars)
	}
	var endpoints []string
	for _, s := range asked {
		endpoints = append(endpoints, s.ClientURL)
	}
	cli, err := clientv3.New(clientv3.Config{Endpoints: endpoints, Logger: zap.NewNop(),
		DialKeepAliveTime: time.Second, DialKeepAliveTimeout: time.Second})
	require.NoError(t, err)
	defer cli.Close()

	rec := &recorder{start: time.Now()}
	live := newLiveWatch(t, cli)
	ctx, cancel := context.WithTimeout(t.Context(), *loadTime)
	defer cancel()
	var ids atomic.Int64
	var work sync.WaitGroup
	for i := range *clients {
		cl := &client{rnd: rand.New(rand.NewPCG(seed, uint64(i))), ids: func() int64 { return ids.Add(1) }}
		var conns []*grpc.ClientConn
		for _, url := range endpoints {
			conn, err := dial(url)
			require.NoError(t, err)
			defer conn.Close()
			conns = append(conns, conn)
		}
		cl.conns = func() []*grpc.ClientConn { return conns }
		work.Add(1)
		go func() {
			defer work.Done()
			drive(ctx, i, cl, rec)
		}()
	}
	roam := new(roaming)
	for i := range 3 * sidecars {
		one, err := clientv3.New(clientv3.Config{Endpoints: []string{endpoints[i%sidecars]}, Logger: zap.NewNop(),
			DialKeepAliveTime: time.Second, DialKeepAliveTimeout: time.Second})
		require.NoError(t, err)
		defer one.Close()
		work.Go(func() {
			if err := roam.roam(ctx, one, rand.New(rand.NewPCG(seed, uint64(1000+i)))); err != nil {
				t.Error(err)
			}
		})
	}
	nem := newNemesis(t, c, seed, rec.start)
	nem.asked = asked
	if later != nil {
		nem.releases = allEarlier(c, spec.Binary, *later)
	}
	count := disturb(t, ctx, nem, names)
	work.Wait()
	history := judge(t, c, cli, rec, live)
	events, err := roam.check(history)
	require.NoError(t, err)
	t.Logf("%d faults; %d watches told %d revisions", count, len(roam.all), events)
	if sidecars > 0 {
		require.Greater(t, events, 50, "hardly anything was watched")
	}
}

// drive does operations until the time is over, not so fast that the history grows
// beyond what can be checked.
func drive(ctx context.Context, i int, cl *client, rec *recorder) {
	for ctx.Err() == nil {
		req := cl.next()
		call := rec.now()
		out, err := cl.do(req)
		if err != nil {
			out = answer{unknown: true}
			time.Sleep(20 * time.Millisecond)
		}
		rec.add(i, req, call, out, rec.now())
		time.Sleep(time.Duration(cl.rnd.IntN(20)) * time.Millisecond)
	}
}

// judge checks all guarantees of the package comment, once the faults are over, and returns the history.
func judge(t *testing.T, c *process.Cluster, cli *clientv3.Client, rec *recorder, live *liveWatch) (history told) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	var stop int64 // the last write: behind it nothing is to come
	require.Eventually(t, func() bool {
		resp, err := cli.Put(ctx, keyName(0), "0")
		if err == nil {
			stop = resp.Header.Revision
		}
		return err == nil
	}, 30*time.Second, 100*time.Millisecond, "writes don't resume")

	// Each server delivers the same history.
	for _, s := range c.Servers {
		one, err := clientv3.New(clientv3.Config{Endpoints: []string{s.ClientURL}, Logger: zap.NewNop()})
		require.NoError(t, err)
		h, err := watchAll(ctx, one, stop)
		require.NoError(t, err, s.Name)
		one.Close()
		if history != nil {
			require.NoError(t, history.same(h), s.Name)
		}
		history = h
	}
	require.NoError(t, live.wait(ctx, stop))
	require.NoError(t, live.told.upTo(stop).same(history), "the watch that lived through the faults")

	ops, err := resolve(rec.ops, history)
	answered, unknown := 0, 0
	for _, op := range rec.ops {
		if op.Output.(answer).unknown {
			unknown++
		} else {
			answered++
		}
	}
	t.Logf("%d operations answered, %d without an answer, %d revisions", answered, unknown, len(history))
	require.NoError(t, err)
	require.Greater(t, answered, 50, "hardly anything was done")

	started := time.Now()
	result := check(ops, 2*time.Minute)
	t.Logf("porcupine: %s after %v", result, time.Since(started).Round(time.Millisecond))
	if result == porcupine.Illegal {
		visualize(t, ops)
	}
	require.Equal(t, porcupine.Ok, result)
	requireSameHash(t, contextFor(t, time.Minute), c, stop)
	return history
}

// visualize writes a picture of a history that is not linearizable.
func visualize(t *testing.T, ops []porcupine.Operation) {
	t.Helper()
	_, info := porcupine.CheckOperationsVerbose(model, ops, time.Minute)
	file := filepath.Join(os.TempDir(), strings.ReplaceAll(t.Name(), "/", "-")+".html")
	if err := porcupine.VisualizePath(model, info, file); err == nil {
		t.Logf("the history: %s", file)
	}
}

func requireSameHash(t *testing.T, ctx context.Context, c *process.Cluster, rev int64) {
	t.Helper()
	hashes := map[uint32][]string{}
	for _, s := range c.Servers {
		conn, err := dial(s.ClientURL)
		require.NoError(t, err)
		defer conn.Close()
		h, err := pb.NewMaintenanceClient(conn).HashKV(ctx, &pb.HashKVRequest{Revision: rev})
		// It is behind, or not reached on a machine that is busy.
		for ; (status.Code(err) == codes.OutOfRange || status.Code(err) == codes.Unavailable) && ctx.Err() == nil; time.Sleep(20 * time.Millisecond) {
			h, err = pb.NewMaintenanceClient(conn).HashKV(ctx, &pb.HashKVRequest{Revision: rev})
		}
		require.NoError(t, err, s.Name)
		hashes[h.Hash] = append(hashes[h.Hash], s.Name)
	}
	require.Len(t, hashes, 1, "the servers' contents differ: %v", hashes)
}

// liveWatch is a client's watch that stays open through the faults.
type liveWatch struct {
	ch   clientv3.WatchChan
	told told
	last int64
}

func newLiveWatch(t *testing.T, cli *clientv3.Client) *liveWatch {
	w := &liveWatch{told: told{}, ch: cli.Watch(t.Context(), "/faults/", clientv3.WithPrefix(), clientv3.WithRev(1))}
	return w
}

func (w *liveWatch) wait(ctx context.Context, stop int64) error {
	for w.last < stop {
		select {
		case r, ok := <-w.ch:
			if !ok {
				return fmt.Errorf("the live watch has ended at revision %d", w.last)
			}
			if err := r.Err(); err != nil {
				return fmt.Errorf("the live watch: %w", err)
			}
			for _, ev := range r.Events {
				if ev.Kv.ModRevision < w.last {
					return fmt.Errorf("the live watch went back from revision %d to %d", w.last, ev.Kv.ModRevision)
				}
				w.last = ev.Kv.ModRevision
			}
			if err := w.told.add(r.Events); err != nil {
				return err
			}
		case <-ctx.Done():
			return fmt.Errorf("the live watch stands at revision %d, before %d: %w", w.last, stop, ctx.Err())
		}
	}
	return nil
}

//go:build faults

package faults

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc"

	"github.com/stoa-kv/stoa/test/elle"
	"github.com/stoa-kv/stoa/test/process"
)

// TestTransactions: transactions over lists of several partitions are strictly serializable.
func TestTransactions(t *testing.T) {
	bin, err := process.UnderTest()
	require.NoError(t, err)
	for _, parts := range []int{1, 3} {
		if parts > 1 && !bin.Stoa {
			continue
		}
		t.Run(fmt.Sprintf("P=%d", parts), func(t *testing.T) {
			runAppends(t, 3, parts, []string{"kill one", "kill the leader", "kill all", "pause the leader", "pause the leader for long", "move the leader"})
		})
	}
}

func runAppends(t *testing.T, nodes, parts int, names []string) {
	seed := seedOf(t)
	c := start(t, process.Spec{Binary: binaryFor(t, names), Nodes: nodes, Partitions: parts})
	conns := connect(t, c.Endpoints())
	ctx, cancel := context.WithTimeout(t.Context(), *loadTime)
	defer cancel()
	a := newAppends()
	var work sync.WaitGroup
	for i := range *clients {
		work.Go(func() { a.run(ctx, i, conns, rand.New(rand.NewPCG(seed, uint64(i)))) })
	}
	count := disturb(t, ctx, newNemesis(t, c, seed, time.Now()), names)
	work.Wait()
	final := readLists(t, conns)
	done, failed := 0, 0
	for _, txn := range a.txns {
		switch txn.Outcome {
		case elle.OK:
			done++
		case elle.Failed:
			failed++
		}
	}
	t.Logf("%d faults; %d transactions answered, %d failed, %d without an answer; %d lists", count, done, failed, len(a.txns)-done-failed, len(final))
	require.NoError(t, elle.Check(a.txns, final))
	require.Greater(t, done, 50, "hardly anything was done")
}

// disturb injects faults until ctx ends, and returns how many.
func disturb(t *testing.T, ctx context.Context, nem *nemesis, names []string) int {
	t.Helper()
	done, err := nem.run(ctx, names)
	count := tally(t, done)
	require.NoError(t, err)
	return count
}

// tally logs how many faults of each name were done, a line for each, for those who add up campaigns.
func tally(t *testing.T, done map[string]int) (all int) {
	for _, name := range slices.Sorted(maps.Keys(done)) {
		t.Logf("faults: %d %s", done[name], name)
		all += done[name]
	}
	return all
}

// newNemesis makes one that says in the test's log what it does, with the time since began.
func newNemesis(t *testing.T, c *process.Cluster, seed uint64, began time.Time) *nemesis {
	return &nemesis{cluster: c, world: world, disks: disks, rnd: rand.New(rand.NewPCG(seed, 99)), rest: *rest, say: func(f string, a ...any) {
		t.Logf("%6.2fs %s", time.Since(began).Seconds(), fmt.Sprintf(f, a...))
	}}
}

// connect makes a connection to each server, that ends with the test.
func connect(t *testing.T, urls []string) (conns []*grpc.ClientConn) {
	t.Helper()
	for _, url := range urls {
		conn, err := dial(url)
		require.NoError(t, err)
		t.Cleanup(func() { conn.Close() })
		conns = append(conns, conn)
	}
	return conns
}

// readLists reads all lists, once requests are answered again.
func readLists(t *testing.T, conns []*grpc.ClientConn) map[string][]int {
	t.Helper()
	final := map[string][]int{}
	require.Eventually(t, func() bool {
		ctx, cancel := context.WithTimeout(t.Context(), opTimeout)
		defer cancel()
		resp, err := pb.NewKVClient(conns[0]).Range(ctx, &pb.RangeRequest{Key: []byte(appendsRoot), RangeEnd: []byte("/lists0")})
		if err != nil {
			return false
		}
		for _, kv := range resp.Kvs {
			final[string(kv.Key)], err = listFrom(&pb.RangeResponse{Kvs: resp.Kvs[:1]})
			require.NoError(t, err)
			resp.Kvs = resp.Kvs[1:]
		}
		return true
	}, 30*time.Second, 100*time.Millisecond, "reads don't resume")
	return final
}

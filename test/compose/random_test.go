package compose

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"

	"github.com/stoa-kv/stoa/client/compose"
	"github.com/stoa-kv/stoa/test/compose/osc"
	"github.com/stoa-kv/stoa/test/process"
)

var (
	loadTime = flag.Duration("load", 4*time.Second, "how long each case runs")
	seedFlag = flag.Uint64("seed", 0, "seed of the load and the faults (0: from the clock)")
	workers  = flag.Int("clients", 12, "clients at work")
	allCases = flag.Bool("all", false, "all cases, not the quick ones alone")
)

// cases of random runs.
var cases = []struct {
	server   string
	clusters int
	learners bool
	quick    bool
}{
	{server: "stoa", clusters: 2, quick: true},
	{server: "etcd", clusters: 2, learners: true, quick: true},
	{server: "stoa", clusters: 3},
	{server: "etcd", clusters: 3},
	{server: "etcd", clusters: 3, learners: true},
}

// Many clients, several clusters, members that lag and fail: the history is
// consistent.
func TestRandomRuns(t *testing.T) {
	for _, c := range cases {
		if !c.quick && !*allCases {
			continue
		}
		title := fmt.Sprintf("%d clusters of %s", c.clusters, c.server)
		if c.learners {
			title += " with learners"
		}
		t.Run(title, func(t *testing.T) {
			all := start(t, c.server, c.clusters, c.learners)
			require.NoError(t, all.random(t, oneOrder))
		})
	}
}

// The same runs without syncs: the checker finds violations.
func TestRandomRunsWithoutSyncs(t *testing.T) {
	if !*allCases {
		t.Skip("asked for by -all; TestFigure1 shows it in less time")
	}
	for _, server := range []string{"stoa", "etcd"} {
		t.Run(server, func(t *testing.T) {
			all := start(t, server, 2, false)
			var v *osc.Violation
			for range 3 {
				if err := all.random(t, orderPerCluster); errors.As(err, &v) {
					t.Log(v)
					return
				}
			}
			t.Error("not found")
		})
	}
}

// random runs clients under faults, and checks their history.
func (all clusters) random(t *testing.T, order func(*compose.Client, int) []*compose.Client) error {
	seed := *seedFlag
	if seed == 0 {
		seed = uint64(time.Now().UnixNano())
	}
	t.Logf("seed %d", seed)
	h := osc.NewHistory()
	crew := all.crew(t, order, h, seed)

	ctx, cancel := context.WithTimeout(t.Context(), *loadTime)
	defer cancel()
	var work sync.WaitGroup
	for _, w := range crew {
		work.Go(func() { w.run(ctx) })
	}
	hurt := make(chan error, len(all))
	for i, c := range all {
		n := &nemesis{cluster: c, rnd: rand.New(rand.NewPCG(seed, 1000+uint64(i))), say: func(f string, a ...any) {
			t.Logf("%8.2fs %s", time.Duration(h.Now()).Seconds(), fmt.Sprintf(f, a...))
		}}
		go func() { hurt <- n.run(ctx, t) }()
	}
	for range all {
		require.NoError(t, <-hurt)
	}
	work.Wait()

	var sum compose.Stats
	for _, w := range crew {
		require.Empty(t, w.errs)
		s := w.by[0].Stats()
		sum.Reads, sum.Updates, sum.Switches, sum.Syncs = sum.Reads+s.Reads, sum.Updates+s.Updates, sum.Switches+s.Switches, sum.Syncs+s.Syncs
		sum.Resyncs, sum.Stale, sum.Waits, sum.Failures = sum.Resyncs+s.Resyncs, sum.Stale+s.Stale, sum.Waits+s.Waits, sum.Failures+s.Failures
	}
	t.Logf("%+v", sum)
	require.LessOrEqual(t, sum.Syncs, sum.Switches)
	return all.check(t, h)
}

// crew are the clients: each beside other members than the next one, some of them
// beside the learners.
func (all clusters) crew(t *testing.T, order func(*compose.Client, int) []*compose.Client, h *osc.History, seed uint64, options ...grpc.DialOption) []*worker {
	var sites []*compose.Client
	for s := range 4 {
		sites = append(sites, all.compose(t, func(c *cluster) *process.Server {
			if s == 3 && c.learner != nil {
				return c.learner
			}
			return c.voters[s%3]
		}, options...))
	}
	var crew []*worker
	for i := range *workers {
		fork := sites[i%len(sites)].Fork()
		t.Cleanup(func() { fork.Close() })
		crew = append(crew, &worker{
			id: i, by: order(fork, len(all)), h: h, clusters: len(all), rnd: rand.New(rand.NewPCG(seed, uint64(i))),
			written: int(seed % 1e9 * 1e6),
		})
	}
	return crew
}

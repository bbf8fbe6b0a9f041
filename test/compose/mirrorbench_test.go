package compose

import (
	"context"
	"fmt"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/stoa-kv/stoa/client/compose"
	"github.com/stoa-kv/stoa/test/process"
)

// startForBench starts a home and a target of one server each.
func startForBench(b *testing.B, servers ...string) (all clusters) {
	for _, server := range servers {
		bin, err := process.Choose(server)
		require.NoError(b, err)
		c := process.StartT(b, process.Spec{Binary: bin, Partitions: 2})
		all = append(all, &cluster{Cluster: c, voters: c.Servers})
	}
	return all
}

func benchClient(b *testing.B, all clusters) *compose.Client {
	c, err := compose.New(compose.Config{
		Clusters: map[string]compose.Cluster{"home": {Endpoints: urls(all[0].voters)}, "target": {Endpoints: urls(all[1].voters)}},
		Routes:   []compose.Route{{Prefix: "/all/", Cluster: "home", Mirrors: []string{"target"}}, {Prefix: "/own/", Cluster: "target"}},
		Local:    "target",
	})
	require.NoError(b, err)
	b.Cleanup(func() { c.Close() })
	return c
}

// mirrorUp runs a worker, and returns when the mirror has all of home.
func mirrorUp(b *testing.B, c *compose.Client) {
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- c.Mirror(ctx, compose.MirrorOptions{}) }()
	b.Cleanup(func() {
		cancel()
		require.NoError(b, <-ended)
	})
	caughtUp(b, c)
}

func caughtUp(b *testing.B, c *compose.Client) {
	require.Eventually(b, func() bool {
		st, err := c.MirrorStatus(b.Context())
		return err == nil && st[0].Usable && st[0].Behind == 0
	}, 2*time.Minute, 5*time.Millisecond)
}

var benchPairs = [][]string{{"etcd", "etcd"}, {"stoa", "stoa"}}

// BenchmarkMirroredRead reads a key at a mirror, and, for comparison, one whose home is the same
// cluster. The clients have a logical client each. CPU is that of this process, with the worker, and of the
// cluster at which they read: on a machine with other work it says more than the time.
func BenchmarkMirroredRead(b *testing.B) {
	for _, servers := range benchPairs {
		all := startForBench(b, servers...)
		c := benchClient(b, all)
		for _, key := range []string{"/own/a", "/all/a"} {
			_, err := c.Put(b.Context(), key, "0123456789abcdef")
			require.NoError(b, err)
		}
		mirrorUp(b, c)
		for _, clients := range []int{1, 16} {
			for _, key := range []string{"/own/a", "/all/a"} {
				b.Run(fmt.Sprintf("%s/%d clients/%s", servers[1], clients, key[1:4]), func(b *testing.B) {
					var work sync.WaitGroup
					start := make(chan struct{})
					for i := range clients {
						fork := c.Fork()
						defer fork.Close()
						_, err := fork.Get(b.Context(), key) // synced
						require.NoError(b, err)
						work.Go(func() {
							<-start
							for n := i; n < b.N; n += clients {
								if _, err := fork.Get(context.Background(), key); err != nil {
									b.Error(err)
								}
							}
						})
					}
					b.ResetTimer()
					before := cpuOf(b, all[1])
					close(start)
					work.Wait()
					b.ReportMetric(float64(cpuOf(b, all[1])-before)/float64(b.N)/1000, "cpu-µs/op")
				})
			}
		}
	}
}

// cpuOf is the CPU time of this process and a cluster so far.
func cpuOf(b *testing.B, c *cluster) time.Duration {
	var own syscall.Rusage
	require.NoError(b, syscall.Getrusage(syscall.RUSAGE_SELF, &own))
	servers, err := c.CPU()
	require.NoError(b, err)
	return servers + time.Duration(own.Utime.Nano()+own.Stime.Nano())
}

// BenchmarkMirroredEvents measures events per second, of transactions of ten keys of 100 bytes that
// are there when the worker begins to follow.
func BenchmarkMirroredEvents(b *testing.B) {
	for _, servers := range benchPairs {
		b.Run(servers[0]+" in "+servers[1], func(b *testing.B) {
			all := startForBench(b, servers...)
			c := benchClient(b, all)
			home, err := clientv3.New(clientv3.Config{Endpoints: urls(all[0].voters), Logger: zap.NewNop()})
			require.NoError(b, err)
			defer home.Close()
			once, cancel := context.WithCancel(b.Context())
			ended := make(chan error, 1)
			go func() { ended <- c.Mirror(once, compose.MirrorOptions{}) }()
			caughtUp(b, c) // with a base copy of nothing: what comes is followed
			cancel()
			require.NoError(b, <-ended)
			value := string(make([]byte, 100))
			for n := 0; n < b.N; n += 10 {
				var puts []clientv3.Op
				for i := range 10 {
					puts = append(puts, clientv3.OpPut(fmt.Sprintf("/all/%d", (n+i)%100_000), value))
				}
				_, err := home.Txn(b.Context()).Then(puts...).Commit()
				require.NoError(b, err)
			}
			b.ResetTimer()
			mirrorUp(b, c)
			b.StopTimer()
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "events/s")
		})
	}
}

package compose

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/stoa-kv/stoa/client"
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

// readings are the ways of BenchmarkMirroredRead: so many clients, with a logical client each, that have
// so many reads in flight.
var readings = []struct{ clients, window int }{{1, 1}, {16, 1}, {1, 25}, {16, 25}}

// BenchmarkMirroredRead reads a key at a mirror, and one whose home is the same cluster, in rounds of 100 ms
// in turn: an operation is a pair of rounds. Told is what a read at the mirror costs in times of the other one, by
// the time and by the CPU of this process, with the worker, and of the cluster: the median of the pairs, with
// the quartiles of the time.
//
//	go test ./test/compose -run '^$' -bench MirroredRead -benchtime 40x
func BenchmarkMirroredRead(b *testing.B) {
	const round = 100 * time.Millisecond
	names := [2]string{"/own/a", "/all/a"}
	for _, servers := range benchPairs {
		all := startForBench(b, servers...)
		c := benchClient(b, all)
		for _, key := range names {
			_, err := c.Put(b.Context(), key, "0123456789abcdef")
			require.NoError(b, err)
		}
		mirrorUp(b, c)
		for _, as := range readings {
			b.Run(fmt.Sprintf("%s/%d clients/%d in flight", servers[1], as.clients, as.window), func(b *testing.B) {
				var forks [2][]*compose.Client
				for way, key := range names {
					for range as.clients {
						fork := c.Fork()
						defer fork.Close()
						_, err := fork.Get(b.Context(), key) // synced
						require.NoError(b, err)
						forks[way] = append(forks[way], fork)
					}
				}
				var each [2][]float64 // nanoseconds per read, by way
				var times, cpus []float64
				for pair := -2; pair < b.N; pair++ {
					var spent [2]float64
					for i := range names {
						way := (i + pair + 2) % 2
						before, begun := cpuOf(b, all[1]), time.Now()
						n := readFor(b, forks[way], names[way], as.window, round)
						each[way] = append(each[way], float64(time.Since(begun))/n)
						spent[way] = float64(cpuOf(b, all[1])-before) / n
					}
					last := len(each[0]) - 1
					times = append(times, each[1][last]/each[0][last])
					cpus = append(cpus, spent[1]/spent[0])
				}
				var mirrored int64
				for _, fork := range forks[1] {
					mirrored += fork.Stats().Mirrored
				}
				require.Positive(b, mirrored)
				times, cpus = times[2:], cpus[2:] // the first pairs warm up
				b.ReportMetric(0, "ns/op")
				b.ReportMetric(quantile(each[0], 0.5)/1000, "µs-own")
				b.ReportMetric(quantile(each[1], 0.5)/1000, "µs-mirror")
				b.ReportMetric(quantile(times, 0.25), "x-q1")
				b.ReportMetric(quantile(times, 0.5), "x")
				b.ReportMetric(quantile(times, 0.75), "x-q3")
				b.ReportMetric(quantile(cpus, 0.5), "x-cpu")
			})
		}
	}
}

func quantile(values []float64, q float64) float64 {
	values = slices.Sorted(slices.Values(values))
	return values[int(q*float64(len(values)-1)+0.5)]
}

// readFor reads for a while, and returns how often.
func readFor(b *testing.B, forks []*compose.Client, key string, window int, d time.Duration) float64 {
	var work sync.WaitGroup
	var reads atomic.Int64
	ctx, cancel := context.WithTimeout(context.Background(), d)
	defer cancel()
	for _, fork := range forks {
		work.Go(func() {
			flight, n := make([]*client.Future[*clientv3.GetResponse], window), 0
			for ; ctx.Err() == nil; n++ {
				if window == 1 {
					if _, err := fork.Get(context.Background(), key); err != nil {
						b.Error(err)
					}
					continue
				}
				if f := flight[n%window]; f != nil {
					if _, err := f.Wait(context.Background()); err != nil {
						b.Error(err)
					}
				}
				flight[n%window] = fork.GetAsync(key)
			}
			for _, f := range flight {
				if f != nil {
					_, _ = f.Wait(context.Background())
				}
			}
			reads.Add(int64(n))
		})
	}
	work.Wait()
	return float64(reads.Load())
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

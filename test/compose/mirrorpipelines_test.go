package compose

import (
	"context"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"

	"github.com/stoa-kv/stoa/client/compose"
	"github.com/stoa-kv/stoa/test/compose/osc"
)

// Clients have many reads of mirrored keys in flight, some of them with updates between, and go from the keys of one
// cluster to those of another, while executors come and go, connections are cut and servers killed: the
// history is consistent. It goes on until there was enough of that, however slow the machine is.
func TestMirrorPipelines(t *testing.T) {
	seed := *seedFlag
	if seed == 0 {
		seed = uint64(time.Now().UnixNano())
	}
	t.Logf("seed %d", seed)
	all := startEach(t, "stoa", "etcd")
	h := osc.NewHistory()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	lines := &wires{}
	sites := []*compose.Client{
		all.mirrored(t, name(0), grpc.WithContextDialer(lines.dial)), all.mirrored(t, name(1), grpc.WithContextDialer(lines.dial)),
	}
	var crew []*worker
	for i := range 6 {
		crew = append(crew, &worker{
			id: i, by: oneOrder(sites[i%len(sites)].Fork(), len(all)), h: h, clusters: len(all), rnd: rand.New(rand.NewPCG(seed, uint64(i))),
			written: int(seed % 1e9 * 1e6),
		})
	}
	var work sync.WaitGroup
	done := &progress{}
	work.Go(func() { all.oneExecutor(t, ctx, done) })
	for i, w := range crew {
		work.Go(func() { w.pipelines(ctx, []int{0, 0, 5}[i%3]) })
	}
	rnd := rand.New(rand.NewPCG(seed, 1000))
	cut := 0
	work.Go(func() {
		for sleep(ctx, time.Duration(200+rnd.IntN(800))*time.Millisecond) {
			cut += lines.cut(rnd)
		}
	})
	kills := &nemesis{rnd: rand.New(rand.NewPCG(seed, 1001))}
	var killed atomic.Int64
	work.Go(func() {
		for sleep(ctx, kills.between(1500, 3000)) {
			kills.cluster = all[int(killed.Load())%len(all)]
			if err := kills.kill(ctx, kills.Servers[0]); err != nil {
				t.Error(err)
				return
			}
			killed.Add(1)
		}
	})
	enough := func() bool {
		s := statsOf(crew)
		return s.Mirrored >= 2000 && s.Syncs >= 20 && killed.Load() >= 2
	}
	for begun := time.Now(); sleep(ctx, 250*time.Millisecond); {
		took := time.Since(begun)
		if took > *loadTime && enough() || took > *loadTime+4*time.Minute {
			break
		}
	}
	cancel()
	work.Wait()
	for _, w := range crew {
		require.Empty(t, w.errs)
	}
	t.Logf("%+v; executors were elected %d times, %d connections cut, %d servers killed", statsOf(crew), done.elected.Load(), cut, killed.Load())
	require.True(t, enough(), "not enough has happened")
	require.NoError(t, all.check(t, h))
}

// oneExecutor runs one executor of all mirrors at a time.
func (all clusters) oneExecutor(t *testing.T, ctx context.Context, done *progress) {
	for ctx.Err() == nil {
		c := all.mirrored(t, "")
		living, cancel := context.WithCancel(ctx)
		ended := make(chan error, 1)
		go func() { ended <- c.Mirror(living, compose.MirrorOptions{Observe: done.observe}) }()
		done.wait(ctx, 3*time.Second, 20)
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("an executor has ended: %v", err)
		}
		c.Close()
	}
}

// pipelines sends many requests at once, one in so many of them an update. It stays with the keys of one cluster for some
// time: the first read of others is at home, and the mirror has to get there.
func (w *worker) pipelines(ctx context.Context, updates int) {
	cluster := w.rnd.IntN(w.clusters)
	for ctx.Err() == nil {
		if w.rnd.IntN(8) == 0 {
			cluster = w.rnd.IntN(w.clusters)
		}
		for range 1 + w.rnd.IntN(60) {
			key := prefix(cluster) + keys[w.rnd.IntN(len(keys))]
			switch n := w.rnd.IntN(100); {
			case n < updates:
				w.put(key)
			case n < 80:
				w.get(key)
			default:
				w.getAll(cluster)
			}
		}
		if w.rnd.IntN(3) > 0 {
			w.underWay.Wait()
		}
		time.Sleep(time.Duration(5+w.rnd.IntN(25)) * time.Millisecond)
	}
	w.underWay.Wait()
}

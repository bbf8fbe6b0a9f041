package compose

import (
	"context"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/stoa-kv/stoa/client/compose"
)

// A watch at a mirror delivers the events that a watch at home does, with its revisions, while
// executors are replaced, while the mirror is copied again, and when it is gone.
func TestMirrorWatches(t *testing.T) {
	for _, kinds := range [][]string{{"stoa", "etcd"}, {"etcd", "stoa"}} {
		t.Run(kinds[0]+" in "+kinds[1], func(t *testing.T) {
			all := startEach(t, kinds...)
			m := newMirrorTest(t, all, 0)
			rnd := rand.New(rand.NewPCG(1, uint64(time.Now().UnixNano())))
			write := func(n int) {
				for range n {
					key := fmt.Sprintf("%s%d", prefix(0), rnd.IntN(4))
					var err error
					switch rnd.IntN(4) {
					case 0:
						_, err = m.home.Delete(t.Context(), key)
					case 1:
						_, err = m.home.Txn(t.Context()).Then(clientv3.OpPut(prefix(0)+"0", fmt.Sprint(n)), clientv3.OpDelete(prefix(0)+"3")).Commit()
					default:
						_, err = m.home.Put(t.Context(), key, fmt.Sprint(rnd.IntN(1000)))
					}
					require.NoError(t, err)
				}
			}
			write(10)
			m.follow("base copy")
			ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
			defer cancel()
			client := m.client("target")
			var told []<-chan []string
			for _, w := range []struct {
				key  string
				opts []clientv3.OpOption
			}{{prefix(0), []clientv3.OpOption{clientv3.WithPrefix(), clientv3.WithPrevKV()}}, {prefix(0) + "3", nil}} {
				opts := append(w.opts, clientv3.WithCreatedNotify())
				watch := client.Watch(ctx, w.key, opts...)
				require.True(t, (<-watch).Created)
				told = append(told, untilLast(watch))
			}
			first, err := m.home.Get(ctx, prefix(0))
			require.NoError(t, err)
			for range 3 {
				ended := m.executor()
				write(30)
				ended()
			}
			m.follow("the same mirror")
			require.Eventually(t, func() bool { return client.Stats().MirroredEvents > 50 }, 30*time.Second, 10*time.Millisecond, "the mirror has told no events")
			_, err = m.target.Delete(ctx, "", clientv3.WithPrefix()) // it is copied again
			require.NoError(t, err)
			write(5)
			m.follow("a new copy")
			write(5)
			m.follow("behind it")
			_, err = m.home.Put(ctx, prefix(0)+"3", "last")
			require.NoError(t, err)

			for i, key := range []string{prefix(0), prefix(0) + "3"} {
				opts := []clientv3.OpOption{clientv3.WithRev(first.Header.Revision + 1)}
				if i == 0 {
					opts = append(opts, clientv3.WithPrefix(), clientv3.WithPrevKV())
				}
				want := <-untilLast(m.home.Watch(ctx, key, opts...))
				require.Equal(t, "last", want[len(want)-1], "the history of home")
				require.Equal(t, want, <-told[i], key)
			}
		})
	}
}

// executor runs one until the function that it returns is called.
func (m *mirrorTest) executor() func() {
	ctx, cancel := context.WithCancel(m.Context())
	ended := make(chan error, 1)
	go func() { ended <- m.client("").Mirror(ctx, compose.MirrorOptions{MaxTxnOps: 8}) }()
	return func() {
		cancel()
		require.NoError(m, <-ended)
	}
}

// untilLast collects the events of a watch up to one of the value "last", which it ends with.
func untilLast(watch clientv3.WatchChan) <-chan []string {
	done := make(chan []string, 1)
	go func() {
		var events []string
		defer func() { done <- events }()
		for r := range watch {
			if r.Err() != nil {
				events = append(events, r.Err().Error())
			}
			for _, e := range r.Events {
				events = append(events, fmt.Sprintf("%v %v before %v", e.Type, e.Kv, e.PrevKv))
				if string(e.Kv.Value) == "last" {
					events = append(events, "last")
					return
				}
			}
		}
	}()
	return done
}

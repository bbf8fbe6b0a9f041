package compat

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// The same arguments start a server again on its data, however it ended.
func TestRestartKeepsEverything(t *testing.T) {
	own(t, 1, nil, func(t *testing.T, e *env) {
		l, err := e.cli.Grant(e.ctx, 600)
		require.NoError(t, err)
		keys, revs := e.fill(3)
		_, err = e.cli.Put(e.ctx, e.key("a", 0), "leased", clientv3.WithLease(l.ID))
		require.NoError(t, err)
		_, err = e.cli.Delete(e.ctx, e.key("b", 0))
		require.NoError(t, err)
		_, err = e.cli.Compact(e.ctx, revs[3])
		require.NoError(t, err)
		start, end := e.all()
		want, old := e.get(start, end), e.get(start, end, clientv3.WithRev(revs[5]))

		check := func(how string) {
			got, gotOld := e.get(start, end), e.get(start, end, clientv3.WithRev(revs[5]))
			require.Equal(t, fmt.Sprint(want.Kvs), fmt.Sprint(got.Kvs), how)
			require.Equal(t, fmt.Sprint(old.Kvs), fmt.Sprint(gotOld.Kvs), how)
			require.GreaterOrEqual(t, got.Header.Revision, want.Header.Revision, how)
			_, err := e.cli.Get(e.ctx, start, clientv3.WithRev(revs[2]))
			require.ErrorContains(t, err, "compacted", how)
			ttl, err := e.cli.TimeToLive(e.ctx, l.ID, clientv3.WithAttachedKeys())
			require.NoError(t, err, how)
			require.Len(t, ttl.Keys, 1, how)
			evs := collect(t, e.cli.Watch(e.ctx, e.root, clientv3.WithPrefix(), clientv3.WithRev(revs[5]), clientv3.WithPrevKV()), len(keys)-5+2)
			require.Equal(t, "v"+e.key("b", 0), string(evs[len(evs)-1].PrevKv.Value), how)
		}
		check("before")
		for _, s := range e.Servers {
			require.NoError(t, s.Kill())
		}
		require.NoError(t, e.Cluster.Start(t.Context()))
		check("after kill -9 of all")
		for _, s := range e.Servers {
			_, _, err := s.Stop()
			require.NoError(t, err)
			if e.nodes > 1 {
				require.NoError(t, e.Restart(t.Context(), s))
			}
		}
		require.NoError(t, e.Cluster.Start(t.Context()))
		check("after SIGTERM of each")

		require.Greater(t, e.put(keys[1], "goes on"), want.Header.Revision)
		_, err = e.cli.Revoke(e.ctx, l.ID)
		require.NoError(t, err)
		require.Empty(t, e.get(e.key("a", 0)).Kvs)
	})
}

// A follower that was away comes back by the log, and one that was away for longer
// than the log is kept comes back by a snapshot.
func TestFollowerCatchesUp(t *testing.T) {
	args := []string{"--snapshot-count=50", "--snapshot-catchup-entries=10"}
	if !underTest(t).Stoa {
		args = []string{"--snapshot-count=50"}
	}
	own(t, 3, args, func(t *testing.T, e *env) {
		for _, writes := range []int{20, 600} {
			away := e.Servers[(e.leader()+1)%3]
			require.NoError(t, away.Kill())
			rest := make([]string, 0, 2)
			for _, s := range e.Servers {
				if s != away {
					rest = append(rest, s.ClientURL)
				}
			}
			cli := e.client(rest...)
			var rev int64
			for i := range writes {
				resp, err := cli.Put(e.ctx, e.key(dirs[i%8], i%40), strings.Repeat(fmt.Sprint(i), 50))
				require.NoError(t, err)
				rev = resp.Header.Revision
			}
			l, err := cli.Grant(e.ctx, 600)
			require.NoError(t, err)
			start, end := e.all()
			want, err := cli.Get(e.ctx, start, end)
			require.NoError(t, err)

			require.NoError(t, e.Restart(t.Context(), away))
			back := e.client(away.ClientURL)
			require.Eventually(t, func() bool {
				got, err := back.Get(e.ctx, start, end, clientv3.WithSerializable())
				return err == nil && got.Header.Revision >= rev && fmt.Sprint(got.Kvs) == fmt.Sprint(want.Kvs)
			}, time.Minute, 50*time.Millisecond, "%d writes", writes)
			ttl, err := back.TimeToLive(e.ctx, l.ID)
			require.NoError(t, err)
			require.Positive(t, ttl.TTL)
			// Its watches begin where the others' do.
			evs := collect(t, back.Watch(e.ctx, e.root, clientv3.WithPrefix(), clientv3.WithRev(rev)), 1)
			require.Equal(t, rev, evs[0].Kv.ModRevision)
		}
	})
}

// A client's watch continues after its server was killed: no event is lost,
// none comes twice.
func TestWatchGoesOnOverRestarts(t *testing.T) {
	own(t, 3, nil, func(t *testing.T, e *env) {
		w := e.cli.Watch(e.ctx, e.root, clientv3.WithPrefix(), clientv3.WithCreatedNotify())
		require.True(t, next(t, w).Created)
		writer := e.client(e.Endpoints()...)
		const rounds, each = 3, 20
		go func() {
			for i := 0; i < rounds*each; {
				if _, err := writer.Put(e.ctx, e.key(dirs[i%8], i), "v"); err == nil {
					i++
				} else if e.ctx.Err() != nil {
					return
				}
				time.Sleep(20 * time.Millisecond)
			}
		}()
		seen, last := map[string]int64{}, int64(0)
		for round := range rounds {
			s := e.Servers[round%3]
			require.NoError(t, s.Kill())
			time.Sleep(200 * time.Millisecond)
			require.NoError(t, e.Restart(t.Context(), s))
		}
		for len(seen) < rounds*each {
			for _, ev := range next(t, w).Events {
				require.Greater(t, ev.Kv.ModRevision, last)
				last = ev.Kv.ModRevision
				seen[string(ev.Kv.Key)] = last
			}
		}
	})
}

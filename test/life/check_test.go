package life

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/stoa-kv/stoa/test/process"
)

// check looks at everything, after a step.
func (l *life) check(step string) {
	l.t.Helper()
	l.healthy()
	var rev int64
	l.load.still(func() {
		rev = l.sentinel()
		l.compareKeys(rev)
		l.compareHashes()
	})
	l.compareWatches(rev)
	l.leases()
	l.look()
	l.load.mu.Lock()
	defer l.load.mu.Unlock()
	if len(l.load.failures) > 0 {
		l.say("  clients: %d acks, slowest %v, failures %s", len(l.load.acks), l.load.slowest.Round(time.Millisecond), counted(l.load.failures))
	}
	clear(l.load.failures)
	l.load.acks, l.load.slowest = nil, 0
	require.Empty(l.t, l.load.faults, "after %s", step)
}

// healthy waits until every member says so, on each of its pages.
func (l *life) healthy() {
	l.t.Helper()
	web := l.web()
	for _, s := range l.c.Servers {
		for _, page := range []string{"/health", "/livez", "/readyz", "/version", "/debug/pprof/goroutine?debug=1"} {
			var status, body string
			ok := eventually(time.Minute, func() bool {
				status, body = get(web, s.ClientURL+page)
				return status == "200 OK"
			})
			require.True(l.t, ok, "%s%s: %s %.500s\n%s", s.Name, page, status, body, s.LogTail(3000))
		}
	}
}

// sentinel writes a key that watches see last.
func (l *life) sentinel() (rev int64) {
	l.t.Helper()
	l.root(l.c.Endpoints(), func(ctx context.Context, cli *clientv3.Client) {
		for ; ; time.Sleep(100 * time.Millisecond) {
			value := fmt.Sprint("sentinel ", time.Now().UnixNano())
			resp, err := cli.Put(ctx, "/life/sentinel", value)
			if err == nil {
				rev = resp.Header.Revision
				return
			}
			require.NoError(l.t, ctx.Err(), "sentinel: %v", err)
			l.say("  sentinel: %v", err)
		}
	})
	return rev
}

// compareKeys asks each member for all keys.
func (l *life) compareKeys(rev int64) {
	l.t.Helper()
	for _, s := range l.c.Servers {
		l.root([]string{s.ClientURL}, func(ctx context.Context, cli *clientv3.Client) {
			var resp *clientv3.GetResponse
			var err error
			eventually(30*time.Second, func() bool {
				resp, err = cli.Get(ctx, "/life/", clientv3.WithPrefix())
				return err == nil
			})
			require.NoError(l.t, err, "reading at %s", s.Name)
			require.GreaterOrEqual(l.t, resp.Header.Revision, rev, "%s", s.Name)
			l.compareWith(s, resp)
		})
	}
}

func (l *life) compareWith(s *process.Server, resp *clientv3.GetResponse) {
	at := map[string]ack{}
	for _, kv := range resp.Kvs {
		at[string(kv.Key)] = ack{string(kv.Key), string(kv.Value), kv.ModRevision}
	}
	l.load.mu.Lock()
	defer l.load.mu.Unlock()
	for key, c := range l.load.cells {
		is := at[key]
		switch {
		case is == c.ack || c.rev == 0 && is.rev == 0:
		case slices.Contains(c.maybe, is.value) && is.rev > c.rev:
		default:
			l.load.faults = append(l.load.faults, fmt.Sprintf("%s has %+v, acknowledged was %+v (unknown %v)", s.Name, is, c.ack, c.maybe))
		}
	}
}

// compareHashes waits for the members to have the same.
func (l *life) compareHashes() {
	l.t.Helper()
	var hashes map[string]string
	same := func() bool {
		hashes = map[string]string{}
		distinct := map[string]bool{}
		for _, s := range l.c.Servers {
			l.root([]string{s.ClientURL}, func(ctx context.Context, cli *clientv3.Client) {
				resp, err := cli.HashKV(ctx, s.ClientURL, 0)
				if err != nil {
					hashes[s.Name] = err.Error()
					distinct[err.Error()+s.Name] = true
					return
				}
				hashes[s.Name] = fmt.Sprintf("%x at %d (compacted %d)", resp.Hash, resp.HashRevision, resp.CompactRevision)
				distinct[hashes[s.Name]] = true
			})
		}
		return len(distinct) == 1
	}
	require.True(l.t, eventually(20*time.Second, same), "%v", hashes)
}

// compareWatches wants each acknowledged write in each watch, at its revision.
func (l *life) compareWatches(rev int64) {
	l.t.Helper()
	ctx, cancel := context.WithTimeout(l.ctx, time.Minute)
	defer cancel()
	for _, w := range l.watchers {
		require.True(l.t, w.reaches(ctx, rev), "watch %s is at %d, not at %d; %v", w.name, w.next()-1, rev, l.load.failures)
		w.mu.Lock()
		l.load.mu.Lock()
		for _, a := range l.load.acks {
			if at := w.seen[a.value]; at != a.rev && !l.unseen(a) {
				l.load.faults = append(l.load.faults, fmt.Sprintf("watch %s: %+v came at %d", w.name, a, at))
			}
		}
		l.load.mu.Unlock()
		w.mu.Unlock()
	}
}

// unseen are acknowledged writes that came behind the sentinel.
func (l *life) unseen(a ack) bool {
	for _, w := range l.watchers {
		if w.at < a.rev {
			return true
		}
	}
	return false
}

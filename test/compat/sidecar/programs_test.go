package sidecar

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/concurrency"
	"go.etcd.io/etcd/client/v3/leasing"
	"go.etcd.io/etcd/client/v3/mirror"
	"go.etcd.io/etcd/client/v3/namespace"
	"go.etcd.io/etcd/client/v3/ordering"

	"github.com/stoa-kv/stoa/client/recipes"
)

// TestComposedPrograms: what etcd's client packages are made for goes on as it does at the cluster itself, within the keys of one cluster.
func TestComposedPrograms(t *testing.T) {
	t.Parallel()
	w := composedOf(t)
	composed := w.sidecar.ClientURL
	for prefix, direct := range map[string]string{"/s/": w.stoa.Servers[0].ClientURL, "/e/": w.etcd.Servers[0].ClientURL} {
		for way, endpoint := range map[string]string{"direct": direct, "composed": composed} {
			for what, program := range map[string]func(context.Context, world){
				"mutex": mutexes, "election": elections, "stm": transfers, "leasing": leased, "mirror": mirrored, "namespace": namespaced, "ordering": ordered, "lists": listed,
			} {
				t.Run(fmt.Sprintf("%s %s %s", what, prefix, way), func(t *testing.T) {
					program(soon(t), world{t, endpoint, direct, prefix + what + "-" + way + "/"})
				})
			}
		}
	}
}

// TestComposedRecipes: recipes of extensions, in the cluster that has them.
func TestComposedRecipes(t *testing.T) {
	t.Parallel()
	w := composedOf(t)
	for way, endpoint := range map[string]string{"direct": w.stoa.Servers[0].ClientURL, "composed": w.sidecar.ClientURL} {
		t.Run(way, func(t *testing.T) {
			recipesOver(soon(t), world{t, endpoint, "", "/s/" + way + "/"})
		})
	}
}

func recipesOver(ctx context.Context, w world) {
	cli := w.client()
	root := func(recipe string) string {
		at := w.prefix + recipe + "/"
		require.NoError(w, recipes.RegisterAt(ctx, cli, strings.NewReplacer("/", "-").Replace(strings.Trim(at, "/")), recipe, at))
		return at
	}
	lease := func(cli *clientv3.Client) clientv3.LeaseID { return w.session(cli).Lease() }
	results := make(chan string, 10)
	ask := func(what string, do func() error) {
		go func() {
			if err := do(); err != nil {
				what = err.Error()
			}
			results <- what
		}()
	}

	q := root("queue")
	ask("taken one", func() error {
		task, err := recipes.NewQueue(cli, q).Take(ctx, "a", lease(cli))
		if err == nil {
			require.Equal(w, "one", task.Element)
			err = task.Done(ctx)
		}
		return err
	})
	other := w.client()
	time.Sleep(200 * time.Millisecond) // it waits
	_, err := recipes.NewQueue(other, q).Add(ctx, "one")
	require.NoError(w, err)
	require.Equal(w, "taken one", <-results)

	e := root("election")
	one, err := recipes.NewElection(cli, e, "one", lease(cli)).Campaign(ctx)
	require.NoError(w, err)
	ask("two leads", func() error {
		_, err := recipes.NewElection(other, e, "two", lease(other)).Campaign(ctx)
		return err
	})
	time.Sleep(200 * time.Millisecond)
	leader, err := recipes.NewElection(cli, e, "one", 0).Leader(ctx)
	require.NoError(w, err)
	require.Equal(w, "one", leader)
	require.NoError(w, one.Resign(ctx))
	require.Equal(w, "two leads", <-results)

	b := root("barrier")
	require.NoError(w, recipes.NewBarrier(cli, b).SetThreshold(ctx, 3))
	for i := range 3 {
		mine := w.client()
		ask("entered and left", func() error {
			at, id := recipes.NewBarrier(mine, b), strconv.Itoa(i)
			return errors.Join(at.Enter(ctx, id, lease(mine)), at.Leave(ctx, id))
		})
	}
	for range 3 {
		require.Equal(w, "entered and left", <-results)
	}

	sem := root("semaphore")
	first, second := recipes.NewSemaphore(cli, sem, "s"), recipes.NewSemaphore(other, sem, "s")
	require.NoError(w, first.SetLimit(ctx, 1))
	_, err = first.Acquire(ctx, "a", lease(cli))
	require.NoError(w, err)
	ask("acquired", func() error {
		_, err := second.Acquire(ctx, "b", lease(other))
		return err
	})
	time.Sleep(200 * time.Millisecond)
	require.Empty(w, results)
	require.NoError(w, first.Release(ctx, "a"))
	require.Equal(w, "acquired", <-results)

	gone, cancel := context.WithTimeout(ctx, 500*time.Millisecond)
	defer cancel()
	_, err = recipes.NewQueue(cli, q).Take(gone, "c", lease(cli))
	require.ErrorIs(w, err, context.DeadlineExceeded)
	_, err = recipes.NewQueue(other, q).Add(ctx, "two") // which the one that has gone doesn't take
	require.NoError(w, err)
	task, err := recipes.NewQueue(other, q).Take(ctx, "d", lease(other))
	require.NoError(w, err)
	require.Equal(w, "two", task.Element)
}

// world is where a program runs: its endpoint, its cluster's, and a prefix of its own.
type world struct {
	*testing.T
	endpoint, cluster, prefix string
}

func (w world) client() *clientv3.Client { return dial(w.T, w.endpoint, clientv3.Config{}) }

func (w world) session(cli *clientv3.Client) *concurrency.Session {
	s, err := concurrency.NewSession(cli, concurrency.WithTTL(20))
	require.NoError(w, err)
	return s
}

func (w world) put(ctx context.Context, kv clientv3.KV, key, value string) int64 {
	r, err := kv.Put(ctx, key, value)
	require.NoError(w, err)
	return r.Header.Revision
}

func (w world) get(ctx context.Context, kv clientv3.KV, key string) string {
	r, err := kv.Get(ctx, key)
	require.NoError(w, err)
	if len(r.Kvs) == 0 {
		return ""
	}
	return string(r.Kvs[0].Value)
}

// mutexes: five clients count with reads and writes, one at a time.
func mutexes(ctx context.Context, w world) {
	const clients, times = 5, 3
	var all sync.WaitGroup
	for range clients {
		cli := w.client()
		s := w.session(cli)
		all.Go(func() {
			m := concurrency.NewMutex(s, w.prefix+"lock")
			for range times {
				if err := m.Lock(ctx); err != nil {
					w.Error(err)
					return
				}
				n, _ := strconv.Atoi(w.get(ctx, cli, w.prefix+"n"))
				w.put(ctx, cli, w.prefix+"n", strconv.Itoa(n+1))
				if err := m.Unlock(ctx); err != nil {
					w.Error(err)
				}
			}
		})
	}
	all.Wait()
	require.Equal(w, strconv.Itoa(clients*times), w.get(ctx, w.client(), w.prefix+"n"))
}

// elections: an observer sees one leader after the other, one that resigns and one whose lease is lost.
func elections(ctx context.Context, w world) {
	observing := w.client()
	seen := concurrency.NewElection(w.session(observing), w.prefix+"e").Observe(ctx)
	leads := func() string { return string((<-seen).Kvs[0].Value) }
	candidate := func(name string) (*concurrency.Election, *concurrency.Session, chan error) {
		s := w.session(w.client())
		e, elected := concurrency.NewElection(s, w.prefix+"e"), make(chan error, 1)
		go func() { elected <- e.Campaign(ctx, name) }()
		return e, s, elected
	}
	a, _, elected := candidate("a")
	require.NoError(w, <-elected)
	require.Equal(w, "a", leads())
	_, of, second := candidate("b")
	require.Eventually(w, func() bool { // it waits
		r, err := observing.Get(ctx, w.prefix+"e/", clientv3.WithPrefix(), clientv3.WithCountOnly())
		return err == nil && r.Count == 2
	}, limit, 10*time.Millisecond)
	_, _, third := candidate("c")
	require.NoError(w, a.Proclaim(ctx, "a again"))
	require.Equal(w, "a again", leads())
	require.NoError(w, a.Resign(ctx))
	require.NoError(w, <-second)
	require.Equal(w, "b", leads())
	_, err := observing.Revoke(ctx, of.Lease())
	require.NoError(w, err)
	require.NoError(w, <-third)
	require.Equal(w, "c", leads())
}

// transfers: software transactional memory loses no update.
func transfers(ctx context.Context, w world) {
	const clients, times = 4, 5
	w.put(ctx, w.client(), w.prefix+"n", "0")
	var all sync.WaitGroup
	for range clients {
		cli := w.client()
		all.Go(func() {
			for range times {
				_, err := concurrency.NewSTM(cli, func(s concurrency.STM) error {
					n, err := strconv.Atoi(s.Get(w.prefix + "n"))
					s.Put(w.prefix+"n", strconv.Itoa(n+1))
					return err
				}, concurrency.WithAbortContext(ctx))
				if err != nil {
					w.Error(err)
				}
			}
		})
	}
	all.Wait()
	require.Equal(w, strconv.Itoa(clients*times), w.get(ctx, w.client(), w.prefix+"n"))
}

// leased: what one client has leased, another one changes.
func leased(ctx context.Context, w world) {
	open := func() clientv3.KV {
		kv, closes, err := leasing.NewKV(w.client(), w.prefix+"leases")
		require.NoError(w, err)
		w.Cleanup(closes)
		return kv
	}
	one, other := open(), open()
	w.put(ctx, one, w.prefix+"k", "1")
	require.Equal(w, "1", w.get(ctx, one, w.prefix+"k"))
	for n := range 4 {
		value := strconv.Itoa(n)
		w.put(ctx, other, w.prefix+"k", value)
		require.Equal(w, value, w.get(ctx, one, w.prefix+"k"))
		r, err := one.Txn(ctx).If(clientv3.Compare(clientv3.Value(w.prefix+"k"), "=", value)).Then(clientv3.OpPut(w.prefix+"k", "x"+value)).Commit()
		require.NoError(w, err)
		require.True(w, r.Succeeded)
		require.Equal(w, "x"+value, w.get(ctx, other, w.prefix+"k"))
	}
	_, err := other.Delete(ctx, w.prefix+"k")
	require.NoError(w, err)
	require.Empty(w, w.get(ctx, one, w.prefix+"k"))
}

// mirrored: a copy of a prefix at a revision, and what follows.
func mirrored(ctx context.Context, w world) {
	cli := w.client()
	var rev int64
	for i := range 10 {
		rev = w.put(ctx, cli, fmt.Sprintf("%s%d", w.prefix, i), "")
	}
	w.put(ctx, cli, w.prefix+"later", "")
	s := mirror.NewSyncer(cli, w.prefix, rev)
	copied, errs := s.SyncBase(ctx)
	n := 0
	for r := range copied {
		n += len(r.Kvs)
	}
	require.NoError(w, <-errs)
	require.Equal(w, 10, n)
	updates := s.SyncUpdates(ctx)
	r := <-updates
	require.NoError(w, r.Err())
	require.Equal(w, w.prefix+"later", string(r.Events[0].Kv.Key))
}

// namespaced: keys and watches without their prefix.
func namespaced(ctx context.Context, w world) {
	cli := w.client()
	kv, watcher := namespace.NewKV(cli, w.prefix), namespace.NewWatcher(cli, w.prefix)
	all := watcher.Watch(ctx, "", clientv3.WithFromKey(), clientv3.WithCreatedNotify())
	require.True(w, (<-all).Created)
	w.put(ctx, kv, "a", "1")
	r := <-all
	require.NoError(w, r.Err())
	require.Equal(w, "a", string(r.Events[0].Kv.Key))
	got, err := kv.Get(ctx, "", clientv3.WithFromKey())
	require.NoError(w, err)
	require.Equal(w, []string{"a"}, keysOf(got))
}

// ordered: no read goes back behind an earlier one, of the keys of one cluster.
func ordered(ctx context.Context, w world) {
	cli := w.client()
	kv := ordering.NewKV(cli.KV, ordering.NewOrderViolationSwitchEndpointClosure(cli))
	for i := range 20 {
		value := strconv.Itoa(i)
		w.put(ctx, kv, w.prefix+"k", value)
		r, err := kv.Get(ctx, w.prefix+"k", clientv3.WithSerializable())
		require.NoError(w, err)
		require.Equal(w, value, string(r.Kvs[0].Value))
	}
}

// listed: a list in pages at one revision, a watch from there, and both behind a compaction of the cluster.
func listed(ctx context.Context, w world) {
	cli := w.client()
	for i := range 10 {
		w.put(ctx, cli, fmt.Sprintf("%s%d", w.prefix, i), "")
	}
	end := clientv3.GetPrefixRangeEnd(w.prefix)
	page, err := cli.Get(ctx, w.prefix, clientv3.WithRange(end), clientv3.WithLimit(4))
	require.NoError(w, err)
	at, keys := page.Header.Revision, keysOf(page)
	w.put(ctx, cli, w.prefix+"5", "changed")
	_, err = cli.Delete(ctx, w.prefix+"9")
	require.NoError(w, err)
	for page.More {
		page, err = cli.Get(ctx, keys[len(keys)-1]+"\x00", clientv3.WithRange(end), clientv3.WithLimit(4), clientv3.WithRev(at))
		require.NoError(w, err)
		keys = append(keys, keysOf(page)...)
	}
	require.Len(w, keys, 10)
	watch := cli.Watch(clientv3.WithRequireLeader(ctx), w.prefix, clientv3.WithPrefix(), clientv3.WithRev(at+1), clientv3.WithPrevKV(), clientv3.WithProgressNotify())
	var events []*clientv3.Event
	for len(events) < 2 {
		r := <-watch
		require.NoError(w, r.Err())
		events = append(events, r.Events...)
	}
	require.Equal(w, "changed", string(events[0].Kv.Value))
	require.NotNil(w, events[0].PrevKv)
	require.Equal(w, clientv3.EventTypeDelete, events[1].Type)

	last := events[1].Kv.ModRevision
	_, err = dial(w.T, w.cluster, clientv3.Config{}).Compact(ctx, last)
	require.NoError(w, err)
	r := <-cli.Watch(ctx, w.prefix, clientv3.WithPrefix(), clientv3.WithRev(at))
	require.ErrorIs(w, r.Err(), rpctypes.ErrCompacted)
	require.Equal(w, last, r.CompactRevision)
	_, err = cli.Get(ctx, w.prefix, clientv3.WithPrefix(), clientv3.WithRev(at))
	require.ErrorIs(w, err, rpctypes.ErrCompacted)
	_, err = cli.Get(ctx, w.prefix, clientv3.WithPrefix(), clientv3.WithRev(last+1000))
	require.ErrorIs(w, err, rpctypes.ErrFutureRev)
	next := w.put(ctx, cli, w.prefix+"next", "")
	r = <-watch
	require.NoError(w, r.Err())
	require.Equal(w, next, r.Events[0].Kv.ModRevision)
}

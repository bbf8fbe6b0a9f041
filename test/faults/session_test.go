//go:build faults

package faults

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"

	stoa "github.com/stoa-kv/stoa/client"
	"github.com/stoa-kv/stoa/test/process"
)

// sessionRoot is above all keys that sessions write: eight directories, so several
// partitions, of four keys.
const sessionRoot = "/session/"

func sessionKey(rnd *rand.Rand) string {
	return fmt.Sprintf("%s%c/%d", sessionRoot, 'a'+rnd.IntN(8), rnd.IntN(4))
}

// rig is a cluster with sessions on it.
type rig struct {
	t       *testing.T
	cluster *process.Cluster
	clients []*stoa.Client
	started time.Time
	tokens  atomic.Int64 // the highest that any session has seen and handed out

	mu    sync.Mutex
	lives []life
}

func newRig(t *testing.T, parts int) *rig {
	requireStoa(t)
	r := &rig{t: t, started: time.Now(), cluster: process.StartT(t, process.Spec{Nodes: 3, Partitions: parts})}
	return r
}

// client is one for all servers, or bound to one.
func (r *rig) client() *stoa.Client {
	c, err := stoa.New(stoa.Config{Endpoints: r.cluster.Endpoints(), TTL: time.Minute, DialTimeout: time.Second})
	require.NoError(r.t, err)
	r.t.Cleanup(func() { c.Close() })
	return c
}

func (r *rig) now() int64 { return int64(time.Since(r.started)) }

// place is where a session goes: to the leader as it finds it, or always to one server.
func (r *rig) place(i int) []stoa.SessionOption {
	if i%2 == 0 {
		return nil
	}
	return []stoa.SessionOption{stoa.WithEndpoints(r.cluster.Servers[i/2%len(r.cluster.Servers)].ClientURL)}
}

// nemesis hurts the cluster until ctx ends.
func (r *rig) nemesis(ctx context.Context, seed uint64, names []string) {
	n := &nemesis{cluster: r.cluster, rnd: rand.New(rand.NewPCG(seed, 99)), say: func(f string, a ...any) {
		r.t.Logf("%6.2fs %s", time.Since(r.started).Seconds(), fmt.Sprintf(f, a...))
	}}
	count, err := n.run(ctx, names)
	require.NoError(r.t, err)
	r.t.Logf("%d faults", count)
}

// history reads all changes below a prefix through a watch from revision 1, with
// etcd's client, once writes go through again; and what their last revision is.
func (r *rig) history(prefix string) ([]effect, int64) {
	ctx := contextFor(r.t, time.Minute)
	cli, err := clientv3.New(clientv3.Config{Endpoints: r.cluster.Endpoints()})
	require.NoError(r.t, err)
	defer cli.Close()
	var stop int64
	require.Eventually(r.t, func() bool {
		put, err := cli.Put(ctx, prefix+"last", "last")
		if err == nil {
			stop = put.Header.Revision
		}
		return err == nil
	}, 30*time.Second, 100*time.Millisecond, "writes don't resume")
	var all []effect
	for w := range cli.Watch(ctx, prefix, clientv3.WithPrefix(), clientv3.WithRev(1)) {
		require.NoError(r.t, w.Err())
		for _, e := range w.Events {
			if e.Kv.ModRevision >= stop {
				return all, stop
			}
			all = append(all, effect{e.Kv.ModRevision, string(e.Kv.Key), string(e.Kv.Value)})
		}
	}
	r.t.Fatal("the final watch ended: ", ctx.Err())
	return nil, 0
}

// pending is a request whose answer hasn't been looked at.
type pending struct {
	at   int
	wait func(context.Context, *step) error
}

// live opens one session after the other, when one is lost, and has them send requests
// until ctx ends.
func (r *rig) live(ctx context.Context, i int, seed uint64) {
	rnd := rand.New(rand.NewPCG(seed, uint64(i)))
	c := r.client()
	for n := 0; ctx.Err() == nil; n++ {
		s, err := c.Session(ctx, r.place(i)...)
		if err != nil {
			if ctx.Err() == nil {
				r.t.Logf("session %d.%d: %v", i, n, err)
			}
			continue
		}
		l := &life{name: fmt.Sprintf("%d.%d", i, n)}
		r.drive(ctx, s, l, rnd)
		r.mu.Lock()
		r.lives = append(r.lives, *l)
		r.mu.Unlock()
	}
}

// patience is how long a session may take to answer what it was asked, when the faults
// are over.
const patience = time.Minute

// drive sends bursts of requests without waiting for answers, over whatever partitions.
// It looks at answers in the order of the requests, when many are under way, and when
// the session has ended.
func (r *rig) drive(ctx context.Context, s *stoa.Session, l *life, rnd *rand.Rand) {
	collect, cancel := context.WithTimeout(context.Background(), *loadTime+patience)
	defer cancel()
	var under []pending
	most := []int{1, 20, 200}[rnd.IntN(3)] // how impatient the session is
	for ctx.Err() == nil && s.Err() == nil {
		for range 1 + rnd.IntN(most) {
			under = append(under, r.ask(s, l, rnd))
		}
		for len(under) > most {
			r.settle(collect, l, under[0])
			under = under[1:]
		}
		time.Sleep(time.Duration(rnd.IntN(10*most)) * time.Millisecond / 4)
	}
	for _, p := range under {
		r.settle(collect, l, p)
	}
	if err := s.Err(); err != nil {
		r.t.Logf("session %s ended: %v", l.name, err)
	}
	closing, done := context.WithTimeout(context.Background(), 5*time.Second)
	defer done()
	_ = s.Close(closing)
}

func (r *rig) settle(ctx context.Context, l *life, p pending) {
	s := &l.steps[p.at]
	if err := p.wait(ctx, s); err != nil {
		return // not answered: it took effect or not
	}
	s.answered, s.returned = true, r.now()
	if s.write {
		// Whoever has an answer may tell others of it.
		for t := r.tokens.Load(); s.rev > t && !r.tokens.CompareAndSwap(t, s.rev); t = r.tokens.Load() {
		}
	}
}

// ask sends one request.
func (r *rig) ask(s *stoa.Session, l *life, rnd *rand.Rand) pending {
	p := pending{at: len(l.steps)}
	st := step{sent: r.now()}
	if rnd.IntN(3) > 0 {
		st.write, st.key, st.value = true, sessionKey(rnd), l.name+"-"+strconv.Itoa(p.at)
		f := s.PutAsync(st.key, st.value)
		p.wait = func(ctx context.Context, st *step) error {
			got, err := f.Wait(ctx)
			if err == nil {
				st.rev = got.Header.Revision
			}
			return err
		}
		l.steps = append(l.steps, st)
		return p
	}
	st.level = []stoa.Level{stoa.Strict, stoa.Causal, stoa.Causal, stoa.Fast}[rnd.IntN(4)]
	if p.at > 0 {
		st.token = l.steps[p.at-1].token
	}
	if rnd.IntN(4) == 0 {
		st.token = max(st.token, r.tokens.Load())
		s.See(stoa.Token(st.token))
	}
	var f *stoa.Future[*clientv3.GetResponse]
	if rnd.IntN(2) == 0 {
		st.key = sessionKey(rnd)
		f = s.At(st.level).GetAsync(st.key)
	} else {
		f = s.At(st.level).GetAsync(sessionRoot, clientv3.WithPrefix())
	}
	p.wait = func(ctx context.Context, st *step) error {
		got, err := f.Wait(ctx)
		if err != nil {
			return err
		}
		st.rev, st.found = got.Header.Revision, map[string]string{}
		for _, kv := range got.Kvs {
			st.found[string(kv.Key)] = string(kv.Value)
		}
		return nil
	}
	l.steps = append(l.steps, st)
	return p
}

// TestSessions: sessions send reads and writes of several partitions without waiting,
// through the leader and through followers, while servers are killed and stopped.
func TestSessions(t *testing.T) {
	cases := map[string][]string{
		"kill":  {"kill one", "kill the leader", "kill the leader", "kill two", "kill one twice", "move the leader"},
		"pause": {"pause one", "pause the leader", "pause two", "pause the leader for long", "move the leader", "pause one, kill another"},
		"move":  {"move the leader"},
	}
	for _, parts := range []int{1, 4} {
		for _, name := range []string{"kill", "pause", "move"} {
			t.Run(fmt.Sprintf("%s/P=%d", name, parts), func(t *testing.T) { runSessions(t, parts, cases[name]) })
		}
	}
}

func runSessions(t *testing.T, parts int, names []string) {
	seed := seedOf(t)
	r := newRig(t, parts)
	ctx, cancel := context.WithTimeout(t.Context(), *loadTime)
	defer cancel()
	eyes := r.startWatcher(t.Context())
	var work sync.WaitGroup
	for i := range *clients {
		work.Go(func() { r.live(ctx, i, seed) })
	}
	r.nemesis(ctx, seed, names)
	work.Wait()
	history, stop := r.history(sessionRoot)
	eyes.wait(stop)

	rec := newRecord(history)
	writes, answered, reads := 0, 0, 0
	for _, l := range r.lives {
		for _, s := range l.steps {
			switch {
			case !s.write && s.answered:
				reads++
			case s.write && s.answered:
				answered++
				fallthrough
			case s.write:
				writes++
			}
		}
	}
	t.Logf("%d sessions, %d writes sent, %d answered, %d took effect; %d reads answered; %d looks at watches",
		len(r.lives), writes, answered, len(history), reads, len(eyes.saw))
	require.Greater(t, answered, 100, "hardly anything was done")
	require.Greater(t, reads, 50, "hardly anything was done")
	require.NoError(t, checkOnce(r.lives, rec))
	require.NoError(t, checkAcknowledged(r.lives, rec))
	require.NoError(t, checkFIFO(r.lives, rec))
	require.NoError(t, checkPrefix(r.lives, rec))
	require.NoError(t, checkReads(r.lives, rec))
	require.NoError(t, checkStrict(r.lives))
	require.NoError(t, checkWatches("the watcher", eyes.saw, history, eyes.from, stop-1))
	requireSameHash(t, contextFor(t, time.Minute), r.cluster, stop)
}

func seedOf(t *testing.T) uint64 {
	seed := *seedFlag
	if seed == 0 {
		seed = uint64(time.Now().UnixNano())
	}
	t.Logf("seed %d", seed)
	return seed
}

// watcher is a session with an ordered watch for every directory, and reads between
// their events.
type watcher struct {
	r    *rig
	from int64
	done chan struct{}
	stop atomic.Int64
	saw  []sighting
}

func (r *rig) startWatcher(ctx context.Context) *watcher {
	s, err := r.client().Session(ctx, r.place(1)...)
	require.NoError(r.t, err)
	w := &watcher{r: r, done: make(chan struct{})}
	feed := stoa.NewFeed()
	for d := range 8 {
		_, err := s.WatchInto(ctx, feed, fmt.Sprintf("%s%c/", sessionRoot, 'a'+d), clientv3.WithPrefix(), clientv3.WithRev(1))
		require.NoError(r.t, err)
	}
	go func() {
		defer close(w.done)
		w.look(ctx, s, feed)
	}()
	return w
}

// look reads now and then, and takes what the feed holds: at the latest when the answer
// to a read has come, all events that it reflects are there.
func (w *watcher) look(ctx context.Context, s *stoa.Session, feed *stoa.Feed) {
	rnd := rand.New(rand.NewPCG(1, 1))
	for ctx.Err() == nil {
		got, err := s.At(stoa.Causal).Get(ctx, sessionKey(rnd))
		if err != nil {
			w.r.t.Errorf("the watcher's read: %v", err)
			return
		}
		for n, ok := feed.TryNext(); ok; n, ok = feed.TryNext() {
			if n.Err != nil {
				w.r.t.Errorf("the watcher: %v", n.Err)
				return
			}
			for _, e := range n.Events {
				w.saw = append(w.saw, sighting{effect: effect{e.Kv.ModRevision, string(e.Kv.Key), string(e.Kv.Value)}})
			}
		}
		w.saw = append(w.saw, sighting{read: true, effect: effect{rev: got.Header.Revision}})
		if stop := w.stop.Load(); stop > 0 && got.Header.Revision >= stop {
			return
		}
		time.Sleep(time.Duration(rnd.IntN(20)) * time.Millisecond)
	}
}

// wait waits until the watcher has seen everything up to a revision.
func (w *watcher) wait(stop int64) {
	w.stop.Store(stop)
	select {
	case <-w.done:
	case <-time.After(patience):
		w.r.t.Fatalf("the watcher doesn't come to revision %d", stop)
	}
}

// TestReady is AGORA's example: one client prepares data of several partitions and then
// says that it is ready, all without waiting; others, on servers that lag, see that it
// is ready and read the data.
func TestReady(t *testing.T) {
	for _, parts := range []int{1, 4} {
		t.Run(fmt.Sprintf("P=%d", parts), func(t *testing.T) { runReady(t, parts) })
	}
}

func runReady(t *testing.T, parts int) {
	seed := seedOf(t)
	r := newRig(t, parts)
	ctx, cancel := context.WithTimeout(t.Context(), *loadTime)
	defer cancel()
	var work sync.WaitGroup
	work.Go(func() { r.prepare(ctx) })
	readers := make([][]glimpse, 2*len(r.cluster.Servers))
	for i := range readers {
		work.Go(func() { readers[i] = r.glimpses(ctx, i) })
	}
	r.nemesis(ctx, seed, []string{"kill one", "kill the leader", "pause one", "pause the leader", "move the leader"})
	work.Wait()
	rounds := 0
	for i, saw := range readers {
		require.NoError(t, checkReady(fmt.Sprintf("reader %d", i), saw))
		if len(saw) > 0 {
			rounds = max(rounds, saw[len(saw)-1].ready)
			t.Logf("reader %d: %d looks, the last at round %d", i, len(saw), saw[len(saw)-1].ready)
		}
	}
	require.Greater(t, rounds, 20, "hardly anything was done")
}

const dataKeys = 5

func dataKey(i int) string { return fmt.Sprintf("/data_%d/x", i) }

// prepare writes round after round.
func (r *rig) prepare(ctx context.Context) {
	s, err := r.client().Session(ctx)
	if err != nil {
		r.t.Errorf("preparing: %v", err)
		return
	}
	var ready []*stoa.Future[*clientv3.PutResponse]
	for round := 1; ctx.Err() == nil; round++ {
		for i := range dataKeys {
			s.PutAsync(dataKey(i), strconv.Itoa(round))
		}
		ready = append(ready, s.PutAsync("/ready", strconv.Itoa(round)))
		if len(ready) > 3 {
			if _, err := ready[0].Wait(ctx); err != nil && ctx.Err() == nil {
				r.t.Errorf("preparing: %v", err)
				return
			}
			ready = ready[1:]
		}
	}
}

// glimpses looks at the example through a causal session, half of the readers through
// one server always.
func (r *rig) glimpses(ctx context.Context, i int) (saw []glimpse) {
	s, err := r.client().Session(ctx, append(r.place(i), stoa.WithLevel(stoa.Causal))...)
	if err != nil {
		r.t.Errorf("reading: %v", err)
		return nil
	}
	for ctx.Err() == nil {
		all := []*stoa.Future[*clientv3.GetResponse]{s.GetAsync("/ready")}
		for k := range dataKeys {
			all = append(all, s.GetAsync(dataKey(k)))
		}
		var rounds []int
		for _, f := range all {
			got, err := f.Wait(ctx)
			if err != nil {
				if ctx.Err() == nil {
					r.t.Errorf("reading: %v", err)
				}
				return saw
			}
			round := 0
			for _, kv := range got.Kvs {
				round, _ = strconv.Atoi(strings.TrimSpace(string(kv.Value)))
			}
			rounds = append(rounds, round)
		}
		saw = append(saw, glimpse{rounds[0], slices.Clone(rounds[1:])})
	}
	return saw
}

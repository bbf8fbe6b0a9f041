//go:build faults

package faults

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"google.golang.org/grpc"

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
	started time.Time
	tokens  atomic.Int64 // the highest that any session has seen and handed out

	mu       sync.Mutex
	lives    []life
	problems complaints
}

// newRig starts servers: those under test, or a given binary.
func newRig(t *testing.T, parts int, bin process.Binary) *rig {
	requireStoa(t)
	return &rig{t: t, started: time.Now(), cluster: start(t, process.Spec{Binary: bin, Nodes: 3, Partitions: parts})}
}

// complain records an error; any goroutine may call it.
func (r *rig) complain(format string, args ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.problems.add(format, args...)
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

// nemesis injects faults until ctx ends.
func (r *rig) nemesis(ctx context.Context, seed uint64, names []string) {
	done, err := newNemesis(r.t, r.cluster, seed, r.started).run(ctx, names)
	if err != nil {
		r.complain("the faults: %w", err)
	}
	r.t.Logf("%d faults", tally(r.t, done))
}

// history reads all changes below a prefix through a watch from revision 1, with
// etcd's client, once writes go through again; and what their last revision is.
func (r *rig) history(prefix string) (all []effect, stop int64, err error) {
	ctx := contextFor(r.t, time.Minute)
	cli, err := clientv3.New(clientv3.Config{Endpoints: r.cluster.Endpoints(), Logger: zap.NewNop()})
	if err != nil {
		return nil, 0, err
	}
	defer cli.Close()
	for stop == 0 {
		put, err := cli.Put(ctx, prefix+"last", "last")
		if err == nil {
			stop = put.Header.Revision
		} else if ctx.Err() != nil {
			return nil, 0, fmt.Errorf("writes don't resume: %w", err)
		}
	}
	for w := range cli.Watch(ctx, prefix, clientv3.WithPrefix(), clientv3.WithRev(1)) {
		if err := w.Err(); err != nil {
			return nil, 0, fmt.Errorf("the final watch: %w", err)
		}
		for _, e := range w.Events {
			if e.Kv.ModRevision >= stop {
				return all, stop, nil
			}
			all = append(all, effect{e.Kv.ModRevision, string(e.Kv.Key), string(e.Kv.Value)})
		}
	}
	return nil, 0, fmt.Errorf("the final watch ended: %w", ctx.Err())
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

// answerTimeout is how long a session may take to answer what it was asked, when the faults
// are over.
const answerTimeout = time.Minute

// drive sends bursts of requests without waiting for answers, over all
// partitions. It looks at answers in the order of the requests, when many are
// under way, and when the session has ended.
func (r *rig) drive(ctx context.Context, s *stoa.Session, l *life, rnd *rand.Rand) {
	collect, cancel := context.WithTimeout(context.Background(), *loadTime+answerTimeout)
	defer cancel()
	var under []pending
	most := []int{1, 20, 200}[rnd.IntN(3)] // requests in flight at most
	for ctx.Err() == nil && s.Err() == nil {
		for range 1 + rnd.IntN(most) {
			under = append(under, r.ask(s, l, rnd))
		}
		for len(under) > most {
			r.collect(collect, l, under[0])
			under = under[1:]
		}
		time.Sleep(time.Duration(rnd.IntN(10*most)) * time.Millisecond / 4)
	}
	for _, p := range under {
		r.collect(collect, l, p)
	}
	if err := s.Err(); err != nil {
		r.t.Logf("session %s ended: %v", l.name, err)
	}
	closing, done := context.WithTimeout(context.Background(), 5*time.Second)
	defer done()
	_ = s.Close(closing)
}

func (r *rig) collect(ctx context.Context, l *life, p pending) {
	s := &l.steps[p.at]
	if err := p.wait(ctx, s); err != nil {
		return // not answered: it took effect or not
	}
	s.answered, s.returned = true, r.now()
	if s.write {
		// The client may have passed the answer's revision on.
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
	t.Run("clocks", func(t *testing.T) { runSessions(t, 4, clocks) })
}

func runSessions(t *testing.T, parts int, names []string) {
	r := newRig(t, parts, binaryFor(t, names))
	require.NoError(t, r.sessions(*loadTime, names))
	require.Greater(t, r.count(func(s step) bool { return s.write && s.answered }), 100, "hardly anything was done")
	require.Greater(t, r.count(func(s step) bool { return !s.write && s.answered }), 50, "hardly anything was done")
}

func (r *rig) count(which func(step) bool) (n int) {
	for _, l := range r.lives {
		for _, s := range l.steps {
			if which(s) {
				n++
			}
		}
	}
	return n
}

// sessions runs sessions under faults, and checks their answers.
func (r *rig) sessions(length time.Duration, names []string) error {
	seed := seedOf(r.t)
	ctx, cancel := context.WithTimeout(r.t.Context(), length)
	defer cancel()
	eyes := r.startWatcher(r.t.Context())
	var work sync.WaitGroup
	for i := range *clients {
		work.Go(func() { r.live(ctx, i, seed) })
	}
	r.nemesis(ctx, seed, names)
	work.Wait()
	history, stop, err := r.history(sessionRoot)
	if err != nil {
		return errors.Join(err, r.problems.err())
	}
	saw := eyes.wait(stop)
	r.t.Logf("%d sessions, %d writes sent, %d answered, %d took effect; %d reads answered; %d looks at watches", len(r.lives),
		r.count(func(s step) bool { return s.write }), r.count(func(s step) bool { return s.write && s.answered }), len(history),
		r.count(func(s step) bool { return !s.write && s.answered }), len(saw))
	rec := newRecord(history)
	return errors.Join(checkOnce(r.lives, rec), checkAcknowledged(r.lives, rec), checkFIFO(r.lives, rec), checkPrefix(r.lives, rec),
		checkReads(r.lives, rec), checkStrict(r.lives), checkWatches("the watcher", saw, history, 0, stop-1),
		r.sameContent(stop), r.problems.err())
}

// sameContent compares the servers by their hashes.
func (r *rig) sameContent(rev int64) error {
	hashes := map[uint32][]string{}
	for _, s := range r.cluster.Servers {
		conn, err := dial(s.ClientURL)
		if err != nil {
			return err
		}
		defer conn.Close()
		h, err := pb.NewMaintenanceClient(conn).HashKV(contextFor(r.t, 30*time.Second), &pb.HashKVRequest{Revision: rev}, grpc.WaitForReady(true))
		if err != nil {
			return fmt.Errorf("the hash of %s: %w", s.Name, err)
		}
		hashes[h.Hash] = append(hashes[h.Hash], s.Name)
	}
	if len(hashes) > 1 {
		return fmt.Errorf("the servers' contents differ: %v", hashes)
	}
	return nil
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
	done chan struct{}
	stop atomic.Int64

	mu  sync.Mutex
	saw []sighting
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
		if err := w.look(ctx, s, feed); err != nil && ctx.Err() == nil {
			r.complain("the watcher: %w", err)
		}
	}()
	return w
}

// look reads now and then, and takes what the feed holds: at the latest when the answer
// to a read has come, all events that it reflects are there.
func (w *watcher) look(ctx context.Context, s *stoa.Session, feed *stoa.Feed) error {
	rnd := rand.New(rand.NewPCG(1, 1))
	for ctx.Err() == nil {
		got, err := s.At(stoa.Causal).Get(ctx, sessionKey(rnd))
		if err != nil {
			return err
		}
		if err := w.take(feed, got.Header.Revision); err != nil {
			return err
		}
		if stop := w.stop.Load(); stop > 0 && got.Header.Revision >= stop {
			return nil
		}
		time.Sleep(time.Duration(rnd.IntN(20)) * time.Millisecond)
	}
	return ctx.Err()
}

func (w *watcher) take(feed *stoa.Feed, read int64) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	for n, ok := feed.TryNext(); ok; n, ok = feed.TryNext() {
		if n.Err != nil {
			return n.Err
		}
		for _, e := range n.Events {
			w.saw = append(w.saw, sighting{effect: effect{e.Kv.ModRevision, string(e.Kv.Key), string(e.Kv.Value)}})
		}
	}
	w.saw = append(w.saw, sighting{read: true, effect: effect{rev: read}})
	return nil
}

// wait waits until the watcher has seen everything up to a revision.
func (w *watcher) wait(stop int64) []sighting {
	w.stop.Store(stop)
	select {
	case <-w.done:
	case <-time.After(answerTimeout):
		w.r.complain("the watcher doesn't come to revision %d", stop)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.saw)
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
	r := newRig(t, parts, process.Binary{})
	rounds, err := r.ready(*loadTime)
	require.NoError(t, err)
	require.Greater(t, rounds, 20, "hardly anything was done")
}

// ready has one session prepare and others read, and checks their answers.
func (r *rig) ready(length time.Duration) (rounds int, err error) {
	seed := seedOf(r.t)
	ctx, cancel := context.WithTimeout(r.t.Context(), length)
	defer cancel()
	var work sync.WaitGroup
	work.Go(func() { r.prepare(ctx) })
	readers := make([][]glimpse, 2*len(r.cluster.Servers))
	for i := range readers {
		work.Go(func() { readers[i] = r.glimpses(ctx, i) })
	}
	r.nemesis(ctx, seed, []string{"kill one", "kill the leader", "pause one", "pause the leader", "move the leader"})
	work.Wait()
	for i, saw := range readers {
		err = errors.Join(err, checkReady(fmt.Sprintf("reader %d", i), saw))
		if len(saw) > 0 {
			rounds = max(rounds, saw[len(saw)-1].ready)
			r.t.Logf("reader %d: %d looks, the last at round %d", i, len(saw), saw[len(saw)-1].ready)
		}
	}
	return rounds, errors.Join(err, r.problems.err())
}

const dataKeys = 5

func dataKey(i int) string { return fmt.Sprintf("/data_%d/x", i) }

// prepare writes round after round.
func (r *rig) prepare(ctx context.Context) {
	s, err := r.client().Session(ctx)
	if err != nil {
		r.complain("preparing: %w", err)
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
				r.complain("preparing: %w", err)
				return
			}
			ready = ready[1:]
		}
	}
}

// glimpses looks at the example through causal sessions. Every other reader reads the
// data on another server than /ready, with a session that was told what the first saw.
func (r *rig) glimpses(ctx context.Context, i int) (saw []glimpse) {
	first, err := r.client().Session(ctx, append(r.place(i), stoa.WithLevel(stoa.Causal))...)
	if err != nil {
		r.complain("reading: %w", err)
		return nil
	}
	second := first
	if i%2 == 1 {
		if second, err = r.client().Session(ctx, append(r.place(i+2), stoa.WithLevel(stoa.Causal))...); err != nil {
			r.complain("reading: %w", err)
			return nil
		}
	}
	for ctx.Err() == nil {
		g, err := look(ctx, first, second)
		if err != nil {
			if ctx.Err() == nil {
				r.complain("reading: %w", err)
			}
			return saw
		}
		saw = append(saw, g)
	}
	return saw
}

func look(ctx context.Context, first, second *stoa.Session) (g glimpse, err error) {
	if g.ready, err = roundOf(ctx, first.GetAsync("/ready")); err != nil {
		return g, err
	}
	second.See(first.Token())
	var all []*stoa.Future[*clientv3.GetResponse]
	for k := range dataKeys {
		all = append(all, second.GetAsync(dataKey(k)))
	}
	for _, f := range all {
		round, err := roundOf(ctx, f)
		if err != nil {
			return g, err
		}
		g.data = append(g.data, round)
	}
	return g, nil
}

// roundOf is the round that a key says, 0 if there is none.
func roundOf(ctx context.Context, f *stoa.Future[*clientv3.GetResponse]) (int, error) {
	got, err := f.Wait(ctx)
	if err != nil || len(got.Kvs) == 0 {
		return 0, err
	}
	return strconv.Atoi(string(got.Kvs[0].Value))
}

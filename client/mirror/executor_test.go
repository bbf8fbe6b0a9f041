package mirror

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

var tiny = Limits{Ops: 3, Bytes: 200}

// trial is one random history: executors that start and die, a source that is written and
// compacted.
type trial struct {
	t      *rapid.T
	w      *world
	source *modelSource
	target *modelTarget
	runs   map[int]*run
	next   int
}

// run is a running executor.
type run struct {
	cancel context.CancelFunc
	done   chan struct{}
	err    error
}

func (h *trial) config(id int) Config {
	return Config{
		Source: h.source.of(id), Target: targetOf{h.target, id}, Owner: fmt.Sprint(id), Limits: tiny, Writers: 2,
		Retry: func(_ context.Context, err error) bool { return errors.Is(err, errLost) },
	}
}

func (h *trial) start() {
	id := h.next
	h.next++
	ctx, cancel := context.WithCancel(context.Background())
	r := &run{cancel: cancel, done: make(chan struct{})}
	h.runs[id] = r
	go func() {
		defer close(r.done)
		r.err = follow(ctx, h.config(id))
	}()
}

func follow(ctx context.Context, c Config) error {
	e, err := Open(ctx, c)
	if err != nil {
		return err
	}
	defer e.Close()
	for {
		if err := e.Next(ctx, ctx); err != nil {
			return err
		}
	}
}

// reap forgets executors that have ended, which they may only for one reason.
func (h *trial) reap() {
	for id, r := range h.runs {
		select {
		case <-r.done:
			r.cancel()
			delete(h.runs, id)
			require.ErrorIs(h.t, r.err, ErrTakenOver)
			require.NotEqual(h.t, fmt.Sprintf("%s: %d", ErrTakenOver, id), r.err.Error(), "by itself")
		default:
		}
	}
}

// check is invariant 1.
func (h *trial) check() {
	if h.target.at == 0 {
		return
	}
	m, err := ParseMark(h.target.mark)
	require.NoError(h.t, err)
	if m.Phase == At {
		require.Equal(h.t, h.source.states[m.Revision], h.target.state, "at %d", m.Revision)
		require.Empty(h.t, h.target.leases)
	}
	require.LessOrEqual(h.t, h.target.ops, tiny.Ops)
}

func (h *trial) write() {
	var changes []Change
	for range rapid.SampledFrom([]int{1, 1, 1, 2, 5, 9}).Draw(h.t, "changes") {
		c := Change{Key: []byte(rapid.SampledFrom([]string{"a", "b", "c", "d", "e", "f", "g", "h", "i"}).Draw(h.t, "key"))}
		if c.Deleted = rapid.IntRange(0, 2).Draw(h.t, "deleted") == 0; !c.Deleted {
			c.Value = fmt.Append(nil, h.source.revision()+1, len(changes))
		}
		changes = append(changes, c)
	}
	h.source.write(changes)
}

func (h *trial) act() {
	waiting := h.w.sorted()
	actions := []string{"write", "write", "compact", "start", "kill", "late"}
	for range waiting {
		actions = append(actions, "answer", "answer", "answer", "answer")
	}
	switch rapid.SampledFrom(actions).Draw(h.t, "action") {
	case "write":
		h.write()
	case "compact":
		h.source.compact(int64(rapid.IntRange(1, int(h.source.revision())).Draw(h.t, "at")))
	case "start":
		if len(h.runs) < 3 {
			h.start()
		}
	case "kill":
		for _, id := range slicesSorted(h.runs) {
			if rapid.IntRange(0, 2).Draw(h.t, "killed") == 0 {
				h.runs[id].cancel()
				<-h.runs[id].done
				delete(h.runs, id)
			}
		}
	case "late":
		if n := len(h.w.late); n > 0 {
			i := rapid.IntRange(0, n-1).Draw(h.t, "late")
			do := h.w.late[i]
			h.w.late = append(h.w.late[:i:i], h.w.late[i+1:]...)
			do()
		}
	case "answer":
		r := rapid.SampledFrom(waiting).Draw(h.t, "request")
		h.w.settle(r, rapid.SampledFrom([]string{"done", "done", "done", "done", "done", "done", "answer lost", "lost", "late"}).Draw(h.t, "verdict"))
	}
}

func slicesSorted(runs map[int]*run) (ids []int) {
	for id := range 1 << 16 {
		if _, ok := runs[id]; ok {
			ids = append(ids, id)
		}
		if len(ids) == len(runs) {
			break
		}
	}
	return ids
}

// end lets a last executor finish in peace: it must get the target to where the source is.
func (h *trial) end() {
	for _, r := range h.runs {
		r.cancel()
		<-r.done
	}
	h.w.calm = true
	e, err := Open(context.Background(), h.config(h.next))
	require.NoError(h.t, err)
	for {
		n, err := e.Behind(context.Background())
		require.NoError(h.t, err)
		if n == 0 {
			break
		}
		require.NoError(h.t, e.Next(context.Background(), context.Background()))
	}
	require.Equal(h.t, h.source.states[h.source.revision()], h.target.state)
	h.check()
	for _, do := range h.w.late { // however late
		do()
		h.check()
	}
	require.NoError(h.t, e.Finish(context.Background()))
	require.Zero(h.t, h.target.at)
}

func (h *trial) play(actions int) {
	defer func() {
		for _, r := range h.runs {
			r.cancel()
		}
	}()
	for range actions {
		synctest.Wait()
		h.reap()
		h.check()
		h.act()
	}
	synctest.Wait()
	h.check()
	h.end()
}

// Whatever crashes, is lost, comes late or is compacted, and however many executors there
// are: wherever the mark says so the target is what the source was.
func TestHistories(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		w := &world{}
		h := &trial{t: rt, w: w, source: newModelSource(w), target: newModelTarget(w), runs: map[int]*run{}}
		h.source.lazy = rapid.Bool().Draw(rt, "lazy feeds")
		for range rapid.IntRange(0, 12).Draw(rt, "keys before") {
			h.write()
		}
		actions := rapid.IntRange(0, 250).Draw(rt, "actions")
		var failed any
		synctest.Test(t, func(*testing.T) {
			defer func() { failed = recover() }() // rapid's own, on another goroutine
			h.play(actions)
		})
		if failed != nil {
			panic(failed)
		}
	})
}

// calm is a pair of clusters in which nothing fails.
func calm(keys ...string) (*modelSource, *modelTarget) {
	w := &world{calm: true}
	s := newModelSource(w)
	for _, k := range keys {
		s.write([]Change{{Key: []byte(k), Value: []byte("v")}})
	}
	return s, newModelTarget(w)
}

// oneAtWork is a calm pair with one key, and an executor, "one", that has mirrored it.
func oneAtWork(t *testing.T) (*modelSource, *modelTarget, *Executor) {
	s, target := calm("a")
	one, err := Open(t.Context(), configOf(s, target, "one"))
	require.NoError(t, err)
	require.NoError(t, one.Next(t.Context(), t.Context()))
	return s, target, one
}

func configOf(s *modelSource, t *modelTarget, owner string) Config {
	return Config{Source: s.of(0), Target: targetOf{t, 0}, Owner: owner, Limits: tiny}
}

func TestOpenRefuses(t *testing.T) {
	ctx := t.Context()
	t.Run("a target with keys", func(t *testing.T) {
		s, target := calm("a")
		target.state["x"] = "y"
		c := configOf(s, target, "one")
		_, err := Open(ctx, c)
		require.ErrorIs(t, err, ErrNotEmpty)
		require.ErrorContains(t, err, `"x"`)
		c.Overwrite = true
		e, err := Open(ctx, c)
		require.NoError(t, err)
		require.NoError(t, e.Next(ctx, ctx))
		require.Equal(t, map[string]string{"a": "v"}, target.state)
	})
	t.Run("the mark of another source", func(t *testing.T) {
		s, target := calm()
		target.mark, target.at = Mark{Source: 8, Phase: At, Revision: 1}.encode(), 1
		_, err := Open(ctx, configOf(s, target, "one"))
		require.ErrorIs(t, err, ErrOtherSource)
	})
}

func TestTakenOver(t *testing.T) {
	ctx := t.Context()
	s, target, one := oneAtWork(t)
	require.NoError(t, one.Check(ctx))
	two, err := Open(ctx, configOf(s, target, "two"))
	require.NoError(t, err)
	require.ErrorIs(t, one.Check(ctx), ErrTakenOver)
	require.NoError(t, two.Check(ctx))
	s.write([]Change{{Key: []byte("b"), Value: []byte("v")}})
	err = one.Next(ctx, ctx)
	require.ErrorIs(t, err, ErrTakenOver)
	require.ErrorContains(t, err, "two")
	require.NoError(t, two.Next(ctx, ctx))
	require.NoError(t, two.Finish(ctx))
	require.ErrorIs(t, one.Check(ctx), ErrFinished)
	require.ErrorIs(t, one.Finish(ctx), ErrFinished)
	require.Equal(t, map[string]string{"a": "v", "b": "v"}, target.state)
}

// What the executor before writes meanwhile is not taken for that of a source that was restored.
func TestTakeOverFromOneAtWork(t *testing.T) {
	ctx := t.Context()
	s, target, one := oneAtWork(t)
	c := configOf(s, target, "two")
	c.Target = beside{targetOf{target, 0}, func() {
		s.write([]Change{{Key: []byte("b"), Value: []byte("v")}})
		require.NoError(t, one.Next(ctx, ctx))
	}}
	two, err := Open(ctx, c)
	require.NoError(t, err)
	require.Equal(t, At, two.Mark().Phase)
	require.Equal(t, s.revision(), two.Mark().Revision)
}

// beside is a target whose keys are read while something else happens.
type beside struct {
	targetOf
	do func()
}

func (b beside) Page(ctx context.Context, from []byte, rev int64) ([]KV, []byte, error) {
	b.do()
	return b.targetOf.Page(ctx, from, rev)
}

// A source that was restored to an earlier state is copied again.
func TestSourceGoesBack(t *testing.T) {
	ctx := t.Context()
	s, target := calm("a", "b", "c")
	e, err := Open(ctx, configOf(s, target, "one"))
	require.NoError(t, err)
	require.NoError(t, e.Next(ctx, ctx))
	s.states, s.changes = s.states[:3], s.changes[:1]
	n, err := e.Behind(ctx)
	require.NoError(t, err)
	require.Positive(t, n)
	require.NoError(t, e.Next(ctx, ctx))
	require.Equal(t, map[string]string{"a": "v"}, target.state)

	s.states = s.states[:2]
	e, err = Open(ctx, configOf(s, target, "two"))
	require.NoError(t, err)
	require.NoError(t, e.Next(ctx, ctx))
	require.Empty(t, target.state)
}

// Leases that were being attached when an executor died are detached by the next.
func TestLeave(t *testing.T) {
	ctx := t.Context()
	s, target := calm("a", "b", "c", "d", "e")
	e, err := Open(ctx, configOf(s, target, "one"))
	require.NoError(t, err)
	require.NoError(t, e.Next(ctx, ctx))
	require.NoError(t, e.Leave(ctx))
	var ops []Op
	for k := range maps.Keys(target.state) {
		ops = append(ops, Op{Key: []byte(k), Lease: 5})
	}
	require.NoError(t, e.Attach(ctx, ops))
	require.Len(t, target.leases, 5)
	delete(target.state, "b") // it has ended
	e, err = Open(ctx, configOf(s, target, "two"))
	require.NoError(t, err)
	require.NoError(t, e.Next(ctx, ctx))
	require.Empty(t, target.leases)
	require.Len(t, target.state, 5)
}

func TestCompare(t *testing.T) {
	ctx := t.Context()
	s, target := calm("a", "b", "c", "d", "e")
	e, err := Open(ctx, configOf(s, target, "one"))
	require.NoError(t, err)
	require.NoError(t, e.Next(ctx, ctx))
	compare := func(leases bool) Comparison {
		c, err := Compare(ctx, s.of(0), targetOf{target, 0}, e.Place(), leases)
		require.NoError(t, err)
		return c
	}
	c := compare(true)
	require.Nil(t, c.Different)
	require.Equal(t, c.Source, c.Target)
	require.EqualValues(t, 5, c.Source.Keys)

	target.leases["d"] = 3
	require.Nil(t, compare(false).Different)
	c = compare(true)
	require.Equal(t, "d", string(c.Different))
	require.NotEqual(t, c.Source.SHA256, c.Target.SHA256)
	target.state["c"] = "w"
	require.Equal(t, "c", string(compare(false).Different))
	target.state["0"] = "w"
	require.Equal(t, "0", string(compare(false).Different))
	delete(target.state, "0")
	delete(target.state, "a")
	require.Equal(t, "a", string(compare(false).Different))
	s.compact(6)
	s.write([]Change{{Key: []byte("f")}})
	s.compact(7)
	_, err = Compare(ctx, s.of(0), targetOf{target, 0}, e.Place(), true)
	require.ErrorIs(t, err, ErrCompacted)
}

// busyTarget is a target whose mark is written by another executor just before the first
// commits.
type busyTarget struct {
	targetOf
	marks int
}

func (b *busyTarget) Commit(ctx context.Context, txn Txn) (Result, error) {
	if b.marks > 0 {
		b.marks--
		m := Mark{Source: 7, Phase: At, Revision: 2, Owner: "one", Number: int64(100 - b.marks)}
		b.apply(Txn{If: b.at, Was: b.mark, Mark: m.encode()})
	}
	return b.targetOf.Commit(ctx, txn)
}

// An executor takes over from one that is writing.
func TestTakeOverFromOneThatWrites(t *testing.T) {
	ctx := t.Context()
	s, target, one := oneAtWork(t)
	c := configOf(s, target, "two")
	c.Target = &busyTarget{targetOf{target, 0}, 20}
	two, err := Open(ctx, c)
	require.NoError(t, err)
	require.Equal(t, At, two.Mark().Phase)
	s.write([]Change{{Key: []byte("b"), Value: []byte("v")}})
	require.ErrorIs(t, one.Next(ctx, ctx), ErrTakenOver)
	require.NoError(t, two.Next(ctx, ctx))
	require.Equal(t, s.states[3], target.state)
}

// busySource is written and compacted each time that a page is read.
type busySource struct {
	sourceOf
	pages int
}

func (b *busySource) Page(ctx context.Context, from []byte, rev int64) ([]KV, []byte, error) {
	b.pages++
	b.write([]Change{{Key: []byte("a"), Value: fmt.Append(nil, b.pages)}, {Key: []byte("z"), Value: fmt.Append(nil, b.pages)}})
	b.compact(b.revision())
	return b.sourceOf.Page(ctx, from, rev)
}

// A copy ends however often the source is compacted.
func TestCopyBesideCompactions(t *testing.T) {
	ctx := t.Context()
	s, target := calm("a", "b", "c", "d", "e", "f", "g", "h", "i", "j")
	c := configOf(s, target, "one")
	busy := &busySource{sourceOf: s.of(0).(sourceOf)}
	c.Source = busy
	e, err := Open(ctx, c)
	require.NoError(t, err)
	for range 3 {
		require.NoError(t, e.Next(ctx, ctx))
	}
	require.Equal(t, At, e.Mark().Phase)
	require.Equal(t, s.states[s.revision()], target.state)
	require.Equal(t, 4, busy.pages, "one copy")
}

// An executor that is not the latest is refused even if the target was restored, and the
// mark that another one wrote there has got the revision of its own.
func TestMarkOfARestoredTarget(t *testing.T) {
	ctx := t.Context()
	s, target, one := oneAtWork(t)
	backup := modelTarget{state: maps.Clone(target.state), mark: target.mark, at: target.at, rev: target.rev}
	s.write([]Change{{Key: []byte("b"), Value: []byte("v")}})
	require.NoError(t, one.Next(ctx, ctx))
	lost := target.at
	target.state, target.mark, target.at, target.rev = backup.state, backup.mark, backup.at, backup.rev

	two, err := Open(ctx, configOf(s, target, "two"))
	require.NoError(t, err)
	require.Equal(t, lost, target.at, "the same revision")
	s.write([]Change{{Key: []byte("c"), Value: []byte("v")}})
	require.ErrorIs(t, one.Check(ctx), ErrTakenOver)
	require.ErrorIs(t, one.Next(ctx, ctx), ErrTakenOver)
	require.NoError(t, two.Next(ctx, ctx))
	require.Equal(t, map[string]string{"a": "v", "b": "v", "c": "v"}, target.state)
}

func TestOtherKeys(t *testing.T) {
	ctx := t.Context()
	s, target := calm("a")
	c := configOf(s, target, "one")
	c.Keys, c.Now = "some", func() int64 { return 17 }
	e, err := Open(ctx, c)
	require.NoError(t, err)
	require.NoError(t, e.Next(ctx, ctx))
	require.Equal(t, "some", e.Mark().Keys)
	require.EqualValues(t, 17, e.Mark().Time)
	c.Owner, c.Keys = "two", "others"
	_, err = Open(ctx, c)
	require.ErrorIs(t, err, ErrOtherKeys)
	require.NoError(t, e.Check(ctx))
	c.Overwrite = true
	e, err = Open(ctx, c)
	require.NoError(t, err)
	require.Equal(t, Copying, e.Mark().Phase)
}

// A mark follows revisions at which none of the keys has changed.
func TestAdvance(t *testing.T) {
	ctx := t.Context()
	s, target := calm("a")
	e, err := Open(ctx, configOf(s, target, "one"))
	require.NoError(t, err)
	require.NoError(t, e.Advance(ctx))
	require.Equal(t, Copying, e.Mark().Phase)
	require.NoError(t, e.Next(ctx, ctx))
	s.write(nil)
	s.write(nil)
	require.NoError(t, e.Next(ctx, ctx))
	require.EqualValues(t, 2, e.Mark().Revision)
	require.NoError(t, e.Advance(ctx))
	require.EqualValues(t, 4, e.Mark().Revision)
	rev := target.rev
	require.NoError(t, e.Advance(ctx))
	require.Equal(t, rev, target.rev, "nothing to write")
}

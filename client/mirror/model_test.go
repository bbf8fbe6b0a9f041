package mirror

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sort"
	"sync"
)

var errLost = errors.New("the answer was lost")

// modelSource is a cluster with all of its history.
type modelSource struct {
	mu        sync.Mutex
	changes   []Change
	states    []map[string]string // by revision
	compacted int64
	lazy      bool
	wake      chan struct{} // closed at each change
	w         *world
}

func newModelSource(w *world) *modelSource {
	return &modelSource{states: []map[string]string{{}, {}}, wake: make(chan struct{}), w: w}
}

func (s *modelSource) revision() int64 { return int64(len(s.states) - 1) }

// write adds a revision.
func (s *modelSource) write(changes []Change) {
	s.mu.Lock()
	defer s.mu.Unlock()
	state := maps.Clone(s.states[len(s.states)-1])
	for _, c := range changes {
		c.Revision = int64(len(s.states))
		s.changes = append(s.changes, c)
		if c.Deleted {
			delete(state, string(c.Key))
		} else {
			state[string(c.Key)] = string(c.Value)
		}
	}
	s.states = append(s.states, state)
	s.wakeUp()
}

func (s *modelSource) wakeUp() {
	close(s.wake)
	s.wake = make(chan struct{})
}

func (s *modelSource) compact(at int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.compacted = max(s.compacted, at)
	s.wakeUp()
}

// of is the source as an executor sees it.
func (s *modelSource) of(executor int) Source { return sourceOf{s, executor} }

type sourceOf struct {
	*modelSource
	executor int
}

func (s sourceOf) ID(context.Context) (uint64, error) { return 7, nil }

func (s sourceOf) Revision(ctx context.Context) (rev int64, err error) {
	err = s.w.call(ctx, s.executor, "source revision", func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		rev = s.revision()
	})
	return rev, err
}

func (s sourceOf) Page(ctx context.Context, from []byte, rev int64) (kvs []KV, next []byte, err error) {
	gone := false
	err = s.w.call(ctx, s.executor, "source page", func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		if rev == 0 {
			rev = s.revision()
		}
		if gone = rev < s.compacted; !gone {
			kvs, next = pageOf(s.states[rev], nil, from)
		}
	})
	if err == nil && gone {
		err = ErrCompacted
	}
	return kvs, next, err
}

const modelPage = 3

func pageOf(state map[string]string, leases map[string]int64, from []byte) (kvs []KV, next []byte) {
	for _, k := range slices.Sorted(maps.Keys(state)) {
		if k < string(from) {
			continue
		}
		if len(kvs) == modelPage {
			return kvs, []byte(k)
		}
		kvs = append(kvs, KV{Key: []byte(k), Value: []byte(state[k]), Lease: leases[k]})
	}
	return kvs, nil
}

func (s sourceOf) Changes(_ context.Context, from int64) Feed {
	s.mu.Lock()
	defer s.mu.Unlock()
	return &modelFeed{s: s, next: from, lost: from <= s.compacted}
}

// modelFeed loses what it hasn't returned when that is compacted, if feeds are lazy, or else
// only what was compacted before it began.
type modelFeed struct {
	s    sourceOf
	next int64
	lost bool
}

// Next returns up to three revisions.
func (f *modelFeed) Next(ctx context.Context) (changes []Change, through int64, err error) {
	for {
		f.s.mu.Lock()
		wake, newest := f.s.wake, f.s.revision()
		f.lost = f.lost || f.s.lazy && f.next <= f.s.compacted
		if !f.lost && newest >= f.next {
			through = min(newest, f.next+2)
			for _, c := range f.s.changes {
				if c.Revision >= f.next && c.Revision <= through {
					changes = append(changes, c)
				}
			}
		}
		f.s.mu.Unlock()
		switch {
		case f.lost:
			return nil, 0, ErrCompacted
		case through > 0:
			f.next = through + 1
			return changes, through, nil
		}
		select {
		case <-wake:
		case <-ctx.Done():
			return nil, 0, ctx.Err()
		}
	}
}

func (f *modelFeed) Ask(context.Context) error { return nil }
func (f *modelFeed) Close()                    {}

// modelTarget is a cluster with its present state.
type modelTarget struct {
	mu      sync.Mutex
	state   map[string]string
	leases  map[string]int64
	mark    []byte
	at, rev int64
	ops     int // most operations of a transaction so far
	w       *world
}

func newModelTarget(w *world) *modelTarget {
	return &modelTarget{state: map[string]string{}, leases: map[string]int64{}, rev: 1, w: w}
}

type targetOf struct {
	*modelTarget
	executor int
}

func (t targetOf) Page(ctx context.Context, from []byte, _ int64) (kvs []KV, next []byte, err error) {
	err = t.w.call(ctx, t.executor, "target page", func() {
		t.mu.Lock()
		defer t.mu.Unlock()
		kvs, next = pageOf(t.state, t.leases, from)
	})
	return kvs, next, err
}

func (t targetOf) Mark(ctx context.Context) (value []byte, at int64, err error) {
	err = t.w.call(ctx, t.executor, "mark", func() {
		t.mu.Lock()
		defer t.mu.Unlock()
		value, at = t.mark, t.at
	})
	return value, at, err
}

func (t targetOf) Commit(ctx context.Context, txn Txn) (r Result, err error) {
	err = t.w.call(ctx, t.executor, fmt.Sprintf("commit %s %d", txn.Mark, len(txn.Ops)), func() { r = t.apply(txn) })
	return r, err
}

func (t *modelTarget) apply(txn Txn) Result {
	t.mu.Lock()
	defer t.mu.Unlock()
	if txn.If != t.at || !bytes.Equal(txn.Was, t.mark) {
		return Result{Revision: t.rev, Refused: true, Mark: t.mark, ModRevision: t.at}
	}
	t.rev++
	t.ops = max(t.ops, len(txn.Ops))
	for _, op := range txn.Ops {
		switch k := string(op.Key); {
		case op.Delete:
			delete(t.state, k)
			delete(t.leases, k)
		case op.Lease != 0:
			t.leases[k] = op.Lease
		default:
			t.state[k] = string(op.Value)
			delete(t.leases, k)
		}
	}
	switch {
	case txn.Finish:
		t.mark, t.at = nil, 0
	case txn.Mark != nil:
		t.mark, t.at = bytes.Clone(txn.Mark), t.rev
	}
	return Result{Revision: t.rev}
}

// world decides when each request is executed, and whether its answer comes back.
type world struct {
	mu      sync.Mutex
	waiting []*request
	late    []func() // requests whose senders have given up
	calm    bool     // all requests are executed at once
}

type request struct {
	executor int
	name     string
	do       func()
	answer   chan error
}

func (w *world) call(ctx context.Context, executor int, name string, do func()) error {
	w.mu.Lock()
	if w.calm {
		w.mu.Unlock()
		do()
		return nil
	}
	r := &request{executor, name, do, make(chan error, 1)}
	w.waiting = append(w.waiting, r)
	w.mu.Unlock()
	select {
	case err := <-r.answer:
		return err
	case <-ctx.Done():
		w.mu.Lock()
		defer w.mu.Unlock()
		if i := slices.Index(w.waiting, r); i >= 0 {
			w.waiting = slices.Delete(w.waiting, i, i+1)
			w.late = append(w.late, do)
		}
		return ctx.Err()
	}
}

// sorted are the waiting requests, in an order that doesn't depend on goroutines.
func (w *world) sorted() []*request {
	w.mu.Lock()
	defer w.mu.Unlock()
	sort.SliceStable(w.waiting, func(i, j int) bool {
		a, b := w.waiting[i], w.waiting[j]
		return a.executor < b.executor || a.executor == b.executor && a.name < b.name
	})
	return slices.Clone(w.waiting)
}

// settle takes a request off the list, and answers it.
func (w *world) settle(r *request, verdict string) {
	w.mu.Lock()
	w.waiting = slices.Delete(w.waiting, slices.Index(w.waiting, r), slices.Index(w.waiting, r)+1)
	w.mu.Unlock()
	var err error
	switch verdict {
	case "done":
		r.do()
	case "answer lost":
		r.do()
		err = errLost
	case "lost":
		err = errLost
	case "late":
		w.late = append(w.late, r.do)
		err = errLost
	}
	r.answer <- err
}

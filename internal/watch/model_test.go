package watch

import (
	"fmt"
	"maps"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"pgregory.net/rapid"

	"github.com/stoa-kv/stoa/internal/fault"
	"github.com/stoa-kv/stoa/internal/kvwire"
	"github.com/stoa-kv/stoa/internal/placement"
	"github.com/stoa-kv/stoa/internal/store"
)

// The model is a leader in miniature: operations get stamps, wait in the queues
// of their partitions, are applied in queue order (an operation of several
// partitions when it is at the head of all of them), and partitions are closed
// by the rule of the sequencer. Now and then keys move to other partitions, at
// an operation of all of them. The watchers' events are compared with the list
// of all applied operations.

var modelKeys = []string{"a", "b", "c", "d", "e", "f", "g", "h"}

type op struct {
	rev     int64
	parts   placement.Set
	changes map[int][]store.Change // by partition; empty: a hole
	// Of a move: the homes of keys from it on, and whether its changes were
	// published by the old map.
	homes    homes
	oldFirst bool
	// Of one that begins a transit: the keys' targets and sources. Of a step
	// that isn't the last: the hub isn't told of it.
	to, from homes
	silent   bool
}

// homes are the partitions of keys.
type homes map[string]int

func (h homes) parts(key, end []byte) placement.Set {
	w := newWatcher(nil, &pb.WatchCreateRequest{Key: key, RangeEnd: end})
	var s placement.Set
	for _, k := range modelKeys {
		if w.covers([]byte(k)) {
			s |= placement.Of(h[k])
		}
	}
	if s == 0 {
		s = placement.Of(0)
	}
	return s
}

type model struct {
	t          *rapid.T
	partitions int
	hub        *Hub
	feed       *Feed
	stale      *Feed // of stores that have been replaced

	homes     homes // by what is applied
	ahead     homes // by what is proposed
	to, from  homes // of the transit that is under way, by what is applied
	aheadTo   homes // by what is proposed
	settling  bool  // nothing is proposed any more
	stamp     int64 // last one given out
	queues    [][]*op
	values    map[string]kvwire.KeyValue
	applied   []*op // in order of application
	top       int64 // C: highest applied stamp
	published []int64
	revs      []int64 // of the stores: past all that was applied, also what changed nothing there
	closed    []int64
	compacted int64

	streams []*reader
}

// history answers as the store does, stopping early now and then.
func (m *model) history(p int, key, end []byte, from, to int64, bounds store.Bounds, prev bool) ([]store.Change, int64, error) {
	if from < m.compacted {
		return nil, 0, fmt.Errorf("model: %w", fault.Compacted)
	}
	if rapid.IntRange(0, 3).Draw(m.t, "meanwhile") == 0 {
		// Without locks: keys may move between the reads of two partitions.
		if m.aheadTo != nil && !m.settling {
			m.transit(rapid.SliceOfNDistinct(rapid.SampledFrom(modelKeys), 1, 4, rapid.ID[string]).Draw(m.t, "now"), 0)
		}
		m.applyAll(true)
	}
	w := newWatcher(nil, &pb.WatchCreateRequest{Key: key, RangeEnd: end})
	var out []store.Change
	for _, o := range m.inOrder() {
		if o.rev < from || o.rev > to {
			continue
		}
		if len(out) >= bounds.Changes {
			return out, o.rev - 1, nil
		}
		for _, c := range o.all(m.partitions) {
			if w.covers(c.Kv.Key()) && m.homes[string(c.Kv.Key())] == p {
				out = append(out, c)
			}
		}
	}
	return out, to, nil
}

func (m *model) inOrder() []*op {
	ops := slices.Clone(m.applied)
	slices.SortFunc(ops, func(a, b *op) int { return int(a.rev - b.rev) })
	return ops
}

// all are the changes of an operation in order.
func (o *op) all(partitions int) []store.Change {
	var cs []store.Change
	for p := range partitions {
		cs = append(cs, o.changes[p]...)
	}
	slices.SortFunc(cs, func(a, b store.Change) int { return int(a.Sub - b.Sub) })
	return cs
}

// move proposes that some keys go to one partition, and changes keys with it.
func (m *model) move(moving, keys []string, to int, oldFirst bool) {
	from := m.ahead
	m.ahead = maps.Clone(from)
	for _, k := range moving {
		m.ahead[k] = to
	}
	o := &op{homes: m.ahead, oldFirst: oldFirst, parts: placement.New(m.partitions).All()}
	by := m.ahead
	if oldFirst {
		by = from
	}
	m.enqueue(o, keys, false, by)
}

// transit proposes that keys begin to go to one partition, that some of them do, or
// that the last ones have.
func (m *model) transit(keys []string, to int) {
	o := &op{homes: m.ahead, parts: placement.New(m.partitions).All()}
	switch {
	case m.aheadTo == nil:
		m.aheadTo = maps.Clone(m.ahead)
		for _, k := range keys {
			m.aheadTo[k] = to
		}
		o.to, o.from = m.aheadTo, m.ahead
	case len(keys) == 0:
		o.homes, m.aheadTo = m.aheadTo, nil
		m.ahead = o.homes
	default:
		m.ahead = maps.Clone(m.ahead)
		for _, k := range keys {
			m.ahead[k] = m.aheadTo[k]
		}
		o.homes, o.silent = m.ahead, true
	}
	m.enqueue(o, nil, false, m.ahead)
}

// parts is where keys are, or may be while they move.
func (m *model) parts(key, end []byte) placement.Set {
	if m.to != nil {
		return m.to.parts(key, end) | m.from.parts(key, end)
	}
	return m.homes.parts(key, end)
}

func (m *model) propose(keys []string, del bool) { m.enqueue(&op{}, keys, del, m.ahead) }

// enqueue stamps an operation and queues it; values are decided here, since
// stamps are the order of effects.
func (m *model) enqueue(o *op, keys []string, del bool, by homes) {
	m.stamp++
	o.rev, o.changes = m.stamp, map[int][]store.Change{}
	sub := int64(0)
	for _, k := range keys {
		p := by[k]
		o.parts |= placement.Of(p)
		prev := m.values[k]
		if del && !prev.Exists() {
			continue
		}
		c := store.Change{Revision: store.Revision{Main: o.rev, Sub: sub}, Kv: kvwire.Tombstone([]byte(k)), Prev: prev, Delete: del}
		if del {
			delete(m.values, k)
		} else {
			c.Kv = kvwire.Make([]byte(k), fmt.Appendf(nil, "%s@%d", k, o.rev), kvwire.Fields{ModRevision: o.rev})
			m.values[k] = c.Kv
		}
		sub++
		o.changes[p] = append(o.changes[p], c)
	}
	for p := range o.parts.Each() {
		m.queues[p] = append(m.queues[p], o)
	}
}

// apply applies the oldest operation of a partition if it can be.
func (m *model) apply(p int, publish bool) bool {
	if len(m.queues[p]) == 0 {
		return false
	}
	o := m.queues[p][0]
	for q := range o.parts.Each() {
		if m.queues[q][0] != o {
			return false
		}
	}
	for q := range o.parts.Each() {
		m.queues[q] = m.queues[q][1:]
	}
	for q := range o.parts.Each() {
		m.revs[q] = o.rev
	}
	m.applied = append(m.applied, o)
	m.top = max(m.top, o.rev)
	if o.homes == nil {
		m.publish(o, publish)
		return true
	}
	if o.oldFirst {
		m.publish(o, publish)
	}
	through := o.rev
	if !o.oldFirst {
		through--
	}
	m.homes = o.homes
	if !o.silent {
		m.to, m.from = o.to, o.from
	}
	if publish && !o.silent {
		for q := range m.partitions {
			m.closed[q] = max(m.closed[q], through)
		}
		m.feed.Moved(through, m.parts, m.to != nil)
	}
	if !o.oldFirst {
		m.publish(o, publish)
	}
	return true
}

func (m *model) publish(o *op, toHub bool) {
	for q := range o.parts.Each() {
		if len(o.changes[q]) > 0 {
			m.published[q] = o.rev
			if toHub {
				m.feed.Changes(q, o.rev, o.changes[q])
			}
		}
	}
}

func (m *model) mayClose(p int) int64 {
	c := m.top
	if len(m.queues[p]) > 0 {
		c = min(c, m.queues[p][0].rev-1)
	}
	return c
}

func (m *model) close(p int) {
	m.closed[p] = max(m.closed[p], m.mayClose(p))
	m.feed.Advance(p, m.closed[p])
}

// shown is the lowest revision that a read of any partition shows.
func (m *model) shown() int64 {
	rev := m.reached()
	for p := range m.partitions {
		rev = min(rev, max(m.published[p], m.closed[p]))
	}
	return rev
}

func (m *model) reached() int64 { return max(slices.Max(m.published), slices.Max(m.closed)) }

// reader is a client of one stream and its expectations.
type reader struct {
	m       *model
	stream  *Stream
	asked   []*asked // requests to create, not yet answered, in order
	watches map[int64]*asked
	all     []*asked
	told    int64
	owed    int // progress requests that may still be answered
}

// asked is a watcher as its client sees it.
type asked struct {
	req       *pb.WatchCreateRequest
	at        int64 // revision that the server had reached at the request, or showed when hastened
	start     int64
	next      int64 // lowest revision that may still come
	progress  int64
	cancelled bool
	ended     bool
	events    []*mvccpb.Event
}

func (r *reader) receive() bool {
	t := r.m.t
	resp, ok, err := r.stream.TryRecv()
	require.NoError(t, err)
	if !ok {
		return false
	}
	require.LessOrEqual(t, resp.Header.Revision, r.m.shown(), "announced before all partitions show it")
	switch {
	case resp.Created:
		a := r.asked[0]
		r.asked = r.asked[1:]
		if resp.Canceled {
			require.EqualValues(t, -1, resp.WatchId)
			require.NotEmpty(t, resp.CancelReason)
			return true
		}
		require.Nil(t, r.watches[resp.WatchId])
		require.GreaterOrEqual(t, resp.Header.Revision, a.at)
		if a.start = a.req.StartRevision; a.start == 0 {
			a.start = resp.Header.Revision + 1
			require.Equal(t, a.at, resp.Header.Revision)
		}
		a.next = a.start
		r.watches[resp.WatchId] = a
		r.all = append(r.all, a)
	case resp.Canceled:
		a := r.watches[resp.WatchId]
		require.NotNil(t, a)
		delete(r.watches, resp.WatchId)
		a.ended = true
		if resp.CompactRevision != 0 {
			require.False(t, a.cancelled && resp.CompactRevision == 0)
			require.Less(t, a.next, r.m.compacted)
			require.LessOrEqual(t, resp.CompactRevision, r.m.compacted)
		} else {
			require.True(t, a.cancelled)
		}
	case len(resp.Events) == 0:
		r.progress(resp.WatchId, resp.Header.Revision)
	default:
		a := r.watches[resp.WatchId]
		require.NotNil(t, a, "events for a watcher that isn't there")
		a.take(r.m, resp)
	}
	return true
}

func (r *reader) progress(id, rev int64) {
	if id != -1 {
		a := r.watches[id]
		require.NotNil(r.m.t, a)
		a.progressed(r.m, rev)
		return
	}
	require.Positive(r.m.t, r.owed)
	require.GreaterOrEqual(r.m.t, rev, r.told)
	r.told = rev
	r.owed--
	for _, a := range r.watches {
		a.progressed(r.m, rev)
	}
}

func (a *asked) progressed(m *model, rev int64) {
	require.GreaterOrEqual(m.t, rev, a.start-1, "progress short of the start")
	require.GreaterOrEqual(m.t, rev, a.next-1, "progress behind what was delivered")
	require.GreaterOrEqual(m.t, rev, a.progress, "progress went back")
	require.LessOrEqual(m.t, rev, m.reached())
	a.progress = rev
}

// take checks that a response continues the watch: complete revisions, in
// order, without gaps, none at or below announced progress.
func (a *asked) take(m *model, resp Response) {
	last := resp.Events[len(resp.Events)-1].Kv.ModRevision
	require.Greater(m.t, resp.Events[0].Kv.ModRevision, a.progress, "event at or below a progress notification")
	require.GreaterOrEqual(m.t, resp.Header.Revision, last)
	require.Equal(m.t, describe(m.expected(a, a.next, last)), describe(resp.Events))
	require.Empty(m.t, m.expected(a, last+1, resp.Header.Revision), "the header promises more than the response holds")
	a.next = last + 1
	a.events = append(a.events, resp.Events...)
}

func (m *model) expected(a *asked, from, to int64) []*mvccpb.Event {
	w := newWatcher(nil, a.req)
	var out []*mvccpb.Event
	for _, o := range m.inOrder() {
		if o.rev < from || o.rev > to {
			continue
		}
		cs := o.all(m.partitions)
		for i := range cs {
			if w.covers(cs[i].Kv.Key()) && w.wants(&cs[i]) {
				out = append(out, newEvent(&cs[i], w.prevKv))
			}
		}
	}
	return out
}

func describe(events []*mvccpb.Event) []string {
	out := make([]string, len(events))
	for i, e := range events {
		out[i] = fmt.Sprintf("%s %s@%d %q prev %q", e.Type, e.Kv.Key, e.Kv.ModRevision, e.Kv.Value, e.PrevKv.GetValue())
	}
	return out
}

func newModel(t *rapid.T) *model {
	n := rapid.IntRange(1, 4).Draw(t, "partitions")
	m := &model{
		t: t, partitions: n, stamp: 1, top: 1, values: map[string]kvwire.KeyValue{},
		queues: make([][]*op, n), published: make([]int64, n), revs: make([]int64, n), closed: make([]int64, n),
		homes: homes{},
	}
	for _, k := range modelKeys {
		m.homes[k] = int(k[0]) % n
	}
	m.ahead = m.homes
	m.hub = NewHub(n, m.history, Options{
		Parts:           m.parts,
		RecentRevisions: rapid.IntRange(1, 12).Draw(t, "recent"),
		QueueResponses:  rapid.IntRange(1, 24).Draw(t, "queue"),
		BatchEvents:     rapid.IntRange(1, 5).Draw(t, "batch"),
	})
	m.hub.shortGap = rapid.IntRange(0, 3).Draw(t, "short gap")
	for p := range n {
		m.published[p], m.revs[p], m.closed[p] = 1, 1, 1
	}
	m.feed = m.hub.Reset(m.published, 0)
	return m
}

func (m *model) randomRange() (key, end []byte) {
	k := rapid.SampledFrom(modelKeys).Draw(m.t, "key")
	switch rapid.IntRange(0, 3).Draw(m.t, "form") {
	case 0:
		return []byte(k), nil
	case 1:
		return []byte(k), []byte{0}
	case 2:
		return []byte(k), []byte(rapid.SampledFrom(modelKeys).Draw(m.t, "end"))
	default:
		return nil, []byte{0}
	}
}

func (m *model) create(r *reader) {
	key, end := m.randomRange()
	req := &pb.WatchCreateRequest{
		Key: key, RangeEnd: end,
		PrevKv:         rapid.Bool().Draw(m.t, "prev"),
		ProgressNotify: rapid.Bool().Draw(m.t, "periodic"),
	}
	switch rapid.IntRange(0, 3).Draw(m.t, "start") {
	case 1:
		req.StartRevision = rapid.Int64Range(1, m.top).Draw(m.t, "old")
	case 2:
		req.StartRevision = m.top + rapid.Int64Range(0, 4).Draw(m.t, "future")
	}
	if rapid.IntRange(0, 5).Draw(m.t, "filter") == 0 {
		req.Filters = []pb.WatchCreateRequest_FilterType{pb.WatchCreateRequest_FilterType(rapid.IntRange(0, 1).Draw(m.t, "which"))}
	}
	if rapid.IntRange(0, 3).Draw(m.t, "explicit id") == 0 {
		req.WatchId = rapid.Int64Range(1, 5).Draw(m.t, "id")
	}
	r.asked = append(r.asked, &asked{req: req, at: m.reached()})
	r.stream.Create(req)
}

func (m *model) anyReader() *reader {
	if len(m.streams) == 0 {
		m.t.Skip("no stream")
	}
	return m.streams[rapid.IntRange(0, len(m.streams)-1).Draw(m.t, "stream")]
}

func (m *model) actions() map[string]func(*rapid.T) {
	partition := func() int { return rapid.IntRange(0, m.partitions-1).Draw(m.t, "partition") }
	return map[string]func(*rapid.T){
		"propose": func(*rapid.T) {
			for range rapid.IntRange(1, 6).Draw(m.t, "ops") {
				keys := rapid.SliceOfNDistinct(rapid.SampledFrom(modelKeys), 1, 4, rapid.ID[string]).Draw(m.t, "keys")
				if rapid.IntRange(0, 2).Draw(m.t, "single") > 0 {
					keys = keys[:1]
				}
				m.propose(keys, rapid.IntRange(0, 3).Draw(m.t, "delete") == 0)
			}
		},
		"move": func(*rapid.T) {
			keys := rapid.SliceOfNDistinct(rapid.SampledFrom(modelKeys), 0, 4, rapid.ID[string])
			if m.aheadTo != nil || rapid.Bool().Draw(m.t, "in steps") {
				m.transit(keys.Draw(m.t, "next"), partition())
				return
			}
			m.move(keys.Draw(m.t, "moving"), keys.Draw(m.t, "keys"), partition(), rapid.Bool().Draw(m.t, "published before"))
			if rapid.Bool().Draw(m.t, "at once") {
				m.applyAll(true)
			}
		},
		"apply": func(*rapid.T) {
			for range rapid.IntRange(1, 8).Draw(m.t, "times") {
				m.apply(partition(), true)
			}
		},
		"close": func(*rapid.T) { m.close(partition()) },
		"step":  func(*rapid.T) { m.hub.Step() },
		"open": func(*rapid.T) {
			if len(m.streams) < 3 {
				r := &reader{m: m, stream: m.hub.NewStream(""), watches: map[int64]*asked{}}
				m.streams = append(m.streams, r)
			}
		},
		"create": func(*rapid.T) { m.create(m.anyReader()) },
		"cancel": func(*rapid.T) {
			r := m.anyReader()
			for id := range int64(6) {
				if a := r.watches[id]; a != nil && !a.cancelled {
					a.cancelled = true
					r.stream.Cancel(id)
					return
				}
			}
		},
		"progress": func(*rapid.T) {
			r := m.anyReader()
			r.owed++
			r.stream.RequestProgress()
		},
		"hasten": func(*rapid.T) {
			r := m.anyReader()
			n := rapid.IntRange(0, len(r.stream.openings)).Draw(m.t, "how many")
			if n == 0 {
				return
			}
			waiting := r.asked[len(r.asked)-len(r.stream.openings):]
			for _, a := range waiting[:n] {
				a.at = min(a.at, m.hub.Shown())
			}
			r.stream.Hasten(r.stream.openings[n-1].number)
		},
		"tick": func(*rapid.T) { m.anyReader().stream.Tick() },
		"receive": func(*rapid.T) {
			r := m.anyReader()
			for range rapid.IntRange(1, 6).Draw(m.t, "responses") {
				r.receive()
			}
		},
		"compact": func(*rapid.T) {
			low := slices.Min(m.closed)
			if low > m.compacted {
				m.compacted = rapid.Int64Range(m.compacted+1, low).Draw(m.t, "at")
				m.hub.Compacted(m.compacted)
			}
		},
		"close stream": func(*rapid.T) {
			if rapid.IntRange(0, 3).Draw(m.t, "really") == 0 {
				r := m.anyReader()
				r.stream.Close()
				m.streams = slices.DeleteFunc(m.streams, func(o *reader) bool { return o == r })
			}
		},
		"snapshot": func(*rapid.T) {
			if rapid.IntRange(0, 5).Draw(m.t, "really") > 0 {
				return
			}
			m.applyAll(false)
			m.stale = m.feed
			m.published = slices.Clone(m.revs)
			m.feed = m.hub.Install(m.parts, m.to != nil, m.published, m.compacted)
		},
		"stale": func(*rapid.T) {
			if m.stale == nil {
				return
			}
			p := rapid.IntRange(0, m.partitions-1).Draw(m.t, "partition")
			m.stale.Advance(p, m.closed[p]+100)
			m.stale.Changes(p, m.published[p]+100, []store.Change{put("k", m.published[p]+100, 0)})
		},
	}
}

func (m *model) applyAll(publish bool) {
	for again := true; again; {
		again = false
		for p := range m.partitions {
			for m.apply(p, publish) {
				again = true
			}
		}
	}
}

// quiesce delivers everything and checks that nothing is missing.
func (m *model) quiesce() {
	m.settling = true
	m.applyAll(true)
	for p := range m.partitions {
		m.close(p)
	}
	m.hub.Step()
	for _, r := range m.streams {
		for r.receive() {
		}
		for _, a := range r.all {
			if !a.ended {
				require.Empty(m.t, m.expected(a, a.next, m.top), "missing events")
			}
		}
		future := slices.ContainsFunc(r.all, func(a *asked) bool { return !a.ended && a.start > m.top+1 })
		if !future && len(r.watches) > 0 {
			r.told = 0
			r.owed++
			r.stream.RequestProgress()
			for r.receive() {
			}
			require.Equal(m.t, m.top, r.told, "progress was not answered")
		}
	}
}

func TestModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := newModel(t)
		t.Repeat(m.actions())
		m.quiesce()
		for _, r := range m.streams {
			r.stream.Close()
		}
		require.Empty(t, m.hub.groups)
		require.Empty(t, m.hub.waiting)
		s := m.hub.Stats()
		require.Zero(t, s.Streams+s.Watchers+s.Slow)
	})
}

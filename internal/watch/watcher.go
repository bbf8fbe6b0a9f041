package watch

import (
	"bytes"
	"slices"

	"go.etcd.io/etcd/api/v3/mvccpb"

	"github.com/stoa-kv/stoa/internal/placement"
	"github.com/stoa-kv/stoa/internal/store"
)

type state uint8

const (
	synced  state = iota // in its group's index: Step delivers to it
	lagging              // on its stream's list: Recv reads for it
	opening              // on its stream's list of openings: nothing comes yet
	gone                 // cancelled
)

// watcher is one watch of one stream. Hub.mu guards what changes, unless a field
// says otherwise; next belongs to the stream's receiver while it reads for the
// watcher.
type watcher struct {
	stream *Stream
	group  *group
	user   uint64  // for whom it was created
	quotas []int32 // for which Hub.limiter has counted it
	id     int64

	key, end []byte // end nil: the key alone
	toEnd    bool   // all keys >= key

	start    int64 // the first revision requested
	prevKv   bool
	noPut    bool
	noDelete bool
	fragment bool
	periodic bool // wants periodic progress notifications

	state state
	// next is the lowest revision that may still have to be delivered. For a
	// synced watcher it is only the start: later positions are its group's.
	next int64

	high  int64 // highest revision sent, by events or progress
	quiet bool  // no events since the last periodic progress
	due   bool  // a periodic progress notification is pending

	queued int // responses in the stream's queue; Stream.mu

	batch       []*mvccpb.Event // scratch of Step
	batchBytes  int
	place, slot int // where its group's index has it
}

func (w *watcher) single() bool { return w.end == nil && !w.toEnd }

func (w *watcher) covers(key []byte) bool {
	switch {
	case w.toEnd:
		return bytes.Compare(key, w.key) >= 0
	case w.end == nil:
		return bytes.Equal(key, w.key)
	default:
		return bytes.Compare(key, w.key) >= 0 && bytes.Compare(key, w.end) < 0
	}
}

// rangeEnd is the end as etcd's requests encode it.
func (w *watcher) rangeEnd() []byte {
	if w.toEnd {
		return []byte{0}
	}
	return w.end
}

func (w *watcher) wants(c *store.Change) bool {
	if c.Hides != nil && c.Hides(w.stream.client) {
		return false
	}
	if c.Delete {
		return !w.noDelete
	}
	return !w.noPut
}

// event builds the event of a change, shared between all watchers with the same
// options.
type event struct {
	change         *store.Change
	bare, withPrev *mvccpb.Event
}

func (e *event) of(w *watcher) *mvccpb.Event {
	if w.prevKv && e.change.Prev.Exists() {
		if e.withPrev == nil {
			e.withPrev = newEvent(e.change, true)
		}
		return e.withPrev
	}
	if e.bare == nil {
		e.bare = newEvent(e.change, false)
	}
	return e.bare
}

func newEvent(c *store.Change, prev bool) *mvccpb.Event {
	m := &struct { // one allocation
		event mvccpb.Event
		kv    mvccpb.KeyValue
	}{}
	ev := &m.event
	ev.Kv = &m.kv
	c.Kv.Into(ev.Kv)
	if c.Delete {
		ev.Type = mvccpb.Event_DELETE
		ev.Kv.ModRevision = c.Main // which a tombstone doesn't have
	}
	// As in etcd, an event that creates a key has none, though the same
	// transaction may have deleted the key before.
	if prev && (c.Delete || ev.Kv.CreateRevision != ev.Kv.ModRevision) {
		ev.PrevKv = c.Prev.Message()
	}
	return ev
}

// group is all watchers of the same set of partitions. They are at the same
// revision, because they wait for the same partitions.
type group struct {
	set placement.Set
	// wait are the partitions that must be closed through a delivered revision:
	// set, or for streams that announce only what all partitions show, all of
	// them.
	wait placement.Set
	// at: everything of these partitions at or below it has been delivered to
	// the synced watchers, and nothing at or below it is still to come.
	at     int64
	synced index
	size   int // watchers, lagging ones too
}

// target is the revision up to which a group may be delivered. One partition
// publishes in revision order, so its published revision is final; of several,
// a revision is final once all of them are closed through it.
func (g *group) target(views []view) int64 { return final(g.wait, views) }

func final(of placement.Set, views []view) int64 {
	if of.Len() == 1 {
		v := &views[of.First()]
		return max(v.published, v.closed)
	}
	to := int64(-1)
	for p := range of.Each() {
		if c := views[p].closed; to < 0 || c < to {
			to = c
		}
	}
	return to
}

// floor is the revision up to which recent changes are no longer all there.
func (g *group) floor(views []view) int64 {
	var floor int64
	for p := range g.set.Each() {
		floor = max(floor, views[p].floor)
	}
	return floor
}

// join finds or makes the group of a set of partitions, for a stream.
func (h *Hub) join(set placement.Set, s *Stream) *group {
	wait := h.waits(set, s)
	for _, g := range h.groups {
		if g.set == set && g.wait == wait {
			g.size++
			return g
		}
	}
	g := &group{set: set, wait: wait, size: 1, synced: newIndex()}
	h.groups = append(h.groups, g)
	// The partitions must collect before the group's position is read.
	h.interest(g, 1)
	h.look()
	g.at = g.target(h.views)
	return g
}

// waits are the partitions for which a stream's watchers of a set wait.
func (h *Hub) waits(set placement.Set, s *Stream) placement.Set {
	if s.eager {
		return set
	}
	return h.all
}

// enroll has a watcher get what its group does, or, if that is ahead of it, has its stream's receiver
// read history for it first.
func (h *Hub) enroll(w *watcher) {
	if w.next <= w.group.at {
		h.fallBehind(w)
		return
	}
	w.state = synced
	w.group.synced.add(w)
}

func (h *Hub) fallBehind(w *watcher) {
	w.state = lagging
	h.stats.slow.Add(1)
	w.stream.addLagging(w)
}

func (h *Hub) leave(g *group) {
	if g.size--; g.size > 0 {
		return
	}
	h.interest(g, -1)
	h.groups = slices.DeleteFunc(h.groups, func(o *group) bool { return o == g })
}

func (h *Hub) interest(g *group, by int) {
	for p := range g.wait.Each() {
		part := h.parts[p]
		part.mu.Lock()
		switch {
		case g.wait.Len() == 1:
			part.singles += by
		case g.set.Has(p):
			part.merges += by
		default:
			part.awaited += by
		}
		part.mu.Unlock()
	}
}

package watch

import (
	"maps"
	"slices"

	"github.com/stoa-kv/stoa/internal/placement"
)

// Moved says that keys begin to move between partitions, or have moved: from now on
// parts says which of them a range may touch, and moving whether keys go from one of
// these to another meanwhile, each of them once. Every change of every partition at
// or below through has been published, none such will come, and what comes later is
// published where parts says. It is called while all stores are locked, so that
// whoever reads history finds keys where it says.
//
// Watchers of other partitions than before go on behind what they have seen. That
// waits for no watcher, but for the hub's lock.
func (f *Feed) Moved(through int64, parts func(key, end []byte) placement.Set, moving bool) {
	h := f.h
	h.mu.Lock()
	defer h.mu.Unlock()
	if f != h.feed {
		return
	}
	for _, p := range h.parts {
		p.advance(f, through)
	}
	h.step() // everything has come through there, and all groups with it
	// What is left of recent changes is told by the old map.
	for _, p := range h.parts {
		p.forget(through)
	}
	h.regroup(parts, moving)
	h.stir()
}

// Install is Reset for stores in which keys may lie in other partitions, or move.
func (h *Hub) Install(parts func(key, end []byte) placement.Set, moving bool, published []int64, compacted int64) *Feed {
	h.Compacted(compacted)
	h.mu.Lock()
	defer h.mu.Unlock()
	f := h.reset(published)
	h.regroup(parts, moving)
	return f
}

// regroup brings each watcher to the group of the partitions that its range
// touches now. Reads of history that are under way begin again: they may have
// looked for keys on both sides of a move.
func (h *Hub) regroup(parts func(key, end []byte) placement.Set, moving bool) {
	h.o.Parts, h.o.Moving = parts, moving
	h.resets++
	for e := h.streams.Front(); e != nil; e = e.Next() {
		s := e.Value.(*Stream)
		for _, id := range slices.Sorted(maps.Keys(s.watchers)) {
			w := s.watchers[id]
			if set := parts(w.key, w.rangeEnd()); set != w.group.set {
				h.transfer(w, set)
			}
		}
	}
	clear(h.views)
}

// transfer puts a watcher into another group. If that is ahead of what the watcher
// has seen, the rest comes from history.
func (h *Hub) transfer(w *watcher, set placement.Set) {
	old := w.group
	if w.state == synced {
		old.synced.remove(w)
		w.next = max(w.next, old.at+1)
	}
	w.group = h.join(set, w.stream)
	h.leave(old)
	switch {
	case w.state == opening:
	case w.state == lagging: // its receiver reads on for it
	case w.next > w.group.at:
		w.group.synced.add(w)
	default:
		w.state = lagging
		h.stats.slow.Add(1)
		w.stream.addLagging(w)
	}
}

// forget drops recent changes, all of which are at or below rev.
func (p *partition) forget(rev int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.recent, p.bytes, p.floor, p.spare = nil, 0, rev, nil
}

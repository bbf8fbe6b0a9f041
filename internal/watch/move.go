package watch

import (
	"maps"
	"slices"

	"github.com/stoa-kv/stoa/internal/placement"
)

// Moved announces that keys begin to move between partitions, or have moved:
// from now on parts returns the partitions that a range may touch, and moving
// reports whether keys move between these meanwhile, each of them once. Every
// change of every partition at or below through has been published, none such
// will follow, and later changes are published in the partitions that parts
// returns. It is called while all stores are locked, so that readers of history
// find keys there.
//
// Watchers whose partitions change continue after their last event. Moved waits
// for no watcher, only for the hub's lock.
func (f *Feed) Moved(through int64, parts func(key, end []byte) placement.Set, moving bool) {
	h := f.h
	h.mu.Lock()
	defer h.mu.Unlock()
	if f != h.feed {
		return
	}
	for _, p := range h.present() {
		p.advance(f, through)
	}
	h.step() // everything is published through there, and all groups have reached it
	// The remaining recent changes are stored by the old map.
	for _, p := range h.present() {
		p.mu.Lock()
		p.forget(through)
		p.mu.Unlock()
	}
	h.regroup(parts, moving)
	h.stir()
}

// Install is Reset for stores in which keys may be in other partitions, or
// moving; there may be another number of them.
func (h *Hub) Install(parts func(key, end []byte) placement.Set, moving bool, published []int64, compacted int64) *Feed {
	h.Compacted(compacted)
	h.mu.Lock()
	defer h.mu.Unlock()
	h.use(len(published))
	f := h.reset(published)
	h.regroup(parts, moving)
	return f
}

// regroup brings each watcher to the group of the partitions that its range
// touches now. Reads of history in progress begin again: they may have read
// before and after a move.
func (h *Hub) regroup(parts func(key, end []byte) placement.Set, moving bool) {
	h.o.Parts, h.o.Moving = parts, moving
	h.resets++
	for e := h.streams.Front(); e != nil; e = e.Next() {
		s := e.Value.(*Stream)
		for _, id := range slices.Sorted(maps.Keys(s.watchers)) {
			w := s.watchers[id]
			if set := parts(w.key, w.rangeEnd()); set != w.group.set || h.waits(set, s) != w.group.wait {
				h.transfer(w, set)
			}
		}
	}
	clear(h.views)
}

// transfer puts a watcher into another group. If that is ahead of the watcher,
// the difference is read from history.
func (h *Hub) transfer(w *watcher, set placement.Set) {
	old := w.group
	if w.state == synced {
		old.synced.remove(w)
		w.next = max(w.next, old.at+1)
	}
	w.group = h.join(set, w.stream)
	h.leave(old)
	if w.state == synced {
		h.enroll(w)
	}
}

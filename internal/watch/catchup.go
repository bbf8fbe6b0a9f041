package watch

import (
	"errors"
	"fmt"
	"slices"

	"go.etcd.io/etcd/api/v3/mvccpb"

	"github.com/stoa-kv/stoa/internal/fault"
	"github.com/stoa-kv/stoa/internal/store"
)

// catchUp reads history for a lagging watcher, on the receiving goroutine. It
// returns the next response for it, or nil when the watcher needs nothing more
// than live delivery (or is gone).
func (h *Hub) catchUp(w *watcher) (*item, error) {
	views := make([]view, len(h.parts))
	for {
		h.mu.Lock()
		if w.state == gone {
			h.mu.Unlock()
			return nil, nil
		}
		for i, p := range h.present() {
			views[i] = p.view()
		}
		g, from, to, resets, moving := w.group, w.next, w.group.at, h.resets, h.o.Moving
		recent := g.floor(views) < from
		switch {
		case from > to:
			h.rejoin(w)
			h.mu.Unlock()
			return nil, nil
		case from < h.compacted.Load() && (!recent || from == w.start):
			it := h.cancelCompacted(w)
			h.mu.Unlock()
			return it, nil
		case recent && gap(g, views, from) <= h.shortGap:
			it := h.finish(w, h.readRecent(w, g, views, from, to))
			h.mu.Unlock()
			return it, nil
		}
		h.mu.Unlock()

		b, err := h.read(w, g, views, recent, from, to, moving)

		h.mu.Lock()
		if resets != h.resets && w.state != gone {
			// The stores were replaced meanwhile, or keys have begun or ceased
			// to move between them: the batch may have gaps or duplicates.
			h.mu.Unlock()
			continue
		}
		it, again, err := h.commit(w, b, err)
		h.mu.Unlock()
		if !again {
			return it, err
		}
	}
}

func (h *Hub) read(w *watcher, g *group, views []view, recent bool, from, to int64, moving bool) (batch, error) {
	if recent {
		return h.readRecent(w, g, views, from, to), nil
	}
	return h.readHistory(w, g, from, to, moving)
}

// commit records the result of a read that was done without the lock.
func (h *Hub) commit(w *watcher, b batch, err error) (it *item, again bool, _ error) {
	switch {
	case w.state == gone:
		return nil, false, nil
	case errors.Is(err, fault.Compacted):
		return h.cancelCompacted(w), false, nil
	case err != nil:
		return nil, false, fmt.Errorf("catch up watch %d from revision %d: %w", w.id, w.next, err)
	case len(b.events) == 0:
		w.next = b.through + 1
		return nil, true, nil
	}
	if b.through >= w.group.at {
		return h.finish(w, b), false, nil
	}
	w.next = b.through + 1
	w.stream.addLagging(w)
	return b.item(w), false, nil
}

// finish hands a watcher that has caught up over to live delivery. The response
// is made first: progress that the watcher held up comes after it.
func (h *Hub) finish(w *watcher, b batch) *item {
	var it *item
	if len(b.events) > 0 {
		it = b.item(w)
	}
	w.next = b.through + 1
	if b.through < w.group.at {
		w.stream.addLagging(w)
	} else {
		h.rejoin(w)
	}
	return it
}

func (h *Hub) rejoin(w *watcher) {
	w.state = synced
	w.group.synced.add(w)
	h.stats.slow.Add(-1)
	w.stream.reconsider()
}

// cancelCompacted cancels a watcher whose next revision is compacted. The
// header has no revision, as in etcd.
func (h *Hub) cancelCompacted(w *watcher) *item {
	it := newItem(w, w.id, 0)
	it.resp.Canceled = true
	it.resp.CompactRevision = max(h.compacted.Load(), w.next)
	h.drop(w)
	w.stream.reconsider()
	return it
}

// gap is the number of recent revisions from a given one on.
func gap(g *group, views []view, from int64) int {
	n := 0
	for p := range g.set.Each() {
		n += len(views[p].recent) - seek(views[p].recent, from)
	}
	return n
}

// batch is a run of complete revisions for one response.
type batch struct {
	events  []*mvccpb.Event
	bytes   int
	through int64 // complete up to here
}

func (b *batch) item(w *watcher) *item {
	w.sent(b.through)
	it := newItem(w, w.id, b.through)
	it.events, it.bytes = true, b.bytes
	it.resp.Events = b.events
	return it
}

// add takes the changes of one revision, unless the batch is full already.
func (h *Hub) add(b *batch, w *watcher, rev int64, changes []*store.Change) bool {
	if len(b.events) >= h.o.BatchEvents || b.bytes >= maxBatchBytes {
		b.through = rev - 1
		return false
	}
	for _, c := range changes {
		if w.wants(c) && w.covers(c.Kv.Key()) {
			b.events = append(b.events, newEvent(c, w.prevKv))
			b.bytes += changeBytes(c)
		}
	}
	return true
}

func (h *Hub) readRecent(w *watcher, g *group, views []view, from, to int64) batch {
	b := batch{through: to}
	merge(views, g, from, to, func(rev int64, changes []*store.Change) bool {
		return h.add(&b, w, rev, changes)
	})
	h.stats.events.Add(int64(len(b.events)))
	return b
}

// readHistory reads each partition in turn, each only up to the revision that
// the ones before it reached, so that the batch ends at a revision that is
// complete in all of them.
//
// While keys move, each of them once, all but the last are read again at the
// end: so any two are read in both orders, and a key that moves between them is
// found before its move or after it, or both times.
func (h *Hub) readHistory(w *watcher, g *group, from, to int64, moving bool) (batch, error) {
	parts := slices.Collect(g.set.Each())
	if moving && len(parts) > 1 {
		parts = append(parts, parts[:len(parts)-1]...)
	}
	bounds := store.Bounds{Changes: h.o.BatchEvents, Bytes: maxBatchBytes}
	var all []*store.Change
	for _, p := range parts {
		changes, through, err := h.history(p, w.key, w.rangeEnd(), from, to, bounds, w.prevKv)
		if err != nil {
			return batch{}, err
		}
		to = min(to, through)
		all = addChanges(all, changes)
	}
	if moving {
		all = slices.CompactFunc(all, func(a, b *store.Change) bool { return a.Revision == b.Revision })
	}
	b := batch{through: to}
	for len(all) > 0 && all[0].Main <= to {
		rev, n := all[0].Main, 1
		for n < len(all) && all[n].Main == rev {
			n++
		}
		if !h.add(&b, w, rev, all[:n]) {
			break
		}
		all = all[n:]
	}
	h.stats.events.Add(int64(len(b.events)))
	return b, nil
}

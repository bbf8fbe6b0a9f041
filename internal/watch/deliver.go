package watch

import (
	"math"
	"slices"

	"github.com/stoa-kv/stoa/internal/store"
)

// look takes a view of every partition. The closed revision and the changes of
// one partition are read together; those of different partitions need not be,
// because a later view only adds to an earlier one.
func (h *Hub) look() {
	for i, p := range h.present() {
		h.views[i] = p.view()
	}
}

func (h *Hub) step() {
	h.stirred.Store(false) // before looking: later changes set it again
	h.look()
	raise(&h.floor, final(h.all, h.views)) // streams are about to announce it
	h.openReady()
	for _, g := range h.groups {
		h.deliver(g)
	}
	clear(h.views) // don't retain trimmed changes
	h.answerProgress()
}

// deliver delivers everything up to a group's target to its synced watchers.
func (h *Hub) deliver(g *group) {
	to := g.target(h.views)
	if to <= g.at {
		return
	}
	if floor := g.floor(h.views); floor > g.at {
		// Some revisions in (at, floor] have been trimmed. Watchers of keys in
		// it read them from history.
		for i := g.synced.len() - 1; i >= 0; i-- { // lag moves the last one to i
			if w := g.synced.all[i]; w.next <= floor {
				h.lag(w, max(w.next, g.at+1))
			}
		}
		g.at = min(floor, to)
	}
	if g.synced.len() > 0 {
		merge(h.views, g, g.at+1, to, func(rev int64, changes []*store.Change) bool {
			h.revision(g, rev, changes)
			return true
		})
	}
	g.at = to
}

// merge calls fn for every revision in [from, to] of the group's partitions, in
// order, with all its changes in order. It stops when fn returns false.
func merge(views []view, g *group, from, to int64, fn func(rev int64, changes []*store.Change) bool) {
	var heads [64]int
	for p := range g.set.Each() {
		heads[p] = seek(views[p].recent, from)
	}
	changes := make([]*store.Change, 0, 8)
	for {
		rev := int64(math.MaxInt64)
		for p := range g.set.Each() {
			if r := views[p].recent; heads[p] < len(r) {
				rev = min(rev, r[heads[p]].rev)
			}
		}
		if rev > to || rev == math.MaxInt64 {
			return
		}
		changes = changes[:0]
		for p := range g.set.Each() {
			r := views[p].recent
			if heads[p] < len(r) && r[heads[p]].rev == rev {
				changes = addChanges(changes, r[heads[p]].changes)
				heads[p]++
			}
		}
		if !fn(rev, changes) {
			return
		}
	}
}

// addChanges merges in the changes of another partition. Both are ascending.
func addChanges(to []*store.Change, more []store.Change) []*store.Change {
	inOrder := len(to) == 0 || len(more) == 0 || to[len(to)-1].Less(more[0].Revision)
	for i := range more {
		to = append(to, &more[i])
	}
	if !inOrder {
		slices.SortFunc(to, func(a, b *store.Change) int { return a.Compare(b.Revision) })
	}
	return to
}

// seek finds the first entry at or above a revision.
func seek(recent []entry, rev int64) int {
	lo, hi := 0, len(recent)
	for lo < hi {
		if mid := int(uint(lo+hi) >> 1); recent[mid].rev < rev {
			lo = mid + 1
		} else {
			hi = mid
		}
	}
	return lo
}

// revision delivers one revision to the group's watchers: all its events for
// one watcher in one response.
func (h *Hub) revision(g *group, rev int64, changes []*store.Change) {
	for _, c := range changes {
		ev := event{change: c}
		h.matched = g.synced.match(h.matched[:0], c.Kv.Key())
		for _, w := range h.matched {
			if rev < w.next || !w.wants(c) {
				continue
			}
			if len(w.batch) == 0 {
				h.touched = append(h.touched, w)
			}
			w.batch = append(w.batch, ev.of(w))
			w.batchBytes += changeBytes(c)
		}
	}
	for _, w := range h.touched {
		h.stats.events.Add(int64(len(w.batch)))
		if !w.stream.push(w, rev, w.batch, w.batchBytes) {
			h.lag(w, rev)
		}
		clear(w.batch)
		w.batch, w.batchBytes = w.batch[:0], 0
	}
	clear(h.touched)
	h.touched = h.touched[:0]
}

// lag removes a synced watcher from live delivery; its stream's receiver reads
// history for it from next on.
func (h *Hub) lag(w *watcher, next int64) {
	w.group.synced.remove(w)
	w.next = next
	h.fallBehind(w)
}

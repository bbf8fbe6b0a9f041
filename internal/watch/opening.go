package watch

import (
	"math"
	"slices"
	"sync/atomic"

	"go.etcd.io/etcd/api/v3/mvccpb"
)

// A serializable read must show the revisions that a watch of etcd's API on the
// same server has announced, for any key. So a stream of that API announces a
// revision only once all partitions show it here: its groups wait for all of
// them, and so does the answer to the creation of a watcher, which names the
// revision that the server has reached in any.

// answer is the answer to a request to create a watcher.
type answer struct {
	w       *watcher // nil: refused
	refused string
	ended   bool   // the watcher was canceled meanwhile: that follows
	cause   error  // of the refusal, or of that
	key     []byte // that was to be watched, with a cause of the refusal
	end     []byte
	rev     int64 // in its header
	first   *mvccpb.Event
	number  int64 // of those of its stream that had to wait, from 1
}

// least is the lowest revision for the header of the first event: that of the call which gave it.
func (a *answer) least() int64 {
	if a.first == nil {
		return 0
	}
	return a.w.start - 1
}

// needs is the revision that all partitions have to show before the answer, if those up to a number are hastened.
func (a *answer) needs(hastened int64) int64 {
	switch {
	case a.ended:
		return 0
	case a.number <= hastened:
		return a.least()
	}
	return a.rev
}

// answerOrQueue answers a request once all partitions show the revision in the
// answer's header, and after the requests before it: clients match the answers
// to their requests by order. It returns the answer's number if it has to wait, else 0.
func (h *Hub) answerOrQueue(s *Stream, a answer) (number int64) {
	if len(s.openings) > 0 || a.rev > h.Shown() {
		if len(s.openings) == 0 {
			h.opening = append(h.opening, s)
		}
		s.numbered++
		a.number = s.numbered
		s.openings = append(s.openings, a)
		s.wait(1)
		return a.number
	}
	h.answer(s, a)
	return 0
}

// wait counts queued answers.
func (s *Stream) wait(by int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.waiting += by
	s.relieve()
}

// openReady sends the answers that need not wait any longer.
func (h *Hub) openReady() {
	if len(h.opening) == 0 {
		return
	}
	shown := h.Shown()
	h.opening = slices.DeleteFunc(h.opening, func(s *Stream) bool {
		h.open(s, shown)
		return len(s.openings) == 0
	})
}

// open sends the answers of a stream that need not wait any longer.
func (h *Hub) open(s *Stream, shown int64) {
	for len(s.openings) > 0 && s.openings[0].needs(s.hastened) <= shown {
		h.hasten(s)
	}
}

// Hasten opens the watchers, up to one by the number that CreateWith has returned, that wait until
// all partitions show the revision that the server has reached. A watcher from "now" on then begins after the
// revision that all partitions show, and may repeat events that its client
// knows from another server. It is for a server that is partitioned from its
// leader, where they might wait for long. One that an extension has answered with an event
// goes on waiting until the call's revision shows, and so do those behind it: there was a leader just now.
func (s *Stream) Hasten(through int64) {
	h := s.hub
	h.mu.Lock()
	defer h.mu.Unlock()
	s.hastened = max(s.hastened, min(through, s.numbered))
	h.open(s, h.Shown())
	s.reconsider()
}

// hasten sends the next answer, whatever the partitions show.
func (h *Hub) hasten(s *Stream) {
	a := s.openings[0]
	s.openings = s.openings[1:]
	a.rev = max(min(a.rev, h.Shown()), a.least())
	raise(&h.floor, a.least())
	h.answer(s, a)
	s.wait(-1)
}

// answer announces that a watcher was created or refused, and starts it.
func (h *Hub) answer(s *Stream, a answer) {
	if a.w == nil {
		it := newItem(nil, noID, h.Shown())
		it.resp.Created, it.resp.Canceled, it.resp.CancelReason = true, true, a.refused
		it.cause, it.key, it.end = a.cause, a.key, a.end
		s.control(it)
		return
	}
	if a.w.start <= 0 {
		a.w.start = a.rev + 1
	}
	it := newItem(a.w, a.w.id, a.rev)
	it.resp.Created = true
	s.control(it)
	if a.ended {
		s.control(h.canceled(a.w, a.cause))
		return
	}
	if a.first != nil {
		s.control(newFirst(a.w, a.rev, a.first))
	}
	h.begin(a.w)
}

// newFirst is the event with which an extension has answered a request.
func newFirst(w *watcher, rev int64, first *mvccpb.Event) *item {
	it := newItem(w, w.id, rev)
	it.resp.Events = []*mvccpb.Event{first}
	return it
}

// Shown is the revision that reads of all partitions show.
func (h *Hub) Shown() int64 {
	parts := h.present()
	if len(parts) == 1 {
		return parts[0].reached()
	}
	shown := int64(math.MaxInt64)
	for _, p := range parts {
		shown = min(shown, p.view().closed)
	}
	raise(&h.floor, shown)
	return shown
}

// raise sets a revision that never goes back.
func raise(to *atomic.Int64, rev int64) {
	for old := to.Load(); rev > old && !to.CompareAndSwap(old, rev); old = to.Load() {
	}
}

// Floor is the lowest revision allowed for reads of this server: streams may
// have announced it. All partitions show it, unless a snapshot has just taken
// one of them back.
func (h *Hub) Floor() int64 { return h.floor.Load() }

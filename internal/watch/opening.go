package watch

import (
	"math"
	"slices"

	"go.etcd.io/etcd/api/v3/mvccpb"
)

// What a client of etcd's API has been told by a watch, a serializable read of the same
// server must show, of whichever key. So a stream of that API says nothing of a revision
// before all partitions show it here: its groups wait for all of them, and so does the
// answer to the creation of a watcher, which names the revision that the server has
// reached in any.

// answer is one to a request to create a watcher.
type answer struct {
	w       *watcher // nil: refused
	refused string
	rev     int64 // that it names
	first   *mvccpb.Event
}

// answerOrQueue answers a request once all partitions show the revision that the answer
// names, and after those before it: clients take the answers in the order of their
// requests.
func (h *Hub) answerOrQueue(s *Stream, a answer) {
	if len(s.openings) > 0 || a.rev > h.shown() {
		if len(s.openings) == 0 {
			h.opening = append(h.opening, s)
		}
		s.openings = append(s.openings, a)
		s.wait(1)
		return
	}
	h.answer(s, a)
}

// wait counts answers that wait.
func (s *Stream) wait(by int) {
	s.mu.Lock()
	s.waiting += by
	s.mu.Unlock()
}

// openReady answers what can be answered now.
func (h *Hub) openReady() {
	if len(h.opening) == 0 {
		return
	}
	shown := h.shown()
	h.opening = slices.DeleteFunc(h.opening, func(s *Stream) bool {
		for len(s.openings) > 0 && s.openings[0].rev <= shown {
			h.answer(s, s.openings[0])
			s.openings = s.openings[1:]
			s.wait(-1)
		}
		return len(s.openings) == 0
	})
}

// Hasten opens the watchers that wait for partitions to show what the server has reached
// elsewhere. One from now on begins behind what all of them show then, and may repeat
// what its client has heard otherwise. It is for a server that has been cut off, where
// they might wait for long.
func (s *Stream) Hasten() {
	s.hub.mu.Lock()
	defer s.hub.mu.Unlock()
	s.hub.openAll(s)
}

func (h *Hub) openAll(s *Stream) {
	for _, a := range s.openings {
		a.rev = min(a.rev, h.shown())
		h.answer(s, a)
		s.wait(-1)
	}
	s.openings = nil
}

// answer says that a watcher is open, or refused, and sets it going.
func (h *Hub) answer(s *Stream, a answer) {
	if a.w == nil {
		it := newItem(nil, noID, h.shown())
		it.resp.Created, it.resp.Canceled, it.resp.CancelReason = true, true, a.refused
		s.control(it)
		return
	}
	if a.w.start <= 0 {
		a.w.start = a.rev + 1
	}
	it := newItem(a.w, a.w.id, a.rev)
	it.resp.Created = true
	s.control(it)
	if a.first != nil {
		s.control(newFirst(a.w, a.rev, a.first))
	}
	h.begin(a.w)
}

// newFirst is the event that an extension has answered a request with.
func newFirst(w *watcher, rev int64, first *mvccpb.Event) *item {
	it := newItem(w, w.id, rev)
	it.resp.Events = []*mvccpb.Event{first}
	return it
}

// shown is the revision that reads of all partitions show.
func (h *Hub) shown() int64 {
	if len(h.parts) == 1 {
		return h.parts[0].reached()
	}
	shown := int64(math.MaxInt64)
	for _, p := range h.parts {
		shown = min(shown, p.view().closed)
	}
	h.raise(shown)
	return shown
}

func (h *Hub) raise(shown int64) {
	for {
		floor := h.floor.Load()
		if shown <= floor || h.floor.CompareAndSwap(floor, shown) {
			return
		}
	}
}

// Floor is a revision that no read of this server may be below: streams may have
// announced as much. All partitions show it, unless a snapshot has just taken one of
// them back.
func (h *Hub) Floor() int64 { return h.floor.Load() }

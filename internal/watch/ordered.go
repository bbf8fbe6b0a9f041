package watch

import (
	"math"
	"slices"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
)

// A receiver can sort the events of all watchers of its stream by revision:
// [Stream.Through] is the revision up to which all events have been queued. See
// DESIGN.md.

// NewNotifiedStream is NewStream for a receiver that polls, and that gets a
// partition's changes at once, before other partitions show the same revision.
// notify is called, under the hub's lock, whenever there is something to
// receive or the revision of [Stream.Await] is reached. It must not block or
// call the hub.
func (h *Hub) NewNotifiedStream(client string, notify func()) *Stream {
	s := h.NewStream(client)
	s.notify, s.eager = notify, true
	return s
}

// Open is Create for a receiver that wants the answer at once, without a
// response for the creation. The revision is the one that this server has
// reached; a watcher from "now" on begins after it, and after the given one.
func (s *Stream) Open(r *pb.WatchCreateRequest, after int64) (rev int64, err error) {
	w := newWatcher(s, r)
	h := s.hub
	h.mu.Lock()
	defer h.mu.Unlock()
	if s.closed {
		return 0, s.why
	}
	if err := s.enter(w, r.WatchId); err != nil {
		return h.Rev(), err
	}
	rev = h.Rev()
	if w.start <= 0 {
		rev = max(rev, after)
		w.start = rev + 1
	}
	h.admit(w)
	h.begin(w)
	return rev, nil
}

// Through is a revision at or below which all events are in the queue, or have
// been received. A stream without watchers is through with everything. Only the
// receiver may call it.
func (s *Stream) Through() int64 {
	h := s.hub
	h.mu.Lock()
	defer h.mu.Unlock()
	return s.through()
}

func (s *Stream) through() int64 {
	if s.closed {
		return 0 // it has no watchers any more, and promises nothing
	}
	through := int64(math.MaxInt64)
	for _, w := range s.watchers {
		at := w.next - 1
		if w.state == synced {
			at = max(at, w.group.at)
		}
		through = min(through, at)
	}
	return through
}

// Await requests a call of notify once Through reaches a revision; of several,
// the lowest.
func (s *Stream) Await(rev int64) {
	h := s.hub
	h.mu.Lock()
	defer h.mu.Unlock()
	if s.closed {
		return
	}
	if s.wanted == 0 || rev < s.wanted {
		s.wanted = rev
	}
	h.await(s)
	h.step()
}

// Behind reads history for the watcher that is furthest behind, and returns the
// response; false if none is, or if responses queued for it have not been
// received.
func (s *Stream) Behind() (Response, bool, error) {
	for {
		s.mu.Lock()
		at := -1
		for i, w := range s.lagging {
			if at < 0 || w.next < s.lagging[at].next {
				at = i
			}
		}
		if s.closed || at < 0 || s.lagging[at].queued > 0 {
			s.mu.Unlock()
			return Response{}, false, nil
		}
		w := s.lagging[at]
		s.lagging = slices.Delete(s.lagging, at, at+1)
		s.mu.Unlock()
		it, err := s.hub.catchUp(w)
		if err != nil {
			return Response{}, false, err
		}
		if it != nil {
			return it.response(), true, nil
		}
	}
}

// Collect calls take with all queued responses. After it no event at or below
// through is still to come; at is the same without lagging watchers: the
// collected events are at or below it.
func (s *Stream) Collect(take func(Response)) (through, at int64) {
	h := s.hub
	h.mu.Lock()
	through, at = s.through(), math.MaxInt64
	for _, w := range s.watchers {
		at = min(at, max(w.group.at, w.start-1))
	}
	s.mu.Lock()
	var items []*item
	for s.head < len(s.queue) {
		items = append(items, s.pop())
	}
	s.mu.Unlock()
	h.mu.Unlock()
	for _, it := range items {
		take(it.response())
	}
	return through, at
}

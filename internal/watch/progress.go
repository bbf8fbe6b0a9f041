package watch

import (
	"cmp"
	"slices"
)

// RequestProgress requests one notification for all watchers of the stream
// (watch id -1). It is sent when they are all at one revision: none of them is
// behind, and none has been sent anything later. Requests that come before the
// answer are answered with it; a stream without watchers gets none, as in etcd.
func (s *Stream) RequestProgress() {
	h := s.hub
	h.mu.Lock()
	defer h.mu.Unlock()
	if s.closed {
		return
	}
	s.owed = true
	h.await(s)
	h.step() // so that the answer covers changes published before the request
}

// Tick requests a notification for each watcher that asked for periodic ones
// and has had no event since the last Tick.
func (s *Stream) Tick() {
	h := s.hub
	h.mu.Lock()
	defer h.mu.Unlock()
	if s.closed {
		return
	}
	s.mu.Lock()
	due := false
	for _, w := range s.watchers {
		// A stream whose client doesn't read must not fill with notifications.
		if w.periodic && w.quiet && w.queued == 0 {
			w.due, due = true, true
		}
		w.quiet = true
	}
	s.mu.Unlock()
	if due {
		h.await(s)
		h.step()
	}
}

func (h *Hub) await(s *Stream) {
	if !s.waits {
		s.waits = true
		h.waiting = append(h.waiting, s)
		h.owed.Add(1)
	}
}

// forget removes a closed stream from the list.
func (h *Hub) forget(s *Stream) {
	if !s.waits {
		return
	}
	s.waits = false
	h.waiting = slices.DeleteFunc(h.waiting, func(o *Stream) bool { return o == s })
	h.owed.Add(-1)
}

// reconsider answers a stream whose watchers may just have become level.
func (s *Stream) reconsider() {
	if s.waits && s.answer() {
		s.hub.forget(s)
	}
}

func (h *Hub) answerProgress() {
	if len(h.waiting) == 0 {
		return
	}
	h.waiting = slices.DeleteFunc(h.waiting, func(s *Stream) bool {
		s.waits = !s.answer()
		return !s.waits
	})
	h.owed.Store(int32(len(h.waiting)))
}

// answer sends the progress notifications that are due and reports whether none
// is pending any more.
func (s *Stream) answer() bool {
	if s.owed {
		rev, ok := s.together()
		if ok && len(s.watchers) > 0 {
			s.told = rev
			s.control(newItem(nil, noID, rev))
		}
		s.owed = !ok
	}
	if s.wanted > 0 && s.through() >= s.wanted {
		s.wanted = 0
		s.ring()
	}
	left := s.wanted > 0
	s.inOrder(func(w *watcher) {
		switch {
		case !w.due:
		case w.level() && w.group.at >= max(w.high, s.told):
			w.due, w.high = false, w.group.at
			s.control(newItem(w, w.id, w.group.at))
		default:
			left = true
		}
	})
	return !left && !s.owed
}

// together is the revision that all watchers of the stream have reached and
// none has been sent anything beyond.
func (s *Stream) together() (rev int64, ok bool) {
	high := s.told
	first := true
	for _, w := range s.watchers {
		if !w.level() {
			return 0, false
		}
		high = max(high, w.high, w.start-1)
		if first || w.group.at < rev {
			rev, first = w.group.at, false
		}
	}
	return rev, rev >= high || len(s.watchers) == 0
}

// level: the watcher has everything up to where its group is, and its group is
// not short of where it begins.
func (w *watcher) level() bool {
	return w.state == synced && w.group.at >= w.start-1
}

// inOrder visits the watchers that are due, by id: what a client sees must not
// depend on a map's order.
func (s *Stream) inOrder(fn func(w *watcher)) {
	var due []*watcher
	for _, w := range s.watchers {
		if w.due {
			due = append(due, w)
		}
	}
	slices.SortFunc(due, func(a, b *watcher) int { return cmp.Compare(a.id, b.id) })
	for _, w := range due {
		fn(w)
	}
}

package watch

import (
	"maps"
	"slices"
)

// Permit returns the reason for which a user, by its credential, may not watch a range; nil
// if it may. It is called under the hub's lock.
type Permit func(user uint64, key, end []byte) error

// Permit announces that users have other permissions from now on, and cancels the watchers
// that aren't permitted any more. It is called while all stores are locked: all that was
// published so far was permitted, and nothing that is published afterwards reaches those
// watchers.
func (f *Feed) Permit(permit Permit) {
	h := f.h
	h.mu.Lock()
	defer h.mu.Unlock()
	if f != h.feed {
		return
	}
	h.permit = permit
	for e := h.streams.Front(); e != nil; e = e.Next() {
		s := e.Value.(*Stream)
		ended := false
		for _, id := range slices.Sorted(maps.Keys(s.watchers)) {
			w := s.watchers[id]
			if err := h.permitted(w); err != nil {
				s.cancel(w, err)
				ended = true
			}
		}
		if ended {
			s.reconsider()
		}
	}
}

func (h *Hub) permitted(w *watcher) error {
	if h.permit == nil {
		return nil
	}
	return h.permit(w.user, w.key, w.rangeEnd())
}

// As sets the user, by its credential, for whom watchers are created from now on.
func (s *Stream) As(user uint64) {
	s.hub.mu.Lock()
	defer s.hub.mu.Unlock()
	s.user = user
}

package watch

import (
	"maps"
	"slices"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"

	"github.com/stoa-kv/stoa/internal/fault"
)

// Permit returns the reason for which a user, by its credential, may not watch a range; nil
// if it may. It is called under the hub's lock.
type Permit func(user uint64, key, end []byte) error

// Limiter limits how many watches are open. It is called under the hub's lock.
type Limiter interface {
	// Enter counts a watch of a user, by its credential, for the quotas that it returns, or
	// refuses it. With must it is open already, and isn't refused.
	Enter(user uint64, key, end []byte, must bool) (quotas []int32, err error)
	// Leave ends the count for these quotas.
	Leave(quotas []int32)
}

// Permit announces that users have other permissions from now on, and cancels the watchers
// that aren't permitted any more. It is called while all stores are locked: all that was
// published so far was permitted, and nothing that is published afterwards reaches those
// watchers. The others are counted by another limiter from now on, which may be nil; none is
// cancelled because there are too many.
//
// A snapshot may take the stores back to where the permissions were others. Those of a lower revision than is in force are
// passed over: a user whom they don't know, or who has been permitted more since, may have opened its watches by then.
func (f *Feed) Permit(revision uint64, permit Permit, limiter Limiter) {
	h := f.h
	h.mu.Lock()
	defer h.mu.Unlock()
	if f != h.feed || revision < h.permitRev {
		return
	}
	h.permitRev = revision
	h.permit, h.limiter = permit, nil // the one before isn't needed any more
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
	h.limit(limiter)
}

// limit has a limiter count all watchers.
func (h *Hub) limit(limiter Limiter) {
	h.limiter = limiter
	for e := h.streams.Front(); e != nil; e = e.Next() {
		for _, w := range e.Value.(*Stream).watchers {
			w.quotas = nil
			if limiter != nil {
				w.quotas, _ = limiter.Enter(w.user, w.key, w.rangeEnd(), true)
			}
		}
	}
}

// charge counts a watcher that is about to be admitted for the quotas that it returns, or says
// which one is exhausted, or that memory is.
func (h *Hub) charge(user uint64, key, end []byte) (quotas []int32, err error) {
	if h.o.MayWatch != nil && !h.o.MayWatch() {
		return nil, fault.TooManyRequests
	}
	if h.limiter == nil {
		return nil, nil
	}
	return h.limiter.Enter(user, key, end, false)
}

// Room reports why no more watches of such a range can be opened for a user; nil if one can be
// now.
func (h *Hub) Room(user uint64, key, end []byte) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	quotas, err := h.charge(user, key, end)
	if err == nil && h.limiter != nil {
		h.limiter.Leave(quotas)
	}
	return err
}

// Permits returns the reason for which a user may not open a watch; nil if it may.
func (h *Hub) Permits(user uint64, r *pb.WatchCreateRequest) error {
	w := newWatcher(nil, r)
	w.user = user
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.permitted(w)
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

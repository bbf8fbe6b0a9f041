package relay

import pb "go.etcd.io/etcd/api/v3/etcdserverpb"

// Progress asks for a notification for all watchers of the stream. It tells a revision that the
// member has told after this request. A stream without watchers gets none, as in etcd.
func (st *Stream) Progress() {
	if len(st.watchers) == 0 {
		return
	}
	if !st.owed {
		st.owed = true
		st.wants = st.hub.asked + 1
	}
	st.hub.askProgress()
}

// postpone puts off progress that a new watcher's start is behind of.
func (st *Stream) postpone(w *Watcher) {
	if st.fence == 0 || w.start-1 <= st.fence {
		return
	}
	st.fence, st.owed = 0, true
	for _, other := range st.watchers {
		other.stir()
	}
	st.hub.askProgress()
}

// askProgress asks the member, unless it has yet to answer.
func (h *Hub) askProgress() {
	if h.pending || !h.connected {
		return
	}
	if h.owes() || h.short() {
		h.asked++
		h.pending = true
		h.send(&pb.WatchRequest{RequestUnion: &pb.WatchRequest_ProgressRequest{ProgressRequest: &pb.WatchProgressRequest{}}})
	}
}

// owes reports whether a client waits for progress.
func (h *Hub) owes() bool {
	for st := range h.streams {
		if st.owed {
			return true
		}
	}
	return false
}

// Tick asks the member for progress again if some client waits for it: members may leave a request
// without an answer, and a stream may not have been able to pass one on.
func (h *Hub) Tick() {
	h.pending = false
	h.askProgress()
}

// progress: no event at or below a revision is still to come, for any span that has a watcher. (One that has been
// a part may be open and have none yet.)
func (h *Hub) progress(rev int64) {
	for _, s := range h.spans {
		if s.open && !s.asked {
			s.at = max(s.at, rev)
			s.tell(nil)
		}
	}
	h.pending = false
	fresh := false
	for st := range h.streams {
		switch {
		case !st.owed:
		case st.wants > h.asked:
			fresh = true // it was asked for later
		case len(st.watchers) == 0:
			st.owed = false
		case st.may(rev):
			st.owed, st.fence = false, rev
			st.ring()
		}
	}
	if fresh {
		h.askProgress()
	}
}

// may reports whether the stream can tell progress at a revision: none of its watchers begins
// later, or was sent anything later.
func (st *Stream) may(rev int64) bool {
	if len(st.openings) > 0 || st.fence > 0 || rev < st.told {
		return false
	}
	for _, w := range st.watchers {
		if w.start-1 > rev || w.high > rev || !w.behind && w.span.through() < rev {
			return false
		}
	}
	return true
}

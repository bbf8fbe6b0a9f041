package relay

import (
	"slices"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
)

// Options bound what a hub keeps.
type Options struct {
	// Entries and Bytes bound the recent events of one range, and Total the bytes of all
	// ranges. The latest revision of a range is always kept.
	Entries, Bytes, Total int
	// Watchers bounds those of one stream; 0: no bound.
	Watchers int
	// Fragment is the size above which a response is sent in pieces to those that allow it,
	// in bytes.
	Fragment int
}

// A Hub is the watches of all local clients.
type Hub struct {
	o    Options
	wake func() // there is something to Take

	spans    map[spanKey]*span
	followed []*span
	byID     map[int64]*span
	creating []*span // whose creations a member has not answered yet, in order
	nextID   int64
	streams  map[*Stream]struct{}

	connected bool
	out       []*pb.WatchRequest
	asked     int   // requests for progress so far
	wanted    int64 // by followers
	pending   bool

	// Of the latest response, or of the first answer to another question, before there is any.
	cluster, member, term uint64
	known                 int64 // the highest revision
}

// New makes a hub. wake is called whenever there is something to Take.
func New(o Options, wake func()) *Hub {
	return &Hub{o: o, wake: wake, spans: map[spanKey]*span{}, byID: map[int64]*span{}, streams: map[*Stream]struct{}{}}
}

// Meet takes the header of a member's answer to something else. A watcher may be refused before there is any response of a watch.
func (h *Hub) Meet(header *pb.ResponseHeader) {
	if h.cluster == 0 {
		h.cluster, h.member, h.term = header.ClusterId, header.MemberId, header.RaftTerm
	}
}

// Known is the highest revision that is known.
func (h *Hub) Known() int64 { return h.known }

// Wanted reports whether there is anything to watch.
func (h *Hub) Wanted() bool { return len(h.spans) > 0 }

// Stats are numbers for metrics.
type Stats struct{ Streams, Watchers, Upstream, Behind int }

// Stats counts what there is.
func (h *Hub) Stats() Stats {
	s := Stats{Streams: len(h.streams)}
	for _, of := range h.spans {
		if of.whole == nil {
			s.Upstream++
		}
	}
	for st := range h.streams {
		s.Watchers += len(st.watchers)
		for _, w := range st.watchers {
			if w.behind {
				s.Behind++
			}
		}
	}
	return s
}

// Take is the requests to send to the member, in order.
func (h *Hub) Take() []*pb.WatchRequest {
	out := h.out
	h.out = nil
	return out
}

func (h *Hub) send(r *pb.WatchRequest) {
	if h.connected {
		h.out = append(h.out, r)
		h.wake()
	}
}

// Connected begins a stream to a member: all ranges are watched again, from where they are.
func (h *Hub) Connected() {
	h.connected, h.pending, h.out, h.creating = true, false, nil, nil
	all := make([]*span, 0, len(h.spans))
	for _, s := range h.spans {
		all = append(all, s)
	}
	slices.SortFunc(all, func(a, b *span) int { return int(a.id - b.id) })
	for _, s := range all {
		h.create(s)
	}
	h.askProgress()
}

// Disconnected ends the stream to the member. Nothing is lost.
func (h *Hub) Disconnected() { h.connected, h.out, h.creating = false, nil, nil }

// create watches a span upstream, from where it is.
func (h *Hub) create(s *span) {
	if !h.connected || s.whole != nil {
		return
	}
	delete(h.byID, s.id)
	h.nextID++
	s.id, s.partial, s.asked = h.nextID, nil, true
	h.byID[s.id] = s
	r := s.key.request()
	r.WatchId, r.Fragment, r.ProgressNotify = s.id, true, true
	if s.open {
		r.StartRevision = s.at + 1
	}
	h.creating = append(h.creating, s)
	h.send(&pb.WatchRequest{RequestUnion: &pb.WatchRequest_CreateRequest{CreateRequest: r}})
}

// Receive takes a member's response. again: the stream has to be opened again, because the
// member doesn't accept its token any more.
func (h *Hub) Receive(r *Response) (again bool) {
	if h.cluster != 0 && r.Header.ClusterId != 0 && r.Header.ClusterId != h.cluster {
		h.Fail(ErrCluster)
	}
	h.cluster, h.member, h.term = r.Header.ClusterId, r.Header.MemberId, r.Header.RaftTerm
	h.known = max(h.known, r.Header.Revision)
	switch s := h.byID[r.ID]; {
	case r.Created:
		return h.created(r)
	case r.ID == everyWatcher && len(r.events) == 0 && !r.Canceled:
		h.progress(r.Header.Revision)
	case s == nil: // ended meanwhile
	case r.Canceled && r.Compacted > 0:
		// Those of its watchers that need the lost revisions find that out by themselves.
		s.open = false
		s.parts.each(func(p *span) { p.open = false })
		h.create(s)
	case r.Canceled:
		h.end(s, r.Reason)
	default:
		s.receive(r)
	}
	return false
}

// everyWatcher is the watch id of responses that concern no single watcher.
const everyWatcher = -1

// created takes the answer to the creation that was asked for first.
func (h *Hub) created(r *Response) (again bool) {
	if len(h.creating) == 0 {
		return false
	}
	s := h.creating[0]
	h.creating = h.creating[1:]
	s.asked = false
	switch {
	case s.gone:
		if !r.Canceled {
			h.cancel(r.ID)
		}
		return false
	case r.Canceled && Renew(r.Reason):
		return true
	case r.Canceled:
		h.end(s, r.Reason)
		return false
	}
	if !s.open {
		s.restart(r.Header.Revision)
	}
	s.opened()
	return false
}

// end ends a span for good: its watchers are cancelled once they have got all that came.
func (h *Hub) end(s *span, reason string) {
	h.remove(s)
	s.ended, s.reason = true, reason
	for _, o := range s.openings {
		o.refused, o.ready = reason, true
		o.stream.settle()
	}
	s.openings = nil
	s.unfollow(reason)
	s.stir()
}

func (h *Hub) remove(s *span) {
	s.gone = true
	delete(h.spans, s.key)
	delete(h.byID, s.id)
	if s.whole != nil {
		s.whole.parts.remove(s)
		s.whole = nil
	}
	if s.key.followed {
		h.followed = slices.DeleteFunc(h.followed, func(f *span) bool { return f == s })
		s.scatter()
	}
}

func (h *Hub) cancel(id int64) {
	if id == 0 { // it was never watched upstream
		return
	}
	h.send(&pb.WatchRequest{RequestUnion: &pb.WatchRequest_CancelRequest{CancelRequest: &pb.WatchCancelRequest{WatchId: id}}})
}

// span finds or makes the span of a range.
func (h *Hub) span(k spanKey) *span {
	s := h.spans[k]
	if s == nil {
		s = &span{hub: h, key: k, watchers: map[*Watcher]struct{}{}}
		h.spans[k] = s
		if whole := h.covering(k); k.part && whole != nil {
			whole.adopt(s)
			return s
		}
		if k.followed {
			h.followed = append(h.followed, s)
		}
		h.create(s)
		h.wake()
	}
	return s
}

// release drops a span that isn't used any more.
func (h *Hub) release(s *span) {
	if s.gone || s.follower != nil || len(s.watchers) > 0 || len(s.openings) > 0 {
		return
	}
	h.remove(s)
	if !slices.Contains(h.creating, s) { // else it is cancelled when it is there
		h.cancel(s.id)
	}
}

// Fail ends all streams with an error, and forgets everything: what is known of the cluster
// isn't true any more.
func (h *Hub) Fail(err error) {
	for st := range h.streams {
		st.Fail(err)
	}
	for _, s := range h.spans {
		h.remove(s)
		if !slices.Contains(h.creating, s) {
			h.cancel(s.id)
		}
		s.unfollow(err.Error())
	}
	h.known, h.wanted = 0, 0
}

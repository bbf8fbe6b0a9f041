package relay

import (
	"cmp"
	"slices"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
)

// spanKey is what watchers of one span have in common. Filters belong to it: a member's periodic
// progress is that of watchers without events.
type spanKey struct {
	key, end                string
	prevKv, noPut, noDelete bool
	followed                bool // a span of its own, for a Follower
	part                    bool // of a followed one, when it was made: see part.go
}

func keyOf(r *pb.WatchCreateRequest) spanKey {
	k := spanKey{key: string(r.Key), end: string(r.RangeEnd), prevKv: r.PrevKv}
	if k.key == "" { // the smallest, as in etcd
		k.key = "\x00"
	}
	for _, f := range r.Filters {
		switch f {
		case pb.WatchCreateRequest_NOPUT:
			k.noPut = true
		case pb.WatchCreateRequest_NODELETE:
			k.noDelete = true
		}
	}
	return k
}

func (k spanKey) empty() bool { return k.end != "" && k.end != "\x00" && k.key >= k.end }

func (k spanKey) request() *pb.WatchCreateRequest {
	r := &pb.WatchCreateRequest{Key: []byte(k.key), RangeEnd: []byte(k.end), PrevKv: k.prevKv}
	if k.noPut {
		r.Filters = append(r.Filters, pb.WatchCreateRequest_NOPUT)
	}
	if k.noDelete {
		r.Filters = append(r.Filters, pb.WatchCreateRequest_NODELETE)
	}
	return r
}

// entry is the events of one revision, or without any, periodic progress.
type entry struct {
	rev    int64
	events []event
	bytes  int
}

// perEntry is what an entry costs beside its events, in bytes.
const perEntry = 64

// entries splits events by revision.
func entries(events []event) (all []entry) {
	for len(events) > 0 {
		n, bytes := 0, 0
		for n < len(events) && events[n].rev == events[0].rev {
			bytes += len(events[n].field)
			n++
		}
		all = append(all, entry{events[0].rev, events[:n:n], bytes})
		events = events[n:]
	}
	return all
}

// span is the watchers of one range, and its watcher upstream.
type span struct {
	hub *Hub
	key spanKey
	id  int64 // upstream

	open    bool // a member has answered
	asked   bool // for a watcher upstream, without an answer yet
	gone    bool // no longer in the hub
	ended   bool // cancelled upstream
	reason  string
	partial []event // fragments, until the last one comes

	// at: everything at or below it has come. recent has all events in (floor, at]; its first
	// entry is number base.
	at, floor int64
	recent    []entry
	base      int
	bytes     int

	watchers map[*Watcher]struct{}
	follower Follower // nil: none
	parts    parts
	whole    *span // that it is a part of; nil: it has a watcher upstream
	openings []*Opening
}

func (s *span) tail() int { return s.base + len(s.recent) }

// restart begins anew after a revision.
func (s *span) restart(rev int64) {
	s.open, s.at, s.floor = true, rev, rev
	s.base += len(s.recent) + 1 // so that no watcher follows without having joined
	s.recent, s.bytes = nil, 0
	if s.follower != nil {
		s.follower.Begin(rev)
	}
	s.parts.each(func(p *span) {
		p.restart(rev)
		p.opened()
	})
	s.stir()
}

func (s *span) receive(r *Response) {
	s.partial = append(s.partial, r.events...)
	if r.partial {
		return
	}
	events := s.partial
	s.partial = nil
	if len(events) == 0 {
		if r.Header.Revision < s.at {
			return // a member of an older etcd that is behind, whose watcher begins later
		}
		s.at = r.Header.Revision
		s.add(entry{rev: s.at})
	}
	for len(events) > 0 && events[0].rev <= s.at { // these have come on another stream
		events = events[1:]
	}
	for _, e := range entries(events) {
		s.at = e.rev
		s.add(e)
	}
	s.tell(events)
	s.parts.take(events)
	s.trim()
	s.stir()
}

func (s *span) add(e entry) {
	s.recent = append(s.recent, e)
	s.bytes += e.bytes + perEntry
}

// trim keeps within the bounds, but for the last entry.
func (s *span) trim() {
	n, limit := 0, min(s.hub.o.Bytes, s.hub.o.Total/max(1, len(s.hub.spans)))
	for len(s.recent)-n > 1 && (len(s.recent)-n > s.hub.o.Entries || s.bytes > limit) {
		s.floor = max(s.floor, s.recent[n].rev)
		s.bytes -= s.recent[n].bytes + perEntry
		n++
	}
	clear(s.recent[:n]) // the array lives until append makes another one
	s.recent = s.recent[n:]
	s.base += n
}

// stir has all watchers look.
func (s *span) stir() {
	for w := range s.watchers {
		w.stir()
	}
}

// seek is the number of the first entry with events at or above a revision.
func (s *span) seek(rev int64) int {
	at, _ := slices.BinarySearchFunc(s.recent, rev, func(e entry, rev int64) int { return cmp.Compare(e.rev, rev) })
	return s.base + at
}

package relay

import (
	"slices"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/stoa-kv/stoa/internal/protofield"
)

// A span whose range is within that of a followed one needs no watcher upstream: it is a part, whose events are
// picked from what comes for the whole. When the whole goes, the part gets a watcher of its own, from where it is.
//
// Watchers with previous values are not in parts, because those of a Follower have none; nor are those that want
// periodic progress, which a member sends to a watcher that has been idle, and the whole may never be.

// keyOf is the key of the span for a watcher.
func (h *Hub) keyOf(r *pb.WatchCreateRequest) spanKey {
	k := keyOf(r)
	k.part = !r.ProgressNotify && !k.prevKv && h.covering(k) != nil
	return k
}

// covering is a followed span that has all keys of another one; nil for none.
func (h *Hub) covering(k spanKey) *span {
	for _, s := range h.followed {
		if s.key.covers(k) {
			return s
		}
	}
	return nil
}

func (k spanKey) covers(other spanKey) bool {
	switch {
	case other.key < k.key:
		return false
	case k.end == "\x00":
		return true
	case k.end == "":
		return other.end == "" && other.key == k.key
	case other.end == "":
		return other.key < k.end
	default:
		return other.end != "\x00" && other.end <= k.end
	}
}

func (k spanKey) has(key string) bool {
	return key == k.key || key > k.key && k.end != "" && (k.end == "\x00" || key < k.end)
}

// parts are the parts of a span: of single keys by the key, and of ranges.
type parts struct {
	keys   map[string][]*span
	ranges []*span
}

// adopt makes a new span a part.
func (s *span) adopt(p *span) {
	p.whole = s
	if p.key.end != "" {
		s.parts.ranges = append(s.parts.ranges, p)
	} else {
		if s.parts.keys == nil {
			s.parts.keys = map[string][]*span{}
		}
		s.parts.keys[p.key.key] = append(s.parts.keys[p.key.key], p)
	}
	if !s.open {
		return
	}
	p.open, p.floor = true, s.floor
	for _, e := range s.recent {
		p.pick(e.events)
	}
	p.trim()
}

func (ps *parts) remove(p *span) {
	is := func(other *span) bool { return other == p }
	if p.key.end != "" {
		ps.ranges = slices.DeleteFunc(ps.ranges, is)
		return
	}
	if left := slices.DeleteFunc(ps.keys[p.key.key], is); len(left) > 0 {
		ps.keys[p.key.key] = left
	} else {
		delete(ps.keys, p.key.key)
	}
}

// each calls f for all of them; f may remove the one it is called for.
func (ps *parts) each(f func(p *span)) {
	var all []*span
	for _, some := range ps.keys {
		all = append(all, some...)
	}
	for _, p := range append(all, ps.ranges...) {
		f(p)
	}
}

// take gives the parts what has come for the whole.
func (ps *parts) take(events []event) {
	if len(ps.keys) == 0 && len(ps.ranges) == 0 {
		return
	}
	for _, e := range entries(events) {
		for _, p := range ps.of(e.events) {
			p.pick(e.events)
			p.trim()
			p.stir()
		}
	}
}

// of are the parts that may have some of the events, each once.
func (ps *parts) of(events []event) []*span {
	all := slices.Clone(ps.ranges)
	if len(ps.keys) == 0 {
		return all
	}
	seen := make(map[string]bool, len(events))
	for _, e := range events {
		if key := e.key(); !seen[key] {
			seen[key] = true
			all = append(all, ps.keys[key]...)
		}
	}
	return all
}

// pick adds what a part has of the events of one revision.
func (p *span) pick(events []event) {
	var own []event
	for _, e := range events {
		_, deleted := e.KeyValue()
		if p.key.has(e.key()) && !(deleted && p.key.noDelete) && !(!deleted && p.key.noPut) {
			own = append(own, e)
		}
	}
	for _, e := range entries(own) {
		p.add(e)
	}
}

// scatter gives all parts watchers of their own.
func (s *span) scatter() {
	s.parts.each(func(p *span) {
		p.at, p.whole = s.at, nil
		s.hub.create(p)
	})
	s.parts = parts{}
	s.hub.wake()
}

// through: everything at or below it has come.
func (s *span) through() int64 {
	if s.whole != nil {
		return s.whole.at
	}
	return s.at
}

// opened answers those who wait for the span to be open.
func (s *span) opened() {
	openings := s.openings
	s.openings = nil // an answer may end the watcher, and the span with the last one
	for _, o := range openings {
		o.ready = true
		o.stream.settle()
	}
}

// key is the one that has changed.
func (e Event) key() string {
	const keyField = 1
	kv, _ := e.KeyValue()
	f, _ := protofield.Find(kv, keyField, protowire.BytesType)
	return string(f.Bytes)
}

package session

import (
	"slices"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
)

// Merge merges the events of several watches into one order. The zero value is
// empty.
type Merge struct {
	items  []notice
	sorted bool
	bytes  int
}

// notice has one watch's events of one revision. One without events ends it.
type notice struct {
	watch  uint64
	rev    int64
	events []*mvccpb.Event
	end    *pb.WatchResponse
}

// Bytes is the approximate size of the kept events.
func (m *Merge) Bytes() int { return m.bytes }

// Add takes events of a watch, which come in order for each of them.
func (m *Merge) Add(watch uint64, events []*mvccpb.Event) {
	for len(events) > 0 {
		rev, n := events[0].Kv.ModRevision, 1
		for n < len(events) && events[n].Kv.ModRevision == rev {
			n++
		}
		m.add(notice{watch: watch, rev: rev, events: events[:n:n]})
		events = events[n:]
	}
}

// End adds the last response of a watch that the server ends. It comes after
// all that has been added.
func (m *Merge) End(watch uint64, r *pb.WatchResponse) {
	rev := int64(0)
	for _, n := range m.items {
		if n.watch == watch {
			rev = max(rev, n.rev)
		}
	}
	m.add(notice{watch: watch, rev: rev, end: r})
}

func (m *Merge) add(n notice) {
	m.sorted = m.sorted && (len(m.items) == 0 || m.items[len(m.items)-1].rev <= n.rev)
	m.items = append(m.items, n)
	for _, e := range n.events {
		m.bytes += eventBytes(e)
	}
}

func eventBytes(e *mvccpb.Event) int {
	return 64 + len(e.Kv.Key) + len(e.Kv.Value) + len(e.PrevKv.GetValue())
}

// Forget drops the remaining events of a cancelled watch.
func (m *Merge) Forget(watch uint64) {
	m.items = slices.DeleteFunc(m.items, func(n notice) bool {
		if n.watch == watch {
			m.gone(n.events)
		}
		return n.watch == watch
	})
}

// gone counts events that are not kept any more.
func (m *Merge) gone(events []*mvccpb.Event) {
	for _, e := range events {
		m.bytes = max(0, m.bytes-eventBytes(e))
	}
}

// First is the revision of the next events, 0 if there are none. Call it after
// Pop.
func (m *Merge) First() int64 {
	if len(m.items) == 0 {
		return 0
	}
	return m.items[0].rev
}

// Pop returns the next events, if they are at or below through: all of one
// watch at one revision, and at the following ones, as long as no other watch
// has events in between.
func (m *Merge) Pop(through int64) (watch uint64, r *pb.WatchResponse, ok bool) {
	if !m.sorted {
		slices.SortStableFunc(m.items, func(a, b notice) int { return int(min(1, max(-1, a.rev-b.rev))) })
		m.sorted = true
	}
	if len(m.items) == 0 || m.items[0].rev > through {
		return 0, nil, false
	}
	first := m.items[0]
	n, events := 1, first.events
	for first.end == nil && n < len(m.items) && n < gatherMax {
		next := m.items[n]
		if next.watch != first.watch || next.rev > through || next.end != nil {
			break
		}
		events = append(events, next.events...)
		n++
	}
	last := m.items[n-1]
	clear(m.items[:n])
	if m.items = m.items[n:]; len(m.items) == 0 {
		m.items, m.bytes = nil, 0
	}
	m.gone(events)
	if last.end != nil {
		return last.watch, last.end, true
	}
	return last.watch, &pb.WatchResponse{Header: &pb.ResponseHeader{Revision: last.rev}, Events: events}, true
}

// gatherMax bounds the revisions of one response.
const gatherMax = 256

package apply

import (
	"cmp"
	"maps"
	"slices"

	"github.com/stoa-kv/stoa/internal/placement"
)

// Bounds of what is remembered of one session in one partition; beyond them the
// oldest results are forgotten.
const (
	maxResults     = 1024
	maxResultBytes = 256 << 10
)

// sessions is one partition's table, under the lock of its store.
type sessions struct {
	byID    map[int64]*session
	changed []*session // since the last cut
	gone    []int64    // likewise
}

// session is what one partition remembers of one session.
type session struct {
	id       int64
	last     uint64 // the highest number that has taken effect here
	answered uint64 // the client has these answers
	// results are those above answered, ascending. Once it is in there an element
	// never changes, so that a cut can be encoded while the session goes on.
	results []outcome
	bytes   int  // of the results' bodies
	changed bool // since the last cut
}

func newSessions(partitions int) []sessions {
	tables := make([]sessions, partitions)
	for p := range tables {
		tables[p].byID = map[int64]*session{}
	}
	return tables
}

// session returns a session that is there, or is from now on.
func (t *sessions) session(id int64) *session {
	s := t.byID[id]
	if s == nil {
		s = &session{id: id}
		t.byID[id] = s
	}
	return s
}

func (t *sessions) remember(s *session, answered uint64, o outcome) {
	t.touch(s)
	s.last = max(s.last, o.seq)
	s.forget(answered)
	s.add(o)
}

func (t *sessions) touch(s *session) {
	if !s.changed {
		s.changed = true
		t.changed = append(t.changed, s)
	}
}

// drop forgets a session whose lease has ended.
func (t *sessions) drop(id int64) {
	if t.byID[id] != nil {
		delete(t.byID, id)
		t.gone = append(t.gone, id)
	}
}

// find returns the result of a write, nil if it is not known.
func (s *session) find(seq uint64) *outcome {
	i, ok := slices.BinarySearchFunc(s.results, seq, func(o outcome, seq uint64) int { return cmp.Compare(o.seq, seq) })
	if !ok {
		return nil
	}
	return &s.results[i]
}

// forget drops the results that the client has.
func (s *session) forget(answered uint64) {
	if answered <= s.answered {
		return
	}
	s.answered = answered
	n := 0
	for n < len(s.results) && s.results[n].seq <= answered {
		s.bytes -= s.results[n].size()
		n++
	}
	s.results = s.results[n:]
}

func (s *session) add(o outcome) {
	if len(s.results) == cap(s.results) {
		// Room for some more, also where all but a few have been forgotten: append
		// would double those few, and be back here at once.
		s.results = append(make([]outcome, 0, max(8, 2*len(s.results))), s.results...)
	}
	s.results = append(s.results, o)
	s.bytes += o.size()
	n := 0
	for len(s.results)-n > maxResults || s.bytes > maxResultBytes {
		s.bytes -= s.results[n].size()
		n++
	}
	s.results = s.results[n:]
}

// mergeSessions makes the tables of all partitions equal: afterwards a write is found
// wherever it is routed. It is called where the routes of requests change: when keys
// move between partitions, and when other extensions are registered.
func (x *execution) mergeSessions() {
	tables := x.m.sessions
	if len(tables) == 1 {
		return
	}
	known := map[int64][]*session{}
	for p := range tables {
		for id, s := range tables[p].byID {
			known[id] = append(known[id], s)
		}
	}
	for _, id := range slices.Sorted(maps.Keys(known)) {
		merged := merge(known[id])
		for p := range tables {
			if have := tables[p].byID[id]; have != nil && have.same(merged) {
				continue
			}
			s := *merged
			// The results are shared from here on; whoever adds one copies them.
			s.results = slices.Clip(s.results)
			tables[p].replace(&s)
		}
	}
}

// merge returns the highest numbers and all results of what the partitions remember of
// one session.
func merge(all []*session) *session {
	m := &session{id: all[0].id}
	results := map[uint64]outcome{}
	for _, s := range all {
		m.last, m.answered = max(m.last, s.last), max(m.answered, s.answered)
		for _, o := range s.results {
			results[o.seq] = o
		}
	}
	for _, seq := range slices.Sorted(maps.Keys(results)) {
		if seq > m.answered {
			m.add(results[seq])
		}
	}
	return m
}

// same tells whether two partitions remember the same; a number stands for its result.
func (s *session) same(o *session) bool {
	return s.last == o.last && s.answered == o.answered &&
		slices.EqualFunc(s.results, o.results, func(a, b outcome) bool { return a.seq == b.seq })
}

func (t *sessions) replace(s *session) {
	if old := t.byID[s.id]; old != nil && old.changed {
		t.changed = slices.DeleteFunc(t.changed, func(c *session) bool { return c == old })
	}
	t.byID[s.id] = s
	t.touch(s)
}

// dropSession forgets a session in the partitions that take part, which are all.
func (x *execution) dropSession(id int64) {
	for p := range x.parts.Each() {
		x.m.sessions[p].drop(id)
	}
}

// SessionLast tells how far a session has come in a partition, 0 if the partition has
// not heard of it.
func (m *Machine) SessionLast(p int, id int64) uint64 {
	m.rlock(placement.Of(p))
	defer m.runlock(placement.Of(p))
	if s := m.sessions[p].byID[id]; s != nil {
		return s.last
	}
	return 0
}

// Sessions counts the sessions that have written, and the results remembered in all
// partitions.
func (m *Machine) Sessions() (sessions, results int) {
	for p := range m.Stores {
		m.rlock(placement.Of(p))
		sessions = max(sessions, len(m.sessions[p].byID))
		for _, s := range m.sessions[p].byID {
			results += len(s.results)
		}
		m.runlock(placement.Of(p))
	}
	return sessions, results
}

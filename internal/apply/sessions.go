package apply

import (
	"cmp"
	"slices"

	"github.com/stoa-kv/stoa/internal/lease"
	"github.com/stoa-kv/stoa/internal/placement"
)

// Bounds of the results kept of one session in one partition; beyond them the oldest
// are dropped.
const (
	maxResults     = 1024
	maxResultBytes = 256 << 10
)

// sessionBounds bound all sessions together; a field of the machine, so that tests reach
// them with little. They are the same on all servers, as they decide which results are
// kept.
type sessionBounds struct {
	sessions int // open ones; more are refused
	// bytes of results in each partition. Beyond them those sessions forget theirs
	// that have been silent for the longest.
	bytes int
}

var defaultSessionBounds = sessionBounds{sessions: 100_000, bytes: 64 << 20}

// sessions is one partition's table, under the lock of its store. It has all sessions
// that are open: they come and go under the locks of all partitions.
type sessions struct {
	byID    map[int64]*session
	changed []*session // since the last cut
	gone    []int64    // likewise
	bytes   int        // of all results
	most    int        // bytes
}

// session is one partition's record of one session.
type session struct {
	id       int64
	last     uint64 // the highest number that has taken effect here
	answered uint64 // the client has these answers
	// results are those above answered, ascending. Once it is in there an element
	// never changes, so that a cut can be encoded while the session is in use.
	results []outcome
	bytes   int  // of the results' bodies
	changed bool // since the last cut
}

// resultBytes is roughly the memory of a result beside its body.
const resultBytes = 64

// size is the memory of the results, in bytes.
func (s *session) size() int { return len(s.results)*resultBytes + s.bytes }

// bound empties the tables, and sets how much there may be in them.
func (m *Machine) bound(b sessionBounds) {
	m.bounds = b
	m.sessions = make([]sessions, len(m.Stores))
	for p := range m.sessions {
		m.sessions[p] = sessions{byID: map[int64]*session{}, most: b.bytes}
	}
}

// open adds a session that has done nothing yet, if it isn't there.
func (t *sessions) open(id int64) {
	if t.byID[id] == nil {
		s := &session{id: id}
		t.byID[id] = s
		t.touch(s)
	}
}

func (t *sessions) remember(s *session, answered uint64, o outcome) {
	t.touch(s)
	t.bytes -= s.size()
	s.last = max(s.last, o.seq)
	s.forget(answered)
	s.add(o)
	t.bytes += s.size()
	if t.bytes > t.most {
		t.relieve()
	}
}

// relieve frees memory: the results of the sessions idle for the longest, by the revision
// of their last result, are dropped until an eighth is free. Their
// clients have either received these results long ago or been disconnected since.
//
// The choice follows from the content of the table alone, so it is the same on all
// servers, whenever they were started. Since an eighth is freed, it is made once for very
// many writes.
func (t *sessions) relieve() {
	var list []*session
	for _, s := range t.byID {
		if len(s.results) > 0 {
			list = append(list, s)
		}
	}
	slices.SortFunc(list, func(a, b *session) int {
		return cmp.Or(cmp.Compare(a.newest(), b.newest()), cmp.Compare(a.id, b.id))
	})
	for _, s := range list {
		if t.bytes <= t.most-t.most/8 {
			return
		}
		t.touch(s)
		t.bytes -= s.size()
		s.results, s.bytes = nil, 0
	}
}

// newest is the revision of the last result.
func (s *session) newest() int64 { return s.results[len(s.results)-1].rev }

func (t *sessions) touch(s *session) {
	if !s.changed {
		s.changed = true
		t.changed = append(t.changed, s)
	}
}

// drop removes a session whose lease has ended.
func (t *sessions) drop(id int64) {
	if s := t.byID[id]; s != nil {
		t.bytes -= s.size()
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
		// Capacity for some more, also where all but a few have been dropped: append
		// would double those few, and have to grow again at once.
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
// move between partitions, and when other extensions are registered. All partitions wait
// for it, so it takes time for those sessions only in which the tables differ.
func (x *execution) mergeSessions() {
	tables := x.m.sessions
	if len(tables) == 1 {
		return
	}
	var m merger
	for id := range tables[0].byID {
		if m.differ(tables, id) {
			m.merge(tables)
		}
	}
	for p := range tables {
		if tables[p].bytes > tables[p].most {
			tables[p].relieve()
		}
	}
}

// merger makes the partitions' records of a session equal.
type merger struct {
	all     []*session // one in each table
	results []outcome
}

// differ takes up the next session, and tells whether its tables differ.
func (m *merger) differ(tables []sessions, id int64) bool {
	m.all = m.all[:0]
	differ := false
	for p := range tables {
		s := tables[p].byID[id]
		m.all = append(m.all, s)
		differ = differ || !s.same(m.all[0])
	}
	return differ
}

// merge gives all tables the highest numbers and all results.
func (m *merger) merge(tables []sessions) {
	var merged session
	m.results = m.results[:0]
	for _, s := range m.all {
		merged.last, merged.answered = max(merged.last, s.last), max(merged.answered, s.answered)
		m.results = append(m.results, s.results...)
	}
	slices.SortFunc(m.results, func(a, b outcome) int { return cmp.Compare(a.seq, b.seq) })
	last := merged.answered
	for _, o := range m.results {
		if o.seq > last {
			merged.add(o)
			last = o.seq
		}
	}
	clear(m.results)
	// They are shared from here on; adding one copies them.
	merged.results = slices.Clip(merged.results)
	for p, s := range m.all {
		if !s.same(&merged) {
			tables[p].become(s, &merged)
		}
	}
}

// same tells whether two records are equal; a number stands for its result.
func (s *session) same(o *session) bool {
	return s.last == o.last && s.answered == o.answered &&
		slices.EqualFunc(s.results, o.results, func(a, b outcome) bool { return a.seq == b.seq })
}

// become replaces a session of the table by the content of another.
func (t *sessions) become(s, o *session) {
	t.touch(s)
	t.bytes += o.size() - s.size()
	s.last, s.answered, s.results, s.bytes = o.last, o.answered, o.results, o.bytes
}

// dropSession forgets a session in the partitions that take part, which are all.
func (x *execution) dropSession(id int64) {
	for p := range x.parts.Each() {
		x.m.sessions[p].drop(id)
	}
}

// hasSession reports whether a lease is that of a session.
func (m *Machine) hasSession(id int64) bool {
	m.rlock(placement.Of(0))
	defer m.runlock(placement.Of(0))
	return m.sessions[0].byID[id] != nil
}

// SessionLast returns the number of a session's last write in a partition, 0 if the
// partition has no record of the session.
func (m *Machine) SessionLast(p int, id int64) uint64 {
	m.rlock(placement.Of(p))
	defer m.runlock(placement.Of(p))
	if s := m.sessions[p].byID[id]; s != nil {
		return s.last
	}
	return 0
}

// SessionResult returns what a request of a session was answered with when it took effect in any partition, as
// far as this server has applied it; false if none remembers it.
func (m *Machine) SessionResult(id int64, seq uint64) (r Result, known bool) {
	all := m.Placement().All()
	m.rlock(all)
	defer m.runlock(all)
	var found traces
	for p := range m.sessions {
		if s := m.sessions[p].byID[id]; s != nil {
			found.add(s, seq)
		}
	}
	if found.result == nil {
		return Result{}, false
	}
	return found.result.repeated(true), true
}

// OpenSessions is the number of sessions that are open.
func (m *Machine) OpenSessions() int {
	m.rlock(placement.Of(0))
	defer m.runlock(placement.Of(0))
	return len(m.sessions[0].byID)
}

// Granted returns the leases that are not over, in the order of their ids: those that clients
// were granted and, if asked to, those of sessions. Leases and sessions come and go together,
// under the locks of all partitions, so that of one is enough.
func (m *Machine) Granted(sessions bool) ([]lease.Lease, error) {
	m.rlock(placement.Of(0))
	defer m.runlock(placement.Of(0))
	if err := m.shows(true); err != nil {
		return nil, err
	}
	var list []lease.Lease
	m.Leases.Each(func(l lease.Lease) {
		if l.Remaining != lease.Ending && (sessions || m.sessions[0].byID[l.ID] == nil) {
			list = append(list, l)
		}
	})
	slices.SortFunc(list, func(a, b lease.Lease) int { return cmp.Compare(a.ID, b.ID) })
	return list, nil
}

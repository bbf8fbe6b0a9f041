package apply

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc64"
	"maps"
	"slices"
	"strings"

	"github.com/stoa-kv/stoa/internal/command"
	"github.com/stoa-kv/stoa/internal/placement"
)

// The partitions' records of sessions are stored in named values beside the keys, one
// for each session and partition:
//
//	session/PPP/ID   PPP the partition in decimal, ID the session in 16 hex digits
//
// The value; numbers are unsigned varints unless said otherwise:
//
//	version (1 byte) | last | answered | results
//	then for each result: the distance of its number from the one before, from
//	answered for the first | the distance of its revision likewise, signed |
//	kind (1 byte), 0 for a put that was answered with nothing but its revision,
//	else followed by | code | length | body
const (
	sessionName    = "session/"
	sessionVersion = 1
	plainPut       = command.Kind(0)
)

// SessionsCut has the records of sessions that have changed since the last cut.
type SessionsCut struct {
	changed []sessionAt
	gone    []sessionAt // of these, only the ids
}

type sessionAt struct {
	partition int
	session
}

// CutSessions takes the change since the last cut. All stores are locked; the
// encoding is left for later.
func (m *Machine) CutSessions() SessionsCut {
	var c SessionsCut
	for p := range m.sessions {
		t := &m.sessions[p]
		for _, id := range t.gone {
			c.gone = append(c.gone, sessionAt{p, session{id: id}})
		}
		for _, s := range t.changed {
			s.changed = false
			if t.byID[s.id] == s { // not dropped since
				c.changed = append(c.changed, sessionAt{p, *s})
			}
		}
		t.gone = nil
		clear(t.changed)
		t.changed = t.changed[:0]
	}
	return c
}

// AddTo puts the cut among the named values to be stored, nil for those to be
// removed.
func (c *SessionsCut) AddTo(values map[string][]byte) map[string][]byte {
	if values == nil && len(c.gone)+len(c.changed) > 0 {
		values = map[string][]byte{}
	}
	for i := range c.gone {
		values[nameOfSession(c.gone[i].partition, c.gone[i].id)] = nil
	}
	for i := range c.changed { // after the deletions: an id may have been reused
		s := &c.changed[i]
		values[nameOfSession(s.partition, s.id)] = s.encode()
	}
	return values
}

// LoadSessions loads the stored records. The caller must have exclusive access to the
// machine.
func (m *Machine) LoadSessions(values map[string][]byte) error {
	m.bound(m.bounds)
	for _, name := range slices.Sorted(maps.Keys(values)) {
		if !strings.HasPrefix(name, sessionName) {
			continue
		}
		p, s, err := readSession(name, values[name])
		if err == nil && (p < 0 || p >= len(m.sessions)) {
			err = errors.New("there is no such partition")
		}
		if err != nil {
			return fmt.Errorf("reading %s of %d bytes: %w", name, len(values[name]), err)
		}
		m.sessions[p].byID[s.id] = s
		m.sessions[p].bytes += s.size()
	}
	for p := range m.sessions { // where a former version has left some out
		for id := range m.sessions[p].byID {
			for q := range m.sessions {
				m.sessions[q].open(id)
			}
		}
	}
	return nil
}

// SessionsDigest is a checksum of a partition's records of sessions: it is the same on
// all replicas at the same place in the log.
func (m *Machine) SessionsDigest(p int) uint64 {
	m.rlock(placement.Of(p))
	defer m.runlock(placement.Of(p))
	table := m.sessions[p].byID
	sum, polynomial := uint64(0), crc64.MakeTable(crc64.ECMA)
	for _, id := range slices.Sorted(maps.Keys(table)) {
		sum = crc64.Update(sum, polynomial, []byte(nameOfSession(p, id)))
		sum = crc64.Update(sum, polynomial, table[id].encode())
	}
	return sum
}

func nameOfSession(p int, id int64) string {
	return fmt.Sprintf("%s%03d/%016x", sessionName, p, uint64(id))
}

func readSession(name string, b []byte) (p int, s *session, err error) {
	var id uint64
	if n, err := fmt.Sscanf(name, sessionName+"%03d/%016x", &p, &id); n != 2 || err != nil {
		return 0, nil, errors.New("this is no name of a session")
	}
	s, err = decodeSession(b)
	if err != nil {
		return 0, nil, err
	}
	s.id = int64(id)
	return p, s, nil
}

func (s *session) encode() []byte {
	b := make([]byte, 0, 16+8*len(s.results)+s.bytes)
	b = append(b, sessionVersion)
	b = binary.AppendUvarint(b, s.last)
	b = binary.AppendUvarint(b, s.answered)
	b = binary.AppendUvarint(b, uint64(len(s.results)))
	seq, rev := s.answered, int64(0)
	for i := range s.results {
		o := &s.results[i]
		b = binary.AppendUvarint(b, o.seq-seq)
		b = binary.AppendVarint(b, o.rev-rev)
		seq, rev = o.seq, o.rev
		d := o.detail
		if d == nil {
			b = append(b, byte(plainPut))
			continue
		}
		b = append(b, byte(d.kind))
		b = binary.AppendUvarint(b, uint64(d.code))
		b = binary.AppendUvarint(b, uint64(len(d.body)))
		b = append(b, d.body...)
	}
	return b
}

var errSession = errors.New("it is damaged")

func decodeSession(b []byte) (*session, error) {
	if len(b) == 0 || b[0] != sessionVersion {
		return nil, errors.New("it is of a version that this program doesn't know")
	}
	r := fields{rest: b[1:]}
	s := &session{last: r.uvarint(), answered: r.uvarint()}
	count := r.uvarint()
	if count > maxResults {
		return nil, errSession
	}
	seq, rev := s.answered, int64(0)
	for range count {
		o := outcome{seq: seq + r.uvarint(), rev: rev + r.varint()}
		if kind := command.Kind(r.byte()); kind != plainPut {
			o.detail = &detail{kind: kind, code: uint32(r.uvarint())}
			o.detail.body = r.bytes(r.uvarint())
		}
		if r.bad || o.seq <= seq || o.seq > s.last {
			return nil, errSession
		}
		s.results = append(s.results, o)
		s.bytes += o.size()
		seq, rev = o.seq, o.rev
	}
	if r.bad || len(r.rest) > 0 {
		return nil, errSession
	}
	return s, nil
}

// fields reads from the front of rest; after an error it yields zeros.
type fields struct {
	rest []byte
	bad  bool
}

func (r *fields) take(n int) {
	if n <= 0 {
		r.rest, r.bad = nil, true
		return
	}
	r.rest = r.rest[n:]
}

func (r *fields) uvarint() uint64 {
	v, n := binary.Uvarint(r.rest)
	r.take(n)
	return v
}

func (r *fields) varint() int64 {
	v, n := binary.Varint(r.rest)
	r.take(n)
	return v
}

func (r *fields) byte() byte {
	if len(r.rest) == 0 {
		r.bad = true
		return 0
	}
	v := r.rest[0]
	r.take(1)
	return v
}

// bytes returns a copy, nil if there are none.
func (r *fields) bytes(n uint64) []byte {
	if n == 0 || n > uint64(len(r.rest)) {
		r.bad = r.bad || n > 0
		return nil
	}
	v := slices.Clone(r.rest[:n])
	r.take(int(n))
	return v
}

// ResizeSessions puts among the named values to be stored what makes the records of a number
// of partitions, from, those of another. They have all been made equal before.
func ResizeSessions(values, stored map[string][]byte, from, to int) {
	for name, value := range stored {
		if !strings.HasPrefix(name, sessionName) {
			continue
		}
		p, s, err := readSession(name, value)
		if err != nil {
			continue // LoadSessions reports it
		}
		if p >= to {
			values[name] = nil
		}
		if p == 0 {
			for q := from; q < to; q++ {
				values[nameOfSession(q, s.id)] = value
			}
		}
	}
}

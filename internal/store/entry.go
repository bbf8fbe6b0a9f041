package store

import (
	"math"
	"slices"
	"sort"

	"github.com/stoa-kv/stoa/internal/kvwire"
)

// entry is one key. Its current value is in memory; of its past only the
// revisions are, and the values are in the change log or in History.
type entry struct {
	wire *byte // of the key's KeyValue: the current one, or a tombstone, in which past ends then
	past *past // nil for the many keys that were written once
	size uint32
	sub  uint32 // of the current revision
}

func (e *entry) kv() kvwire.KeyValue { return kvwire.At(e.wire, e.size) }

func (e *entry) key() []byte { return e.kv().Key() }

// current returns the key's value as it is now, if the key isn't deleted.
func (e *entry) current() kvwire.KeyValue {
	if kv := e.kv(); !kv.IsTombstone() {
		return kv
	}
	return kvwire.KeyValue{}
}

func (e *entry) deleted() bool { return e.kv().IsTombstone() }

func (e *entry) set(kv kvwire.KeyValue) { e.wire, e.size = kv.Pointer() }

// mark is one revision in a key's past.
type mark struct {
	main int64
	sub  uint32
	tomb bool
}

func (m mark) rev() Revision { return Revision{m.main, int64(m.sub)} }

// past is a key's superseded revisions, ascending. The first one lies inside,
// so that a key overwritten once costs a single allocation.
type past struct {
	marks []mark
	first [1]mark
}

func newPast() *past {
	p := &past{}
	p.marks = p.first[:0]
	return p
}

func (p *past) add(m mark) { p.marks = append(p.marks, m) }

// at returns the key's state as of revision rev: its current value if that is
// old enough, else the mark to look up; false if the key did not exist then.
func (e *entry) at(rev int64) (cur kvwire.KeyValue, old Revision, ok bool) {
	if cur = e.current(); cur.Exists() && cur.ModRevision() <= rev {
		return cur, Revision{}, true
	}
	if e.past == nil {
		return kvwire.KeyValue{}, Revision{}, false
	}
	ms := e.past.marks
	i := sort.Search(len(ms), func(i int) bool { return ms[i].main > rev }) - 1
	if i < 0 || ms[i].tomb {
		return kvwire.KeyValue{}, Revision{}, false
	}
	return kvwire.KeyValue{}, ms[i].rev(), true
}

// find returns the place of rev among the key's revisions; the current value's
// place is len(past).
func (e *entry) find(rev Revision) (int, bool) {
	var ms []mark
	if e.past != nil {
		ms = e.past.marks
	}
	i, ok := slices.BinarySearchFunc(ms, rev, func(m mark, r Revision) int { return m.rev().Compare(r) })
	if ok {
		return i, true
	}
	if cur := e.current(); cur.Exists() && rev.Sub == int64(e.sub) && rev.Main == cur.ModRevision() {
		return len(ms), true
	}
	return 0, false
}

// before returns the key's revision as of the one before main, which place i is
// of; false if the key was not there or its last value has been compacted away.
func (e *entry) before(i int, main int64) (Revision, bool) {
	for i--; i >= 0; i-- {
		if m := e.past.marks[i]; m.main < main {
			return m.rev(), !m.tomb
		}
	}
	return Revision{}, false
}

// compact drops the revisions that compaction at revision c makes dead and appends them
// to dead: every one below c that was superseded at or below c, and a tombstone below c. Those
// exactly at c stay until the next compaction, since watches may begin there: tombstones as in etcd since
// 3.5.15, and what the same revision has superseded, which etcd doesn't know.
// It reports whether the key is gone altogether.
func (e *entry) compact(c int64, dead []Dead) ([]Dead, bool) {
	ms := e.past.marks
	n := 0
	for ; n < len(ms); n++ {
		superseded := int64(math.MaxInt64)
		if n+1 < len(ms) {
			superseded = ms[n+1].main
		} else if cur := e.current(); cur.Exists() {
			superseded = cur.ModRevision()
		}
		if ms[n].main >= c || superseded > c && !ms[n].tomb {
			break
		}
		dead = append(dead, Dead{ms[n].rev(), ms[n].tomb})
	}
	switch {
	case n == len(ms):
		e.past = nil
	case n > len(ms)-n: // more freed than kept: let the array go
		e.past.marks = slices.Clone(ms[n:])
	default:
		e.past.marks = ms[n:]
	}
	return dead, e.past == nil && e.deleted()
}

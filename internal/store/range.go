package store

import (
	"fmt"

	"go.etcd.io/etcd/api/v3/mvccpb"

	"github.com/stoa-kv/stoa/internal/fault"
)

// Found is the answer to a Range, in key order.
type Found struct {
	Kvs   []*mvccpb.KeyValue // nil where Resolve has still to fetch a value
	Count int                // of all keys in the range, whatever the limit
	Rev   int64              // the revision that was asked for; 0 for the current one

	missing []missing
}

type missing struct {
	i   int
	rev Revision
}

// Range reads the keys in [key, end) as of revision rev; 0 is now. An empty
// end means the one key, "\x00" all keys from key on, as in etcd. limit 0 is
// none. It fails with fault.Compacted below the compaction revision. It does
// not judge revisions in the future: with several partitions, a store whose
// last write is older than rev may well be closed through rev.
//
// Values that have left memory are only referred to; call Resolve, after the
// lock has been let go.
func (s *Store) Range(key, end []byte, rev int64, limit int) (Found, error) {
	f := Found{Rev: rev}
	if err := s.readable(rev); err != nil {
		return f, err
	}
	if len(end) == 0 {
		s.one(&f, key, rev)
		return f, nil
	}
	if limit <= 0 {
		limit = int(^uint(0) >> 1)
	}
	if s.isCurrent(rev) {
		f.Kvs = make([]*mvccpb.KeyValue, 0, min(limit, 16))
		last := ""
		s.ascend(key, end, func(k string, e *entry) bool {
			if len(f.Kvs) == limit {
				return false
			}
			f.Kvs = append(f.Kvs, e.cur)
			last = k
			return true
		})
		f.Count = len(f.Kvs)
		if f.Count == limit {
			f.Count += s.countAfter(last, end)
		}
		return f, nil
	}
	s.ascendAt(key, end, rev, func(_ string, e *entry) bool {
		cur, old, ok := e.at(rev)
		if !ok {
			return true
		}
		f.Count++
		if len(f.Kvs) < limit {
			s.take(&f, cur, old)
		}
		return true
	})
	return f, nil
}

// Count is Range's Count without the keys.
func (s *Store) Count(key, end []byte, rev int64) (int, error) {
	if err := s.readable(rev); err != nil {
		return 0, err
	}
	if len(end) != 0 && s.isCurrent(rev) {
		return s.countBetween(view(key), end, 0), nil
	}
	f, n := Found{}, 0
	if len(end) == 0 {
		s.one(&f, key, rev)
		return f.Count, nil
	}
	s.ascendAt(key, end, rev, func(_ string, e *entry) bool {
		if _, _, ok := e.at(rev); ok {
			n++
		}
		return true
	})
	return n, nil
}

// Resolve fetches what Range only referred to. It needs no lock. It fails with
// fault.Compacted if a compaction has overtaken the read.
func (s *Store) Resolve(f *Found) error {
	for _, m := range f.missing {
		kv, err := s.history.Get(m.rev)
		if err != nil {
			return fmt.Errorf("read revision %d.%d of history: %w", m.rev.Main, m.rev.Sub, err)
		}
		if kv == nil {
			// Only a compaction above the read's revision removes what it saw.
			return fault.Compacted
		}
		f.Kvs[m.i] = kv
	}
	f.missing = nil
	return nil
}

// Resolved tells whether there is nothing left for Resolve to do.
func (f *Found) Resolved() bool { return len(f.missing) == 0 }

func (s *Store) readable(rev int64) error {
	if rev > 0 && rev < s.compacted {
		return fault.Compacted
	}
	return nil
}

func (s *Store) isCurrent(rev int64) bool { return rev <= 0 || rev >= s.rev }

func (s *Store) one(f *Found, key []byte, rev int64) {
	e := s.keys[view(key)]
	if e == nil {
		return
	}
	if s.isCurrent(rev) {
		if e.cur != nil {
			f.Kvs, f.Count = []*mvccpb.KeyValue{e.cur}, 1
		}
		return
	}
	if cur, old, ok := e.at(rev); ok {
		f.Count = 1
		s.take(f, cur, old)
	}
}

func (s *Store) take(f *Found, cur *mvccpb.KeyValue, old Revision) {
	if cur == nil {
		if c := s.change(old); c != nil {
			cur = c.Kv
		} else {
			f.missing = append(f.missing, missing{len(f.Kvs), old})
		}
	}
	f.Kvs = append(f.Kvs, cur)
}

// before tells whether k lies below a range's end.
func before(k string, end []byte) bool {
	return len(end) == 1 && end[0] == 0 || k < view(end)
}

// ascend visits the keys in [key, end) that exist now.
func (s *Store) ascend(key, end []byte, fn func(string, *entry) bool) {
	s.live.Ascend(view(key), func(k string, e *entry) bool {
		return before(k, end) && fn(k, e)
	})
}

// ascendAt visits the keys in [key, end) that may have existed at rev.
func (s *Store) ascendAt(key, end []byte, rev int64, fn func(string, *entry) bool) {
	if s.lastDelete <= rev || s.graves.Len() == 0 {
		s.ascend(key, end, fn) // whatever is dead now was dead then
		return
	}
	graves := s.graves.Iter()
	more := graves.Seek(view(key))
	stopped := false
	s.ascend(key, end, func(k string, e *entry) bool {
		for ; more && graves.Key() < k; more = graves.Next() {
			if !fn(graves.Key(), graves.Value()) {
				stopped = true
				return false
			}
		}
		stopped = !fn(k, e)
		return !stopped
	})
	for ; !stopped && more && before(graves.Key(), end); more = graves.Next() {
		stopped = !fn(graves.Key(), graves.Value())
	}
}

// countAfter counts the live keys above last and below end.
func (s *Store) countAfter(last string, end []byte) int {
	return s.countBetween(last, end, 1)
}

// countBetween counts the live keys in [key, end), less skip. A short range is
// walked; for a long one two binary searches by rank cost less.
func (s *Store) countBetween(key string, end []byte, skip int) int {
	const walk = 128
	n := 0
	s.live.Ascend(key, func(k string, _ *entry) bool {
		if !before(k, end) {
			return false
		}
		n++
		return n < walk
	})
	if n == walk {
		n = s.live.Len()
		if unbounded := len(end) == 1 && end[0] == 0; !unbounded {
			n = s.rank(view(end))
		}
		n -= s.rank(key)
	}
	return n - skip
}

// rank is the number of live keys below key.
func (s *Store) rank(key string) int {
	lo, hi := 0, s.live.Len()
	for lo < hi {
		mid := (lo + hi) / 2
		if k, _, _ := s.live.GetAt(mid); k < key {
			lo = mid + 1
		} else {
			hi = mid
		}
	}
	return lo
}

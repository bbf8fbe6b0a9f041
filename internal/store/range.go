package store

import (
	"bytes"
	"fmt"

	"github.com/stoa-kv/stoa/internal/fault"
	"github.com/stoa-kv/stoa/internal/kvwire"
)

// Found is the answer to a Range, in key order.
type Found struct {
	Kvs   []kvwire.KeyValue // none where Resolve has still to fetch a value
	Count int               // of all keys in the range, regardless of the limit

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
// Values that are not in memory are only referred to; call Resolve, after the
// lock has been released.
func (s *Store) Range(key, end []byte, rev int64, limit int) (Found, error) {
	var f Found
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
		from, to := s.live.seek(key), s.live.below(end)
		f.Count = s.live.count(from, to)
		f.Kvs = make([]kvwire.KeyValue, 0, min(limit, f.Count))
		if cap(f.Kvs) > 0 {
			s.live.ascend(from, to, func(e *entry) bool {
				f.Kvs = append(f.Kvs, e.kv())
				return len(f.Kvs) < limit
			})
		}
		return f, nil
	}
	s.ascendAt(key, end, rev, func(e *entry) bool {
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
		return s.live.count(s.live.seek(key), s.live.below(end)), nil
	}
	f, n := Found{}, 0
	if len(end) == 0 {
		s.one(&f, key, rev)
		return f.Count, nil
	}
	s.ascendAt(key, end, rev, func(e *entry) bool {
		if _, _, ok := e.at(rev); ok {
			n++
		}
		return true
	})
	return n, nil
}

// Sizes calls fn with the keys of [key, end) that exist, in order, and the bytes of each with
// its value, which are good until fn returns.
func (s *Store) Sizes(key, end []byte, fn func(key []byte, bytes int)) {
	s.live.ascend(s.live.seek(key), s.live.below(end), func(e *entry) bool {
		kv := e.kv()
		fn(kv.Key(), len(kv.Key())+len(kv.Value()))
		return true
	})
}

// Walk calls fn with n keys that exist, or as many as there are, in order, from a key on. It
// returns where to go on, if there are more. Keys are good until fn returns.
func (s *Store) Walk(from []byte, n int, fn func(key []byte)) (next []byte, more bool) {
	s.live.ascend(s.live.seek(from), s.live.end(), func(e *entry) bool {
		if n == 0 {
			next, more = bytes.Clone(e.key()), true
			return false
		}
		n--
		fn(e.key())
		return true
	})
	return next, more
}

// Resolve fetches the values that Range only referred to. It needs no lock. It fails with
// ErrMissing if History no longer has it; see there. All other errors are History's.
func (s *Store) Resolve(f *Found) error {
	for _, m := range f.missing {
		kv, err := s.history.Get(m.rev)
		if err == nil && !kv.Exists() {
			err = fmt.Errorf("read revision %d.%d: %w", m.rev.Main, m.rev.Sub, ErrMissing)
		}
		if err != nil {
			return err
		}
		f.Kvs[m.i] = kv
	}
	f.missing = nil
	return nil
}

func (s *Store) readable(rev int64) error {
	if rev > 0 && rev < s.compacted {
		return fault.Compacted
	}
	return nil
}

func (s *Store) isCurrent(rev int64) bool { return rev <= 0 || rev >= s.rev }

func (s *Store) one(f *Found, key []byte, rev int64) {
	e := s.keys.get(key)
	if e == nil {
		return
	}
	if s.isCurrent(rev) {
		if cur := e.current(); cur.Exists() {
			f.Kvs, f.Count = []kvwire.KeyValue{cur}, 1
		}
		return
	}
	if cur, old, ok := e.at(rev); ok {
		f.Count = 1
		s.take(f, cur, old)
	}
}

func (s *Store) take(f *Found, cur kvwire.KeyValue, old Revision) {
	if !cur.Exists() {
		if c := s.change(old); c != nil {
			cur = c.Kv
		} else {
			f.missing = append(f.missing, missing{len(f.Kvs), old})
		}
	}
	f.Kvs = append(f.Kvs, cur)
}

// before tells whether key lies below a range's end.
func before(key, end []byte) bool {
	return len(end) == 1 && end[0] == 0 || view(key) < view(end)
}

// ascendAt visits the keys in [key, end) that may have existed at rev.
func (s *Store) ascendAt(key, end []byte, rev int64, fn func(*entry) bool) {
	from, to := s.live.seek(key), s.live.below(end)
	if s.lastDelete <= rev || s.tombstones.len() == 0 {
		s.live.ascend(from, to, fn) // all keys that are deleted now were deleted then
		return
	}
	tombstone, last := s.tombstones.seek(key), s.tombstones.below(end)
	stopped := false
	s.live.ascend(from, to, func(e *entry) bool {
		for ; tombstone.less(last) && view(s.tombstones.at(tombstone).key()) < view(e.key()); tombstone = s.tombstones.next(tombstone) {
			if stopped = !fn(s.tombstones.at(tombstone)); stopped {
				return false
			}
		}
		stopped = !fn(e)
		return !stopped
	})
	for ; !stopped && tombstone.less(last); tombstone = s.tombstones.next(tombstone) {
		stopped = !fn(s.tombstones.at(tombstone))
	}
}

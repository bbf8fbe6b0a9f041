package auth

import (
	"slices"
)

// Index finds the quotas that limit a key. It never changes.
type Index struct {
	Quotas []Quota
	spans  []spans // of each quota
	keys   segments
}

// Index returns the index of the quotas that are in force, nil for none.
func (s *State) Index() *Index { return s.index }

// indexed brings the indexes of a state that was made just now up to date.
func (s *State) indexed() *State {
	s.index, s.rates, s.watches = nil, nil, nil
	if s.Enabled && len(s.quotas) > 0 {
		s.index = s.newIndex()
		s.rates = s.newReach(func(l *Limits) int64 { return l.Rate })
		s.watches = s.newReach(func(l *Limits) int64 { return l.Watchers })
	}
	return s
}

func (s *State) newIndex() *Index {
	x := &Index{Quotas: s.quotas, spans: make([]spans, len(s.quotas))}
	for i, q := range s.quotas {
		x.spans[i] = s.limited(&q)
	}
	x.keys = newSegments(x.spans)
	return x
}

// limited are the keys that a quota is for.
func (s *State) limited(q *Quota) spans {
	if q.Role == "" {
		return spans{{q.Prefix, prefixEnd(q.Prefix)}}
	}
	r := s.roles[q.Role]
	if r == nil {
		return nil
	}
	_, write := r.spans(nil, nil)
	write = slices.DeleteFunc(write, func(s span) bool { return s.to != "" && s.to <= s.from })
	return merged(write)
}

// prefixEnd is the first key behind those with a prefix, "" if there is none.
func prefixEnd(prefix string) string {
	b := []byte(prefix)
	for len(b) > 0 && b[len(b)-1] == 0xff {
		b = b[:len(b)-1]
	}
	if len(b) > 0 {
		b[len(b)-1]++
	}
	return string(b)
}

// Of returns the numbers of the quotas of a key, in order. It doesn't allocate.
func (x *Index) Of(key []byte) []int32 { return x.keys.at(key) }

// Find returns the number of the quota for the same role or prefix as q.
func (x *Index) Find(q *Quota) (int, bool) {
	return slices.BinarySearchFunc(x.Quotas, *q, compareQuotas)
}

// Spans calls f with the ranges of keys of quota i, as etcd's requests write them.
func (x *Index) Spans(i int, f func(key, end []byte)) {
	for _, s := range x.spans[i] {
		end := []byte(s.to)
		if s.to == "" {
			end = []byte{0}
		}
		f([]byte(s.from), end)
	}
}

// SameKeys reports whether quota i is for the same keys as quota j of another index.
func (x *Index) SameKeys(i int, o *Index, j int) bool { return slices.Equal(x.spans[i], o.spans[j]) }

package auth

import (
	"slices"
	"sort"
	"strings"
)

// Index finds the quotas that limit a key. It never changes.
type Index struct {
	Quotas []Quota
	spans  []spans // of each quota
	// The keys from bounds[i] to the next bound are those of the quotas of[i].
	bounds []string
	of     [][]int32
}

// Index returns the index of the quotas that are in force, nil for none.
func (s *State) Index() *Index { return s.index }

// indexed brings the index of a state that was made just now up to date.
func (s *State) indexed() *State {
	s.index = nil
	if s.Enabled && len(s.quotas) > 0 {
		s.index = s.newIndex()
	}
	return s
}

func (s *State) newIndex() *Index {
	x := &Index{Quotas: s.quotas, spans: make([]spans, len(s.quotas))}
	type bound struct {
		at    string
		quota int32
		ends  bool
	}
	var all []bound
	for i, q := range s.quotas {
		x.spans[i] = s.limited(&q)
		for _, sp := range x.spans[i] {
			all = append(all, bound{sp.from, int32(i), false})
			if sp.to != "" {
				all = append(all, bound{sp.to, int32(i), true})
			}
		}
	}
	slices.SortStableFunc(all, func(a, b bound) int { return strings.Compare(a.at, b.at) })
	var now []int32
	for i, b := range all {
		at, has := slices.BinarySearch(now, b.quota)
		now = slices.Clone(now)
		if b.ends && has {
			now = slices.Delete(now, at, at+1)
		} else if !b.ends && !has {
			now = slices.Insert(now, at, b.quota)
		}
		if i+1 == len(all) || all[i+1].at != b.at {
			x.bounds, x.of = append(x.bounds, b.at), append(x.of, now)
		}
	}
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
func (x *Index) Of(key []byte) []int32 {
	i := sort.Search(len(x.bounds), func(i int) bool { return x.bounds[i] > string(key) }) - 1
	if i < 0 {
		return nil
	}
	return x.of[i]
}

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

package auth

import (
	"slices"
	"sort"
	"strings"
)

// segments divide all keys by the quotas that they belong to: the keys from bounds[i] to the
// next bound are those of the quotas of[i], in order; those before the first bound have none.
type segments struct {
	bounds []string
	of     [][]int32
}

// newSegments is for quotas with these keys.
func newSegments(keys []spans) (s segments) {
	type bound struct {
		at    string
		quota int32
		ends  bool
	}
	var all []bound
	for i, list := range keys {
		for _, sp := range list {
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
			s.bounds, s.of = append(s.bounds, b.at), append(s.of, now)
		}
	}
	return s
}

// last is the segment of a key, -1 for one without quotas.
func (s *segments) last(key []byte) int {
	return sort.Search(len(s.bounds), func(i int) bool { return s.bounds[i] > string(key) }) - 1
}

// at returns the quotas of a key. It doesn't allocate.
func (s *segments) at(key []byte) []int32 {
	if i := s.last(key); i >= 0 {
		return s.of[i]
	}
	return nil
}

// touched adds to list, which is in order, the quotas of the keys of a range, or of the key
// alone without an end, as etcd's requests write them.
func (s *segments) touched(list []int32, key, end []byte) []int32 {
	i := s.last(key)
	if i >= 0 {
		list = union(list, s.of[i])
	}
	if len(end) == 0 {
		return list
	}
	toEnd := len(end) == 1 && end[0] == 0
	for i++; i < len(s.bounds) && (toEnd || s.bounds[i] < string(end)); i++ {
		list = union(list, s.of[i])
	}
	return list
}

// union adds to list what is in more; both are in order.
func union(list, more []int32) []int32 {
	for _, q := range more {
		if at, has := slices.BinarySearch(list, q); !has {
			list = slices.Insert(list, at, q)
		}
	}
	return list
}

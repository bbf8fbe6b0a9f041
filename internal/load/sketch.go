package load

import (
	"cmp"
	"slices"
)

// Counters is how many prefixes of a partition are counted at a time. One that causes more than
// a thirty-second of the load is certain to be among them.
const Counters = 32

// maxPrefix is how much of a prefix is kept, in bytes.
const maxPrefix = 128

// sketch counts the heaviest of any number of prefixes: one that isn't counted takes the place of
// the lightest, and its count, which is kept as the error.
type sketch struct {
	hashes [Counters]uint64
	counts [Counters]float64
	errors [Counters]float64
	names  [Counters][]byte
	used   int
	sum    float64
}

// add compares hashes alone: two prefixes with the same are one in 2^64.
func (s *sketch) add(hash uint64, prefix []byte, weight float64) {
	s.sum += weight
	for i, h := range s.hashes[:s.used] {
		if h == hash {
			s.counts[i] += weight
			return
		}
	}
	at := s.used
	if at < Counters {
		s.used++
	} else {
		at = 0
		for i, c := range s.counts {
			if c < s.counts[at] {
				at = i
			}
		}
	}
	s.errors[at] = s.counts[at]
	s.counts[at] += weight
	s.hashes[at] = hash
	s.names[at] = append(s.names[at][:0], prefix[:min(len(prefix), maxPrefix)]...)
}

// decay leaves a part of each count. What has nearly vanished is forgotten, so that an idle
// partition names nothing.
func (s *sketch) decay(keep float64) {
	s.sum *= keep
	for i := 0; i < s.used; {
		s.counts[i] *= keep
		s.errors[i] *= keep
		if s.counts[i] >= 0.01 {
			i++
			continue
		}
		s.used--
		last := s.used
		s.hashes[i], s.counts[i], s.errors[i] = s.hashes[last], s.counts[last], s.errors[last]
		s.names[i], s.names[last] = s.names[last], s.names[i]
		s.counts[last], s.errors[last] = 0, 0
	}
}

// top returns the heaviest prefixes, of which all have caused a load together: those that have
// certainly caused a hundredth of it.
func (s *sketch) top(n int, load float64) (list []Prefix) {
	for i := range s.used {
		if sure := s.counts[i] - s.errors[i]; sure >= s.sum/100 {
			list = append(list, Prefix{string(s.names[i]), load * sure / s.sum})
		}
	}
	slices.SortFunc(list, func(a, b Prefix) int {
		return cmp.Or(cmp.Compare(b.Load, a.Load), cmp.Compare(a.Prefix, b.Prefix))
	})
	return list[:min(n, len(list))]
}

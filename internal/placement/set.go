package placement

import (
	"iter"
	"math/bits"
	"strconv"
	"strings"
)

// Set is a set of partitions: bit p stands for partition p.
type Set uint64

// Of is the set of one partition.
func Of(partition int) Set { return 1 << partition }

// All is the set of the partitions of a cluster that has so many.
func All(partitions int) Set { return ^Set(0) >> (MaxPartitions - partitions) }

// Has tells whether a partition is in the set.
func (s Set) Has(partition int) bool { return s>>partition&1 == 1 }

// Len is how many partitions are in the set.
func (s Set) Len() int { return bits.OnesCount64(uint64(s)) }

// First is the lowest partition of a set that isn't empty.
func (s Set) First() int { return bits.TrailingZeros64(uint64(s)) }

// Each yields the partitions in ascending order, the order in which they are
// always locked.
func (s Set) Each() iter.Seq[int] {
	return func(yield func(int) bool) {
		for rest := s; rest != 0; rest &= rest - 1 {
			if !yield(rest.First()) {
				return
			}
		}
	}
}

func (s Set) String() string {
	var b strings.Builder
	b.WriteByte('{')
	for p := range s.Each() {
		if b.Len() > 1 {
			b.WriteByte(' ')
		}
		b.WriteString(strconv.Itoa(p))
	}
	b.WriteByte('}')
	return b.String()
}

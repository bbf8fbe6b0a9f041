package main

import (
	"math/bits"
	"time"
)

// histogram counts durations in buckets that are at most 1/32 wide of their value.
type histogram struct {
	count   int64
	longest time.Duration
	buckets [(64 - subBits) * sub]int64
}

const (
	subBits = 5 // that are kept behind the leading one
	sub     = 1 << subBits
)

func bucket(d time.Duration) int {
	n := uint64(max(d, 1))
	shift := max(bits.Len64(n)-subBits-1, 0)
	return shift*sub + int(n>>shift)
}

// upper is the largest duration of a bucket.
func upper(b int) time.Duration {
	shift := max(b/sub-1, 0)
	return time.Duration(uint64(b-shift*sub+1)<<shift - 1)
}

func (h *histogram) add(d time.Duration) { h.addMany(d, 1) }

func (h *histogram) addMany(d time.Duration, n int64) {
	h.count += n
	h.longest = max(h.longest, d)
	h.buckets[bucket(d)] += n
}

func (h *histogram) merge(o *histogram) {
	h.count += o.count
	h.longest = max(h.longest, o.longest)
	for i, n := range o.buckets {
		h.buckets[i] += n
	}
}

// quantile is the duration that the share q of all did not exceed.
func (h *histogram) quantile(q float64) time.Duration {
	rest := int64(q * float64(h.count))
	for i, n := range h.buckets {
		if rest -= n; rest < 0 {
			return upper(i)
		}
	}
	return 0
}

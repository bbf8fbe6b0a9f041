package store

import (
	"fmt"
	"hash/maphash"

	"github.com/cespare/xxhash/v2"

	"github.com/stoa-kv/stoa/internal/kvwire"
)

// SumClasses is how many classes keys are divided into, by a hash: damage is looked for in
// those alone whose sums differ.
const SumClasses = 64

// Sums are checksums of the keys that exist, with their values, revisions and leases. They
// depend on nothing else: not on the order of writes, on history, or on how far a compaction
// has come. So they are equal on all replicas at the same place in the logs, and equal to what
// a file holds that was flushed there.
//
// A store's own are those of the changes that were made in it (Windows compares these). Moves of keys change none, so
// only the sums of all stores together say something about keys.
type Sums [SumClasses]Sum

// Sum is that of one class. Content is Σ h over its keys, modulo 2^64, and Place Σ h·p, where h
// is a hash of the KeyValue and p one of the key. Adding and not XOR: two equal differences
// don't cancel each other. Place says where a single difference is (Names).
type Sum struct{ Content, Place uint64 }

// change replaces a key's value, of which one may be none.
func (s *Sums) change(key []byte, before, after kvwire.KeyValue) {
	hash := uint64(0)
	if after.Exists() {
		hash += xxhash.Sum64(after.Wire())
	}
	if before.Exists() {
		hash -= xxhash.Sum64(before.Wire())
	}
	s.add(key, hash)
}

// add adds a hash, or the difference of two, of a key.
func (s *Sums) add(key []byte, hash uint64) {
	p := placeOf(key)
	sum := &s[p>>(64-6)]
	sum.Content += hash
	sum.Place += hash * p
}

// Summing takes the sums of History's records without a store: it keeps two numbers of each key.
type Summing struct {
	Sums
	seed maphash.Seed      // so that nobody can choose keys of one hash
	last map[uint64]uint64 // by a hash of the key, that of its KeyValue
}

// NewSumming returns one of no keys.
func NewSumming() *Summing { return &Summing{seed: maphash.MakeSeed(), last: map[uint64]uint64{}} }

// Add takes the next record in order of revision, as a Loader does.
func (s *Summing) Add(rev Revision, tombstone bool, raw []byte) error {
	if len(raw) == 0 {
		return nil
	}
	r := record{rev, tombstone, raw}
	kv, err := r.keyValue()
	if err != nil {
		return fmt.Errorf("revision %d.%d: %w", rev.Main, rev.Sub, err)
	}
	hash, key := uint64(0), maphash.Bytes(s.seed, kv.Key())
	if !tombstone {
		hash = xxhash.Sum64(kv.Wire())
	}
	s.add(kv.Key(), hash-s.last[key])
	if tombstone {
		delete(s.last, key)
	} else {
		s.last[key] = hash
	}
	return nil
}

// content is one sum of all keys.
func (s *Sums) content() (sum uint64) {
	for i := range s {
		sum += s[i].Content
	}
	return sum
}

// placeOf is odd, so that no difference is lost in the product.
func placeOf(key []byte) uint64 { return xxhash.Sum64(key) | 1 }

// Add adds the sums of another store.
func (s *Sums) Add(o *Sums) {
	for i := range o {
		s[i].Content += o[i].Content
		s[i].Place += o[i].Place
	}
}

// Minus returns the difference to other sums.
func (s *Sums) Minus(o *Sums) (d Sums) {
	for i := range s {
		d[i] = Sum{s[i].Content - o[i].Content, s[i].Place - o[i].Place}
	}
	return d
}

// Of returns the sum of the class of a key.
func (s *Sums) Of(key []byte) Sum { return s[placeOf(key)>>(64-6)] }

// Names reports whether a difference of two sums is one of this key's values alone.
func (d Sum) Names(key []byte) bool { return d != Sum{} && d.Content*placeOf(key) == d.Place }

// Sums returns the store's sums.
func (s *Store) Sums() Sums { return s.sums }

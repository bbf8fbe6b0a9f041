package backend

import (
	"bytes"
	"encoding/binary"
	"fmt"

	"github.com/stoa-kv/stoa/internal/store"
	"github.com/stoa-kv/stoa/internal/version"
)

// levelOfSums is the level from which on the file has checksums of its keys.
const levelOfSums version.Level = 4

// stoaSums holds checksums of the keys that exist (store.Sums, of all partitions together):
// the version of how they are computed, the positions of the partitions as the file has them,
// and 64 pairs of sums, 8 bytes each. A file of that level has none only before the first
// flush at the level, or after Reset.
var stoaSums = []byte("sums")

// sumsVersion says how sums are computed.
const sumsVersion = 1

// writeSums writes the sums of a cut, whose positions and level have been written.
func writeSums(w writer, parts []store.Cut) error {
	if !summed(w) {
		if w.get(bucketStoa, stoaSums) == nil {
			return nil
		}
		return w.remove(bucketStoa, stoaSums)
	}
	var sums store.Sums
	for i := range parts {
		sums.Add(&parts[i].Sums)
	}
	v := sumsHead(w, len(parts))
	for _, s := range sums {
		v = binary.BigEndian.AppendUint64(v, s.Content)
		v = binary.BigEndian.AppendUint64(v, s.Place)
	}
	return w.put(bucketStoa, stoaSums, v)
}

// summed reports whether the file's level is one of files with sums.
func summed(r reader) bool {
	return version.Level(readBE64(r.get(bucketStoa, stoaFormat))) >= levelOfSums
}

// sumsHead is what sums begin with that belong to the file as it is.
func sumsHead(r reader, partitions int) []byte {
	b := []byte{sumsVersion}
	for p := range partitions {
		b = append(b, r.get(bucketStoa, stoaPosition(p))...)
	}
	return b
}

// readSums returns the file's sums, nil if it has none.
func readSums(r reader, partitions int) (*store.Sums, error) {
	v := r.get(bucketStoa, stoaSums)
	if v == nil || !summed(r) {
		return nil, nil
	}
	v, ok := bytes.CutPrefix(v, sumsHead(r, partitions))
	if !ok || len(v) != 16*store.SumClasses {
		return nil, fmt.Errorf("%w: the checksums of the keys are of other positions in the log than those that it has", ErrDamaged)
	}
	sums := &store.Sums{}
	for i := range sums {
		sums[i].Content = binary.BigEndian.Uint64(v[16*i:])
		sums[i].Place = binary.BigEndian.Uint64(v[16*i+8:])
	}
	return sums, nil
}

var errChanged = fmt.Errorf("%w: keys or values are not those that were written", ErrDamaged)

// checkSums compares the keys that were loaded with the file's sums: bbolt has no checksums
// on its pages, so this is what finds a bit that has changed in a value.
func checkSums(want *store.Sums, stores []*store.Store) error {
	if want == nil {
		return nil
	}
	var have store.Sums
	for _, s := range stores {
		sums := s.Sums()
		have.Add(&sums)
	}
	if have == *want {
		return nil
	}
	return fmt.Errorf("%w%s", errChanged, differing(have.Minus(want), stores))
}

// checkOwnSums is checkSums without loading the keys.
func checkOwnSums(r reader, partitions int) error {
	want, err := readSums(r, partitions)
	if err != nil || want == nil {
		return err
	}
	have := store.NewSumming()
	if err := eachRecord(r, have.Add); err != nil {
		return err
	}
	if have.Sums != *want {
		return errChanged
	}
	return nil
}

// differing names the keys where sums differ: a value that has changed, if there is one to a
// class; else all that can be said is in how many classes.
func differing(d store.Sums, stores []*store.Store) string {
	classes, found := 0, 0
	for _, sum := range d {
		if sum != (store.Sum{}) {
			classes++
		}
	}
	var text []byte
	for _, s := range stores {
		s.Walk(nil, s.Keys(), func(key []byte) {
			if d.Of(key).Names(key) {
				text = fmt.Appendf(text, ", key %q (revision %d)", key, s.Get(key).ModRevision())
				found++
			}
		})
	}
	if found < classes {
		text = fmt.Appendf(text, ", and one or more of a %d/%d of the keys, or keys that are lost", classes-found, store.SumClasses)
	}
	return string(text)
}

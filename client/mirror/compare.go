package mirror

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"hash"
)

// Sum describes the keys of one side.
type Sum struct {
	Keys   int64
	Leased int64 // keys with a lease
	// SHA256 is over each key in order: the lengths of key and value (8 bytes each,
	// big-endian), key, value, and the lease's ID (8 bytes). The lease is 0 while a mirror
	// is followed, as the target has none then.
	SHA256 [sha256.Size]byte
}

func (s Sum) String() string {
	return fmt.Sprintf("%d keys, %d of them with a lease, SHA-256 %x", s.Keys, s.Leased, s.SHA256)
}

// Comparison is the outcome of Compare.
type Comparison struct {
	Source, Target Sum
	// Different is the first key that differs, nil if none does.
	Different []byte
}

// Place is a pair of revisions at which both sides have the same keys.
type Place struct{ Source, Target int64 }

// Compare reads the source and the target at a place, and compares keys and values; leases
// too, if asked. Revisions and versions are not compared: each cluster counts its own. It
// fails with ErrCompacted if one of the two has compacted its revision. It may run beside
// the executor.
func Compare(ctx context.Context, s Source, t Target, at Place, leases bool) (Comparison, error) {
	a := newCursor(func(ctx context.Context, from []byte) ([]KV, []byte, error) { return s.Page(ctx, from, at.Source) })
	b := newCursor(func(ctx context.Context, from []byte) ([]KV, []byte, error) { return t.Page(ctx, from, at.Target) })
	var c Comparison
	left, right := summer{hash: sha256.New(), leases: leases}, summer{hash: sha256.New(), leases: leases}
	err := merge(ctx, a, b, func(x, y *KV) error {
		if c.Different == nil && (x == nil || y == nil || !bytes.Equal(x.Value, y.Value) || leases && x.Lease != y.Lease) {
			if c.Different = []byte{}; x != nil {
				c.Different = append(c.Different, x.Key...)
			} else {
				c.Different = append(c.Different, y.Key...)
			}
		}
		left.add(x)
		right.add(y)
		return nil
	})
	c.Source, c.Target = left.sum(), right.sum()
	return c, err
}

type summer struct {
	Sum
	hash   hash.Hash
	leases bool
	buf    []byte
}

func (s *summer) add(kv *KV) {
	if kv == nil {
		return
	}
	s.Keys++
	lease := kv.Lease
	if lease != 0 {
		s.Leased++
	}
	if !s.leases {
		lease = 0
	}
	s.buf = binary.BigEndian.AppendUint64(s.buf[:0], uint64(len(kv.Key)))
	s.buf = binary.BigEndian.AppendUint64(s.buf, uint64(len(kv.Value)))
	s.buf = append(append(s.buf, kv.Key...), kv.Value...)
	s.buf = binary.BigEndian.AppendUint64(s.buf, uint64(lease))
	s.hash.Write(s.buf)
}

func (s *summer) sum() Sum {
	s.hash.Sum(s.SHA256[:0])
	return s.Sum
}

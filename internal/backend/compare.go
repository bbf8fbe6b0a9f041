package backend

import (
	"bytes"
	"errors"
	"fmt"

	"github.com/stoa-kv/stoa/internal/kvwire"
	"github.com/stoa-kv/stoa/internal/store"
)

// ErrDiffers says that a value in memory and that in the file differ: one of the two has
// changed by itself. The error that wraps it names the file and the key.
var ErrDiffers = errors.New("memory and file differ")

// Compare compares about so many bytes of a store's keys, from a key on, with the file. next is
// where to go on, nil after the last. It may run beside everything else.
func (b *Backend) Compare(s *store.Store, from []byte, size int) (next []byte, err error) {
	list, next := s.Page(nil, from, size)
	var suspect []store.Stored
	err = b.eng.view(func(r reader) error {
		key := make([]byte, 0, revLen)
		for _, c := range list {
			key = appendRev(key[:0], c.Revision, false)
			if v := r.get(bucketKey, key); !same(v, c.Kv) {
				suspect = append(suspect, c)
			}
		}
		return nil
	})
	for _, c := range suspect {
		if s.Still(c) { // or it was overwritten, and compacted, after the page was taken
			return nil, fmt.Errorf("%s: %w in key %q, revision %d.%d", b.path, ErrDiffers, c.Kv.Key(), c.Main, c.Sub)
		}
	}
	return next, err
}

// same reports whether a record is that of a KeyValue, which another encoder may have written.
func same(record []byte, kv kvwire.KeyValue) bool {
	if bytes.Equal(record, kv.Wire()) {
		return true
	}
	parsed, err := kvwire.Parse(record)
	return err == nil && bytes.Equal(parsed.Wire(), kv.Wire())
}

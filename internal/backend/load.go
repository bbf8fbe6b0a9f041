package backend

import (
	"errors"
	"fmt"

	"github.com/stoa-kv/stoa/internal/store"
)

// Load fills new stores, one a partition, with the keys of the file, and sets
// their positions. It fails with ErrDamaged if the keys are not those of the file's checksums. route returns the store of a key. rest is nil or makes pauses, as for
// store.NewLoader.
func (b *Backend) Load(stores []*store.Store, route func(key []byte) int, rest func()) error {
	if len(stores) != b.id.Partitions {
		return fmt.Errorf("load %s: %d stores for %d partitions", b.path, len(stores), b.id.Partitions)
	}
	err := b.eng.view(func(r reader) error {
		sums, err := readSums(r, len(stores))
		if err != nil {
			return err
		}
		l := store.NewLoader(stores, route, rest)
		// The loader reads the mapped file until Finish: finish inside the view.
		if err := errors.Join(eachRecord(r, l.Add), l.Finish()); err != nil {
			return err
		}
		return checkSums(sums, stores)
	})
	if err != nil {
		return fmt.Errorf("load %s: %w", b.path, err)
	}
	b.eng.forget()
	m, err := b.Meta()
	if err != nil {
		return err
	}
	for i, s := range stores {
		p := m.Positions[i]
		s.Lock()
		s.Restore(p.Index, p.Term, p.Rev, m.Compacted, m.Finished)
		s.Unlock()
	}
	return nil
}

// eachRecord passes the records of all keys on, in order of revision.
func eachRecord(r reader, add func(rev store.Revision, tombstone bool, raw []byte) error) (err error) {
	r.ascend(bucketKey, nil, func(k, v []byte) bool {
		rev, tombstone, ok := parseRev(k)
		if !ok {
			err = fmt.Errorf("%w: %x is not a revision", ErrDamaged, k)
			return false
		}
		if err = add(rev, tombstone, v); err != nil {
			err = fmt.Errorf("%w: %w", ErrDamaged, err)
		}
		return err == nil
	})
	return err
}

package backend

import (
	"fmt"

	"github.com/stoa-kv/stoa/internal/kvwire"
	"github.com/stoa-kv/stoa/internal/store"
)

var _ store.History = (*Backend)(nil)

// Get implements store.History.
func (b *Backend) Get(rev store.Revision) (kv kvwire.KeyValue, err error) {
	err = b.eng.view(func(r reader) error {
		v := r.get(bucketKey, appendRev(make([]byte, 0, revLen), rev, false))
		if len(v) == 0 {
			return nil
		}
		mapped, err := kvwire.Parse(v)
		if err == nil && mapped.ModRevision() != rev.Main {
			err = fmt.Errorf("the record of key %q says revision %d", mapped.Key(), mapped.ModRevision())
		}
		if err != nil {
			return fmt.Errorf("%s: %w: %w", b.path, ErrDamaged, err)
		}
		kv = mapped.Clone()
		return nil
	})
	if err != nil {
		return kvwire.KeyValue{}, fmt.Errorf("read revision %d.%d: %w", rev.Main, rev.Sub, err)
	}
	return kv, nil
}

// Scan implements store.History.
func (b *Backend) Scan(from, to int64, fn func(rev store.Revision, kv kvwire.KeyValue, tombstone bool) bool) error {
	return b.eng.view(func(r reader) (err error) {
		r.ascend(bucketKey, appendRev(nil, store.Revision{Main: max(from, 0)}, false), func(k, v []byte) bool {
			rev, tombstone, ok := parseRev(k)
			if !ok {
				err = fmt.Errorf("%s: %w: %x is not a revision", b.path, ErrDamaged, k)
				return false
			}
			if rev.Main > to {
				return false
			}
			if len(v) == 0 {
				return true // etcdutl's mark of a revision that it has moved forward
			}
			kv, parseErr := kvwire.Parse(v)
			if parseErr != nil {
				err = fmt.Errorf("%s: %w: revision %d.%d: %w", b.path, ErrDamaged, rev.Main, rev.Sub, parseErr)
				return false
			}
			return fn(rev, kv, tombstone)
		})
		return err
	})
}

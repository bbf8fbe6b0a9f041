package backend

import (
	"fmt"

	"go.etcd.io/etcd/api/v3/mvccpb"
	"google.golang.org/protobuf/proto"

	"github.com/stoa-kv/stoa/internal/store"
)

var _ store.History = (*Backend)(nil)

// Get implements store.History.
func (b *Backend) Get(rev store.Revision) (kv *mvccpb.KeyValue, err error) {
	err = b.eng.view(func(r reader) error {
		v := r.get(bucketKey, appendRev(make([]byte, 0, revLen), rev, false))
		if v == nil {
			return nil
		}
		kv = &mvccpb.KeyValue{}
		return proto.Unmarshal(v, kv)
	})
	if err != nil {
		return nil, fmt.Errorf("read revision %d.%d of %s: %w", rev.Main, rev.Sub, b.path, err)
	}
	return kv, nil
}

// Scan implements store.History.
func (b *Backend) Scan(from, to int64, fn func(rev store.Revision, kv *mvccpb.KeyValue, tombstone bool) bool) error {
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
			kv := &mvccpb.KeyValue{}
			if err = proto.Unmarshal(v, kv); err != nil {
				err = fmt.Errorf("%s: %w: revision %d.%d: %w", b.path, ErrDamaged, rev.Main, rev.Sub, err)
				return false
			}
			kv.ModRevision = rev.Main // which a tombstone doesn't say
			return fn(rev, kv, tombstone)
		})
		return err
	})
}

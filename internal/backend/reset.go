package backend

import (
	"bytes"
	"fmt"

	"github.com/stoa-kv/stoa/internal/store"
	"github.com/stoa-kv/stoa/internal/version"
)

// Initial is the part of a file that a new cluster has of its own. The keys with their
// history, the leases and the alarms are those of the file.
type Initial struct {
	Identity Identity
	Members  []Member
	Position Position // of every partition
	// Compacted is the last compaction, -1 if there was none.
	Compacted int64
	// Bumped leaves the mark of a revision that was moved forward, as etcdutl does: an
	// empty value under it.
	Bumped bool
	Blobs  map[string][]byte
	Level  version.Level // 0: the lowest
}

// ownBuckets are the buckets whose content a new cluster doesn't take over: the members,
// etcd's version of the cluster, and our own.
var ownBuckets = []string{bucketMembers, bucketRemoved, bucketCluster, bucketStoa}

// Reset makes a file, of stoa's or etcd's, the first state of a new cluster: in one
// transaction, so that after a crash it is what it was or complete.
func (b *Backend) Reset(i Initial) error {
	err := b.eng.update(func(w writer) error {
		for _, name := range ownBuckets {
			if err := empty(w, name); err != nil {
				return err
			}
		}
		if err := initialise(w, i.Identity); err != nil {
			return err
		}
		return writeInitial(w, &i)
	})
	if err != nil {
		return fmt.Errorf("reset %s: %w", b.path, err)
	}
	b.id = i.Identity
	return nil
}

func writeInitial(w writer, i *Initial) error {
	for p := range i.Identity.Partitions {
		if err := writePosition(w, p, i.Position); err != nil {
			return fmt.Errorf("position of partition %d: %w", p, err)
		}
	}
	for key, v := range map[string]uint64{string(metaIndex): i.Position.Index, string(metaTerm): i.Position.Term} {
		if err := w.put(bucketMeta, []byte(key), be64(v)); err != nil {
			return err
		}
	}
	if i.Compacted >= 0 {
		at := appendRev(nil, store.Revision{Main: i.Compacted}, false)
		if err := w.put(bucketMeta, metaScheduled, at); err != nil {
			return err
		}
	}
	if i.Bumped {
		if err := w.put(bucketKey, appendRev(nil, store.Revision{Main: i.Position.Rev}, false), nil); err != nil {
			return err
		}
	}
	return writeSystem(w, &System{Members: i.Members, Blobs: i.Blobs, Level: i.Level})
}

func empty(w writer, bucket string) error {
	var keys [][]byte
	w.ascend(bucket, nil, func(k, _ []byte) bool {
		keys = append(keys, bytes.Clone(k))
		return true
	})
	for _, k := range keys {
		if err := w.remove(bucket, k); err != nil {
			return fmt.Errorf("empty bucket %q: %w", bucket, err)
		}
	}
	return nil
}

// ConsistentIndex is the index in etcd's log of the last entry that the file has, 0 if it
// has none.
func (b *Backend) ConsistentIndex() (index uint64, err error) {
	err = b.eng.view(func(r reader) error {
		index = readBE64(r.get(bucketMeta, metaIndex))
		return nil
	})
	return index, err
}

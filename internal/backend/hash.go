package backend

import (
	"bytes"
	"fmt"
	"hash/crc32"
	"math"

	"github.com/stoa-kv/stoa/internal/fault"
	"github.com/stoa-kv/stoa/internal/kvwire"
	"github.com/stoa-kv/stoa/internal/store"
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// Hash is etcd's Maintenance.Hash: a checksum over every bucket of etcd's,
// without what may differ between servers that agree. Our own bucket names the
// server, so it is left out too.
func (b *Backend) Hash() (sum uint32, err error) {
	err = b.eng.view(func(r reader) error {
		h := crc32.New(castagnoli)
		for _, name := range r.buckets() {
			if name == bucketStoa {
				continue
			}
			h.Write([]byte(name))
			r.ascend(name, nil, func(k, v []byte) bool {
				if !private(name, k) {
					h.Write(k)
					h.Write(v)
				}
				return true
			})
		}
		sum = h.Sum32()
		return nil
	})
	return sum, err
}

// private reports whether a key is excluded from Hash.
func private(bucket string, key []byte) bool {
	return bucket == bucketMeta &&
		(bytes.Equal(key, metaIndex) || bytes.Equal(key, metaTerm) || bytes.Equal(key, metaVersion))
}

// HashKV is etcd's checksum over history through rev, as a reader may see it
// after the last compaction that has reached the file, which it returns (-1: none). It
// depends on the two numbers and the log, not on the progress of the physical compaction,
// so servers can be compared by it. Everything through rev must have been flushed. It fails
// with fault.Compacted if the compaction is later than rev, and with ErrAborted once stop returns true. Meanwhile it
// keeps all keys in memory.
func (b *Backend) HashKV(rev int64, stop func() bool) (sum uint32, compacted int64, err error) {
	err = b.eng.view(func(r reader) error {
		if compacted = readCompacted(r); rev < compacted {
			return fault.Compacted
		}
		sum, err = b.hashKV(&pausingReader{r, stop, begin(0, 0)}, rev, compacted)
		if stop() {
			return ErrAborted
		}
		return err
	})
	return sum, compacted, err
}

// CompactionHash is what HashKV(rev) was before a compaction at rev that follows one at
// previous. The file must hold everything through rev,
// and no revision that the compaction at rev drops may have been removed yet:
// see store.Cut's Sweep. It runs throttled, and returns ErrAborted once stop
// returns true.
func (b *Backend) CompactionHash(rev, previous int64, stop func() bool) (sum uint32, err error) {
	err = b.eng.view(func(r reader) error {
		sum, err = b.hashKV(&pausingReader{r, stop, begin(hashPauses, longestPause)}, rev, previous)
		if stop() {
			return ErrAborted
		}
		return err
	})
	return sum, err
}

// pausingReader pauses during a walk, and ends it early once stop returns
// true.
type pausingReader struct {
	reader
	stop func() bool
	pace *pace
}

// hashPauses throttles the hash: all servers compute that of a compaction at
// the same time, and no request waits for it.
const hashPauses = 3

func (p *pausingReader) ascend(bucket string, from []byte, fn func(k, v []byte) bool) {
	n := 0
	p.reader.ascend(bucket, from, func(k, v []byte) bool {
		if n++; n%1024 == 0 {
			if p.stop() {
				return false
			}
			p.pace.pause()
		}
		return fn(k, v)
	})
}

func (b *Backend) hashKV(r reader, rev, compacted int64) (uint32, error) {
	keep, err := readable(r, rev, compacted)
	if err != nil {
		return 0, fmt.Errorf("hash %s: %w", b.path, err)
	}
	h := crc32.New(castagnoli)
	h.Write([]byte(bucketKey))
	r.ascend(bucketKey, nil, func(k, v []byte) bool {
		at, _, _ := parseRev(k)
		if at.Main > rev {
			return false
		}
		if _, ok := keep[at]; ok || at.Main > compacted {
			h.Write(k)
			h.Write(v)
		}
		return true
	})
	return h.Sum32(), nil
}

// readable returns the revisions at or below the compaction that belong to
// the hash. etcd takes those that are still their key's newest at rev; but if
// no key exists at rev, it takes all that its compaction retained, that is
// those that were their key's newest at the compaction.
func readable(r reader, rev, compacted int64) (map[store.Revision]struct{}, error) {
	if compacted < 0 {
		return nil, nil
	}
	atCompaction, err := newest(r, compacted)
	if err != nil {
		return nil, err
	}
	atRev, err := newest(r, rev)
	if err != nil {
		return nil, err
	}
	from := atRev
	if len(atRev) == 0 {
		from = atCompaction
	}
	keep := make(map[store.Revision]struct{}, len(from))
	for _, at := range from {
		if at.Main <= compacted {
			keep[at] = struct{}{}
		}
	}
	return keep, nil
}

// newest returns for each key that exists at rev the revision of its value.
func newest(r reader, rev int64) (map[string]store.Revision, error) {
	keys := map[string]store.Revision{}
	err := error(nil)
	r.ascend(bucketKey, nil, func(k, v []byte) bool {
		at, tombstone, ok := parseRev(k)
		if !ok {
			err = fmt.Errorf("%w: %x is not a revision", ErrDamaged, k)
			return false
		}
		if at.Main > rev {
			return false
		}
		var key []byte
		if key, err = keyOf(at, v); err != nil {
			return false
		}
		if tombstone {
			delete(keys, string(key))
		} else {
			keys[string(key)] = at
		}
		return true
	})
	return keys, err
}

// keyOf is the key of the record of a revision. The mark of a bumped revision counts as a record of the empty key, as in etcd.
func keyOf(at store.Revision, record []byte) ([]byte, error) {
	if len(record) == 0 {
		return nil, nil
	}
	key, err := kvwire.Key(record)
	if err != nil {
		return nil, fmt.Errorf("%w: revision %d.%d: %w", ErrDamaged, at.Main, at.Sub, err)
	}
	return key, nil
}

// Current is the revision with which HashKV covers everything.
const Current int64 = math.MaxInt64

package backend

import (
	"fmt"
	"hash/crc32"

	"github.com/cespare/xxhash/v2"
)

// Status describes a file as `etcdutl snapshot status` does.
type Status struct {
	Hash     uint32 // over everything in the file
	Revision int64  // of the last change that the file holds
	Keys     int    // that exist at Revision
	Size     int64  // bytes, without what is appended to the file
	Version  string // storage version, empty in files from before etcd 3.6
}

// Status reads the whole file.
func (b *Backend) Status() (s Status, err error) {
	h := crc32.New(castagnoli)
	keys := map[string]struct{}{}
	err = b.eng.view(func(r reader) error {
		s.Version = string(r.get(bucketMeta, metaVersion))
		for _, name := range r.buckets() {
			h.Write([]byte(name))
			r.ascend(name, nil, func(k, v []byte) bool {
				h.Write(k)
				h.Write(v)
				if name == bucketKey {
					s.Revision, err = count(keys, k, v)
				}
				return err == nil
			})
			if err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return s, fmt.Errorf("read %s: %w", b.path, err)
	}
	s.Hash, s.Keys, s.Size = h.Sum32(), len(keys), b.Size()
	return s, nil
}

// count notes a change in the set of keys.
func count(keys map[string]struct{}, k, v []byte) (rev int64, err error) {
	at, tombstone, ok := parseRev(k)
	if !ok {
		return 0, fmt.Errorf("%w: %x is not a revision", ErrDamaged, k)
	}
	key, err := keyOf(at, v)
	if err != nil {
		return 0, err
	}
	if tombstone {
		delete(keys, string(key))
	} else if _, known := keys[string(key)]; !known {
		keys[string(key)] = struct{}{}
	}
	return at.Main, nil
}

// stateBuckets are the buckets whose content a new cluster takes over with a file.
var stateBuckets = []string{bucketKey, bucketLease, bucketAlarm, bucketAuth, bucketAuthUsers, bucketAuthRoles}

// StateSum is a checksum of the state that a new cluster takes over with the file. Copies
// of a file have the same, however their pages are arranged; so have a file and what
// Reset or etcdutl make of it.
func (b *Backend) StateSum() (sum uint64, err error) {
	h := xxhash.New()
	err = b.eng.view(func(r reader) error {
		for _, name := range stateBuckets {
			h.WriteString(name) //nolint:errcheck // it never fails
			r.ascend(name, nil, func(k, v []byte) bool {
				if name != bucketKey || len(v) > 0 {
					writeSized(h, k)
					writeSized(h, v)
				}
				return true
			})
		}
		return nil
	})
	return h.Sum64(), err
}

func writeSized(h *xxhash.Digest, b []byte) {
	var size [4]byte
	le.PutUint32(size[:], uint32(len(b)))
	h.Write(size[:]) //nolint:errcheck // it never fails
	h.Write(b)       //nolint:errcheck // as above
}

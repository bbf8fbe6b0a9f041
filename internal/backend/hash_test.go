package backend_test

import (
	"encoding/binary"
	"hash/crc32"
	"math/rand/v2"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	bolt "go.etcd.io/bbolt"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"google.golang.org/protobuf/proto"

	"github.com/stoa-kv/stoa/internal/fault"
	"github.com/stoa-kv/stoa/internal/store"
)

// walk reads the whole file as etcd and etcdutl would, knowing the schema only.
func walk(t *testing.T, path string, fn func(bucket string, k, v []byte)) {
	db, err := bolt.Open(path, 0o400, &bolt.Options{ReadOnly: true})
	require.NoError(t, err)
	defer db.Close()
	require.NoError(t, db.View(func(tx *bolt.Tx) error {
		for err := range tx.Check() {
			require.NoError(t, err)
		}
		return tx.ForEach(func(name []byte, b *bolt.Bucket) error {
			fn(string(name), nil, nil)
			return b.ForEach(func(k, v []byte) error {
				fn(string(name), k, v)
				return nil
			})
		})
	}))
}

func TestHashIsEtcds(t *testing.T) {
	path := filepath.Join(t.TempDir(), "db")
	s := newServer(open(t, path))
	s.stores[0].SetApplied(7, 2)
	s.fill(t, 100)
	got, err := s.be.Hash()
	require.NoError(t, err)
	require.NoError(t, s.be.Close())
	h := crc32.New(crc32.MakeTable(crc32.Castagnoli))
	walk(t, path, func(bucket string, k, v []byte) {
		switch {
		case bucket == "stoa":
		case k == nil:
			h.Write([]byte(bucket))
		case bucket == "meta" && (string(k) == "consistent_index" || string(k) == "term" || string(k) == "storageVersion"):
		default:
			h.Write(k)
			h.Write(v)
		}
	})
	require.Equal(t, h.Sum32(), got)
}

// etcdHashKV is etcd's definition (server/storage/mvcc: key_index keep, hash),
// over a file in which the compaction is finished.
func etcdHashKV(t *testing.T, path string, rev, compacted int64) uint32 {
	type record struct {
		rev       store.Revision
		tombstone bool
		k, v      []byte
		key       string
	}
	var all []record
	walk(t, path, func(bucket string, k, v []byte) {
		if bucket != "key" || k == nil {
			return
		}
		var kv mvccpb.KeyValue
		require.NoError(t, proto.Unmarshal(v, &kv))
		all = append(all, record{rev: revOf(k), tombstone: len(k) == 18, k: append([]byte{}, k...), v: append([]byte{}, v...), key: string(kv.Key)})
	})
	keep := map[store.Revision]bool{}
	for i, r := range all {
		last := r.rev.Main <= rev && !r.tombstone
		for _, later := range all[i+1:] {
			last = last && (later.key != r.key || later.rev.Main > rev)
		}
		if last {
			keep[r.rev] = true
		}
	}
	h := crc32.New(crc32.MakeTable(crc32.Castagnoli))
	h.Write([]byte("key"))
	for _, r := range all {
		switch {
		case r.rev.Main > rev:
		case r.rev.Main <= compacted && len(keep) > 0 && !keep[r.rev]:
		case r.rev.Main == compacted && r.tombstone:
		default:
			h.Write(r.k)
			h.Write(r.v)
		}
	}
	return h.Sum32()
}

func TestHashKVIsEtcds(t *testing.T) {
	for seed := range uint64(12) {
		rng := rand.New(rand.NewPCG(seed, 0))
		path := filepath.Join(t.TempDir(), "db")
		s := newServer(open(t, path))
		for range 120 {
			key := string(rune('a' + rng.IntN(12)))
			if rng.IntN(3) > 0 {
				s.put(key, "v")
			} else {
				s.remove(key)
			}
		}
		if seed%4 == 3 { // no key exists
			for key := 'a'; key < 'a'+12; key++ {
				s.remove(string(key))
			}
		}
		compacted := int64(-1)
		if seed > 0 {
			compacted = 2 + rng.Int64N(s.rev-2)
		}
		s.compact(compacted)
		rev := max(compacted, 1) + rng.Int64N(s.rev-max(compacted, 1)+1)

		// Before, in the middle of and after the physical compaction.
		var sums []uint32
		for range 4 {
			flush(t, s.be, s.stores)
			sum, at, err := s.be.HashKV(rev, never)
			require.NoError(t, err)
			require.Equal(t, compacted, at)
			sums = append(sums, sum)
		}
		if compacted > 0 {
			_, at, err := s.be.HashKV(compacted-1, never)
			require.ErrorIs(t, err, fault.Compacted)
			require.Equal(t, compacted, at)
		}
		require.NoError(t, s.be.Close())
		want := etcdHashKV(t, path, rev, compacted)
		require.Equal(t, []uint32{want, want, want, want}, sums, "seed %d", seed)
	}
}

// The file holds all that `etcdutl snapshot status` reads.
func TestSnapshotStatus(t *testing.T) {
	path := filepath.Join(t.TempDir(), "db")
	s := newServer(open(t, path))
	s.fill(t, 90)
	require.NoError(t, s.be.Close())
	keys, last, version := map[string]bool{}, int64(0), ""
	walk(t, path, func(bucket string, k, v []byte) {
		switch {
		case bucket == "meta" && string(k) == "storageVersion":
			version = string(v)
		case bucket == "key" && k != nil:
			var kv mvccpb.KeyValue
			require.NoError(t, proto.Unmarshal(v, &kv))
			last = revOf(k).Main
			if len(k) == 18 {
				delete(keys, string(kv.Key))
			} else {
				keys[string(kv.Key)] = true
			}
		}
	})
	require.Len(t, keys, 60)
	require.Equal(t, s.rev, last)
	require.Equal(t, "3.7.0", version)
}

func revOf(k []byte) store.Revision {
	return store.Revision{Main: int64(binary.BigEndian.Uint64(k)), Sub: int64(binary.BigEndian.Uint64(k[9:]))}
}

// never is the stop of what isn't given up.
func never() bool { return false }

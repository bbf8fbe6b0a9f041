package store

import (
	"testing"

	"github.com/stretchr/testify/require"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"google.golang.org/protobuf/proto"
)

// FuzzDecode compares our decoder with protobuf's.
func FuzzDecode(f *testing.F) {
	for _, kv := range []*mvccpb.KeyValue{
		{Key: []byte("k")},
		{Key: []byte("key"), Value: []byte("value"), CreateRevision: 3, ModRevision: 1 << 40, Version: 300, Lease: -5},
	} {
		raw, err := proto.Marshal(kv)
		require.NoError(f, err)
		f.Add(raw)
	}
	f.Add([]byte{0x0a, 0xff, 0xff, 0xff, 0xff, 0x0f})
	f.Fuzz(func(t *testing.T, raw []byte) {
		var got, want mvccpb.KeyValue
		err := decode(raw, &got)
		if proto.Unmarshal(raw, &want) != nil || len(want.Key) == 0 {
			return // we may read a key that protobuf takes for bad; never the other way
		}
		require.NoError(t, err)
		want.ProtoReflect().SetUnknown(nil)
		require.True(t, proto.Equal(&want, &got))
		key, err := peekKey(raw)
		require.NoError(t, err)
		if n := len(raw); n > 0 && raw[0] == 0x0a { // a writer that repeats the key is not ours
			require.NotEmpty(t, key)
		}
	})
}

func TestRevisionsOnlyGoForward(t *testing.T) {
	s := New(nil)
	put := func(main, sub int64) func() {
		return func() { s.Put(Revision{main, sub}, []byte("k"), nil, 0) }
	}
	require.Panics(t, put(1, 0), "a new store is at revision 1")
	require.NotPanics(t, put(2, 0))
	require.NotPanics(t, put(2, 1))
	require.Panics(t, put(2, 1))
	s.SetRev(7)
	require.Equal(t, int64(7), s.Rev())
	require.Panics(t, put(6, 0))
	require.NotPanics(t, put(8, 0))
}

// A cut is read while the store goes on, in the same chunk.
func TestCutIsFixed(t *testing.T) {
	s := New(nil)
	rev := int64(1)
	put := func(n int) {
		for range n {
			rev++
			s.Put(Revision{Main: rev}, []byte("k"), nil, 0)
		}
	}
	collect := func(c Cut) (revs []int64) {
		for ch := range c.Changes() {
			revs = append(revs, ch.Kv.ModRevision)
		}
		return revs
	}
	put(10)
	c := s.Cut()
	put(3 * chunkChanges)
	require.Len(t, collect(c), 10)
	s.Release(c)
	c = s.Cut()
	got := collect(c)
	require.Len(t, got, 3*chunkChanges)
	require.Equal(t, int64(12), got[0])
	require.Equal(t, rev, got[len(got)-1])
	s.Release(c)
	c = s.Cut()
	require.Zero(t, c.Len())
}

// The hash table, the trees and the change log must not keep what is gone.
func TestNothingStaysAfterDeleteAndCompact(t *testing.T) {
	s := New(nil)
	s.Tighten()
	rev := int64(1)
	for range 3 {
		for i := range byte(200) {
			rev++
			s.Put(Revision{Main: rev}, []byte{'k', i}, []byte("v"), 5)
			rev++
			s.Delete(Revision{Main: rev}, []byte{'k', i})
		}
	}
	s.Compact(rev)
	for s.Dirty() {
		s.Release(s.Cut())
	}
	require.Len(t, s.keys, 1, "the tombstone at the compaction itself stays")
	require.Equal(t, 1, s.graves.Len())
	require.Zero(t, s.live.Len())
	require.Empty(t, s.leases)
	require.Less(t, s.InMemory(), chunkChanges+1)
	require.Equal(t, rev, s.Swept())
}

package apply

import (
	"bytes"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"

	"github.com/stoa-kv/stoa/internal/fault"
	"github.com/stoa-kv/stoa/internal/kvwire"
	"github.com/stoa-kv/stoa/internal/store"
)

// shelf is a history that remembers what it is given, and can be interrupted and broken.
type shelf struct {
	kvs   map[store.Revision]kvwire.KeyValue
	onGet func()
	err   error
}

func (s *shelf) Get(rev store.Revision) (kvwire.KeyValue, error) {
	if s.onGet != nil {
		s.onGet()
	}
	if s.err != nil {
		return kvwire.KeyValue{}, fmt.Errorf("read revision %d.%d of the shelf: %w", rev.Main, rev.Sub, s.err)
	}
	return s.kvs[rev], nil
}

func (s *shelf) Scan(int64, int64, func(store.Revision, kvwire.KeyValue, bool) bool) error {
	return nil
}

// withHistory is a rig whose key foo was written twice at each revision from 2 to 101, with values
// so large that the first have left memory. That of revision 50 has not.
func withHistory(t *testing.T) (*rig, *shelf) {
	t.Helper()
	r := newRig(2)
	r.quiet = true
	h := &shelf{kvs: map[store.Revision]kvwire.KeyValue{}}
	for p := range r.Stores {
		r.Stores[p] = store.New(h)
	}
	s := r.Stores[r.Placement().Partition([]byte("foo"))]
	put := operationOf(&pb.PutRequest{Key: []byte("foo"), Value: bytes.Repeat([]byte("x"), 22<<10)})
	for stamp := int64(2); stamp <= 101; stamp++ {
		r.apply(stamp, &pb.TxnRequest{Success: []*pb.RequestOp{put, put}})
	}
	for _, e := range r.events {
		h.kvs[e.change.Revision] = e.change.Kv
	}
	s.Lock()
	cut := s.Cut()
	s.Unlock()
	s.Release(cut)
	return r, h
}

func TestReadsFetchWhatHasLeftMemory(t *testing.T) {
	r, h := withHistory(t)
	fetched := 0
	h.onGet = func() { fetched++ }
	resp, err := r.Range(&pb.RangeRequest{Key: []byte("foo"), Revision: 2}, r.Placement().All(), 101, 0)
	require.NoError(t, err)
	require.Equal(t, 1, fetched, "the value was expected to have left memory")
	require.Equal(t, int64(2), resp.Kvs[0].ModRevision())

	// So does a transaction in the log, under the lock.
	results := r.apply(102, &pb.TxnRequest{Success: []*pb.RequestOp{
		operationOf(&pb.PutRequest{Key: []byte("foo"), Value: []byte("y")}),
		operationOf(&pb.RangeRequest{Key: []byte("foo"), Revision: 3}),
	}})
	require.NoError(t, results[0].Err)
	got := results[0].Response.(*pb.TxnResponse).Responses[1].GetResponseRange()
	require.Equal(t, int64(3), got.Kvs[0].ModRevision)
	require.Equal(t, 2, fetched)
}

// A read of the state at a read point is a read of the newest state: a
// compaction that comes between its two halves must not fail it.
func TestACompactionMayOvertakeARead(t *testing.T) {
	for _, asked := range []int64{0, 3} {
		r, h := withHistory(t)
		h.onGet = func() {
			h.onGet = nil
			results := r.apply(102, &pb.CompactionRequest{Revision: 50})
			require.NoError(t, results[0].Err)
			clear(h.kvs)
		}
		resp, err := r.Range(&pb.RangeRequest{Key: []byte("foo"), Revision: asked}, r.Placement().All(), 3, 0)
		if asked > 0 {
			require.ErrorIs(t, err, fault.Compacted, "who asks for a revision by name gets it or nothing")
			continue
		}
		require.NoError(t, err)
		require.Equal(t, int64(50), resp.Header.Revision)
		require.Equal(t, int64(50), resp.Kvs[0].ModRevision())
	}
}

package apply

import (
	"bytes"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"

	"github.com/stoa-kv/stoa/internal/placement"
)

// closed makes a rig whose partitions are closed through more than they show.
func closed(r *rig, through ...int64) {
	r.Visible = func(p int) int64 { return max(through[p], r.Stores[p].Rev()) }
}

// A read of the newest state of one partition is of what its store has, at the revision
// that this is the state at.
func TestTheNewestStateOfAPartition(t *testing.T) {
	key := []byte("foo")
	r, h := withHistory(t) // the last write is at 101
	h.err = errInput       // and nothing has to be fetched
	p := r.Placement().Partition(key)
	one := placement.Of(p)
	for _, c := range []struct{ closed, compacted, header int64 }{
		{0, -1, 101},
		{150, -1, 150},
		// A compaction says that everything was closed through it, perhaps before this server
		// has heard that from its leader.
		{150, 170, 170},
	} {
		closed(r, c.closed, c.closed)
		if c.compacted > 0 {
			r.Stores[0].Compact(c.compacted)
			r.Stores[1].Compact(c.compacted)
		}
		resp, err := r.Range(&pb.RangeRequest{Key: key}, one, 0, 0)
		require.NoError(t, err)
		require.Equal(t, c.header, resp.Header.Revision)
		require.Equal(t, int64(101), resp.Kvs[0].ModRevision())

		kv, rev, err := r.Get(key, p, 0, 0)
		require.NoError(t, err)
		require.Equal(t, c.header, rev)
		require.Equal(t, int64(101), kv.ModRevision())

		txn, err := r.ReadTxn(&pb.TxnRequest{Success: []*pb.RequestOp{operationOf(&pb.RangeRequest{Key: key})}}, one, 0, 0)
		require.NoError(t, err)
		require.Equal(t, c.header, txn.Header.Revision)
		require.Equal(t, int64(101), txn.Responses[0].GetResponseRange().Kvs[0].ModRevision)

		// What is visible may also be asked for by its revision.
		resp, err = r.Range(&pb.RangeRequest{Key: key, Revision: c.header}, one, 0, 0)
		require.NoError(t, err)
		require.Equal(t, int64(101), resp.Kvs[0].ModRevision())
		_, err = r.Range(&pb.RangeRequest{Key: key, Revision: c.header + 1}, one, 0, 0)
		require.Error(t, err)
	}
}

// Several partitions are read at the revision that all of them are closed through.
func TestTheNewestStateOfSeveralPartitions(t *testing.T) {
	r, _ := withHistory(t)
	p := r.Placement().Partition([]byte("foo"))
	through := []int64{90, 90}
	through[p] = 120
	closed(r, through...)
	resp, err := r.Range(&pb.RangeRequest{Key: []byte("a"), RangeEnd: []byte("z")}, r.Placement().All(), 0, 0)
	require.NoError(t, err)
	require.Equal(t, int64(90), resp.Header.Revision)
	require.Equal(t, int64(90), resp.Kvs[0].ModRevision())
}

// (I2) However many writes there are: the content of a read is the state at exactly its
// header's revision, and a later read by the same reader is at no older one.
func TestReadsAreWhatTheirHeadersSay(t *testing.T) {
	r := newRig(2)
	r.quiet = true
	even, odd := []byte("foo"), []byte("/b/x") // each is written at every other revision
	require.NotEqual(t, r.Placement().Partition(even), r.Placement().Partition(odd))
	var done atomic.Int64
	r.Visible = func(p int) int64 { return max(r.Stores[p].Rev(), done.Load()) }
	write := func(rev int64) {
		key := even
		if rev%2 == 1 {
			key = odd
		}
		r.apply(rev, &pb.PutRequest{Key: key, Value: strconv.AppendInt(nil, rev, 10)})
		done.Store(rev)
	}
	write(2)
	write(3)
	const end = 6000
	read := func(req *pb.RangeRequest, parts placement.Set, keys int) {
		for last := int64(0); last < end; {
			resp, err := r.Range(req, parts, 0, 0)
			if err != nil || len(resp.Kvs) != keys || resp.Header.Revision < last {
				t.Errorf("after %d: %v, %v", last, resp.Message(), err)
				return
			}
			last = resp.Header.Revision
			for _, kv := range resp.Kvs {
				want := last
				if bytes.Equal(kv.Key(), even) != (last%2 == 0) {
					want--
				}
				if kv.ModRevision() != want || string(kv.Value()) != strconv.FormatInt(want, 10) {
					t.Errorf("at %d: %v", last, kv)
					return
				}
			}
		}
	}
	var readers sync.WaitGroup
	for _, key := range [][]byte{even, odd} {
		readers.Go(func() { read(&pb.RangeRequest{Key: key}, placement.Of(r.Placement().Partition(key)), 1) })
	}
	readers.Go(func() { read(&pb.RangeRequest{Key: []byte{0}, RangeEnd: []byte{0}}, r.Placement().All(), 2) })
	for rev := int64(4); rev <= end; rev++ {
		write(rev)
	}
	readers.Wait()
}

package node

import (
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
)

// Transactions give a lease two keys, in two partitions, and take them away. Who asks for the lease's keys gets both or none.
func TestKeysOfALeaseAreOfOneState(t *testing.T) {
	c := newCluster(t, 1, 3)
	c.ready()
	n := c.nodes[0]
	keyIn := func(p int) []byte {
		for i := 0; ; i++ {
			if key := fmt.Appendf(nil, "k%d", i); n.current().machine.Placement().Partition(key) == p {
				return key
			}
		}
	}
	_, err := n.LeaseGrant(t.Context(), &pb.LeaseGrantRequest{ID: 1, TTL: 1000})
	require.NoError(t, err)
	done := make(chan error, 1)
	go func() {
		put := func(p int, lease int64) *pb.RequestOp {
			return &pb.RequestOp{Request: &pb.RequestOp_RequestPut{RequestPut: &pb.PutRequest{Key: keyIn(p), Lease: lease}}}
		}
		for i, end := int64(0), time.Now().Add(time.Second); time.Now().Before(end); i++ {
			if _, err := n.Txn(t.Context(), &pb.TxnRequest{Success: []*pb.RequestOp{put(0, i%2), put(2, i%2)}}); err != nil {
				done <- err
				return
			}
		}
		done <- nil
	}()
	for {
		select {
		case err := <-done:
			require.NoError(t, err)
			return
		default:
		}
		r, err := n.LeaseTimeToLive(t.Context(), &pb.LeaseTimeToLiveRequest{ID: 1, Keys: true})
		require.NoError(t, err)
		require.NotEqual(t, 1, len(r.Keys), "half of a transaction: %q", r.Keys)
	}
}

// What comes behind the revision at which a lease's keys are told is all that is missing among them, however far partitions are
// apart: who watches from there on misses nothing.
func TestKeysOfALeaseAreThoseOfTheRevision(t *testing.T) {
	c := newCluster(t, 1, 3)
	c.ready()
	n := c.nodes[0]
	_, err := n.LeaseGrant(t.Context(), &pb.LeaseGrantRequest{ID: 1, TTL: 1000})
	require.NoError(t, err)
	end := time.Now().Add(time.Second)
	var writing sync.WaitGroup
	write := func(dir string, lease int64) (revs []int64) {
		for i := 0; time.Now().Before(end) && i < 2000; i++ {
			r, err := n.Put(t.Context(), &pb.PutRequest{Key: fmt.Appendf(nil, "/%s/%d", dir, i), Lease: lease})
			if err != nil {
				t.Error(err)
				break
			}
			revs = append(revs, r.Header.Revision)
		}
		return revs
	}
	var attached []int64
	writing.Go(func() { attached = write("leased", 1) })
	for i := range 6 {
		writing.Go(func() { write(fmt.Sprint("other", i), 0) })
	}
	told := map[int64]int{}
	for time.Now().Before(end) {
		r, err := n.LeaseTimeToLive(t.Context(), &pb.LeaseTimeToLiveRequest{ID: 1, Keys: true})
		require.NoError(t, err)
		if least, again := told[r.Header.Revision]; !again || len(r.Keys) < least {
			told[r.Header.Revision] = len(r.Keys)
		}
	}
	writing.Wait()
	for rev, keys := range told {
		upTo, _ := slices.BinarySearch(attached, rev+1)
		require.GreaterOrEqual(t, keys, upTo, "at revision %d", rev)
	}
}

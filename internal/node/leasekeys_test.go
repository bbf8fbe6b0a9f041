package node

import (
	"fmt"
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

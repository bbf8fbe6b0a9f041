package adversary

import (
	"flag"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/encoding/protowire"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
)

var (
	requests = flag.Int("requests", 1000, "how many requests are generated")
	more     = flag.String("args", "", "more flags of the servers, divided by spaces")
	seed     = flag.Uint64("seed", 1, "of the generated requests")
)

// workers are the clients that ask at once.
const workers = 4

// TestAnAdversaryLearnsAndChangesNothing makes generated requests of both twins.
func TestAnAdversaryLearnsAndChangesNothing(t *testing.T) {
	t.Parallel()
	twins := newTwins(t)
	all := methods(t)
	var before [2]string
	for i, w := range twins {
		before[i] = w.state()
	}
	var next atomic.Int64
	var clients sync.WaitGroup
	for range workers {
		clients.Go(func() {
			for n := next.Add(1) - 1; n < int64(*requests) && !t.Failed(); n = next.Add(1) - 1 {
				g := generator{rand.New(rand.NewPCG(*seed, uint64(n)))}
				c := newCall(g, &all[int(n)%len(all)])
				answers, same := c.both(t, twins)
				if !same {
					t.Errorf("seed %d, request %d, the answers differ: %v\n%s\n%s", *seed, n, c, answers[0], answers[1])
				}
				if leaks(answers[0]) || leaks(answers[1]) {
					t.Errorf("seed %d, request %d: %v\n%s\n%s", *seed, n, c, answers[0], answers[1])
				}
			}
		})
	}
	clients.Wait()
	for i, w := range twins {
		w.healthy()
		require.Equal(t, before[i], w.state(), "nothing may have changed")
	}
}

// TestAnAdversaryIsNoServer sends the field by which servers tell each other the user of a
// request: with the credentials of all users, and that of the servers themselves.
func TestAnAdversaryIsNoServer(t *testing.T) {
	t.Parallel()
	w := newTwin(t, 0)
	ctx := metadata.AppendToOutgoingContext(t.Context(), "token", w.token)
	for credential := range uint64(10) {
		r := &pb.LeaseTimeToLiveRequest{ID: firstLease, Keys: true}
		r.ProtoReflect().SetUnknown(protowire.AppendVarint(protowire.AppendTag(nil, 1000, protowire.VarintType), credential))
		_, err := pb.NewLeaseClient(w.conn).LeaseTimeToLive(ctx, r)
		require.ErrorContains(t, err, "permission denied", credential)
	}
}

// TestForeignClientIDs sends the ID of another user's client with requests for a key that an
// extension of one of the twins subscribes to.
func TestForeignClientIDs(t *testing.T) {
	t.Parallel()
	for _, w := range newTwins(t) {
		ctx := metadata.AppendToOutgoingContext(t.Context(), "token", w.token, "stoa-client-id", "root")
		kv, key := pb.NewKVClient(w.conn), []byte("/called/x")
		_, put := kv.Put(ctx, &pb.PutRequest{Key: key})
		_, get := kv.Range(ctx, &pb.RangeRequest{Key: key})
		_, del := kv.DeleteRange(ctx, &pb.DeleteRangeRequest{Key: key})
		_, txn := kv.Txn(ctx, &pb.TxnRequest{Success: []*pb.RequestOp{{Request: &pb.RequestOp_RequestPut{RequestPut: &pb.PutRequest{Key: key}}}}})
		for _, err := range []error{put, get, del, txn} {
			require.Equal(t, rpctypes.ErrGRPCPermissionDenied.Error(), err.Error(), "the same with an extension and without")
		}
	}
}

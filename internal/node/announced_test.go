package node

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"

	stoapb "github.com/stoa-kv/stoa/api/stoa/v1"
	"github.com/stoa-kv/stoa/internal/fault"
	"github.com/stoa-kv/stoa/internal/session"
)

// A member's serializable reads show every revision that a watch on it has
// announced, for all keys: the revision that the watch begins after, its
// events, and its progress. Keys a and d lie in different partitions.
func TestSerializableReadsShowWhatWatchesAnnounce(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 3, 2)
	c.ready()
	ctx, cancel := context.WithCancel(context.Background())
	var writers sync.WaitGroup
	defer writers.Wait()
	defer cancel()
	for i, key := range []string{"a", "d", "a", "d"} {
		writers.Go(func() {
			for ctx.Err() == nil {
				_, err := c.nodes[i%3].Put(ctx, &pb.PutRequest{Key: []byte(key), Value: []byte("x")})
				if err != nil && !fault.Passing(err) && ctx.Err() == nil {
					t.Error(err)
				}
			}
		})
	}
	n := c.nodes[int(c.nodes[0].Leader())%3] // a follower
	check := func(announced int64, what string) {
		for _, key := range []string{"a", "d"} {
			got, err := n.Range(ctx, &pb.RangeRequest{Key: []byte(key), Serializable: true})
			require.NoError(t, err)
			require.GreaterOrEqual(t, got.Header.GetRevision(), announced, "%s, then a read of %s", what, key)
		}
	}
	rounds := 300
	if testing.Short() {
		rounds = 50
	}
	for range rounds {
		for _, key := range []string{"a", "d"} {
			s := n.NewWatchStream(ctx)
			s.Create(&pb.WatchCreateRequest{Key: []byte(key)})
			for _, what := range []string{"created", "event", "event", "progress"} {
				if what == "progress" {
					s.RequestProgress()
				}
				r, err := s.Recv(ctx)
				require.NoError(t, err)
				check(r.Header.Revision, fmt.Sprintf("%s of %s at %d", what, key, r.Header.Revision))
			}
			s.Close()
		}
	}
}

// Right after a snapshot a partition may show less than watches have announced. A
// serializable read waits then, and so does a fast one of a session.
func TestSerializableReadsWaitForWhatWasAnnounced(t *testing.T) {
	c := newCluster(t, 1, 2)
	c.ready()
	n := c.nodes[0]
	s := newSessionClient(c, 0)
	s.open(0)
	rev := max(c.put(0, "a", "x"), c.put(0, "d", "x"))
	for p := range 2 {
		n.core.Load().feed.Advance(p, rev+4)
	}
	n.hub.Step()
	require.Equal(t, rev+4, n.hub.Floor())
	s.send(askGet("a", stoapb.Level_FAST), func(it *session.Item) {
		it.Kind, it.Level = stoapb.Kind_RANGE, stoapb.Level_FAST
		it.Message = &pb.RangeRequest{Key: []byte("a"), Revision: rev + 4, Serializable: true}
	})
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	answers := make(chan int64, 4)
	for _, at := range []int64{0, rev + 4} { // the newest state, and what a watch has announced
		read := func(key string) *pb.RangeRequest {
			return &pb.RangeRequest{Key: []byte(key), Revision: at, Serializable: true}
		}
		go func() {
			got, err := n.Range(ctx, read("a"))
			if assert.NoError(t, err, "at %d", at) {
				answers <- got.Header.GetRevision()
			}
		}()
		go func() {
			got, err := n.Txn(ctx, &pb.TxnRequest{Success: []*pb.RequestOp{{Request: &pb.RequestOp_RequestRange{RequestRange: read("d")}}}})
			if assert.NoError(t, err, "at %d", at) {
				answers <- got.Header.GetRevision()
			}
		}()
	}
	for range 4 {
		require.Empty(t, answers)
		c.put(0, "a", "y")
	}
	for range cap(answers) {
		select {
		case at := <-answers:
			require.GreaterOrEqual(t, at, rev+4)
		case <-ctx.Done():
			require.NoError(t, context.Cause(ctx))
		}
	}
	_, err := n.Range(ctx, &pb.RangeRequest{Key: []byte("a"), Revision: rev + 1000, Serializable: true})
	require.ErrorIs(t, err, fault.FutureRevision)
	s.waitForReplies(0)
	for _, r := range s.replies {
		require.NoError(t, r.err)
		require.GreaterOrEqual(t, r.rev, rev+4)
	}
}

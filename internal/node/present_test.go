package node

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"

	"github.com/stoa-kv/stoa/internal/command"
)

// While a snapshot is being installed requests wait, and none for longer than its client does: that may take minutes, and if the disk
// hangs it doesn't end.
func TestRequestsLeaveASnapshotThatIsBeingInstalled(t *testing.T) {
	c := newCluster(t, 1, 2)
	c.ready()
	c.put(0, "/k", "v")
	n := c.nodes[0]
	requests := map[string]func(ctx context.Context) error{
		"serializable": func(ctx context.Context) error {
			_, err := n.Range(ctx, &pb.RangeRequest{Key: []byte("/k"), Serializable: true})
			return err
		},
		"strict": func(ctx context.Context) error {
			_, err := n.Range(ctx, &pb.RangeRequest{Key: []byte("/k")})
			return err
		},
		"put": func(ctx context.Context) error {
			_, err := n.Put(ctx, &pb.PutRequest{Key: []byte("/k")})
			return err
		},
		"later": func(ctx context.Context) error {
			done := make(chan error, 1)
			n.Write(ctx, &pb.DeleteRangeRequest{Key: []byte("/k")}, func(_ answer, err error) { done <- err })
			return <-done
		},
		"renew": func(ctx context.Context) error {
			_, err := n.LeaseRenew(ctx, 7)
			return err
		},
		"shorten": func(ctx context.Context) error { return n.LeaseShorten(ctx, 7, 1) },
		"compact": func(ctx context.Context) error {
			_, err := n.Compact(ctx, &pb.CompactionRequest{Revision: 2, Physical: true})
			return err
		},
		"defragment": n.Defragment,
		"members": func(ctx context.Context) error {
			_, err := n.Members(ctx, true)
			return err
		},
		"place":  func(ctx context.Context) error { return n.Place(ctx, command.Wish{Op: command.Drain, Partition: 1}) },
		"permit": func(ctx context.Context) error { return n.Permit(ctx, false) },
		"watch": func(ctx context.Context) error {
			n.NewWatchStream(ctx).Close()
			_, _, err := n.OpenWatch(ctx, &pb.WatchCreateRequest{Key: []byte("/k")})
			return err
		},
	}
	old := n.core.Load()
	n.rebuild.Lock()
	old.stale.Store(true)
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	answers := map[string]chan error{}
	for name, do := range requests {
		answer := make(chan error, 1)
		answers[name] = answer
		go func() { answer <- do(ctx) }()
	}
	for name, answer := range answers {
		select {
		case err := <-answer:
			require.ErrorIs(t, err, context.DeadlineExceeded, name)
		case <-time.After(10 * time.Second):
			t.Errorf("%s: it waits on", name)
		}
	}
	served := make(chan error, 1)
	go func() { served <- requests["serializable"](t.Context()) }()
	time.Sleep(10 * time.Millisecond)
	require.Empty(t, served)
	old.stale.Store(false)
	old.release()
	n.rebuild.Unlock()
	require.NoError(t, <-served)
}

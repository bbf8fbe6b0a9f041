package node

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"

	stoapb "github.com/stoa-kv/stoa/api/stoa/v1"
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

// A request that has got past that wait, when a snapshot comes, doesn't wait for it at all where no context would end that.
func TestNothingBehindTheUserWaitsForASnapshot(t *testing.T) {
	c := newCluster(t, 1, 2, simpleTokens)
	c.ready()
	c.addUser("a")
	c.enforced(&stoapb.QuotaChange{Role: "a", MaxRate: 1000})
	n := c.nodes[0]
	text := c.token(0, "a")
	who, err := n.identify(withToken(t.Context(), text))
	require.NoError(t, err)
	old := n.core.Load()
	n.rebuild.Lock()
	old.stale.Store(true)
	defer func() {
		old.stale.Store(false)
		old.release()
		n.rebuild.Unlock()
	}()
	for what, do := range map[string]func() error{
		"rate": func() error {
			if _, limited := n.limitedUser(t.Context(), who); !limited {
				return errors.New("it isn't limited")
			}
			return nil
		},
		"token":  func() error { _, err := n.holder(t.Context(), text); return err },
		"permit": func() error { return n.permits(who, false) },
		"space":  func() error { n.grows(0); return nil },
		"client": func() error { _, err := n.sessionClient(t.Context(), "", who); return err },
	} {
		done := make(chan error, 1)
		go func() { done <- do() }()
		select {
		case err := <-done:
			require.NoError(t, err, what)
		case <-time.After(10 * time.Second):
			t.Errorf("%s: it waits", what)
		}
	}
}

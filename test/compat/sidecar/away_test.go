package sidecar

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/stoa-kv/stoa/test/process"
)

// TestWhenAway: while no member can be reached, calls fail, or wait for one, also for the first one.
func TestWhenAway(t *testing.T) {
	t.Parallel()
	c := process.StartT(t, process.Spec{Nodes: 1})
	// A request that is under way in a session when the cluster goes away has an outcome of its own.
	fails, waits := beside(t, c, "fails", "--batching=false"), beside(t, c, "waits", "--batching=false", "--when-away=wait")
	require.NoError(t, c.Servers[0].Kill())
	failing, waiting := dial(t, fails.ClientURL, clientv3.Config{}), dial(t, waits.ClientURL, clientv3.Config{})
	ctx := soon(t)
	_, err := failing.Put(ctx, "k", "v")
	require.Equal(t, codes.Unavailable, status.Code(err), "%v", err)

	short, cancel := context.WithTimeout(ctx, 100*time.Millisecond)
	defer cancel()
	_, err = waiting.Put(short, "k", "v")
	require.ErrorIs(t, err, context.DeadlineExceeded)

	put := make(chan error, 1)
	go func() {
		_, err := waiting.Put(ctx, "k", "v")
		put <- err
	}()
	watch := make(chan clientv3.WatchChan, 1)
	go func() { watch <- waiting.Watch(ctx, "k", clientv3.WithRev(1)) }() // it waits until it is created
	select {
	case err := <-put:
		require.Fail(t, "it did not wait", "%v", err)
	case <-time.After(200 * time.Millisecond):
	}
	require.NoError(t, c.Restart(ctx, c.Servers[0]))
	require.NoError(t, <-put)
	r := <-<-watch
	require.NoError(t, r.Err())
	require.Equal(t, "v", string(r.Events[0].Kv.Value))
	got, err := failing.Get(ctx, "k")
	require.NoError(t, err)
	require.EqualValues(t, 1, got.Kvs[0].Version, "a call that did not wait for long enough was not sent")
}

// TestAwayIsLogged: a sidecar whose cluster isn't where its endpoints say serves nothing, and its log says why; so it does when the cluster goes away.
func TestAwayIsLogged(t *testing.T) {
	t.Parallel()
	c := process.StartT(t, process.Spec{Nodes: 1})
	const away, back = "no member of the cluster answers", "a member of the cluster answers again"
	wrong := beside(t, c, "wrong", "--endpoints="+c.Servers[0].PeerURL)
	says(t, wrong, away, c.Servers[0].PeerURL, "unknown service")
	right := beside(t, c, "right")
	_, err := dial(t, right.ClientURL, clientv3.Config{}).Put(soon(t), "k", "v")
	require.NoError(t, err)
	require.NotContains(t, right.LogTail(1<<20), away)
	require.NoError(t, c.Servers[0].Kill())
	says(t, right, away, "connection re") // refused, or reset, if it was being asked
	require.NoError(t, c.Restart(soon(t), c.Servers[0]))
	says(t, right, back)
}

// says waits until a program's log has some texts.
func says(t *testing.T, s *process.Server, texts ...string) {
	t.Helper()
	require.Eventually(t, func() bool {
		log := s.LogTail(1 << 20)
		return !slices.ContainsFunc(texts, func(text string) bool { return !strings.Contains(log, text) })
	}, limit, 50*time.Millisecond, "%s: %v", s.Name, texts)
}

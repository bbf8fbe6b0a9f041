package recipes_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"

	"github.com/stoa-kv/stoa/client"
	"github.com/stoa-kv/stoa/client/recipes"
)

// network is the way to servers, which can be cut.
type network struct {
	mu    sync.Mutex
	down  bool
	conns []net.Conn
}

func (n *network) dial(ctx context.Context, to string) (net.Conn, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.down {
		return nil, errors.New("the network is down")
	}
	c, err := new(net.Dialer).DialContext(ctx, "tcp", to)
	if err == nil {
		n.conns = append(n.conns, c)
	}
	return c, err
}

func (n *network) cut() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.down = true
	for _, c := range n.conns {
		c.Close()
	}
}

func (n *network) mend() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.down = false
}

// A leader whose candidacy somebody deletes while it has no connection learns of it, and is no candidate again.
func TestDeposedWithoutAConnection(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	const root = "/deposed/"
	require.NoError(t, recipes.RegisterAt(ctx, cli, "deposed", "election", root))
	var way network
	far, err := client.New(client.Config{Endpoints: cli.Endpoints(), ClientID: "example", DialOptions: []grpc.DialOption{grpc.WithContextDialer(way.dial)}})
	require.NoError(t, err)
	defer far.Close()
	lease := grant(ctx)
	leads, err := recipes.NewElection(far, root, "far", lease).Campaign(ctx)
	require.NoError(t, err)
	next := make(chan *recipes.Leadership, 1)
	go func() {
		l, err := recipes.NewElection(cli, root, "near", grant(ctx)).Campaign(ctx)
		if err != nil {
			t.Error(err)
		}
		next <- l
	}()
	candidates := func() int64 {
		resp, err := cli.Get(ctx, root+"candidates/", clientv3.WithPrefix(), clientv3.WithCountOnly())
		require.NoError(t, err)
		return resp.Count
	}
	require.Eventually(t, func() bool { return candidates() == 2 }, 20*time.Second, 10*time.Millisecond)

	way.cut()
	_, err = cli.Delete(ctx, fmt.Sprintf("%scandidates/far-%x", root, int64(lease)))
	require.NoError(t, err)
	other := <-next
	require.NotNil(t, other)
	way.mend()
	select {
	case <-leads.Lost():
	case <-time.After(20 * time.Second):
		t.Error("it goes on as the leader")
	}
	require.EqualValues(t, 1, candidates())
	require.NoError(t, other.Resign(ctx))
}

// A leadership that began before the last compaction lasts, and its end is seen.
func TestLeadershipOutlastsACompaction(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	const root = "/compacted/"
	require.NoError(t, recipes.RegisterAt(ctx, cli, "compacted", "election", root))
	e := recipes.NewElection(cli, root, "a", grant(ctx))
	first, err := e.Campaign(ctx)
	require.NoError(t, err)
	for range 3 {
		resp, err := cli.Put(ctx, root+"other", "")
		require.NoError(t, err)
		_, err = cli.Compact(ctx, resp.Header.Revision)
		require.NoError(t, err)
	}
	again, err := e.Campaign(ctx)
	require.NoError(t, err)
	require.Equal(t, first.Revision, again.Revision)
	select {
	case <-again.Lost():
		t.Fatal("it has been lost by a compaction")
	case <-time.After(300 * time.Millisecond):
	}
	require.NoError(t, first.Resign(ctx))
	<-again.Lost()
}

// To resign from a leadership that has been lost does nothing to the candidacy that its candidate has since.
func TestResignationOfOneThatWasDeposed(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	const root = "/resigned/"
	require.NoError(t, recipes.RegisterAt(ctx, cli, "resigned", "election", root))
	lease := grant(ctx)
	e := recipes.NewElection(cli, root, "a", lease)
	lost, err := e.Campaign(ctx)
	require.NoError(t, err)
	_, err = cli.Delete(ctx, fmt.Sprintf("%scandidates/a-%x", root, int64(lease)))
	require.NoError(t, err)
	<-lost.Lost()
	other, err := recipes.NewElection(cli, root, "b", grant(ctx)).Campaign(ctx)
	require.NoError(t, err)
	again := make(chan *recipes.Leadership, 1)
	go func() {
		l, err := e.Campaign(ctx)
		if err != nil {
			t.Error(err)
		}
		again <- l
	}()
	require.Eventually(t, func() bool {
		resp, err := cli.Get(ctx, root+"candidates/", clientv3.WithPrefix(), clientv3.WithCountOnly())
		return err == nil && resp.Count == 2
	}, 10*time.Second, 10*time.Millisecond)
	require.NoError(t, lost.Resign(ctx))
	require.NoError(t, other.Resign(ctx))
	l := <-again
	require.NotNil(t, l)
	require.NoError(t, l.Resign(ctx))
	_, err = e.Leader(ctx)
	require.ErrorIs(t, err, recipes.ErrNoLeader)
}

package compose

import (
	"context"
	"maps"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"

	stoapb "github.com/stoa-kv/stoa/api/stoa/v1"
	"github.com/stoa-kv/stoa/client/compose/internal/commit"
)

// besideSilent is a client of a cluster here, below /h/, and of one that doesn't respond, below /c/.
func besideSilent(t *testing.T, timeout time.Duration, register func(*grpc.Server)) *Client {
	c, err := New(Config{
		Clusters: map[string]Cluster{"cut": silent("127.0.0.1:1"), "here": {Endpoints: []string{serve(t, register)}, Kind: Etcd}},
		Routes:   []Route{{Prefix: "/c/", Cluster: "cut", Transactions: true}, {Prefix: "/h/", Cluster: "here", Transactions: true}},
		Timeout:  timeout,
	})
	require.NoError(t, err)
	t.Cleanup(func() { c.Close() })
	return c
}

// A cluster that doesn't respond holds up no transaction without it: not while its ID would have to be asked for, nor
// while it is asked for a lease.
func TestTransactionsBesideASilentCluster(t *testing.T) {
	const timeout = 5 * time.Second
	c := besideSilent(t, timeout, func(g *grpc.Server) {
		pb.RegisterKVServer(g, guarding{readable: []string{commit.Prefix}})
		pb.RegisterLeaseServer(g, granting{})
	})
	l := c.shared.locker
	cut, here := l.clusters[0], l.clusters[1]
	began := time.Now()
	for range 2 { // its ID isn't known; it is
		of, err := l.by(t.Context(), 7)
		require.NoError(t, err)
		require.Same(t, here, of)
	}
	go l.lease(t.Context(), cut)
	require.Eventually(t, func() bool { return len(l.granting[cut.at]) == 1 }, timeout/2, time.Millisecond)
	one, err := l.lease(t.Context(), here)
	require.NoError(t, err)
	again, err := l.lease(t.Context(), here)
	require.NoError(t, err)
	require.Same(t, one, again)
	l.retire(one)
	require.Less(t, time.Since(began), timeout/2)
}

// What can't be sent isn't tried all the time.
func TestPauseBehindWhatCannotBeSent(t *testing.T) {
	c := asUser(t, Etcd, commit.Prefix)
	a := &attempt{locker: c.shared.locker}
	began := time.Now()
	answers := a.ask(t.Context(), commit.Txn{}, []commit.Request{{Step: commit.Finish, Cluster: 8}})
	require.ErrorIs(t, answers[0].Err, errNoCluster)
	require.True(t, answers[0].Refused)
	require.GreaterOrEqual(t, time.Since(began), retryPause)
}

// A lease that has to end while its client is closed is revoked, too: others would wait for its transactions.
func TestLeaseEndsBesideClose(t *testing.T) {
	revoked := make(chan int64, 2)
	address := serve(t, func(g *grpc.Server) {
		pb.RegisterKVServer(g, guarding{readable: []string{commit.Prefix}})
		pb.RegisterLeaseServer(g, revoking{revoked: revoked})
	})
	c := over(t, address)
	l := c.shared.locker
	one, err := l.lease(t.Context(), l.clusters[0])
	require.NoError(t, err)
	require.NoError(t, l.begin(func() {
		for closing := false; !closing; time.Sleep(time.Millisecond) {
			l.mu.Lock()
			closing = l.closing
			l.mu.Unlock()
		}
		l.retire(one)
	}))
	require.NoError(t, c.Close())
	require.Len(t, revoked, 1)
	require.EqualValues(t, one.id, <-revoked)
}

// revoking notes the leases that are revoked.
type revoking struct {
	granting
	revoked chan int64
}

func (r revoking) LeaseRevoke(_ context.Context, q *pb.LeaseRevokeRequest) (*pb.LeaseRevokeResponse, error) {
	r.revoked <- q.ID
	return &pb.LeaseRevokeResponse{Header: &pb.ResponseHeader{}}, nil
}

// A caller who leaves while another transaction has its keys is told for which cluster it has waited.
func TestLeavingBeforeALock(t *testing.T) {
	c := overTwo(t)
	left, cancel := context.WithCancel(t.Context())
	cancel()
	for attempt := range impatient + 2 {
		var of *ClusterError
		require.ErrorAs(t, c.shared.locker.resolve(left, 1, nil, attempt), &of)
		require.Equal(t, "b", of.Cluster)
		require.False(t, of.Unknown)
		require.ErrorIs(t, of, context.Canceled)
	}
	require.NoError(t, c.shared.locker.resolve(t.Context(), 1, nil, 0))
}

// deaf is a member that opens sessions and answers none of their requests; beside them it refuses transactions.
type deaf struct {
	stoapb.UnimplementedSessionsServer
	extendingToo
	granting
	did chan string
}

func (d deaf) Open(g stoapb.Sessions_OpenServer) error {
	batch, err := g.Recv()
	if err != nil {
		return err
	}
	if err := g.Send(&stoapb.ServerBatch{Opened: &stoapb.Opened{Session: 1, Ttl: batch.Open.Ttl}}); err != nil {
		return err
	}
	for err == nil {
		_, err = g.Recv()
	}
	return err
}

func (d deaf) LeaseRevoke(_ context.Context, q *pb.LeaseRevokeRequest) (*pb.LeaseRevokeResponse, error) {
	if q.ID == 1 {
		d.did <- "the session is ended"
	} else if q.ID == 7 {
		d.did <- "the lease is revoked"
	}
	return &pb.LeaseRevokeResponse{Header: &pb.ResponseHeader{}}, nil
}

func (d deaf) Range(ctx context.Context, q *pb.RangeRequest) (*pb.RangeResponse, error) {
	if string(q.Key) == "/m/k" {
		d.did <- "the key is read"
	}
	return d.extendingToo.Range(ctx, q)
}

func (d deaf) Txn(ctx context.Context, t *pb.TxnRequest) (*pb.TxnResponse, error) {
	d.did <- "the transaction begins"
	return d.extendingToo.Txn(ctx, t)
}

// An update of unknown outcome is decided before the client's next transaction over clusters begins, as before its next request there.
func TestTransactionsBehindALostSession(t *testing.T) {
	t.Parallel()
	d := deaf{extendingToo: extendingToo{guarding{readable: []string{commit.Prefix}}}, did: make(chan string, 10)}
	address := serve(t, func(g *grpc.Server) {
		stoapb.RegisterSessionsServer(g, d)
		pb.RegisterKVServer(g, d)
		pb.RegisterLeaseServer(g, d)
	})
	c, err := New(Config{
		Clusters: map[string]Cluster{"a": {Endpoints: []string{address}, Kind: Stoa}, "b": {Endpoints: []string{address}, Kind: Etcd}},
		Routes:   []Route{{Prefix: "/a/", Cluster: "a", Transactions: true}, {Prefix: "/b/", Cluster: "b", Transactions: true}},
		Timeout:  patience,
	})
	require.NoError(t, err)
	t.Cleanup(func() { c.Close() })
	_, err = c.Put(t.Context(), "/a/k", "before")
	var of *ClusterError
	require.ErrorAs(t, err, &of)
	require.True(t, of.Unknown)
	for range 2 {
		_, err = c.Txn(t.Context()).Then(clientv3.OpPut("/a/k", "after"), clientv3.OpPut("/b/k", "after")).Commit()
		require.ErrorIs(t, err, ErrTransactions)
	}
	require.Equal(t, "the session is ended", <-d.did)
	for range 2 {
		require.Equal(t, "the transaction begins", <-d.did)
	}
}

// Nor is a lease revoked before that: the update may be of a key that goes with it.
func TestRevocationsBehindALostSession(t *testing.T) {
	t.Parallel()
	d := deaf{extendingToo: extendingToo{guarding{}}, did: make(chan string, 10)}
	c := ofKind(t, Stoa, patience, func(g *grpc.Server) {
		stoapb.RegisterSessionsServer(g, d)
		pb.RegisterLeaseServer(g, d)
	})
	_, err := c.Put(t.Context(), "k", "before")
	require.Error(t, err)
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	for _, err := range c.core.revoke(ctx, c.shared.clusters, 7) {
		require.NoError(t, err)
	}
	require.Equal(t, "the session is ended", <-d.did)
	require.Equal(t, "the lease is revoked", <-d.did)
}

// Nor is a key of a mirror read at its home before that.
func TestViewsBehindALostSession(t *testing.T) {
	t.Parallel()
	d := deaf{extendingToo: extendingToo{guarding{readable: []string{"/m/k"}}}, did: make(chan string, 10)}
	address := serve(t, func(g *grpc.Server) {
		stoapb.RegisterSessionsServer(g, d)
		pb.RegisterKVServer(g, d)
		pb.RegisterLeaseServer(g, d)
	})
	c, err := New(Config{
		Clusters: map[string]Cluster{"home": {Endpoints: []string{address}, Kind: Stoa}, "here": {Endpoints: []string{address}, Kind: Etcd}},
		Routes:   []Route{{Prefix: "/m/", Cluster: "home", Mirrors: []string{"here"}}},
		Local:    "here", Timeout: patience,
	})
	require.NoError(t, err)
	t.Cleanup(func() { c.Close() })
	_, err = c.Put(t.Context(), "/m/k", "before")
	var of *ClusterError
	require.ErrorAs(t, err, &of)
	require.True(t, of.Unknown)
	for range 2 {
		_, err = c.Get(t.Context(), "/m/k")
		require.NoError(t, err)
	}
	require.Equal(t, "the session is ended", <-d.did)
	require.Equal(t, "the key is read", <-d.did)
}

// renamed is a member whose cluster has the ID that it is set to. It executes transactions, on nothing.
type renamed struct {
	standingIn
	id *atomic.Uint64
	// lost is how many answers to what deletes first won't come.
	lost *atomic.Int64
}

func (r renamed) Range(ctx context.Context, q *pb.RangeRequest) (*pb.RangeResponse, error) {
	a, err := r.standingIn.Range(ctx, q)
	if err == nil {
		a.Header.ClusterId = r.id.Load()
	}
	return a, err
}

func (r renamed) Txn(ctx context.Context, q *pb.TxnRequest) (*pb.TxnResponse, error) {
	a, err := r.standingIn.Txn(ctx, q)
	a.Header.ClusterId = r.id.Load()
	if q.Success[0].GetRequestDeleteRange() != nil && r.lost.Add(-1) >= 0 {
		return nil, rpctypes.ErrGRPCNoLeader
	}
	return a, err
}

// ofRenamed is a client of two clusters, with transactions over both; the first has the ID that it is set to.
func ofRenamed(t *testing.T) (*Client, renamed) {
	m := renamed{id: new(atomic.Uint64), lost: new(atomic.Int64), standingIn: standingIn{
		guarding: guarding{readable: []string{commit.Prefix}}, answers: func(*pb.TxnRequest) bool { return false }, did: make(chan *pb.TxnRequest, 100),
	}}
	other := m.standingIn
	other.did = make(chan *pb.TxnRequest, 100)
	member := func(kv pb.KVServer) Cluster {
		return Cluster{Kind: Etcd, Endpoints: []string{serve(t, func(g *grpc.Server) {
			pb.RegisterKVServer(g, kv)
			pb.RegisterLeaseServer(g, granting{})
		})}}
	}
	c, err := New(Config{
		Clusters: map[string]Cluster{"a": member(m), "b": member(other)},
		Routes:   []Route{{Prefix: "/a/", Cluster: "a", Transactions: true}, {Prefix: "/b/", Cluster: "b", Transactions: true}},
	})
	require.NoError(t, err)
	t.Cleanup(func() { c.Close() })
	return c, m
}

// putBoth puts two keys in one transaction.
func putBoth(t *testing.T, c *Client, first, second string) error {
	_, err := c.Txn(t.Context()).Then(clientv3.OpPut(first, "v"), clientv3.OpPut(second, "v")).Commit()
	return err
}

// A lock may name a cluster by an ID that it has got since the client has asked for that.
func TestLocksOfARestoredCluster(t *testing.T) {
	c, m := ofRenamed(t)
	l := c.shared.locker
	for _, id := range []uint64{70, 71} {
		m.id.Store(id)
		of, err := l.by(t.Context(), id)
		require.NoError(t, err)
		require.Equal(t, "a", of.name)
	}
	_, err := l.by(t.Context(), 70)
	require.ErrorIs(t, err, errNoCluster)
}

// A client that goes on with a restored cluster leaves no lock there that names the former one.
func TestTransactionsInARestoredCluster(t *testing.T) {
	c, m := ofRenamed(t)
	transact := func() error { return putBoth(t, c, "/a/t", "/b/t") }
	m.id.Store(70)
	require.NoError(t, transact())
	for range 3 { // it has begun, is committed, and its record is removed
		<-m.did
	}
	m.id.Store(71)
	m.lost.Store(1)
	require.ErrorContains(t, transact(), "it is another cluster than before")
	begin := <-m.did
	require.True(t, puts(begin, commit.LockPrefix+"/a/t"))
	require.NotEmpty(t, m.did, "nothing was taken back")
	written := map[string]string{}
	for _, op := range begin.Success {
		if p := op.GetRequestPut(); p != nil {
			written[string(p.Key)] = string(p.Value)
		}
	}
	undo := <-m.did
	require.NotEmpty(t, m.did, "it isn't sent again")
	require.True(t, proto.Equal(undo, <-m.did))
	for _, cmp := range undo.Compare {
		require.Equal(t, written[string(cmp.Key)], string(cmp.GetValue()))
	}
	var deleted []string
	for _, op := range undo.Success {
		if d := op.GetRequestDeleteRange(); d != nil {
			deleted = append(deleted, string(d.Key))
		}
	}
	require.ElementsMatch(t, slices.Collect(maps.Keys(written)), deleted)
	require.NoError(t, transact())
}

// Nor does a lock wait for a cluster that has never answered, if its transaction's home has got another ID.
func TestLocksOfARestoredClusterBesideASilentOne(t *testing.T) {
	const timeout = 5 * time.Second
	id := new(atomic.Uint64)
	c := besideSilent(t, timeout, func(g *grpc.Server) {
		pb.RegisterKVServer(g, renamed{id: id, standingIn: standingIn{guarding: guarding{readable: []string{commit.Prefix}}}})
	})
	began := time.Now()
	for _, now := range []uint64{70, 71} {
		id.Store(now)
		of, err := c.shared.locker.by(t.Context(), now)
		require.NoError(t, err)
		require.Equal(t, "here", of.name)
	}
	require.Less(t, time.Since(began), timeout/2)
}

// What a transaction has in a cluster that is there no longer is left to recoveries: all clusters would be asked for their IDs again and again.
func TestPartsInARestoredCluster(t *testing.T) {
	c, m := ofRenamed(t)
	transact := func() error { return putBoth(t, c, "/b/t", "/a/t") }
	m.id.Store(70)
	require.NoError(t, transact())
	c.shared.locker.work.Wait() // it is complete
	m.id.Store(71)
	require.ErrorContains(t, transact(), "it is another cluster than before")
	ended := make(chan struct{})
	go func() {
		c.shared.locker.work.Wait()
		close(ended)
	}()
	select {
	case <-ended:
	case <-time.After(completeFor / 3):
		t.Fatal("it goes on")
	}
	require.NoError(t, transact())
}

// But what is to be done behind the end of a record is: the locks of its transaction in other clusters would stay.
func TestReleaseBehindAHomeThatIsGone(t *testing.T) {
	c := asUser(t, Etcd, commit.Prefix)
	a := &attempt{locker: c.shared.locker}
	for _, step := range []commit.Step{commit.Abandon, commit.Confirm, commit.Release, commit.RollForward, commit.Finish} {
		answers := a.ask(t.Context(), commit.Txn{}, []commit.Request{{Step: step, Cluster: 8}})
		require.ErrorIs(t, answers[0].Err, errNoCluster)
		require.Equal(t, step != commit.Abandon && step != commit.Confirm, a.gone)
	}
}

package node

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"

	"github.com/stoa-kv/stoa/internal/version"
)

// Two clients end a lease that takes several steps, and one makes it anew when it has: the steps of the other one don't
// end that.
func TestStepsEndNoLaterLease(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 1, 1)
	c.ready()
	c.agreed(version.Newest)
	c.put(0, "/em/told", `return {
		scope = { "/l/" }, events = { { event = "expired", prefix = "/l/" } },
		event = function() local n = 0 for i = 1, 300 do n = n + i end end,
	}`)
	n := c.nodes[0]
	grant := func() {
		_, err := n.LeaseGrant(t.Context(), &pb.LeaseGrantRequest{ID: 7, TTL: 1000})
		require.NoError(t, err)
	}
	revoke := func() error {
		_, err := n.LeaseRevoke(t.Context(), &pb.LeaseRevokeRequest{ID: 7})
		return err
	}
	for range 5 {
		grant()
		for i := range 500 {
			_, err := n.Put(t.Context(), &pb.PutRequest{Key: fmt.Appendf(nil, "/l/%d", i), Lease: 7})
			require.NoError(t, err)
		}
		other := make(chan error, 1)
		go func() { other <- revoke() }()
		require.Eventually(t, func() bool { return !n.current().leases.Has(7) }, time.Minute, 100*time.Microsecond)
		require.NoError(t, revoke())
		grant()
		require.NoError(t, <-other)
		require.True(t, n.current().leases.Has(7))
		require.NoError(t, revoke())
	}
}

// A lease can begin with less than its full time, asked for at any member; a renewal gives it
// all of it.
func TestLeaseShorten(t *testing.T) {
	c := newCluster(t, 3, 2)
	c.ready()
	_, err := c.nodes[0].LeaseGrant(t.Context(), &pb.LeaseGrantRequest{ID: 9, TTL: 1000})
	require.NoError(t, err)
	require.NoError(t, c.nodes[0].LeaseShorten(t.Context(), 9, 100))
	c.agreed(version.Newest)
	for i, n := range c.nodes {
		id := int64(i + 1)
		_, err := n.LeaseGrant(t.Context(), &pb.LeaseGrantRequest{ID: id, TTL: 1000})
		require.NoError(t, err)
		require.NoError(t, n.LeaseShorten(t.Context(), id, 100))
		require.NoError(t, n.LeaseShorten(t.Context(), id, 500), "as a repeated request")
		left := func() int64 {
			r, err := n.LeaseTimeToLive(t.Context(), &pb.LeaseTimeToLiveRequest{ID: id})
			require.NoError(t, err)
			require.EqualValues(t, 1000, r.GrantedTTL)
			return r.TTL
		}
		require.LessOrEqual(t, left(), int64(100))
		require.Eventually(t, func() bool {
			l, ok := n.current().leases.Get(id)
			return ok && l.Remaining == 100
		}, time.Minute, 10*time.Millisecond, "it is in the log")
		ttl, err := n.LeaseRenew(t.Context(), id)
		require.NoError(t, err)
		require.EqualValues(t, 1000, ttl)
		require.Greater(t, left(), int64(900))
	}
}

// A client that asks a member which is behind about a lease that is gone isn't shown a revision below what it has seen.
func TestALeaseThatIsGoneIsToldAtARevisionThatShowsIt(t *testing.T) {
	c := newCluster(t, 3, 1)
	c.ready()
	leader := c.leading()
	late := c.nodes[(leader+1)%3]
	store := late.current().stores[0]
	store.Lock() // nothing is applied
	defer store.Unlock()
	put, err := c.nodes[leader].Put(t.Context(), &pb.PutRequest{Key: []byte("k")})
	require.NoError(t, err)
	r, err := late.LeaseTimeToLive(t.Context(), &pb.LeaseTimeToLiveRequest{ID: 9, Keys: true})
	require.NoError(t, err)
	require.EqualValues(t, -1, r.TTL)
	require.GreaterOrEqual(t, r.Header.Revision, put.Header.Revision)
	require.GreaterOrEqual(t, late.Revision(), r.Header.Revision, "nor is it lower in the next answer")
}

// What a replaced core says of its role so late that its successor stamps already ends the times of no leases.
func TestTheRoleOfAReplacedCore(t *testing.T) {
	c := newCluster(t, 1, 2)
	c.ready()
	c.agreed(version.Newest)
	n := c.nodes[0]
	old := n.core.Load()
	require.NoError(t, n.Resize(t.Context(), 3))
	_, err := n.LeaseGrant(t.Context(), &pb.LeaseGrantRequest{ID: 1, TTL: 1000})
	require.NoError(t, err)
	successor := n.core.Load()

	n.rebuild.Lock() // nobody else looks
	n.roles.Lock()
	n.core.Store(old)
	said := make(chan struct{})
	go func() {
		n.role(old, 0)
		close(said)
	}()
	time.Sleep(20 * time.Millisecond) // it is on its way
	n.core.Store(successor)
	n.roles.Unlock()
	n.rebuild.Unlock()
	<-said
	_, err = n.LeaseRenew(t.Context(), 1)
	require.NoError(t, err)
}

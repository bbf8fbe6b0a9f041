package node

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"

	"github.com/stoa-kv/stoa/internal/version"
)

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

package node

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.etcd.io/etcd/api/v3/authpb"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"

	stoapb "github.com/stoa-kv/stoa/api/stoa/v1"
	"github.com/stoa-kv/stoa/internal/extension"
	"github.com/stoa-kv/stoa/internal/fault"
	"github.com/stoa-kv/stoa/internal/session"
	"github.com/stoa-kv/stoa/internal/throttle"
)

// each runs a test on a cluster of one server and on one of three.
func each(t *testing.T, test func(t *testing.T, c *cluster)) {
	for _, size := range []int{1, 3} {
		t.Run(fmt.Sprintf("%d servers", size), func(t *testing.T) {
			c := newCluster(t, size, 2)
			c.ready()
			test(t, c)
		})
	}
}

// fill puts so many keys below /x/, 100 at a time, and renews their lease, if they have one.
func (c *cluster) fill(keys int, lease int64) {
	for i := 0; i < keys; i += 100 {
		req := &pb.TxnRequest{}
		for j := i; j < min(i+100, keys); j++ {
			req.Success = append(req.Success, &pb.RequestOp{Request: &pb.RequestOp_RequestPut{
				RequestPut: &pb.PutRequest{Key: fmt.Appendf(nil, "/x/%06d", j), Value: []byte("1"), Lease: lease},
			}})
		}
		c.txn(0, req)
		if lease != 0 {
			_, err := c.nodes[0].LeaseRenew(c.t.Context(), lease)
			require.NoError(c.t, err)
		}
	}
}

// What event handlers would have too much work with is refused, on whatever server, and
// all of them go on as if it had not been.
func TestTooMuchWorkIsRefusedEverywhere(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, c *cluster) {
		c.fill(5000, 0)
		for i := range 10 {
			c.put(0, fmt.Sprintf("/em/e%d", i), `return { scope = { "/x/" }, events = { { event = "deleted", prefix = "/x/" } }, event = function(e) end }`)
		}
		for i, n := range c.nodes {
			_, err := n.DeleteRange(t.Context(), &pb.DeleteRangeRequest{Key: []byte("/x/"), RangeEnd: []byte("/x0")})
			require.ErrorIs(t, err, fault.TooMuchWork)
			require.ErrorContains(t, err, "event_steps in /em/.limits")
			require.EqualValues(t, 5000, c.get(i, "/x/", "/x0").Count)
		}
		rev := c.put(0, "/others", "1")
		for i := range c.nodes {
			c.get(i, "\x00", "\x00") // all partitions have reached it then
			require.Equal(t, c.hash(0, rev), c.hash(i, rev))
		}
	})
}

// revoke revokes a lease. It may be gone if that was tried before, as it is here when a broken link has ended an attempt.
func (c *cluster) revoke(i int, id int64, tried bool) {
	c.t.Helper()
	for ; ; tried = true {
		_, err := c.nodes[i].LeaseRevoke(c.t.Context(), &pb.LeaseRevokeRequest{ID: id})
		if err == nil || tried && errors.Is(err, fault.LeaseNotFound) {
			return
		}
		require.True(c.t, fault.Passing(err), "%v", err)
	}
}

const countsExpired = `return { scope = { "/x/", "/n" }, events = { { event = "expired", prefix = "/x/" } },
	event = function(e) put("/n", (tonumber(get("/n")) or 0) + 1) end }`

// A client that revokes a lease of many keys waits until all of them are gone.
func TestALargeLeaseIsRevokedInSteps(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, c *cluster) {
		_, err := c.nodes[0].LeaseGrant(t.Context(), &pb.LeaseGrantRequest{ID: 7, TTL: 600})
		require.NoError(t, err)
		c.put(0, "/em/counts", countsExpired)
		c.fill(2500, 7)
		c.revoke(len(c.nodes)-1, 7, false)
		require.Zero(t, c.get(0, "/x/", "/x0").Count)
		require.Equal(t, "2500", string(c.get(0, "/n", "").Kvs[0].Value))
		_, err = c.nodes[0].LeaseRevoke(t.Context(), &pb.LeaseRevokeRequest{ID: 7})
		require.ErrorIs(t, err, fault.LeaseNotFound)
	})
}

// So does a client that closes its session.
func TestALargeSessionIsClosedInSteps(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, c *cluster) {
		c.put(0, "/em/counts", countsExpired)
		s := newSessionClient(c, len(c.nodes)-1)
		s.open(0)
		c.fill(2500, s.id)
		s.send(func(it *session.Item) { it.Kind = stoapb.Kind_CLOSE })
		<-s.handle.Done()
		if err := errors.Join(s.handle.Err(), s.replies[0].err); err != nil { // a link has broken, on a busy machine: it is ended as a lease
			require.True(t, fault.Passing(s.handle.Err()) || fault.Passing(s.replies[0].err), "%v", err)
			c.revoke(0, s.id, true)
		}
		require.Zero(t, c.get(0, "/x/", "/x0").Count)
		require.Equal(t, "2500", string(c.get(0, "/n", "").Kvs[0].Value))
	})
}

// One that runs out is revoked by the leader, which goes on until all keys are gone.
func TestALargeLeaseRunsOutInSteps(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, c *cluster) {
		_, err := c.nodes[0].LeaseGrant(t.Context(), &pb.LeaseGrantRequest{ID: 7, TTL: 2})
		require.NoError(t, err)
		c.put(0, "/em/counts", countsExpired)
		c.fill(2500, 7)
		require.Eventually(t, func() bool { return c.get(0, "/x/", "/x0").Count == 0 }, time.Minute, 50*time.Millisecond)
		require.Equal(t, "2500", string(c.get(0, "/n", "").Kvs[0].Value))
		_, err = c.nodes[0].LeaseRenew(t.Context(), 7)
		require.ErrorIs(t, err, fault.LeaseNotFound)
	})
}

// What its user has no permission for doesn't wait for its turn, and takes none of others.
func TestRefusedCallsTakeNoTurns(t *testing.T) {
	c := newCluster(t, 1, 2, simpleTokens)
	c.ready()
	c.put(0, "/em/slow", `return { scope = { "/x/" }, operations = { { op = "put", key = "/x/go" } }, put = function(r) return 1 end }`)
	c.addRoot()
	c.addUser("a", &authpb.Permission{PermType: authpb.READWRITE, Key: []byte("/em/slow/ack")})
	c.enable(0)
	a, n := withToken(t.Context(), c.token(0, "a")), c.nodes[0]
	_, err := n.Put(a, &pb.PutRequest{Key: []byte("/em/slow/ack")})
	require.NoError(t, err)
	costs := throttle.Cost{Likely: 4_000_000, Most: 4_000_000}
	n.current().machine.Extensions().Get("slow").Costs[extension.Call].Note(costs.Likely, costs.Likely/throttle.StepTime, 0)
	for err == nil { // until the line is full
		_, _, err = n.lane.Enter("slow", costs, func() {})
	}
	_, err = n.Put(a, &pb.PutRequest{Key: []byte("/x/go")})
	require.ErrorIs(t, err, fault.PermissionDenied)
}

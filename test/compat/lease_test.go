package compat

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc/metadata"

	"github.com/stoa-kv/stoa/client"
)

func TestLeaseGrantAndList(t *testing.T) {
	matrix(t, func(t *testing.T, e *env) {
		l, err := e.cli.Grant(e.ctx, 100)
		require.NoError(t, err)
		require.NotZero(t, l.ID)
		require.EqualValues(t, 100, l.TTL)

		mine, err := e.lease.LeaseGrant(e.ctx, &pb.LeaseGrantRequest{ID: 4711 + int64(l.ID)%1000, TTL: 200})
		require.NoError(t, err)
		_, err = e.lease.LeaseGrant(e.ctx, &pb.LeaseGrantRequest{ID: mine.ID, TTL: 200})
		wantError(t, rpctypes.ErrGRPCLeaseExist, err)
		_, err = e.lease.LeaseGrant(e.ctx, &pb.LeaseGrantRequest{TTL: 9_000_000_001})
		wantError(t, rpctypes.ErrGRPCLeaseTTLTooLarge, err)

		short, err := e.lease.LeaseGrant(e.ctx, &pb.LeaseGrantRequest{TTL: 0})
		require.NoError(t, err)
		require.Positive(t, short.TTL, "no lease is shorter than it takes to find that the leader died")

		for i := range e.Servers {
			list, err := pb.NewLeaseClient(e.dial(i)).LeaseLeases(e.ctx, &pb.LeaseLeasesRequest{})
			require.NoError(t, err)
			var ids []int64
			for _, l := range list.Leases {
				ids = append(ids, l.ID)
			}
			require.Subset(t, ids, []int64{int64(l.ID), mine.ID}, "server %d", i)
		}
	})
}

func TestLeaseRevokeDeletesAtOneRevision(t *testing.T) {
	matrix(t, func(t *testing.T, e *env) {
		l, err := e.cli.Grant(e.ctx, 600)
		require.NoError(t, err)
		var keys []string
		for i := range 3 {
			for _, d := range dirs {
				keys = append(keys, e.key(d, i))
				_, err := e.cli.Put(e.ctx, e.key(d, i), "v", clientv3.WithLease(l.ID))
				require.NoError(t, err)
			}
		}
		// Two keys leave the lease: one to none, one to another.
		e.put(keys[0], "free")
		other, err := e.cli.Grant(e.ctx, 600)
		require.NoError(t, err)
		_, err = e.cli.Put(e.ctx, keys[1], "v", clientv3.WithLease(other.ID))
		require.NoError(t, err)

		ttl, err := e.cli.TimeToLive(e.ctx, l.ID, clientv3.WithAttachedKeys())
		require.NoError(t, err)
		var attached []string
		for _, k := range ttl.Keys {
			attached = append(attached, string(k))
		}
		require.ElementsMatch(t, keys[2:], attached)
		require.EqualValues(t, 600, ttl.GrantedTTL)
		require.InDelta(t, 600, ttl.TTL, 5)

		rev := e.get(keys[0]).Header.Revision
		watch := e.cli.Watch(e.ctx, e.root, clientv3.WithPrefix(), clientv3.WithRev(rev+1))
		_, err = e.cli.Revoke(e.ctx, l.ID)
		require.NoError(t, err)
		got := next(t, watch)
		require.Len(t, got.Events, len(keys)-2, "all of one revision in one response")
		var gone []string
		for _, ev := range got.Events {
			require.Equal(t, clientv3.EventTypeDelete, ev.Type)
			require.Equal(t, got.Events[0].Kv.ModRevision, ev.Kv.ModRevision)
			gone = append(gone, string(ev.Kv.Key))
		}
		require.True(t, slices.IsSorted(gone), "in key order")
		start, end := e.all()
		require.ElementsMatch(t, keys[:2], keysOf(e.get(start, end)))

		_, err = e.cli.Revoke(e.ctx, l.ID)
		wantError(t, rpctypes.ErrGRPCLeaseNotFound, err)
		_, err = e.cli.Put(e.ctx, keys[5], "v", clientv3.WithLease(l.ID))
		wantError(t, rpctypes.ErrGRPCLeaseNotFound, err)
		ttl, err = e.cli.TimeToLive(e.ctx, l.ID)
		require.NoError(t, err)
		require.EqualValues(t, -1, ttl.TTL)
	})
}

func TestLeaseExpiry(t *testing.T) {
	waiting(t, func(t *testing.T, e *env) {
		const ttl = 5 * time.Second // more than a loaded machine stands still for
		asked := time.Now()
		l, err := e.cli.Grant(e.ctx, int64(ttl.Seconds()))
		require.NoError(t, err)
		for _, d := range dirs {
			_, err := e.cli.Put(e.ctx, e.key(d, 0), "v", clientv3.WithLease(l.ID))
			require.NoError(t, err)
		}
		rev := e.get(e.root).Header.Revision
		watch := e.cli.Watch(e.ctx, e.root, clientv3.WithPrefix(), clientv3.WithRev(rev+1))
		got := next(t, watch)
		require.Len(t, got.Events, len(dirs))
		require.GreaterOrEqual(t, time.Since(asked), ttl, "never early")
		require.Less(t, time.Since(asked), ttl+4*time.Second)
		ka, err := e.cli.KeepAliveOnce(e.ctx, l.ID)
		wantError(t, rpctypes.ErrGRPCLeaseNotFound, err)
		require.Zero(t, ka.TTL)
	})
}

func TestLeaseKeepAlive(t *testing.T) {
	waiting(t, func(t *testing.T, e *env) {
		const ttl = 5 // s: more than a loaded machine stands still for
		l, err := e.cli.Grant(e.ctx, ttl)
		require.NoError(t, err)
		k := e.key("a", 0)
		_, err = e.cli.Put(e.ctx, k, "v", clientv3.WithLease(l.ID))
		require.NoError(t, err)
		// Through each server: a follower has to ask the leader.
		until := time.Now().Add((ttl + 2) * time.Second)
		for i := 0; time.Now().Before(until); i++ {
			cli := e.client(e.Servers[i%len(e.Servers)].ClientURL)
			ka, err := cli.KeepAliveOnce(e.ctx, l.ID)
			require.NoError(t, err)
			require.EqualValues(t, ttl, ka.TTL)
			require.NotZero(t, ka.Revision)
			cli.Close()
			time.Sleep(500 * time.Millisecond)
		}
		require.Len(t, e.get(k).Kvs, 1)

		stream, err := e.lease.LeaseKeepAlive(e.ctx)
		require.NoError(t, err)
		require.NoError(t, stream.Send(&pb.LeaseKeepAliveRequest{ID: 0x7eed}))
		resp, err := stream.Recv()
		require.NoError(t, err)
		require.Zero(t, resp.TTL, "an unknown lease is answered with a TTL of 0, not with an error")
		require.EqualValues(t, 0x7eed, resp.ID)
	})
}

// The time that a lease has left is kept over a change of leader.
func TestLeaseSurvivesTheLeader(t *testing.T) {
	own(t, 3, nil, func(t *testing.T, e *env) {
		asked := time.Now()
		l, err := e.cli.Grant(e.ctx, 6)
		require.NoError(t, err)
		_, err = e.cli.Put(e.ctx, e.key("a", 0), "v", clientv3.WithLease(l.ID))
		require.NoError(t, err)
		lead := e.leader()
		require.NoError(t, e.Servers[lead].Kill())
		rest := e.client(e.Servers[(lead+1)%3].ClientURL, e.Servers[(lead+2)%3].ClientURL)
		watch := rest.Watch(e.ctx, e.root, clientv3.WithPrefix(), clientv3.WithRev(1))
		require.Equal(t, clientv3.EventTypePut, next(t, watch).Events[0].Type)
		require.Equal(t, clientv3.EventTypeDelete, next(t, watch).Events[0].Type)
		require.GreaterOrEqual(t, time.Since(asked), 6*time.Second, "never early")
	})
}

// Whoever revokes each lease that it doesn't know must not end sessions. etcd has none.
func TestLeasesOfSessionsAreNotListed(t *testing.T) {
	sessions(t, func(t *testing.T, e *env, c *client.Client) {
		s := e.open(c)
		_, err := s.Put(e.ctx, e.key("a", 1), "v", client.Ephemeral())
		require.NoError(t, err)
		kv, err := e.cli.Get(e.ctx, e.key("a", 1))
		require.NoError(t, err)
		session := kv.Kvs[0].Lease
		require.NotZero(t, session)
		l, err := e.cli.Grant(e.ctx, 100)
		require.NoError(t, err)
		for i := range e.Servers {
			lessor := pb.NewLeaseClient(e.dial(i))
			list := func(ctx context.Context) (ids []int64) {
				r, err := lessor.LeaseLeases(ctx, &pb.LeaseLeasesRequest{})
				require.NoError(t, err)
				for _, l := range r.Leases {
					ids = append(ids, l.ID)
				}
				return ids
			}
			require.Contains(t, list(e.ctx), int64(l.ID))
			require.NotContains(t, list(e.ctx), session)
			require.Subset(t, list(metadata.AppendToOutgoingContext(e.ctx, "stoa-sessions", "all")), []int64{int64(l.ID), session})
		}
	})
}

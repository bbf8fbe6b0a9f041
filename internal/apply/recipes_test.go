package apply

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/protobuf/proto"

	"github.com/stoa-kv/stoa/extensions"
	"github.com/stoa-kv/stoa/internal/command"
	"github.com/stoa-kv/stoa/internal/fault"
	"github.com/stoa-kv/stoa/internal/membership"
	"github.com/stoa-kv/stoa/internal/version"
)

// With authentication an election of several users' clients goes on if root has registered it: its event handler appoints
// the next leader with that one's lease.
func TestAnElectionThatRootHasRegistered(t *testing.T) {
	g := guard(t, 1)
	g.allow("b", "/election/", "/election0")
	g.allow("b", "/em/election/ack", "")
	require.NoError(t, g.call("root", sourcePut("election", extensions.Source("election"))))
	require.NoError(t, g.call("b", &pb.PutRequest{Key: []byte("/em/election/ack")}))
	b, all := g.credential("b"), g.Placement().All()
	for id, candidate := range []string{"one-0", "two-1"} {
		require.NoError(t, g.do(b, command.LeaseGrant, &pb.LeaseGrantRequest{ID: int64(id + 5), TTL: 60}, all).Err)
		watch := &pb.WatchCreateRequest{Key: []byte("/election/campaign/" + candidate)}
		p, _ := g.PlanRead(command.Watch, watch, func() (string, int64) { return "b", int64(id + 5) })
		body, err := proto.Marshal(watch)
		require.NoError(t, err)
		c := p.Command(command.Watch, body)
		c.User = b
		g.entry(&command.Entry{Commands: []command.Command{c}}, all, func(_ int, r Result) { require.NoError(t, r.Err) })
	}
	leader := func() string { return string(g.Stores[0].Get([]byte("/election/leader")).Value()) }
	require.Equal(t, "one-0", leader())
	require.NoError(t, g.do(b, command.LeaseRevoke, &pb.LeaseRevokeRequest{ID: 5}, all).Err)
	require.Equal(t, "two-1", leader())
}

// The holds of a lease end at one revision, up to the number that extensions/README.md says.
func TestHoldsOfALeaseEndAtOneRevision(t *testing.T) {
	for holds, want := range map[int]error{150: nil, 200: fault.LeaseEnding} {
		w := newTwins(t, 1)
		for _, r := range []*rig{w.first, w.second} {
			list := membership.OfIDs(1)
			list.Level = version.Newest
			r.LoadMembership(list, nil)
		}
		for _, name := range []string{"semaphore", "queue"} {
			w.succeed(sourcePut(name, extensions.Source(name)))
		}
		w.succeed(&pb.PutRequest{Key: []byte("/semaphore/limit/db"), Value: []byte("1000")})
		for _, id := range []int64{5, 6} {
			w.succeed(&pb.LeaseGrantRequest{ID: id, TTL: 60})
		}
		for i := range holds {
			w.succeed(&pb.PutRequest{Key: []byte("/queue/add"), Value: []byte("element")})
			for lease, key := range map[int64]string{5: "/semaphore/acquire/db/", 6: "/queue/take/"} {
				r, _ := w.ask(who{lease: lease}, &pb.WatchCreateRequest{Key: fmt.Appendf(nil, "%s%03d", key, i)})
				require.NoError(t, r.Err)
			}
		}
		for _, id := range []int64{5, 6} {
			require.Len(t, w.first.Stores[0].LeaseKeys(id), holds)
			r, _ := w.ask(who{}, &pb.LeaseRevokeRequest{ID: id})
			require.ErrorIs(t, r.Err, want, "%d holds of lease %d", holds, id)
		}
	}
}

// While a lease ends in steps nobody can be given the semaphore by it, and whoever waits behind has it in the end.
func TestASemaphoreOfALeaseThatEndsInSteps(t *testing.T) {
	w := newTwins(t, 1)
	for _, r := range []*rig{w.first, w.second} {
		list := membership.OfIDs(1)
		list.Level = version.Newest
		r.LoadMembership(list, nil)
	}
	w.succeed(sourcePut("semaphore", extensions.Source("semaphore")))
	for _, id := range []int64{5, 6} {
		w.succeed(&pb.LeaseGrantRequest{ID: id, TTL: 60})
	}
	acquire := func(lease int64, name string) {
		r, _ := w.ask(who{lease: lease}, &pb.WatchCreateRequest{Key: []byte("/semaphore/acquire/" + name)})
		require.NoError(t, r.Err)
	}
	for i := range 400 {
		w.succeed(&pb.PutRequest{Key: fmt.Appendf(nil, "/semaphore/limit/s%03d", i), Value: []byte("1")})
		acquire(5, fmt.Sprintf("s%03d/one", i))
	}
	acquire(5, "s000/two")
	acquire(6, "s000/other")
	r, _ := w.ask(who{}, &pb.LeaseRevokeRequest{ID: 5})
	require.ErrorIs(t, r.Err, fault.LeaseEnding)
	require.NotEmpty(t, w.first.Stores[0].LeaseKeys(5))
	for r.Err != nil {
		require.ErrorIs(t, r.Err, fault.LeaseEnding)
		r, _ = w.ask(who{}, &pb.LeaseRevokeRequest{ID: 5})
	}
	require.True(t, w.first.Stores[0].Get([]byte("/semaphore/holders/s000/other")).Exists())
	w.requireEqual()
}

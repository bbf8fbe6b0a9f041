package node

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"

	stoapb "github.com/stoa-kv/stoa/api/stoa/v1"
	"github.com/stoa-kv/stoa/internal/fault"
	"github.com/stoa-kv/stoa/internal/store"
	"github.com/stoa-kv/stoa/internal/version"
)

func checked(c *Config) { c.CheckInterval = 200 * time.Millisecond }

// lengthen makes a lease another on one member alone, as a bit does that changes in its memory.
func (c *cluster) lengthen(i int, id int64) {
	table := c.nodes[i].core.Load().leases
	l, ok := table.Get(id)
	require.True(c.t, ok)
	l.TTL += 1 << 20
	table.Load(l)
}

func (c *cluster) leader() int {
	for i, n := range c.nodes {
		if n != nil && n.core.Load().replica.Leading() {
			return i
		}
	}
	return -1
}

// noted tells whether the disk says that a server is fenced. It does so right after the server is, or isn't
// any more.
func noted(t *testing.T, n *Node) bool {
	_, err := os.Stat(n.fencePath())
	if !errors.Is(err, fs.ErrNotExist) {
		require.NoError(t, err)
	}
	return err == nil
}

// A member whose state has changed by itself is fenced by the next verdict, be it a follower or
// the leader: it answers nothing, its watches end, another leads. It takes in the state of one of
// the others, serves again, and nothing is lost; the alarm stays, and stops no other member.
func TestAMemberThatDiffersIsFencedAndHeals(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 3, 2, checked)
	c.ready()
	require.Eventually(t, func() bool { v, _ := c.nodes[0].ClusterVersion(); return v == version.Newest }, 20*time.Second, 10*time.Millisecond)
	ctx := context.Background()
	_, err := c.nodes[0].LeaseGrant(ctx, &pb.LeaseGrantRequest{ID: 7, TTL: 600})
	require.NoError(t, err)
	for round := range 2 {
		at := c.leading()
		if round == 0 {
			at = (at + 1) % 3
		}
		n, other := c.nodes[at], (at+1)%3
		require.Eventually(t, func() bool { return n.core.Load().leases.Has(7) }, 20*time.Second, 10*time.Millisecond)
		w := n.NewWatchStream(ctx)
		w.Create(&pb.WatchCreateRequest{Key: []byte("/w"), StartRevision: 1})

		before := n.installed.Load()
		c.lengthen(at, 7)
		fenced := make(chan error, 1)
		go func() {
			for {
				if _, err := w.Recv(ctx); err != nil {
					fenced <- err
					return
				}
			}
		}()
		require.ErrorIs(t, <-fenced, fault.Fenced)
		w.Close()
		if n.Fenced() {
			_, err := n.Range(ctx, &pb.RangeRequest{Key: []byte("/k"), Serializable: true})
			if n.Fenced() {
				require.ErrorIs(t, err, fault.Fenced)
				// The watch ends first.
				require.Eventually(t, func() bool { return noted(t, n) || !n.Fenced() }, 20*time.Second, time.Millisecond)
			}
		}
		put := func(i int) bool {
			_, err := c.nodes[i].Put(ctx, &pb.PutRequest{Key: []byte("/k"), Value: fmt.Append(nil, round)})
			return err == nil
		}
		require.Eventually(t, func() bool { return put(other) }, 20*time.Second, 10*time.Millisecond, "the others go on")

		require.Eventually(t, func() bool { return !n.Fenced() }, 30*time.Second, 10*time.Millisecond, "it does not heal")
		require.Greater(t, n.installed.Load(), before, "it heals by another's state")
		require.Eventually(t, func() bool { return !noted(t, n) }, 20*time.Second, time.Millisecond)
		l, _ := n.core.Load().leases.Get(7)
		require.EqualValues(t, 600, l.TTL)
		require.Eventually(t, func() bool { return put(at) }, 20*time.Second, 10*time.Millisecond)
		require.Equal(t, fmt.Sprint(round), string(c.get(at, "/k", "").Kvs[0].Value))
		alarm := &pb.AlarmMember{MemberID: c.configs[at].ID, Alarm: pb.AlarmType_CORRUPT}
		require.Eventually(t, func() bool { return len(missingFrom(n.ActiveAlarms(), []*pb.AlarmMember{alarm})) == 0 }, 20*time.Second, 10*time.Millisecond)
		require.Len(t, n.OwnAlarms(), 1)
	}
}

// A member that stops while it is fenced is fenced when it starts again, and so is one whose
// operator has made the file. It serves again even if members compare their states at no other time.
func TestAFencedMemberIsFencedAfterARestart(t *testing.T) {
	t.Parallel()
	t.Run("with checks", func(t *testing.T) { restartFenced(t, checked) })
	t.Run("without checks", func(t *testing.T) { restartFenced(t, func(*Config) {}) })
}

func restartFenced(t *testing.T, how func(*Config)) {
	c := newCluster(t, 3, 2, how)
	c.ready()
	c.put(0, "/k", "v")
	require.Eventually(t, func() bool { v, _ := c.nodes[0].ClusterVersion(); return v == version.Newest }, 20*time.Second, 10*time.Millisecond)
	n := c.nodes[2]
	c.stop(2)
	require.NoError(t, os.WriteFile(n.fencePath(), nil, 0o600))
	c.start(2)
	n = c.nodes[2]
	require.Eventually(t, func() bool { return !n.Fenced() }, 30*time.Second, time.Millisecond)
	require.EqualValues(t, 1, n.installed.Load())
	require.Eventually(t, func() bool { return !noted(t, n) }, 20*time.Second, time.Millisecond)
	require.Equal(t, "v", string(c.get(2, "/k", "").Kvs[0].Value))
}

// A member that has healed, and has ended before the alarm was in the log, raises it when it starts again.
func TestOperatorsAreToldAfterARestart(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 3, 2, checked)
	c.ready()
	require.Eventually(t, func() bool { v, _ := c.nodes[0].ClusterVersion(); return v == version.Newest }, 20*time.Second, 10*time.Millisecond)
	untold := c.nodes[2].untoldPath()
	c.stop(2)
	require.NoError(t, os.WriteFile(untold, nil, 0o600))
	c.start(2)
	alarm := &pb.AlarmMember{MemberID: c.configs[2].ID, Alarm: pb.AlarmType_CORRUPT}
	require.Eventually(t, func() bool { return len(missingFrom(c.nodes[0].ActiveAlarms(), []*pb.AlarmMember{alarm})) == 0 }, 20*time.Second, 10*time.Millisecond)
	require.Eventually(t, func() bool { _, err := os.Stat(untold); return errors.Is(err, fs.ErrNotExist) }, 20*time.Second, time.Millisecond)
	require.False(t, c.nodes[2].Fenced())
}

// With InitialCheck a member whose state has changed while it was stopped isn't ready before it has another's.
func TestAMemberThatDiffersIsNotReadyBeforeItHeals(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 3, 2, func(c *Config) { c.InitialCheck = true })
	c.ready()
	require.Eventually(t, func() bool { v, _ := c.nodes[0].ClusterVersion(); return v == version.Newest }, 20*time.Second, 10*time.Millisecond)
	_, err := c.nodes[0].LeaseGrant(context.Background(), &pb.LeaseGrantRequest{ID: 7, TTL: 600})
	require.NoError(t, err)
	for at := range c.nodes {
		require.Eventually(t, func() bool { return c.nodes[at].core.Load().leases.Has(7) }, 20*time.Second, 10*time.Millisecond)
		c.put(at, "/k", "v")                             // there is something to flush
		c.nodes[at].core.Load().leases.Checkpoint(7, 99) // of no log
		require.NoError(t, c.nodes[at].flushNow())
		c.stop(at)
		c.start(at)
		n := c.nodes[at]
		select {
		case <-n.Ready():
		case <-time.After(time.Minute):
			t.Fatal("it is never ready")
		}
		require.EqualValues(t, 1, n.installed.Load(), "it has no other's state")
		l, _ := n.core.Load().leases.Get(7)
		require.Zero(t, l.Remaining)
		require.False(t, n.Fenced())
	}
}

// Nobody is waited for in vain.
func TestAMemberAloneNeedsNoInitialCheck(t *testing.T) {
	c := newCluster(t, 1, 2, func(c *Config) { c.InitialCheck = true })
	c.ready()
}

// Entries that have had another effect on one member are noticed with the next ones, long before the
// next periodic check.
func TestEntriesWithAnotherEffectAreNoticedAtOnce(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 3, 2, func(c *Config) { c.CheckInterval = time.Hour })
	c.ready()
	require.Eventually(t, func() bool { v, _ := c.nodes[0].ClusterVersion(); return v == version.Newest }, 20*time.Second, 10*time.Millisecond)
	write := func() {
		for i := range 3 * store.Window {
			c.put(0, fmt.Sprint("/k/", i%10), "v")
		}
	}
	write()
	for i := range c.nodes {
		require.Eventually(t, c.nodes[i].core.Load().replica.Agreed, 20*time.Second, 10*time.Millisecond, "the check of its start")
	}
	at := c.leading()
	at = (at + 1) % 3
	n := c.nodes[at]
	core := n.core.Load()
	s := core.stores[core.machine.Placement().Partition([]byte("/k/0"))]
	s.Lock()
	s.Put(store.Revision{Main: s.Rev(), Sub: 1 << 30}, []byte("/k/by no entry"), nil, 0)
	s.Unlock()
	require.Zero(t, n.fence.Times())
	write()
	require.Eventually(t, func() bool { return n.fence.Times() > 0 }, 20*time.Second, time.Millisecond, "not noticed")
	require.Eventually(t, func() bool { return !n.Fenced() }, 30*time.Second, 10*time.Millisecond, "it doesn't heal")
	for i := range c.nodes {
		require.Empty(t, c.value(i, "/k/by no entry"))
	}
}

// A session whose lease is granted before its member is fenced is opened elsewhere.
func TestASessionIsNotOpenedAtAFencedMember(t *testing.T) {
	c := newCluster(t, 1, 2)
	c.ready()
	require.True(t, c.nodes[0].fence.Damaged())
	s := newSessionClient(c, 0)
	_, _, err := c.nodes[0].OpenSession(t.Context(), &stoapb.OpenSession{Ttl: 60, Next: 1}, nil, &testSink{s: s})
	require.ErrorIs(t, err, fault.Fenced)
}

// A member that is fenced while it makes sure of a read tells nothing of its users, nor that it has none of a name.
func TestUsersAreNotToldByAFencedMember(t *testing.T) {
	c := newCluster(t, 1, 2)
	c.ready()
	n, ctx := c.nodes[0], t.Context()
	require.True(t, n.fence.Damaged())
	for what, ask := range map[string]func() error{
		"status":   func() error { _, err := n.AuthStatus(ctx); return err },
		"user":     func() error { _, err := n.UserGet(ctx, &pb.AuthUserGetRequest{Name: "u"}); return err },
		"users":    func() error { _, err := n.UserList(ctx); return err },
		"role":     func() error { _, err := n.RoleGet(ctx, &pb.AuthRoleGetRequest{Role: "r"}); return err },
		"roles":    func() error { _, err := n.RoleList(ctx); return err },
		"password": func() error { _, err := n.Authenticate(ctx, &pb.AuthenticateRequest{Name: "u"}); return err },
		"quotas":   func() error { _, _, err := n.Quotas(ctx); return err },
	} {
		require.ErrorIs(t, ask(), fault.Fenced, what)
	}
}

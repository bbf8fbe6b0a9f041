package node

import (
	"context"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.etcd.io/etcd/api/v3/authpb"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"

	stoapb "github.com/stoa-kv/stoa/api/stoa/v1"
	"github.com/stoa-kv/stoa/internal/backend"
	"github.com/stoa-kv/stoa/internal/command"
	"github.com/stoa-kv/stoa/internal/fault"
	"github.com/stoa-kv/stoa/internal/placement"
	"github.com/stoa-kv/stoa/internal/session"
)

// A snapshot takes a member back behind a write that was answered there. A fast read of a session that comes before it has executed its log
// again isn't older than that.
func TestASnapshotTakesNoFastReadsBack(t *testing.T) {
	s := newSnapshots(t, 2)
	n := s.nodes[s.follower]
	one := newSessionClient(s.cluster, s.follower)
	one.open(0)
	_, file := s.sent(s.cut())
	put := s.put(s.follower, "/d0/k", "second")
	one.send(askGet("/d0/k", stoapb.Level_FAST))
	one.waitForReplies(0)
	s.takenBack(file)
	one.send(askGet("/d0/k", stoapb.Level_FAST), func(it *session.Item) {
		it.Kind, it.Key, it.Level = stoapb.Kind_RANGE, []byte("/d0/"), stoapb.Level_FAST
		it.Message = &pb.RangeRequest{Key: []byte("/d0/"), RangeEnd: []byte("/d00"), Serializable: true}
	})
	time.Sleep(100 * time.Millisecond)
	s.others(s.start)
	one.waitForReplies(0)
	for i, r := range one.replies {
		require.NoError(t, r.err)
		require.GreaterOrEqual(t, r.rev, put, "read %d", i)
	}
	require.Equal(t, "second", one.replies[1].value)
	require.EqualValues(t, 1, n.installed.Load())
}

// Serializable and fast reads wait until this member shows what it has shown before a snapshot.
func TestReadsWaitForWhatWasShownBefore(t *testing.T) {
	c := newCluster(t, 1, 2)
	c.ready()
	n := c.nodes[0]
	one := newSessionClient(c, 0)
	one.open(0)
	rev := max(c.put(0, "a", "x"), c.put(0, "d", "x")) // of both partitions
	n.core.Load().before.Store(&reached{visible: []int64{rev + 2, rev + 2}, executed: make([]uint64, 2)})
	read := &pb.RangeRequest{Key: []byte("a"), Serializable: true}
	answers := make(chan int64, 2)
	go func() {
		got, err := n.Range(t.Context(), read)
		if assert.NoError(t, err) {
			answers <- got.Header.GetRevision()
		}
	}()
	go func() {
		got, err := n.Txn(t.Context(), &pb.TxnRequest{Success: []*pb.RequestOp{{Request: &pb.RequestOp_RequestRange{RequestRange: read}}}})
		if assert.NoError(t, err) {
			answers <- got.Header.GetRevision()
		}
	}()
	one.send(askGet("a", stoapb.Level_FAST))
	time.Sleep(100 * time.Millisecond)
	require.Empty(t, answers)
	one.mu.Lock()
	require.Empty(t, one.replies)
	one.mu.Unlock()
	for range 2 {
		c.put(0, "a", "y")
		c.put(0, "d", "y")
	}
	one.waitForReplies(0)
	require.NoError(t, one.replies[0].err)
	require.GreaterOrEqual(t, one.replies[0].rev, rev+2)
	for range cap(answers) {
		require.GreaterOrEqual(t, <-answers, rev+2)
	}
	require.Nil(t, n.core.Load().before.Load())
}

// Serializable reads need no leader for that: what this member had executed is in its log.
func TestASnapshotWithoutALeader(t *testing.T) {
	s := newSnapshots(t, 2)
	n := s.nodes[s.follower]
	_, file := s.sent(s.cut())
	put := s.put(s.follower, "/d0/k", "second")
	s.takenBack(file)
	got, err := n.Range(t.Context(), &pb.RangeRequest{Key: []byte("/d0/k"), Serializable: true})
	require.NoError(t, err)
	require.GreaterOrEqual(t, got.Header.GetRevision(), put)
	require.Equal(t, "second", string(got.Message().Kvs[0].Value))
	for _, key := range []string{"a", "d"} { // of both partitions
		_, err = n.Range(t.Context(), &pb.RangeRequest{Key: []byte(key), Serializable: true})
		require.NoError(t, err, key)
	}
}

// So they do until it knows the users and roles of before: a right that was given may be missing, or one that was taken away be there.
func TestFastReadsWaitForTheRightsOfBefore(t *testing.T) {
	readsWaitForTheRightsOfBefore(t, stoapb.Level_FAST)
}

// So do causal reads: that all partitions show what their session has seen says nothing of rights.
func TestCausalReadsWaitForTheRightsOfBefore(t *testing.T) {
	readsWaitForTheRightsOfBefore(t, stoapb.Level_CAUSAL)
}

func readsWaitForTheRightsOfBefore(t *testing.T, level stoapb.Level) {
	c := newCluster(t, 1, 2)
	c.ready()
	one := newSessionClient(c, 0)
	one.open(0)
	c.put(0, "a", "x")
	c.addRoot()
	n := c.nodes[0]
	now := n.core.Load()
	now.before.Store(&reached{visible: make([]int64, 2), executed: make([]uint64, 2), auth: now.machine.Auth().Revision + 1})
	one.send(askGet("a", level))
	time.Sleep(100 * time.Millisecond)
	one.mu.Lock()
	require.Empty(t, one.replies)
	one.mu.Unlock()
	change := &pb.InternalRaftRequest{AuthRoleAdd: &pb.AuthRoleAddRequest{Name: "r"}}
	require.NoError(t, n.decideOn(t.Context(), now, command.Command{Kind: command.Auth, Body: mustMarshal(change)}))
	one.waitForReplies(0)
	require.NoError(t, one.replies[0].err)
	require.Equal(t, "x", one.replies[0].value)
}

// Until then nobody is served as if permissions weren't enforced, because they weren't when the snapshot was made.
func TestPermissionsAreEnforcedBehindASnapshot(t *testing.T) {
	c := newCluster(t, 1, 2)
	c.ready()
	c.addRoot()
	n := c.nodes[0]
	now := n.core.Load()
	now.before.Store(&reached{visible: make([]int64, 2), executed: []uint64{now.replica.Executed(0) + 1, now.replica.Executed(1) + 1}, auth: now.machine.Auth().Revision})
	answers := make(chan error, 2)
	go func() {
		_, err := n.Range(t.Context(), &pb.RangeRequest{Key: []byte("k"), Serializable: true})
		answers <- err
	}()
	go func() { answers <- n.Permit(t.Context(), false) }()
	time.Sleep(100 * time.Millisecond)
	require.Empty(t, answers)
	change := &pb.InternalRaftRequest{AuthEnable: &pb.AuthEnableRequest{}}
	require.NoError(t, n.decideOn(t.Context(), now, command.Command{Kind: command.Auth, Body: mustMarshal(change)}))
	for range cap(answers) {
		require.ErrorIs(t, <-answers, fault.UserEmpty)
	}
}

// Nor is a token refused of a user whom a snapshot has taken this member back behind: it is found out whether there is one.
func TestATokenOfAUserFromBehindASnapshot(t *testing.T) {
	s := newSnapshots(t, 2, simpleTokens)
	s.addRoot()
	s.enable(s.leader)
	n := s.nodes[s.follower]
	now, err := n.strict(t.Context(), placement.Of(0))
	require.NoError(t, err)
	next := now.machine.Auth().Revision + 1
	n.cfg.Tokens.Simple.Assign("late.1", next, n.clock())
	now.before.Store(&reached{visible: make([]int64, 2), executed: make([]uint64, 2), auth: next})
	now.stores[0].Lock() // it executes nothing
	unlock := sync.OnceFunc(now.stores[0].Unlock)
	t.Cleanup(unlock)
	s.changeAuth(s.leader, &pb.InternalRaftRequest{AuthUserAdd: &pb.AuthUserAddRequest{Name: "late", Password: "late"}})
	answer := make(chan error, 1)
	go func() {
		_, err := n.Range(withToken(t.Context(), "late.1"), &pb.RangeRequest{Key: []byte("k"), Serializable: true})
		answer <- err
	}()
	time.Sleep(100 * time.Millisecond)
	require.Empty(t, answer)
	unlock()
	require.ErrorIs(t, <-answer, fault.PermissionDenied, "it is known, and may do nothing")
}

// takenBack has the follower take in a file from before, when the others are away.
func (s *snapshots) takenBack(file string) {
	s.others(s.stop)
	s.takeIn(file)
}

func (s *snapshots) takeIn(file string) {
	n := s.nodes[s.follower]
	require.NoError(s.t, backend.Receive(n.dbPath(), backend.Identity{Cluster: n.cfg.ClusterID, Server: n.cfg.ID}, strings.NewReader(file)))
	require.NoError(s.t, n.replace(0))
}

func (s *snapshots) others(do func(i int)) {
	for i := range s.nodes {
		if i != s.follower {
			do(i)
		}
	}
}

// A snapshot takes a member back behind a right and a write that were answered there. A serializable read that comes
// before it has executed its log again is neither refused for want of that right, nor older than the write.
func TestASnapshotTakesNoReadsBack(t *testing.T) {
	s := newSnapshots(t, 2, simpleTokens)
	s.addRoot()
	s.addUser("worker")
	s.enable(s.leader)
	n := s.nodes[s.follower]
	ctx := withToken(t.Context(), s.token(s.follower, "worker"))
	root := withToken(t.Context(), s.token(s.follower, "root"))
	_, file := s.sent(s.cut())
	s.changeAuth(s.follower, &pb.InternalRaftRequest{AuthRoleGrantPermission: &pb.AuthRoleGrantPermissionRequest{
		Name: "worker", Perm: &authpb.Permission{PermType: authpb.READWRITE, Key: []byte("/d0/k")},
	}})
	put, err := n.Put(ctx, &pb.PutRequest{Key: []byte("/d0/k"), Value: []byte("second")})
	require.NoError(t, err)

	s.takenBack(file)
	got := &pb.RangeRequest{Key: []byte("/d0/k"), Serializable: true}
	type answer struct {
		revision int64
		value    string
		err      error
	}
	answers := make(chan answer, 2)
	go func() {
		resp, err := n.Range(ctx, got)
		if err != nil {
			answers <- answer{err: err}
			return
		}
		m := resp.Message()
		answers <- answer{m.Header.Revision, string(m.Kvs[0].Value), nil}
	}()
	go func() {
		resp, err := n.Txn(root, &pb.TxnRequest{Success: []*pb.RequestOp{{Request: &pb.RequestOp_RequestRange{RequestRange: got}}}})
		if err != nil {
			answers <- answer{err: err}
			return
		}
		answers <- answer{resp.Header.Revision, string(resp.Responses[0].GetResponseRange().Kvs[0].Value), nil}
	}()
	time.Sleep(100 * time.Millisecond)
	s.others(s.start)
	limit, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	for range cap(answers) {
		select {
		case a := <-answers:
			require.NoError(t, a.err)
			require.GreaterOrEqual(t, a.revision, put.Header.Revision)
			require.Equal(t, "second", a.value)
		case <-limit.Done():
			t.Fatal("a read isn't answered")
		}
	}
}

package node

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.etcd.io/etcd/api/v3/authpb"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"

	"github.com/stoa-kv/stoa/internal/calllog"
	"github.com/stoa-kv/stoa/internal/fault"
)

const logging = `return {
  scope = { "/l/" },
  operations = { { op = "put", prefix = "/l/" } },
  put = function(r)
    log("put", r.value)
    if r.value == "bad" then
      error("a bad value")
    end
    put(r.key, r.value)
  end,
}`

// requireLog waits until a server has the calls in its log of an extension.
func (c *cluster) requireLog(i int, name string, want ...string) {
	c.t.Helper()
	require.Eventually(c.t, func() bool {
		cursor, err := c.nodes[i].ExtensionLog(c.t.Context(), name)
		if err != nil {
			return false // it hasn't been registered here yet
		}
		defer cursor.Close()
		b, err := cursor.Read()
		return err == nil && slices.Equal(want, textsOf(b.Calls))
	}, time.Minute, 5*time.Millisecond)
}

// read is what somebody may see who has been allowed to.
func (c *cluster) read(r *calllog.Reader) calllog.Batch {
	c.t.Helper()
	b, err := r.Read()
	require.NoError(c.t, err)
	return b
}

func textsOf(calls []*calllog.Call) (all []string) {
	for _, c := range calls {
		text := fmt.Sprintf("%s %s: %s", c.Handler, c.Key, strings.Join(c.Lines, "/"))
		if c.Err != nil {
			text += "; " + c.Err.Error()
		}
		if c.Undone {
			text += " (undone)"
		}
		all = append(all, text)
	}
	return all
}

// Every server executes every call, and has its lines.
func TestEachServerKeepsTheLogOfCalls(t *testing.T) {
	each(t, func(t *testing.T, c *cluster) {
		c.put(0, "/em/e", logging)
		first := c.put(0, "/l/a", "one")
		_, err := c.nodes[0].Put(t.Context(), &pb.PutRequest{Key: []byte("/l/a"), Value: []byte("bad")})
		require.ErrorIs(t, err, fault.ExtensionFailed)
		long := "/l/" + strings.Repeat("k", 300)
		c.put(len(c.nodes)-1, long, "two")
		for i, n := range c.nodes {
			c.requireLog(i, "e", "put /l/a: put one", "put /l/a: put bad; "+err.Error(), "put "+long[:calllog.MaxKey]+": put two")
			cursor, err := n.ExtensionLog(t.Context(), "e")
			require.NoError(t, err)
			require.Equal(t, first, c.read(cursor).Calls[0].Rev)
			cursor.Close()
		}
	})
}

func TestTheLogOfARemovedExtensionIsGone(t *testing.T) {
	c := newCluster(t, 1, 2)
	c.ready()
	c.put(0, "/em/e", logging)
	c.put(0, "/l/a", "one")
	c.requireLog(0, "e", "put /l/a: put one")
	cursor, err := c.nodes[0].ExtensionLog(t.Context(), "e")
	require.NoError(t, err)
	defer cursor.Close()
	_, err = c.nodes[0].DeleteRange(t.Context(), &pb.DeleteRangeRequest{Key: []byte("/em/e")})
	require.NoError(t, err)
	require.True(t, c.read(cursor).Gone)
	_, err = c.nodes[0].ExtensionLog(t.Context(), "e")
	require.ErrorIs(t, err, fault.NoExtension)
	c.put(0, "/em/e", logging)
	c.requireLog(0, "e")
}

// newReader is a member, with root and a user who may read the source of the extension e and what is below /a/.
func newReader(t *testing.T) (c *cluster, root, a context.Context) {
	c = newCluster(t, 1, 2, simpleTokens)
	c.ready()
	c.addRoot()
	c.addUser("a", &authpb.Permission{PermType: authpb.READ, Key: []byte("/em/e")},
		&authpb.Permission{PermType: authpb.READ, Key: []byte("/a/"), RangeEnd: []byte("/a0")})
	c.enable(0)
	return c, withToken(t.Context(), c.token(0, "root")), withToken(t.Context(), c.token(0, "a"))
}

// Lines are for those who may read the scope that the extension had when it wrote them, and only for as long.
func TestLogsAreForThoseWhoMayReadTheScope(t *testing.T) {
	c, root, a := newReader(t)
	n := c.nodes[0]
	put := func(key, value string) {
		_, err := n.Put(root, &pb.PutRequest{Key: []byte(key), Value: []byte(value)})
		require.NoError(t, err)
	}
	open := func(ctx context.Context) *calllog.Reader {
		r, err := n.ExtensionLog(ctx, "e")
		require.NoError(t, err)
		t.Cleanup(r.Close)
		return r
	}
	put("/em/e", logging)
	put("/l/k", "secret")
	_, err := n.ExtensionLog(a, "e")
	require.ErrorIs(t, err, fault.PermissionDenied)
	put("/em/e", strings.ReplaceAll(logging, "/l/", "/a/"))
	follow := open(a)
	require.Empty(t, c.read(follow).Calls)
	require.Equal(t, []string{"put /l/k: put secret"}, textsOf(c.read(open(root)).Calls))
	put("/em/e/ack", "")
	put("/a/k", "1")
	require.Equal(t, []string{"put /a/k: put 1"}, textsOf(c.read(follow).Calls))
	c.changeAuth(0, &pb.InternalRaftRequest{AuthUserRevokeRole: &pb.AuthUserRevokeRoleRequest{Name: "a", Role: "a"}})
	put("/a/k", "2")
	_, err = follow.Read()
	require.ErrorIs(t, err, fault.PermissionDenied)
}

// The keys that operations name needn't be in the scope: lines have what requests for them bring, and are for those who may read it.
func TestLogsAreForThoseWhoMayReadTheRequests(t *testing.T) {
	c, root, a := newReader(t)
	n := c.nodes[0]
	for _, kv := range [][2]string{
		{"/em/e", `return { scope = { "/a/" }, operations = { { op = "put", key = "/a/in" }, { op = "put", prefix = "/b/" } }, put = function(r) log(r.value) end }`},
		{"/b/k", "secret"},
	} {
		_, err := n.Put(root, &pb.PutRequest{Key: []byte(kv[0]), Value: []byte(kv[1])})
		require.NoError(t, err)
	}
	_, err := n.ExtensionLog(a, "e")
	require.ErrorIs(t, err, fault.PermissionDenied)
	c.changeAuth(0, &pb.InternalRaftRequest{AuthRoleGrantPermission: &pb.AuthRoleGrantPermissionRequest{
		Name: "a", Perm: &authpb.Permission{PermType: authpb.READ, Key: []byte("/b/"), RangeEnd: []byte("/b0")},
	}})
	log, err := n.ExtensionLog(a, "e")
	require.NoError(t, err)
	defer log.Close()
	require.Equal(t, []string{"put /b/k: secret"}, textsOf(c.read(log).Calls))
}

// A transaction is told by the key that it names first, which need not be one that the extension names.
func TestLogsOfTransactionsAreForThoseWhoMayReadTheirKeys(t *testing.T) {
	c, root, a := newReader(t)
	n := c.nodes[0]
	put := func(key, value string) *pb.RequestOp {
		return &pb.RequestOp{Request: &pb.RequestOp_RequestPut{RequestPut: &pb.PutRequest{Key: []byte(key), Value: []byte(value)}}}
	}
	source := `return { scope = { "/a/" }, operations = { { op = "txn", prefix = "/a/" } }, txn = function(r) log(r.key) end }`
	_, err := n.Put(root, &pb.PutRequest{Key: []byte("/em/e"), Value: []byte(source)})
	require.NoError(t, err)
	for _, ops := range [][]*pb.RequestOp{{put("/a/k", "1")}, {put("/b/hidden", "1"), put("/a/k", "2")}} {
		_, err := n.Txn(root, &pb.TxnRequest{Success: ops})
		require.NoError(t, err)
	}
	read := func() []string {
		log, err := n.ExtensionLog(a, "e")
		require.NoError(t, err)
		defer log.Close()
		return textsOf(c.read(log).Calls)
	}
	require.Equal(t, []string{"txn /a/k: /a/k"}, read())
	c.changeAuth(0, &pb.InternalRaftRequest{AuthRoleGrantPermission: &pb.AuthRoleGrantPermissionRequest{
		Name: "a", Perm: &authpb.Permission{PermType: authpb.READ, Key: []byte("/b/"), RangeEnd: []byte("/b0")},
	}})
	require.Equal(t, []string{"txn /a/k: /a/k", "txn /b/hidden: /b/hidden"}, read())
}

// The runs of a request that was refused as a whole are in the log, and that they have no
// effect.
func TestTheLogSaysThatCallsWereUndone(t *testing.T) {
	c := newCluster(t, 1, 2)
	c.ready()
	c.put(0, "/em/.limits", `{"event_steps": 20000}`)
	c.put(0, "/em/e", `return { scope = { "/x/" }, events = { { event = "deleted", prefix = "/x/" } }, event = function(e) log(e.key) end }`)
	c.fill(200, 0)
	_, err := c.nodes[0].DeleteRange(t.Context(), &pb.DeleteRangeRequest{Key: []byte("/x/"), RangeEnd: []byte("/x0")})
	require.ErrorIs(t, err, fault.TooMuchWork)
	cursor, opening := c.nodes[0].ExtensionLog(t.Context(), "e")
	require.NoError(t, opening)
	defer cursor.Close()
	calls := textsOf(c.read(cursor).Calls)
	require.Greater(t, len(calls), 50)
	require.Equal(t, "deleted /x/000000: /x/000000", calls[0])
	require.Equal(t, " : ; "+err.Error()+" (undone)", calls[len(calls)-1])
}

// The end of a lease that is too much work is rolled back and split.
func TestTheLogSaysThatTheEndOfALeaseWasSplit(t *testing.T) {
	c := newCluster(t, 1, 2)
	c.ready()
	c.put(0, "/em/.limits", `{"event_steps": 20000}`)
	c.put(0, "/em/counts", countsExpired)
	_, err := c.nodes[0].LeaseGrant(t.Context(), &pb.LeaseGrantRequest{ID: 7, TTL: 600})
	require.NoError(t, err)
	c.fill(200, 7)
	_, err = c.nodes[0].LeaseRevoke(t.Context(), &pb.LeaseRevokeRequest{ID: 7})
	require.NoError(t, err)
	require.Equal(t, "200", string(c.get(0, "/n", "").Kvs[0].Value))
	cursor, err := c.nodes[0].ExtensionLog(t.Context(), "counts")
	require.NoError(t, err)
	defer cursor.Close()
	calls := c.read(cursor).Calls
	require.NotEmpty(t, calls)
	for _, call := range calls { // the handlers log nothing
		require.True(t, call.Undone)
		require.ErrorIs(t, call.Err, fault.TooMuchWork)
	}
}

// A snapshot replaces what was applied: extensions that are removed in it have no log.
func TestASnapshotEndsTheLogsOfRemovedExtensions(t *testing.T) {
	s := newSnapshots(t, 2)
	s.put(s.leader, "/em/gone", logging)
	s.put(s.leader, "/em/stays", strings.ReplaceAll(logging, "/l/", "/m/"))
	s.put(s.leader, "/m/a", "one")
	s.requireLog(s.follower, "stays", "put /m/a: put one")
	n := s.nodes[s.follower]
	gone, err := n.ExtensionLog(t.Context(), "gone")
	require.NoError(t, err)
	defer gone.Close()
	profile, err := n.ProfileExtension(t.Context(), "stays")
	require.NoError(t, err)
	defer profile.Stop()
	s.leave()
	_, err = s.nodes[s.leader].DeleteRange(t.Context(), &pb.DeleteRangeRequest{Key: []byte("/em/gone")})
	require.NoError(t, err)
	s.put(s.leader, "/m/b", "two")
	s.install(s.cut())
	require.True(t, s.read(gone).Gone)
	<-profile.Ended()
	stays, err := n.ExtensionLog(t.Context(), "stays")
	require.NoError(t, err)
	defer stays.Close()
	require.Equal(t, "put /m/a: put one", textsOf(s.read(stays).Calls)[0])
	_, err = n.ExtensionLog(t.Context(), "gone")
	require.ErrorIs(t, err, fault.NoExtension)
}

// A profile counts the calls of its server, until the source is another.
func TestProfileOfAServer(t *testing.T) {
	each(t, func(t *testing.T, c *cluster) {
		source := c.put(0, "/em/e", logging)
		last := len(c.nodes) - 1
		c.requireLog(last, "e")
		n := c.nodes[last]
		_, err := n.ProfileExtension(t.Context(), "f")
		require.ErrorIs(t, err, fault.NoExtension)
		p, err := n.ProfileExtension(t.Context(), "e")
		require.NoError(t, err)
		defer p.Stop()
		require.Equal(t, source, p.Revision)
		_, err = n.ProfileExtension(t.Context(), "e")
		require.ErrorIs(t, err, fault.TooManyProfiles)
		c.put(0, "/l/a", "one")
		c.put(0, "/em/e", logging) // the same source
		c.put(0, "/l/a", "two")
		_, err = c.nodes[0].Put(t.Context(), &pb.PutRequest{Key: []byte("/l/a"), Value: []byte("bad")})
		require.Error(t, err)
		require.Eventually(t, func() bool { calls, _ := p.Usage(); return calls == 3 }, time.Minute, 5*time.Millisecond)
		of := map[int]int64{}
		_, lines := p.Usage()
		for _, l := range lines {
			of[l.Line] = l.Calls
		}
		require.Equal(t, map[int]int64{4: 3, 5: 3, 6: 3, 7: 1, 9: 2}, of)
		c.put(0, "/em/e", logging+" ")
		<-p.Ended()
		c.put(0, "/l/a", "three")
		calls, _ := p.Usage()
		require.EqualValues(t, 3, calls)
	})
}

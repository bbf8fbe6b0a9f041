package apply

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.etcd.io/etcd/api/v3/authpb"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/protobuf/proto"

	"github.com/stoa-kv/stoa/internal/auth"
	"github.com/stoa-kv/stoa/internal/command"
	"github.com/stoa-kv/stoa/internal/fault"
	"github.com/stoa-kv/stoa/internal/membership"
	"github.com/stoa-kv/stoa/internal/placement"
	"github.com/stoa-kv/stoa/internal/store"
	"github.com/stoa-kv/stoa/internal/version"
)

// guarded is a rig with the users root, a and b, who may read and write what is below /a/ and
// /b/.
type guarded struct {
	*rig
	t     *testing.T
	stamp int64
}

func guard(t *testing.T, partitions int) *guarded {
	g := &guarded{newRig(partitions), t, 1}
	g.at(levelOfUsers)
	for _, u := range []string{"root", "a", "b"} {
		g.admin(&pb.InternalRaftRequest{AuthUserAdd: &pb.AuthUserAddRequest{Name: u}})
		g.admin(&pb.InternalRaftRequest{AuthRoleAdd: &pb.AuthRoleAddRequest{Name: u}})
		g.admin(&pb.InternalRaftRequest{AuthUserGrantRole: &pb.AuthUserGrantRoleRequest{User: u, Role: u}})
		g.allow(u, "/"+u+"/", "/"+u+"0")
	}
	g.admin(&pb.InternalRaftRequest{AuthEnable: &pb.AuthEnableRequest{}})
	return g
}

// at sets the level of the cluster.
func (g *guarded) at(l version.Level) {
	list := *g.Membership()
	list.Level = l
	g.LoadMembership(&list, g.Configurations())
}

func (g *guarded) allow(role, key, end string) {
	g.admin(&pb.InternalRaftRequest{AuthRoleGrantPermission: &pb.AuthRoleGrantPermissionRequest{
		Name: role, Perm: &authpb.Permission{PermType: authpb.Permission_READWRITE, Key: []byte(key), RangeEnd: []byte(end)},
	}})
}

func (g *guarded) admin(r *pb.InternalRaftRequest) {
	require.NoError(g.t, g.do(auth.Own, command.Auth, r, g.Placement().All()).Err)
}

func (g *guarded) credential(user string) uint64 { return g.Auth().User(user).Credential }

// do executes a command of a user in the given partitions.
func (g *guarded) do(user uint64, kind command.Kind, req proto.Message, parts placement.Set) (out Result) {
	body, err := proto.Marshal(req)
	require.NoError(g.t, err)
	e := &command.Entry{Commands: []command.Command{{Kind: kind, User: user, Body: body}}}
	if len(g.Stores) > 1 {
		g.stamp += 10
		e.Stamp = g.stamp
	}
	g.entry(e, parts, func(_ int, r Result) { out = r })
	return out
}

func (g *guarded) put(user string, r *pb.PutRequest) error {
	parts := g.Parts(r) | g.ForLeases(g.credential(user), r)
	return g.do(g.credential(user), command.Put, r, parts).Err
}

func TestRightsOfThePlaceInTheLog(t *testing.T) {
	for _, partitions := range []int{1, 3} {
		g := guard(t, partitions)
		a := g.credential("a")
		write := &pb.PutRequest{Key: []byte("/a/1")}
		require.NoError(t, g.put("a", write))
		require.ErrorIs(t, g.put("b", write), fault.PermissionDenied)
		require.ErrorIs(t, g.do(0, command.Put, write, g.Parts(write)).Err, fault.UserEmpty)
		// Proposed before the user was deleted and added again, it comes behind it.
		g.admin(&pb.InternalRaftRequest{AuthUserDelete: &pb.AuthUserDeleteRequest{Name: "a"}})
		g.admin(&pb.InternalRaftRequest{AuthUserAdd: &pb.AuthUserAddRequest{Name: "a"}})
		g.admin(&pb.InternalRaftRequest{AuthUserGrantRole: &pb.AuthUserGrantRoleRequest{User: "a", Role: "a"}})
		require.ErrorIs(t, g.do(a, command.Put, write, g.Parts(write)).Err, fault.AuthOldRevision)
		require.NoError(t, g.put("a", write))
		for kind, req := range map[command.Kind]proto.Message{
			command.Compact: &pb.CompactionRequest{Revision: 1},
			command.Auth:    &pb.InternalRaftRequest{AuthDisable: &pb.AuthDisableRequest{}},
			command.Alarm:   &pb.AlarmRequest{Action: pb.AlarmRequest_ACTIVATE, Alarm: pb.AlarmType_NOSPACE},
		} {
			require.ErrorIs(t, g.do(g.credential("a"), kind, req, g.Placement().All()).Err, fault.PermissionDenied, kind.String())
		}
		require.True(t, g.Auth().Enabled)
	}
}

// The keys of a lease can be in any partition: the puts of its owner stay local, and those of
// others need all.
func TestLeasesHaveOwners(t *testing.T) {
	g := guard(t, 3)
	lease := func(id int64, user string) {
		require.NoError(t, g.do(g.credential(user), command.LeaseGrant, &pb.LeaseGrantRequest{ID: id, TTL: 60}, g.Placement().All()).Err)
	}
	lease(1, "a")
	own := &pb.PutRequest{Key: []byte("/a/1"), Lease: 1}
	require.Zero(t, g.ForLeases(g.credential("a"), own), "local")
	require.NoError(t, g.put("a", own))
	others := &pb.PutRequest{Key: []byte("/b/1"), Lease: 1}
	require.Equal(t, g.Placement().All(), g.ForLeases(g.credential("b"), others))
	require.ErrorIs(t, g.do(g.credential("b"), command.Put, others, g.Parts(others)).Err, fault.Moved, "it has to come back to all partitions")
	require.ErrorIs(t, g.put("b", others), fault.PermissionDenied)
	txn := &pb.TxnRequest{Failure: []*pb.RequestOp{{Request: &pb.RequestOp_RequestPut{RequestPut: others}}}}
	parts := g.Parts(txn) | g.ForLeases(g.credential("b"), txn)
	require.ErrorIs(t, g.do(g.credential("b"), command.Txn, txn, parts).Err, fault.PermissionDenied)
	revoke := &pb.LeaseRevokeRequest{ID: 1}
	require.ErrorIs(t, g.do(g.credential("b"), command.LeaseRevoke, revoke, g.Placement().All()).Err, fault.PermissionDenied)
	lease(2, "a")
	require.NoError(t, g.put("b", &pb.PutRequest{Key: []byte("/b/1"), Lease: 2}), "it has no keys yet")
	require.ErrorIs(t, g.do(g.credential("a"), command.LeaseRevoke, &pb.LeaseRevokeRequest{ID: 2}, g.Placement().All()).Err, fault.PermissionDenied)
	require.NoError(t, g.do(auth.Own, command.LeaseRevoke, revoke, g.Placement().All()).Err, "the servers end leases")
}

// Whose session it is can't be told by the keys of its lease: it may have none, or others of extensions.
func TestSessionsHaveOwners(t *testing.T) {
	g := guard(t, 3)
	a, b := g.credential("a"), g.credential("b")
	revoke := func(user uint64, id int64) error {
		return g.do(user, command.LeaseRevoke, &pb.LeaseRevokeRequest{ID: id}, g.Placement().All()).Err
	}
	for id := int64(5); id <= 7; id++ {
		require.NoError(t, g.do(a, command.SessionOpen, &pb.LeaseGrantRequest{ID: id, TTL: 60}, g.Placement().All()).Err)
	}
	others := &pb.PutRequest{Key: []byte("/b/1"), Lease: 5}
	require.NoError(t, g.put("b", others), "below the level")
	require.NoError(t, revoke(b, 6), "below the level")
	g.at(levelOfOwnSessions)
	require.ErrorIs(t, g.put("b", others), fault.PermissionDenied)
	require.ErrorIs(t, revoke(b, 7), fault.PermissionDenied)
	require.NoError(t, g.put("a", &pb.PutRequest{Key: []byte("/a/1"), Lease: 5}))
	require.NoError(t, g.put("root", &pb.PutRequest{Key: []byte("/b/2"), Lease: 5}))
	require.NoError(t, revoke(a, 5), "whatever keys it has")
	require.NoError(t, revoke(auth.Own, 7), "the servers end sessions")
}

// Whether a user may renew a lease, or see its keys, follows from the rights that it has beside these keys.
func TestKeysOfALeaseAreJudgedByTheRightsBesideThem(t *testing.T) {
	g := guard(t, 2)
	a, all := g.credential("a"), g.Placement().All()
	require.NoError(t, g.do(a, command.LeaseGrant, &pb.LeaseGrantRequest{ID: 7, TTL: 60}, all).Err)
	require.NoError(t, g.put("root", &pb.PutRequest{Key: []byte("/b/1"), Lease: 7}))
	without, err := g.Auth().Change(&pb.InternalRaftRequest{AuthUserRevokeRole: &pb.AuthUserRevokeRoleRequest{Name: "a", Role: "a"}})
	require.NoError(t, err)

	g.lock(all)
	answers := make(chan error, 2)
	go func() { answers <- g.MayRenew(7, Renewer{a, false}) }()
	go func() {
		_, err := g.LeaseKeys(7, a, (*auth.User).MayRead)
		answers <- err
	}()
	time.Sleep(20 * time.Millisecond) // they have begun
	g.LoadAuth(without)
	for _, s := range g.Stores {
		s.Delete(store.Revision{Main: 1000}, []byte("/b/1"))
	}
	g.Stores[0].Put(store.Revision{Main: 1001}, []byte("/a/1"), nil, 7)
	g.unlock(all)
	for range 2 {
		require.ErrorIs(t, <-answers, fault.PermissionDenied, "it could read and write /a/ only as long as the lease had /b/1")
	}
}

// Its user ends a session also if that takes several steps: the session is gone with the first one, and keys are left that the user may
// not write.
func TestAUserEndsASessionInSteps(t *testing.T) {
	g := guard(t, 1)
	g.at(levelOfOwnSessions)
	require.NoError(t, g.call("root", &pb.PutRequest{Key: []byte("/em/x"), Value: []byte(`return { scope = { "/a/", "/n" },
		events = { { event = "expired", prefix = "/a/" } }, event = function() put("/n", (tonumber(get("/n")) or 0) + 1) end }`)}))
	a, all := g.credential("a"), g.Placement().All()
	require.NoError(t, g.do(a, command.SessionOpen, &pb.LeaseGrantRequest{ID: 5, TTL: 60}, all).Err)
	for i := range 500 {
		require.NoError(t, g.put("a", &pb.PutRequest{Key: fmt.Appendf(nil, "/a/%03d", i), Lease: 5}))
	}
	require.NoError(t, g.put("root", &pb.PutRequest{Key: []byte("/b/1"), Lease: 5}))
	revoke := func(user string) error {
		return g.do(g.credential(user), command.LeaseRevoke, &pb.LeaseRevokeRequest{ID: 5}, all).Err
	}
	require.NoError(t, g.MayRenew(5, Renewer{a, true}))
	require.ErrorIs(t, revoke("a"), fault.LeaseEnding)
	require.ErrorIs(t, revoke("b"), fault.PermissionDenied)
	require.NoError(t, g.MayRenew(5, Renewer{a, true}), "that it is over is another's to say")
	require.NoError(t, g.MayRenew(5, Renewer{a, false}))
	require.ErrorIs(t, g.MayRenew(5, Renewer{g.credential("b"), true}), fault.SessionGone)
	require.ErrorIs(t, g.MayRenew(5, Renewer{g.credential("b"), false}), fault.PermissionDenied)
	err := revoke("a")
	for errors.Is(err, fault.LeaseEnding) {
		err = revoke("a")
	}
	require.NoError(t, err)
	require.Zero(t, g.keys("/b/1"))
}

// The lease with which a client says that it is there is attached to no key by another: its owner, who may not write the
// key, would lose it.
func TestAcknowledgementsGoWithOwnLeases(t *testing.T) {
	g := guard(t, 1)
	source := `return { scope = { "/x/" }, operations = { { op = "put", key = "/x/1" } }, put = function() end }`
	require.NoError(t, g.call("root", &pb.PutRequest{Key: []byte("/em/x"), Value: []byte(source)}))
	for id, user := range []string{"a", "b"} {
		g.allow(user, "/em/x/ack", "")
		lease := &pb.LeaseGrantRequest{ID: int64(id + 1), TTL: 60}
		require.NoError(t, g.do(g.credential(user), command.LeaseGrant, lease, g.Placement().All()).Err)
	}
	ack := &pb.PutRequest{Key: []byte("/em/x/ack")}
	require.NoError(t, g.callWith("b", 1, ack), "below the level")
	g.at(levelOfOwnLeases)
	require.ErrorIs(t, g.callWith("b", 1, ack), fault.PermissionDenied)
	require.ErrorIs(t, g.callWith("b", 3, ack), fault.LeaseNotFound)
	require.NoError(t, g.callWith("b", 2, ack))
	require.NoError(t, g.callWith("root", 1, ack))
}

// What a session's answers say is for its user alone, and a refused write is remembered.
func TestSessionsHaveUsers(t *testing.T) {
	g := guard(t, 1)
	require.NoError(t, g.do(g.credential("a"), command.SessionOpen, &pb.LeaseGrantRequest{ID: 5, TTL: 60}, placement.Of(0)).Err)
	write := func(user string, seq uint64, key string) Result {
		body, err := proto.Marshal(&pb.PutRequest{Key: []byte(key), Value: []byte("v"), PrevKv: true})
		require.NoError(t, err)
		q := command.Sequenced{Session: 5, Seq: seq, Answered: 0, Kind: command.Put, Body: body}
		var out Result
		g.entry(&command.Entry{Commands: []command.Command{{Kind: command.InSession, User: g.credential(user), Body: q.AppendTo(nil)}}},
			placement.Of(0), func(_ int, r Result) { out = r })
		return out
	}
	require.NoError(t, write("a", 1, "/a/1").Err)
	require.ErrorIs(t, write("b", 1, "/a/1").Err, fault.SessionGone)
	require.ErrorIs(t, write("root", 1, "/a/1").Err, fault.SessionGone)
	require.ErrorIs(t, write("a", 2, "/b/1").Err, fault.PermissionDenied)
	g.allow("a", "/b/", "/b0")
	require.ErrorIs(t, write("a", 2, "/b/1").Err, fault.PermissionDenied, "the same write has the same outcome")
	require.NoError(t, write("a", 3, "/b/1").Err)
}

func TestReadsHaveTheRightsOfTheirState(t *testing.T) {
	g := guard(t, 1)
	require.NoError(t, g.put("a", &pb.PutRequest{Key: []byte("/a/1")}))
	part := placement.Of(0)
	for user, want := range map[string]error{"root": nil, "a": nil, "b": fault.PermissionDenied} {
		c := g.credential(user)
		_, err := g.Range(&pb.RangeRequest{Key: []byte("/a/1")}, part, 0, c)
		require.ErrorIs(t, err, want)
		_, _, err = g.Get([]byte("/a/1"), 0, 0, c)
		require.ErrorIs(t, err, want)
		_, err = g.ReadTxn(&pb.TxnRequest{Compare: []*pb.Compare{{Key: []byte("/a/1")}}}, part, 0, c)
		require.ErrorIs(t, err, want)
	}
	_, _, err := g.Get([]byte("/a/1"), 0, 0, 0)
	require.ErrorIs(t, err, fault.UserEmpty)
}

// An event handler runs with the rights of the user who registered it, as they are when it
// runs, whatever the rights of the client are whose change it reacts to.
func TestEventHandlersRunAsTheirRegistrar(t *testing.T) {
	g := guard(t, 1)
	g.allow("a", "/em/copy", "")
	g.allow("b", "/em/copy", "")
	source := `return {
  scope = { "/a/", "/b/1" },
  operations = {},
  events = { { event = "created", key = "/b/1" }, { event = "modified", key = "/b/1" } },
  event = function(e) put("/a/copy", e.value) end,
}`
	register := func(user string) error {
		return g.call(user, &pb.PutRequest{Key: []byte("/em/copy"), Value: []byte(source)})
	}
	require.ErrorIs(t, register("b"), fault.PermissionDenied, "of the scope")
	require.ErrorIs(t, register("a"), fault.PermissionDenied, "of all of the scope")
	g.allow("a", "/b/1", "")
	require.NoError(t, register("a"))

	copied := func() string { return string(g.Stores[0].Get([]byte("/a/copy")).Value()) }
	require.NoError(t, g.put("b", &pb.PutRequest{Key: []byte("/b/1"), Value: []byte("one")}))
	require.Equal(t, "one", copied())
	g.admin(&pb.InternalRaftRequest{AuthRoleRevokePermission: &pb.AuthRoleRevokePermissionRequest{Role: "a", Key: []byte("/a/"), RangeEnd: []byte("/a0")}})
	for range 20 {
		require.NoError(t, g.put("b", &pb.PutRequest{Key: []byte("/b/1"), Value: []byte("two")}), "the command itself is permitted")
	}
	require.Equal(t, "one", copied())
	g.allow("a", "/a/", "/a0")
	require.NoError(t, g.put("b", &pb.PutRequest{Key: []byte("/b/1"), Value: []byte("three")}))
	require.Equal(t, "three", copied(), "it was not disabled for the lack of a right")
	g.admin(&pb.InternalRaftRequest{AuthUserDelete: &pb.AuthUserDeleteRequest{Name: "a"}})
	g.admin(&pb.InternalRaftRequest{AuthUserAdd: &pb.AuthUserAddRequest{Name: "a"}})
	g.admin(&pb.InternalRaftRequest{AuthUserGrantRole: &pb.AuthUserGrantRoleRequest{User: "a", Role: "a"}})
	require.NoError(t, g.put("b", &pb.PutRequest{Key: []byte("/b/1"), Value: []byte("four")}))
	require.Equal(t, "three", copied(), "another user of the same name")
}

// To be told of a change, and to hide it, takes the right to read its key, as it is then.
func TestEventHandlersReactToWhatTheirRegistrarMayRead(t *testing.T) {
	g := guard(t, 1)
	g.allow("a", "/em/copy", "")
	g.allow("a", "/b/1", "")
	source := `return {
  scope = { "/a/", "/b/1" },
  operations = {},
  events = { { event = "created", key = "/b/1" }, { event = "modified", key = "/b/1" } },
  event = function(e) put("/a/copy", e.value) suppress() end,
}`
	require.NoError(t, g.call("a", &pb.PutRequest{Key: []byte("/em/copy"), Value: []byte(source)}))
	told := func(value string) bool {
		g.events = nil
		require.NoError(t, g.put("b", &pb.PutRequest{Key: []byte("/b/1"), Value: []byte(value)}))
		copied := string(g.Stores[0].Get([]byte("/a/copy")).Value()) == value
		require.Equal(t, copied, g.events[0].change.Hides != nil)
		return copied
	}
	require.True(t, told("one"))
	g.admin(&pb.InternalRaftRequest{AuthRoleRevokePermission: &pb.AuthRoleRevokePermissionRequest{Role: "a", Key: []byte("/b/1")}})
	require.True(t, told("two"), "below the level")
	g.at(levelOfReadableEvents)
	for range 20 {
		require.False(t, told("three"))
	}
	g.allow("a", "/b/1", "")
	require.True(t, told("four"), "it was not disabled for the lack of a right")
}

// A handler may write a key that keeps the lease which it has, as in a put that ignores it, whose lease that is. It attaches no other
// key to it.
func TestHandlersKeepTheLeasesOfOtherUsers(t *testing.T) {
	g := guard(t, 1)
	for _, key := range []string{"/swap", "/take", "/em/x/ack", "/b/k", "/b/other"} {
		g.allow("a", key, "")
	}
	require.NoError(t, g.call("root", &pb.PutRequest{Key: []byte("/em/x"), Value: []byte(`return { scope = { "/b/" },
		operations = { { op = "put", key = "/swap" }, { op = "put", key = "/take" } },
		put = function(r)
			if r.key == "/swap" then return cas("/b/k", "1", "2") end
			put("/b/other", "2", stat("/b/k").lease)
		end }`)}))
	require.NoError(t, g.call("a", &pb.PutRequest{Key: []byte("/em/x/ack")}))
	require.NoError(t, g.do(g.credential("b"), command.LeaseGrant, &pb.LeaseGrantRequest{ID: 5, TTL: 60}, g.Placement().All()).Err)
	require.NoError(t, g.put("b", &pb.PutRequest{Key: []byte("/b/k"), Value: []byte("1"), Lease: 5}))
	swap := &pb.PutRequest{Key: []byte("/swap")}
	g.at(levelOfKeptLeases - 1)
	require.ErrorContains(t, g.call("a", swap), "lease 5 does not exist")
	g.at(levelOfKeptLeases)
	require.NoError(t, g.call("a", swap))
	kv := g.Stores[0].Get([]byte("/b/k"))
	require.Equal(t, "2", string(kv.Value()))
	require.EqualValues(t, 5, kv.Lease())
	require.ErrorContains(t, g.call("a", &pb.PutRequest{Key: []byte("/take")}), "lease 5 does not exist")
}

// Who may not write a key doesn't learn that a strict extension is for it.
func TestStrictExtensionsAreHidden(t *testing.T) {
	g := guard(t, 1)
	source := `return { strict = true, scope = { "/a/" }, operations = { { op = "put", key = "/a/1" } }, put = function() end }`
	require.NoError(t, g.call("root", &pb.PutRequest{Key: []byte("/em/strict"), Value: []byte(source)}))
	put := &pb.PutRequest{Key: []byte("/a/1")}
	for level, want := range map[version.Level]error{levelOfHiddenExtensions - 1: fault.Unacknowledged, levelOfHiddenExtensions: fault.PermissionDenied} {
		g.at(level)
		require.ErrorIs(t, g.call("b", put), want, level.String())
		require.ErrorIs(t, g.call("a", put), fault.Unacknowledged)
	}
}

// An earlier release knows of no users: it would open everything.
func TestUsersHoldTheVersion(t *testing.T) {
	g := guard(t, 1)
	require.NoError(t, g.do(auth.Own, command.Auth, &pb.InternalRaftRequest{AuthDisable: &pb.AuthDisableRequest{}}, g.Placement().All()).Err)
	require.ErrorIs(t, g.version(membership.Downgrade, 1).Err, fault.BadDowngradeTarget)
	for _, u := range g.Auth().Users() {
		g.admin(&pb.InternalRaftRequest{AuthUserDelete: &pb.AuthUserDeleteRequest{Name: u}})
	}
	require.ErrorIs(t, g.version(membership.Downgrade, 1).Err, fault.BadDowngradeTarget)
	for _, r := range g.Auth().Roles() {
		g.admin(&pb.InternalRaftRequest{AuthRoleDelete: &pb.AuthRoleDeleteRequest{Role: r}})
	}
	require.NoError(t, g.version(membership.Downgrade, 1).Err)
	again := g.do(auth.Own, command.Auth, &pb.InternalRaftRequest{AuthUserAdd: &pb.AuthUserAddRequest{Name: "x"}}, g.Placement().All())
	require.ErrorIs(t, again.Err, fault.VersionTooLow)
}

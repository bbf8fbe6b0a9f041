package auth

import (
	"maps"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"go.etcd.io/etcd/api/v3/authpb"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/protobuf/proto"
	"pgregory.net/rapid"

	"github.com/stoa-kv/stoa/internal/fault"
)

// build applies requests that succeed.
func build(t require.TestingT, s *State, requests ...*pb.InternalRaftRequest) *State {
	for _, r := range requests {
		next, err := s.Change(r)
		require.NoError(t, err, "%v", r)
		s = next
	}
	return s
}

func userAdd(name string) *pb.InternalRaftRequest {
	return &pb.InternalRaftRequest{AuthUserAdd: &pb.AuthUserAddRequest{Name: name, HashedPassword: "aGFzaA=="}}
}

func userDelete(name string) *pb.InternalRaftRequest {
	return &pb.InternalRaftRequest{AuthUserDelete: &pb.AuthUserDeleteRequest{Name: name}}
}

func password(name string) *pb.InternalRaftRequest {
	return &pb.InternalRaftRequest{AuthUserChangePassword: &pb.AuthUserChangePasswordRequest{Name: name, HashedPassword: "YWdhaW4="}}
}

func roleAdd(name string) *pb.InternalRaftRequest {
	return &pb.InternalRaftRequest{AuthRoleAdd: &pb.AuthRoleAddRequest{Name: name}}
}

func grantRole(user, role string) *pb.InternalRaftRequest {
	return &pb.InternalRaftRequest{AuthUserGrantRole: &pb.AuthUserGrantRoleRequest{User: user, Role: role}}
}

func grant(role string, kind authpb.Permission_Type, key, end string) *pb.InternalRaftRequest {
	return &pb.InternalRaftRequest{AuthRoleGrantPermission: &pb.AuthRoleGrantPermissionRequest{
		Name: role, Perm: &authpb.Permission{PermType: kind, Key: []byte(key), RangeEnd: []byte(end)},
	}}
}

var (
	enable  = &pb.InternalRaftRequest{AuthEnable: &pb.AuthEnableRequest{}}
	disable = &pb.InternalRaftRequest{AuthDisable: &pb.AuthDisableRequest{}}
)

func TestCredentialsAreNeverReused(t *testing.T) {
	s := build(t, New(), userAdd("root"), roleAdd("root"), grantRole("root", "root"), userAdd("a"), enable)
	first := s.User("a")
	require.NotEqual(t, uint64(Own), first.Credential)
	u, err := s.Authorize(first.Credential)
	require.NoError(t, err)
	require.Equal(t, "a", u.Name)

	changed := build(t, s, password("a"))
	_, err = changed.Authorize(first.Credential)
	require.ErrorIs(t, err, fault.AuthOldRevision)
	require.Equal(t, first.ID, changed.User("a").ID, "it is the same user")

	again := build(t, s, userDelete("a"), userAdd("a"))
	_, err = again.Authorize(first.Credential)
	require.ErrorIs(t, err, fault.AuthOldRevision)
	require.NotEqual(t, first.ID, again.User("a").ID, "it is another user")

	_, err = s.Authorize(0)
	require.ErrorIs(t, err, fault.UserEmpty)
	for _, credential := range []uint64{0, 99, Own} {
		u, err := build(t, s, disable).Authorize(credential)
		require.NoError(t, err)
		require.Nil(t, u)
	}
	u, err = s.Authorize(Own)
	require.NoError(t, err)
	require.NoError(t, u.MustBeRoot())
	require.NoError(t, u.MayWrite([]byte("k"), nil))
}

// A change of other users' rights leaves those alone whose requests are under way.
func TestOthersChangesDoNotMatter(t *testing.T) {
	s := build(t, New(), userAdd("root"), roleAdd("root"), grantRole("root", "root"), userAdd("a"), userAdd("b"), enable)
	a := s.User("a").Credential
	s = build(t, s, password("b"), roleAdd("r"), grantRole("b", "r"), userDelete("b"))
	u, err := s.Authorize(a)
	require.NoError(t, err)
	require.Equal(t, "a", u.Name)
}

func TestStatesDoNotChange(t *testing.T) {
	before := build(t, New(), userAdd("a"), roleAdd("r"), grantRole("a", "r"))
	a := before.User("a")
	after := build(t, before, grant("r", authpb.Permission_READ, "k", ""))
	require.Error(t, before.User("a").MayRead([]byte("k"), nil))
	require.NoError(t, after.User("a").MayRead([]byte("k"), nil))
	require.Same(t, a, before.User("a"))
	require.Equal(t, before.Revision+1, after.Revision)
}

// Covered by many permissions together, or not: the merged spans say what each key says.
func TestSpansAreTheUnionOfPermissions(t *testing.T) {
	letter := rapid.StringMatching(`[a-e]`)
	rapid.Check(t, func(t *rapid.T) {
		var list []span
		empty := false // a permission can't be, and what has one may be said to be touched
		for range rapid.IntRange(0, 6).Draw(t, "n") {
			list = append(list, spanOf([]byte(letter.Draw(t, "key")), []byte(rapid.SampledFrom([]string{"", "\x00", "b", "c", "d", "e", "f"}).Draw(t, "end"))))
		}
		for _, s := range list {
			empty = empty || s.to != "" && s.to <= s.from
		}
		in := func(key string) bool {
			for _, s := range list {
				if s.from <= key && (s.to == "" || key < s.to) {
					return true
				}
			}
			return false
		}
		all := merged(append([]span(nil), list...))
		for i := 1; i < len(all); i++ {
			require.Less(t, all[i-1].to, all[i].from)
		}
		from, to := letter.Draw(t, "from"), rapid.SampledFrom([]string{"", "\x00", "b", "c", "d", "e", "f"}).Draw(t, "to")
		want, touched := true, false
		// Between two of these points all permissions are alike.
		for _, p := range []string{"a", "a\x00", "b", "b\x00", "c", "c\x00", "d", "d\x00", "e", "e\x00", "f", "z"} {
			inside := p >= from && (to == "\x00" || p < to)
			switch {
			case to == "":
				inside = p == from
			case to != "\x00" && to < from: // backwards
				inside = p >= to && p < from
			}
			want = want && (!inside || in(p))
			touched = touched || inside && in(p)
		}
		if to == from {
			return // no key at all
		}
		require.Equal(t, want, all.covers([]byte(from), []byte(to)), "%v covers [%q, %q)", all, from, to)
		if !empty && (to == "" || to == "\x00" || to > from) {
			require.Equal(t, touched, all.touch([]byte(from), []byte(to)), "%v touches [%q, %q)", all, from, to)
		}
	})
}

func TestClientsOfUsers(t *testing.T) {
	a := &User{Name: "a"}
	for sent, want := range map[string]string{"": "a", "a": "a", "a/1": "a/1", "a/": "a/"} {
		got, err := a.Client(sent)
		require.NoError(t, err)
		require.Equal(t, want, got)
	}
	for _, sent := range []string{"b", "ab", "b/a", "anonymous"} {
		_, err := a.Client(sent)
		require.ErrorIs(t, err, fault.ForeignClient, sent)
	}
	odd := &User{Name: "a/b"}
	own, err := odd.Client("")
	require.NoError(t, err)
	require.Equal(t, "a%2Fb", own)
	_, err = odd.Client("a/b")
	require.ErrorIs(t, err, fault.ForeignClient, "it belongs to user a")
	var none *User
	got, err := none.Client("any")
	require.NoError(t, err)
	require.Equal(t, "any", got)
}

func TestStatesAreReadBack(t *testing.T) {
	s := build(t, New(), userAdd("root"), roleAdd("root"), grantRole("root", "root"), userAdd("a"), roleAdd("r"), grantRole("a", "r"),
		grant("r", authpb.Permission_READWRITE, "k", "l"), enable, password("a"), disable, enable,
		&pb.InternalRaftRequest{AuthUserAdd: &pb.AuthUserAddRequest{Name: "cn", Options: &authpb.UserAddOptions{NoPassword: true}}})
	back, complete, err := Load(s.Stored())
	require.NoError(t, err)
	require.True(t, complete)
	same(t, s, back)

	for _, broken := range []Stored{
		{Users: map[string][]byte{"u": []byte("x")}}, {Roles: map[string][]byte{"r": []byte("x")}},
	} {
		_, _, err := Load(broken)
		require.Error(t, err)
	}
}

// A file of etcd's has no numbers of users. They get some that no user has or will have, the
// same on every server, and not those of tokens that were signed before.
func TestUsersOfEtcd(t *testing.T) {
	etcd := Stored{Auth: map[string][]byte{keyEnabled: {1}, keyRevision: {0, 0, 0, 0, 0, 0, 0, 9}}, Users: map[string][]byte{}}
	for _, name := range []string{"b", "a", "c"} {
		etcd.Users[name] = marshal(&authpb.User{Name: []byte(name), Password: []byte("hash"), Roles: []string{"root"}})
	}
	mine := &User{Name: "c", ID: 3, Credential: 3}
	etcd.Users["c"] = mine.encoded()
	s, complete, err := Load(etcd)
	require.NoError(t, err)
	require.False(t, complete)
	require.True(t, s.Enabled)
	require.EqualValues(t, 9, s.Revision)
	require.EqualValues(t, 9, s.Since)
	require.Equal(t, []uint64{2, 4, 3}, []uint64{s.User("a").ID, s.User("b").ID, s.User("c").ID})
	require.True(t, s.User("a").IsRoot())

	stored := s.Stored()
	m := new(authpb.User)
	require.NoError(t, proto.Unmarshal(stored.Users["a"], m), "etcd reads it")
	require.Equal(t, "hash", string(m.GetPassword()))
	again, complete, err := Load(stored)
	require.NoError(t, err)
	require.True(t, complete)
	same(t, s, again)
}

// same compares states as they are stored, and users as they were merged.
func same(t *testing.T, want, got *State) {
	require.Equal(t, want.Stored(), got.Stored())
	require.Equal(t, want.users, got.users)
	require.Equal(t, want.byCredential, got.byCredential)
}

func FuzzLoad(f *testing.F) {
	s := build(f, New(), userAdd("a")).Stored()
	f.Add(s.Users["a"], s.Auth[keyRevision])
	f.Fuzz(func(t *testing.T, user, revision []byte) {
		s, _, err := Load(Stored{Auth: map[string][]byte{keyRevision: revision}, Users: map[string][]byte{"a": user, "b": user}})
		if err != nil {
			return
		}
		back, complete, err := Load(s.Stored())
		require.NoError(t, err)
		if complete {
			require.Equal(t, s.User("a"), back.User("a"))
		}
	})
}

// What is stored of an earlier state and of the changes since is the state.
func TestStoredSince(t *testing.T) {
	earlier := build(t, New(), userAdd("a"), userAdd("b"), userAdd("c"), roleAdd("r"), roleAdd("s"))
	later := build(t, earlier,
		&pb.InternalRaftRequest{AuthUserDelete: &pb.AuthUserDeleteRequest{Name: "b"}},
		&pb.InternalRaftRequest{AuthRoleDelete: &pb.AuthRoleDeleteRequest{Role: "s"}},
		grantRole("a", "r"), userAdd("d"), roleAdd("q"))
	change := later.StoredSince(earlier)
	require.ElementsMatch(t, []string{"a", "b", "d"}, slices.Collect(maps.Keys(change.Users)))
	require.ElementsMatch(t, []string{"q", "s"}, slices.Collect(maps.Keys(change.Roles)))
	got := earlier.Stored()
	got.Auth = change.Auth
	for _, c := range []struct{ into, from map[string][]byte }{{got.Users, change.Users}, {got.Roles, change.Roles}} {
		for name, v := range c.from {
			if c.into[name] = v; v == nil {
				delete(c.into, name)
			}
		}
	}
	require.Equal(t, later.Stored(), got)
	require.Empty(t, later.StoredSince(later).Users)
}

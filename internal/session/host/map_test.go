package host

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.etcd.io/etcd/api/v3/authpb"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"

	stoapb "github.com/stoa-kv/stoa/api/stoa/v1"
	"github.com/stoa-kv/stoa/internal/auth"
	"github.com/stoa-kv/stoa/internal/placement"
)

// A client is told of a small map at once, and of changes of a large one now and then. The
// message is the same for all sessions.
func TestLargeMapsAreToldNowAndThen(t *testing.T) {
	w := newWorld(t, 1, Config{RequestTimeout: time.Second})
	sessions := w.servers[0].sessions
	session := func() *driver {
		d := &driver{}
		d.init(&Session{of: sessions}, &stoapb.OpenSession{PartitionMap: true}, nil)
		return d
	}
	one, other := session(), session()
	rules := 0
	grown := func(n int) *placement.Map {
		var list []placement.Rule
		for i := range rules + n {
			list = append(list, placement.Rule{Key: fmt.Sprintf("/%d/", i)})
		}
		rules += n
		return placement.New(partitions).WithRules(list)
	}
	for range 3 {
		m := grown(1)
		require.Len(t, one.tell(m).Rules, rules)
		require.Nil(t, one.tell(m), "it knows")
	}
	m := grown(largeMap)
	require.Nil(t, one.tell(m))
	w.now = w.now.Add(mapPause)
	told := one.tell(m)
	require.Len(t, told.Rules, rules)
	require.Same(t, told, other.tell(m), "not made again")
	m = grown(1)
	require.Nil(t, one.tell(m))
	w.now = w.now.Add(mapPause)
	require.Len(t, one.tell(m).Rules, rules)
}

// A user is told the rules for keys that it may read or write: others name keys of others,
// and tell of extensions.
func TestUsersAreToldTheirRules(t *testing.T) {
	s := auth.New()
	for _, r := range []*pb.InternalRaftRequest{
		{AuthUserAdd: &pb.AuthUserAddRequest{Name: "root"}},
		{AuthRoleAdd: &pb.AuthRoleAddRequest{Name: "root"}},
		{AuthUserGrantRole: &pb.AuthUserGrantRoleRequest{User: "root", Role: "root"}},
		{AuthUserAdd: &pb.AuthUserAddRequest{Name: "a"}},
		{AuthRoleAdd: &pb.AuthRoleAddRequest{Name: "a"}},
		{AuthRoleGrantPermission: &pb.AuthRoleGrantPermissionRequest{Name: "a", Perm: &authpb.Permission{
			PermType: authpb.Permission_WRITE, Key: []byte("/a/deep/"), RangeEnd: []byte("/a/deep0")}}},
		{AuthUserGrantRole: &pb.AuthUserGrantRoleRequest{User: "a", Role: "a"}},
		{AuthUserAdd: &pb.AuthUserAddRequest{Name: "nobody"}},
		{AuthEnable: &pb.AuthEnableRequest{}},
	} {
		var err error
		s, err = s.Change(r)
		require.NoError(t, err)
	}
	m := placement.New(partitions).WithRules([]placement.Rule{{Key: "/a/", Slot: 1}, {Key: "/a/deep/key", Slot: 2}, {Key: "/a/other", Slot: 3}, {Key: "/b/", Slot: 4}})
	var h hints
	rules := func(u *auth.User) (keys []string) {
		told := h.of(m, u)
		require.Same(t, told, h.of(m, u), "not made again")
		for _, r := range told.Rules {
			keys = append(keys, string(r.Key))
		}
		return keys
	}
	require.Equal(t, []string{"/a/", "/a/deep/key", "/a/other", "/b/"}, rules(nil), "without users")
	require.Equal(t, []string{"/a/", "/a/deep/key"}, rules(s.User("a")))
	require.Equal(t, []string{"/a/", "/a/deep/key", "/a/other", "/b/"}, rules(s.User("root")))
	require.Empty(t, rules(s.User("nobody")))
}

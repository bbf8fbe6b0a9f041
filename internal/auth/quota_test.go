package auth

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.etcd.io/etcd/api/v3/authpb"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"pgregory.net/rapid"

	"github.com/stoa-kv/stoa/internal/fault"
)

func limited(t require.TestingT, s *State, list ...Quota) *State {
	for _, q := range list {
		var err error
		s, err = s.ChangeQuota(QuotaChange{Quota: q})
		require.NoError(t, err)
	}
	return s
}

// enabled is a state in which permissions are enforced, with a role that may write these
// ranges.
func enabled(t require.TestingT, ranges ...[2]string) *State {
	s := New()
	change := func(r *pb.InternalRaftRequest) {
		var err error
		s, err = s.Change(r)
		require.NoError(t, err)
	}
	change(&pb.InternalRaftRequest{AuthUserAdd: &pb.AuthUserAddRequest{Name: Root}})
	change(&pb.InternalRaftRequest{AuthUserGrantRole: &pb.AuthUserGrantRoleRequest{User: Root, Role: Root}})
	change(&pb.InternalRaftRequest{AuthRoleAdd: &pb.AuthRoleAddRequest{Name: "r"}})
	for _, r := range ranges {
		perm := &authpb.Permission{PermType: authpb.Permission_WRITE, Key: []byte(r[0]), RangeEnd: []byte(r[1])}
		change(&pb.InternalRaftRequest{AuthRoleGrantPermission: &pb.AuthRoleGrantPermissionRequest{Name: "r", Perm: perm}})
	}
	change(&pb.InternalRaftRequest{AuthEnable: &pb.AuthEnableRequest{}})
	return s
}

func TestQuotaChanges(t *testing.T) {
	s := enabled(t)
	for _, tc := range []struct {
		change QuotaChange
		want   string
	}{
		{QuotaChange{Quota: Quota{Limits: Limits{Keys: 1}}}, "for a role or for a prefix"},
		{QuotaChange{Quota: Quota{Role: "r", Prefix: "p", Limits: Limits{Keys: 1}}}, "for a role or for a prefix"},
		{QuotaChange{Quota: Quota{Prefix: "p"}}, "needs a limit"},
		{QuotaChange{Quota: Quota{Prefix: "p", Limits: Limits{Keys: -1}}}, "negative"},
		{QuotaChange{Quota: Quota{Prefix: strings.Repeat("p", 1025), Limits: Limits{Keys: 1}}}, "longer than 1024"},
		{QuotaChange{Quota: Quota{Role: Root, Limits: Limits{Keys: 1}}}, "root can't"},
		{QuotaChange{Quota: Quota{Role: "none", Limits: Limits{Keys: 1}}}, "role name not found"},
		{QuotaChange{Quota: Quota{Prefix: "p"}, Remove: true}, `no quota of prefix "p"`},
	} {
		_, err := s.ChangeQuota(tc.change)
		require.ErrorContains(t, err, tc.want)
	}
	one := Quota{Prefix: "p", Limits: Limits{Keys: 1, Bytes: 2}}
	n := limited(t, s, one)
	require.Equal(t, s.Revision+1, n.Revision)
	same, err := n.ChangeQuota(QuotaChange{Quota: one})
	require.NoError(t, err)
	require.Same(t, n, same)
	two := Quota{Role: "r", Limits: Limits{Keys: 7}}
	n = limited(t, n, two)
	require.Equal(t, []Quota{one, two}, n.Quotas())
	loaded, complete, err := Load(n.Stored())
	require.NoError(t, err)
	require.True(t, complete)
	require.Equal(t, n.Quotas(), loaded.Quotas())
	require.Equal(t, n.Index(), loaded.Index())
	n.quotas = nil
	for i := range maxQuotas {
		n.quotas = append(n.quotas, Quota{Prefix: fmt.Sprintf("many%04d/", i), Limits: Limits{Keys: 1}})
	}
	_, err = n.ChangeQuota(QuotaChange{Quota: one})
	require.ErrorIs(t, err, fault.BadQuota)
	require.ErrorContains(t, err, "more than 1000")
}

// Of finds the quotas of a key, and those alone, whatever spans they have.
func TestIndexModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		text := rapid.StringMatching(`[a\xff]{0,2}[ab]{1,2}`)
		ranges := [][2]string{}
		for range rapid.IntRange(0, 3).Draw(t, "ranges") {
			from, to := text.Draw(t, "from"), text.Draw(t, "to")
			switch {
			case rapid.IntRange(0, 3).Draw(t, "open") == 0:
				to = "\x00"
			case to <= from:
				to = ""
			}
			ranges = append(ranges, [2]string{from, to})
		}
		s := enabled(t, ranges...)
		s = limited(t, s, Quota{Role: "r", Limits: Limits{Keys: 1}})
		for range rapid.IntRange(0, 4).Draw(t, "prefixes") {
			s = limited(t, s, Quota{Prefix: text.Draw(t, "prefix"), Limits: Limits{Keys: 1}})
		}
		for range 20 {
			key := text.Draw(t, "key")
			var want []int32
			for i, q := range s.Quotas() {
				has := q.Prefix != "" && strings.HasPrefix(key, q.Prefix)
				if q.Role != "" {
					for _, r := range ranges {
						has = has || r[1] == "" && key == r[0] || r[1] == "\x00" && key >= r[0] || r[1] != "" && r[1] != "\x00" && key >= r[0] && key < r[1]
					}
				}
				if has {
					want = append(want, int32(i))
				}
			}
			got := s.Index().Of([]byte(key))
			require.Equal(t, len(want), len(got), "%q: %v, should be %v of %v", key, got, want, s.Quotas())
			for i := range want {
				require.Equal(t, want[i], got[i])
			}
		}
	})
}

func TestQuotaEncoding(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c := QuotaChange{Quota: Quota{Prefix: rapid.String().Draw(t, "prefix"), Limits: Limits{Keys: rapid.Int64().Draw(t, "keys"), Bytes: rapid.Int64().Draw(t, "bytes")}}, Remove: rapid.Bool().Draw(t, "remove")}
		got, err := DecodeQuotaChange(c.AppendTo(nil))
		require.NoError(t, err)
		require.Equal(t, c, got)
		b := rapid.SliceOf(rapid.Byte()).Draw(t, "bytes")
		_, _ = DecodeQuotaChange(b) // without a panic
	})
}

package auth

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.etcd.io/etcd/api/v3/authpb"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/protobuf/proto"
	"pgregory.net/rapid"

	stoapb "github.com/stoa-kv/stoa/api/stoa/v1"
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
		{QuotaChange{Quota: Quota{Prefix: "p", Limits: Limits{Watchers: -1}}}, "negative"},
		{QuotaChange{Quota: Quota{Prefix: "p", Limits: Limits{Rate: -1}}}, "negative"},
		{QuotaChange{Quota: Quota{Prefix: "p", Limits: Limits{Rate: MaxRate + 1}}}, "can't be above 1000000000"},
		{QuotaChange{Quota: Quota{Prefix: strings.Repeat("p", 1025), Limits: Limits{Keys: 1}}}, "longer than 1024"},
		{QuotaChange{Quota: Quota{Role: Root, Limits: Limits{Keys: 1}}}, "root can't"},
		{QuotaChange{Quota: Quota{Role: "none", Limits: Limits{Keys: 1}}}, "role name not found"},
		{QuotaChange{Quota: Quota{Prefix: "p"}, Remove: true}, `no quota of prefix "p"`},
	} {
		_, err := s.ChangeQuota(tc.change)
		require.ErrorContains(t, err, tc.want)
	}
	one := Quota{Prefix: "p", Limits: Limits{Keys: 1, Bytes: 2, Watchers: 3, Rate: MaxRate}}
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

// The service's message is what the log has; the encoding here reads and writes the same.
func TestQuotaEncodingIsTheMessage(t *testing.T) {
	c := QuotaChange{Quota: Quota{Prefix: "p", Limits: Limits{Keys: 1, Bytes: 2, Watchers: 3, Rate: 4}}, Remove: true}
	m := &stoapb.QuotaChange{Prefix: []byte("p"), MaxKeys: 1, MaxBytes: 2, MaxWatchers: 3, MaxRate: 4, Remove: true}
	b, err := proto.MarshalOptions{Deterministic: true}.Marshal(m)
	require.NoError(t, err)
	require.Equal(t, b, c.AppendTo(nil))
}

// Requests count for the quotas of the user's roles and of the prefixes that they touch and
// are permitted to.
func TestReach(t *testing.T) {
	s := enabled(t, [2]string{"a/", "c/"})
	change := func(r *pb.InternalRaftRequest) {
		var err error
		s, err = s.Change(r)
		require.NoError(t, err)
	}
	for _, name := range []string{"member", "stranger"} {
		change(&pb.InternalRaftRequest{AuthUserAdd: &pb.AuthUserAddRequest{Name: name}})
	}
	change(&pb.InternalRaftRequest{AuthUserGrantRole: &pb.AuthUserGrantRoleRequest{User: "member", Role: "r"}})
	require.Nil(t, limited(t, s, Quota{Prefix: "a/", Limits: Limits{Keys: 1, Watchers: 1}}).Rates())
	require.Nil(t, limited(t, s, Quota{Prefix: "a/", Limits: Limits{Keys: 1, Rate: 1}}).Watches())
	s = limited(t, s,
		Quota{Prefix: "a/", Limits: Limits{Rate: 1}}, Quota{Prefix: "a/x/", Limits: Limits{Rate: 1}},
		Quota{Prefix: "b/", Limits: Limits{Rate: 1}}, Quota{Prefix: "unlimited/", Limits: Limits{Keys: 1}},
		Quota{Role: "r", Limits: Limits{Rate: 1}})
	x := s.Rates()
	names := func(list []int32) (names []string) {
		for _, q := range list {
			names = append(names, x.Quotas[q].String())
		}
		return names
	}
	a, ax, b, r := `prefix "a/"`, `prefix "a/x/"`, `prefix "b/"`, `role "r"`
	put := func(key string) *pb.PutRequest { return &pb.PutRequest{Key: []byte(key)} }
	del := func(key, end string) *pb.DeleteRangeRequest {
		return &pb.DeleteRangeRequest{Key: []byte(key), RangeEnd: []byte(end)}
	}
	op := &pb.RequestOp{Request: &pb.RequestOp_RequestPut{RequestPut: put("b/k")}}
	inner := &pb.TxnRequest{Failure: []*pb.RequestOp{op}}
	txn := &pb.TxnRequest{Success: []*pb.RequestOp{
		{Request: &pb.RequestOp_RequestDeleteRange{RequestDeleteRange: del("a/x/1", "")}},
		{Request: &pb.RequestOp_RequestTxn{RequestTxn: inner}},
	}}
	for _, tc := range []struct {
		req  proto.Message
		want []string
	}{
		{nil, []string{r}},
		{&pb.LeaseGrantRequest{}, []string{r}},
		{put("a/k"), []string{a, r}},
		{put("a/x/k"), []string{a, ax, r}},
		{put("b"), []string{r}},
		{del("a/", "a/x/"), []string{a, r}},
		{del("a/", "b/"), []string{a, ax, r}},
		{del("a/k", "b/0"), []string{a, ax, b, r}},
		{del("a/", "d/"), []string{r}}, // not permitted
		{txn, []string{a, ax, b, r}},
	} {
		require.ElementsMatch(t, tc.want, names(x.Of(s.User("member"), tc.req)), "%v", tc.req)
		require.Empty(t, x.Of(s.User("stranger"), tc.req), "%v", tc.req)
		require.Empty(t, x.Of(s.User(Root), tc.req), "%v", tc.req)
		require.Empty(t, x.Of(nil, tc.req), "%v", tc.req)
	}
	require.ElementsMatch(t, []string{a, ax, r}, names(x.OfPut(s.User("member"), []byte("a/x/k"))))
	require.ElementsMatch(t, []string{r}, names(x.OfRead(s.User("member"), []byte("a/k"), nil)), "it may write, not read")
	require.Empty(t, x.OfPut(s.User("stranger"), []byte("a/x/k")))
}

// The segments of a range are those of its keys.
func TestTouchedModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		text := rapid.StringMatching(`[ab]{1,3}`)
		var keys []spans
		for range rapid.IntRange(0, 4).Draw(t, "prefixes") {
			p := text.Draw(t, "prefix")
			keys = append(keys, spans{{p, prefixEnd(p)}})
		}
		s := newSegments(keys)
		from, to := text.Draw(t, "from"), rapid.SampledFrom([]string{"", "\x00", "ab", "b", "ba", "bbb", "c"}).Draw(t, "to")
		var want []int32
		for i, k := range keys {
			if (spans)(k).touch([]byte(from), []byte(to)) {
				want = append(want, int32(i))
			}
		}
		if len(to) > 0 && to != "\x00" && to <= from {
			return // no such request is carried out
		}
		require.Equal(t, want, s.touched(nil, []byte(from), []byte(to)))
	})
}

func TestQuotaEncoding(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		limits := Limits{
			Keys: rapid.Int64().Draw(t, "keys"), Bytes: rapid.Int64().Draw(t, "bytes"),
			Watchers: rapid.Int64().Draw(t, "watchers"), Rate: rapid.Int64().Draw(t, "rate"),
		}
		c := QuotaChange{Quota: Quota{Prefix: rapid.String().Draw(t, "prefix"), Limits: limits}, Remove: rapid.Bool().Draw(t, "remove")}
		got, err := DecodeQuotaChange(c.AppendTo(nil))
		require.NoError(t, err)
		require.Equal(t, c, got)
		b := rapid.SliceOf(rapid.Byte()).Draw(t, "bytes")
		_, _ = DecodeQuotaChange(b) // without a panic
	})
}

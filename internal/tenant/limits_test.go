package tenant

import (
	"fmt"
	"math/big"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.etcd.io/etcd/api/v3/authpb"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"pgregory.net/rapid"

	"github.com/stoa-kv/stoa/internal/auth"
	"github.com/stoa-kv/stoa/internal/fault"
)

// users is a state in which users a and b have the role and the keys of their name, c those of
// both, and permissions are enforced.
func users(t require.TestingT, quotas ...auth.Quota) *auth.State {
	s := auth.New()
	change := func(r *pb.InternalRaftRequest) {
		var err error
		s, err = s.Change(r)
		require.NoError(t, err)
	}
	for _, name := range []string{auth.Root, "a", "b", "c"} {
		change(&pb.InternalRaftRequest{AuthUserAdd: &pb.AuthUserAddRequest{Name: name}})
	}
	for _, role := range []string{"a", "b"} {
		change(&pb.InternalRaftRequest{AuthRoleAdd: &pb.AuthRoleAddRequest{Name: role}})
		perm := &authpb.Permission{PermType: authpb.READWRITE, Key: []byte(role + "/"), RangeEnd: []byte(role + "0")}
		change(&pb.InternalRaftRequest{AuthRoleGrantPermission: &pb.AuthRoleGrantPermissionRequest{Name: role, Perm: perm}})
	}
	for _, g := range [][2]string{{auth.Root, auth.Root}, {"a", "a"}, {"b", "b"}, {"c", "a"}, {"c", "b"}} {
		change(&pb.InternalRaftRequest{AuthUserGrantRole: &pb.AuthUserGrantRoleRequest{User: g[0], Role: g[1]}})
	}
	change(&pb.InternalRaftRequest{AuthEnable: &pb.AuthEnableRequest{}})
	return with(t, s, quotas...)
}

func with(t require.TestingT, s *auth.State, quotas ...auth.Quota) *auth.State {
	for _, q := range quotas {
		var err error
		s, err = s.ChangeQuota(auth.QuotaChange{Quota: q})
		require.NoError(t, err)
	}
	return s
}

func rate(role string, n int64) auth.Quota {
	return auth.Quota{Role: role, Limits: auth.Limits{Rate: n}}
}

// A bucket is what it is by exact arithmetic.
func TestBucketModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		rates := rapid.OneOf(rapid.Int64Range(1, 5), rapid.Int64Range(1, auth.MaxRate))
		gaps := rapid.OneOf(rapid.Int64Range(0, 100), rapid.Int64Range(0, 3*second), rapid.Int64Range(0, 1<<60))
		var b bucket
		now := rapid.Int64Range(0, 1<<40).Draw(t, "start")
		b.limit(rates.Draw(t, "rate"), now)
		level, one := new(big.Int).SetInt64(b.full()), big.NewInt(second)
		fill := func(elapsed int64) {
			level.Add(level, new(big.Int).Mul(big.NewInt(elapsed), big.NewInt(b.rate)))
			if full := big.NewInt(b.full()); level.Cmp(full) > 0 {
				level.Set(full)
			}
		}
		for range rapid.IntRange(1, 40).Draw(t, "steps") {
			elapsed := gaps.Draw(t, "gap")
			now += elapsed
			fill(elapsed)
			switch rapid.IntRange(0, 5).Draw(t, "step") {
			case 0:
				b.limit(rates.Draw(t, "rate"), now)
				fill(0)
			case 1:
				b.fill(now)
				b.take()
				level.Sub(level, one)
			default:
				b.fill(now)
				require.Equal(t, level.Cmp(one) >= 0, b.has())
				if b.has() {
					b.take()
					level.Sub(level, one)
				}
			}
			require.Equal(t, level.String(), fmt.Sprint(b.level))
			if debt := b.debt(); debt > 0 {
				due := b
				due.fill(now + int64(debt) - 1)
				require.Negative(t, due.level)
				due.fill(now + int64(debt))
				require.GreaterOrEqual(t, due.level, int64(0))
			}
			if now > 1<<61 {
				return
			}
		}
	})
}

func TestRates(t *testing.T) {
	now := int64(0)
	l := New(func() int64 { return now })
	s := users(t, rate("a", 10), auth.Quota{Prefix: "b/x/", Limits: auth.Limits{Rate: 2}})
	require.False(t, l.Rated())
	require.NoError(t, l.Admit(s.User("a"), Request{}), "nothing is in force")
	require.Nil(t, l.Change(s), "no watches are limited")
	require.True(t, l.Rated())
	admitted := func(user string, r Request) (n int) {
		for range 1000 {
			if err := l.Admit(s.User(user), r); err != nil {
				require.ErrorIs(t, err, fault.QuotaExceeded)
				return n
			}
			n++
		}
		return n
	}
	err := func(user string, r Request) string { return fmt.Sprint(l.Admit(s.User(user), r)) }

	require.Equal(t, 10, admitted("a", Request{}), "the burst")
	require.Equal(t, `stoa: quota of role "a" exceeded: 10 requests per second on each server`, err("a", Request{Put: []byte("a/k")}))
	require.Equal(t, 1000, admitted("b", Request{}), "another tenant")
	require.Equal(t, 1000, admitted(auth.Root, Request{}))
	now += int64(300 * time.Millisecond)
	require.Equal(t, 3, admitted("a", Request{Put: []byte("a/k")}))

	// A refused request takes nothing, also not of its other quotas.
	x := Request{Message: &pb.PutRequest{Key: []byte("b/x/k")}}
	require.Equal(t, 0, admitted("c", x))
	require.Equal(t, 2, admitted("b", x))
	require.Equal(t, `stoa: quota of prefix "b/x/" exceeded: 2 requests per second on each server`, err("b", Request{Get: []byte("b/x/k")}))
	require.Equal(t, 0, admitted("a", Request{Put: []byte("b/x/k")}), "it isn't permitted, and counts for its role")
	now += int64(time.Second)
	require.Equal(t, 10, admitted("a", Request{Put: []byte("b/x/k")}))
	require.Equal(t, 2, admitted("b", x), "nothing was used up from outside")

	// A change of the rate isn't a new burst.
	l.Change(with(t, s, rate("a", 100)))
	require.Equal(t, 0, admitted("a", Request{}))
	now += int64(100 * time.Millisecond)
	require.Equal(t, 10, admitted("a", Request{}))
	u := l.Usage(&auth.Quota{Role: "a"})
	require.Equal(t, int64(100), u.Requests)
	require.Positive(t, u.RefusedRequests)
	Repeated(l.Admit(s.User("a"), Request{}))
	require.Equal(t, u.RefusedRequests+2, l.Usage(&auth.Quota{Role: "a"}).RefusedRequests)
	require.Zero(t, l.Usage(&auth.Quota{Role: "b"}))

	l.Change(auth.New())
	require.False(t, l.Rated())
	require.Equal(t, 1000, admitted("a", Request{}))
	var none *Limits
	require.False(t, none.Rated())
	require.NoError(t, none.Admit(nil, Request{}))
}

// Requests that can't be refused count nevertheless, and those that should rather wait wait.
func TestDebt(t *testing.T) {
	now := int64(0)
	l := New(func() int64 { return now })
	s := users(t, rate("a", 10))
	l.Change(s)
	a := s.User("a")
	for range 15 {
		l.Owe(a, Request{Put: []byte("a/k")})
	}
	require.Error(t, l.Admit(a, Request{}))
	wait, err := l.Reserve(a)
	require.NoError(t, err)
	require.Equal(t, 600*time.Millisecond, wait)
	for range 5 {
		wait, err = l.Reserve(a)
		require.NoError(t, err)
	}
	require.Equal(t, 1100*time.Millisecond, wait)
	_, err = l.Reserve(a)
	require.ErrorIs(t, err, fault.QuotaExceeded, "more than a second's worth wait")
	now += int64(wait)
	require.Error(t, l.Admit(a, Request{}), "what was owed has come in, and no more")
	now += int64(100 * time.Millisecond)
	require.NoError(t, l.Admit(a, Request{}))
	wait, err = l.Reserve(s.User("b"))
	require.NoError(t, err)
	require.Zero(t, wait)
}

// Watches are counted for what they belong to, as long as they are open, whatever becomes of
// the quotas meanwhile.
func TestWatchesModel(t *testing.T) {
	type open struct {
		user     string
		key, end string
		quotas   []int32
	}
	rapid.Check(t, func(t *rapid.T) {
		l := New(func() int64 { return 0 })
		limit := rapid.Int64Range(1, 3)
		s := users(t, auth.Quota{Role: "a", Limits: auth.Limits{Watchers: 2}}, auth.Quota{Prefix: "b/x/", Limits: auth.Limits{Watchers: 1}})
		w := l.Change(s)
		var list []open
		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			switch i := rapid.IntRange(0, 9).Draw(t, "step"); {
			case i == 0: // other limits: those that are open count
				s = with(t, s, auth.Quota{Role: "a", Limits: auth.Limits{Watchers: limit.Draw(t, "limit")}}, auth.Quota{Prefix: "b/x/", Limits: auth.Limits{Watchers: limit.Draw(t, "limit")}})
				w = l.Change(s)
				for i := range list {
					var err error
					list[i].quotas, err = w.Enter(s.User(list[i].user).Credential, []byte(list[i].key), []byte(list[i].end), true)
					require.NoError(t, err)
				}
			case i < 4 && len(list) > 0:
				i := rapid.IntRange(0, len(list)-1).Draw(t, "which")
				w.Leave(list[i].quotas)
				list = append(list[:i], list[i+1:]...)
			default:
				o := open{user: rapid.SampledFrom([]string{"a", "b", "c", auth.Root}).Draw(t, "user"), end: "b0"}
				o.key = rapid.SampledFrom([]string{"a/", "b/", "b/x/k", "b/y"}).Draw(t, "key")
				if rapid.Bool().Draw(t, "one") {
					o.end = ""
				}
				n := map[string]int64{}
				for _, other := range list {
					for _, name := range countsFor(s, other.user, other.key, other.end) {
						n[name]++
					}
				}
				refused := false
				for _, q := range s.Quotas() {
					for _, name := range countsFor(s, o.user, o.key, o.end) {
						refused = refused || name == q.String() && n[name] >= q.Watchers
					}
				}
				quotas, err := w.Enter(s.User(o.user).Credential, []byte(o.key), []byte(o.end), false)
				require.Equal(t, refused, err != nil, "%v", err)
				if o.quotas = quotas; err == nil {
					list = append(list, o)
				}
			}
			n := map[string]int64{}
			for _, o := range list {
				for _, name := range countsFor(s, o.user, o.key, o.end) {
					n[name]++
				}
			}
			for _, q := range s.Quotas() {
				require.Equal(t, n[q.String()], l.Usage(&q).Watchers, "%v", &q)
			}
		}
	})
}

// countsFor are the quotas of the model that a watch counts for.
func countsFor(s *auth.State, user, key, end string) (names []string) {
	if user == auth.Root {
		return nil
	}
	if user != "b" {
		names = append(names, `role "a"`)
	}
	touches := key == "b/x/k" || key < "b/x/" && end != ""
	if touches && s.User(user).MayRead([]byte(key), []byte(end)) == nil {
		names = append(names, `prefix "b/x/"`)
	}
	return names
}

// All of it from many goroutines, for the race detector; the rate holds in sum.
func TestConcurrently(t *testing.T) {
	var mu sync.Mutex
	now := int64(0)
	l := New(func() int64 {
		mu.Lock()
		defer mu.Unlock()
		now += 1000
		return now
	})
	s := users(t, rate("a", 1000))
	l.Change(s)
	var admitted [4]int64
	var all sync.WaitGroup
	for i := range admitted {
		all.Go(func() {
			for n := range 5000 {
				if l.Admit(s.User("a"), Request{Put: []byte("a/k")}) == nil {
					admitted[i]++
				}
				if n%1000 == 0 {
					l.Change(s)
					l.Usage(&auth.Quota{Role: "a"})
				}
			}
		})
	}
	all.Wait()
	total := admitted[0] + admitted[1] + admitted[2] + admitted[3]
	require.GreaterOrEqual(t, total, int64(1000))
	require.LessOrEqual(t, total, 1000+now*1000/second+1)
}

func BenchmarkRefusal(b *testing.B) {
	l := New(func() int64 { return 0 })
	s := users(b, rate("a", 1))
	l.Change(s)
	u, r := s.User("a"), Request{Put: []byte("a/k")}
	_ = l.Admit(u, r)
	b.ReportAllocs()
	for b.Loop() {
		if l.Admit(u, r) == nil {
			b.Fatal("admitted")
		}
	}
}

package apply

import (
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/protobuf/proto"
	"pgregory.net/rapid"

	"github.com/stoa-kv/stoa/internal/auth"
	"github.com/stoa-kv/stoa/internal/command"
	"github.com/stoa-kv/stoa/internal/extension"
	"github.com/stoa-kv/stoa/internal/fault"
	"github.com/stoa-kv/stoa/internal/placement"
	"github.com/stoa-kv/stoa/internal/version"
)

// quota sets a quota, as root.
func (g *guarded) quota(q auth.Quota) {
	require.NoError(g.t, g.setQuota(auth.QuotaChange{Quota: q}))
}

func (g *guarded) setQuota(c auth.QuotaChange) (err error) {
	e := &command.Entry{Commands: []command.Command{{Kind: command.Quota, User: auth.Own, Body: c.AppendTo(nil)}}}
	if len(g.Stores) > 1 {
		g.stamp += 10
		e.Stamp = g.stamp
	}
	g.entry(e, g.Placement().All(), func(_ int, r Result) { err = r.Err })
	return err
}

// write executes a request as a server routes it: to the partitions of its keys, and if it
// comes back to all.
func (g *guarded) write(user string, req proto.Message) error {
	parts := g.Parts(req) | g.ForQuotas(req, false)
	err := g.do(g.credential(user), kindOf(req), req, parts).Err
	if errors.Is(err, fault.Moved) {
		err = g.do(g.credential(user), kindOf(req), req, g.Placement().All()).Err
		require.NotErrorIs(g.t, err, fault.Moved)
	}
	return err
}

func (g *guarded) set(key, value string) error {
	return g.write("root", &pb.PutRequest{Key: []byte(key), Value: []byte(value)})
}

func (g *guarded) del(key, end string) {
	require.NoError(g.t, g.write("root", &pb.DeleteRangeRequest{Key: []byte(key), RangeEnd: []byte(end)}))
}

// uses compares what is used of the quota of a prefix, or of a role, and that replicas and
// a recount find the same.
func (g *guarded) uses(name string, keys, bytes int64) {
	g.t.Helper()
	for _, u := range g.QuotasUsed() {
		if u.Prefix == name || u.Role == name {
			require.Equal(g.t, auth.Limits{Keys: keys, Bytes: bytes}, u.Used, name)
		}
	}
	g.recounts()
}

// recounts compares the counts with a recount, and the grants with what they must not exceed.
func (g *guarded) recounts() {
	g.t.Helper()
	tn := g.tenants.Load()
	if tn == nil {
		return
	}
	for q := range tn.index.Quotas {
		var most amount
		for p := range tn.shares {
			s := tn.shares[p][q]
			require.Equal(g.t, g.countQuota(tn.index, q, p), s.used, "partition %d of the quota of %v", p, &tn.index.Quotas[q])
			most = most.plus(amount{max(s.used.keys, s.granted.keys), max(s.used.bytes, s.granted.bytes)})
		}
		used, limits := tn.used(q), tn.index.Quotas[q].Limits
		if len(tn.shares) > 1 {
			require.LessOrEqual(g.t, most.keys, max(used.keys, limits.Keys), "grants of keys of %v", &tn.index.Quotas[q])
			require.LessOrEqual(g.t, most.bytes, max(used.bytes, limits.Bytes), "grants of bytes of %v", &tn.index.Quotas[q])
		}
	}
}

func overQuota(t *testing.T, err error, text string) {
	t.Helper()
	require.ErrorIs(t, err, fault.QuotaExceeded)
	require.ErrorContains(t, err, text)
}

func eachPartitions(t *testing.T, test func(t *testing.T, g *guarded)) {
	for _, partitions := range []int{1, 4} {
		t.Run(fmt.Sprint(partitions), func(t *testing.T) { test(t, guard(t, partitions)) })
	}
}

func TestQuotaOfAPrefix(t *testing.T) {
	eachPartitions(t, func(t *testing.T, g *guarded) {
		require.NoError(t, g.set("/t/x/0", "was here"))
		g.quota(auth.Quota{Prefix: "/t/", Limits: auth.Limits{Keys: 4, Bytes: 100}})
		g.uses("/t/", 1, 14)
		for i := range 3 {
			require.NoError(t, g.set(fmt.Sprintf("/t/%d/a", i), "v")) // in several partitions
		}
		g.uses("/t/", 4, 14+3*7)
		overQuota(t, g.set("/t/new", "v"), `stoa: quota of prefix "/t/" exceeded: 4 keys, of which 4 are used, and the request needs 1 more`)
		require.NoError(t, g.set("/u/new", "v"), "another tenant's")
		require.NoError(t, g.set("/t/0/a", "longer"), "no key more")
		require.NoError(t, g.set("/t/0/a", strings.Repeat("x", 100-14-14-6)))
		g.uses("/t/", 4, 100)
		overQuota(t, g.set("/t/1/a", "ab"), `100 bytes, of which 100 are used, and the request needs 1 more`)
		require.NoError(t, g.set("/t/1/a", "b"), "as large as before")
		g.del("/t/x/0", "")
		g.uses("/t/", 3, 86)
		require.NoError(t, g.set("/t/1/b", "1234567"), "what was deleted is free at once")
		g.uses("/t/", 4, 99)
		require.NoError(t, g.setQuota(auth.QuotaChange{Quota: auth.Quota{Prefix: "/t/"}, Remove: true}))
		require.NoError(t, g.set("/t/new", strings.Repeat("x", 1000)))
		require.Empty(t, g.QuotasUsed())
	})
}

// A transaction is decided as a whole: what it deletes makes room for what it writes, in
// whatever order.
func TestQuotaOfTransactions(t *testing.T) {
	eachPartitions(t, func(t *testing.T, g *guarded) {
		g.quota(auth.Quota{Prefix: "/t/", Limits: auth.Limits{Keys: 3}})
		for i := range 3 {
			require.NoError(t, g.set(fmt.Sprintf("/t/%d/a", i), "v"))
		}
		put := func(key string) *pb.RequestOp {
			return &pb.RequestOp{Request: &pb.RequestOp_RequestPut{RequestPut: &pb.PutRequest{Key: []byte(key)}}}
		}
		del := func(key string) *pb.RequestOp {
			return &pb.RequestOp{Request: &pb.RequestOp_RequestDeleteRange{RequestDeleteRange: &pb.DeleteRangeRequest{Key: []byte(key)}}}
		}
		rev := g.Stores[0].Rev()
		overQuota(t, g.write("root", &pb.TxnRequest{Success: []*pb.RequestOp{del("/t/0/a"), put("/t/5/a"), put("/t/6/a"), put("/u")}}), "3 keys")
		g.uses("/t/", 3, 21)
		require.Zero(t, g.keys("/u"), "nothing of it has happened")
		if len(g.Stores) == 1 {
			require.Equal(t, rev, g.Stores[0].Rev())
		}
		require.NoError(t, g.write("root", &pb.TxnRequest{Success: []*pb.RequestOp{put("/t/5/a"), del("/t/0/a")}}))
		g.uses("/t/", 3, 20)
		// The other branch isn't counted.
		require.NoError(t, g.write("root", &pb.TxnRequest{Success: []*pb.RequestOp{put("/t/5/a")}, Failure: []*pb.RequestOp{put("/t/8/a")}}))
	})
}

func (g *guarded) keys(key string) int {
	n := 0
	for _, s := range g.Stores {
		s.Sizes([]byte(key), append([]byte(key), 0), func([]byte, int) { n++ })
	}
	return n
}

func TestQuotaOfARole(t *testing.T) {
	eachPartitions(t, func(t *testing.T, g *guarded) {
		require.NoError(t, g.set("/a/1", "v"))
		require.NoError(t, g.set("/b/1", "v"))
		g.quota(auth.Quota{Role: "a", Limits: auth.Limits{Keys: 2}})
		g.uses("a", 1, 5)
		require.NoError(t, g.write("a", &pb.PutRequest{Key: []byte("/a/2")}))
		overQuota(t, g.write("a", &pb.PutRequest{Key: []byte("/a/3")}), `quota of role "a"`)
		overQuota(t, g.set("/a/3", "v"), `quota of role "a"`) // whoever writes it
		require.NoError(t, g.write("b", &pb.PutRequest{Key: []byte("/b/2")}))
		// More permissions: more keys are counted, and the limit is below what is used then.
		g.allow("a", "/b/", "/b0")
		g.uses("a", 4, 5+4+5+4)
		overQuota(t, g.write("b", &pb.PutRequest{Key: []byte("/b/3")}), "of which 4 are used")
		require.NoError(t, g.write("b", &pb.PutRequest{Key: []byte("/b/2"), Value: []byte("new")}))
		g.del("/a/1", "")
		overQuota(t, g.write("b", &pb.PutRequest{Key: []byte("/b/3")}), "of which 3 are used")
		g.del("/a/", "/a0")
		g.del("/b/1", "")
		require.NoError(t, g.write("b", &pb.PutRequest{Key: []byte("/b/3")}))
		// The quota ends with the role, and all are off with permissions.
		g.admin(&pb.InternalRaftRequest{AuthDisable: &pb.AuthDisableRequest{}})
		require.Empty(t, g.QuotasUsed())
		require.NoError(t, g.do(0, command.Put, &pb.PutRequest{Key: []byte("/a/9")}, g.Parts(&pb.PutRequest{Key: []byte("/a/9")})).Err)
		g.admin(&pb.InternalRaftRequest{AuthEnable: &pb.AuthEnableRequest{}})
		g.uses("a", 3, 15)
		g.admin(&pb.InternalRaftRequest{AuthRoleDelete: &pb.AuthRoleDeleteRequest{Role: "a"}})
		require.Empty(t, g.Auth().Quotas())
	})
}

// Prefixes may overlap: each counts for itself, and a write has to fit into all.
func TestOverlappingQuotas(t *testing.T) {
	eachPartitions(t, func(t *testing.T, g *guarded) {
		g.quota(auth.Quota{Prefix: "/t/", Limits: auth.Limits{Keys: 3}})
		g.quota(auth.Quota{Prefix: "/t/a/", Limits: auth.Limits{Keys: 2}})
		g.quota(auth.Quota{Prefix: "/t/b", Limits: auth.Limits{Bytes: 20}})
		require.NoError(t, g.set("/t/a/1", "v"))
		require.NoError(t, g.set("/t/a/2", "v"))
		overQuota(t, g.set("/t/a/3", "v"), `prefix "/t/a/"`)
		overQuota(t, g.set("/t/b/1", "0123456789012345"), `prefix "/t/b"`)
		require.NoError(t, g.set("/t/b/1", "v"))
		overQuota(t, g.set("/t/b/2", "v"), `prefix "/t/"`)
		g.uses("/t/", 3, 21)
		g.uses("/t/a/", 2, 14)
		g.uses("/t/b", 1, 7)
	})
}

func TestQuotasAndTheEndOfALease(t *testing.T) {
	eachPartitions(t, func(t *testing.T, g *guarded) {
		g.quota(auth.Quota{Prefix: "/t/", Limits: auth.Limits{Keys: 4}})
		require.NoError(t, g.do(auth.Own, command.LeaseGrant, &pb.LeaseGrantRequest{ID: 7, TTL: 60}, g.Placement().All()).Err)
		for i := range 4 {
			require.NoError(t, g.write("root", &pb.PutRequest{Key: fmt.Appendf(nil, "/t/%d/a", i), Lease: 7}))
		}
		overQuota(t, g.set("/t/x", ""), "4 keys")
		require.NoError(t, g.do(auth.Own, command.LeaseRevoke, &pb.LeaseRevokeRequest{ID: 7}, g.Placement().All()).Err)
		g.uses("/t/", 0, 0)
		require.NoError(t, g.set("/t/x", ""))
	})
}

// An operation handler's writes are refused with the request; those of an event handler are
// lost, as with any of its errors, and the request stands.
func TestQuotasAndExtensions(t *testing.T) {
	eachPartitions(t, func(t *testing.T, g *guarded) {
		g.quota(auth.Quota{Prefix: "/t/", Limits: auth.Limits{Keys: 2}})
		require.NoError(t, g.call("root", &pb.PutRequest{Key: []byte("/em/mirror"), Value: []byte(`return {
  scope = { "/in/", "/t/" },
  operations = { { op = "put", prefix = "/do/" } },
  events = { { event = "created", prefix = "/in/" }, { event = "expired", prefix = "/in/" } },
  put = function(r) put("/t" .. r.key, "v") return "well" end,
  event = function(e) put("/t" .. e.key, "v") end,
}`)}))
		g.quota(auth.Quota{Prefix: "/em/", Limits: auth.Limits{Keys: 1}})
		g.uses("/em/", 0, 0)
		require.NoError(t, g.call("root", &pb.PutRequest{Key: []byte("/in/1")}))
		require.NoError(t, g.call("root", &pb.PutRequest{Key: []byte("/do/1")}))
		g.uses("/t/", 2, 16)
		overQuota(t, g.call("root", &pb.PutRequest{Key: []byte("/do/2")}), "2 keys")
		require.NoError(t, g.call("root", &pb.PutRequest{Key: []byte("/in/2")}), "the handler alone fails")
		g.uses("/t/", 2, 16)
		require.Equal(t, 1, g.keys("/in/2"))
		// The end of a lease can't be refused.
		require.NoError(t, g.do(auth.Own, command.LeaseGrant, &pb.LeaseGrantRequest{ID: 7, TTL: 60}, g.Placement().All()).Err)
		require.NoError(t, g.call("root", &pb.PutRequest{Key: []byte("/in/3"), Lease: 7}))
		require.NoError(t, g.do(auth.Own, command.LeaseRevoke, &pb.LeaseRevokeRequest{ID: 7}, g.Placement().All()).Err)
		require.Zero(t, g.keys("/in/3"))
		g.uses("/t/", 2, 16)
	})
}

// A call that has to come back, to all partitions, since it may not fit into a quota, has no effect until it does: its extension has failed as often
// as before.
func TestACallThatComesBackHasNoEffect(t *testing.T) {
	for level, want := range map[version.Level]int{levelOfEffectlessMoves - 1: 0, levelOfEffectlessMoves: 1} {
		g := guard(t, 4)
		g.at(level)
		require.NoError(t, g.call("root", &pb.PutRequest{Key: []byte("/em/e"), Value: []byte(`return {
  scope = { "/t/" },
  operations = { { op = "put", prefix = "/do/" } },
  put = function(r) while r.value == "loop" do end put("/t" .. r.key, "v") end,
}`)}))
		g.quota(auth.Quota{Prefix: "/t/", Limits: auth.Limits{Keys: 1}})
		require.Error(t, g.call("root", &pb.PutRequest{Key: []byte("/do/1"), Value: []byte("loop")}))
		require.Equal(t, 1, g.failures("e"))
		put := &pb.PutRequest{Key: []byte("/do/1")}
		p := g.Plan(command.Put, put, func() (string, int64) { return "root", 0 })
		require.ErrorIs(t, g.callIn(p, "root", put), fault.Moved)
		require.Equal(t, want, g.failures("e"), level)
		p.Parts = g.Placement().All()
		require.NoError(t, g.callIn(p, "root", put))
		g.uses("/t/", 1, 8)
	}
}

// A call that a quota refuses ends the count of failures, as one does that the script itself ends with an error: its extension has kept
// to its limits. A request that is refused with what event handlers have done for it doesn't: nothing of it has happened.
func TestRefusedByAQuotaIsNoFailure(t *testing.T) {
	eachPartitions(t, func(t *testing.T, g *guarded) {
		require.NoError(t, g.call("root", &pb.PutRequest{Key: []byte("/em/e"), Value: []byte(`return {
  scope = { "/t/", "/do/" },
  operations = { { op = "put", prefix = "/do/" } },
  events = { { event = "created", prefix = "/t/in/" } },
  put = function(r) while r.value == "loop" do end put("/t" .. r.key, "v") end,
  event = function(e) put("/do/seen", "v") end,
}`)}))
		g.quota(auth.Quota{Prefix: "/t/", Limits: auth.Limits{Keys: 1}})
		require.NoError(t, g.call("root", &pb.PutRequest{Key: []byte("/do/1")}))
		for n := range 2 {
			require.ErrorIs(t, g.call("root", &pb.PutRequest{Key: []byte("/do/1"), Value: []byte("loop")}), fault.ExtensionLimit)
			require.Equal(t, n+1, g.failures("e"))
		}
		overQuota(t, g.call("root", &pb.PutRequest{Key: []byte("/t/in/1")}), "1 keys")
		require.Equal(t, 2, g.failures("e"))
		overQuota(t, g.call("root", &pb.PutRequest{Key: []byte("/do/2")}), "1 keys")
		require.Zero(t, g.failures("e"))
		g.uses("/t/", 1, 8)
	})
}

// failures is how many an extension has had in a row.
func (g *guarded) failures(name string) (n int) {
	for _, s := range g.Stores {
		if kv := s.Get(extension.StateKey(name)); kv.Exists() {
			n = extension.ParseStanding(kv.Value()).Failures
		}
	}
	return n
}

// call executes a put of a user as a call, if it concerns extensions.
func (g *guarded) call(user string, r *pb.PutRequest) error { return g.callWith(user, 0, r) }

// callWith is call by a client with a lease.
func (g *guarded) callWith(user string, lease int64, r *pb.PutRequest) error {
	p := g.Plan(command.Put, r, func() (string, int64) { return user, lease })
	for {
		err := g.callIn(p, user, r)
		if !errors.Is(err, fault.Moved) || p.Parts == g.Placement().All() {
			return err
		}
		p.Parts = g.Placement().All()
	}
}

// callIn executes a put of a user once, as it was planned.
func (g *guarded) callIn(p Plan, user string, r *pb.PutRequest) error {
	body, err := proto.Marshal(r)
	require.NoError(g.t, err)
	c := p.Command(command.Put, body)
	c.User = g.credential(user)
	e := &command.Entry{Commands: []command.Command{c}}
	if len(g.Stores) > 1 {
		g.stamp += 10
		e.Stamp = g.stamp
	}
	g.entry(e, p.Parts, func(_ int, r Result) { err = r.Err })
	return err
}

// restart is a machine over the same stores, with what the file would have.
func (g *guarded) restart() {
	users, _, err := auth.Load(g.Auth().Stored())
	require.NoError(g.t, err)
	before, grants := g.QuotasUsed(), g.CutGrants()
	members, configs, placed := g.Membership(), g.Configurations(), g.Placement()
	g.Machine = New(Config{Stores: g.Stores, Leases: g.Leases, Placement: placed, Sink: g.rig, Observer: g.rig})
	g.LoadMembership(members, configs)
	g.LoadAuth(users)
	_, err = g.LoadGrants(AddGrants(nil, nil, grants))
	require.NoError(g.t, err)
	require.NoError(g.t, g.LoadExtensions())
	require.Equal(g.t, before, g.QuotasUsed())
	require.Equal(g.t, grants, g.CutGrants())
}

// A file without grants, as after a restore to another number of partitions, grants nothing.
func TestGrantsOfAnotherFile(t *testing.T) {
	g := guard(t, 4)
	g.quota(auth.Quota{Prefix: "/t/", Limits: auth.Limits{Keys: 8}})
	other := guard(t, 3)
	other.quota(auth.Quota{Prefix: "/t/", Limits: auth.Limits{Keys: 8}})
	for _, blobs := range []map[string][]byte{nil, AddGrants(nil, nil, other.CutGrants())} {
		_, err := g.LoadGrants(blobs)
		require.NoError(t, err)
		require.Equal(t, auth.Limits{}, g.QuotasUsed()[0].Granted[1])
		require.NoError(t, g.set("/t/1", "v"))
		g.uses("/t/", 1, 5)
		g.del("/t/1", "")
	}
	_, err := g.LoadGrants(map[string][]byte{grantsBlob: {0xff}})
	require.Error(t, err)
}

// Random writes, leases, moves of keys, restarts and changes of quotas, on two replicas that
// get the same log: the counts are those of the keys, the limits are never exceeded, a
// request is refused only if it would exceed one, and the replicas agree.
func TestQuotasModel(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		partitions := rapid.SampledFrom([]int{1, 2, 4}).Draw(rt, "partitions")
		m := &quotaModel{rt: rt, g: guard(t, partitions), twin: guard(t, partitions), keys: map[string]int{}, leased: map[string]bool{}}
		m.both(func(g *guarded) {
			g.quiet = true
			_ = g.do(auth.Own, command.LeaseGrant, &pb.LeaseGrantRequest{ID: 1, TTL: 60}, g.Placement().All())
		})
		for range rapid.IntRange(1, 60).Draw(rt, "steps") {
			m.step()
			m.check()
		}
	})
}

// A partition may show a put that has filled the quota while another one doesn't show the
// deletion before it: then more seems to be used than ever was.
func TestOverQuotaIsDecidedAtOneRevision(t *testing.T) {
	g := guard(t, 4)
	g.quota(auth.Quota{Prefix: "/t/", Limits: auth.Limits{Keys: 2}})
	require.NoError(t, g.set("/t/a", "v"))
	require.NoError(t, g.set("/t/b", "v"))
	put := &pb.PutRequest{Key: []byte("/t/c"), Value: []byte("v")}
	shown := g.newest()
	g.Visible = func(int) int64 { return shown }
	root := g.credential("root")
	overQuota(t, g.OverQuota(put, root), `quota of prefix "/t/" exceeded: 2 keys, of which 2 are used, and the request needs 1 more`)
	g.del("/t/a", "")
	require.NoError(t, g.OverQuota(put, root), "there is room")
	require.NoError(t, g.set("/t/d", "v"))
	require.NoError(t, g.OverQuota(put, root), "not all partitions show what has changed")
	require.NoError(t, g.set("/u", "v"))
	shown = g.newest() - 1
	overQuota(t, g.OverQuota(put, root), "2 are used") // what isn't shown isn't the quota's

	require.NoError(t, g.OverQuota(&pb.PutRequest{Key: []byte("/t/d"), Value: []byte("longer")}, root), "it needs no more keys")
	require.NoError(t, g.OverQuota(put, g.credential("a")), "it isn't permitted")
	require.NoError(t, g.OverQuota(&pb.PutRequest{Key: []byte("/t/c"), Lease: 404}, root), "there is no such lease")
	require.NoError(t, g.OverQuota(&pb.PutRequest{Key: []byte("/u")}, root), "it has no quota")
	alarm := &pb.AlarmRequest{Action: pb.AlarmRequest_ACTIVATE, MemberID: 1, Alarm: pb.AlarmType_NOSPACE}
	require.NoError(t, g.do(auth.Own, command.Alarm, alarm, g.Placement().All()).Err)
	require.NoError(t, g.OverQuota(put, root), "it is refused for another reason")
}

type quotaModel struct {
	rt      *rapid.T
	g, twin *guarded
	keys    map[string]int // their sizes
	leased  map[string]bool
	quotas  []auth.Quota
}

func (m *quotaModel) both(do func(g *guarded)) {
	do(m.g)
	do(m.twin)
}

func (m *quotaModel) key() string {
	return rapid.SampledFrom([]string{"/t/a/1", "/t/a/2", "/t/b/1", "/t/c/1", "/t/1", "/t/2", "/a/1", "/a/b/2", "/u", "t"}).Draw(m.rt, "key")
}

func (m *quotaModel) step() {
	switch rapid.IntRange(0, 9).Draw(m.rt, "kind") {
	case 0, 1, 2, 3:
		k, v := m.key(), rapid.StringN(0, 12, 12).Draw(m.rt, "value")
		lease := rapid.Int64Range(0, 1).Draw(m.rt, "lease")
		m.decide(&pb.PutRequest{Key: []byte(k), Value: []byte(v), Lease: lease}, map[string]int{k: len(k) + len(v)}, lease)
	case 4:
		k := m.key()
		m.decide(&pb.DeleteRangeRequest{Key: []byte(k)}, map[string]int{k: -1}, 0)
	case 5, 6:
		m.txn()
	case 7:
		end := map[string]int{}
		for k := range m.leased {
			end[k] = -1
		}
		m.both(func(g *guarded) {
			require.NoError(m.rt, g.do(auth.Own, command.LeaseRevoke, &pb.LeaseRevokeRequest{ID: 1}, g.Placement().All()).Err)
			require.NoError(m.rt, g.do(auth.Own, command.LeaseGrant, &pb.LeaseGrantRequest{ID: 1, TTL: 60}, g.Placement().All()).Err)
		})
		m.take(end, 0)
	case 8:
		m.change()
	case 9:
		m.g.restart() // one of the two
	}
	if len(m.g.Stores) > 1 && rapid.IntRange(0, 4).Draw(m.rt, "moves") == 0 {
		var rules []placement.Rule
		for _, k := range rapid.SliceOfNDistinct(rapid.SampledFrom([]string{"/t/", "/t/a/", "/a/"}), 0, 3, rapid.ID).Draw(m.rt, "rules") {
			rules = append(rules, placement.Rule{Key: k, Slot: rapid.IntRange(0, placement.Slots-1).Draw(m.rt, "slot")})
		}
		m.both(func(g *guarded) {
			g.stamp += 10
			g.place(g.stamp, nil, false, rules, nil)
		})
	}
}

func (m *quotaModel) txn() {
	req, sizes := &pb.TxnRequest{}, map[string]int{}
	for range rapid.IntRange(1, 4).Draw(m.rt, "ops") {
		k := m.key()
		if _, twice := sizes[k]; twice {
			continue
		}
		if rapid.Bool().Draw(m.rt, "put") {
			v := rapid.StringN(0, 12, 12).Draw(m.rt, "value")
			req.Success = append(req.Success, &pb.RequestOp{Request: &pb.RequestOp_RequestPut{RequestPut: &pb.PutRequest{Key: []byte(k), Value: []byte(v)}}})
			sizes[k] = len(k) + len(v)
		} else {
			req.Success = append(req.Success, &pb.RequestOp{Request: &pb.RequestOp_RequestDeleteRange{RequestDeleteRange: &pb.DeleteRangeRequest{Key: []byte(k)}}})
			sizes[k] = -1
		}
	}
	m.decide(req, sizes, 0)
}

func (m *quotaModel) change() {
	q := auth.Quota{Prefix: rapid.SampledFrom([]string{"/t/", "/t/a/", "/t", "/"}).Draw(m.rt, "prefix")}
	if rapid.IntRange(0, 3).Draw(m.rt, "role") == 0 {
		q = auth.Quota{Role: "a"}
	}
	q.Keys, q.Bytes = rapid.Int64Range(0, 6).Draw(m.rt, "keys"), rapid.Int64Range(0, 70).Draw(m.rt, "bytes")
	c := auth.QuotaChange{Quota: q, Remove: rapid.IntRange(0, 3).Draw(m.rt, "remove") == 0}
	m.both(func(g *guarded) { _ = g.setQuota(c) })
	m.quotas = m.g.Auth().Quotas()
}

// allowed decides by the model's keys.
func (m *quotaModel) allowed(sizes map[string]int) bool {
	for i := range m.quotas {
		q := &m.quotas[i]
		before, after := m.used(q, nil), m.used(q, sizes)
		if q.Keys > 0 && after.Keys > before.Keys && after.Keys > q.Keys || q.Bytes > 0 && after.Bytes > before.Bytes && after.Bytes > q.Bytes {
			return false
		}
	}
	return true
}

func (m *quotaModel) used(q *auth.Quota, with map[string]int) (sum auth.Limits) {
	prefix := q.Prefix
	if q.Role == "a" {
		prefix = "/a/"
	}
	add := func(k string, size int) {
		if strings.HasPrefix(k, prefix) && size >= 0 {
			sum.Keys++
			sum.Bytes += int64(size)
		}
	}
	for k, size := range m.keys {
		if _, changed := with[k]; !changed {
			add(k, size)
		}
	}
	for k, size := range with {
		add(k, size)
	}
	return sum
}

func (m *quotaModel) decide(req proto.Message, sizes map[string]int, lease int64) {
	want := m.allowed(sizes)
	m.both(func(g *guarded) {
		early := error(nil)
		if put, ok := req.(*pb.PutRequest); ok {
			g.Visible = func(int) int64 { return math.MaxInt64 } // nothing else is on its way
			early = g.OverQuota(put, g.credential("root"))
			require.Equal(m.rt, !want && lease == 0 && g.Placement().Transit() == nil, early != nil, "%v", early)
		}
		err := g.write("root", req)
		if early != nil {
			require.EqualError(m.rt, err, early.Error(), "the log has the same answer")
		}
		if want {
			require.NoError(m.rt, err)
		} else {
			require.ErrorIs(m.rt, err, fault.QuotaExceeded)
		}
	})
	if want {
		m.take(sizes, lease)
	}
}

func (m *quotaModel) take(sizes map[string]int, lease int64) {
	for k, size := range sizes {
		delete(m.leased, k)
		if size < 0 {
			delete(m.keys, k)
			continue
		}
		m.keys[k] = size
		if lease != 0 {
			m.leased[k] = true
		}
	}
}

func (m *quotaModel) check() {
	m.g.recounts()
	require.Equal(m.rt, m.g.QuotasUsed(), m.twin.QuotasUsed())
	require.Equal(m.rt, m.g.CutGrants(), m.twin.CutGrants())
	for _, u := range m.g.QuotasUsed() {
		require.Equal(m.rt, m.used(&u.Quota, nil), u.Used, "%v", &u.Quota)
	}
}

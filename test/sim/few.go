package sim

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"google.golang.org/protobuf/proto"

	"go.etcd.io/etcd/api/v3/authpb"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"

	"github.com/stoa-kv/stoa/internal/apply"
	"github.com/stoa-kv/stoa/internal/auth"
	"github.com/stoa-kv/stoa/internal/extension"
)

// In some of the runs that have some of all, there are users with few rights: to single keys, halves of directories and ranges
// over the border of two, to read, to write or both, which overlap. The rights change while the users make requests that
// mostly need some that they lack. What each request needs, and had, is in few_rights.go.

// hasFew draws whether a run has such users, from a source of its own: so other runs are what they would be without it. The users of
// an earlier version aren't promised all that is checked.
func (o *Options) hasFew(f *features) bool {
	few := rand.New(rand.NewPCG(o.Seed, 0xfe3)).IntN(2) == 0 && f.users && !o.Versions && !o.Force && o.script == nil
	f.versions = f.versions && !few
	return few
}

// steward is an administrator who changes the rights of these users.
type steward struct {
	c        *cluster
	k        *keeper
	users    []*fewUser
	watchers []*fewWatcher
	rights   []*rights          // in the order of the log
	owners   map[int64]*fewUser // of leases that users with few rights were granted
}

// fewUser is a user with few rights. It has a role of its own, and at times one that others have, too.
type fewUser struct {
	name           string
	id, credential uint64
}

func newSteward(c *cluster) *steward {
	return &steward{c: c, k: c.keeper, owners: map[int64]*fewUser{}, rights: []*rights{{revision: auth.New().Revision, until: never, free: true}}}
}

func (u *fewUser) role() string { return u.name + "s" }

const fewUsers, sharedRole = 3, "shared"

func fewName(i int) string { return fmt.Sprintf("few%d", i) }

// begin adds the users, each of whom makes requests as soon as it is there, and changes their rights for as long as there are
// troubles.
func (s *steward) begin() {
	for i := range fewUsers {
		u := &fewUser{name: fewName(i)}
		begins := []*pb.InternalRaftRequest{
			{AuthUserAdd: &pb.AuthUserAddRequest{Name: u.name}},
			{AuthRoleAdd: &pb.AuthRoleAddRequest{Name: u.role()}},
			{AuthUserGrantRole: &pb.AuthUserGrantRoleRequest{User: u.name, Role: u.role()}},
			s.grant(u.role()), s.grant(u.role()), s.grant(u.role()), s.grant(u.role()), s.grant(u.role()),
		}
		if s.c.has.reacts {
			begins = append(begins, s.toRegister(u.role())...)
		}
		s.k.all(begins, true, func() { s.joins(u) })
	}
	s.k.all([]*pb.InternalRaftRequest{{AuthRoleAdd: &pb.AuthRoleAddRequest{Name: sharedRole}}, s.grant(sharedRole)}, true, func() {})
}

// joins has a user make requests from now on.
func (s *steward) joins(u *fewUser) {
	known := s.c.user(u.name)
	if known == nil {
		return
	}
	u.id, u.credential = known.ID, known.Credential
	w := &fewWatcher{c: s.c, id: 500 + len(s.users)}
	s.users, s.watchers = append(s.users, u), append(s.watchers, w)
	w.live()
	s.change()
	if len(s.users) == 1 {
		s.intrude()
	}
}

// change changes a right, and another one after a while.
func (s *steward) change() {
	c := s.c
	if c.quiet {
		return
	}
	again := func() {
		c.loop.after(c.loop.between(5*time.Millisecond, 300*time.Millisecond), "steward", 0, 0, s.change)
	}
	if c.has.leaves && c.loop.chance(6) {
		s.replace(c.loop.rng.IntN(len(s.users)), again)
		return
	}
	s.k.all([]*pb.InternalRaftRequest{s.draw()}, false, again, again)
}

func (s *steward) draw() *pb.InternalRaftRequest {
	l := s.c.loop
	u := pick(l, s.users)
	role := u.role()
	if l.chance(6) {
		role = sharedRole
	}
	if s.c.has.reacts && l.chance(2) {
		return s.drawToRegister(u.role())
	}
	switch n := l.rng.IntN(10); {
	case n == 0:
		return &pb.InternalRaftRequest{AuthUserGrantRole: &pb.AuthUserGrantRoleRequest{User: u.name, Role: sharedRole}}
	case n == 1:
		return &pb.InternalRaftRequest{AuthUserRevokeRole: &pb.AuthUserRevokeRoleRequest{Name: u.name, Role: sharedRole}}
	case n < 5:
		if held := s.held(role); len(held) > 0 {
			p := pick(l, held)
			return &pb.InternalRaftRequest{AuthRoleRevokePermission: &pb.AuthRoleRevokePermissionRequest{Role: role, Key: p.Key, RangeEnd: p.RangeEnd}}
		}
	}
	return s.grant(role)
}

// held are the permissions of a role, as some server knows them.
func (s *steward) held(role string) []*authpb.Permission {
	for _, sv := range s.c.servers {
		if sv.life != nil {
			if r := sv.life.core.machine.Auth().Role(role); r != nil {
				return r.Permissions
			}
		}
	}
	return nil
}

func (s *steward) grant(role string) *pb.InternalRaftRequest {
	l := s.c.loop
	spans := s.c.spans()
	if s.c.has.extensions && l.chance(2) {
		spans = s.c.extensionSpans()
	}
	if s.c.has.reacts && l.chance(2) {
		spans = eventSpans()
	}
	span := pick(l, spans)
	kind := pick(l, []authpb.Permission_Type{authpb.Permission_READ, authpb.Permission_WRITE, authpb.Permission_READWRITE, authpb.Permission_READWRITE})
	return &pb.InternalRaftRequest{AuthRoleGrantPermission: &pb.AuthRoleGrantPermissionRequest{
		Name: role, Perm: &authpb.Permission{PermType: kind, Key: span[0], RangeEnd: span[1]},
	}}
}

// spans are keys and ranges to which users have rights: such that two of them may cover what neither does.
func (c *cluster) spans() (all [][2][]byte) {
	add := func(key, end string) { all = append(all, [2][]byte{[]byte(key), []byte(end)}) }
	for _, key := range c.keys.single {
		add(key, "")
	}
	for _, p := range c.keys.pairs {
		add(p[0], "")
		add(p[1], "")
		add(p[0], p[1]+"\x00")
	}
	for _, dir := range c.keys.dirs {
		_, end := prefix(dir)
		add(dir, dir+"k1")
		add(dir, dir+"k2")
		add(dir+"k1", string(end))
		add(dir+"k1", dir+"k1\x00")
		add(dir, string(end))
	}
	add(c.keys.dirs[0]+"k1", c.keys.dirs[1]+"k1")
	add(pairsFrom, pairsTo)
	add(pairsFrom, "pair-1")
	add("pair-1", pairsTo)
	add("/data", "/data2")
	add("/data1", "/ready0")
	add("s", "\x00")
	add("\x00", "\x00")
	return all
}

// overBorder draws a range that mostly begins or ends within a directory.
func (c *cluster) overBorder() (key, end []byte) {
	from := c.loop.rng.IntN(6)
	to := from + 1 + c.loop.rng.IntN(3)
	if to >= 6 {
		_, end = prefix(c.keys.dirs[1])
		return []byte(c.keys.single[from]), end
	}
	return []byte(c.keys.single[from]), []byte(c.keys.single[to])
}

// fewWorkload are requests that need rights which their users may have in part.
var fewWorkload = []weighted{
	{6, (*cluster).putKeeping},
	{6, func(c *cluster) request {
		return strictly(&pb.PutRequest{Key: c.single(), Value: c.value(), PrevKv: true})
	}},
	{6, func(c *cluster) request {
		key, end := c.overBorder()
		return c.either(&pb.RangeRequest{Key: key, RangeEnd: end})
	}},
	{3, func(c *cluster) request {
		key, end := c.overBorder()
		return strictly(&pb.DeleteRangeRequest{Key: key, RangeEnd: end, PrevKv: c.loop.chance(2)})
	}},
	{5, (*cluster).fewTxn},
	{8, (*cluster).putOnLease},
	{3, (*cluster).grant},
	{3, func(c *cluster) request {
		return c.onLease(func(id int64) request { return strictly(&pb.LeaseRevokeRequest{ID: id}) })
	}},
	{3, func(c *cluster) request {
		return c.onLease(func(id int64) request { return request{message: &pb.LeaseKeepAliveRequest{ID: id}} })
	}},
	{1, (*cluster).compact},
	{2, (*cluster).meddleWithSession},
}

// fewTxn is one of which a part that isn't taken, or the innermost, may be what isn't allowed.
func (c *cluster) fewTxn() request {
	a, b := c.single(), c.single()
	inner := &pb.TxnRequest{Success: []*pb.RequestOp{get(string(b))}}
	switch c.loop.rng.IntN(4) {
	case 0:
		inner.Failure = []*pb.RequestOp{del(string(b))}
	case 1:
		inner.Compare = []*pb.Compare{{Key: b, Target: pb.Compare_VERSION, Result: pb.Compare_GREATER, TargetUnion: &pb.Compare_Version{}}}
		inner.Success = []*pb.RequestOp{put(string(b), c.value(), 0)}
	case 2:
		inner.Compare = []*pb.Compare{{Key: b, Target: pb.Compare_MOD, Result: pb.Compare_LESS, TargetUnion: &pb.Compare_ModRevision{ModRevision: c.recent()}}}
	}
	nested := &pb.RequestOp{Request: &pb.RequestOp_RequestTxn{RequestTxn: inner}}
	r := &pb.TxnRequest{Compare: []*pb.Compare{{Key: a, Target: pb.Compare_CREATE, Result: pb.Compare_NOT_EQUAL, TargetUnion: &pb.Compare_CreateRevision{}}}}
	switch c.loop.rng.IntN(3) {
	case 0:
		r.Success, r.Failure = []*pb.RequestOp{get(string(a))}, []*pb.RequestOp{nested}
	case 1:
		r.Success = []*pb.RequestOp{nested, get(string(a))}
	default:
		if string(a) == string(b) {
			r.Compare = nil
		}
		r.Success, r.Failure = []*pb.RequestOp{nested}, []*pb.RequestOp{get(string(a))}
	}
	return strictly(r)
}

// onLease draws a request about one of the leases granted last, on which some keys are.
func (c *cluster) onLease(r func(id int64) request) request {
	ids := c.leases()
	if len(ids) == 0 {
		return c.grant()
	}
	return r(pick(c.loop, ids[:min(len(ids), 3)]))
}

func (c *cluster) putOnLease() request {
	return c.onLease(func(id int64) request {
		return strictly(&pb.PutRequest{Key: c.single(), Value: c.value(), Lease: id, PrevKv: c.loop.chance(3)})
	})
}

// meddleWithSession is what only the user of a session may do.
func (c *cluster) meddleWithSession() request {
	s := c.aSession()
	switch {
	case s == nil:
		return c.grant()
	case c.loop.chance(2):
		return strictly(&pb.LeaseRevokeRequest{ID: s.id})
	case c.loop.chance(2):
		return request{message: &pb.LeaseKeepAliveRequest{ID: s.id}}
	}
	return strictly(&pb.PutRequest{Key: c.single(), Value: c.value(), Lease: s.id})
}

// aSession is one that was opened, or nil.
func (c *cluster) aSession() *sessionPast {
	if len(c.sessions) == 0 {
		return nil
	}
	if s := pick(c.loop, c.sessions).present; s.granted {
		return s
	}
	return nil
}

// isFew draws as whom a client makes a request, and mostly another request than it would make.
func (s *steward) isFew(r *request) {
	if s == nil || len(s.users) == 0 || r.term != nil || r.who != "" || !s.c.loop.chance(2) {
		return
	}
	c := s.c
	u := pick(c.loop, s.users)
	switch {
	case c.has.extensions && c.prepared == 2*len(c.names()) && c.loop.chance(3):
		*r = c.fewExtended(u)
	case c.loop.chance(2):
		drawn := weighed(c.loop, fewWorkload, func(w weighted) int { return w.weight }).make(c)
		id := leaseOf(drawn.message)
		if id < sessionLeases || s.owners[id] != u { // a session ends at its user's will
			*r = drawn
		}
		if id != 0 && id < sessionLeases && c.loop.chance(3) { // with all rights: leases have keys that the users may not write
			return
		}
	}
	if r.who != "" || !changesExtensions(r.message) {
		r.few = u
	}
}

// changesExtensions reports whether a request has to do with the keys of the extension manager.
func changesExtensions(m proto.Message) bool {
	switch r := m.(type) {
	case *pb.PutRequest:
		return extension.Touches(r.Key, nil)
	case *pb.DeleteRangeRequest:
		return extension.Touches(r.Key, r.RangeEnd)
	}
	return false
}

// intrude takes up sessions of others.
func (s *steward) intrude() {
	c := s.c
	if c.quiet {
		return
	}
	c.loop.after(c.loop.between(20*time.Millisecond, 300*time.Millisecond), "intruder", 0, 0, s.intrude)
	session, sv, u := c.aSession(), pick(c.loop, c.servers), pick(c.loop, s.users)
	if session == nil || session.few == u || sv.life == nil {
		return
	}
	if c.has.leaves && c.loop.chance(2) {
		s.forge(session, sv.life, u)
		return
	}
	sv.life.keepAlive(&op{client: 600}, session.id, apply.Renewer{User: u.credential, Session: true}, func(_ proto.Message, err error) {
		c.stats.Intrusions++
		if err == nil {
			c.fail("users", "%s takes up session %d, which is another's", u.name, session.id)
		}
	})
}

// newSession draws whether a session is that of a user with few rights.
func (s *steward) newSession(p *sessionPast) {
	if s != nil && len(s.users) > 0 && !s.c.quiet && p.term == nil && p.who == "" && s.c.loop.chance(2) {
		p.few = pick(s.c.loop, s.users)
		p.grant.few = p.few
	}
}

// knows is the revision of the rights that a process knows.
func (l *life) knows() uint64 { return l.core.machine.Auth().Revision }

// permits is the revision of the newest rights by which a process has permitted watches: a snapshot takes its state back, and not these.
func (l *life) permits() uint64 { return slices.Max(append([]uint64{l.knows()}, l.had...)) }

// leaseOf is the lease that a request is about, or attaches a key to.
func leaseOf(m proto.Message) int64 {
	switch r := m.(type) {
	case *pb.PutRequest:
		return r.Lease
	case *pb.LeaseRevokeRequest:
		return r.ID
	case *pb.LeaseKeepAliveRequest:
		return r.ID
	}
	return 0
}

// owns notes who is granted a lease, if it has few rights.
func (s *steward) owns(o *op) {
	if r, is := o.req.(*pb.LeaseGrantRequest); is && o.few != nil {
		s.owners[r.ID] = o.few
	}
}

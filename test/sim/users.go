package sim

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"google.golang.org/protobuf/proto"

	"go.etcd.io/etcd/api/v3/authpb"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"

	"github.com/stoa-kv/stoa/internal/auth"
	"github.com/stoa-kv/stoa/internal/command"
	"github.com/stoa-kv/stoa/internal/extension"
	"github.com/stoa-kv/stoa/internal/fault"
	"github.com/stoa-kv/stoa/internal/placement"
)

// keeper is an administrator. It adds a user who may read and write everything, lets
// clients make some of their requests as that user, takes the right away, in one of the ways
// that there are, and begins anew with another user. Once it has been told that the right is
// gone, no request of the user may succeed, and none may take effect that was under way.
type keeper struct {
	c        *cluster
	n        int   // how many users there have been before
	now      *term // nil: nobody is to be that user
	watchers []*userWatcher
	alice    *auth.User // who registers extensions; nil: not yet
}

// term is the time of one user.
type term struct {
	n          int
	credential uint64
	asked      time.Duration // when the keeper began to take the right away; 0: not yet
	revoked    time.Duration // when the keeper was told so; 0: not yet
}

func (t *term) user() string { return fmt.Sprintf("user%d", t.n) }
func (t *term) role() string { return fmt.Sprintf("role%d", t.n) }

// begin sets permissions up, and then one user after the other.
func (k *keeper) begin() {
	k.enable(func() {
		k.next(k.n + 1)
		for id := range 2 {
			w := &userWatcher{c: k.c, id: 400 + id}
			k.watchers = append(k.watchers, w)
			w.live()
		}
		k.limit()
		if k.c.has.extensions {
			k.addAlice()
		}
		if s := k.c.steward; s != nil {
			s.begin()
		}
	})
}

// addAlice adds the user who registers extensions.
func (k *keeper) addAlice() {
	k.all([]*pb.InternalRaftRequest{
		{AuthUserAdd: &pb.AuthUserAddRequest{Name: alice}},
		{AuthUserGrantRole: &pb.AuthUserGrantRoleRequest{User: alice, Role: auth.Root}},
	}, true, func() { k.alice = k.c.user(alice) })
}

// user is what some server knows of a user.
func (c *cluster) user(name string) (known *auth.User) {
	for _, s := range c.servers {
		if s.life != nil {
			if u := s.life.core.machine.Auth().User(name); u != nil {
				known = u
			}
		}
	}
	return known
}

// enable adds root, and enables authentication.
func (k *keeper) enable(done func()) {
	k.all([]*pb.InternalRaftRequest{
		{AuthUserAdd: &pb.AuthUserAddRequest{Name: auth.Root}},
		{AuthRoleAdd: &pb.AuthRoleAddRequest{Name: auth.Root}},
		{AuthUserGrantRole: &pb.AuthUserGrantRoleRequest{User: auth.Root, Role: auth.Root}},
		{AuthEnable: &pb.AuthEnableRequest{}},
	}, true, done)
}

// next gives a user its time. If it isn't known whether one of the requests had an effect,
// that could come yet, behind the revoke: then the user is given up.
func (k *keeper) next(n int) {
	c, t := k.c, &term{n: n}
	perm := &authpb.Permission{PermType: authpb.Permission_READWRITE, Key: []byte{0}, RangeEnd: []byte{0}}
	setup := []*pb.InternalRaftRequest{
		{AuthUserAdd: &pb.AuthUserAddRequest{Name: t.user()}},
		{AuthRoleAdd: &pb.AuthRoleAddRequest{Name: t.role()}},
		{AuthRoleGrantPermission: &pb.AuthRoleGrantPermissionRequest{Name: t.role(), Perm: perm}},
		{AuthUserGrantRole: &pb.AuthUserGrantRoleRequest{User: t.user(), Role: t.role()}},
	}
	revoke := pick(c.loop, []*pb.InternalRaftRequest{
		{AuthUserDelete: &pb.AuthUserDeleteRequest{Name: t.user()}},
		{AuthRoleDelete: &pb.AuthRoleDeleteRequest{Role: t.role()}},
		{AuthUserRevokeRole: &pb.AuthUserRevokeRoleRequest{Name: t.user(), Role: t.role()}},
		{AuthRoleRevokePermission: &pb.AuthRoleRevokePermissionRequest{Role: t.role(), Key: []byte{0}, RangeEnd: []byte{0}}},
	})
	k.all(setup, false, func() {
		if u := c.user(t.user()); u != nil {
			t.credential, k.now = u.Credential, t
			c.looksAtOnce()
		}
		c.loop.after(c.loop.between(20*time.Millisecond, 400*time.Millisecond), "keeper revokes", 0, 0, func() {
			t.asked = c.loop.now
			k.all([]*pb.InternalRaftRequest{revoke}, true, func() {
				t.revoked = c.loop.now
				c.stats.Revokes++
				c.loop.after(c.loop.between(20*time.Millisecond, 400*time.Millisecond), "keeper", 0, 0, func() { k.next(n + 1) })
			})
		})
	}, func() { k.next(n + 1) })
}

// all makes requests one after the other. An uncertain one is made again, or ends it all.
func (k *keeper) all(rest []*pb.InternalRaftRequest, again bool, done func(), givenUp ...func()) {
	c := k.c
	switch {
	case c.quiet:
		return
	case len(rest) == 0:
		done()
		return
	}
	next := once(func() { k.all(rest[1:], again, done, givenUp...) })
	unsure := once(func() {
		c.loop.after(c.loop.between(0, 50*time.Millisecond), "keeper again", 0, 0, func() {
			if !again {
				givenUp[0]()
				return
			}
			k.all(rest, again, done, givenUp...)
		})
	})
	first := true
	answered := func(what func()) {
		if first {
			first = false
			what()
		}
	}
	c.loop.after(clientTimeout, "keeper's timeout", 0, 0, func() { answered(unsure) })
	s := c.anyServer()
	if s.life == nil {
		answered(unsure)
		return
	}
	c.loop.printf("keeper asks server %d: %v", s.id, rest[0])
	s.life.write(command.Auth, rest[0], auth.Own, true, func(_ proto.Message, err error) {
		c.loop.printf("keeper hears: %v", err)
		if err == nil || again && isDone(err) {
			answered(next)
		} else {
			answered(unsure)
		}
	})
}

// noRights reports that a user may not do something, or is none any more.
func noRights(err error) bool {
	return errors.Is(err, fault.AuthOldRevision) || errors.Is(err, fault.PermissionDenied)
}

// isDone reports that a request which is made again was carried out before.
func isDone(err error) bool {
	for _, f := range [...]error{fault.UserExists, fault.RoleExists, fault.UserNotFound, fault.RoleNotFound, fault.RoleNotGranted, fault.PermissionNotGranted} {
		if errors.Is(err, f) {
			return true
		}
	}
	return false
}

// someone draws as whom a client makes a request: as the user of now or, to find that it
// can't, the one before.
func (c *cluster) someone(r *request) {
	if k := c.keeper; k != nil && k.now != nil && r.who == "" && c.loop.chance(40) {
		switch q := r.message.(type) {
		case *pb.RangeRequest, *pb.TxnRequest:
			r.term = k.now
		case *pb.PutRequest:
			if !extension.Touches(q.Key, nil) {
				r.term = k.now
			}
		case *pb.DeleteRangeRequest:
			if !extension.Touches(q.Key, q.RangeEnd) {
				r.term = k.now
			}
		}
	}
}

// checkUser: what was asked for after a revoke was acknowledged doesn't succeed.
func (c *cluster) checkUser(o *op) {
	t := o.term
	if t == nil || t.revoked == 0 || o.state != ok || !o.strict {
		return
	}
	if o.call > t.revoked {
		c.fail("users", "%s of %s succeeded; the user has had no right since %v", o, t.user(), t.revoked)
	}
}

// checkUsers: nothing takes effect that stands behind a revoke in the log.
func (c *cluster) checkUsers(*past) {
	for _, o := range c.history {
		if o.term == nil || o.term.revoked == 0 || o.effect == 0 || !unmistakable(o.req) {
			continue
		}
		if r := c.ledger.revisions[o.effect]; r != nil && r.at > o.term.revoked {
			c.fail("users", "%s of %s took effect at revision %d, first applied at %v; the user has had no right since %v",
				o, o.term.user(), o.effect, r.at, o.term.revoked)
			return
		}
	}
}

// unmistakable reports a request whose effect is no other's: it puts a value of its own, whichever way it goes.
func unmistakable(m proto.Message) bool {
	switch r := m.(type) {
	case *pb.PutRequest:
		return !r.IgnoreValue
	case *pb.TxnRequest:
		puts := func(do *pb.RequestOp) bool { return do.GetRequestPut() != nil && !do.GetRequestPut().IgnoreValue }
		changes := func(do *pb.RequestOp) bool { return do.GetRequestRange() == nil }
		return slices.ContainsFunc(r.Success, puts) && (slices.ContainsFunc(r.Failure, puts) || !slices.ContainsFunc(r.Failure, changes))
	}
	return false
}

// admitted is a seeded bug: the rights of the moment at which a request comes in.
func (l *life) admitted(user uint64, req proto.Message) (uint64, error) {
	u, err := l.core.machine.Auth().Authorize(user)
	if err != nil {
		return 0, err
	}
	if r, is := req.(*pb.RangeRequest); is {
		err = u.MayRead(r.Key, r.RangeEnd)
	} else {
		err = u.MayWrite([]byte{0}, []byte{0})
	}
	return auth.Own, err
}

// forLeases are the partitions that a write needs for the leases that it names.
func (l *life) forLeases(user uint64, req proto.Message) placement.Set {
	return l.core.machine.ForLeases(user, req)
}

package apply

import (
	"fmt"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/protobuf/proto"

	"github.com/stoa-kv/stoa/internal/auth"
	"github.com/stoa-kv/stoa/internal/command"
	"github.com/stoa-kv/stoa/internal/fault"
	"github.com/stoa-kv/stoa/internal/lease"
	"github.com/stoa-kv/stoa/internal/placement"
	"github.com/stoa-kv/stoa/internal/version"
)

// Auth returns the users, roles and permissions. The state is immutable; it is replaced as a
// whole at a rendezvous of all partitions, so the holder of any store's lock sees the one
// that applies to what it finds in the store.
func (m *Machine) Auth() *auth.State { return m.auth.Load() }

// LoadAuth sets the users, roles and permissions after a start.
func (m *Machine) LoadAuth(s *auth.State) { m.auth.Store(s) }

// identify finds the user of a command. Rights are those of this place in the log, whatever
// they were when the command was proposed.
func (x *execution) identify(c *command.Command) (err error) {
	x.user = nil
	switch c.Kind {
	case command.LeaseCheckpoint, command.MemberPublish, command.MemberAnnounce, command.Move:
		return nil // no client can send these
	}
	x.user, err = x.m.auth.Load().Authorize(c.User)
	return err
}

// administers reports whether a command demands the role root, whatever it contains.
func administers(k command.Kind) bool {
	return k == command.Compact || k == command.MemberChange || k == command.ClusterVersion || k == command.Place || k == command.Resize
}

// levelOfUsers is the level of the cluster from which on there are users and roles.
const levelOfUsers version.Level = 2

// authCommand changes users, roles and permissions, or notes that a user has proved who it
// is.
func (x *execution) authCommand(body []byte) Result {
	req := new(pb.InternalRaftRequest)
	if proto.Unmarshal(body, req) != nil {
		return x.failed(unreadable(command.Auth, body))
	}
	if req.Authenticate != nil {
		return x.authenticated(req.Authenticate)
	}
	if err := x.covers(x.m.Placement().All()); err != nil {
		return x.failed(fmt.Errorf("apply %v: %w", command.Auth, err))
	}
	if err := x.user.MustBeRoot(); err != nil {
		return x.failed(err)
	}
	before := x.m.Auth()
	after, err := before.Change(req)
	if err != nil {
		return x.failed(err)
	}
	x.m.replaceAuth(before, after)
	return x.authResult(after)
}

// replaceAuth puts another state in place, whose locks are held.
func (m *Machine) replaceAuth(before, after *auth.State) {
	if after == before {
		return
	}
	m.auth.Store(after)
	m.recount(after)
	if o := m.Observer; o != nil {
		o.AuthChanged(after)
	}
}

// authenticated takes the token of a user: it is no state, and lost at a restart. The user is
// that of the command, so it is refused if its password has changed since it was compared.
func (x *execution) authenticated(req *pb.InternalAuthenticateRequest) Result {
	now := x.m.Auth()
	switch {
	case !now.Enabled:
		return x.failed(fault.AuthNotEnabled)
	case x.user == nil || x.local != 0:
		return x.failed(fmt.Errorf("authenticate: not as the user, or not in partition 0: %w", fault.Internal))
	}
	if o := x.m.Observer; o != nil {
		o.Authenticated(x.index, x.user.Credential, req.GetSimpleToken())
	}
	return x.authResult(now)
}

func (x *execution) authResult(now *auth.State) Result {
	return x.done(false, &pb.AuthStatusResponse{Header: x.header(false), Enabled: now.Enabled, AuthRevision: now.Revision})
}

// permit refuses a request that its user has no permission for. In an extension's place it
// counts like the ordinary request.
func (x *execution) permit(req proto.Message) error {
	if x.user == nil {
		return nil
	}
	if err := x.user.May(req); err != nil {
		return err
	}
	switch r := req.(type) {
	case *pb.PutRequest:
		if r.GetLease() != 0 {
			return x.permitLease(r.GetLease())
		}
	case *pb.TxnRequest:
		return eachLease(r, x.permitLease)
	}
	return nil
}

func (x *execution) permitPut(p *put) error {
	if x.user == nil {
		return nil
	}
	if err := x.user.MayChange(p.Key, nil, p.PrevKv); err != nil || p.Lease == 0 {
		return err
	}
	return x.permitLease(p.Lease)
}

// permitLease refuses to attach a key to a lease with keys that the user may not write, and
// could not delete with the lease. Those keys can be in any partition. The owner's puts
// check their own partition alone, so that they stay local; everybody else's need all.
func (x *execution) permitLease(id int64) error {
	if x.user.IsRoot() {
		return nil
	}
	l, ok := x.m.Leases.Get(id)
	if !ok {
		return nil // as it will turn out
	}
	if l.Owner != x.user.ID {
		if err := x.covers(x.m.Placement().All()); err != nil {
			return err
		}
	}
	return x.mayDispose(id)
}

// foreign reports whether a lease was granted to another user, which doesn't matter to one with the role root.
func (x *execution) foreign(id int64, u *auth.User) bool {
	l, ok := x.m.Leases.Get(id)
	return ok && !u.IsRoot() && l.Owner != u.ID
}

// mayDispose refuses a user who may not write all keys of a lease in the partitions that take
// part. The lease of a session is its user's alone, whatever keys it has: it ends with the session, which isn't
// anybody's to end who finds no key there. The session is gone with the first step in which its lease ends: its user
// goes on with the others.
func (x *execution) mayDispose(id int64) error {
	if x.user.IsRoot() {
		return nil
	}
	session, foreign := x.m.sessions[x.parts.First()].byID[id] != nil, x.foreign(id, x.user)
	switch l, _ := x.m.Leases.Get(id); {
	case x.m.Level() < levelOfOwnSessions:
	case session && foreign:
		return fault.PermissionDenied
	case session, !foreign && l.Remaining == lease.Ending:
		return nil
	}
	for p := range x.parts.Each() {
		for _, key := range x.m.Stores[p].LeaseKeys(id) {
			if err := x.user.MayWrite(key, nil); err != nil {
				return err
			}
		}
	}
	return nil
}

// ForLeases returns the partitions that a write of a user needs for the leases that it names,
// beside those of its keys.
func (m *Machine) ForLeases(credential uint64, req proto.Message) (parts placement.Set) {
	if put, ok := req.(*pb.PutRequest); ok && put.GetLease() == 0 {
		return 0 // most requests
	}
	u, err := m.Auth().Authorize(credential)
	if err != nil || u == nil || u.IsRoot() {
		return 0
	}
	look := func(id int64) error {
		if l, ok := m.Leases.Get(id); id != 0 && (!ok || l.Owner != u.ID) {
			parts = m.Placement().All()
		}
		return nil
	}
	switch r := req.(type) {
	case *pb.PutRequest:
		_ = look(r.GetLease())
	case *pb.TxnRequest:
		_ = eachLease(r, look)
	}
	return parts
}

// eachLease calls do with the lease of each put of a transaction, in all branches, until it fails.
func eachLease(r *pb.TxnRequest, do func(id int64) error) (err error) {
	every(r, func(op *pb.RequestOp) bool {
		if p := op.GetRequestPut(); p.GetLease() != 0 {
			err = do(p.GetLease())
		}
		return err == nil
	})
	return err
}

// permitSession refuses writes in a session of another user: its answers are those to the
// user who opened it.
func (x *execution) permitSession(id int64) error {
	if x.user == nil {
		return nil
	}
	if l, ok := x.m.Leases.Get(id); ok && l.Owner != x.user.ID {
		return fault.SessionGone
	}
	return nil
}

package sim

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"google.golang.org/protobuf/proto"

	"go.etcd.io/etcd/api/v3/authpb"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"

	"github.com/stoa-kv/stoa/internal/fault"
)

// Users with few rights acknowledge extensions and call them. A handler has the rights of its caller, and whoever registers
// an extension needs rights for all that its handlers could do.

// extensionSpans are the keys and ranges to which users have rights because of extensions.
func (c *cluster) extensionSpans() (all [][2][]byte) {
	for _, dir := range []string{"/x/q/", "/x/wait/", "/x/", "/x/", manager, manager} {
		key, end := prefix(dir)
		all = append(all, [2][]byte{key, end})
	}
	for _, key := range []string{"/x/ctr", "/x/inc", "/x/push", "/x/pop", "/x/give", manager + "counter", manager + "queue"} {
		all = append(all, [2][]byte{[]byte(key), nil})
	}
	for _, name := range c.names() {
		all = append(all, [2][]byte{[]byte(manager + name + "/ack"), nil})
	}
	return all
}

// fewExtended draws what a user asks of extensions.
func (c *cluster) fewExtended(u *fewUser) request {
	name := pick(c.loop, c.names())
	var r request
	switch n := c.loop.rng.IntN(20); {
	case n < 5:
		r = strictly(&pb.PutRequest{Key: []byte(manager + name + "/ack"), Value: []byte(pick(c.loop, []string{"", "", "once"}))})
		if ids := c.leases(); len(ids) > 0 && c.loop.chance(2) {
			r.carries = pick(c.loop, ids)
		}
		if s := c.aSession(); s != nil && c.loop.chance(4) {
			r.carries = s.id
		}
	case n < 6:
		r = strictly(&pb.DeleteRangeRequest{Key: []byte(manager + name + "/ack")})
	case n < 8:
		name = pick(c.loop, []string{"counter", "queue"})
		r = strictly(&pb.PutRequest{Key: []byte(manager + name), Value: fmt.Appendf(nil, "-- %s\n%s", c.value(), extensions[name])})
	case n < 10 && c.has.waits:
		r = c.wait(u.name, c.waiting())
	case n < 14 && c.has.reacts:
		r = c.event()
	case n < 18 && c.has.reacts:
		r = strictly(&pb.PutRequest{Key: []byte(manager + "events"), Value: fmt.Appendf(nil, "-- %s\n%s", c.value(), extensions["events"])})
	default:
		r = c.call(u.name, pick(c.loop, []int{0, 25, 30, 40}))
	}
	return by(u.name, r)
}

// eventSpans are the keys and ranges to which users have rights because of the handler of events: all that it takes to register it, and
// what a run of it needs.
func eventSpans() (all [][2][]byte) {
	for _, dir := range []string{manager, "/x/e/", "/x/log/"} {
		key, end := prefix(dir)
		all = append(all, [2][]byte{key, end})
	}
	for _, key := range []string{"/x/e/0", hiddenKey, "/x/log/created", "/x/log/deleted", "/x/told", manager + "events"} {
		all = append(all, [2][]byte{[]byte(key), nil})
	}
	return all
}

// toRegister are the rights that it takes to register the handler of events, each of which may be taken away.
func (s *steward) toRegister(role string) (all []*pb.InternalRaftRequest) {
	for _, dir := range []string{"/x/e/", "/x/log/", "/x/told", manager} {
		key, end := prefix(dir)
		all = append(all, &pb.InternalRaftRequest{AuthRoleGrantPermission: &pb.AuthRoleGrantPermissionRequest{
			Name: role, Perm: &authpb.Permission{PermType: authpb.READWRITE, Key: key, RangeEnd: end},
		}})
	}
	return all
}

// drawToRegister takes one of these rights from a role that has it, or gives it one that it lacks.
func (s *steward) drawToRegister(role string) *pb.InternalRaftRequest {
	all := s.toRegister(role)
	r := all[s.c.loop.rng.IntN(len(all)-1)] // that to the source is needed no longer once it is there
	p := r.AuthRoleGrantPermission.Perm
	if slices.ContainsFunc(s.held(role), func(h *authpb.Permission) bool { return proto.Equal(h, p) }) {
		return &pb.InternalRaftRequest{AuthRoleRevokePermission: &pb.AuthRoleRevokePermissionRequest{Role: role, Key: p.Key, RangeEnd: p.RangeEnd}}
	}
	return r
}

// scope is a range that an extension may write.
type scope struct{ key, end string }

// scopes are those of the extensions that users with few rights register: such as change no keys of others.
var scopes = map[string][]scope{
	"counter": {{"/x/ctr", ""}}, "queue": {{"/x/q/", "/x/q0"}}, "events": {{"/x/e/", "/x/e0"}, {"/x/log/", "/x/log0"}, {"/x/told", ""}},
}

// registers: the handlers of an extension could do all in its scope, and are told of what it handles.
func (q claim) registers(name string) verdict {
	v := yes
	for _, s := range scopes[name] {
		v = min(v, q.changes([]byte(s.key), []byte(s.end), true))
	}
	for key, by := range handlers {
		if by == name {
			v = min(v, q.reads([]byte(key), nil))
		}
	}
	return v
}

// extended is what a request needs besides, where extensions know its client.
func (q claim) extended(o *op) verdict {
	key := keyOf(o)
	if name, rest, manages := managed([]byte(key)); manages {
		switch {
		case rest == "":
			return q.registers(name)
		case o.carries != 0:
			return allowed(q.c.steward.owners[o.carries] == q.user)
		}
		return yes
	}
	e := evaluation{keys: q.keys, who: o.who}
	if !e.handles(key) {
		return yes
	}
	switch key {
	case "/x/inc":
		return q.changes([]byte("/x/ctr"), nil, true)
	case "/x/push":
		return q.writes([]byte("/x/q/"), []byte("/x/q0"))
	case "/x/pop":
		v := q.reads([]byte("/x/q/"), []byte("/x/q0"))
		if len(e.keys.between([]byte("/x/q/"), []byte("/x/q0"))) > 0 {
			v = min(v, q.writes([]byte("/x/q/"), []byte("/x/q0")))
		}
		return v
	}
	if q.changes([]byte("/x/"), []byte("/x0"), true) == yes {
		return yes
	}
	return either // it depends on what others have given
}

// leases are those that what a request may do depends on.
func (o *op) leases() []int64 {
	ids := map[int64]bool{leaseOf(o.req): true, o.carries: true}
	if r, is := o.req.(*pb.TxnRequest); is {
		addLeases(ids, r)
	}
	delete(ids, 0)
	var list []int64
	for id := range ids {
		list = append(list, id)
	}
	slices.Sort(list)
	return list
}

// saysMore reports an error that a user without rights isn't told. Of an extension that is disabled its callers are told before
// the rights of its handler matter, and a lease that is gone is nobody's.
func (o *op) saysMore() bool {
	if o.carries != 0 || slices.ContainsFunc(o.leases(), func(id int64) bool { return id >= sessionLeases }) {
		return false
	}
	return tells(o.err) && (o.who == "" || !errors.Is(o.err, fault.ExtensionDisabled))
}

// nothing reports an answer that says only that no extension has handled the opening of a watch. It becomes an ordinary one, or
// not, as its user has the right to it.
func (o *op) nothing() bool {
	_, opens := o.req.(*pb.WatchCreateRequest)
	return opens && len(o.content.(*pb.RangeResponse).Kvs) == 0
}

// registrar is as whom the event handler of an extension runs, with the rights of a revision.
type registrar struct {
	all   bool
	perms []*authpb.Permission
}

// registrarOf is the user who has registered an extension, as an evaluation finds it. One who was deleted since has no rights, also if another has
// come under the name.
func (e *evaluation) registrarOf(name string) registrar {
	if e.rights == nil || e.rights.free {
		return registrar{all: true}
	}
	id, user, _ := strings.Cut(string(e.keys.get(manager+name+"/registrar").GetValue()), " ")
	if user == alice {
		return registrar{all: true}
	}
	if has := e.rights.of[user]; strconv.FormatUint(has.id, 10) == id {
		return registrar{perms: has.perms}
	}
	return registrar{}
}

func (r registrar) may(kind authpb.Permission_Type, key string) bool {
	return r.all || covers(r.perms, kind, []byte(key), nil)
}

// reactsTo reports whether the handler may count an event of a type on a key. It reads the key, and counts before it tells.
func (r registrar) reactsTo(key, event string) bool {
	count := "/x/log/" + event
	return r.may(authpb.READ, key) && r.may(authpb.READ, count) && r.may(authpb.WRITE, count) &&
		(event != "expired" || r.may(authpb.WRITE, "/x/told"))
}

// countHandled counts the events that a handler of a user with few rights has handled, those that it couldn't, and those for whose handler
// there was no space.
func (c *cluster) countHandled(p *past) {
	if !c.has.reacts && !c.has.space {
		return
	}
	for _, r := range p.revisions {
		if r.by != nil {
			_, e := p.evaluate(r.rev-1, r.rev, r.by)
			c.stats.FewHandled += e.handled
			c.stats.Unhandled += e.unhandled
			c.stats.Unfit += e.unfit
		}
	}
}

package host

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"time"

	"go.etcd.io/etcd/api/v3/authpb"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/protobuf/proto"

	"github.com/stoa-kv/stoa/internal/auth"
	"github.com/stoa-kv/stoa/internal/command"
	"github.com/stoa-kv/stoa/internal/replica"
)

// In some runs each sidecar is a user, and so are some of its programs, which have a password of their own. All have rights to all
// keys in the beginning. Meanwhile rights are taken away and given back, passwords are set, and users are deleted and come again.

// user is whose rights the requests of a program have.
func (a *sidecarApp) user() string {
	if a.own {
		return fmt.Sprintf("app%d", a.id)
	}
	return a.at.user()
}

func (s *simSidecar) user() string { return "of " + s.name }

// addUsers has permissions enforced.
func (w *sidecarWorld) addUsers() {
	w.enact(&pb.InternalRaftRequest{AuthUserAdd: &pb.AuthUserAddRequest{Name: auth.Root, HashedPassword: hashed("root")}})
	w.enact(&pb.InternalRaftRequest{AuthUserGrantRole: &pb.AuthUserGrantRoleRequest{User: auth.Root, Role: auth.Root}})
	for i := range w.plan.Sidecars {
		w.names = append(w.names, (&simSidecar{name: sidecarAddress(i)}).user())
	}
	for i, own := range w.plan.Own {
		if own {
			w.names = append(w.names, fmt.Sprintf("app%d", i))
		}
	}
	for _, name := range w.names {
		w.enact(&pb.InternalRaftRequest{AuthRoleAdd: &pb.AuthRoleAddRequest{Name: name}})
		for _, span := range [][2]string{{"\x00", "/"}, {"0", "\x00"}} {
			rest := &authpb.Permission{PermType: authpb.Permission_READWRITE, Key: []byte(span[0]), RangeEnd: []byte(span[1])}
			w.enact(&pb.InternalRaftRequest{AuthRoleGrantPermission: &pb.AuthRoleGrantPermissionRequest{Name: name, Perm: rest}})
		}
	}
	w.reinstate()
	w.enact(&pb.InternalRaftRequest{AuthEnable: &pb.AuthEnableRequest{}})
}

// reinstate gives all users their passwords and rights, behind all that is under way.
func (w *sidecarWorld) reinstate() {
	w.within("changes of users", w.ruling.Wait)
	for _, name := range w.names {
		w.enact(&pb.InternalRaftRequest{AuthUserAdd: &pb.AuthUserAddRequest{Name: name, HashedPassword: hashed(clientPassword)}})
		if u := w.rules.latest().User(name); u != nil && string(u.Password) != clientPassword {
			w.enact(&pb.InternalRaftRequest{AuthUserChangePassword: &pb.AuthUserChangePasswordRequest{Name: name, HashedPassword: hashed(clientPassword)}})
		}
		w.enact(&pb.InternalRaftRequest{AuthUserGrantRole: &pb.AuthUserGrantRoleRequest{User: name, Role: name}})
		for part := range clientRanges {
			w.enact(grants(name, part, authpb.Permission_READWRITE))
		}
	}
}

// dismissed tells whether the sidecar's user was deleted before a call, and a session of that user may not have ended yet: it does with its next
// request, or sign of life. A write that is under way in it then has an unknown outcome.
func (a *sidecarApp) dismissed(d *sidecarCall) bool {
	return a.w.plan.Users && a.w.rules.any(a.w.at(d.begun-signOfLife-sidecarTimeout), a.w.at(d.ended), func(r *rule) bool {
		return r.Enabled && r.User(a.at.user()) == nil
	})
}

// latest is the present rule.
func (b *rulebook) latest() *auth.State {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.rules[len(b.rules)-1].State
}

func (w *sidecarWorld) enact(r *pb.InternalRaftRequest) {
	w.cluster.rig.enact(r, w.local.below, sidecarHang)
}

func (w *sidecarWorld) govern(r *pb.InternalRaftRequest, done func(replica.Outcome)) {
	w.cluster.rig.servers[w.local.below(3)].process.Load().core.Load().propose(command.Auth, r, done)
}

// rule changes what one of the users may do.
func (w *sidecarWorld) rule(what string, rng *rand.Rand) {
	if !w.plan.Users {
		return
	}
	w.counts.Ruled++
	name, part := w.names[rng.IntN(len(w.names))], rng.IntN(len(clientRanges))
	var r *pb.InternalRaftRequest
	switch what {
	case "deny":
		span := clientRanges[part]
		r = &pb.InternalRaftRequest{AuthRoleRevokePermission: &pb.AuthRoleRevokePermissionRequest{Role: name, Key: []byte(span[0]), RangeEnd: []byte(span[1])}}
		if kind := rng.IntN(4); kind < 2 {
			r = grants(name, part, authpb.Permission_Type(kind)) // only that one is left
		}
	case "allow":
		r = grants(name, part, authpb.Permission_READWRITE)
	case "password":
		password := clientPassword
		if rng.IntN(3) == 0 {
			password = "another"
		}
		r = &pb.InternalRaftRequest{AuthUserChangePassword: &pb.AuthUserChangePasswordRequest{Name: name, HashedPassword: hashed(password)}}
	case "dismiss":
		r = &pb.InternalRaftRequest{AuthUserDelete: &pb.AuthUserDeleteRequest{Name: name}}
	case "hire":
		w.ruling.Add(1)
		w.govern(&pb.InternalRaftRequest{AuthUserAdd: &pb.AuthUserAddRequest{Name: name, HashedPassword: hashed(clientPassword)}}, func(replica.Outcome) { w.ruling.Done() })
		r = &pb.InternalRaftRequest{AuthUserGrantRole: &pb.AuthUserGrantRoleRequest{User: name, Role: name}}
	}
	w.ruling.Add(1)
	w.govern(r, func(replica.Outcome) { w.ruling.Done() })
}

// permits tells whether a program's user may do something by a rule.
func (r *rule) permits(name string, req proto.Message) bool {
	u := r.User(name)
	return !r.Enabled || u != nil && u.May(req) == nil
}

// demand is what a call asks a member for.
func (a *sidecarApp) demand(d *sidecarCall) proto.Message {
	from, end := a.at.span(d.key, d.end)
	other := []byte(a.at.Namespace + d.other)
	read := func(key []byte) *pb.RequestOp {
		return &pb.RequestOp{Request: &pb.RequestOp_RequestRange{RequestRange: &pb.RangeRequest{Key: key}}}
	}
	put := func(key []byte) *pb.RequestOp {
		return &pb.RequestOp{Request: &pb.RequestOp_RequestPut{RequestPut: &pb.PutRequest{Key: key}}}
	}
	key := []byte(from)
	txn := &pb.TxnRequest{Compare: []*pb.Compare{{Key: key}}, Success: []*pb.RequestOp{read(key), read(other)}, Failure: []*pb.RequestOp{read(key), read(other)}}
	switch d.kind {
	case "put":
		return &pb.PutRequest{Key: key}
	case "delete":
		return &pb.DeleteRangeRequest{Key: key, RangeEnd: []byte(end), PrevKv: true}
	case "txn":
		txn.Success = []*pb.RequestOp{put(key), put(other)}
		return txn
	case "read txn":
		return txn
	default:
		return &pb.RangeRequest{Key: key, RangeEnd: []byte(end)}
	}
}

func (w *sidecarWorld) at(since time.Duration) time.Time { return w.begun.Add(since) }

// checkRights holds an answer against the rights of the program's user: what took effect it had the rights for at that place in the
// log, and for what was answered or refused there were rights, or were none, at a time between call and answer.
func (a *sidecarApp) checkRights(d *sidecarCall) {
	w, req := a.w, a.demand(d)
	may := func(r *rule) bool { return r.permits(a.user(), req) }
	from := w.at(d.begun)
	if d.local {
		from = time.Time{} // what its server knew, or the sidecar
	}
	if d.effect != 0 && !w.rules.at(w.cluster.ledger.rights[d.effect]).permits(a.user(), req) {
		a.found(d, "it took effect at %d, where %q had no right to it", d.effect, a.user())
	}
	switch {
	case d.heard == 0:
	case d.err == nil && !w.rules.any(from, w.at(d.ended), may):
		a.found(d, "%q had no right to it", a.user())
	case errors.Is(rpctypes.Error(d.err), rpctypes.ErrPermissionDenied) && d.lease == 0 && !w.rules.any(from, w.at(d.ended), func(r *rule) bool { return !may(r) }):
		a.found(d, "%q had the right to it", a.user())
	}
}

// checkSight: nothing comes of what stands behind the end of a right, unless there is one again.
func (a *sidecarApp) checkSight(v fmt.Stringer, of watched, events []*clientv3.Event, at []time.Duration) {
	w := a.w
	if !w.plan.Users {
		return
	}
	from, end := a.at.span(of.key, of.end)
	req := &pb.WatchCreateRequest{Key: []byte(from), RangeEnd: []byte(end)}
	for i, e := range events {
		rights := w.cluster.ledger.rights[e.Kv.ModRevision]
		if !w.rules.any(time.Time{}, w.at(at[i]), func(r *rule) bool {
			return (r.Revision >= rights || r == w.rules.at(rights)) && r.permits(a.user(), req)
		}) {
			w.found("app %d: %v brings an event of revision %d, and %q had no right to it any more", a.id, v, e.Kv.ModRevision, a.user())
		}
	}
}

const oldRevision = "revision of auth store is old"

// governed tells whether an error, or the reason for which a watch has ended, is that of a user who had not all rights, or who could not
// log in or was another one, for a while.
func (a *sidecarApp) governed(reason string, until time.Duration) bool {
	if !a.w.plan.Users {
		return false
	}
	names := []string{a.user(), a.at.user()} // whose rights calls without a token have, such as one for a token
	denied := strings.Contains(reason, "permission denied")
	strange := false
	for _, text := range []string{"invalid auth token", "authentication failed", oldRevision, "user name is empty"} {
		strange = strange || strings.Contains(reason, text)
	}
	first := a.w.rules.rules[0]
	return (denied || strange) && a.w.rules.any(time.Time{}, a.w.at(until), func(r *rule) bool {
		if first.User(names[0]) == nil && r.Enabled {
			first = r
		}
		for _, name := range names {
			u, was := r.User(name), first.User(name)
			if r.Enabled && (u == nil || was != nil && u.Credential != was.Credential && strange || denied && len(r.Role(name).Permissions) == 0) {
				return true
			}
			for part := range clientRanges {
				if r.Enabled && u != nil && denied && u.MayWrite([]byte(clientRanges[part][0]), []byte(clientRanges[part][1])) != nil {
					return true
				}
				if r.Enabled && u != nil && denied && u.MayRead([]byte(clientRanges[part][0]), []byte(clientRanges[part][1])) != nil {
					return true
				}
			}
		}
		return false
	})
}

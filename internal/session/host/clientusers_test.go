package host

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"sync"
	"time"

	"go.etcd.io/etcd/api/v3/authpb"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc/metadata"

	stoapb "github.com/stoa-kv/stoa/api/stoa/v1"
	sdk "github.com/stoa-kv/stoa/client"
	"github.com/stoa-kv/stoa/internal/auth"
	"github.com/stoa-kv/stoa/internal/command"
	"github.com/stoa-kv/stoa/internal/fault"
	"github.com/stoa-kv/stoa/internal/placement"
	"github.com/stoa-kv/stoa/internal/replica"
)

// In some runs each app is a user, with a password and rights to the two directories. Meanwhile rights are taken away and given
// back, passwords are set, and users deleted.

// rule is who may do what, from one change of users and roles to the next.
type rule struct {
	*auth.State
	since, until time.Time // when the first server had it, and when one had the next; zero: not yet
}

// rulebook is all rules, in order.
type rulebook struct {
	mu    sync.Mutex
	rules []*rule
}

func (b *rulebook) note(now *auth.State) {
	b.mu.Lock()
	defer b.mu.Unlock()
	n := len(b.rules)
	if n > 0 && b.rules[n-1].Revision > now.Revision || n > 0 && b.rules[n-1].Revision == now.Revision && b.rules[n-1].Enabled == now.Enabled {
		return
	}
	at := time.Now()
	if n > 0 {
		b.rules[n-1].until = at
	}
	b.rules = append(b.rules, &rule{State: now, since: at})
}

// any tells whether one of the rules of a time is such. Without a begin it may be any that there were until then.
func (b *rulebook) any(from, to time.Time, such func(*rule) bool) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, r := range b.rules {
		if !r.since.After(to) && (r.until.IsZero() || !r.until.Before(from)) && such(r) {
			return true
		}
	}
	return false
}

// at is the rule at a revision of users and roles.
func (b *rulebook) at(revision uint64) *rule {
	var last *rule
	for _, r := range b.rules {
		if r.Revision <= revision {
			last = r
		}
	}
	return last
}

// clientRanges are what rights are to, each of which has one of the directories; both have all between.
var clientRanges = [][2]string{{"/", "/q/"}, {"/q/", "0"}}

// right is one to a part of the keys.
type right struct {
	part   int
	writes bool
}

// needs are the rights that a request demands, by what security.md says.
func (x *ask) needs() (all []right) {
	for part, dir := range clientDirs {
		touches := strings.HasPrefix(x.key, dir) || x.key == "/"
		other := strings.HasPrefix(x.other, dir)
		reads, writes := false, false
		switch x.kind {
		case "put", "delete":
			reads, writes = touches && x.withPrev, touches
		case "txn":
			reads, writes = touches, touches || other
		case "get", "look", "watch":
			reads = touches
		}
		if reads {
			all = append(all, right{part, false})
		}
		if writes {
			all = append(all, right{part, true})
		}
	}
	return all
}

func (a *app) user() string { return fmt.Sprintf("app%d", a.id) }

// allows tells whether the app's user is there and has the rights that a request demands.
func (r *rule) allows(a *app, x *ask) bool {
	if r.User(a.user()) == nil {
		return false
	}
	for _, need := range x.needs() {
		has := false
		for _, p := range r.Role(a.user()).Permissions {
			of := string(p.Key) == clientRanges[need.part][0]
			kind := p.PermType == authpb.Permission_READWRITE || (p.PermType == authpb.Permission_WRITE) == need.writes
			has = has || of && kind
		}
		if !has {
			return false
		}
	}
	return true
}

// bars tells whether the app can't log in.
func (r *rule) bars(a *app) bool {
	u := r.User(a.user())
	return r.Enabled && (u == nil || string(u.Password) != clientPassword)
}

// barred tells whether the app could not log in at some time.
func (a *app) barred(until time.Time) bool {
	return a.w.plan.Users && a.w.rules.any(time.Time{}, until, func(r *rule) bool { return r.bars(a) })
}

const clientPassword = "secret"

func hashed(password string) string { return base64.StdEncoding.EncodeToString([]byte(password)) }

// addUsers has permissions enforced, with a user for each app.
func (w *clientWorld) addUsers() {
	w.enact(&pb.InternalRaftRequest{AuthUserAdd: &pb.AuthUserAddRequest{Name: auth.Root, HashedPassword: hashed("root")}})
	w.enact(&pb.InternalRaftRequest{AuthUserGrantRole: &pb.AuthUserGrantRoleRequest{User: auth.Root, Role: auth.Root}})
	for i := range w.plan.Apps {
		name := fmt.Sprintf("app%d", i)
		w.enact(&pb.InternalRaftRequest{AuthRoleAdd: &pb.AuthRoleAddRequest{Name: name}})
		for part := range clientRanges {
			w.enact(grants(name, part, authpb.Permission_READWRITE))
		}
		others := &authpb.Permission{PermType: authpb.Permission_READWRITE, Key: []byte("a"), RangeEnd: []byte("{")}
		w.enact(&pb.InternalRaftRequest{AuthRoleGrantPermission: &pb.AuthRoleGrantPermissionRequest{Name: name, Perm: others}})
		w.enact(&pb.InternalRaftRequest{AuthUserAdd: &pb.AuthUserAddRequest{Name: name, HashedPassword: hashed(clientPassword)}})
		w.enact(&pb.InternalRaftRequest{AuthUserGrantRole: &pb.AuthUserGrantRoleRequest{User: name, Role: name}})
	}
	w.enact(&pb.InternalRaftRequest{AuthEnable: &pb.AuthEnableRequest{}})
}

func (w *clientWorld) enact(r *pb.InternalRaftRequest) { w.rig.enact(r, w.below, clientPatience) }

// enact changes users and roles, and tries until that has worked, each time at some server.
func (r *rig) enact(change *pb.InternalRaftRequest, below func(int) int, patience time.Duration) {
	for begun := time.Now(); ; time.Sleep(20 * time.Millisecond) {
		done := make(chan error, 1)
		r.servers[below(3)].process.Load().core.Load().propose(command.Auth, change, func(out replica.Outcome) { done <- out.Err })
		err := <-done
		if err == nil || errors.Is(err, fault.UserExists) || errors.Is(err, fault.RoleExists) {
			return
		}
		if time.Since(begun) > patience {
			r.t.Fatalf("%v: %v", change, err)
		}
	}
}

func grants(role string, part int, kind authpb.Permission_Type) *pb.InternalRaftRequest {
	p := &authpb.Permission{PermType: kind, Key: []byte(clientRanges[part][0]), RangeEnd: []byte(clientRanges[part][1])}
	return &pb.InternalRaftRequest{AuthRoleGrantPermission: &pb.AuthRoleGrantPermissionRequest{Name: role, Perm: p}}
}

// govern changes what one of the users may do.
func (w *clientWorld) govern(what string, rng *rand.Rand) {
	name, part := fmt.Sprintf("app%d", rng.IntN(len(w.plan.Apps))), rng.IntN(len(clientRanges))
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
		w.counts.Passwords++
		password := clientPassword
		if rng.IntN(3) == 0 {
			password = "another"
		}
		r = &pb.InternalRaftRequest{AuthUserChangePassword: &pb.AuthUserChangePasswordRequest{Name: name, HashedPassword: hashed(password)}}
	case "dismiss":
		r = &pb.InternalRaftRequest{AuthUserDelete: &pb.AuthUserDeleteRequest{Name: name}}
	}
	w.propose(command.Auth, r)
}

// authenticate logs a user in, as a server that has caught up does: the token says since when the user has had its password.
func (r *rig) authenticate(login *pb.AuthenticateRequest, reply *pb.AuthenticateResponse) error {
	now := r.servers[0].process.Load().core.Load().Machine.Auth()
	for _, s := range r.servers[1:] {
		if other := s.process.Load().core.Load().Machine.Auth(); other.Revision > now.Revision || other.Enabled && !now.Enabled {
			now = other
		}
	}
	u := now.User(login.GetName())
	if u == nil || string(u.Password) != login.GetPassword() {
		return rpctypes.ErrGRPCAuthFailed
	}
	reply.Token = strconv.FormatUint(u.Credential, 10)
	return nil
}

// identify returns whose token a session comes with, and what extensions know its client by.
func (p *rigProcess) identify(ctx context.Context, o *stoapb.OpenSession) (user uint64, err error) {
	if user, err = p.holder(ctx); err != nil {
		return 0, err
	}
	u, err := p.State().Machine.Auth().Authorize(user)
	if err != nil {
		return 0, err
	}
	o.Client, err = u.Client(o.GetClient())
	return user, err
}

// holder returns whose token a request comes with: the user's credential, 0 for none.
func (p *rigProcess) holder(ctx context.Context) (user uint64, err error) {
	if ctx.Value(serverKey{}) != nil {
		return auth.Own, nil
	}
	md, _ := metadata.FromIncomingContext(ctx)
	for _, text := range md.Get(rpctypes.TokenFieldNameGRPC) {
		if user, err = strconv.ParseUint(text, 10, 64); err != nil {
			return 0, fault.InvalidAuthToken
		}
	}
	if now := p.State().Machine.Auth(); user != 0 && now.ByCredential(user) == nil { // this server may be behind
		if err := p.catchUp(ctx); err != nil {
			return 0, err
		}
		if p.State().Machine.Auth().ByCredential(user) == nil {
			return 0, fault.InvalidAuthToken
		}
	}
	return user, nil
}

// serverKey marks the context of a server's own requests.
type serverKey struct{}

func own(ctx context.Context) context.Context { return context.WithValue(ctx, serverKey{}, true) }

// catchUp waits until this server has applied all changes of users and roles that were acknowledged.
func (p *rigProcess) catchUp(ctx context.Context) error {
	for begun := time.Now(); ; time.Sleep(10 * time.Millisecond) {
		done := make(chan error, 1)
		p.State().Replica.ReadPoint(placement.Of(0), func(err error) { done <- err })
		select {
		case err := <-done:
			if !fault.Passing(err) || p.down.Load() || time.Since(begun) > 3*sidecarTimeout {
				return err
			}
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// checkRights holds what an app was answered against its user's rights: what took effect it had the rights for at that place in
// the log, and for what was answered or refused there were rights, or were none, at a time between request and answer.
func (a *app) checkRights() {
	for _, x := range append(append([]*ask(nil), a.asks...), a.w.loose[a]...) {
		b, allowed := &a.w.rules, func(r *rule) bool { return r.allows(a, x) }
		from := x.at
		if x.kind == "watch" || x.level != sdk.Strict && (x.kind == "get" || x.kind == "look") {
			from = time.Time{} // what its server knew
		}
		if e := a.effect(x); e != 0 && !b.at(a.w.ledger.rights[e]).allows(a, x) {
			a.found(x, "it took effect at %d, where its user had no right to it", e)
		}
		switch {
		case !x.done || x.kind == "cancel" || x.kind == "sync" || x.kind == "progress": // which tell revisions, as everybody is told
		case x.err == nil && !b.any(from, x.heard, allowed):
			a.found(x, "its user had no right to it")
		case denied(x.err) && !b.any(from, x.heard, func(r *rule) bool { return !r.allows(a, x) }):
			a.found(x, "its user had the right to it")
		}
	}
	for _, n := range a.notes {
		if v := a.viewOf(n.Watch); v != nil && v.kind == "watch" {
			a.checkSight(v, n)
		}
	}
}

// mayLack tells whether a request, whatever it was answered with, may have been refused for lack of a right.
func (a *app) mayLack(x *ask) bool {
	return a.w.rules.any(x.at, x.heard, func(r *rule) bool { return !r.allows(a, x) })
}

// checkSight: nothing comes of what stands behind the end of a right, unless there is one again, and a watch ends only without one.
func (a *app) checkSight(v *viewed, n note) {
	b := &a.w.rules
	for _, e := range n.Events {
		at := a.w.ledger.rights[e.Kv.ModRevision]
		if !b.any(time.Time{}, n.at, func(r *rule) bool { return (r.Revision >= at || r == b.at(at)) && r.allows(a, v.ask) }) {
			a.found(v.ask, "it brings an event of revision %d, and its user had no right to it any more", e.Kv.ModRevision)
		}
	}
	if denied(n.Err) && !b.any(v.at, n.at, func(r *rule) bool { return !r.allows(a, v.ask) }) {
		a.found(v.ask, "it has ended with %v, and its user had the right to it", n.Err)
	}
}

// refused tells whether an error is that of a user who lacks a right, or whose session had to end: checkRights looks whether the
// former was right.
func (a *app) refused(err error, at time.Time) bool {
	end := a.s.Err()
	ended := end != nil && !errors.Is(end, sdk.ErrSessionExpired) && errors.Is(err, end)
	return a.w.plan.Users && denied(err) || ended && a.barred(at)
}

// denied tells whether a request, or a watch, was refused for lack of a right.
func denied(err error) bool {
	return errors.Is(err, rpctypes.ErrPermissionDenied) || err != nil && strings.HasSuffix(err.Error(), "the watch was canceled: permission denied")
}

package sim

import (
	"errors"
	"slices"
	"time"

	"google.golang.org/protobuf/proto"

	"go.etcd.io/etcd/api/v3/authpb"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"

	"github.com/stoa-kv/stoa/internal/auth"
	"github.com/stoa-kv/stoa/internal/fault"
)

// rights are those of the users with few of them, at one time of the log.
type rights struct {
	revision     uint64          // of users and roles
	since, until time.Duration   // the first server had them, and those that came next
	free         bool            // permissions aren't enforced, or not yet as this revision began
	of           map[string]held // by user; none for one who isn't there
}

// held are the permissions of a user with a credential.
type held struct {
	id         uint64
	credential uint64
	perms      []*authpb.Permission
}

// note takes note of rights that a server has come to.
func (s *steward) note(l *life, now *auth.State) {
	if s == nil {
		return
	}
	if l.had = append(l.had, now.Revision); now.Revision <= s.newest() {
		return
	}
	at := s.c.loop.now
	s.rights[len(s.rights)-1].until = at
	r := &rights{revision: now.Revision, since: at, until: never, free: !now.Enabled, of: map[string]held{}}
	for i := range fewUsers {
		u := now.User(fewName(i))
		if u == nil {
			continue
		}
		perms := []*authpb.Permission{}
		for _, role := range u.Roles {
			if has := now.Role(role); has != nil {
				perms = append(perms, has.Permissions...)
			}
		}
		r.of[u.Name] = held{u.ID, u.Credential, perms}
	}
	s.rights = append(s.rights, r)
}

// at are the rights of a revision of users and roles.
func (s *steward) at(revision uint64) *rights {
	i, _ := slices.BinarySearchFunc(s.rights, revision, func(r *rights, rev uint64) int { return int(int64(r.revision) - int64(rev)) })
	return s.rights[i]
}

// covers reports whether permissions of a kind, taken together, cover a range: a key that is in none of them would be the first
// of the range, or the one at which one of them ends.
func covers(perms []*authpb.Permission, kind authpb.Permission_Type, key, end []byte) bool {
	points := [][]byte{key}
	for _, p := range perms {
		if at := endOf(p); len(end) > 0 && at != nil && inRange(at, key, end) {
			points = append(points, at)
		}
	}
	return !slices.ContainsFunc(points, func(at []byte) bool {
		return !slices.ContainsFunc(perms, func(p *authpb.Permission) bool {
			return (p.PermType == kind || p.PermType == authpb.Permission_READWRITE) && inRange(at, p.Key, p.RangeEnd)
		})
	})
}

// endOf is the first key behind a permission, nil for none.
func endOf(p *authpb.Permission) []byte {
	switch {
	case len(p.RangeEnd) == 0:
		return append(slices.Clone(p.Key), 0)
	case string(p.RangeEnd) == "\x00":
		return nil
	}
	return p.RangeEnd
}

// verdict says whether a request is allowed.
type verdict int

const (
	no verdict = iota
	either
	yes
)

// claim is a request of a user, at a time of the log and in a state of the keys.
type claim struct {
	c     *cluster
	user  *fewUser
	perms []*authpb.Permission
	keys  state
}

func (q claim) reads(key, end []byte) verdict {
	return allowed(covers(q.perms, authpb.Permission_READ, key, end))
}
func (q claim) writes(key, end []byte) verdict {
	return allowed(covers(q.perms, authpb.Permission_WRITE, key, end))
}

func allowed(so bool) verdict {
	if so {
		return yes
	}
	return no
}

// allows says whether rights allow a user's request.
func (c *cluster) allows(r *rights, o *op, keys state) verdict {
	has := r.of[o.few.name]
	switch {
	case r.free:
		return either
	case !o.by(has.credential):
		return no
	}
	q := claim{c, o.few, has.perms, keys}
	v := q.demands(o.req)
	if o.who != "" {
		v = min(v, q.extended(o))
	}
	if len(o.again) > 0 {
		v = min(v, either) // by the others it is refused
	}
	return v
}

// by reports whether a request was sent with a credential.
func (o *op) by(credential uint64) bool {
	return credential != 0 && (credential == o.user || slices.Contains(o.again, credential))
}

func (q claim) demands(req proto.Message) verdict {
	switch r := req.(type) {
	case *pb.RangeRequest:
		return q.reads(r.Key, r.RangeEnd)
	case *pb.WatchCreateRequest:
		return q.reads(r.Key, r.RangeEnd)
	case *pb.PutRequest:
		return min(q.changes(r.Key, nil, r.PrevKv), q.attaches(r.Lease))
	case *pb.DeleteRangeRequest:
		return q.changes(r.Key, r.RangeEnd, r.PrevKv)
	case *pb.TxnRequest:
		return q.txn(r)
	case *pb.LeaseRevokeRequest:
		return q.ends(r.ID)
	case *pb.LeaseKeepAliveRequest:
		return min(q.ends(r.ID), q.renews(r.ID))
	case *pb.LeaseGrantRequest:
		return yes
	}
	return no // root's
}

func (q claim) changes(key, end []byte, prev bool) verdict {
	v := q.writes(key, end)
	if prev {
		v = min(v, q.reads(key, end))
	}
	return v
}

// txn is all that is in it, whichever way it goes.
func (q claim) txn(r *pb.TxnRequest) verdict {
	v := yes
	for _, c := range r.Compare {
		v = min(v, q.reads(c.Key, c.RangeEnd))
	}
	for _, do := range slices.Concat(r.Success, r.Failure) {
		v = min(v, q.demands(part(do)))
	}
	return v
}

// attaches: a lease takes all its keys along, so a user who attaches one may write the others, or was granted the lease. Then a
// server may refuse because of keys that it happens to see.
func (q claim) attaches(id int64) verdict {
	v := q.ends(id)
	if id < sessionLeases && v == no && q.c.steward.owners[id] == q.user {
		return either
	}
	return v
}

// ends is disposes, but where leases end in steps. Then one may be on its way to its end: its owner goes on with that, or is told
// that there is nothing to renew, and the session that it belonged to is gone.
func (q claim) ends(id int64) verdict {
	v := q.disposes(id)
	if own := q.c.steward.owners[id] == q.user; q.c.has.steps && v == no && (own || id >= sessionLeases && q.writesKeys(id) == yes) {
		return either
	}
	return v
}

// renews: the lease of a session that is gone has keys yet where leases end in steps, and they are looked at.
func (q claim) renews(id int64) verdict {
	if q.c.has.steps && id >= sessionLeases {
		return either
	}
	return yes
}

// disposes: who ends or renews a lease may write all its keys. That of a session is its user's.
func (q claim) disposes(id int64) verdict {
	switch {
	case id == 0:
		return yes
	case id >= sessionLeases:
		return allowed(q.c.steward.owners[id] == q.user)
	}
	return q.writesKeys(id)
}

func (q claim) writesKeys(id int64) verdict {
	for _, kv := range q.keys {
		if kv.Lease == id && q.writes(kv.Key, nil) == no {
			return no
		}
	}
	return yes
}

// between are the rights that may have been those of a request: a strict one, and each that writes, has those of a time between
// request and answer, others those that their server knows.
func (s *steward) between(o *op) (all []*rights) {
	strict := o.strict || !isRead(o.req)
	for _, r := range s.rights {
		if r.since <= o.ret && (strict && r.until > o.call || !strict && r.revision >= o.knew) {
			all = append(all, r)
		}
	}
	return all
}

// among are the states of the keys at that time. A renewal has no revision, and is not behind what nobody has been told of yet,
// though a later revision in another partition has been seen: the leader looks at the keys as it has executed them.
func (p *past) among(o *op) []state {
	if o.who == "" && len(o.leases()) == 0 {
		return []state{nil}
	}
	from := p.index(o.floor)
	if _, renews := o.req.(*pb.LeaseKeepAliveRequest); renews {
		unseen := slices.IndexFunc(p.revisions[:from], func(r *revision) bool { return r.at > o.call })
		if unseen >= 0 {
			from = unseen
		}
	}
	to := from
	for to < len(p.revisions) && p.revisions[to].latest <= o.ret {
		to++
	}
	return p.states[from : to+1]
}

// mayHaveFound reports whether a request may have found rights with which a verdict is so.
func (c *cluster) mayHaveFound(p *past, o *op, so func(verdict) bool) bool {
	keys := p.among(o)
	return slices.ContainsFunc(c.steward.between(o), func(r *rights) bool {
		return slices.ContainsFunc(keys, func(k state) bool { return so(c.allows(r, o, k)) })
	})
}

// mayHave reports whether a user had the rights for what would be a revision, at its place in the log.
func (c *cluster) mayHave(p *past, o *op, r *revision) bool {
	if o.few == nil {
		return true
	}
	then := c.steward.at(r.rights)
	return then.until > o.call && c.allows(then, o, p.at(r.rev-1)) != no
}

// checkRights: what users with few rights were answered is what they had rights for, at some time between request and answer; what
// took effect they had the rights for at that place; and what was refused for lack of a right lacked it.
func (c *cluster) checkRights(p *past) {
	if c.steward == nil {
		return
	}
	for _, o := range c.history {
		if o.few == nil || c.failure != nil {
			continue
		}
		switch r := c.ledger.revisions[o.effect]; {
		case r != nil && !c.mayHave(p, o, r):
			c.fail("rights", "%s of %s took effect at revision %d, where it had no right to it", o, o.few.name, o.effect)
		case o.state == ok && !o.nothing() && !c.mayHaveFound(p, o, func(v verdict) bool { return v != no }):
			c.fail("rights", "%s of %s was answered with %v, and it had no right to it", o, o.few.name, o.content)
		case o.state == ok:
			c.stats.Allowed++
		case o.state == refused && noRights(o.err) && !c.mayHaveFound(p, o, func(v verdict) bool { return v != yes }):
			c.fail("rights", "%s of %s was refused, and it had the right to it: %v", o, o.few.name, o.err)
		case o.state == refused && noRights(o.err):
			c.stats.Forbidden++
		case o.state == refused && o.saysMore() && !c.mayHaveFound(p, o, func(v verdict) bool { return v != no }):
			c.fail("rights", "%s of %s, which had no right to it, was answered with %v", o, o.few.name, o.err)
		}
	}
}

// tells reports an error of which a user without rights would learn something.
func tells(err error) bool {
	for _, f := range [...]error{fault.KeyNotFound, fault.LeaseNotFound, fault.Compacted, fault.FutureRevision, fault.BadExtension, fault.NoExtension, fault.ExtensionDisabled} {
		if errors.Is(err, f) {
			return true
		}
	}
	return false
}

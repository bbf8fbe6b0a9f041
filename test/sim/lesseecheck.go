package sim

import (
	"errors"
	"maps"
	"slices"
	"time"

	"google.golang.org/protobuf/proto"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"

	"github.com/stoa-kv/stoa/internal/fault"
)

// What clients are told of leases is held against the history, in which grants and revocations are, and against the grants
// and renewals that were acknowledged before: none may be lost, whoever leads. A request that was sent once a server had
// applied something must see that, and none may see what no server has applied by its answer.

// ofLeases reports requests whose answers checkLooks judges.
func ofLeases(m proto.Message) bool {
	switch m.(type) {
	case *pb.LeaseKeepAliveRequest, *pb.LeaseTimeToLiveRequest, *pb.LeaseLeasesRequest:
		return true
	}
	return false
}

// tenancy is all that is known of one lease.
type tenancy struct {
	id              int64
	ttl             time.Duration
	granted         time.Duration // when a server first applied that, as all below; -1: never
	revoked, ending time.Duration // or forever
	prolonged       []*op         // what was asked for its grant and renewals
}

const forever = time.Duration(1<<63 - 1)

// ends notes the first step of the end of a lease.
func (c *cluster) ends(id int64) {
	if _, known := c.ending[id]; !known {
		c.ending[id] = c.loop.now
	}
}

// tenancies are the leases of clients without sessions.
func (c *cluster) tenancies() map[int64]*tenancy {
	all := map[int64]*tenancy{}
	of := func(id int64) *tenancy {
		if all[id] == nil {
			t := &tenancy{id: id, granted: -1, revoked: forever, ending: forever}
			if at, is := c.ending[id]; is {
				t.ending = at
			}
			all[id] = t
		}
		return all[id]
	}
	for _, e := range c.ledger.systems {
		switch {
		case e.granted != 0:
			t := of(e.granted)
			t.granted, t.ttl = e.at, time.Duration(e.ttl)*time.Second
		case e.revoked != 0:
			of(e.revoked).revoked = e.at
		}
	}
	for _, o := range c.history {
		switch r := o.req.(type) {
		case *pb.LeaseGrantRequest:
			of(r.ID).prolonged = append(of(r.ID).prolonged, o)
		case *pb.LeaseKeepAliveRequest:
			of(r.ID).prolonged = append(of(r.ID).prolonged, o)
		}
	}
	return all
}

// least is how long a lease lasts at least, by what had been acknowledged when a request was sent.
func (t *tenancy) least(o *op) (end time.Duration) {
	for _, p := range t.prolonged {
		if p.state == ok && p.ret < o.call {
			end = max(end, p.call+t.ttl)
		}
	}
	return end
}

// longest is how long it lasts at most, by what can have taken effect before a request was answered: a new leader gives it all of
// its time again, and that of an election.
func (c *cluster) longest(t *tenancy, o *op) (end time.Duration) {
	for _, p := range t.prolonged {
		switch {
		case p.state == refused || p.call > o.ret:
		case p.state == ok:
			end = max(end, p.ret)
		default:
			end = o.ret
		}
	}
	for _, at := range c.promoted {
		if at <= o.ret {
			end = max(end, at)
		}
	}
	return min(end, o.ret) + t.ttl + electionTicks*tickInterval
}

// checkLooks: what was answered of leases is so at a moment between request and answer.
func (c *cluster) checkLooks(p *past) {
	all, history := c.tenancies(), p.attachments()
	for _, o := range c.history {
		if c.failure != nil {
			return
		}
		switch r := o.req.(type) {
		case *pb.LeaseKeepAliveRequest:
			if t := all[r.ID]; o.state != open && !slices.Contains(c.odd, r.ID) {
				c.checkRenewal(o, t)
			}
		case *pb.LeaseTimeToLiveRequest:
			if t := all[r.ID]; o.state == ok && t != nil && !slices.Contains(c.odd, r.ID) {
				c.stats.Looks++
				c.checkLook(history, o, t)
			}
		case *pb.LeaseLeasesRequest:
			if o.state == ok {
				c.checkList(o, all)
			}
		}
	}
}

func (c *cluster) checkRenewal(o *op, t *tenancy) {
	switch r, _ := o.resp.(*pb.LeaseKeepAliveResponse); {
	case o.state == ok && time.Duration(r.GetTTL())*time.Second != t.ttl:
		c.fail("lease", "%s is answered with %d s", o, r.GetTTL())
	case errors.Is(o.err, fault.LeaseNotFound) && min(t.revoked, t.ending, t.least(o)) > o.ret:
		c.fail("lease", "%s finds no lease; it lasts until %v, and nothing has revoked it", o, t.least(o))
	}
}

func (c *cluster) checkLook(history map[string][]attachment, o *op, t *tenancy) {
	r := o.resp.(*pb.LeaseTimeToLiveResponse)
	least, most := t.least(o), c.longest(t, o)
	left := time.Duration(r.TTL) * time.Second // less than a second more than that
	floor := left
	if r.TTL <= 0 { // or, once it is over, less than a second less
		floor -= time.Second
	}
	switch {
	case r.ID != t.id:
		c.fail("lease", "%s is answered with %v", o, r)
	case r.GrantedTTL == 0 && r.TTL == -1 && len(r.Keys) == 0:
		if t.revoked > o.ret && t.granted >= 0 && t.granted < o.call {
			c.fail("lease", "%s finds no lease; nothing has revoked it", o)
		}
	case t.granted < 0 || t.granted > o.ret || t.revoked < o.call:
		c.fail("lease", "%s is answered with %v; the lease was granted at %v and revoked at %v", o, r, t.granted, t.revoked)
	case time.Duration(r.GrantedTTL)*time.Second != t.ttl:
		c.fail("lease", "%s is answered with %v; the lease was granted with %v", o, r, t.ttl)
	case t.ending < o.call && r.TTL > 0:
		c.fail("lease", "%s is answered with %v; the lease has been over since %v", o, r, t.ending)
	case t.ending > o.ret && left+time.Second <= least-o.ret:
		c.fail("lease", "%s is answered with %v at %v; the lease lasts until %v, as was acknowledged", o, r, o.ret, least)
	case floor > most-o.call:
		c.fail("lease", "%s is answered with %v at %v; the lease lasts until %v at most", o, r, o.ret, most)
	case o.req.(*pb.LeaseTimeToLiveRequest).Keys:
		c.checkAttached(history, o, t.id, r.Keys)
	case len(r.Keys) > 0:
		c.fail("lease", "%s is answered with %v: nobody has asked for keys", o, r)
	}
}

// checkAttached: each key was attached or not at a moment of the request, and of two that are only written together both were or none.
// (Writes to different keys that are under way at once need not be seen in the order of their revisions.)
func (c *cluster) checkAttached(history map[string][]attachment, o *op, id int64, keys [][]byte) {
	told := map[string]bool{}
	for i, key := range keys {
		told[string(key)] = true
		if i > 0 && string(keys[i-1]) >= string(key) {
			c.fail("lease", "%s is answered with keys out of order: %q", o, keys)
		}
	}
	for _, key := range slices.Sorted(maps.Keys(history)) {
		if !attached(o, id, history[key], told[key]) {
			c.fail("lease", "%s is answered with the keys %q; about %s that was so at no time", o, keys, key)
		}
		delete(told, key)
	}
	if len(told) > 0 {
		c.fail("lease", "%s is answered with the keys %q; some have never been", o, keys)
	}
	for _, pair := range c.keys.pairs {
		if has := func(key string) bool {
			return slices.ContainsFunc(keys, func(k []byte) bool { return string(k) == key })
		}; has(pair[0]) != has(pair[1]) {
			c.fail("lease", "%s is answered with the keys %q: half of a pair", o, keys)
		}
	}
}

// attachment is what a revision has made of a key: the lease that it belongs to.
type attachment struct {
	*revision
	to int64
}

// attachments are those of each key, in order.
func (p *past) attachments() map[string][]attachment {
	all := map[string][]attachment{}
	for i, r := range p.revisions {
		for _, ch := range r.changes {
			key := string(ch.Kv.Key())
			all[key] = append(all[key], attachment{r, p.states[i+1].get(key).GetLease()})
		}
	}
	return all
}

// attached reports whether there was a moment of a request at which a key was attached to a lease, or wasn't.
func attached(o *op, id int64, history []attachment, want bool) bool {
	possible := !want
	for _, a := range history {
		is := a.to == id
		switch {
		case a.at > o.ret:
		case a.rev <= o.floor || a.at < o.call:
			possible = is == want
		default:
			possible = possible || is == want
		}
	}
	return possible
}

// checkList: each lease is in a list or isn't, as it was at a moment of the request.
func (c *cluster) checkList(o *op, all map[int64]*tenancy) {
	listed, last := map[int64]bool{}, int64(0)
	for _, l := range o.resp.(*pb.LeaseLeasesResponse).Leases {
		if l.ID <= last || l.ID >= sessionLeases {
			c.fail("lease", "%s is answered with %v", o, o.resp)
		}
		listed[l.ID], last = true, l.ID
	}
	for id, t := range all {
		over := min(t.revoked, t.ending)
		switch {
		case id >= sessionLeases:
		case listed[id] && (t.granted < 0 || t.granted > o.ret || over < o.call):
			c.fail("lease", "%s lists %d; it was granted at %v, and was over at %v", o, id, t.granted, over)
		case !listed[id] && t.granted >= 0 && t.granted < o.call && over > o.ret:
			c.fail("lease", "%s doesn't list %d; it was granted at %v, and not revoked", o, id, t.granted)
		}
		delete(listed, id)
	}
	for id := range listed {
		c.fail("lease", "%s lists %d; there is no such lease", o, id)
	}
}

package sim

import (
	"errors"
	"slices"
	"sort"

	"google.golang.org/protobuf/proto"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"

	"github.com/stoa-kv/stoa/internal/fault"
)

// past is the history as a sequential etcd would have executed it.
type past struct {
	c         *cluster
	revisions []*revision
	states    []state // states[i] is after revisions[:i]
}

func (g *ledger) past() *past {
	p := &past{c: g.c, revisions: g.ordered, states: []state{{}}}
	now := state{}
	for _, r := range p.revisions {
		next := slices.Clone(now)
		for _, ch := range r.changes {
			if isNotice(ch) {
				continue
			}
			if ch.Delete {
				next.remove(ch.Kv.Key())
			} else {
				next.put(ch.Kv.Message())
			}
		}
		p.states = append(p.states, next)
		now = next
	}
	for i, r := range slices.Backward(p.revisions) {
		r.latest = r.at
		if i+1 < len(p.revisions) {
			r.latest = min(r.at, p.revisions[i+1].latest)
		}
	}
	return p
}

// at returns the state at a revision.
func (p *past) at(rev int64) state { return p.states[p.index(rev)] }

// index is the number of revisions up to rev.
func (p *past) index(rev int64) int {
	return sort.Search(len(p.revisions), func(i int) bool { return p.revisions[i].rev > rev })
}

// rightsOf are those with which a revision took effect; nil: there are no users with few rights.
func (p *past) rightsOf(r *revision) *rights {
	if p.c.steward == nil {
		return nil
	}
	return p.c.steward.at(r.rights)
}

func (p *past) evaluate(at, writes int64, o *op) (proto.Message, *evaluation) {
	return p.evaluateSome(at, writes, o, 0)
}

// evaluateSome is evaluate, but the end of a lease deletes at most so many of its keys; 0: all.
func (p *past) evaluateSome(at, writes int64, o *op, most int) (proto.Message, *evaluation) {
	e := &evaluation{keys: p.at(at), began: p.at(at), rev: writes, old: p.at, who: o.who, carries: o.carries, as: o.as, most: most}
	if r := p.c.ledger.revisions[writes]; r != nil && writes > at { // else nothing is written, perhaps later than r
		e.rights, e.bounds = p.rightsOf(r), p.boundsOf(r)
	}
	if p.plain(o) {
		e.who = ""
	}
	answer := e.call(o.req)
	if e.bounds.noSpace && takesSpace(o.req) {
		e.refused, e.barred, e.recovered = true, true, ""
	}
	if e.refused {
		e.changes = nil
	}
	e.follow(o.req)
	return answer, e
}

// check compares all answers and events with the committed history.
func (c *cluster) check() {
	p := c.ledger.past()
	c.stats.Revisions = len(p.revisions)
	for _, step := range []func(*past){
		c.checkRevisions, c.checkAnswers, c.checkOrigins, c.checkErrors, c.checkLeases, c.checkLooks, c.checkWatches, c.checkSessions, c.checkMultiKey, c.checkRegisters, c.checkExtensions, c.checkUsers, c.checkRights, c.checkSights, c.countHandled,
	} {
		if c.failure == nil {
			step(p)
		}
	}
}

// checkRevisions: dense with one partition, and nothing half (I1, I3).
func (c *cluster) checkRevisions(p *past) {
	for i, r := range p.revisions {
		if c.partitions == 1 && c.resizer == nil && r.rev != int64(i)+2 {
			c.fail("I1", "with one partition revision %d follows %d writes", r.rev, i)
		}
		for _, pair := range c.keys.pairs {
			if a, b := p.states[i+1].get(pair[0]), p.states[i+1].get(pair[1]); string(a.GetValue()) != string(b.GetValue()) {
				c.fail("I3", "revision %d (%s) leaves %s=%s and %s=%s", r.rev, describe(r.changes), pair[0], a.GetValue(), pair[1], b.GetValue())
			}
		}
	}
}

// checkErrors: a request is refused only for a reason.
func (c *cluster) checkErrors(p *past) {
	for _, o := range c.history {
		if o.state != refused {
			continue
		}
		switch {
		case errors.Is(o.err, fault.LeaseExists):
			c.fail("I1", "%s was carried out twice: its lease exists", o)
		case c.has.space && o.who != "" && errors.Is(o.err, fault.QuotaExceeded) && !overRate(o.err) && !p.mayNotFit(o):
			c.fail("quotas", "%s was refused, and would have fitted: %v", o, o.err)
		case errors.Is(o.err, errOrdinary) && !p.ordinary(o, keyOf(o), o.floor):
			c.fail("I5", "%s is taken for an ordinary watch, and is an extension's", o)
		case errors.Is(o.err, fault.LeaseNotFound) && !c.mayBeRevoked(o):
			c.fail("I5", "%s finds no lease, but no client has revoked it", o)
		case errors.Is(o.err, fault.Compacted) && !c.mayBeCompacted(oldest(o)):
			c.fail("I2", "%s is told that its revision is compacted; no client has compacted it", o)
		}
	}
}

// oldest is the lowest compaction that can be in a request's way.
func oldest(o *op) int64 {
	switch r := o.req.(type) {
	case *pb.RangeRequest:
		return r.Revision + 1
	case *pb.CompactionRequest:
		return r.Revision
	}
	return 0
}

// mayBeCompacted reports whether a client requested a compaction at rev or
// later.
func (c *cluster) mayBeCompacted(rev int64) bool {
	if rev <= c.compacted {
		return true
	}
	for _, o := range c.history {
		if r, is := o.req.(*pb.CompactionRequest); is && r.Revision >= rev {
			return true
		}
	}
	return false
}

// mayBeRevoked reports whether another client requested the revocation of a
// lease that o uses.
func (c *cluster) mayBeRevoked(o *op) bool {
	ids := map[int64]bool{o.carries: true}
	switch r := o.req.(type) {
	case *pb.PutRequest:
		ids[r.Lease] = true
	case *pb.LeaseRevokeRequest:
		ids[r.ID] = true
	case *pb.LeaseKeepAliveRequest:
		return true // it may have expired and not be revoked yet
	case *pb.TxnRequest:
		addLeases(ids, r)
	}
	for _, other := range c.history {
		if r, is := other.req.(*pb.LeaseRevokeRequest); is && other != o && ids[r.ID] {
			return true
		}
	}
	return false
}

// addLeases adds those that a transaction may attach keys to.
func addLeases(ids map[int64]bool, r *pb.TxnRequest) {
	for _, do := range slices.Concat(r.Success, r.Failure) {
		ids[do.GetRequestPut().GetLease()] = true
		if in := do.GetRequestTxn(); in != nil {
			addLeases(ids, in)
		}
	}
}

func (c *cluster) checkWatches(p *past) {
	for _, d := range c.finished {
		c.checkWatch(p, d)
	}
	for _, w := range c.watchers {
		for _, d := range w.watches {
			c.checkWatch(p, d)
		}
	}
	for _, cl := range c.sessions {
		for _, s := range cl.past {
			for _, w := range s.watches {
				c.checkWatch(p, w.watched)
			}
		}
	}
}

package sim

import (
	"bytes"
	"errors"
	"slices"

	"google.golang.org/protobuf/proto"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"

	"github.com/stoa-kv/stoa/internal/fault"
	"github.com/stoa-kv/stoa/internal/store"
)

// checkAnswers: each answer is what a sequential etcd would have given at the
// revision in its header, and each write that was acknowledged is in the
// history (I1, I2, I5).
func (c *cluster) checkAnswers(p *past) {
	for _, o := range c.history {
		if ofLeases(o.req) || o.state != ok || c.failure != nil {
			continue
		}
		want, e := p.evaluate(o.rev, o.rev, o)
		if len(e.changes) == 0 && proto.Equal(want, o.content) {
			// It has changed nothing, unless it is what changed it to be so; see
			// checkOrigins.
			continue
		}
		r := c.ledger.revisions[o.rev]
		switch {
		case r != nil && r.by == nil && c.wrote(p, o, r):
			c.attribute(o, r)
		case len(e.changes) > 0:
			c.fail("I5", "%s was acknowledged at revision %d, where the history has: %s", o, o.rev, c.what(o.rev))
		default:
			c.fail("I2", "%s was answered at revision %d with %v; at that revision it is %v", o, o.rev, o.content, want)
		}
	}
}

// explains reports whether a revision is exactly the effect of a request at its
// place, and what its answer is there.
func (c *cluster) explains(p *past, o *op, r *revision) (proto.Message, bool) {
	most := 0
	if _, is := o.req.(*pb.LeaseRevokeRequest); is && c.has.steps {
		for _, ch := range r.changes {
			if ch.Delete {
				most++
			}
		}
	}
	answer, e := p.evaluateSome(r.rev-1, r.rev, o, most)
	return answer, len(e.changes) > 0 && sameChanges(e.changes, r.changes)
}

// wrote reports whether a request's answer is right if it is the revision's
// origin.
func (c *cluster) wrote(p *past, o *op, r *revision) bool {
	want, is := c.explains(p, o, r)
	return is && proto.Equal(want, o.content)
}

func (c *cluster) attribute(o *op, r *revision) {
	if r.rev <= o.floor {
		c.fail("I1", "%s took effect at revision %d, after a client was shown revision %d", o, r.rev, o.floor)
	}
	r.by, o.effect = o, r.rev
}

func (c *cluster) what(rev int64) string {
	if r := c.ledger.revisions[rev]; r != nil {
		return describe(r.changes)
	}
	return "nothing"
}

// checkOrigins: unacknowledged requests took effect at most once, and every
// revision has a request as its origin. Deletions may have several possible
// origins, so it takes a matching to find out whether all have one. A call that a quota refuses may end the count of failures of its
// extension, which only one has.
func (c *cluster) checkOrigins(p *past) {
	var candidates []*op
	for _, o := range c.history {
		if o.effect == 0 && (o.state != refused || keyOf(o) == "/x/hog" && errors.Is(o.err, fault.QuotaExceeded)) && !o.reads() {
			candidates = append(candidates, o)
		}
	}
	match := map[*op]*revision{}
	for _, r := range p.revisions {
		if r.by != nil {
			continue
		}
		if !c.assign(p, r, candidates, match, map[*op]bool{}) {
			c.fail("I1", "revision %d (%s) is nothing that a client asked for and that isn't done at another revision", r.rev, describe(r.changes))
			return
		}
	}
	for _, o := range candidates {
		if r := match[o]; r != nil {
			c.attribute(o, r)
		}
	}
}

// assign finds a revision's origin; requests that are taken move to another
// revision if they can, and if there is none that is free: thousands of increments may be exchanged.
func (c *cluster) assign(p *past, r *revision, from []*op, match map[*op]*revision, tried map[*op]bool) bool {
	for _, o := range from {
		if match[o] == nil && !tried[o] && c.may(p, o, r) {
			match[o] = r
			return true
		}
	}
	for _, o := range from {
		if match[o] == nil || tried[o] || !c.may(p, o, r) {
			continue
		}
		tried[o] = true
		if c.assign(p, match[o], from, match, tried) {
			match[o] = r
			return true
		}
	}
	return false
}

// may reports whether a request can be a revision's origin.
func (c *cluster) may(p *past, o *op, r *revision) bool {
	switch {
	case r.rev <= o.floor || r.latest < o.call:
		return false
	case len(r.changes) > 0 && !o.makes(r.changes[0]):
		return false
	case !c.mayHave(p, o, r):
		return false
	case o.state == ok:
		return o.rev == r.rev && c.wrote(p, o, r)
	}
	_, is := c.explains(p, o, r)
	return is
}

// makes reports whether the first change of a request can be this one. It spares most revisions that a request
// hasn't brought about the evaluation that would say so.
func (o *op) makes(ch store.Change) bool {
	key := ch.Kv.Key()
	switch r := o.req.(type) {
	case *pb.PutRequest:
		return puts(r, ch) || o.extended(r.Key)
	case *pb.DeleteRangeRequest:
		return ch.Delete && inRange(key, r.Key, r.RangeEnd) || o.extended(r.Key)
	case *pb.TxnRequest:
		return mayMake(r.Success, ch) || mayMake(r.Failure, ch)
	case *pb.WatchCreateRequest:
		return bytes.HasPrefix(key, []byte("/x/")) || bytes.HasPrefix(key, []byte(manager))
	case *pb.LeaseRevokeRequest:
		return ch.Delete
	}
	return true
}

// puts reports whether a put can make a change.
func puts(r *pb.PutRequest, ch store.Change) bool {
	return !ch.Delete && bytes.Equal(ch.Kv.Key(), r.Key) && (r.IgnoreValue || bytes.Equal(ch.Kv.Value(), r.Value))
}

// mayMake reports whether one of some operations can make a change.
func mayMake(ops []*pb.RequestOp, ch store.Change) bool {
	return slices.ContainsFunc(ops, func(do *pb.RequestOp) bool {
		switch o := do.Request.(type) {
		case *pb.RequestOp_RequestPut:
			return puts(o.RequestPut, ch)
		case *pb.RequestOp_RequestDeleteRange:
			return ch.Delete && inRange(ch.Kv.Key(), o.RequestDeleteRange.Key, o.RequestDeleteRange.RangeEnd)
		case *pb.RequestOp_RequestTxn:
			return mayMake(o.RequestTxn.Success, ch) || mayMake(o.RequestTxn.Failure, ch)
		}
		return false
	})
}

// extended reports whether a request for a key may do something else than it says.
func (o *op) extended(key []byte) bool {
	_, _, manages := managed(key)
	return o.who != "" && (manages || handlerOf(string(key)) != "")
}

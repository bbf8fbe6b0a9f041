package sim

import (
	"errors"
	"slices"
	"strings"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/protobuf/proto"

	stoapb "github.com/stoa-kv/stoa/api/stoa/v1"
	"github.com/stoa-kv/stoa/internal/auth"
	"github.com/stoa-kv/stoa/internal/fault"
	"github.com/stoa-kv/stoa/internal/session"
	"github.com/stoa-kv/stoa/internal/tenant"
)

// rates checks what a server admits by the rates of quotas, from outside of package tenant: by
// the requests, when they came in and when they were answered. A quota with rate r that is full
// at some moment admits no more than r·t + r requests in the time t from then on, what comes
// again over another stream included; and it refuses one only if it has admitted so many.
type rates struct {
	c       *cluster
	life    *life
	of      map[string]*ratedPrefix
	changed time.Duration
	open    []*takenIn // that the server has perhaps still to count
}

// ratedPrefix is a quota with a rate, from when it has been in force.
type ratedPrefix struct {
	prefix string
	rate   int64
	since  time.Duration
	full   bool // its bucket was, then; else that isn't known
	taken  []*takenIn
}

// takenIn is a request that was taken in, and not refused because of a rate.
type takenIn struct {
	user     uint64
	req      proto.Message
	from, to time.Duration // between which it was counted
	owed     bool          // it came again, and can't be refused
	counts   bool          // it is certain that it was counted
}

const never = time.Duration(1<<63 - 1)

// change takes note of the quotas that are in force now.
func (r *rates) change(now *auth.State) {
	r.open = slices.DeleteFunc(r.open, func(t *takenIn) bool { return t.to != never })
	before := r.of
	r.changed = r.c.loop.now
	r.of = map[string]*ratedPrefix{}
	if now.Rates() == nil {
		return
	}
	for _, q := range now.Quotas() {
		if q.Rate == 0 {
			continue
		}
		p := before[q.Prefix]
		if p == nil || p.rate != q.Rate {
			p = &ratedPrefix{prefix: q.Prefix, rate: q.Rate, since: r.c.loop.now, full: p == nil}
			for _, t := range r.open { // the server may count it yet
				if t.to == never && touches(t.req, p.prefix) {
					p.taken = append(p.taken, t)
				}
			}
		}
		r.of[q.Prefix] = p
	}
}

// certain reports that a user may do everything, and so all that it asks for counts.
func (r *rates) certain(user uint64) bool {
	u, err := r.life.core.machine.Auth().Authorize(user)
	return err == nil && u.MayRead([]byte{0}, []byte{0}) == nil && u.MayWrite([]byte{0}, []byte{0}) == nil
}

// takeIn is called before a request is carried out, by whoever isn't the server itself.
func (r *rates) takeIn(user uint64, req proto.Message, owed bool) *takenIn {
	t := &takenIn{user: user, req: req, from: r.c.loop.now, to: never, owed: owed, counts: r.certain(user)}
	r.open = append(r.open, t)
	for _, p := range r.of {
		if touches(req, p.prefix) {
			p.taken = append(p.taken, t)
		}
	}
	return t
}

// done is called once it has been carried out.
func (r *rates) done(t *takenIn) {
	t.to, t.counts = r.c.loop.now, t.counts && r.certain(t.user)
	if !t.counts || t.owed {
		return
	}
	for _, p := range r.of {
		if touches(t.req, p.prefix) {
			r.notTooMany(p, t)
		}
	}
}

// notTooMany: in no time up to now more requests were counted than the rate allows when this one
// was admitted.
func (r *rates) notTooMany(p *ratedPrefix, t *takenIn) {
	begin, n := t.from, int64(1)
	for i := len(p.taken) - 1; i >= 0; i-- {
		if o := p.taken[i]; o != t && o.counts && o.from >= p.since && o.to <= t.from {
			begin, n = min(begin, o.from), n+1
			if n*int64(time.Second) > p.rate*int64(t.to-begin+time.Second) {
				r.c.fail("rates", "server %d has admitted %d requests from %v to %v for prefix %q, whose rate is %d a second: %v",
					r.life.sv.id, n, begin, t.to, p.prefix, p.rate, t.req)
				return
			}
		}
	}
}

// refused takes a request back that was refused because of a rate. If it was the first of its
// session, one of the quotas must have been used up.
func (r *rates) refused(t *takenIn, first bool) {
	t.to = r.c.loop.now
	known, used := r.changed < t.from, false
	for _, p := range r.of {
		for i, o := range p.taken {
			if o == t {
				p.taken = append(p.taken[:i], p.taken[i+1:]...)
				break
			}
		}
		if touches(t.req, p.prefix) {
			known = known && p.full
			used = used || p.usedUp(t)
		}
	}
	if first && known && !used {
		r.c.fail("rates", "server %d has refused %v, which came at %v, and no quota of it was used up", r.life.sv.id, t.req, t.from)
	}
}

// usedUp reports whether there may have been so many requests that one more was too many.
func (p *ratedPrefix) usedUp(t *takenIn) bool {
	for _, begin := range append([]*takenIn{{from: p.since}}, p.taken...) {
		n := int64(1)
		for _, o := range p.taken {
			if o.to >= begin.from && o.from <= t.to {
				n++
			}
		}
		if n*int64(time.Second) > p.rate*int64(max(t.from-begin.from, 0)+time.Second) {
			return true
		}
	}
	return false
}

// rated refuses a request above the rate of a quota, as in package node.
func (l *life) rated(user uint64, req proto.Message) error {
	u, err := l.core.machine.Auth().Authorize(user)
	if err != nil || u == nil {
		return nil // it is refused where it takes effect, or has no limits
	}
	t := l.rates.takeIn(user, req, false)
	if err := l.limits.Admit(u, tenant.Request{Message: req}); err != nil {
		l.rates.refused(t, true)
		return err
	}
	l.rates.done(t)
	return nil
}

// takeIn tells of requests that the server takes out of a session's stream.
func (st *sessionStream) takeIn(list []*asking, seq uint64) {
	for i, a := range list {
		switch {
		case a.term == nil && a.few == nil:
			continue
		case a.kind == stoapb.Kind_KIND_UNSPECIFIED, a.kind == stoapb.Kind_CANCEL, a.kind == stoapb.Kind_CLOSE: // these have no limit
			continue
		}
		n := seq + uint64(i)
		st.taken[n] = st.life.rates.takeIn(a.user, a.req, n <= st.again)
	}
}

// bringsAlong tells of watches that a session brings along, which are never refused. When they are counted isn't certain.
func (st *sessionStream) bringsAlong(user uint64, watches []session.Item) {
	for i := range watches {
		st.life.rates.takeIn(user, watches[i].Message, true).counts = false
	}
}

// decided tells of the answer to one.
func (st *sessionStream) decided(seq uint64, err error) {
	t, over := st.taken[seq], overRate(err)
	if t == nil {
		return
	}
	switch {
	case over:
		st.life.rates.refused(t, !st.refused)
	case err == nil:
		st.life.rates.done(t)
	default:
		t.to, t.counts = st.cl.c.loop.now, false
	}
	st.refused = over
	delete(st.taken, seq)
}

func overRate(err error) bool {
	return errors.Is(err, fault.QuotaExceeded) && strings.Contains(err.Error(), "requests per second")
}

// touches reports whether a request has to do with a key under a prefix.
func touches(req proto.Message, prefix string) bool {
	in := func(key, end []byte) bool {
		switch {
		case len(end) == 0:
			return strings.HasPrefix(string(key), prefix)
		case len(end) == 1 && end[0] == 0: // to the last key
			return string(key) < prefix+"\xff"
		}
		return string(key) < prefix+"\xff" && string(end) > prefix
	}
	switch r := req.(type) {
	case *pb.PutRequest:
		return in(r.Key, nil)
	case *pb.DeleteRangeRequest:
		return in(r.Key, r.RangeEnd)
	case *pb.RangeRequest:
		return in(r.Key, r.RangeEnd)
	case *pb.WatchCreateRequest:
		return in(r.Key, r.RangeEnd)
	case *pb.TxnRequest:
		for _, c := range r.Compare {
			if in(c.Key, c.RangeEnd) {
				return true
			}
		}
		for _, op := range append(append([]*pb.RequestOp{}, r.Success...), r.Failure...) {
			if touches(part(op), prefix) {
				return true
			}
		}
	}
	return false
}

// part is the request of an operation of a transaction.
func part(op *pb.RequestOp) proto.Message {
	switch r := op.GetRequest().(type) {
	case *pb.RequestOp_RequestRange:
		return r.RequestRange
	case *pb.RequestOp_RequestPut:
		return r.RequestPut
	case *pb.RequestOp_RequestDeleteRange:
		return r.RequestDeleteRange
	}
	return op.GetRequestTxn()
}

package sim

import (
	"bytes"
	"slices"
	"time"

	"google.golang.org/protobuf/proto"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"

	"github.com/stoa-kv/stoa/internal/auth"
	"github.com/stoa-kv/stoa/internal/extension"
)

// What is refused for want of space, as a sequential server refuses it: under NOSPACE what puts a key, and what doesn't fit
// into a quota. A handler of an extension that would is refused alone, and the handler of an event loses its own changes.

// bounds are those of a place in the log.
type bounds struct {
	noSpace bool
	quotas  []auth.Quota
}

// boundsOf are those with which a revision took effect. Where the version changes, quotas aren't known: earlier ones count otherwise.
func (p *past) boundsOf(r *revision) (b bounds) {
	b.noSpace = r.noSpace
	if p.c.upgrader == nil && p.c.ledger.auths[r.rights] != nil {
		b.quotas = p.c.ledger.auths[r.rights].Quotas()
	}
	return b
}

// quotas are those that a server was the first to have at a time.
type quotas struct {
	since time.Duration
	list  []auth.Quota
}

// noteQuotas takes note of a state of users, roles and quotas.
func (g *ledger) noteQuotas(now *auth.State) {
	if g.auths[now.Revision] == nil {
		g.quotas = append(g.quotas, quotas{g.c.loop.now, now.Quotas()})
	}
	g.auths[now.Revision] = now
}

// quotasFor are those that a request may have found.
func (g *ledger) quotasFor(o *op) (all [][]auth.Quota) {
	for i, q := range g.quotas {
		if q.since <= o.ret && (i+1 == len(g.quotas) || g.quotas[i+1].since > o.call) {
			all = append(all, q.list)
		}
	}
	return all
}

// next is a revision behind all: no key is named after it.
func (p *past) next() int64 {
	if n := len(p.revisions); n > 0 {
		return p.revisions[n-1].rev + 1
	}
	return 1
}

// mayNotFit reports whether a request of a client of extensions, without what handlers of events add to it, didn't fit into the quotas
// at some time between request and answer.
func (p *past) mayNotFit(o *op) bool {
	for _, list := range p.c.ledger.quotasFor(o) {
		for _, keys := range p.among(o) {
			e := &evaluation{keys: keys, began: keys, rev: p.next(), old: p.at, who: o.who, carries: o.carries, as: o.as, bounds: bounds{quotas: list}}
			e.call(o.req)
			if e.follow(o.req); e.barred {
				return true
			}
		}
	}
	return false
}

func noSpace(list []*pb.AlarmMember) bool {
	return slices.ContainsFunc(list, func(a *pb.AlarmMember) bool { return a.GetAlarm() == pb.AlarmType_NOSPACE })
}

// takesSpace reports whether a request is refused under NOSPACE before it is looked at.
func takesSpace(req proto.Message) bool {
	switch r := req.(type) {
	case *pb.PutRequest:
		return true
	case *pb.TxnRequest:
		return slices.ContainsFunc(slices.Concat(r.Success, r.Failure), func(do *pb.RequestOp) bool {
			return do.GetRequestPut() != nil || do.GetRequestTxn() != nil && takesSpace(do.GetRequestTxn())
		})
	}
	return false
}

// fits reports whether what there is now, in the place of what there was before the request, is within the quotas. What doesn't
// grow is.
func (e *evaluation) fits() bool {
	return !slices.ContainsFunc(e.bounds.quotas, func(q auth.Quota) bool {
		if q.Keys == 0 && q.Bytes == 0 {
			return false
		}
		before, now := e.began.size(q.Prefix), e.keys.size(q.Prefix)
		return q.Keys > 0 && now.Keys > before.Keys && now.Keys > q.Keys || q.Bytes > 0 && now.Bytes > before.Bytes && now.Bytes > q.Bytes
	})
}

// size is what the keys with a prefix take, but for those of extensions themselves.
func (s state) size(prefix string) (sum auth.Limits) {
	for _, kv := range s {
		if bytes.HasPrefix(kv.Key, []byte(prefix)) && !extension.Touches(kv.Key, nil) {
			sum.Keys++
			sum.Bytes += int64(len(kv.Key) + len(kv.Value))
		}
	}
	return sum
}

// attempt lets a handler change keys, and takes that back if there is no space for it.
func (e *evaluation) attempt(handle func()) bool {
	keys, n := e.share(), len(e.changes)
	handle()
	puts := false
	for _, c := range e.changes[n:] {
		puts = puts || !c.Delete && !isNotice(c)
	}
	if e.bounds.noSpace && puts || !e.fits() {
		e.keys, e.own, e.changes = keys, false, e.changes[:n]
		return false
	}
	return true
}

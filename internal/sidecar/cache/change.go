package cache

import (
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"

	"github.com/stoa-kv/stoa/internal/kvwire"
	"github.com/stoa-kv/stoa/internal/sidecar/relay"
)

// Take implements relay.Follower.
func (p *Prefix) Take(header *pb.ResponseHeader, events []relay.Event) {
	if !p.following {
		return
	}
	for _, e := range events {
		raw, deleted := e.KeyValue()
		kv, err := kvwire.Parse(raw)
		if err != nil {
			p.End(err.Error()) // whoever looks after it begins anew
			return
		}
		// The event's memory is a response's: a key must not keep all of that.
		if !p.take(change{rev: e.Revision(), kv: kv.Clone(), deleted: deleted}) {
			return
		}
	}
	if p.header != nil && header.Revision < p.header.Revision {
		return // the pages were read from a member that was ahead
	}
	if p.header = header; !p.loading {
		p.show()
	}
}

// take applies a change, or holds it back while keys are loaded. It returns false if there is no
// memory for it.
func (p *Prefix) take(c change) bool {
	if p.loading {
		p.held = append(p.held, c)
		return p.charge(c.size())
	}
	if c.rev <= p.at { // the pages have it
		return true
	}
	return p.set(c)
}

func (p *Prefix) set(c change) bool {
	key := c.kv.Key()
	old, had := p.tree.Get(key)
	if had {
		p.charge(-change{kv: old}.size())
	}
	if c.deleted {
		if had {
			p.tree = p.tree.Without(string(key))
		}
		return true
	}
	p.tree = p.tree.With(string(key), c.kv)
	return p.charge(c.size())
}

// perKey is what a key costs beside its bytes, which are there twice, about.
const perKey = 200

func (c change) size() int64 { return int64(perKey + 2*len(c.kv.Key()) + c.kv.Len()) }

// charge takes memory, or gives it back. With no more to take, the prefix gives all back, and follows no
// longer.
func (p *Prefix) charge(n int64) bool {
	p.used += n
	p.budget.used += n
	if n <= 0 || p.budget.used <= p.budget.Limit {
		return true
	}
	p.drop()
	p.following, p.over = false, true
	return false
}

package sim

import (
	"cmp"
	"slices"
	"time"

	"github.com/anishathalye/porcupine"
	"google.golang.org/protobuf/proto"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"

	"github.com/stoa-kv/stoa/internal/apply"
)

// Two views of a run are given to porcupine, which knows nothing of the ledger:
// all keys together, with the revisions that the answers carry, and each key as
// a register, without them. It is asked only where the order of the ledger isn't one
// already: to carry out the requests in that order proves as much as a search that finds
// one, and where some requests were not answered the search is often out of time.

// searchTimeout bounds the search; a run that takes longer counts as undecided.
const searchTimeout = 5 * time.Second

// place is a state of the model of all keys: how many of the revisions have
// been. Revisions come one after the other, so an order that skips one can be
// given up at once; without that the search would take for ever.
type place int

// step is one strict request in the model: where it may come, and where it leads.
type step struct {
	from, to place
	fits     bool // its answer is right there
}

// checkMultiKey lets porcupine look for an order of all strict requests. One
// that was not answered takes part if it is in the history.
func (c *cluster) checkMultiKey(p *past) {
	var ops []porcupine.Operation
	for _, o := range c.ordered() {
		switch r := o.req.(type) {
		case *pb.LeaseGrantRequest, *pb.CompactionRequest, *pb.LeaseTimeToLiveRequest, *pb.LeaseLeasesRequest:
			continue
		case *pb.RangeRequest:
			if r.Revision != 0 {
				continue
			}
		}
		if o.state == ok && o.strict || o.effect != 0 {
			ops = append(ops, c.operation(o, p.step(o)))
		}
	}
	c.porcupine("all keys", porcupine.Model{
		Init: func() any { return place(0) },
		Step: func(at, in, _ any) (bool, any) {
			s := in.(step)
			return s.fits && at.(place) == s.from, s.to
		},
	}, ops)
}

// step carries a request out where the revision of its answer puts it.
func (p *past) step(o *op) step {
	rev, before := o.rev, o.rev
	if o.effect != 0 {
		rev, before = o.effect, o.effect-1
	}
	resp, e := p.evaluate(before, rev, o)
	s := step{from: place(p.index(before)), to: place(p.index(rev))}
	s.fits = (o.state != ok || proto.Equal(resp, o.content)) && (o.effect != 0) == (len(e.changes) > 0)
	return s
}

// access is what a request does to one key: it reads a value or leaves one.
type access struct {
	key   string
	write bool
	value string
}

// checkRegisters gives porcupine each key for itself.
func (c *cluster) checkRegisters(*past) {
	var ops []porcupine.Operation
	for _, o := range c.ordered() {
		if o.effect != 0 {
			last := map[string]access{}
			r := c.ledger.revisions[o.effect]
			for _, ch := range r.changes {
				last[string(ch.Kv.Key())] = access{string(ch.Kv.Key()), true, string(ch.Kv.Value())}
			}
			for _, key := range c.keys.all() {
				if a, is := last[key]; is {
					ops = append(ops, c.operation(o, a))
				}
			}
		} else if o.state == ok && o.strict {
			for _, a := range c.reads(o) {
				ops = append(ops, c.operation(o, a))
			}
		}
	}
	c.porcupine("registers", porcupine.Model{
		Partition: func(history []porcupine.Operation) [][]porcupine.Operation {
			by := map[string][]porcupine.Operation{}
			for _, o := range history {
				key := o.Input.(access).key
				by[key] = append(by[key], o)
			}
			var parts [][]porcupine.Operation
			for _, key := range c.keys.all() {
				parts = append(parts, by[key])
			}
			return parts
		},
		Init: func() any { return "" },
		Step: func(s, in, _ any) (bool, any) {
			a := in.(access)
			return a.write || a.value == s.(string), a.value
		},
	}, ops)
}

// reads are the keys that a read has seen, present or not.
func (c *cluster) reads(o *op) []access {
	switch r := o.req.(type) {
	case *pb.RangeRequest:
		return c.seen(r, o.resp.(*pb.RangeResponse))
	case *pb.TxnRequest:
		if apply.ReadOnly(r) {
			return c.readsIn(r, o.resp.(*pb.TxnResponse))
		}
	}
	return nil
}

func (c *cluster) readsIn(r *pb.TxnRequest, resp *pb.TxnResponse) (all []access) {
	ops := r.Success
	if !resp.Succeeded {
		ops = r.Failure
	}
	for i, s := range resp.Responses {
		switch o := ops[i].Request.(type) {
		case *pb.RequestOp_RequestRange:
			all = append(all, c.seen(o.RequestRange, s.GetResponseRange())...)
		case *pb.RequestOp_RequestTxn:
			all = append(all, c.readsIn(o.RequestTxn, s.GetResponseTxn())...)
		}
	}
	return all
}

// seen is what a read of the present tells of all keys of its range.
func (c *cluster) seen(r *pb.RangeRequest, resp *pb.RangeResponse) []access {
	if r.Revision != 0 || r.Limit != 0 || r.CountOnly || r.KeysOnly || r.MinModRevision != 0 || r.MaxModRevision != 0 {
		return nil
	}
	values := map[string]string{}
	for _, kv := range resp.Kvs {
		values[string(kv.Key)] = string(kv.Value)
	}
	var all []access
	for _, key := range c.keys.all() {
		if inRange([]byte(key), r.Key, r.RangeEnd) {
			all = append(all, access{key: key, value: values[key]})
		}
	}
	return all
}

// operation is a request in porcupine's form. A write takes effect before any
// server applies it: no client is shown less after that.
func (c *cluster) operation(o *op, in any) porcupine.Operation {
	end := o.ret
	if o.effect != 0 {
		end = c.ledger.revisions[o.effect].latest
	}
	return porcupine.Operation{ClientId: o.client, Input: in, Call: int64(o.call), Return: int64(end)}
}

func (c *cluster) porcupine(what string, m porcupine.Model, ops []porcupine.Operation) {
	c.stats.PorcupineOperations += len(ops)
	if inOrder(m, ops) {
		return
	}
	switch porcupine.CheckOperationsTimeout(m, ops, searchTimeout) {
	case porcupine.Illegal:
		c.fail("I2", "porcupine finds no order of the %d requests to %s", len(ops), what)
	case porcupine.Unknown:
		c.stats.Undecided++
	}
}

// inOrder reports whether requests can have taken effect in the order in which they are given:
// each at a moment between its call and its return, none before the one ahead of it, and with the
// answers of the model.
func inOrder(m porcupine.Model, ops []porcupine.Operation) bool {
	parts := [][]porcupine.Operation{ops}
	if m.Partition != nil {
		parts = m.Partition(ops)
	}
	for _, part := range parts {
		state, at := m.Init(), int64(0)
		for _, o := range part {
			if at = max(at, o.Call); at > o.Return {
				return false
			}
			var fits bool
			if fits, state = m.Step(state, o.Input, o.Output); !fits {
				return false
			}
		}
	}
	return true
}

// ordered are all requests in the order of the ledger: each read behind the write whose revision it
// was answered at.
func (c *cluster) ordered() []*op {
	place := func(o *op) (rev int64, read int) {
		if o.effect != 0 {
			return o.effect, 0
		}
		return o.rev, 1
	}
	return slices.SortedStableFunc(slices.Values(c.history), func(a, b *op) int {
		aRev, aRead := place(a)
		bRev, bRead := place(b)
		return cmp.Or(cmp.Compare(aRev, bRev), cmp.Compare(aRead, bRead), cmp.Compare(a.call, b.call))
	})
}

// all is every key that a client uses.
func (k *keyspace) all() []string {
	all := append([]string(nil), k.single...)
	for _, p := range k.pairs {
		all = append(all, p[0], p[1])
	}
	return all
}

package commit

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// world is two clusters, two clients with a transaction each over both, recoveries of locks
// that were met, and requests that are executed late. It is a value: exploring clones it.
//
// Each transaction reads key x of both clusters. In the scenario "append" it appends its number
// to both; in "skew" only to that of its home, if the other transaction has not written. In the
// scenario "reader" the second one writes nothing.
type world struct {
	skew   bool
	reader bool
	mutate func(*Request)
	// mistake changes what a client asks next; it had these answers.
	mistake func(c *client, answers []Answer, next []Request) []Request
	// slip changes what a recovery that was begun beside the clients asks next.
	slip     func(r *Recovery, next []Request) []Request
	clusters [2]cluster
	clients  [2]client
	recover  []recovery
	late     []Request
	// left are what may still happen.
	losses, crashes, expiries, recoveries int
	trace                                 []string
}

type cluster struct {
	revision int64
	keys     map[string]KV
}

type client struct {
	*Coordinator
	calls
	crashed, expired bool
}

type recovery struct {
	*Recovery
	calls
}

// calls are the requests of one machine that it waits for.
type calls struct {
	asked   []Request
	answers []*Answer
}

var errLost = errors.New("lost")

const (
	x = "x" // the key that transactions work on
	z = "z" // another one, in cluster 1, that the first client locks too in the scenario "wide"
)

func newWorld(skew, sameHome bool) *world {
	w := &world{skew: skew}
	for i := range w.clusters {
		w.clusters[i] = cluster{revision: 1, keys: map[string]KV{x: {Key: x, Mod: 1}}}
	}
	for i := range w.clients {
		home := i
		if sameHome {
			home = 0
		}
		w.clients[i].Coordinator = New(Txn{ID: name(i), Lease: int64(i + 1), Parts: []Part{
			{Cluster: uint64(home), Keys: []string{x}}, {Cluster: uint64(1 - home), Keys: []string{x}},
		}})
	}
	return w
}

// widen gives the first client a second key in cluster 1, before the other one.
func (w *world) widen() {
	w.clusters[1].keys[z] = KV{Key: z, Mod: 1}
	parts := w.clients[0].txn.Parts
	for i := range parts {
		if parts[i].Cluster == 1 {
			parts[i].Keys = []string{z, x}
		}
	}
}

func name(client int) string { return string(rune('1' + client)) }

func (w *world) clone() *world {
	v := *w
	for i := range v.clusters {
		v.clusters[i].keys = maps.Clone(w.clusters[i].keys)
	}
	for i := range v.clients {
		c := *w.clients[i].Coordinator
		c.values, c.blockers = slices.Clone(c.values), slices.Clone(c.blockers)
		v.clients[i].Coordinator, v.clients[i].calls = &c, w.clients[i].calls.clone()
	}
	v.recover = slices.Clone(w.recover)
	for i := range v.recover {
		r := *w.recover[i].Recovery
		v.recover[i].Recovery, v.recover[i].calls = &r, w.recover[i].calls.clone()
	}
	v.late = slices.Clone(w.late)
	v.trace = slices.Clip(w.trace)
	return &v
}

func (c calls) clone() calls {
	return calls{c.asked, slices.Clone(c.answers)}
}

func (c *calls) ask(rs []Request) { c.asked, c.answers = rs, make([]*Answer, len(rs)) }

// all are the answers, if none is missing.
func (c *calls) all() (all []Answer, ok bool) {
	for _, a := range c.answers {
		if a == nil {
			return nil, false
		}
		all = append(all, *a)
	}
	return all, true
}

func (w *world) note(format string, args ...any) {
	w.trace = append(w.trace, fmt.Sprintf(format, args...))
}

// key is equal for states that have the same future.
func (w *world) key() string {
	var b strings.Builder
	for _, c := range w.clusters {
		for _, k := range slices.Sorted(maps.Keys(c.keys)) {
			kv := c.keys[k]
			fmt.Fprintf(&b, "%s %s %d %d,", k, kv.Value, kv.Mod, kv.Lease)
		}
		fmt.Fprintf(&b, "%d;", c.revision)
	}
	for _, c := range w.clients {
		fmt.Fprintf(&b, "%s %d %t %t %t %t ", c.at, c.outcome, c.retire, c.lost, c.crashed, c.expired)
		for _, kv := range slices.Concat(c.values...) {
			fmt.Fprintf(&b, "%s,", kv.Value)
		}
		c.calls.key(&b)
	}
	for _, r := range w.recover {
		fmt.Fprintf(&b, "%s %s %d %s %v", r.txn, r.at, r.found, r.was, r.locks)
		r.calls.key(&b)
	}
	for _, r := range w.late {
		r.key(&b)
	}
	fmt.Fprintf(&b, "%d %d %d %d", w.losses, w.crashes, w.expiries, w.recoveries)
	return b.String()
}

func (c *calls) key(b *strings.Builder) {
	for i, r := range c.asked {
		r.key(b)
		if a := c.answers[i]; a != nil {
			fmt.Fprintf(b, "%t %v %t", a.Succeeded, a.Err != nil, a.Refused)
			for _, kv := range a.KVs {
				if kv != nil {
					fmt.Fprintf(b, "%s %d,", kv.Value, kv.Mod)
				}
			}
		}
	}
	b.WriteByte(';')
}

func (r *Request) key(b *strings.Builder) {
	fmt.Fprintf(b, "%s %d %v", r.Step, r.Cluster, r.If)
	for _, op := range slices.Concat(r.Then, r.Else) {
		fmt.Fprintf(b, "%d %s %s %d,", op.Do, op.Key, op.Value, op.Lease)
	}
}

// execute executes a request as a cluster does.
func (w *world) execute(r Request) Answer {
	return w.clusters[r.Cluster].execute(r, func(lease int64) bool { return w.clients[lease-1].expired })
}

func (c *cluster) execute(r Request, expired func(lease int64) bool) Answer {
	if slices.ContainsFunc(slices.Concat(r.Then, r.Else), func(op Op) bool { return op.Lease != 0 && expired(op.Lease) }) {
		return Answer{Err: errors.New("no such lease"), Refused: true, NoLease: true}
	}
	a := Answer{Succeeded: true}
	for _, cond := range r.If {
		kv, ok := c.keys[cond.Key]
		switch cond.Test {
		case Absent:
			a.Succeeded = a.Succeeded && !ok
		case Is:
			a.Succeeded = a.Succeeded && ok && string(kv.Value) == string(cond.Value)
		case IsAt:
			a.Succeeded = a.Succeeded && ok && kv.Mod == cond.Mod
		}
	}
	ops := r.Else
	if a.Succeeded {
		ops = r.Then
	}
	next := c.revision + 1
	for _, op := range ops {
		switch op.Do {
		case Get:
			var got *KV
			if kv, ok := c.keys[op.Key]; ok {
				got = &kv
			}
			a.KVs = append(a.KVs, got)
		case Put:
			c.keys[op.Key], c.revision = KV{Key: op.Key, Value: op.Value, Mod: next, Lease: op.Lease}, next
		case Delete:
			delete(c.keys, op.Key)
			c.revision = next
		}
	}
	return a
}

// expire ends a client's lease.
func (w *world) expire(i int) {
	w.clients[i].expired = true
	for _, c := range w.clusters {
		maps.DeleteFunc(c.keys, func(_ string, kv KV) bool { return kv.Lease == int64(i+1) })
	}
}

// step gives a client the answers that it waits for, and lets it decide.
func (w *world) step(i int) {
	c := &w.clients[i]
	answers, ok := c.all()
	if !ok {
		return
	}
	rs := c.Next(answers)
	if w.mistake != nil {
		rs = w.mistake(c, answers, rs)
	}
	if c.Locked() {
		rs = w.decide(i)
	}
	c.ask(w.mutated(rs))
}

func (w *world) mutated(rs []Request) []Request {
	for i := range rs {
		r := &rs[i]
		r.If, r.Then = slices.Clone(r.If), slices.Clone(r.Then)
		if w.mutate != nil {
			w.mutate(r)
		}
	}
	return rs
}

func (w *world) decide(i int) []Request {
	c := w.clients[i]
	if w.onlyReads(i) {
		return c.CommitNothing()
	}
	writes := make([][]Write, 2)
	for part := range c.txn.Parts {
		old := w.read(i, part)
		if w.skew && strings.Contains(old, name(1-i)) {
			return c.Abandon()
		}
		if !w.skew || part == 0 {
			writes[part] = []Write{{Key: []byte(x), Value: []byte(old + name(i))}}
		}
	}
	return c.Commit(writes)
}

func (w *world) onlyReads(i int) bool { return w.reader && i == 1 }

// read is what a client has read.
func (w *world) read(i, part int) string {
	c := w.clients[i]
	return string(c.Values(part)[slices.Index(c.txn.Parts[part].Keys, x)].Value)
}

func (w *world) stepRecovery(i int) {
	r := &w.recover[i]
	answers, ok := r.all()
	if !ok {
		return
	}
	rs := r.Next(answers)
	if w.slip != nil {
		rs = w.slip(r.Recovery, rs)
	}
	r.ask(w.mutated(rs))
}

// locks are those in a cluster.
func (w *world) locks(i int) []Met {
	var kvs []*KV
	for k, kv := range w.clusters[i].keys {
		if strings.HasPrefix(k, LockPrefix) {
			kvs = append(kvs, &kv)
		}
	}
	return MetIn(uint64(i), kvs)
}

// committed are the transactions that have a record in a cluster which says so.
func (w *world) committed(i int) (all []string) {
	for k, kv := range w.clusters[i].keys {
		if txn, ok := strings.CutPrefix(k, RecordPrefix); ok {
			if rec, err := ParseRecord(kv.Value); err == nil && rec.Phase == Committed {
				all = append(all, txn)
			}
		}
	}
	return all
}

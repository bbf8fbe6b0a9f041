package host

import (
	"context"
	"fmt"
	"slices"
	"strings"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/stoa-kv/stoa/client/compose"
)

// script is a transaction in one cluster, over any of its routes. Its branches have one put at least before any deletion, so
// that its effect is known by the value.
type script struct {
	conditions []condition
	then       []step
	otherwise  []step
}

// condition is of a key, or of all keys in a range.
type condition struct {
	key, end string
	absent   bool
}

// step is one operation, a transaction itself if it has a script.
type step struct {
	what     string // get, put or delete
	key, end string
	sel      selection
	inner    *script
}

func (s *script) String() string {
	return fmt.Sprintf("if %+v then %v else %v", s.conditions, s.then, s.otherwise)
}

func (s step) String() string {
	if s.inner != nil {
		return fmt.Sprintf("(%v)", s.inner)
	}
	return fmt.Sprintf("%s %q..%q %v", s.what, s.key, s.end, s.sel)
}

func (s *script) writes() bool {
	return slices.ContainsFunc(append(slices.Clone(s.then), s.otherwise...), func(t step) bool {
		return t.what != "get" && (t.inner == nil || t.inner.writes())
	})
}

// perform sends a transaction with a script.
func (a *composedApp) perform() {
	first := a.unlocked()
	w := scriptDraw{a: a}
	for _, r := range a.w.roads {
		if r.cluster == first.cluster && !r.locks {
			w.near = append(w.near, r)
			for _, key := range []string{"a", "b", "t", "1", "2", "3"} {
				w.free = append(w.free, r.prefix+"q/"+key)
			}
		}
	}
	a.rng.Shuffle(len(w.free), func(i, j int) { w.free[i], w.free[j] = w.free[j], w.free[i] })
	d := &deed{kind: "script", key: first.prefix + a.some("p/a", "q/a"), script: w.script(!a.one(3), 2)}
	d.script.conditions = append(d.script.conditions, condition{key: d.key, absent: a.one(2)})
	a.send(d, func(c asks, ctx context.Context) (clientv3.OpResponse, error) {
		s := d.script
		return done(c.Txn(ctx).If(s.compares()...).Then(operations(s.then, d.value)...).Else(operations(s.otherwise, d.value)...).Commit())
	}, func(c *compose.Client) func() { return answers(a, d, c.DoAsync(d.script.op(d.value))) })
}

// scriptDraw draws a script.
type scriptDraw struct {
	a    *composedApp
	near []road   // of the cluster
	free []string // keys that nothing in it puts yet
}

func (w *scriptDraw) script(writes bool, depth int) *script {
	s := &script{}
	for range w.a.rng.IntN(2) {
		c := condition{absent: w.a.one(2)}
		c.key, c.end = w.span()
		s.conditions = append(s.conditions, c)
	}
	s.then = w.steps(writes, depth)
	s.otherwise = w.steps(writes && w.a.one(2), depth)
	return s
}

// span is a key, or a range that isn't put to.
func (w *scriptDraw) span() (from, end string) {
	r := w.near[w.a.rng.IntN(len(w.near))]
	switch w.a.rng.IntN(3) {
	case 0:
		return r.prefix + w.a.some("p/a", "p/b"), ""
	case 1:
		return r.prefix + "p/", r.prefix + "p0"
	}
	return r.prefix + "p/", r.prefix + "p/b"
}

func (w *scriptDraw) steps(writes bool, depth int) (all []step) {
	if writes {
		all = append(all, w.put())
	}
	for range 1 + w.a.rng.IntN(3) {
		switch n := w.a.rng.IntN(6); {
		case n == 0 && depth > 0:
			all = append(all, step{inner: w.script(writes, depth-1)})
		case n == 1 && writes:
			all = append(all, w.put())
		case n == 2 && len(all) > 0 && all[0].what == "put":
			s := step{what: "delete"}
			s.key, s.end = w.span()
			all = append(all, s)
		default:
			s := step{what: "get", sel: drawSelection(w.a.rng, w.a.w.clusters[w.near[0].cluster].ledger.reached.Load())}
			if s.sel.at = 0; w.a.one(2) {
				s.key, s.end = w.span()
			} else {
				r := w.near[w.a.rng.IntN(len(w.near))]
				if s.key, s.end = r.prefix, prefixEnd(r.prefix); s.key == "/c0/" {
					s.key = "/c0/n0" // behind the route within it
				}
			}
			all = append(all, s)
		}
	}
	return all
}

// put puts a key that nothing else puts, while there is one.
func (w *scriptDraw) put() step {
	if len(w.free) == 0 {
		return step{what: "get", key: w.near[0].prefix + "p/a"}
	}
	key := w.free[0]
	w.free = w.free[1:]
	return step{what: "put", key: key}
}

func (s *script) compares() (all []clientv3.Cmp) {
	for _, c := range s.conditions {
		op := ">"
		if c.absent {
			op = "="
		}
		one := clientv3.Compare(clientv3.Version(c.key), op, 0)
		if c.end != "" {
			one = one.WithRange(c.end)
		}
		all = append(all, one)
	}
	return all
}

func (s *script) op(value string) clientv3.Op {
	return clientv3.OpTxn(s.compares(), operations(s.then, value), operations(s.otherwise, value))
}

func operations(steps []step, value string) (all []clientv3.Op) {
	for _, s := range steps {
		switch {
		case s.inner != nil:
			all = append(all, s.inner.op(value))
		case s.what == "put":
			all = append(all, clientv3.OpPut(s.key, value, clientv3.WithPrevKV()))
		case s.what == "delete":
			all = append(all, clientv3.OpDelete(s.key, append(spanOptions(s.end), clientv3.WithPrevKV())...))
		default:
			all = append(all, clientv3.OpGet(s.key, append(spanOptions(s.end), s.sel.options()...)...))
		}
	}
	return all
}

// resolveScript finds the revision of a script, by its value.
func (w *composedWorld) resolveScript(d *deed, in []int, mark func(cluster int, rev int64)) {
	l := &w.clusters[in[0]].ledger
	var revs []int64
	for _, kv := range l.all {
		if kv.Version != 0 && string(kv.Value) == d.value && !slices.Contains(revs, kv.ModRevision) {
			revs = append(revs, kv.ModRevision)
		}
	}
	switch {
	case len(revs) > 1 || len(revs) > 0 && d.heard != 0 && (d.err != nil && !d.unknown() || d.err == nil && revs[0] != d.rev):
		w.found("%v took effect at %v", d, revs)
	case len(revs) > 0:
		mark(in[0], revs[0])
		if d.err != nil || d.heard == 0 {
			w.checkScript(d, in[0])
		}
	}
}

// checkScript carries a script out on what there was before it, and compares what it was answered, and what there was
// behind it.
func (w *composedWorld) checkScript(d *deed, cluster int) {
	l := &w.clusters[cluster].ledger
	p := &play{w: w, d: d, cluster: cluster, rev: d.rev, before: l.find("", "\xff\xff", d.rev)}
	if d.effect != 0 {
		p.rev, p.before = d.effect, l.find("", "\xff\xff", d.effect-1)
	}
	p.now = slices.Clone(p.before)
	p.run(d.script, d.answer)
	if want := l.find("", "\xff\xff", p.rev); !same(p.now, want) {
		w.found("%v: behind it there is %v, not %v", d, want, p.now)
	}
	if p.wrote != (d.effect != 0) {
		w.found("%v took effect at %d: %v", d, d.effect, p.wrote)
	}
}

// play is a script that is carried out.
type play struct {
	w           *composedWorld
	d           *deed
	cluster     int
	rev         int64
	before, now []*mvccpb.KeyValue // by the cluster's names
	wrote       bool
}

// run carries out a script, or one in it. Without an answer nothing is compared.
func (p *play) run(s *script, answer *pb.TxnResponse) {
	holds := true
	for _, c := range s.conditions {
		there := p.w.roads.find(p.cluster, p.before, c.key, c.end)
		holds = holds && (len(there) == 0) == c.absent
	}
	steps := s.then
	if !holds {
		steps = s.otherwise
	}
	if answer != nil && (answer.Succeeded != holds || len(answer.Responses) != len(steps)) {
		p.w.found("%v: %v holds: %v, and the answer is %v", p.d, s.conditions, holds, answer)
		return
	}
	for i, t := range steps {
		var one *pb.ResponseOp
		if answer != nil {
			one = answer.Responses[i]
		}
		if how := p.step(t, one); how != "" && answer != nil {
			p.w.found("%v: %v: %s", p.d, t, how)
		}
	}
}

// step carries out one operation, and tells how its answer differs.
func (p *play) step(t step, answer *pb.ResponseOp) string {
	there := p.w.roads.find(p.cluster, p.now, t.key, t.end)
	switch {
	case t.inner != nil:
		p.run(t.inner, answer.GetResponseTxn())
	case t.what == "get" && answer != nil:
		return t.sel.differs(answer.GetResponseRange(), there)
	case t.what == "put":
		r := p.w.roads.of(t.key)
		kv := p.w.clusters[p.cluster].ledger.at(r.there(t.key), p.rev)
		if kv == nil || kv.ModRevision != p.rev || string(kv.Value) != p.d.value {
			return fmt.Sprintf("there is %v", kv)
		}
		p.remove(there)
		p.now, p.wrote = append(p.now, kv), true
		slices.SortFunc(p.now, func(a, b *mvccpb.KeyValue) int { return strings.Compare(string(a.Key), string(b.Key)) })
		if prev := answer.GetResponsePut().GetPrevKv(); (prev == nil) != (len(there) == 0) || prev != nil && !same(there, []*mvccpb.KeyValue{prev}) {
			return fmt.Sprintf("before there was %v, not %v", there, prev)
		}
	case t.what == "delete":
		p.remove(there)
		p.wrote = p.wrote || len(there) > 0
		if got := answer.GetResponseDeleteRange(); got.GetDeleted() != int64(len(there)) || !same(got.GetPrevKvs(), there) {
			return fmt.Sprintf("it has deleted %v, not %v", got, there)
		}
	}
	return ""
}

// remove takes keys away, by the names of clients.
func (p *play) remove(gone []*mvccpb.KeyValue) {
	for _, kv := range gone {
		key := p.w.roads.of(string(kv.Key)).there(string(kv.Key))
		p.now = slices.DeleteFunc(p.now, func(one *mvccpb.KeyValue) bool { return string(one.Key) == key })
	}
}

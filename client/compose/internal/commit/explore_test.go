//go:build !race

// The race detector makes this five times as long, and nothing here has a second goroutine: make
// test-race runs these tests without it.

package commit

import (
	"flag"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// Two transactions over two clusters, in all orders of their requests, with crashes of clients
// and recoveries, leases that expire, and answers that are lost, behind which requests are
// executed at any later time or never. Whatever has happened, both keys have what the committed
// transactions have written, in one order, and no lock stays.
func TestExplore(t *testing.T) {
	for name, w := range scenarios() {
		t.Run(name, func(t *testing.T) {
			e := newExplorer()
			e.explore(w)
			require.Empty(t, e.fault)
			t.Logf("%d states", len(e.seen))
		})
	}
}

var exhaustive = flag.Bool("exhaustive", false, "explore with two faults at a time, some minutes")

func scenarios() map[string]*world {
	all := map[string]*world{}
	for _, skew := range []bool{false, true} {
		for _, same := range []bool{false, true} {
			add := func(what string, losses, crashes, expiries, recoveries int) {
				w := newWorld(skew, same)
				if strings.HasPrefix(what, "wide") {
					w.widen()
				}
				w.reader = strings.HasPrefix(what, "reader")
				w.losses, w.crashes, w.expiries, w.recoveries = losses, crashes, expiries, recoveries
				all[fmt.Sprintf("skew=%t, same home=%t, %s", skew, same, what)] = w
			}
			add("a loss", 1, 0, 0, 0)
			add("a crash", 0, 1, 0, 1)
			add("an expiry", 0, 0, 1, 1)
			add("wide, a loss", 1, 0, 0, 1)
			if !skew {
				add("reader, a loss", 1, 0, 0, 1)
				add("reader, an expiry", 0, 0, 1, 1)
			}
			if *exhaustive {
				add("a crash and a loss", 1, 1, 0, 1)
				add("an expiry and a loss", 1, 0, 1, 1)
				add("two recoveries and a crash", 0, 1, 0, 2)
			}
		}
	}
	return all
}

// explorer goes through all states that can be reached, until it finds a fault.
type explorer struct {
	seen  map[string]bool
	fault string
}

func newExplorer() *explorer { return &explorer{seen: map[string]bool{}} }

func (e *explorer) explore(w *world) {
	w = w.clone()
	for i := range w.clients {
		w.step(i)
	}
	e.visit(w)
}

func (e *explorer) visit(w *world) {
	if k := w.key(); e.fault != "" || e.seen[k] {
		return
	} else {
		e.seen[k] = true
	}
	fault := w.visible()
	if fault == "" {
		fault = w.clone().settle(true)
	}
	if fault == "" {
		fault = w.clone().settle(false)
	}
	if fault != "" {
		e.fault = fmt.Sprintf("%s\n%s", strings.Join(w.trace, "\n"), fault)
		return
	}
	for i := range w.clients {
		e.client(w, i)
	}
	for i := range w.recover {
		for j := range w.recover[i].asked {
			if w.recover[i].answers[j] == nil {
				e.recovery(w, i, j)
			}
		}
	}
	for i, r := range w.late {
		v := w.clone()
		v.late = append(v.late[:i:i], v.late[i+1:]...)
		v.note("late: %s in %d", r.Step, r.Cluster)
		v.execute(r)
		e.visit(v)
	}
	if w.recoveries > 0 {
		e.meet(w)
	}
}

// client goes on with everything that can happen to a client.
func (e *explorer) client(w *world, i int) {
	c := &w.clients[i]
	if !c.expired && (c.crashed || c.retire || w.expiries > 0) {
		v := w.clone()
		if !c.crashed && !c.retire {
			v.expiries--
		}
		v.note("the lease of %s expires", name(i))
		v.expire(i)
		e.visit(v)
	}
	if c.crashed {
		return
	}
	if w.crashes > 0 && len(c.asked) > 0 {
		v := w.clone()
		v.crashes--
		v.note("%s crashes", name(i))
		v.clients[i].crashed = true
		for j, r := range c.asked {
			if c.answers[j] == nil {
				v.late = append(v.late, r)
			}
		}
		v.clients[i].ask(nil)
		e.visit(v)
	}
	for j, r := range c.asked {
		if c.answers[j] != nil {
			continue
		}
		v := w.clone()
		v.note("%s: %s in %d", name(i), r.Step, r.Cluster)
		a := v.execute(r)
		v.clients[i].answers[j] = &a
		v.step(i)
		e.visit(v)
		if w.losses > 0 {
			v := w.clone()
			v.losses--
			v.note("%s: the answer to %s in %d is lost", name(i), r.Step, r.Cluster)
			v.late = append(v.late, r)
			v.clients[i].answers[j] = &Answer{Err: errLost}
			v.step(i)
			e.visit(v)
		}
	}
}

func (e *explorer) recovery(w *world, i, j int) {
	r := w.recover[i].asked[j]
	v := w.clone()
	v.note("recovery %d: %s in %d", i, r.Step, r.Cluster)
	a := v.execute(r)
	v.recover[i].answers[j] = &a
	v.stepRecovery(i)
	e.visit(v)
	if w.crashes > 0 {
		v := w.clone()
		v.crashes--
		v.note("recovery %d crashes at %s in %d", i, r.Step, r.Cluster)
		v.late = append(v.late, r)
		v.recover[i].ask(nil)
		e.visit(v)
	}
}

// meet begins a recovery of each lock that is there, and of each record of a transaction that is committed, as a client does that
// looks for what others have left behind.
func (e *explorer) meet(w *world) {
	for i := range w.clusters {
		for _, l := range w.locks(i) {
			e.recover(w, Recover(l.Lock.Txn, l.Lock.Home, []Met{l}), "a lock of %s is met in %d", l.Lock.Txn, i)
		}
		for _, txn := range w.committed(i) {
			e.recover(w, Recover(txn, uint64(i), nil), "the record of %s is met in %d", txn, i)
		}
	}
}

func (e *explorer) recover(w *world, by *Recovery, format string, args ...any) {
	v := w.clone()
	v.recoveries--
	v.note(format, args...)
	v.recover = append(v.recover, recovery{Recovery: by})
	v.recover[len(v.recover)-1].ask(v.mutated(by.Next(nil)))
	e.visit(v)
}

// visible says what is wrong if a client knows that it has committed, and others that honour
// locks could read an older value, or what it has read is of two moments; or if it doesn't know
// although its lease is alive.
func (w *world) visible() string {
	for i, c := range w.clients {
		if c.Outcome() == IsUnknown && !c.expired {
			return fmt.Sprintf("%s doesn't know whether it has committed", name(i))
		}
		if c.Outcome() != IsCommitted {
			continue
		}
		if w.onlyReads(i) {
			if a, b := w.read(i, 0), w.read(i, 1); a != b {
				return fmt.Sprintf("%s has read %q and %q", name(i), a, b)
			}
			continue
		}
		for part, p := range c.txn.Parts {
			here := w.clusters[p.Cluster]
			l, held := here.keys[LockPrefix+x]
			lock, _ := ParseLock(l.Value)
			if w.skew && part > 0 || held && lock.Txn == name(i) || strings.Contains(string(here.keys[x].Value), name(i)) {
				continue
			}
			return fmt.Sprintf("%s has committed, and isn't visible in %d", name(i), p.Cluster)
		}
	}
	return ""
}

// settle lets everything end, without further faults: the clients crash, or they do what they
// have begun; then all locks and records are met. It says what is wrong.
func (w *world) settle(crash bool) string {
	w.late = nil
	for i := range w.clients {
		c := &w.clients[i]
		for !crash && !c.crashed && len(c.asked) > 0 {
			for j, r := range c.asked {
				if c.answers[j] == nil {
					a := w.execute(r)
					c.answers[j] = &a
				}
			}
			w.step(i)
		}
		if crash || c.crashed || c.retire {
			w.expire(i)
		}
	}
	for i := range w.recover { // in flight, they end before others begin
		w.finish(&w.recover[i])
	}
	for range 3 {
		for i := range w.clusters {
			for _, l := range w.locks(i) {
				w.resolve(Recover(l.Lock.Txn, l.Lock.Home, []Met{l}))
			}
		}
		for i := range w.clients {
			w.resolve(Recover(name(i), w.clients[i].home(), nil))
		}
	}
	return w.wrong()
}

func (w *world) resolve(m *Recovery) {
	r := recovery{Recovery: m}
	r.ask(w.mutated(m.Next(nil)))
	w.finish(&r)
}

func (w *world) finish(r *recovery) {
	for len(r.asked) > 0 {
		for j, one := range r.asked {
			if r.answers[j] == nil {
				a := w.execute(one)
				r.answers[j] = &a
			}
		}
		answers, _ := r.all()
		r.ask(w.mutated(r.Next(answers)))
	}
}

// wrong says what is wrong with the end.
func (w *world) wrong() string {
	for i, c := range w.clusters {
		for k, kv := range c.keys {
			if k != x && k != z && !strings.Contains(string(kv.Value), string(Done)) {
				return fmt.Sprintf("in %d stays %s: %s", i, k, kv.Value)
			}
		}
	}
	a, b := string(w.clusters[0].keys[x].Value), string(w.clusters[1].keys[x].Value)
	if w.skew && len(a+b) > 1 {
		return fmt.Sprintf("both have written: %q and %q", a, b)
	}
	if !w.skew && a != b {
		return fmt.Sprintf("the keys differ: %q and %q", a, b)
	}
	for i, c := range w.clients {
		times := max(strings.Count(a, name(i)), strings.Count(b, name(i)))
		switch {
		case times > 1:
			return fmt.Sprintf("%s has taken effect %d times: %q", name(i), times, a)
		case c.Outcome() == IsCommitted && times == 0 && !w.onlyReads(i):
			return fmt.Sprintf("%s has committed, and its write is lost: %q", name(i), a)
		case c.Outcome() == IsAbandoned && times > 0:
			return fmt.Sprintf("%s was abandoned, and has taken effect: %q", name(i), a)
		}
	}
	return ""
}

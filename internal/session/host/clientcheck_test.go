package host

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/protobuf/proto"

	sdk "github.com/stoa-kv/stoa/client"
)

// check holds what the apps were told against what has taken effect.
func (w *clientWorld) check() {
	w.ledger.close()
	calls := map[string]bool{}
	unknown := 0
	for _, a := range w.apps {
		a.findAwaited()
		a.checkEnd()
		a.checkAnswers()
		a.checkOrder()
		a.checkWatches()
		if w.plan.Users {
			a.checkRights()
		}
		for _, x := range a.asks {
			if x.kind != "call" && x.kind != "await" {
				continue
			}
			if len(x.kvs) > 0 {
				if n := string(x.kvs[0].Value); calls[n] {
					a.found(x, "two calls were answered with %s", n)
				} else {
					calls[n] = true
				}
				w.counts.Called++
			}
			closedAtOnce := x.kind == "await" && x.err == nil && len(x.kvs) == 0 && (a.shutEarly(x) || !errors.Is(a.s.Err(), sdk.ErrSessionClosed))
			if closedAtOnce || x.err != nil && a.s.Err() != nil && !errors.Is(x.err, sdk.ErrNotSent) {
				unknown++
			}
		}
	}
	if n := len(w.ledger.byKey[w.plan.Count]); n < len(calls) || n > len(calls)+unknown {
		w.found("%d calls of the extension took effect, of %d that were answered and %d that may have", n, len(calls), unknown)
	}
}

// checkEnd: the keys of a session that was closed are gone.
func (a *app) checkEnd() {
	if !errors.Is(a.s.Err(), sdk.ErrSessionClosed) {
		return
	}
	for _, kv := range a.w.ledger.find("", "\xff", everything) {
		if kv.Lease == int64(a.s.ID()) {
			a.w.found("app %d: its session %d is closed, and there is %v", a.id, a.s.ID(), kv)
		}
	}
}

// findAwaited notes the first event of each watch of the key for which the extension may be: it is the answer to a call.
func (a *app) findAwaited() {
	for _, n := range a.notes {
		if v := a.viewOf(n.Watch); v != nil && v.kind == "await" && len(v.kvs) == 0 && len(n.Events) > 0 {
			v.kvs = []*mvccpb.KeyValue{n.Events[0].Kv}
			v.rev = n.Events[0].Kv.ModRevision
		}
	}
}

// shutEarly says that a watch had ended before anything came.
func (a *app) shutEarly(x *ask) bool {
	for _, v := range a.watches {
		if v.ask == x {
			return v.shut >= 0
		}
	}
	return false
}

func (a *app) found(x *ask, format string, args ...any) {
	i := -1
	for j, o := range a.asks {
		if o == x {
			i = j + 1
		}
	}
	a.w.found("app %d: request %d, %v, answered at %d with %v: %s", a.id, i, x, x.rev, x.err, fmt.Sprintf(format, args...))
}

// lost says that the session may have ended by itself.
func (a *app) lost() bool {
	return a.revoked || a.s.TTL().Seconds() < calmTTL
}

// checkAnswers looks at each answer alone.
func (a *app) checkAnswers() {
	for _, x := range append(append([]*ask(nil), a.asks...), a.w.loose[a]...) {
		a.w.counts.Asked++
		switch {
		case !x.done:
			a.found(x, "it has no answer")
		case x.err != nil:
			a.checkError(x)
		default:
			a.w.counts.Answered++
			a.checkAnswer(x)
		}
	}
}

func (a *app) checkError(x *ask) {
	writes := x.kind == "put" || x.kind == "txn" || x.kind == "delete"
	n := &a.w.counts
	switch err := x.err; {
	case a.refused(err, x.heard):
		n.Denied++
	case errors.Is(err, sdk.ErrSessionClosed) && errors.Is(a.s.Err(), sdk.ErrSessionClosed) && !x.loose:
		a.found(x, "it was sent before Close")
	case errors.Is(err, sdk.ErrSessionExpired) && a.lost():
		n.Ended++
	case errors.Is(err, sdk.ErrOvertaken) && !writes && !x.loose && x.kind != "sync" && x.kind != "progress":
		n.Overtaken++
	case strings.Contains(err.Error(), "is forgotten") && (x.kind == "call" || x.kind == "await"):
		n.Forgotten++
	case errors.Is(err, rpctypes.ErrTimeout) && !writes:
		n.TimedOut++
	case errors.Is(err, rpctypes.ErrNoSpace) && (writes || x.kind == "call" || x.kind == "await"):
		n.Refused++
	case errors.Is(err, rpctypes.ErrCompacted) && (x.kind == "watch" || x.sel.at > 0 && x.sel.at < a.w.ledger.compacted.Load()):
		n.Compacted++
	case errors.Is(err, rpctypes.ErrFutureRev) && x.sel.at > 0 && (x.level == sdk.Fast || x.sel.at > x.shown && (x.level != sdk.Strict || x.sel.at > x.floor)):
		n.Future++
	case x.loose && strings.Contains(err.Error(), "context deadline exceeded"):
	default:
		a.found(x, "no such error is documented")
	}
	never := errors.Is(x.err, sdk.ErrNotSent) || errors.Is(x.err, rpctypes.ErrNoSpace) || errors.Is(x.err, rpctypes.ErrPermissionDenied)
	if (x.kind == "put" || x.kind == "txn") && never && a.effect(x) != 0 {
		a.found(x, "it took effect at %d", a.effect(x))
	}
}

// effect is the revision at which a write took effect that writes a value, 0 if it did not.
func (a *app) effect(x *ask) int64 {
	switch x.kind {
	case "put", "txn":
		revs := a.w.ledger.written(x.key, x.value)
		if len(revs) > 1 {
			a.found(x, "it took effect at %v", revs)
		}
		if len(revs) > 0 {
			return revs[0]
		}
	case "delete":
		if x.err == nil && x.says {
			return x.rev
		}
	case "call", "await":
		if len(x.kvs) > 0 {
			return x.rev
		}
	}
	return 0
}

func same(a, b []*mvccpb.KeyValue) bool {
	if len(a) != len(b) {
		return false
	}
	for i := range a {
		if !proto.Equal(a[i], b[i]) {
			return false
		}
	}
	return true
}

// checkAnswer compares an answer with the state at its revision.
func (a *app) checkAnswer(x *ask) {
	l := &a.w.ledger
	switch x.kind {
	case "put":
		if at := a.effect(x); at != x.rev {
			a.found(x, "it took effect at %d", at)
		}
		if kv := l.at(x.key, x.rev); x.ephem != (kv.GetLease() == int64(a.s.ID())) {
			a.found(x, "the key has the lease %d", kv.GetLease())
		}
		if x.withPrev && !same(x.prev, l.find(x.key, "", x.rev-1)) {
			a.found(x, "the value before was %v, not %v", l.find(x.key, "", x.rev-1), x.prev)
		}
	case "delete":
		if before := l.find(x.key, x.end, x.rev-1); x.says && x.withPrev && !same(x.prev, before) {
			a.found(x, "it deleted %v, not %v", before, x.prev)
		}
		if there := l.find(x.key, x.end, x.rev); len(there) > 0 {
			a.found(x, "there is %v", there)
		}
	case "txn":
		rev := x.rev
		if x.says {
			rev--
		}
		if holds := (l.at(x.key, rev) == nil) == x.absent; holds != x.says {
			a.found(x, "succeeded is %v, of %v", x.says, l.at(x.key, rev))
		}
		if x.says && a.effect(x) != x.rev {
			a.found(x, "it took effect at %d", a.effect(x))
		}
		if !x.says && !same(x.kvs, l.find(x.key, "", x.rev)) {
			a.found(x, "it shows %v, not %v", x.kvs, l.find(x.key, "", x.rev))
		}
	case "get", "look":
		a.checkRead(x)
	case "call", "await":
		if len(x.kvs) == 0 {
			break
		}
		if kv := l.at(a.w.plan.Count, x.rev); kv == nil || string(kv.Value) != string(x.kvs[0].Value) || kv.ModRevision != x.rev {
			a.found(x, "the count is %v, not %v", kv, x.kvs)
		}
		if _, err := strconv.Atoi(string(x.kvs[0].Value)); err != nil {
			a.found(x, "%v", err)
		}
	}
	if strict := x.level == sdk.Strict && x.kind != "watch" && x.kind != "await" && x.kind != "cancel"; strict && x.rev < x.floor {
		a.found(x, "an answer before it had revision %d", x.floor)
	}
	if x.reads() && x.level != sdk.Fast && x.rev < max(x.shown, x.token) {
		a.found(x, "an event of revision %d had come, and it was given %d", x.shown, x.token)
	}
}

// checkRead compares a read with the state at its revision, or at the one that it asks for.
func (a *app) checkRead(x *ask) {
	rev := x.rev
	if x.sel.at > 0 {
		rev = x.sel.at
	}
	got := &pb.RangeResponse{Kvs: x.kvs, More: x.more, Count: x.count}
	if how := x.sel.differs(got, a.w.ledger.find(x.key, x.end, rev)); how != "" || rev > x.rev {
		a.found(x, "%s", how)
	}
}

// reads tells whether a request was a read: a call that the extension has answered was a write.
func (x *ask) reads() bool {
	return x.kind == "get" || x.kind == "look" || x.kind == "call" && len(x.kvs) == 0 || x.kind == "sync" || x.kind == "progress"
}

// checkOrder compares each answer with those before and behind it.
func (a *app) checkOrder() {
	var effects, seen, synced int64
	var hole *ask
	for i, x := range a.asks {
		e := a.effect(x)
		switch {
		case e != 0 && e <= effects:
			a.found(x, "it took effect at %d, one before it at %d", e, effects)
		case e != 0 && hole != nil:
			a.found(x, "it took effect at %d, and before it had none %v", e, hole)
		case errors.Is(x.err, rpctypes.ErrFutureRev) && x.level != sdk.Fast && x.sel.at <= max(effects, seen):
			a.found(x, "a write before it took effect at %d, and %d was seen", effects, seen)
		case x.err == nil && x.level != sdk.Fast && x.reads() && x.rev < max(effects, seen):
			a.found(x, "a write before it took effect at %d, and %d was seen", effects, seen)
		case x.err == nil && x.level != sdk.Fast && x.reads() && x.kind != "call" && x.rev < synced:
			a.found(x, "a sync before it was answered at %d", synced)
		case errors.Is(x.err, sdk.ErrOvertaken) && x.kind != "watch" && x.kind != "await" && !a.writesBehind(i): // events may have told more than a server shows to watches
			a.found(x, "nothing was sent behind it")
		}
		if x.kind == "put" && x.err != nil && e == 0 && !errors.Is(x.err, rpctypes.ErrNoSpace) && !a.mayLack(x) {
			hole = x
		}
		effects = max(effects, e)
		switch {
		case x.err != nil || x.level == sdk.Fast || x.kind == "watch" || x.kind == "await":
		case x.kind == "sync" || x.kind == "progress": // sent again it may name a revision above later writes, and above calls that are remembered
			synced = max(synced, x.rev)
		default:
			seen = max(seen, x.rev)
		}
	}
	later := int64(everything)
	for i := len(a.asks) - 1; i >= 0; i-- {
		x := a.asks[i]
		if x.err == nil && x.reads() && x.kind != "sync" && x.kind != "progress" && x.rev >= later {
			a.found(x, "a write behind it took effect at %d", later)
		}
		if e := a.effect(x); e != 0 {
			later = e
		}
	}
	for _, x := range a.w.loose[a] {
		a.checkLoose(x)
	}
}

func (a *app) writesBehind(i int) bool {
	for _, x := range a.asks[i+1:] {
		if x.kind == "put" || x.kind == "delete" || x.kind == "txn" || x.kind == "call" || x.kind == "await" {
			return true
		}
	}
	for _, x := range a.w.loose[a] {
		if x.kind == "put" && x.ahead > i {
			return true
		}
	}
	return false
}

// checkLoose checks a request that has no certain place: it comes behind those that were sent before it.
func (a *app) checkLoose(x *ask) {
	if x.err != nil && x.kind == "get" || x.level == sdk.Fast {
		return
	}
	rev := x.rev
	if x.kind == "put" {
		if rev = a.effect(x); rev == 0 {
			return
		}
	}
	for _, o := range a.asks[:x.ahead] {
		if e := a.effect(o); e > rev || x.kind == "put" && e == rev {
			a.found(o, "it took effect at %d, and at %d: %v", e, rev, x)
		}
	}
	if x.err != nil {
		return
	}
	for _, o := range a.asks[x.until:] {
		if e := a.effect(o); e != 0 && e <= rev {
			a.found(o, "it took effect at %d, and was sent behind the answer at %d to %v", e, rev, x)
		}
	}
}

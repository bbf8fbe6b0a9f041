package host

import (
	"context"
	"slices"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/stoa-kv/stoa/client/compose"
)

// lookAt reads a range, or a key, as it is or was.
func (a *composedApp) lookAt() {
	d := &deed{kind: "get", synced: a.far != nil && a.one(2)}
	if d.key, d.end = a.span(); a.one(4) {
		d.key, d.end = a.key(), ""
	}
	if in := a.w.in(d); len(in) > 0 {
		d.sel = drawSelection(a.rng, a.w.clusters[in[0]].ledger.reached.Load())
	}
	a.op(d, clientv3.OpGet(d.key, slices.Concat(spanOptions(d.end), d.sel.options(), a.level(d))...))
}

// stay reads keys that may be mirrored, one after the other.
func (a *composedApp) stay() {
	for range 2 + a.rng.IntN(8) {
		d := &deed{kind: "get", key: "u/" + a.some("p", "q")}
		if a.one(2) {
			d.key, d.end = "u/", a.some("u/q", "u0")
			d.sel = drawSelection(a.rng, a.w.clusters[0].ledger.reached.Load())
		}
		a.op(d, clientv3.OpGet(d.key, slices.Concat(spanOptions(d.end), d.sel.options(), a.level(d))...))
		if a.one(3) {
			time.Sleep(time.Duration(a.rng.IntN(20)) * time.Millisecond)
		}
	}
}

// txn puts two keys of one cluster if the first is there, or isn't.
func (a *composedApp) txn() {
	d := &deed{kind: "txn", key: a.key(), absent: a.one(2)}
	r := a.w.roads.of(d.key)
	if r == nil {
		return
	}
	d.other = r.prefix + a.some("p/t", "q/t")
	op := ">"
	if d.absent {
		op = "="
	}
	cmps := []clientv3.Cmp{clientv3.Compare(clientv3.Version(d.key), op, 0)}
	otherwise := []clientv3.Op{clientv3.OpGet(d.key)}
	then := func() []clientv3.Op {
		return []clientv3.Op{clientv3.OpPut(d.key, d.value), clientv3.OpPut(d.other, d.value)}
	}
	a.send(d, func(c asks, ctx context.Context) (clientv3.OpResponse, error) {
		return done(c.Txn(ctx).If(cmps...).Then(then()...).Else(otherwise...).Commit())
	}, func(c *compose.Client) func() {
		return answers(a, d, c.DoAsync(clientv3.OpTxn(cmps, then(), otherwise)))
	})
}

// refused sends an update that its cluster refuses, and reads behind it, which can't rely on it.
func (a *composedApp) refused() {
	r := a.unlocked()
	d := &deed{kind: "refused", key: r.prefix + "never"}
	if a.far != nil {
		a.op(d, clientv3.OpPut(d.key, "", clientv3.WithIgnoreValue()))
		a.refusedFar()
		return
	}
	a.note(d)
	a.wait.Go(answers(a, d, a.c.DoAsync(clientv3.OpPut(d.key, "", clientv3.WithIgnoreValue()))))
	for range 1 + a.rng.IntN(3) {
		e := &deed{kind: "get", key: r.prefix + a.some("p/a", "q/a", "q/b")}
		a.note(e)
		a.wait.Go(answers(a, e, a.c.GetAsync(e.key)))
	}
}

// across puts one value in two clusters, or reads both.
func (a *composedApp) across(puts bool) {
	d := pairOf(a.some("x", "y"))
	read := func(c asks, ctx context.Context) (clientv3.OpResponse, error) { return readPair(c, ctx, d) }
	if puts {
		d.kind = "across"
		read = func(c asks, ctx context.Context) (clientv3.OpResponse, error) {
			return done(c.Txn(ctx).Then(clientv3.OpPut(d.key, d.value), clientv3.OpPut(d.other, d.value)).Commit())
		}
	}
	a.send(d, read, nil)
}

func pairOf(key string) *deed { return &deed{kind: "pair", key: "t0/" + key, other: "t1/" + key} }

func readPair(c asks, ctx context.Context, d *deed) (clientv3.OpResponse, error) {
	return done(c.Txn(ctx).Then(clientv3.OpGet(d.key), clientv3.OpGet(d.other)).Commit())
}

// putAlone puts a key that nothing else does, neither ranges nor scripts, and waits if it may be locked.
func (a *composedApp) putAlone(key string) {
	d := &deed{kind: "put", key: key}
	async := func(c *compose.Client) func() { return answers(a, d, c.PutAsync(d.key, d.value)) }
	if a.w.roads.of(key).locks {
		async = nil // which is refused
	}
	a.send(d, func(c asks, ctx context.Context) (clientv3.OpResponse, error) {
		return done(c.Put(ctx, d.key, d.value))
	}, async)
}

package faults

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"sync"
	"time"

	"github.com/anishathalye/porcupine"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// recorder collects requests and answers of clients.
type recorder struct {
	start time.Time
	mu    sync.Mutex
	ops   []porcupine.Operation
}

func (r *recorder) now() int64 { return int64(time.Since(r.start)) }

func (r *recorder) add(client int, in request, call int64, out answer, ret int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.ops = append(r.ops, porcupine.Operation{ClientId: client, Input: in, Call: call, Output: out, Return: ret})
}

// told is the history as a watch delivers it: the changes of each revision.
type told map[int64]map[int]int64 // revision → key → id, 0 for a deletion

func (h told) add(events []*clientv3.Event) error {
	for _, ev := range events {
		rev := ev.Kv.ModRevision
		k, v := parse(ev.Kv)
		if h[rev] == nil {
			h[rev] = map[int]int64{}
		}
		if _, twice := h[rev][k]; twice {
			return fmt.Errorf("revision %d of key %d was told twice", rev, k)
		}
		h[rev][k] = v.id
	}
	return nil
}

// watchAll reads the history through a watch, from revision 1 until it has seen stop.
func watchAll(ctx context.Context, cli *clientv3.Client, stop int64) (told, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	h, last := told{}, int64(0)
	for r := range cli.Watch(ctx, "/faults/", clientv3.WithPrefix(), clientv3.WithRev(1)) {
		if err := r.Err(); err != nil {
			return h, fmt.Errorf("watching the history: %w", err)
		}
		for _, ev := range r.Events {
			if ev.Kv.ModRevision < last {
				return h, fmt.Errorf("the watch went back from revision %d to %d", last, ev.Kv.ModRevision)
			}
			last = ev.Kv.ModRevision
		}
		if err := h.add(r.Events); err != nil {
			return h, err
		}
		if last >= stop {
			return h.upTo(stop), nil
		}
	}
	return h, fmt.Errorf("the watch ended at revision %d, before %d: %w", last, stop, ctx.Err())
}

// upTo leaves out what came with the last revision of a test: a write without an answer may take effect behind it.
func (h told) upTo(stop int64) told {
	maps.DeleteFunc(h, func(rev int64, _ map[int]int64) bool { return rev > stop })
	return h
}

// same compares two deliveries of one history.
func (h told) same(o told) error {
	var errs []error
	for rev, changes := range h {
		if !maps.Equal(changes, o[rev]) {
			errs = append(errs, fmt.Errorf("revision %d: %v told live, %v at the end", rev, changes, o[rev]))
		}
	}
	for rev, changes := range o {
		if h[rev] == nil {
			errs = append(errs, fmt.Errorf("revision %d: nothing told live, %v at the end", rev, changes))
		}
	}
	return errors.Join(errs[:min(len(errs), 10)]...)
}

// resolve determines the outcome of unanswered writes by the watched history,
// and checks that the answered ones are in it in full. Writes that never took
// effect are left out.
func resolve(ops []porcupine.Operation, h told) ([]porcupine.Operation, error) {
	wrote := map[int64]int64{} // id → revision
	for rev, changes := range h {
		for _, id := range changes {
			if id == 0 {
				continue
			}
			if other, ok := wrote[id]; ok && other != rev {
				return nil, fmt.Errorf("write %d happened twice, at revisions %d and %d", id, other, rev)
			}
			wrote[id] = rev
		}
	}
	var out []porcupine.Operation
	var errs []error
	for _, op := range ops {
		in, ans := op.Input.(request), op.Output.(answer)
		if in.id == 0 {
			if !ans.unknown {
				out = append(out, op)
			}
			continue
		}
		rev, happened := wrote[in.id]
		switch {
		case ans.unknown && !happened:
			continue
		case ans.unknown:
			ans.rev = rev
			op.Output, op.Return = ans, math.MaxInt64
		case ans.failed && happened:
			errs = append(errs, fmt.Errorf("%v was answered as failed, but happened at revision %d", in, rev))
		case ans.failed:
		case !happened:
			errs = append(errs, fmt.Errorf("LOST: %v was acknowledged at revision %d, but is not in the history", in, ans.rev))
		case rev != ans.rev:
			errs = append(errs, fmt.Errorf("%v was acknowledged at revision %d, but is in the history at %d", in, ans.rev, rev))
		}
		if happened {
			errs = append(errs, checkComplete(in, h[rev]))
		}
		out = append(out, op)
	}
	return out, errors.Join(errs...)
}

// checkComplete checks that a revision holds all of a write and nothing else.
func checkComplete(in request, changes map[int]int64) error {
	want := map[int]int64{}
	for i, k := range in.keys {
		want[k] = in.id
		if in.kind == opMove && i == 0 {
			want[k] = 0
			if _, ok := changes[k]; !ok && in.mods[k] == 0 {
				delete(want, k) // it deleted what was not there
			}
		}
	}
	if maps.Equal(want, changes) {
		return nil
	}
	return fmt.Errorf("HALF: %v changed %v", in, changes)
}

// check runs porcupine over the resolved history.
func check(ops []porcupine.Operation, atMost time.Duration) porcupine.CheckResult {
	if !narrow(ops) {
		return porcupine.Illegal
	}
	return porcupine.CheckOperationsTimeout(model, ops, atMost)
}

// narrow sorts operations into the one order that their revisions permit, and has each be called no earlier than those
// before it and return no later than those behind it, as it must have been. A write whose answer never came is otherwise
// open to the end, and porcupine, which tries first what was called first, can't order hundreds of them. It is false if
// one was called after its successor had returned.
func narrow(ops []porcupine.Operation) bool {
	slices.SortFunc(ops, inOrder)
	n := int64(len(ops))
	latest, earliest := int64(math.MinInt64), int64(math.MaxInt64)
	for i := range ops {
		latest = max(latest, ops[i].Call)
		ops[i].Call = latest
	}
	for i := len(ops) - 1; i >= 0; i-- {
		op := &ops[i]
		earliest = min(earliest, op.Return)
		if op.Call > earliest {
			return false
		}
		// Those called at the same time are tried in this order, too.
		op.Call = op.Call*n + int64(i)
		if op.Return = earliest; earliest < math.MaxInt64 {
			op.Return = earliest*n + n
		}
	}
	return true
}

// inOrder compares by revisions. Reads come behind the write of their revision, and, since they don't differ, as
// they were called.
func inOrder(a, b porcupine.Operation) int {
	reads := func(op porcupine.Operation) int {
		if op.Input.(request).id == 0 || op.Output.(answer).failed {
			return 1
		}
		return 0
	}
	return cmp.Or(cmp.Compare(a.Output.(answer).rev, b.Output.(answer).rev), cmp.Compare(reads(a), reads(b)), cmp.Compare(a.Call, b.Call))
}

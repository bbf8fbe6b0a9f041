package host

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"

	"github.com/stoa-kv/stoa/client/compose"
	"github.com/stoa-kv/stoa/internal/fault"
)

// In some runs the first cluster has an extension for a while, now and then: it answers transactions of the keys that are in transactions over
// clusters, and executes nothing of them; it puts what is put below one prefix, as the cluster would; and it notes there what it hears of that.

const (
	standInKey  = "/em/standin"
	standInPuts = "/c0/e/"
)

// standIn is the extension; says is what it answers to transactions.
func standIn(says string) string {
	return strings.ReplaceAll(`return {
  scope = { "/c0/e/", "/c0/f" },
  operations = { { op = "txn", prefix = "t0/" }, { op = "put", prefix = "/c0/e/" } },
  events = { { event = "created", prefix = "/c0/e/" }, { event = "modified", prefix = "/c0/e/" } },
  txn = function(r) return SAYS end,
  put = function(r) put(r.key, r.value) end,
  event = function(e) put("/c0/f", e.value) end,
}`, "SAYS", says)
}

// extend registers the extension for a while.
func (w *composedWorld) extend(rng *rand.Rand) {
	f, ctx := front{s: w.clusters[0].rig.servers[rng.IntN(3)]}, own(context.Background())
	long := time.Duration(rng.IntN(1500)) * time.Millisecond
	w.resizers.Go(func() {
		w.extending.Lock()
		defer w.extending.Unlock()
		for !w.calm.Load() {
			if _, err := f.Put(ctx, &pb.PutRequest{Key: []byte(standInKey), Value: []byte(standIn(w.plan.Extends))}); err == nil {
				time.Sleep(long)
				break
			}
			time.Sleep(50 * time.Millisecond)
		}
		for {
			if _, err := f.DeleteRange(ctx, &pb.DeleteRangeRequest{Key: []byte(standInKey)}); err == nil || errors.Is(err, fault.Stopped) && w.calm.Load() {
				return
			}
			time.Sleep(50 * time.Millisecond)
		}
	})
}

// extended tells whether the extension may have answered a request.
func (w *composedWorld) extended(d *deed) bool {
	if w.plan.Extends == "" {
		return false
	}
	if d.kind == "across" || d.kind == "pair" {
		return true
	}
	r := w.roads.of(d.key)
	locked := func(r *road) bool { return r.locks && r.cluster == 0 }
	return r != nil && locked(r) || d.end != "" && slices.ContainsFunc(w.roads.stretches(d.key, d.end), func(s stretch) bool { return locked(s.road) })
}

// stoodIn tells whether an answer to a read may be the extension's, which shows no keys. Updates are never its to answer.
func (w *composedWorld) stoodIn(d *deed) bool {
	return d.kind == "get" && w.extended(d) && (d.rev == 0 || len(d.kvs) == 0)
}

// standsIn tells whether an error says that the extension has answered.
func (w *composedWorld) standsIn(d *deed) bool {
	return errors.Is(d.err, compose.ErrTransactions) && w.extended(d)
}

package compose

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/stoa-kv/stoa/client"
	"github.com/stoa-kv/stoa/client/compose"
	"github.com/stoa-kv/stoa/test/compose/osc"
)

// answerTimeout bounds the wait for an answer: far longer than compose's own
// timeout.
const answerTimeout = 30 * time.Second

// worker is one client whose operations are recorded.
type worker struct {
	id       int
	by       []*compose.Client // for each cluster: the same, or one each
	h        *osc.History
	rnd      *rand.Rand
	clusters int
	pause    *atomic.Int64 // nanoseconds between the operations of a burst, at most; nil: none

	written  int
	underWay sync.WaitGroup
	mu       sync.Mutex
	errs     []error // answers that no fault explains
}

// run works until ctx ends: bursts of operations on one cluster, then on another; some
// are awaited one by one, some sent all at once.
func (w *worker) run(ctx context.Context) {
	for ctx.Err() == nil {
		cluster := w.rnd.IntN(w.clusters)
		await := w.rnd.IntN(2) == 0
		for range 1 + w.rnd.IntN(5) {
			if done := w.operation(cluster); await {
				<-done
			}
			if w.pause != nil {
				time.Sleep(time.Duration(w.rnd.Int64N(w.pause.Load())))
			}
		}
		if w.rnd.IntN(3) > 0 {
			w.underWay.Wait()
			time.Sleep(time.Duration(w.rnd.IntN(8)) * time.Millisecond)
		}
	}
	w.underWay.Wait()
}

// operation sends one; the channel is closed when its answer is recorded.
func (w *worker) operation(cluster int) <-chan struct{} {
	key := func(i int) string { return prefix(cluster) + keys[i] }
	switch n := w.rnd.IntN(100); {
	case n < 45:
		return w.get(key(w.rnd.IntN(len(keys))))
	case n < 60:
		return w.getAll(cluster)
	case n < 85:
		return w.put(key(w.rnd.IntN(len(keys))))
	default:
		perm := w.rnd.Perm(len(keys))
		return w.put(key(perm[0]), key(perm[1]))
	}
}

// get reads a key.
func (w *worker) get(key string) <-chan struct{} {
	o := w.h.Begin(&osc.Op{Client: w.id, Cluster: clusterOf(key)})
	return await(w, o, w.by[o.Cluster].GetAsync(key), func(r *clientv3.GetResponse) { see(o, []string{key}, r) })
}

// getAll reads all keys of a cluster.
func (w *worker) getAll(cluster int) <-chan struct{} {
	var asked []string
	for _, k := range keys {
		asked = append(asked, prefix(cluster)+k)
	}
	o := w.h.Begin(&osc.Op{Client: w.id, Cluster: cluster})
	return await(w, o, w.by[cluster].GetAsync(prefix(cluster), clientv3.WithPrefix()), func(r *clientv3.GetResponse) { see(o, asked, r) })
}

// put writes a value that no other request writes, in one key or, by a
// transaction, more.
func (w *worker) put(keys ...string) <-chan struct{} {
	w.written++
	value := fmt.Sprintf("%d-%d", w.id, w.written)
	op := &osc.Op{Client: w.id, Cluster: clusterOf(keys[0]), Update: true, Keys: map[string]osc.Version{}}
	var puts []clientv3.Op
	for _, k := range keys {
		op.Keys[k] = osc.Version{Value: value}
		puts = append(puts, clientv3.OpPut(k, value))
	}
	o := w.h.Begin(op)
	if len(keys) == 1 {
		return await(w, o, w.by[o.Cluster].PutAsync(keys[0], value), func(r *clientv3.PutResponse) { o.Revision = r.Header.Revision })
	}
	return await(w, o, w.by[o.Cluster].TxnAsync(nil, puts, nil), func(r *clientv3.TxnResponse) { o.Revision = r.Header.Revision })
}

// see records the result of a read; a key that it asked for and didn't find is
// empty.
func see(o *osc.Op, asked []string, r *clientv3.GetResponse) {
	o.Keys = map[string]osc.Version{}
	for _, k := range asked {
		o.Keys[k] = osc.Version{}
	}
	for _, kv := range r.Kvs {
		o.Keys[string(kv.Key)] = osc.Version{Value: string(kv.Value), Mod: kv.ModRevision}
	}
}

// await records the answer when it comes.
func await[T any](w *worker, o *osc.Op, f *client.Future[T], fill func(T)) <-chan struct{} {
	done := make(chan struct{})
	w.underWay.Go(func() {
		defer close(done)
		ctx, cancel := context.WithTimeout(context.Background(), answerTimeout)
		defer cancel()
		r, err := f.Wait(ctx)
		if err == nil {
			w.h.End(o, func() { fill(r) })
			return
		}
		w.failed(o, err)
	})
	return done
}

// failed distinguishes by the error whether a request may have taken effect.
func (w *worker) failed(o *osc.Op, err error) {
	var of *compose.ClusterError
	switch {
	case !errors.As(err, &of):
		w.mu.Lock()
		w.errs = append(w.errs, fmt.Errorf("an answer that names no cluster: %w", err))
		w.mu.Unlock()
	case of.Cluster != name(o.Cluster):
		w.mu.Lock()
		w.errs = append(w.errs, fmt.Errorf("an answer of another cluster than %d: %w", o.Cluster, err))
		w.mu.Unlock()
	case o.Update && !of.Unknown:
		w.h.Refuse(o)
	}
	time.Sleep(5 * time.Millisecond)
}

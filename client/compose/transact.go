package compose

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"

	"github.com/stoa-kv/stoa/client/compose/internal/commit"
)

// transact carries out a transaction over several clusters, behind all earlier requests of the
// client; again under another name when it has met other transactions.
func (c *Client) transact(ctx context.Context, x *across) (*pb.TxnResponse, error) {
	if !c.core.idle() {
		if err := c.flush(ctx); err != nil {
			return nil, err
		}
	}
	for _, p := range x.parts {
		to := c.core.links[p.cluster]
		if err := to.settle(ctx, time.Now().Add(c.core.cfg.Timeout)); err != nil {
			return nil, to.cluster.named(plain(err), false)
		}
	}
	if err := c.core.writing(x); err != nil {
		return nil, err
	}
	l := c.shared.locker
	l.start()
	for n := 0; ; n++ {
		a := &attempt{locker: l, across: x, revisions: make([]atomic.Int64, len(x.parts)), over: make(chan struct{})}
		if err := l.begin(func() { a.run(context.WithoutCancel(ctx)) }); err != nil {
			return nil, err
		}
		select {
		case <-a.over:
		case <-ctx.Done():
			if a.phase.CompareAndSwap(locking, cancelled) {
				return nil, l.clusters[x.parts[0].cluster].named(ctx.Err(), false)
			}
			<-a.over // it is being decided, within Timeout
		}
		c.core.learned(a)
		if a.err != nil || a.outcome != commit.IsAbandoned || a.answer != nil {
			return a.answer, a.err
		}
		if err := l.resolve(ctx, x.parts[0].cluster, a.blockers, n); err != nil {
			return nil, err
		}
	}
}

// The phases of an attempt, in which its caller may leave it or not.
const (
	locking   int32 = iota // it can be abandoned
	deciding               // the commit is being sent
	cancelled              // the caller has left: it abandons
)

// attempt is one attempt at a transaction.
type attempt struct {
	*locker
	*across
	phase atomic.Int32
	// revisions are the highest that its answers had, by part. Those of other attempts don't count: a cluster may have been
	// restored since.
	revisions []atomic.Int64

	// gone: of the latest requests, which are sent again without an answer, only those had none whose cluster isn't there any more.
	gone bool

	over     chan struct{} // closed when the following is known
	outcome  commit.Outcome
	answer   *pb.TxnResponse
	err      error
	blockers []commit.Met
}

// run carries the attempt out, what remains to be done behind the outcome included.
func (a *attempt) run(ctx context.Context) {
	tell := sync.OnceFunc(func() { close(a.over) })
	defer tell()
	lease, txn, err := a.name(ctx)
	if err != nil {
		a.err = err
		return
	}
	m := commit.New(txn)
	rs := m.Next(nil)
	var until time.Time // of the commit, or of the work behind it
	known := false
	for len(rs) > 0 {
		rs = m.Next(a.ask(ctx, txn, rs))
		if m.Locked() {
			rs = a.goOn(m)
			until = time.Now().Add(a.cfg.Timeout)
		}
		if m.Outcome() == commit.Open && !until.IsZero() && time.Now().After(until) {
			rs = m.Unknown(ErrSilent)
		}
		if m.Retire() {
			a.retire(lease)
		}
		switch {
		case m.Outcome() == commit.Open:
		case !known:
			known, until = true, time.Now().Add(completeFor)
			a.ended(m)
			if a.err != nil || a.answer != nil { // else it begins anew, when its locks are gone
				tell()
			}
		case time.Now().After(until), a.gone, a.locker.ctx.Err() != nil:
			return
		}
	}
}

// retryPause is behind errors: most requests are sent again, and one that can't be sent fails at once. Recoveries send nothing again.
const retryPause = 50 * time.Millisecond

// ask sends requests, and notes the revisions of the answers.
func (a *attempt) ask(ctx context.Context, txn commit.Txn, rs []commit.Request) []commit.Answer {
	answers := a.send(ctx, rs)
	for i, p := range txn.Parts {
		for j, r := range rs {
			if r.Cluster == p.Cluster {
				a.revisions[i].Store(max(a.revisions[i].Load(), answers[j].Revision))
			}
		}
	}
	failed := slices.DeleteFunc(slices.Clone(answers), func(one commit.Answer) bool { return one.Err == nil })
	a.gone = len(failed) > 0 && repeated(rs[0].Step) && !slices.ContainsFunc(failed, func(one commit.Answer) bool { return !errors.Is(one.Err, errNoCluster) })
	if len(failed) > 0 {
		time.Sleep(retryPause)
	}
	return answers
}

// repeated reports that nothing else is done before all requests of a step have an answer.
func repeated(s commit.Step) bool {
	return s == commit.RollForward || s == commit.Release || s == commit.Finish
}

// completeFor bounds the time in which a client completes what it has decided, while it is open. After it, other
// clients do.
const completeFor = 30 * time.Second

// goOn decides on a transaction whose keys are locked.
func (a *attempt) goOn(m *commit.Coordinator) []commit.Request {
	for i := range a.parts {
		a.take(i, m.Values(i))
	}
	answer, writes := a.decide()
	if writes == nil {
		a.answer = answer
		return m.CommitNothing()
	}
	if !a.phase.CompareAndSwap(locking, deciding) {
		return m.Abandon()
	}
	a.answer = answer
	return m.Commit(writes)
}

// ended takes over what the coordinator knows.
func (a *attempt) ended(m *commit.Coordinator) {
	a.outcome, a.blockers = m.Outcome(), m.Blockers()
	err := m.Err()
	switch {
	case a.outcome == commit.IsUnknown:
		a.answer, a.err = nil, a.named(a.parts[0].cluster, err, true)
	case a.outcome == commit.IsAbandoned && err != nil:
		a.answer = nil
		if !errors.Is(err, errNoLease) && !errors.Is(err, commit.ErrExpired) {
			a.err = a.named(a.parts[0].cluster, err, false)
		}
	}
}

func (l *locker) named(cluster int, err error, unknown bool) error {
	var named *ClusterError
	if errors.As(err, &named) {
		if !unknown {
			return err
		}
		err = named.Err
	}
	return l.clusters[cluster].named(err, unknown)
}

// name gives the attempt a name, on the lease of this client at home.
func (a *attempt) name(ctx context.Context) (*txnLease, commit.Txn, error) {
	ctx, cancel := context.WithTimeout(ctx, a.cfg.Timeout)
	defer cancel()
	var txn commit.Txn
	for _, p := range a.parts {
		id, err := a.clusters[p.cluster].identity(ctx)
		if err != nil {
			return nil, txn, a.clusters[p.cluster].named(plain(err), false)
		}
		part := commit.Part{Cluster: id}
		for _, k := range p.keys {
			part.Keys = append(part.Keys, k.keyThere(k.here))
		}
		txn.Parts = append(txn.Parts, part)
	}
	lease, err := a.lease(ctx, a.clusters[a.parts[0].cluster])
	if err != nil {
		return nil, txn, a.clusters[a.parts[0].cluster].named(plain(err), false)
	}
	txn.Lease = int64(lease.id)
	txn.ID = fmt.Sprintf("%x-%d", txn.Lease, lease.names.Add(1))
	return lease, txn, nil
}

// idle reports that no request of the client is unanswered.
func (c *core) idle() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.algo.last >= 0 {
		c.algo.responded(c.links[c.algo.last].takeAnswers())
	}
	return len(c.queue) == 0 && c.algo.waiting == 0 && c.algo.outstanding == 0
}

// writing records for the feeds that the client writes to the clusters of a transaction.
func (c *core) writing(x *across) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return ErrClosed
	}
	for _, p := range x.parts {
		c.write(c.links[p.cluster].cluster)
	}
	return nil
}

// write records for the feeds that the client is going to write to clusters with requests that have no place in its order. It needs mu.
func (c *core) write(to ...*cluster) {
	if len(c.feeds) == 0 {
		return
	}
	for _, of := range to {
		c.depend(of.at)
	}
	c.ran = nil // the next request begins a run
}

// learned makes all later reads of the client at least as new as what an attempt has seen.
func (c *core) learned(a *attempt) {
	for i, p := range a.parts {
		if r := a.revisions[i].Load(); r > 0 {
			c.saw(p.cluster, r)
		}
	}
	c.unlead()
}

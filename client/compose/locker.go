package compose

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc/peer"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"

	"github.com/stoa-kv/stoa/client"
	"github.com/stoa-kv/stoa/client/compose/internal/commit"
)

// locker sends the requests of transactions over clusters and of their recoveries, for a client
// and its forks. They have no place in the order of a client, whose transaction as a whole has
// one.
type locker struct {
	cfg      Config
	clusters []*cluster
	ctx      context.Context // ends with close
	end      context.CancelFunc
	work     sync.WaitGroup // attempts, begun by begin
	sweeper  sync.WaitGroup

	// granting has room for one in each cluster: who is being granted the lease there.
	granting []chan struct{}

	mu       sync.Mutex
	leases   map[*cluster]*txnLease
	closing  bool // nothing begins any more
	sweeping bool
}

// txnLease is the lease of this client in one cluster, for transactions whose home that is.
type txnLease struct {
	of    *cluster
	id    clientv3.LeaseID
	names atomic.Int64 // of transactions
	drop  context.CancelFunc
}

// txnTTL is the time, in seconds, after which the transactions of a client that has died, and
// were not decided, don't block others any more.
const txnTTL = 10

var (
	errNoLease = errors.New("the lease of the transaction's client has expired")
	// errExtended: the cluster has given a request to an extension with a handler of txn for one of its keys, so nothing of
	// the request was done, whatever the answer says.
	errExtended  = fmt.Errorf("%w: an extension handles those of the keys", ErrTransactions)
	errNoCluster = errors.New("compose: the home of a transaction, or a cluster with a part of it, is none of the composition's")
)

func newLocker(cfg Config, clusters []*cluster) *locker {
	l := &locker{cfg: cfg, clusters: clusters, leases: map[*cluster]*txnLease{}}
	for range clusters {
		l.granting = append(l.granting, make(chan struct{}, 1))
	}
	l.ctx, l.end = context.WithCancel(context.Background())
	return l
}

// begin runs work, which close waits for.
func (l *locker) begin(work func()) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closing {
		return ErrClosed
	}
	l.work.Go(work)
	return nil
}

// close waits for transactions that are being completed, and revokes the leases.
func (l *locker) close() {
	l.mu.Lock()
	l.closing = true
	l.mu.Unlock()
	ended := make(chan struct{})
	go func() {
		l.work.Wait()
		close(ended)
	}()
	select {
	case <-ended:
	case <-time.After(l.cfg.Timeout):
	}
	l.end()
	l.sweeper.Wait()
	l.mu.Lock()
	leases := slices.Collect(maps.Values(l.leases)) // there will be no others
	l.mu.Unlock()
	var all sync.WaitGroup
	for _, one := range leases {
		all.Go(func() {
			ctx, cancel := context.WithTimeout(context.Background(), l.cfg.Timeout)
			defer cancel()
			_ = one.revoke(ctx) // else it expires
		})
	}
	all.Wait()
}

// lease is the client's lease at home.
func (l *locker) lease(ctx context.Context, home *cluster) (*txnLease, error) {
	if one, err := l.present(home); one != nil || err != nil {
		return one, err
	}
	select {
	case l.granting[home.at] <- struct{}{}:
		defer func() { <-l.granting[home.at] }()
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	if one, err := l.present(home); one != nil || err != nil {
		return one, err
	}
	one := &txnLease{of: home, id: clientv3.LeaseID(rand.Int64N(1<<62) + 1)}
	asked := time.Now()
	err := home.with(ctx, func(by *clientv3.Client) error {
		_, err := grantTo(ctx, by, int64(one.id), txnTTL)
		return err
	})
	if err != nil {
		return nil, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.ctx.Err() != nil {
		return nil, ErrClosed // and the lease expires
	}
	var alive context.Context
	alive, one.drop = context.WithCancel(l.ctx)
	k := &keeper{in: []*cluster{home}, id: one.id, ttl: txnTTL * time.Second, since: asked}
	go func() {
		if k.keep(alive) != nil {
			l.retire(one)
		}
	}()
	l.leases[home] = one
	return one, nil
}

// present is the lease that the client has at home, nil if it has none.
func (l *locker) present(home *cluster) (*txnLease, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if one := l.leases[home]; one != nil {
		return one, nil
	}
	if l.ctx.Err() != nil {
		return nil, ErrClosed
	}
	return nil, nil
}

// retire ends a lease: its pending transactions are abandoned, now or when it expires.
func (l *locker) retire(one *txnLease) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.leases[one.of] != one || l.closing { // close revokes it
		return
	}
	delete(l.leases, one.of)
	one.drop()
	l.work.Go(func() {
		ctx, cancel := context.WithTimeout(l.ctx, l.cfg.Timeout)
		defer cancel()
		_ = one.revoke(ctx)
	})
}

func (t *txnLease) revoke(ctx context.Context) error {
	return t.of.with(ctx, func(by *clientv3.Client) error {
		_, err := by.Revoke(ctx, t.id)
		return err
	})
}

// identity is the cluster's ID.
func (c *cluster) identity(ctx context.Context) (uint64, error) {
	if id := c.id.Load(); id != 0 {
		return id, nil
	}
	return c.identify(ctx)
}

// identify asks for the cluster's ID.
func (c *cluster) identify(ctx context.Context) (uint64, error) {
	err := c.with(ctx, func(by *clientv3.Client) error {
		a, err := by.Get(ctx, commit.Prefix, clientv3.WithCountOnly(), clientv3.WithSerializable()) // users of transactions may
		if err == nil {
			c.id.Store(a.Header.GetClusterId())
		}
		return err
	})
	return c.id.Load(), err
}

// by finds the cluster with an ID. It doesn't wait for others if that is known, or is the first to answer. If none has it, all are asked: one that was
// restored or made anew has another ID than before.
func (l *locker) by(ctx context.Context, id uint64) (*cluster, error) {
	for _, c := range l.clusters {
		if c.id.Load() == id {
			return c, nil
		}
	}
	ctx, cancel := context.WithTimeout(ctx, l.cfg.Timeout)
	defer cancel()
	if c, err := identified(ctx, l.clusters, id); c != nil || err != nil {
		return c, err
	}
	return nil, fmt.Errorf("%w (cluster ID %x)", errNoCluster, id)
}

// identified asks for the IDs of clusters, and returns the one with an ID, nil if all have others.
func identified(ctx context.Context, all []*cluster, id uint64) (*cluster, error) {
	type answer struct {
		c   *cluster
		id  uint64
		err error
	}
	answers := make(chan answer, len(all))
	for _, c := range all {
		go func() {
			id, err := c.identify(ctx)
			answers <- answer{c, id, err}
		}()
	}
	var failed error
	for range all {
		switch a := <-answers; {
		case a.err != nil:
			failed = a.c.named(plain(a.err), false)
		case a.id == id:
			return a.c, nil
		}
	}
	return nil, failed
}

// send sends requests at once and waits for all answers.
func (l *locker) send(ctx context.Context, rs []commit.Request) []commit.Answer {
	answers := make([]commit.Answer, len(rs))
	var all sync.WaitGroup
	for i, r := range rs[1:] {
		all.Go(func() { answers[i+1] = l.call(ctx, r) })
	}
	answers[0] = l.call(ctx, rs[0])
	all.Wait()
	return answers
}

func (l *locker) call(ctx context.Context, r commit.Request) commit.Answer {
	of, err := l.by(ctx, r.Cluster)
	if err != nil {
		return commit.Answer{Err: err, Refused: true}
	}
	asking, cancel := context.WithTimeout(ctx, l.cfg.Timeout)
	defer cancel()
	asking, refuse := context.WithCancelCause(asking)
	defer refuse(nil)
	var to peer.Peer
	var a *pb.TxnResponse
	err = of.with(asking, func(by *clientv3.Client) error {
		defer giveUp(asking, by, refuse).Stop()
		m, err := invoke(asking, clientv3.RetryKVClient(by), messageOf(r), &to)
		a, _ = m.(*pb.TxnResponse)
		return clientv3.ContextError(asking, err)
	})
	if err == nil {
		return l.took(ctx, of, r, a)
	}
	if errors.Is(context.Cause(asking), client.ErrRefused) {
		err = client.ErrRefused
	}
	answer := commit.Answer{Refused: to.Addr == nil || !isCutOff(err), Err: of.named(plain(err), false)}
	if errors.Is(err, rpctypes.ErrLeaseNotFound) {
		answer.NoLease, answer.Err = true, errNoLease
	}
	if asking.Err() != nil && ctx.Err() == nil {
		of.leave()
	}
	return answer
}

func (l *locker) took(ctx context.Context, of *cluster, r commit.Request, a *pb.TxnResponse) commit.Answer {
	if id := a.Header.GetClusterId(); id != r.Cluster {
		of.id.Store(id)
		return commit.Answer{Refused: l.undo(ctx, of, r, a), Err: of.named(errors.New("it is another cluster than before"), false)}
	}
	if !executed(a) {
		return commit.Answer{Refused: true, Err: of.named(errExtended, false)}
	}
	answer := commit.Answer{Succeeded: a.Succeeded, Revision: a.Header.Revision}
	for _, r := range a.Responses {
		if got := r.GetResponseRange(); got != nil {
			var kv *commit.KV
			if len(got.Kvs) > 0 {
				kv = fromKV(got.Kvs[0])
			}
			answer.KVs = append(answer.KVs, kv)
		}
	}
	return answer
}

// undo takes back what the beginning of a transaction has written in a cluster that was restored, or made anew, and has another ID: its locks name the former
// one as their home, and nobody could remove them. It reports whether there is nothing of it. It may be sent again: there are all of these locks, or none.
func (l *locker) undo(ctx context.Context, of *cluster, r commit.Request, a *pb.TxnResponse) (done bool) {
	switch {
	case r.Step != commit.Begin:
		return false
	case !a.Succeeded || !executed(a):
		return true
	}
	back := commit.Request{}
	for _, op := range r.Then {
		if op.Do != commit.Put {
			continue
		}
		back.Then = append(back.Then, commit.Op{Do: commit.Delete, Key: op.Key})
		if op.Lease == 0 { // the record may have gone with its lease
			back.If = append(back.If, commit.Cond{Key: op.Key, Test: commit.Is, Value: op.Value})
		}
	}
	ctx, cancel := context.WithTimeout(ctx, l.cfg.Timeout)
	defer cancel()
	for ctx.Err() == nil {
		err := of.with(ctx, func(by *clientv3.Client) error {
			a, err := clientv3.RetryKVClient(by).Txn(ctx, messageOf(back))
			done = err == nil && executed(a)
			return err
		})
		if !isCutOff(err) {
			break
		}
		time.Sleep(retryPause)
	}
	return done
}

// messageOf is a request as etcd has it.
func messageOf(r commit.Request) *pb.TxnRequest {
	t := &pb.TxnRequest{}
	for _, c := range r.If {
		m := &pb.Compare{Key: []byte(c.Key), Result: pb.Compare_EQUAL}
		switch c.Test {
		case commit.Absent:
			m.Target, m.TargetUnion = pb.Compare_CREATE, &pb.Compare_CreateRevision{}
		case commit.Is:
			m.Target, m.TargetUnion = pb.Compare_VALUE, &pb.Compare_Value{Value: c.Value}
		case commit.IsAt:
			m.Target, m.TargetUnion = pb.Compare_MOD, &pb.Compare_ModRevision{ModRevision: c.Mod}
		}
		t.Compare = append(t.Compare, m)
	}
	t.Success, t.Failure = append(opsOf(r.Then), proof()), append(opsOf(r.Else), proof())
	return t
}

// proof is the last operation of each branch: a transaction of nothing, which succeeds where it is executed. Where an
// extension has answered instead, every transaction within the one that it was given has failed.
func proof() *pb.RequestOp { return opOf(&pb.TxnRequest{}) }

// executed reports that a transaction with proofs has been executed.
func executed(a *pb.TxnResponse) bool {
	n := len(a.Responses)
	return n > 0 && a.Responses[n-1].GetResponseTxn().GetSucceeded()
}

func opsOf(ops []commit.Op) (all []*pb.RequestOp) {
	for _, op := range ops {
		key := []byte(op.Key)
		switch op.Do {
		case commit.Get:
			all = append(all, opOf(&pb.RangeRequest{Key: key}))
		case commit.Put:
			all = append(all, opOf(&pb.PutRequest{Key: key, Value: op.Value, Lease: op.Lease}))
		case commit.Delete:
			all = append(all, opOf(&pb.DeleteRangeRequest{Key: key}))
		}
	}
	return all
}

func metIn(of *cluster, kvs []*mvccpb.KeyValue) []commit.Met {
	var all []*commit.KV
	for _, kv := range kvs {
		all = append(all, fromKV(kv))
	}
	return commit.MetIn(of.id.Load(), all)
}

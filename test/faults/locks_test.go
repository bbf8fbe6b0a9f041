//go:build faults

package faults

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/concurrency"
	"go.uber.org/zap"

	"github.com/stoa-kv/stoa/test/process"
)

// TestLocks: a lock protects what is written with its token, leases live as long as they were
// promised to, and end afterwards.
func TestLocks(t *testing.T) {
	bin, err := process.UnderTest()
	require.NoError(t, err)
	for _, parts := range []int{1, 3} {
		if parts > 1 && !bin.Stoa {
			continue
		}
		t.Run(fmt.Sprintf("P=%d", parts), func(t *testing.T) {
			runLocks(t, 3, parts, []string{"kill one", "kill the leader", "kill all", "pause the leader", "pause the leader for long", "move the leader"})
		})
	}
	if bin.Stoa {
		t.Run("clocks", func(t *testing.T) { runLocks(t, 3, 3, clocks) })
	}
}

// lockers are clients that share a lock.
type lockers struct {
	mu    sync.Mutex
	known []keptAlive
}

func runLocks(t *testing.T, nodes, parts int, names []string) {
	seed := seedOf(t)
	c := start(t, process.Spec{Binary: binaryFor(t, names), Nodes: nodes, Partitions: parts})
	ctx, cancel := context.WithTimeout(t.Context(), *loadTime)
	defer cancel()
	watching := clientOf(t, c.Endpoints()...)
	history := newLockHistory()
	followed := make(chan error, 1)
	stop := make(chan int64, 1)
	go func() { followed <- follow(t.Context(), watching, history, stop) }()
	l := new(lockers)
	var work sync.WaitGroup
	for i := range max(2, *clients/2) { // of more, most would wait
		cli := clientOf(t, c.Servers[i%nodes].ClientURL)
		work.Go(func() { l.run(ctx, cli, rand.New(rand.NewPCG(seed, uint64(i)))) })
	}
	count := disturb(t, ctx, newNemesis(t, c, seed, time.Now()), names)
	work.Wait()
	var end int64
	require.Eventually(t, func() bool {
		ctx, cancel := context.WithTimeout(t.Context(), opTimeout)
		defer cancel()
		resp, err := watching.Put(ctx, "/fenced/end", "")
		if err == nil {
			end = resp.Header.Revision
		}
		return err == nil
	}, 30*time.Second, 100*time.Millisecond, "writes don't resume")
	stop <- end
	require.NoError(t, <-followed)
	t.Logf("%d faults; %d locks taken, %d writes under them", count, len(l.known), history.writes)
	require.NoError(t, history.expired(l.known))
	require.Greater(t, history.writes, 20, "hardly anything was done")
	require.Eventually(t, func() bool {
		resp, err := watching.Get(contextFor(t, opTimeout), lockRoot, clientv3.WithPrefix())
		return err == nil && len(resp.Kvs) == 0
	}, 30*time.Second, 500*time.Millisecond, "leases that nobody keeps alive don't end")
}

// clientOf makes a client that ends with the test and notices a broken connection within seconds.
func clientOf(t *testing.T, endpoints ...string) *clientv3.Client {
	t.Helper()
	cli, err := clientv3.New(clientv3.Config{Endpoints: endpoints, Logger: zap.NewNop(), DialKeepAliveTime: time.Second, DialKeepAliveTimeout: time.Second})
	require.NoError(t, err)
	t.Cleanup(func() { cli.Close() })
	return cli
}

// follow gives the history all events, until it has seen the revision that stop names.
func follow(ctx context.Context, cli *clientv3.Client, h *lockHistory, stop <-chan int64) error {
	last, end := int64(0), int64(0)
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	events := cli.Watch(clientv3.WithRequireLeader(ctx), "/", clientv3.WithPrefix(), clientv3.WithRev(1))
	for end == 0 || last < end {
		select {
		case end = <-stop:
		case r, ok := <-events:
			if !ok || r.Err() != nil { // no leader: again, from behind what was seen
				if ctx.Err() != nil {
					return ctx.Err()
				}
				time.Sleep(50 * time.Millisecond)
				events = cli.Watch(clientv3.WithRequireLeader(ctx), "/", clientv3.WithPrefix(), clientv3.WithRev(last+1))
				continue
			}
			if err := h.add(r.Events, time.Now()); err != nil {
				return err
			}
			if n := len(r.Events); n > 0 {
				last = r.Events[n-1].Kv.ModRevision
			}
		}
	}
	return nil
}

// run takes the lock over and over. Sometimes it leaves it to the lease's end.
func (l *lockers) run(ctx context.Context, cli *clientv3.Client, rnd *rand.Rand) {
	for ctx.Err() == nil {
		if err := l.once(ctx, cli, rnd); err != nil {
			time.Sleep(time.Duration(20+rnd.IntN(200)) * time.Millisecond)
		}
	}
}

func (l *lockers) once(ctx context.Context, cli *clientv3.Client, rnd *rand.Rand) error {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	lease, err := cli.Grant(ctx, lockTTL)
	if err != nil {
		return err
	}
	session, err := concurrency.NewSession(cli, concurrency.WithLease(lease.ID), concurrency.WithContext(ctx))
	if err != nil {
		return err
	}
	m := concurrency.NewMutex(session, lockRoot[:len(lockRoot)-1])
	if err := m.Lock(ctx); err != nil {
		revoke(cli, lease.ID)
		return err
	}
	got, err := cli.Get(ctx, m.Key())
	if err != nil || len(got.Kvs) == 0 {
		revoke(cli, lease.ID)
		return err
	}
	token := got.Kvs[0].CreateRevision
	k := keptAlive{lockKey: m.Key(), token: token, revoked: true}
	for n := range fencedLoop {
		if _, err = cli.Do(ctx, fenced(m.Key(), token, n)); err != nil {
			break
		}
		time.Sleep(time.Duration(rnd.IntN(40)) * time.Millisecond)
	}
	if rnd.IntN(8) == 0 { // its time is over only when what was promised last has passed
		session.Orphan()
		sent := time.Now()
		if alive, err := cli.KeepAliveOnce(ctx, lease.ID); err == nil {
			k.until, k.revoked = sent.Add(time.Duration(alive.TTL)*time.Second), false
		}
	} else {
		revoke(cli, lease.ID)
	}
	l.mu.Lock()
	l.known = append(l.known, k)
	l.mu.Unlock()
	return err
}

// revoke ends a lease, if its server can be asked.
func revoke(cli *clientv3.Client, id clientv3.LeaseID) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	_, _ = cli.Revoke(ctx, id)
}

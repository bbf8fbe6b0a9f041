package main

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/concurrency"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"

	"github.com/stoa-kv/stoa/internal/lockpb"
)

// recipes is a server, reached by etcd's client, and by the services of locks and elections.
type recipes struct {
	t    *testing.T
	ctx  context.Context
	addr string
	*clientv3.Client
	lock  lockpb.LockClient
	elect lockpb.ElectionClient
}

func serveRecipes(t *testing.T) *recipes {
	addr, _ := up(t, settings(t, t.TempDir(), "--partitions=3", "--bcrypt-cost=4"))
	conn, err := grpc.NewClient(addr, grpc.WithTransportCredentials(insecure.NewCredentials()))
	require.NoError(t, err)
	t.Cleanup(func() { conn.Close() })
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	t.Cleanup(cancel)
	return &recipes{t, ctx, addr, client(t, addr), lockpb.NewLockClient(conn), lockpb.NewElectionClient(conn)}
}

func (r *recipes) lease() int64 {
	l, err := r.Grant(r.ctx, 600)
	require.NoError(r.t, err)
	return int64(l.ID)
}

// waiters waits until a queue has so many keys.
func (r *recipes) waiters(name string, n int) {
	r.t.Helper()
	require.Eventually(r.t, func() bool {
		resp, err := r.Get(r.ctx, name+"/", clientv3.WithPrefix(), clientv3.WithCountOnly())
		return err == nil && resp.Count == int64(n)
	}, 30*time.Second, time.Millisecond, "%d keys below %s", n, name)
}

// Those who lock by the service and those who lock by etcd's client exclude each other, also
// where the keys of several locks lie in several partitions.
func TestLocksExclude(t *testing.T) {
	r := serveRecipes(t)
	var wg sync.WaitGroup
	for _, name := range []string{"lock", "/a/lock", "/b/deep/er/lock"} {
		var inside atomic.Int32
		var turns atomic.Int32
		critical := func() {
			if n := inside.Add(1); n != 1 {
				t.Errorf("%d at once have the lock %s", n, name)
			}
			turns.Add(1)
			inside.Add(-1)
		}
		for range 4 {
			lease := r.lease()
			wg.Go(func() {
				for range 5 {
					held, err := r.lock.Lock(r.ctx, &lockpb.LockRequest{Name: []byte(name), Lease: lease})
					if err != nil {
						t.Errorf("lock: %v", err)
						return
					}
					critical()
					if _, err := r.lock.Unlock(r.ctx, &lockpb.UnlockRequest{Key: held.Key}); err != nil {
						t.Errorf("unlock: %v", err)
						return
					}
				}
			})
		}
		wg.Go(func() {
			session, err := concurrency.NewSession(r.Client)
			if err != nil {
				t.Errorf("session: %v", err)
				return
			}
			defer session.Close()
			for range 5 {
				m := concurrency.NewMutex(session, name)
				if err := m.Lock(r.ctx); err != nil {
					t.Errorf("mutex: %v", err)
					return
				}
				critical()
				if err := m.Unlock(r.ctx); err != nil {
					t.Errorf("mutex: %v", err)
					return
				}
			}
		})
		t.Cleanup(func() { require.EqualValues(t, 25, turns.Load(), name) })
	}
	wg.Wait()
}

// Waiters get the lock in the order in which they have come.
func TestLocksAreInTurn(t *testing.T) {
	r := serveRecipes(t)
	got := make(chan int64, 10)
	var leases []int64
	for i := range 5 {
		lease := r.lease()
		leases = append(leases, lease)
		go func() {
			if _, err := r.lock.Lock(r.ctx, &lockpb.LockRequest{Name: []byte("l"), Lease: lease}); err == nil {
				got <- lease
			}
		}()
		r.waiters("l", i+1)
	}
	for _, lease := range leases {
		require.Equal(t, lease, <-got)
		require.Empty(t, got)
		_, err := r.lock.Unlock(r.ctx, &lockpb.UnlockRequest{Key: fmt.Appendf(nil, "l/%x", lease)})
		require.NoError(t, err)
	}
}

// giveUp has two callers wait behind the owner, ends the first one's request and then the
// owner's: nothing of the first remains, and the second is the owner.
func (r *recipes) giveUp(name string, owner string, wait func(ctx context.Context, lease int64) error) {
	t := r.t
	ctx, cancel := context.WithCancel(r.ctx)
	first, second := make(chan error, 1), make(chan error, 1)
	one, two := r.lease(), r.lease()
	go func() { first <- wait(ctx, one) }()
	r.waiters(name, 2)
	go func() { second <- wait(r.ctx, two) }()
	r.waiters(name, 3)
	cancel()
	require.ErrorContains(t, <-first, "canceled")
	r.waiters(name, 2)
	require.Empty(t, second)
	_, err := r.Delete(r.ctx, owner)
	require.NoError(t, err)
	require.NoError(t, <-second)
	resp, err := r.Get(r.ctx, name+"/", clientv3.WithPrefix())
	require.NoError(t, err)
	require.Len(t, resp.Kvs, 1)
	require.Equal(t, two, resp.Kvs[0].Lease)
}

func TestWaiterThatGivesUp(t *testing.T) {
	r := serveRecipes(t)
	held, err := r.lock.Lock(r.ctx, &lockpb.LockRequest{Name: []byte("l"), Lease: r.lease()})
	require.NoError(t, err)
	r.giveUp("l", string(held.Key), func(ctx context.Context, lease int64) error {
		_, err := r.lock.Lock(ctx, &lockpb.LockRequest{Name: []byte("l"), Lease: lease})
		return err
	})
	held, err = r.lock.Lock(r.ctx, &lockpb.LockRequest{Name: []byte("h"), Lease: r.lease()})
	require.NoError(t, err)
	r.giveUp("h", string(held.Key), func(ctx context.Context, lease int64) error {
		body := strings.NewReader(fmt.Sprintf(`{"name": "aA==", "lease": "%d"}`, lease))
		req, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+r.addr+"/v3/lock/lock", body)
		if err != nil {
			return err
		}
		resp, err := http.DefaultClient.Do(req)
		if err == nil {
			err = resp.Body.Close()
		}
		return err
	})
	led, err := r.elect.Campaign(r.ctx, &lockpb.CampaignRequest{Name: []byte("e"), Lease: r.lease()})
	require.NoError(t, err)
	r.giveUp("e", string(led.Leader.Key), func(ctx context.Context, lease int64) error {
		_, err := r.elect.Campaign(ctx, &lockpb.CampaignRequest{Name: []byte("e"), Lease: lease})
		return err
	})
}

// A lease that ends takes its owner's lock, and its waiter's turn.
func TestLeaseOfALockEnds(t *testing.T) {
	r := serveRecipes(t)
	owner := r.lease()
	lock := func(lease int64) error {
		_, err := r.lock.Lock(r.ctx, &lockpb.LockRequest{Name: []byte("l"), Lease: lease})
		return err
	}
	require.NoError(t, lock(owner))
	r.leasesEnd("l", owner, lock, "mutex: session is expired")
}

// leasesEnd has two wait behind an owner, in a queue, and the lease of the first end, and then the owner's.
func (r *recipes) leasesEnd(name string, owner int64, enter func(lease int64) error, refusal string) {
	lost, next := r.lease(), r.lease()
	ofLost := soon(func() error { return enter(lost) })
	r.waiters(name, 2)
	ofNext := soon(func() error { return enter(next) })
	r.waiters(name, 3)
	_, err := r.Revoke(r.ctx, clientv3.LeaseID(lost))
	require.NoError(r.t, err)
	r.waiters(name, 2)
	require.Empty(r.t, ofNext)
	_, err = r.Revoke(r.ctx, clientv3.LeaseID(owner))
	require.NoError(r.t, err)
	require.NoError(r.t, <-ofNext)
	require.ErrorContains(r.t, <-ofLost, refusal)
}

// soon makes a call that may wait.
func soon(call func() error) chan error {
	done := make(chan error, 1)
	go func() { done <- call() }()
	return done
}

// A waiter's turn is gone with its key, also if the key is made again meanwhile, behind others.
func TestKeyOfAWaiterIsMadeAgain(t *testing.T) {
	r := serveRecipes(t)
	lock := func(lease int64, waiting int) chan error {
		done := soon(func() error {
			_, err := r.lock.Lock(r.ctx, &lockpb.LockRequest{Name: []byte("l"), Lease: lease})
			return err
		})
		r.waiters("l", waiting)
		return done
	}
	owner, one, next := r.lease(), r.lease(), r.lease()
	key := func(lease int64) string { return fmt.Sprintf("l/%x", lease) }
	require.NoError(t, <-lock(owner, 1))
	first := lock(one, 2)
	ofNext := lock(next, 3)
	_, err := r.Delete(r.ctx, key(one))
	require.NoError(t, err)
	again := lock(one, 3)
	_, err = r.Delete(r.ctx, key(owner))
	require.NoError(t, err)
	require.NoError(t, <-ofNext)
	require.ErrorContains(t, <-first, "mutex: session is expired")
	require.Empty(t, again)
	_, err = r.Delete(r.ctx, key(next))
	require.NoError(t, err)
	require.NoError(t, <-again)
}

// A candidate whose lease ends while it waits doesn't lead when those before it are gone.
func TestLeaseOfACandidateEnds(t *testing.T) {
	r := serveRecipes(t)
	owner := r.lease()
	campaign := func(lease int64) error {
		_, err := r.elect.Campaign(r.ctx, &lockpb.CampaignRequest{Name: []byte("e"), Lease: lease})
		return err
	}
	require.NoError(t, campaign(owner))
	require.NoError(t, campaign(owner), "it leads")
	r.leasesEnd("e", owner, campaign, "election: not leader")
}

func TestElection(t *testing.T) {
	r := serveRecipes(t)
	name := []byte("/e")
	observed, err := r.elect.Observe(r.ctx, &lockpb.LeaderRequest{Name: name})
	require.NoError(t, err)
	next := func(want string) {
		t.Helper()
		resp, err := observed.Recv()
		require.NoError(t, err)
		require.Equal(t, want, string(resp.Kv.Value))
		require.LessOrEqual(t, resp.Kv.ModRevision, resp.Header.Revision)
		require.NotZero(t, resp.Header.MemberId)
	}
	a, b := r.lease(), r.lease()
	led, err := r.elect.Campaign(r.ctx, &lockpb.CampaignRequest{Name: name, Lease: a, Value: []byte("a")})
	require.NoError(t, err)
	require.Equal(t, fmt.Sprintf("/e/%x", a), string(led.Leader.Key))
	require.Equal(t, led.Header.Revision, led.Leader.Rev)
	next("a")
	_, err = r.elect.Proclaim(r.ctx, &lockpb.ProclaimRequest{Leader: led.Leader, Value: []byte("a2")})
	require.NoError(t, err)
	next("a2")
	again, err := r.elect.Campaign(r.ctx, &lockpb.CampaignRequest{Name: name, Lease: a, Value: []byte("a3")})
	require.NoError(t, err)
	require.Equal(t, led.Leader.Rev, again.Leader.Rev)
	next("a3")

	// The next leader comes by etcd's client.
	session, err := concurrency.NewSession(r.Client, concurrency.WithLease(clientv3.LeaseID(b)))
	require.NoError(t, err)
	won := make(chan error, 1)
	byClient := concurrency.NewElection(session, string(name))
	go func() { won <- byClient.Campaign(r.ctx, "b") }()
	r.waiters(string(name), 2)
	leader, err := r.elect.Leader(r.ctx, &lockpb.LeaderRequest{Name: name})
	require.NoError(t, err)
	require.Equal(t, "a3", string(leader.Kv.Value))
	require.Empty(t, won)
	_, err = r.elect.Resign(r.ctx, &lockpb.ResignRequest{Leader: led.Leader})
	require.NoError(t, err)
	require.NoError(t, <-won)
	resp, err := observed.Recv()
	require.NoError(t, err)
	require.Equal(t, "b", string(resp.Kv.Value))

	_, err = r.elect.Proclaim(r.ctx, &lockpb.ProclaimRequest{Leader: led.Leader, Value: []byte("late")})
	require.ErrorContains(t, err, "election: not leader")
	require.NoError(t, byClient.Resign(r.ctx))
	_, err = r.elect.Leader(r.ctx, &lockpb.LeaderRequest{Name: name})
	require.ErrorContains(t, err, "election: no leader")
}

// Locks and elections are their caller's requests: with the caller's permissions, also to
// clean up.
func TestLocksAreTheirCallers(t *testing.T) {
	r := serveRecipes(t)
	for _, err := range []error{
		errOf(r.UserAdd(r.ctx, "root", "pw")), errOf(r.RoleAdd(r.ctx, "root")), errOf(r.UserGrantRole(r.ctx, "root", "root")),
		errOf(r.UserAdd(r.ctx, "u", "pw")), errOf(r.RoleAdd(r.ctx, "u")), errOf(r.UserGrantRole(r.ctx, "u", "u")),
		errOf(r.RoleGrantPermission(r.ctx, "u", "mine/", "mine0", clientv3.PermissionType(clientv3.PermReadWrite))),
		errOf(r.Put(r.ctx, "others/owner", "x")), errOf(r.Put(r.ctx, "mine/owner", "x")), errOf(r.AuthEnable(r.ctx)),
	} {
		require.NoError(t, err)
	}
	resp, err := r.Authenticate(r.ctx, "u", "pw")
	require.NoError(t, err)
	as := metadata.AppendToOutgoingContext(r.ctx, rpctypes.TokenFieldNameGRPC, resp.Token)

	_, err = r.lock.Lock(r.ctx, &lockpb.LockRequest{Name: []byte("mine"), Lease: 1})
	require.ErrorContains(t, err, "user name is empty")
	code, body := post(t, http.DefaultClient, "http://"+r.addr+"/v3/lock/lock", `{"name": "bWluZQ=="}`)
	require.Equal(t, http.StatusInternalServerError, code)
	require.Contains(t, body, "user name is empty")
	_, err = r.lock.Lock(as, &lockpb.LockRequest{Name: []byte("others")})
	require.ErrorContains(t, err, "permission denied")
	_, err = r.elect.Leader(as, &lockpb.LeaderRequest{Name: []byte("others")})
	require.ErrorContains(t, err, "permission denied")
	observed, err := r.elect.Observe(as, &lockpb.LeaderRequest{Name: []byte("others")})
	require.NoError(t, err)
	_, err = observed.Recv()
	require.ErrorContains(t, err, "permission denied")

	// The key of a user who waits no longer goes with the user's own rights.
	root, err := clientv3.New(clientv3.Config{Endpoints: []string{r.addr}, Username: "root", Password: "pw"})
	require.NoError(t, err)
	defer root.Close()
	r.Client = root
	ctx, cancel := context.WithCancel(as)
	done := make(chan error, 1)
	go func() {
		_, err := r.lock.Lock(ctx, &lockpb.LockRequest{Name: []byte("mine")})
		done <- err
	}()
	r.waiters("mine", 2)
	cancel()
	require.Error(t, <-done)
	r.waiters("mine", 1)
}

func errOf[T any](_ T, err error) error { return err }

// A lock is held for as long as its key is there: an operation that depends on the key is
// refused afterwards.
func TestKeyOfALockIsAProof(t *testing.T) {
	r := serveRecipes(t)
	held, err := r.lock.Lock(r.ctx, &lockpb.LockRequest{Name: []byte("l")})
	require.NoError(t, err)
	write := func() *clientv3.TxnResponse {
		resp, err := r.Txn(r.ctx).If(clientv3.Compare(clientv3.CreateRevision(string(held.Key)), "=", held.Header.Revision)).Then(clientv3.OpPut("/elsewhere/x", "1")).Commit()
		require.NoError(t, err)
		return resp
	}
	require.True(t, write().Succeeded)
	got, err := r.Get(r.ctx, string(held.Key))
	require.NoError(t, err)
	ttl, err := r.TimeToLive(r.ctx, clientv3.LeaseID(got.Kvs[0].Lease))
	require.NoError(t, err)
	require.EqualValues(t, 60, ttl.GrantedTTL)
	_, err = r.lock.Unlock(r.ctx, &lockpb.UnlockRequest{Key: held.Key})
	require.NoError(t, err)
	require.False(t, write().Succeeded)
}

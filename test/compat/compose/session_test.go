package compose

import (
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/concurrency"

	"github.com/stoa-kv/stoa/client"
	"github.com/stoa-kv/stoa/client/compose"
)

// TestSession ties keys in both clusters to one session.
func TestSession(t *testing.T) {
	pairs(t, 1, func(t *testing.T, e *env) {
		s, err := e.Session(e.ctx, compose.WithTTL(10*time.Second))
		require.NoError(t, err)
		_, err = s.Put(e.ctx, "/eu/me", "", client.Ephemeral())
		require.NoError(t, err)
		_, err = s.Txn(e.ctx).Then(clientv3.OpPut("/us/me", "", client.Ephemeral())).Commit()
		require.NoError(t, err)
		_, err = s.PutAsync("/us/stays", "").Wait(e.ctx)
		require.NoError(t, err)
		_, err = e.Put(e.ctx, "/us/me", "", client.Ephemeral())
		require.Error(t, err, "no session, no ephemeral key")

		left, err := e.TimeToLive(e.ctx, s.ID(), clientv3.WithAttachedKeys())
		require.NoError(t, err)
		require.ElementsMatch(t, []string{"/eu/me", "/us/me"}, []string{string(left.Keys[0]), string(left.Keys[1])})

		require.NoError(t, s.Close(e.ctx))
		require.Empty(t, e.get("/eu/me").Kvs)
		require.Equal(t, []string{"/us/stays"}, keys(e.get("/us", clientv3.WithPrefix())))
		_, err = s.Get(e.ctx, "/eu/me")
		require.ErrorIs(t, err, client.ErrSessionClosed)
	})
}

// TestSessionLost loses the lease in one cluster: that ends the session in the other.
func TestSessionLost(t *testing.T) {
	pairs(t, 1, func(t *testing.T, e *env) {
		const ttl = 10 * time.Second // a loaded machine stands still for less
		s, err := e.Session(e.ctx, compose.WithTTL(ttl))
		require.NoError(t, err)
		for _, key := range []string{"/eu/me", "/us/me"} {
			_, err = s.Put(e.ctx, key, "", client.Ephemeral())
			require.NoError(t, err)
		}
		_, err = e.direct(e.us).Revoke(e.ctx, s.ID())
		require.NoError(t, err)
		select {
		case <-s.Done():
		case <-time.After(ttl):
			t.Fatal("the session doesn't notice")
		}
		_, err = s.Get(e.ctx, "/eu/me")
		require.ErrorIs(t, err, compose.ErrSessionExpired)
		var in *compose.ClusterError
		require.True(t, errors.As(err, &in))
		require.Equal(t, "us", in.Cluster)
		_, err = s.PutAsync("/eu/x", "").Wait(e.ctx)
		require.ErrorIs(t, err, compose.ErrSessionExpired)
		require.Eventually(t, func() bool { return len(e.get("/eu/me").Kvs) == 0 }, ttl/2, 10*time.Millisecond, "long before its lease runs out")
	})
}

// TestSessionCutOff stops one cluster: the session expires after its TTL, in
// the other one too.
func TestSessionCutOff(t *testing.T) {
	pairs(t, 1, func(t *testing.T, e *env) {
		const ttl = 5 * time.Second // as above
		s, err := e.Session(e.ctx, compose.WithTTL(ttl))
		require.NoError(t, err)
		_, err = s.Put(e.ctx, "/eu/me", "", client.Ephemeral())
		require.NoError(t, err)
		require.NoError(t, e.us.Servers[0].Pause())
		t.Cleanup(func() { _ = e.us.Servers[0].Resume() })
		select {
		case <-s.Done():
		case <-time.After(2 * ttl):
			t.Fatal("the session doesn't end")
		}
		require.ErrorIs(t, s.Err(), compose.ErrSessionExpired)
		require.Eventually(t, func() bool { return len(e.get("/eu/me").Kvs) == 0 }, ttl/2, 10*time.Millisecond, "long before its lease runs out")
	})
}

// TestMutex runs etcd's own mutex over a composition, in each of its clusters.
func TestMutex(t *testing.T) {
	pairs(t, 1, func(t *testing.T, e *env) {
		other := e.client()
		for _, prefix := range []string{"/eu/lock", "/us/lock"} {
			mine := mutex(e, e.Client, prefix)
			theirs := mutex(e, other, prefix)
			require.NoError(t, mine.Lock(e.ctx))
			require.ErrorIs(t, theirs.TryLock(e.ctx), concurrency.ErrLocked)
			locked := make(chan error, 1)
			go func() { locked <- theirs.Lock(e.ctx) }()
			select {
			case <-locked:
				t.Fatal("two have the lock")
			case <-time.After(200 * time.Millisecond):
			}
			require.NoError(t, mine.Unlock(e.ctx))
			require.NoError(t, <-locked)
			require.NoError(t, theirs.Unlock(e.ctx))
		}
	})
}

func mutex(e *env, c *compose.Client, prefix string) *concurrency.Mutex {
	e.t.Helper()
	s, err := concurrency.NewSession(c.Etcd(), concurrency.WithTTL(10), concurrency.WithContext(e.ctx))
	require.NoError(e.t, err)
	e.t.Cleanup(func() { _ = s.Close() })
	return concurrency.NewMutex(s, prefix)
}

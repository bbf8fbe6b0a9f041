package compat

import (
	"fmt"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/stoa-kv/stoa/internal/lockpb"
)

func (e *env) grant() int64 {
	l, err := e.cli.Grant(e.ctx, 600)
	require.NoError(e.t, err)
	return int64(l.ID)
}

// What is read and written under a lock is not lost, whichever servers the lock's users
// are connected to, and wherever the lock and the data lie.
func TestLocksProtect(t *testing.T) {
	matrix(t, func(t *testing.T, e *env) {
		const users, turns = 6, 5
		data, name := e.key("data", 0), []byte(e.root+"lock")
		e.put(data, "0")
		var wg sync.WaitGroup
		for i := range users {
			locks, lease := lockpb.NewLockClient(e.dial(i%e.nodes)), e.grant()
			cli := e.client(e.Servers[(i+1)%e.nodes].ClientURL)
			wg.Go(func() {
				for range turns {
					if err := increment(e, locks, cli, name, lease, data); err != nil {
						t.Error(err)
						return
					}
				}
			})
		}
		wg.Wait()
		require.Equal(t, strconv.Itoa(users*turns), string(e.get(data).Kvs[0].Value))
	})
}

func increment(e *env, locks lockpb.LockClient, cli *clientv3.Client, name []byte, lease int64, data string) error {
	held, err := locks.Lock(e.ctx, &lockpb.LockRequest{Name: name, Lease: lease})
	if err != nil {
		return fmt.Errorf("lock: %w", err)
	}
	got, err := cli.Get(e.ctx, data)
	if err != nil {
		return fmt.Errorf("get: %w", err)
	}
	n, err := strconv.Atoi(string(got.Kvs[0].Value))
	if err != nil {
		return err
	}
	if _, err := cli.Put(e.ctx, data, strconv.Itoa(n+1)); err != nil {
		return fmt.Errorf("put: %w", err)
	}
	if _, err := locks.Unlock(e.ctx, &lockpb.UnlockRequest{Key: held.Key}); err != nil {
		return fmt.Errorf("unlock: %w", err)
	}
	return nil
}

// A caller who waits at a follower goes on waiting when the leader is killed.
func TestLockWaitsThroughAFailure(t *testing.T) {
	own(t, 3, nil, func(t *testing.T, e *env) {
		leader := e.leader()
		at := (leader + 1) % 3
		locks := lockpb.NewLockClient(e.dial(at))
		held, err := locks.Lock(e.ctx, &lockpb.LockRequest{Name: []byte("l"), Lease: e.grant()})
		require.NoError(t, err)
		done, lease := make(chan error, 1), e.grant()
		go func() {
			_, err := locks.Lock(e.ctx, &lockpb.LockRequest{Name: []byte("l"), Lease: lease})
			done <- err
		}()
		require.Eventually(t, func() bool { return len(e.get("l/", clientv3.WithPrefix()).Kvs) == 2 }, 20*time.Second, 10*time.Millisecond)
		require.NoError(t, e.Servers[leader].Kill())
		cli := e.client(e.Servers[(leader+2)%3].ClientURL)
		require.Eventually(t, func() bool {
			_, err := cli.Delete(e.ctx, string(held.Key))
			return err == nil
		}, 30*time.Second, 50*time.Millisecond)
		require.NoError(t, <-done)
	})
}

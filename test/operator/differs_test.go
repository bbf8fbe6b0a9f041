package operator

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	bolt "go.etcd.io/bbolt"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/stoa-kv/stoa/test/process"
)

// The value on which members differ.
const (
	differingKey = "/differs/key"
	right, wrong = "the right value", "the wrong value"
)

// A follower whose state was changed while it was down is found soon after it starts.
func TestAFollowerThatDiffers(t *testing.T) {
	c := compared(t, "--corrupt-check-time=10s")
	lead := awaitLeader(t, c)
	s := c.Servers[(lead+1)%3]
	tamper(t, s)
	heals(t, c, s, func() {
		require.NoError(t, s.Start())
		ready(t, s)
	})
}

// A leader is no better than others. Here members compare their states only when one asks for it, so that
// it comes to lead before it is found.
func TestALeaderThatDiffers(t *testing.T) {
	c := compared(t, "--corrupt-check-time=0")
	lead := awaitLeader(t, c)
	s, asks := c.Servers[(lead+1)%3], c.Servers[(lead+2)%3]
	tamper(t, s)
	require.NoError(t, s.Start())
	ready(t, s)
	id := memberID(t, s, s.Name)
	require.Eventually(t, func() bool {
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		now := awaitLeader(t, c)
		if c.Servers[now] == s {
			return true
		}
		_, _ = client(t, c.Servers[now]).MoveLeader(ctx, id)
		return false
	}, time.Minute, 100*time.Millisecond)
	require.Equal(t, wrong, string(valueAt(t, s)), "the damage shows, until members compare")
	before := term(t, s)
	heals(t, c, s, func() {
		require.NoError(t, asks.Kill())
		again := asks.With("--corrupt-check-time=1s")
		t.Cleanup(func() { again.Kill() })
		require.NoError(t, again.Start())
		ready(t, again)
	})
	if now := c.Servers[awaitLeader(t, c)]; now == s {
		require.Greater(t, term(t, s), before, "it has handed over, though it may lead again once it is healed")
	}
}

func term(t *testing.T, s *process.Server) uint64 {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	st, err := client(t, s).Status(ctx, s.ClientURL)
	require.NoError(t, err)
	return st.RaftTerm
}

// compared starts three members whose cluster compares states.
func compared(t *testing.T, args ...string) *process.Cluster {
	t.Helper()
	requireStoa(t)
	c := process.StartT(t, process.Spec{Nodes: 3, Partitions: 2, Args: args})
	require.Eventually(t, func() bool {
		release, at, err := c.Servers[0].Versions()
		return err == nil && at == release
	}, time.Minute, 100*time.Millisecond, "the cluster's version doesn't rise")
	put(t, c.Servers[0], "first", 20)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	require.Eventually(t, func() bool {
		_, err := client(t, c.Servers[0]).Put(ctx, differingKey, right)
		return err == nil
	}, time.Minute, 100*time.Millisecond)
	return c
}

func awaitLeader(t *testing.T, c *process.Cluster) (lead int) {
	t.Helper()
	require.Eventually(t, func() bool {
		for i, s := range c.Servers { // one of which may run as another process
			ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
			st, err := client(t, s).Status(ctx, s.ClientURL)
			cancel()
			if err == nil && st.Leader == st.Header.MemberId {
				lead = i
				return true
			}
		}
		return false
	}, time.Minute, 100*time.Millisecond, "no member leads")
	return lead
}

// tamper stops a member and changes a value in its file, as the checksums of the file don't show: they go, too.
func tamper(t *testing.T, s *process.Server) {
	t.Helper()
	require.Eventually(t, func() bool { return string(valueAt(t, s)) == right }, time.Minute, 100*time.Millisecond, "it may be behind")
	_, _, err := s.Stop()
	require.NoError(t, err)
	db, err := bolt.Open(filepath.Join(s.DataDir, "member", "snap", "db"), 0o600, &bolt.Options{Timeout: 10 * time.Second})
	require.NoError(t, err)
	changed := 0
	require.NoError(t, db.Update(func(tx *bolt.Tx) error {
		if err := tx.Bucket([]byte("stoa")).Delete([]byte("sums")); err != nil {
			return err
		}
		b := tx.Bucket([]byte("key"))
		at := b.Cursor()
		k, v := at.First()
		for ; k != nil && !bytes.Contains(v, []byte(right)); k, v = at.Next() {
		}
		if k == nil {
			return nil
		}
		changed++
		return b.Put(bytes.Clone(k), bytes.Replace(v, []byte(right), []byte(wrong), 1))
	}))
	require.NoError(t, db.Close())
	require.Equal(t, 1, changed, "the file hasn't got the value")
}

// heals has a member that differs found, and watches what clients are given meanwhile: nothing wrong from the
// moment on at which the verdict is noted. It serves the right state in the end, the alarm names it alone, and the
// cluster goes on.
func heals(t *testing.T, c *process.Cluster, s *process.Server, found func()) {
	t.Helper()
	from := logged(s)
	var fenced atomic.Bool
	done := make(chan struct{})
	var readers sync.WaitGroup
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	readers.Go(func() {
		for ctx.Err() == nil && !fenced.Load() {
			if _, err := os.Stat(filepath.Join(s.DataDir, "member", "fenced")); err == nil {
				fenced.Store(true)
			} else if !errors.Is(err, fs.ErrNotExist) {
				t.Error(err)
			}
			time.Sleep(time.Millisecond)
		}
	})
	var shownAfter, refusedAfter atomic.Int64
	for _, at := range c.Servers {
		cli := client(t, at)
		for _, opts := range [][]clientv3.OpOption{nil, {clientv3.WithSerializable()}} {
			readers.Go(func() {
				for {
					select {
					case <-done:
						return
					case <-time.After(2 * time.Millisecond):
					}
					after := fenced.Load() // before the read begins
					one, end := context.WithTimeout(ctx, 2*time.Second)
					got, err := cli.Get(one, differingKey, opts...)
					end()
					switch {
					case !after:
					case err != nil:
						refusedAfter.Add(1)
					case len(got.Kvs) != 1 || string(got.Kvs[0].Value) != right:
						t.Errorf("%s shows %q after the verdict", at.Name, got.Kvs)
						return
					default:
						shownAfter.Add(1)
					}
				}
			})
		}
	}
	defer readers.Wait()
	defer cancel()
	finish := sync.OnceFunc(func() { close(done) })
	defer finish()

	found()
	awaitLogFor(t, s, from, "this member's state differs from that of the majority")
	require.Contains(t, said(s, from), `"differs-in":"keys"`)
	awaitLogFor(t, s, from, "this member agrees with the majority again, and serves")
	require.Eventually(t, func() bool {
		_, err := os.Stat(filepath.Join(s.DataDir, "member", "fenced"))
		return errors.Is(err, fs.ErrNotExist)
	}, time.Minute, 20*time.Millisecond)
	require.Eventually(t, func() bool {
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		got, err := client(t, s).Get(ctx, differingKey)
		return err == nil && string(got.Kvs[0].Value) == right
	}, time.Minute, 100*time.Millisecond)
	time.Sleep(time.Second) // readers go on where it serves again
	finish()
	cancel()
	readers.Wait()
	require.True(t, fenced.Load(), "the disk has never said that the member is fenced")
	require.Positive(t, shownAfter.Load(), "nothing was read after the verdict")
	t.Logf("after the verdict %d reads were answered, %d refused", shownAfter.Load(), refusedAfter.Load())

	put(t, s, "second", 20)
	requireKeys(t, s, "first", 20)
	onlyAlarm(t, c, memberID(t, s, s.Name))
	sameHashes(t, c)
}

// awaitLogFor waits longer than awaitLog: for checks and a state that is sent, on a machine with other things to do.
func awaitLogFor(t *testing.T, s *process.Server, from int, says string) {
	t.Helper()
	require.Eventually(t, func() bool { return bytes.Contains([]byte(said(s, from)), []byte(says)) }, 2*time.Minute, 50*time.Millisecond,
		"%s doesn't say %q", s.Name, says)
}

func valueAt(t *testing.T, s *process.Server) (value []byte) {
	t.Helper()
	require.Eventually(t, func() bool {
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		got, err := client(t, s).Get(ctx, differingKey, clientv3.WithSerializable())
		if err == nil && len(got.Kvs) == 1 {
			value = got.Kvs[0].Value
		}
		return err == nil
	}, time.Minute, 100*time.Millisecond)
	return value
}

// onlyAlarm: CORRUPT is raised for one member, and lowered by an operator.
func onlyAlarm(t *testing.T, c *process.Cluster, id uint64) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	cli := client(t, c.Servers[0])
	var list *clientv3.AlarmResponse
	require.Eventually(t, func() (done bool) {
		var err error
		list, err = cli.AlarmList(ctx)
		return err == nil && len(list.Alarms) > 0
	}, time.Minute, 50*time.Millisecond)
	require.Len(t, list.Alarms, 1)
	require.Equal(t, pb.AlarmType_CORRUPT, list.Alarms[0].Alarm)
	require.Equal(t, id, list.Alarms[0].MemberID)
	_, err := cli.AlarmDisarm(ctx, &clientv3.AlarmMember{})
	require.NoError(t, err)
}

// sameHashes: all members have the same history.
func sameHashes(t *testing.T, c *process.Cluster) {
	t.Helper()
	require.Eventually(t, func() bool {
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		defer cancel()
		seen := map[string]bool{}
		for _, s := range c.Servers {
			h, err := client(t, s).HashKV(ctx, s.ClientURL, 0)
			if err != nil {
				return false
			}
			seen[fmt.Sprint(h.Hash, h.HashRevision)] = true
		}
		return len(seen) == 1
	}, time.Minute, 100*time.Millisecond)
}

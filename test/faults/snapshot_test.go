//go:build faults

package faults

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"

	"github.com/stoa-kv/stoa/test/process"
)

// A follower that was away comes back to a load of puts, and takes in a snapshot beside
// it. Once it answers at all, it fails none of them.
func TestPutsBesideASnapshot(t *testing.T) {
	const rounds, workers, keys = 3, 64, 5000
	bin, err := process.UnderTest()
	require.NoError(t, err)
	for _, parts := range []int{1, 3} {
		if parts > 1 && !bin.Stoa {
			continue
		}
		t.Run(fmt.Sprintf("P=%d", parts), func(t *testing.T) {
			c := process.StartT(t, process.Spec{
				Nodes: 3, Partitions: parts, Args: []string{"--snapshot-count=1000", "--snapshot-catchup-entries=100"},
			})
			lead := -1
			require.Eventually(t, func() bool { lead = leaderOf(t.Context(), c); return lead >= 0 }, 10*time.Second, 50*time.Millisecond)
			away := c.Servers[(lead+1)%3]
			term := termOf(t, c.Servers[lead])
			const taken = "received and saved database snapshot"
			for range rounds {
				require.NoError(t, away.Kill())
				putMany(t, c.Servers[lead].ClientURL, keys)
				before := strings.Count(away.LogTail(1<<30), taken)
				require.NoError(t, away.Start())
				done, failed := putsUntil(t, away.ClientURL, workers, func() bool {
					return !bin.Stoa || strings.Count(away.LogTail(1<<30), taken) > before
				})
				t.Logf("%d puts at the follower, %d failed: %v", done, len(failed), failed[:min(3, len(failed))])
				require.Positive(t, done)
				if termOf(t, c.Servers[lead]) == term {
					require.Empty(t, failed)
				}
			}
		})
	}
}

func termOf(t *testing.T, s *process.Server) uint64 {
	conn, err := dial(s.ClientURL)
	require.NoError(t, err)
	defer conn.Close()
	st, err := pb.NewMaintenanceClient(conn).Status(t.Context(), &pb.StatusRequest{})
	require.NoError(t, err)
	return st.RaftTerm
}

// putMany makes more entries than a log keeps.
func putMany(t *testing.T, url string, keys int) {
	conn, err := dial(url)
	require.NoError(t, err)
	defer conn.Close()
	var all sync.WaitGroup
	const clients = 8
	for i := range clients {
		all.Go(func() {
			for k := i; k < keys; k += clients {
				_, err := pb.NewKVClient(conn).Put(t.Context(), &pb.PutRequest{
					Key: fmt.Appendf(nil, "/many/%d/k%d", k%50, k), Value: make([]byte, 2048),
				})
				if err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	all.Wait()
}

// putsUntil puts through a server that is about to come up, for a second longer than
// until something is so, and counts. It returns the errors that the server answered.
func putsUntil(t *testing.T, url string, workers int, so func() bool) (done int64, failed []error) {
	var count atomic.Int64
	var over atomic.Bool
	var mu sync.Mutex
	var all sync.WaitGroup
	for i := range workers {
		all.Go(func() {
			conn, err := dial(url)
			if err != nil {
				t.Error(err)
				return
			}
			defer conn.Close()
			for !over.Load() {
				ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
				_, err := pb.NewKVClient(conn).Put(ctx, &pb.PutRequest{Key: fmt.Appendf(nil, "/put/%d/k", i), Value: []byte("v")})
				cancel()
				switch {
				case err == nil:
					count.Add(1)
				case strings.Contains(err.Error(), "etcdserver:"):
					mu.Lock()
					failed = append(failed, err)
					mu.Unlock()
				default: // it is not up yet
					time.Sleep(time.Millisecond)
				}
			}
		})
	}
	require.Eventually(t, so, 30*time.Second, 10*time.Millisecond)
	time.Sleep(time.Second)
	over.Store(true)
	all.Wait()
	return count.Load(), failed
}

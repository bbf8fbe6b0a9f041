//go:build faults

package faults

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"

	"github.com/stoa-kv/stoa/test/process"
)

// TestFailover prints for how long no write is acknowledged once the leader has
// ended, on etcd and on the server under test, with the default heartbeat (100
// ms) and election timeout (1 s).
func TestFailover(t *testing.T) {
	under, err := process.UnderTest()
	require.NoError(t, err)
	etcd, err := process.Choose("etcd")
	require.NoError(t, err)
	subjects := []struct {
		name string
		spec process.Spec
	}{
		{"etcd", process.Spec{Binary: etcd, Nodes: 3}},
		{"stoa P=1", process.Spec{Binary: under, Nodes: 3, Partitions: 1}},
		{"stoa P=4", process.Spec{Binary: under, Nodes: 3, Partitions: 4}},
	}
	if !under.Stoa {
		subjects = subjects[:1]
	}
	for _, end := range []string{"kill -9", "SIGSTOP", "SIGTERM"} {
		for _, s := range subjects {
			c := process.StartT(t, s.spec)
			var gaps []time.Duration
			for range 5 {
				gaps = append(gaps, failover(t, c, end))
			}
			c.Close()
			slices.Sort(gaps)
			t.Logf("%-8s the leader of %-9s no write for %v at the median, %v at most", end, s.name+":", gaps[len(gaps)/2], gaps[len(gaps)-1])
		}
	}
}

// failover ends the leader and returns the time until another server has acknowledged
// a write.
func failover(t *testing.T, c *process.Cluster, end string) time.Duration {
	t.Helper()
	lead := -1
	require.Eventually(t, func() bool { lead = leaderOf(t.Context(), c); return lead >= 0 }, 10*time.Second, 50*time.Millisecond)
	put := func(server int) error { return firstPut(t.Context(), c.Servers[server].ClientURL) }
	other := (lead + 1) % len(c.Servers)
	require.NoError(t, put(other))
	time.Sleep(300 * time.Millisecond)

	s := c.Servers[lead]
	start := time.Now()
	switch end {
	case "kill -9":
		require.NoError(t, s.Kill())
	case "SIGSTOP":
		require.NoError(t, s.Pause())
	default:
		_, _, err := s.Stop()
		require.NoError(t, err)
		start = time.Now() // it transfers its leadership before it exits
	}
	require.NoError(t, put(other))
	gap := time.Since(start).Round(time.Millisecond)
	if end == "SIGSTOP" {
		require.NoError(t, s.Resume())
	} else {
		require.NoError(t, c.Restart(t.Context(), s))
	}
	require.NoError(t, put(lead))
	return gap
}

// firstPut returns when a server acknowledges a write. A new one is tried every 10 ms
// while earlier ones wait: one that was sent in the midst of the change may be lost.
func firstPut(ctx context.Context, url string) error {
	conn, err := dial(url)
	if err != nil {
		return err
	}
	defer conn.Close()
	ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	done := make(chan struct{}, 1)
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for {
		go func() {
			_, err := pb.NewKVClient(conn).Put(ctx, &pb.PutRequest{Key: []byte("/failover/key"), Value: []byte("v")})
			if err == nil {
				select {
				case done <- struct{}{}:
				default:
				}
			}
		}()
		select {
		case <-done:
			return nil
		case <-ctx.Done():
			return fmt.Errorf("no write through %s: %w", url, ctx.Err())
		case <-tick.C:
		}
	}
}

package node

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
)

// While a snapshot is loaded there is nothing to write, however long that takes.
func TestNoFlushIsDueWhileASnapshotIsLoaded(t *testing.T) {
	c := newCluster(t, 1, 2, func(c *Config) { c.FlushInterval = 2 * time.Millisecond })
	c.ready()
	n := c.nodes[0]
	n.rebuild.Lock()
	loaded := n.loads()
	time.Sleep(3 * flushPatience * n.cfg.FlushInterval)
	require.NotZero(t, n.flushDue.Load(), "the flusher doesn't wait")
	require.Zero(t, n.Flushing())
	loaded()
	require.False(t, n.overdue(n.Flushing()))
	n.rebuild.Unlock()
	require.Eventually(t, func() bool { return n.flushDue.Load() == 0 }, 20*time.Second, time.Millisecond)
}

// A state file that can't be written is told of, again and again, and that it is written again, too. Requests don't wait for it, but for those that need it, and these
// no longer than they have time.
func TestAStateFileThatIsNotWritten(t *testing.T) {
	var log logged
	c := newCluster(t, 1, 2, log.keep, func(c *Config) { c.FlushInterval = 5 * time.Millisecond })
	c.ready()
	n := c.nodes[0]
	core := n.core.Load()
	core.flushing.Lock()
	rev := c.put(0, "/k", "v")
	told := log.line(t, 0, "the state file has not been written for too long; until it is, the log is not cut, and memory grows with each write")
	require.Equal(t, n.dbPath(), told["path"])
	require.Greater(t, n.Flushing(), flushPatience*n.cfg.FlushInterval)
	require.Equal(t, "v", string(c.value(0, "/k")))

	first := make(chan error, 1) // waits for the file, and others don't
	go func() { first <- n.flushFor(t.Context()) }()
	require.Eventually(t, func() bool { return len(n.filing) == 1 }, 20*time.Second, time.Millisecond)
	for what, ask := range map[string]func(context.Context) error{
		"backup":          func(ctx context.Context) error { _, _, _, err := n.Snapshot(ctx); return err },
		"defragmentation": n.Defragment,
		"hash":            func(ctx context.Context) error { _, _, err := n.Hash(ctx); return err },
		"compaction": func(ctx context.Context) error {
			_, err := n.Compact(ctx, &pb.CompactionRequest{Revision: rev, Physical: true})
			return err
		},
	} {
		brief, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
		require.ErrorIs(t, ask(brief), context.DeadlineExceeded, what)
		cancel()
	}
	core.flushing.Unlock()
	require.NoError(t, <-first)
	log.line(t, 0, "the state file has been written at last")
	require.Eventually(t, func() bool { return n.Flushing() < flushPatience*n.cfg.FlushInterval }, 20*time.Second, time.Millisecond)
}

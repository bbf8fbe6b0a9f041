package node

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// A state file that can't be written is told of, again and again, and that it is written again, too. Requests don't wait for it.
func TestAStateFileThatIsNotWritten(t *testing.T) {
	var log logged
	c := newCluster(t, 1, 2, log.keep, func(c *Config) { c.FlushInterval = 5 * time.Millisecond })
	c.ready()
	n := c.nodes[0]
	core := n.core.Load()
	core.flushing.Lock()
	c.put(0, "/k", "v")
	told := log.line(t, 0, "the state file has not been written for too long; until it is, the log is not cut, and memory grows with each write")
	require.Equal(t, n.dbPath(), told["path"])
	require.Greater(t, n.Flushing(), flushPatience*n.cfg.FlushInterval)
	require.Equal(t, "v", string(c.value(0, "/k")))
	core.flushing.Unlock()
	log.line(t, 0, "the state file has been written at last")
	require.Eventually(t, func() bool { return n.Flushing() < flushPatience*n.cfg.FlushInterval }, 20*time.Second, time.Millisecond)
}

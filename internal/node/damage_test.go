package node

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/stoa-kv/stoa/internal/wal"
)

// aside copies the files of a stopped member, for a test that needs them later.
func (c *cluster) aside(i int, part ...string) (from, to string) {
	from = filepath.Join(append([]string{c.configs[i].DataDir, "member"}, part...)...)
	to = filepath.Join(c.t.TempDir(), "aside")
	require.NoError(c.t, os.CopyFS(to, os.DirFS(from)))
	return from, to
}

// swap puts other files in place of a directory.
func swap(t *testing.T, dir, with string) {
	require.NoError(t, os.RemoveAll(dir))
	require.NoError(t, os.CopyFS(dir, os.DirFS(with)))
}

// An older copy of one of log and state beside the present one of the other.
func TestAnOlderCopyOfAPart(t *testing.T) {
	c := newCluster(t, 1, 2)
	c.ready()
	put := func(from, n int) {
		for i := range n {
			c.put(0, fmt.Sprintf("/d%d/k", i%7), fmt.Sprint(from+i))
		}
	}
	put(0, 20)
	c.stop(0)
	log, oldLog := c.aside(0, "wal")
	state, oldState := c.aside(0, "snap")
	c.start(0)
	c.ready()
	put(20, 20)
	rev := c.nodes[0].Revision()
	c.stop(0)
	_, newLog := c.aside(0, "wal")

	swap(t, log, oldLog)
	_, err := Start(c.configs[0])
	var damage *wal.DamageError
	require.ErrorAs(t, err, &damage)
	require.Equal(t, filepath.Join(log, "0000000000000001.wal"), damage.File)
	require.ErrorContains(t, err, "the log is an older copy")

	// With an older state the log has what it lacks.
	swap(t, log, newLog)
	swap(t, state, oldState)
	c.start(0)
	c.ready()
	require.GreaterOrEqual(t, c.nodes[0].Revision(), rev)
	for i := range 7 {
		kvs := c.get(0, fmt.Sprintf("/d%d/k", i), "").Kvs
		require.Len(t, kvs, 1)
		require.Equal(t, fmt.Sprint(20+i+7*((19-i)/7)), string(kvs[0].Value))
	}
}

// The file of another member is as good as a snapshot from there; its log is refused.
func TestFilesOfAnotherMember(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 3, 2)
	c.ready()
	for i := range 20 {
		c.put(0, fmt.Sprintf("/d%d/k", i), fmt.Sprint(i))
	}
	c.stop(1)
	for i := range 20 {
		c.put(0, fmt.Sprintf("/d%d/k", i), fmt.Sprint("later ", i))
	}
	rev := c.nodes[0].Revision()
	c.stop(0)
	c.stop(2)
	state, own := c.aside(1, "snap")
	log, ownLog := c.aside(1, "wal")
	_, others := c.aside(0, "snap")
	_, othersLog := c.aside(0, "wal")

	swap(t, log, othersLog)
	_, err := Start(c.configs[1])
	require.ErrorIs(t, err, wal.ErrMetadataMismatch)
	require.ErrorContains(t, err, filepath.Join(log, "0000000000000001.wal"))
	swap(t, log, ownLog)

	swap(t, state, others)
	for i := range c.nodes {
		c.start(i)
	}
	c.ready()
	for i := range 20 {
		kvs := c.get(1, fmt.Sprintf("/d%d/k", i), "").Kvs
		require.Len(t, kvs, 1)
		require.Equal(t, fmt.Sprint("later ", i), string(kvs[0].Value))
	}
	require.GreaterOrEqual(t, c.nodes[1].Revision(), rev)
	for i := range c.nodes {
		c.stop(i)
	}

	// The log has begun anew behind that state: an older one has a gap before it.
	swap(t, state, own)
	_, err = Start(c.configs[1])
	require.ErrorContains(t, err, "entries in between are lost")
}

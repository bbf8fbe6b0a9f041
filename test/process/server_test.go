package process

import (
	"errors"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// The starter itself, shown on etcd: every other test relies on it.
func TestLifeOfAServer(t *testing.T) {
	bin, err := Choose("etcd")
	require.NoError(t, err)
	c := StartT(t, Spec{Binary: bin})
	s := c.Servers[0]
	require.True(t, s.Running())

	cpu, err := s.CPU()
	require.NoError(t, err)
	require.Positive(t, cpu)
	mem, err := s.Resident()
	require.NoError(t, err)
	require.Greater(t, mem, int64(1<<20))

	require.NoError(t, s.Kill())
	require.False(t, s.Running())
	require.NoError(t, c.Restart(t.Context(), s))

	_, took, err := s.Stop()
	require.NoError(t, err)
	require.Less(t, took, 10*time.Second)
	require.False(t, s.Running())
	require.Contains(t, s.LogTail(1<<20), ReadyLine)
}

func TestAServerThatCannotStart(t *testing.T) {
	bin, err := Choose("etcd")
	require.NoError(t, err)
	c := NewT(t, Spec{Binary: bin, Args: []string{"--no-such-flag"}})
	require.ErrorContains(t, c.Start(t.Context()), "no-such-flag")
}

func TestAZooKeeper(t *testing.T) {
	bin, err := Choose("zookeeper")
	if errors.Is(err, ErrNoJava) {
		t.Skip(err)
	}
	require.NoError(t, err)
	for _, nodes := range []int{1, 3} {
		c := StartT(t, Spec{Binary: bin, Nodes: nodes, Timeout: 3 * time.Minute}) // three JVMs take 6 s of a processor, and elections that time out begin anew
		for _, s := range c.Servers {
			conn, err := net.Dial("tcp", strings.TrimPrefix(s.ClientURL, "zookeeper://"))
			require.NoError(t, err)
			require.NoError(t, conn.Close())
			cpu, err := s.CPU()
			require.NoError(t, err)
			require.Positive(t, cpu)
		}
		require.NoError(t, c.Servers[0].Kill())
		require.NoError(t, c.Restart(t.Context(), c.Servers[0]))
	}
}

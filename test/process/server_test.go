package process

import (
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

package profile

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/stoa-kv/stoa/internal/fault"
)

func TestProfilesAreBounded(t *testing.T) {
	var s Set
	require.Nil(t, s.Of("e0"))
	var all []*Profile
	for i := range maxRunning {
		p, err := s.Begin(fmt.Sprintf("e%d", i))
		require.NoError(t, err)
		all = append(all, p)
	}
	_, err := s.Begin("e0")
	require.ErrorIs(t, err, fault.TooManyProfiles)
	require.ErrorContains(t, err, `"e0"`)
	_, err = s.Begin("another")
	require.ErrorIs(t, err, fault.TooManyProfiles)
	require.NotNil(t, s.Of("e0"))
	all[0].Stop()
	require.Nil(t, s.Of("e0"))
	p, err := s.Begin("e0")
	require.NoError(t, err)
	all[0].Stop() // of the earlier one: no effect
	require.NotNil(t, s.Of("e0"))
	p.Stop()
	for _, p := range all[1:] {
		p.Stop()
	}
	require.Nil(t, s.running.Load(), "free again")
}

func TestAProfileEndsWithItsSource(t *testing.T) {
	var s Set
	s.End("a")
	a, err := s.Begin("a")
	require.NoError(t, err)
	b, err := s.Begin("b")
	require.NoError(t, err)
	s.End("a")
	<-a.Ended()
	require.Nil(t, s.Of("a"))
	require.NotNil(t, s.Of("b"))
	next, err := s.Begin("a")
	require.NoError(t, err)
	a.Stop()
	require.NotNil(t, s.Of("a"))
	s.EndAll()
	s.EndAll()
	<-b.Ended()
	<-next.Ended()
}

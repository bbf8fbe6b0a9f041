package main

import (
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// looks answers like a server of which decisions are known after each look, less than none for a
// look that fails. A look takes a second.
type looks struct {
	decisions []float64
	n         int
	puts      int // as many looks show further puts; 0: all
}

func (l *looks) look() (moment, error) {
	d := l.decisions[l.n]
	if l.n++; d < 0 {
		return moment{}, errors.New("timeout")
	}
	m := moment{decisions: d, puts: float64(l.n), worked: []float64{float64(l.n) / 2, 0}}
	if l.puts > 0 {
		m.puts = float64(min(l.n, l.puts))
	}
	return m, nil
}

func (l *looks) since() time.Duration { return time.Duration(l.n-1) * time.Second }

func (l *looks) watch() (d decided, err error) {
	err = d.watch(l.look, l.since, time.Duration(len(l.decisions)-1)*time.Second, 0)
	return d, err
}

// A run goes on where a look fails, and says so.
func TestALookThatFails(t *testing.T) {
	d, err := (&looks{decisions: []float64{0, 0, -1, 1, 1}}).watch()
	require.NoError(t, err)
	require.Equal(t, []time.Duration{3 * time.Second}, d.at)
	require.Equal(t, "the busiest loop works 50 % of the time; 1 of 4 looks at the metrics failed, the last one: timeout", d.String())

	d, err = (&looks{decisions: []float64{2, 2, 2}}).watch()
	require.NoError(t, err)
	require.Empty(t, d.at)
	require.Equal(t, "the busiest loop works 50 % of the time", d.String())
}

// Nor is a load that has ended taken for a uniform one.
func TestALoadThatEnds(t *testing.T) {
	_, err := (&looks{decisions: make([]float64, 30), puts: 15}).watch()
	require.EqualError(t, err, "the server hasn't executed a put since 14s after the start")
	_, err = (&looks{decisions: make([]float64, 30), puts: 25}).watch()
	require.NoError(t, err)
}

// It isn't taken for a result if many fail.
func TestLooksThatFail(t *testing.T) {
	_, err := (&looks{decisions: []float64{-1}}).watch()
	require.EqualError(t, err, "timeout")
	_, err = (&looks{decisions: []float64{0, -1, 0, -1, 1}}).watch()
	require.EqualError(t, err, "2 of 4 looks at the server's metrics failed: timeout")
	gone := &looks{decisions: make([]float64, 1000)}
	for i := range 20 {
		gone.decisions[100+i] = -1
	}
	_, err = gone.watch()
	require.EqualError(t, err, "20 of 999 looks at the server's metrics failed: timeout")
}

// The load jumps once the balancer has had nothing to do for a while.
func TestCalmSince(t *testing.T) {
	at := func(s int, decisions float64) moment {
		return moment{at: time.Duration(s) * time.Second, decisions: decisions}
	}
	calm := func(all ...moment) bool { return calmSince(all, 20*time.Second) }
	require.False(t, calm(at(0, 0), at(15, 0)))
	require.True(t, calm(at(0, 0), at(15, 0), at(20, 0)))
	require.False(t, calm(at(0, 0), at(5, 1), at(15, 1), at(24, 1)))
	require.True(t, calm(at(0, 0), at(5, 1), at(15, 1), at(25, 1)))
}

// Each round has to be as fast as the paper is in the mean.
func TestJumpVerdict(t *testing.T) {
	took := func(all ...time.Duration) (list []jumped) {
		for _, d := range all {
			list = append(list, jumped{even: d * time.Second})
		}
		return list
	}
	v := jumpVerdict("on", took(2, 3))
	require.Equal(t, "2s, 3s", v.measured)
	require.False(t, v.missed)
	require.True(t, jumpVerdict("on", took(2, 4)).missed)
	v = jumpVerdict("on", took(2, 0))
	require.Equal(t, "2s, never", v.measured)
	require.True(t, v.missed)
}

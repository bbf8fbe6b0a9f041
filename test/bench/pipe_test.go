package main

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// stallingPipe answers nothing until a time, and then all at once.
type stallingPipe struct {
	until        time.Time
	asked, ended int
}

func (p *stallingPipe) sessions() int      { return 1 }
func (p *stallingPipe) ask(_, n int) error { p.asked += n; return nil }
func (p *stallingPipe) flush() error       { return nil }
func (p *stallingPipe) pending() bool      { return false }
func (p *stallingPipe) close() error       { return nil }
func (p *stallingPipe) answerable() bool   { return p.asked > p.ended && !time.Now().Before(p.until) }
func (p *stallingPipe) receive(answered func(session, n int)) error {
	n := p.asked - p.ended
	p.ended = p.asked
	answered(0, n)
	return nil
}

func (p *stallingPipe) await(until time.Time) (bool, error) {
	if !p.answerable() {
		time.Sleep(time.Until(until))
	}
	return p.answerable(), nil
}

// The isolated reader goes on asking while nothing is answered: what a stall holds up is
// all counted, and not as one slow read.
func TestTheReaderWaitsForNoAnswer(t *testing.T) {
	p := &stallingPipe{until: time.Now().Add(300 * time.Millisecond)}
	r := startPipes([]pipe{p}, reader.depth, reader.pace)
	r.record()
	began := time.Now()
	time.Sleep(400 * time.Millisecond)
	took := time.Since(began).Seconds() // more, on a machine with other work
	h := r.recorded()
	require.NoError(t, r.stop())
	require.InDelta(t, took*reader.pace, h.count, 0.15*reader.pace)
	require.Greater(t, h.quantile(0.5), 50*time.Millisecond, "three of four waited, evenly up to 300 ms")
	require.Greater(t, h.longest, 200*time.Millisecond)
}

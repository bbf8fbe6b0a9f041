package backend

import (
	"io"
	"time"
)

// longestRest bounds a rest: a disk that hangs makes what works on it slow enough.
const longestRest = 100 * time.Millisecond

// pace is for work that goes on beside puts, which need the same processors and the
// same disk: it rests so many times as long as it works.
type pace struct {
	times int
	since time.Time
}

func begin(times int) *pace { return &pace{times: times, since: time.Now()} }

func (p *pace) rest() {
	time.Sleep(min(time.Duration(p.times)*time.Since(p.since), longestRest))
	p.goOn()
}

// goOn is instead of a rest, where nobody else is at work.
func (p *pace) goOn() { p.since = time.Now() }

// patientWriter rests between pieces of what is written, while others are busy.
type patientWriter struct {
	io.Writer
	busy func() bool
	pace *pace
	size int // of the piece
}

func (p *patientWriter) Write(b []byte) (int, error) {
	if p.size >= backupPiece {
		p.size = 0
		if p.busy() {
			p.pace.rest()
		} else {
			p.pace.goOn()
		}
	}
	p.size += len(b)
	return p.Writer.Write(b)
}

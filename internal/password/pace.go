package password

import (
	"sync"
	"time"
)

// The rhythm while the process has other work too, and while it has none.
var (
	shared = rhythm{slice: 250 * time.Microsecond, pause: func(worked time.Duration) time.Duration { return min(3*worked, longestPause) }}
	// The pause isn't nothing: only a core without work looks whether the network has some.
	alone = rhythm{slice: time.Millisecond, pause: func(time.Duration) time.Duration { return 50 * time.Microsecond }}
)

// rhythm is how work and pauses alternate.
type rhythm struct {
	slice time.Duration                            // how long there is no pause
	pause func(worked time.Duration) time.Duration // after that work
}

const (
	// longestPause is for work that took long because others had the core.
	longestPause = 20 * time.Millisecond
	// window is how long it is measured what else the process does, and idle the part of a core
	// up to which that is nothing.
	window = 10 * time.Millisecond
	idle   = 1.0 / 20
)

// pacer makes pauses in the hashing of one password.
type pacer struct {
	meter *meter
	began time.Time // of the work since the last pause
	now   *rhythm
}

// step is called after each step of the work.
func (p *pacer) step() {
	now := time.Now()
	worked := now.Sub(p.began)
	if worked < p.now.slice {
		return
	}
	// If it took longer than that and a step, others had the core meanwhile.
	p.now = p.meter.rhythm(now, min(worked, 2*p.now.slice))
	time.Sleep(p.now.pause(worked))
	p.began = time.Now()
}

// meter measures what the process does beside hashing passwords.
type meter struct {
	used func() time.Duration // CPU time of the process

	mu     sync.Mutex
	began  time.Time     // of the window
	before time.Duration // used then
	hashed time.Duration // of it for passwords
	busy   bool          // in the window before
}

// rhythm adds work that was done, and returns the rhythm that is due.
func (m *meter) rhythm(now time.Time, worked time.Duration) *rhythm {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.hashed += worked
	if d := now.Sub(m.began); d >= window {
		used := m.used()
		m.busy = float64(used-m.before-m.hashed) > idle*float64(d)
		m.began, m.before, m.hashed = now, used, 0
	}
	if m.busy {
		return &shared
	}
	return &alone
}

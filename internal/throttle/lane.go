package throttle

import (
	"errors"
	"slices"
	"sync"
	"time"
)

// The bounds of one server. Those of time are a cluster's: every server applies the requests
// that any of them admits, so each admits an equal part.
const (
	likelyBudget = 2_000_000       // ns that the requests in the log are likely to take together
	mostBudget   = 16_000_000      // ns that they may take if they do their worst
	share        = 3               // slow requests take one of so many parts of the time of a core
	long         = 1_000_000       // ns: of one that takes as long, half of that, or a little less,
	longest      = 2_000_000       // ns: and of one that takes as long, a quarter
	patience     = 3 * time.Second // between two slow requests, so that the second isn't given up
	maxLine      = 512             // requests that wait for one extension
	maxWaiting   = 8192
)

// ErrFull says that too many requests wait already.
var ErrFull = errors.New("throttle: too many expensive requests are waiting")

// Lane admits requests. Those of one extension wait in their order; those of several are
// admitted in turns.
type Lane struct {
	now    func() int64 // ns, of any clock
	after  func(time.Duration, func())
	random func() float64 // in [0, 1)

	mu           sync.Mutex
	servers      int64 // that admit requests
	likely, most int64 // of those that are in the log
	free         int64 // until when slow requests have used up their share of time
	waking       bool  // the timer for that is running
	waiting      int
	lines        map[string]*line
	ring         []*line // those with requests; the first is next
}

// line is the requests that wait for one extension.
type line struct {
	name  string
	turns []*Turn
}

// Turn is a request's place.
type Turn struct {
	lane     *Lane
	name     string
	cost     Cost
	wake     func()
	admitted bool
}

// New returns a lane with a clock, a timer and a source of numbers in [0, 1).
func New(now func() int64, after func(time.Duration, func()), random func() float64) *Lane {
	return &Lane{now: now, after: after, random: random, servers: 1, lines: map[string]*line{}}
}

// Servers sets how many servers admit requests, 1 by default.
func (l *Lane) Servers(n int) {
	l.mu.Lock()
	l.servers = int64(max(n, 1))
	woken := l.advance()
	l.mu.Unlock()
	wakeAll(woken)
}

// Enter has a request of an extension take its turn. It may go on now if the result is
// admitted, and otherwise once wake is called, on any goroutine. The turn has to be ended; it
// is nil for a cheap request. The error is [ErrFull].
func (l *Lane) Enter(name string, c Cost, wake func()) (t *Turn, admitted bool, err error) {
	if c.cheap() {
		return nil, true, nil
	}
	t = &Turn{lane: l, name: name, cost: c, wake: wake}
	l.mu.Lock()
	if err := l.queue(t); err != nil {
		l.mu.Unlock()
		return nil, false, err
	}
	woken := l.advance()
	admitted = t.admitted
	l.mu.Unlock()
	for _, w := range woken {
		if w != t {
			w.wake()
		}
	}
	return t, admitted, nil
}

// Admitted reports whether the request may go on.
func (t *Turn) Admitted() bool {
	t.lane.mu.Lock()
	defer t.lane.mu.Unlock()
	return t.admitted
}

// End ends a turn: the request has been answered, or isn't going to be made.
func (t *Turn) End() {
	if t == nil {
		return
	}
	l := t.lane
	l.mu.Lock()
	if t.admitted {
		l.likely -= t.cost.Likely
		l.most -= t.cost.Most
	} else {
		l.remove(t)
	}
	woken := l.advance()
	l.mu.Unlock()
	wakeAll(woken)
}

func wakeAll(turns []*Turn) {
	for _, t := range turns {
		t.wake()
	}
}

// queue puts a turn behind those of its extension. With mu held, as all below.
func (l *Lane) queue(t *Turn) error {
	at := l.lines[t.name]
	if l.waiting >= maxWaiting || at != nil && len(at.turns) >= maxLine {
		return ErrFull
	}
	if at == nil {
		at = &line{name: t.name}
		l.lines[t.name] = at
		l.ring = append(l.ring, at)
	}
	at.turns = append(at.turns, t)
	l.waiting++
	return nil
}

func (l *Lane) remove(t *Turn) {
	at := l.lines[t.name]
	if i := slices.Index(at.turns, t); i == 0 {
		at.turns = at.turns[1:]
	} else {
		at.turns = slices.Delete(at.turns, i, i+1)
	}
	l.waiting--
	if len(at.turns) == 0 {
		delete(l.lines, t.name)
		l.ring = slices.DeleteFunc(l.ring, func(o *line) bool { return o == at })
	}
}

// advance admits the requests that there is room for, in turns. A slow one that waits for
// time lets the others pass; no request passes one that waits for room in the log.
func (l *Lane) advance() (admitted []*Turn) {
	if l.waiting == 0 {
		return nil
	}
	now := l.now()
	for i := 0; i < len(l.ring); {
		at := l.ring[i]
		t := at.turns[0]
		if t.cost.slow() && !l.hasTime(now) {
			i++
			continue
		}
		if !l.hasRoom(t.cost) {
			break
		}
		l.admit(t, now)
		admitted = append(admitted, t)
		if len(at.turns) > 0 { // the others first
			copy(l.ring[i:], l.ring[i+1:])
			l.ring[len(l.ring)-1] = at
		}
	}
	l.wakeLater(now)
	return admitted
}

// hasTime reports whether slow requests have some of their share left.
func (l *Lane) hasTime(now int64) bool { return l.free-now <= likelyBudget/l.servers }

func (l *Lane) hasRoom(c Cost) bool {
	return l.most == 0 || l.likely+c.Likely <= likelyBudget/l.servers && l.most+c.Most <= mostBudget/l.servers
}

func (l *Lane) admit(t *Turn, now int64) {
	l.remove(t)
	t.admitted = true
	l.likely += t.cost.Likely
	l.most += t.cost.Most
	if t.cost.slow() {
		l.free = max(l.free, now) + l.apart(t.cost.Likely)
	}
}

// apart is the time from a slow request to the next one. It grows faster than what the request
// takes: of requests that take the same time together, the longer keep more of the others waiting,
// and for longer. What takes 10 ms gets less than a hundredth of the time, so that others' p99 hardly
// notices it. The time varies if other servers admit requests, too: those of several servers
// that once come together would go on doing so, and all others wait for all of them at once.
func (l *Lane) apart(takes int64) int64 {
	t := float64(takes)
	ns := float64(share*l.servers) * (t + t*t/long + t*t*t/(longest*longest))
	if l.servers > 1 {
		ns = ns/2 + ns*l.random()
	}
	return int64(min(ns, float64(patience)))
}

// wakeLater sets the timer if slow requests wait for nothing but time.
func (l *Lane) wakeLater(now int64) {
	wait := l.free - now - likelyBudget/l.servers
	if l.waking || l.waiting == 0 || wait <= 0 {
		return
	}
	l.waking = true
	l.after(time.Duration(wait), func() {
		l.mu.Lock()
		l.waking = false
		woken := l.advance()
		l.mu.Unlock()
		wakeAll(woken)
	})
}

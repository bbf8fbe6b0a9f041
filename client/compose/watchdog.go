package compose

import (
	"sync"
	"time"
)

// watchdog detects clusters that don't answer the requests of a session: the
// session itself would wait for its TTL. One serves all forks of a client, so
// that a request costs no timer.
type watchdog struct {
	silence time.Duration
	each    time.Duration // between two looks

	mu      sync.Mutex
	watched map[watched]*silence
	running bool
}

// watched is a session whose answers are waited for.
type watched interface {
	alive() bool
	// counts are the requests that were sent, and those of them that were answered.
	counts() (sent, got int64)
	// abandon ends it because it is silent.
	abandon()
}

// newWatchdog looks so often within the timeout. A session is abandoned at most one interval
// between looks before the timeout ends.
func newWatchdog(timeout time.Duration, looks int) *watchdog {
	return &watchdog{silence: timeout, each: timeout / time.Duration(looks), watched: map[watched]*silence{}}
}

func (w *watchdog) add(s watched) {
	_, got := s.counts()
	w.mu.Lock()
	defer w.mu.Unlock()
	w.watched[s] = &silence{since: time.Now(), got: got}
	if !w.running {
		w.running = true
		go w.run()
	}
}

func (w *watchdog) remove(s watched) {
	w.mu.Lock()
	delete(w.watched, s)
	w.mu.Unlock()
}

// hurry sets the time by which a silent session is abandoned: part of the
// timeout was spent before it was opened.
func (w *watchdog) hurry(s watched, by time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if silent := w.watched[s]; silent != nil && by.Add(-w.silence).Before(silent.since) {
		silent.since = by.Add(-w.silence)
	}
}

func (w *watchdog) run() {
	before := time.Now()
	for {
		time.Sleep(w.each)
		now := time.Now()
		w.mu.Lock()
		if len(w.watched) == 0 {
			w.running = false
			w.mu.Unlock()
			return
		}
		var silent []watched
		for s, since := range w.watched {
			sent, got := s.counts()
			if !s.alive() || since.look(before, now, sent, got) >= w.silence-w.each {
				delete(w.watched, s)
				silent = append(silent, s)
			}
		}
		w.mu.Unlock()
		for _, s := range silent {
			s.abandon()
		}
		before = now
	}
}

// silence is the time without an answer to an outstanding request, estimated by
// periodic looks. The estimate is never too short.
type silence struct {
	since time.Time // not after it began
	got   int64     // answers by then
}

// look updates the estimate with the counts of sent and answered requests.
func (s *silence) look(before, now time.Time, sent, got int64) time.Duration {
	switch {
	case sent <= got:
		s.since, s.got = now, got
	case got != s.got:
		s.since, s.got = before, got
	}
	return now.Sub(s.since)
}

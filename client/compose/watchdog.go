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

	mu       sync.Mutex
	channels map[*channel]struct{}
	running  bool
}

// looks within the timeout. A channel is abandoned at most one interval between
// looks before the timeout ends.
const looks = 32

func newWatchdog(silence time.Duration) *watchdog {
	return &watchdog{silence: silence, channels: map[*channel]struct{}{}}
}

func (w *watchdog) add(ch *channel) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.channels[ch] = struct{}{}
	ch.silent = silence{since: time.Now(), got: ch.l.got.Load()}
	if !w.running {
		w.running = true
		go w.run()
	}
}

func (w *watchdog) remove(ch *channel) {
	w.mu.Lock()
	delete(w.channels, ch)
	w.mu.Unlock()
}

// hurry sets the time by which a silent channel is abandoned: part of the
// timeout was spent before it was opened.
func (w *watchdog) hurry(ch *channel, by time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if since := by.Add(-w.silence); since.Before(ch.silent.since) {
		ch.silent.since = since
	}
}

func (w *watchdog) run() {
	before := time.Now()
	for {
		time.Sleep(w.silence / looks)
		now := time.Now()
		w.mu.Lock()
		if len(w.channels) == 0 {
			w.running = false
			w.mu.Unlock()
			return
		}
		var silent []*channel
		for ch := range w.channels {
			if !ch.alive() || ch.silent.look(before, now, ch.l.sent.Load(), ch.l.got.Load()) >= w.silence-w.silence/looks {
				delete(w.channels, ch)
				silent = append(silent, ch)
			}
		}
		w.mu.Unlock()
		for _, ch := range silent {
			ch.s.Abandon(ErrSilent)
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

package compose

import (
	"sync"
	"time"
)

// watchdog notices clusters that keep silent on what a session has sent them: the
// session would wait for as long as it lives. One serves all forks of a client, so
// that a request costs no timer.
type watchdog struct {
	silence time.Duration

	mu       sync.Mutex
	channels map[*channel]struct{}
	running  bool
}

// looks within the time of silence. A channel is given up between two of them before that
// time is over and its end.
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

// hurry has a channel given up by a time, if it keeps silent until then: it was waited for
// before it was opened.
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

// silence is for how long nothing has been answered though something was asked, as far as
// looks from time to time tell. It is rather thought longer than it is.
type silence struct {
	since time.Time // not after it began
	got   int64     // answers by then
}

// look is told what has been sent and answered up to now, and when it was last told so.
func (s *silence) look(before, now time.Time, sent, got int64) time.Duration {
	switch {
	case sent <= got:
		s.since, s.got = now, got
	case got != s.got:
		s.since, s.got = before, got
	}
	return now.Sub(s.since)
}

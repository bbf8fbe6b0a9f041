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

const looks = 4 // within the time of silence

func newWatchdog(silence time.Duration) *watchdog {
	return &watchdog{silence: silence, channels: map[*channel]struct{}{}}
}

func (w *watchdog) add(ch *channel) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.channels[ch] = struct{}{}
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

func (w *watchdog) run() {
	for {
		time.Sleep(w.silence / looks)
		w.mu.Lock()
		if len(w.channels) == 0 {
			w.running = false
			w.mu.Unlock()
			return
		}
		var silent []*channel
		for ch := range w.channels {
			if !ch.alive() || ch.silent() {
				delete(w.channels, ch)
				silent = append(silent, ch)
			}
		}
		w.mu.Unlock()
		for _, ch := range silent {
			ch.s.Abandon(ErrSilent)
		}
	}
}

// silent tells that nothing was answered for the whole time, though something was
// asked.
func (ch *channel) silent() bool {
	got := ch.l.got.Load()
	if got != ch.heard || ch.l.sent.Load() <= got {
		ch.heard, ch.still = got, 0
		return false
	}
	ch.still++
	return ch.still > looks
}

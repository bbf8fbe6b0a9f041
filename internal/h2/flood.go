package h2

import "time"

// A frame costs its receiver more than its sender, and most kinds of frames may be sent without
// end. So a connection has a budget: frames that bring a call nothing are paid from it, calls and
// what is sent to the client refill it, and so does time. Ordinary clients earn much more than
// they spend; one that only spends is ended with ENHANCE_YOUR_CALM.
const (
	maxBudget   = 10_000 // in frames
	perSecond   = 1_000
	perCall     = 10
	perMessage  = 10 // that is sent
	bytesEarn   = 256
	streamFault = 100 // an error of the client that ends a stream

	// maxStraying is how many bytes to calls that were ended here may be under way, and leastStray
	// what a frame of them counts for at least.
	maxStraying = 64 << 20
	leastStray  = 4 << 10

	// streamsPerFrame is how many streams' windows are changed in the time of one frame.
	streamsPerFrame = 16
)

type budget struct {
	left   int
	filled time.Time
}

// refill adds what time does.
func (b *budget) refill(now time.Time) {
	if since := now.Sub(b.filled); since >= time.Second {
		b.earn(int(min(since.Seconds(), maxBudget/perSecond) * perSecond))
		b.filled = now
	}
}

func (b *budget) earn(n int) { b.left = min(b.left+n, maxBudget) }

// spend takes n, or says that the connection is to end.
func (b *budget) spend(n int) error {
	if b.left -= n; b.left < 0 {
		return fatal(enhanceYourCalm, "too many frames without effect")
	}
	return nil
}

// useless pays for a frame that has no effect.
func (c *conn) useless() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.budget.spend(1)
}

// fault ends a stream by an error of its client. That is not allowed to be a cheap way to have
// calls begun and cancelled (CVE-2025-8671): the connection pays, and a handler that goes on
// counts as any other that is abandoned. With mu held.
func (c *conn) fault(st *stream, code errorCode) error {
	c.reset(st, code)
	return c.budget.spend(streamFault)
}

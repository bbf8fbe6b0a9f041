package node

import (
	"errors"
	"time"

	"github.com/stoa-kv/stoa/internal/backend"
)

// The scrubber compares the keys in memory with the file, all the time, so that a bit that has
// changed by itself, in one of the two, doesn't stay until the server is started again, or the
// key is read. Which of the two is right shows the next start: the file has checksums.
const (
	scrubRate  = 5 << 20 // bytes a second, at most
	scrubShare = 100     // the time between two steps, in times that of the step, at least
	scrubBytes = 64 << 10
)

func (n *Node) scrubLoop() {
	for n.pause(n.life, n.cfg.ScrubPass) == nil {
		if err := n.scrub(n.core.Load()); errors.Is(err, backend.ErrDiffers) && !n.Fenced() {
			n.fatal(err)
			return
		}
	}
}

// scrub compares all keys once. It ends early, without an error, if the server stops.
func (n *Node) scrub(c *core) error {
	for _, s := range c.stores {
		var from []byte
		for more := true; more; more = from != nil {
			began := time.Now()
			next, err := c.backend.Compare(s, from, scrubBytes)
			if n.damaged(err) != nil {
				return err
			}
			from = next
			if n.pause(n.life, max(scrubBytes*time.Second/scrubRate, scrubShare*time.Since(began))) != nil {
				return nil
			}
		}
	}
	n.cfg.Metrics.Disk.Scrubs.Inc()
	return nil
}

package node

import (
	"errors"
	"time"

	"go.uber.org/zap"

	"github.com/stoa-kv/stoa/internal/backend"
)

// The scrubber compares the keys in memory with the file, all the time, so that a bit that has
// changed by itself, in one of the two, doesn't stay until the server is started again, or the
// key is read. Which of the two is right nobody asks: the others have the state.
const (
	scrubRate  = 5 << 20 // bytes a second, at most
	scrubShare = 100     // the time between two steps, in times that of the step, at least
	scrubBytes = 64 << 10
)

func (n *Node) scrubLoop() {
	for n.pause(n.life, n.cfg.ScrubPass) == nil {
		c := n.core.Load()
		if err := n.scrub(c); errors.Is(err, backend.ErrDiffers) && !n.isolate(c, err) {
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

// isolate fences this server if another one can heal it. Alone it has to end: the next start has the
// file's checksums and the log to go by.
func (n *Node) isolate(c *core, why error) bool {
	if len(c.replica.Peers()) == 0 || !c.machine.Checks() {
		return false
	}
	if c.machine.Damaged() {
		n.log.Error("this member's state is damaged: it serves nothing until it has taken in another's", zap.Error(why))
		n.fenced(n.fence.Now())
	}
	return true
}

package h2

import (
	"runtime"
	"sync"
)

// outBuffers are what connections write from. An idle connection holds none.
var outBuffers = sync.Pool{New: func() any { b := make([]byte, 0, 16<<10); return &b }}

const maxPooled = 256 << 10

// flush writes what is in out, unless somebody else is going to: the goroutine that is writing
// already, or the reader. Answers that others add meanwhile are written with it, by one call of
// the system. With mu held, which it releases while it writes.
func (c *conn) flush() {
	if c.mayWrite() {
		c.writing = true
		c.write(true)
	}
}

// mayWrite reports whether nobody else is going to write. With mu held.
func (c *conn) mayWrite() bool { return !c.writing && !c.corked && !c.dead }

// write writes as long as there is something to be written. With yield it lets others add to it
// first. With mu held, and writing set, which it unsets.
func (c *conn) write(yield bool) {
	var spare *[]byte
	for len(c.out) > 0 && !c.corked && !c.dead {
		if yield {
			c.mu.Unlock()
			runtime.Gosched() // others may be about to answer
			c.mu.Lock()
			if c.dead {
				break
			}
		}
		b := c.out
		if spare == nil {
			spare = outBuffers.Get().(*[]byte)
		}
		c.out = (*spare)[:0]
		nc := c.nc
		c.mu.Unlock()
		_, err := nc.Write(b)
		*spare = b
		if cap(b) > maxPooled {
			spare = nil
		}
		c.mu.Lock()
		if err != nil {
			c.mu.Unlock()
			c.fail(err)
			c.mu.Lock()
			break
		}
		c.unblock()
	}
	if last, nc := c.parting, c.nc; last != nil {
		c.parting = nil
		c.mu.Unlock()
		written(nc, last)
		c.mu.Lock()
	}
	c.writing = false
	if c.dead {
		c.room.Broadcast()
	}
	if spare != nil {
		*spare = (*spare)[:0]
		outBuffers.Put(spare)
	}
	if len(c.out) == 0 && cap(c.out) > 0 && cap(c.out) <= maxPooled {
		b := c.out
		c.out = nil
		outBuffers.Put(&b)
	}
	if c.draining && len(c.streams) == 0 && len(c.out) == 0 && !c.dead {
		go c.fail(errDrained)
	}
}

// unblock goes on with what waited for room in out. With mu held.
func (c *conn) unblock() {
	if c.waiting && !c.full() {
		c.waiting = false
		c.room.Signal()
	}
	c.pump()
}

package calllog

import "slices"

// Cursor reads the calls of one extension, from the oldest that is kept. It is for one
// goroutine.
type Cursor struct {
	log  *Log
	ring *ring
	seq  uint64 // of the last call that was read
}

// Batch is the result of one read.
type Batch struct {
	Calls []*Call // in the order in which they ran
	// Missed is how many calls before these were dropped before they could be read.
	Missed uint64
	// Gone says that the extension was removed. There will be no more calls.
	Gone bool
	// Changed is closed when there is more to read.
	Changed <-chan struct{}
}

// Open returns a cursor, which must be closed. There need not be any calls of the
// extension yet.
func (l *Log) Open(name string) *Cursor {
	l.mu.Lock()
	defer l.mu.Unlock()
	g := l.ring(name)
	g.readers++
	return &Cursor{log: l, ring: g}
}

// Read returns the calls since the last read. It doesn't wait for any.
func (c *Cursor) Read() Batch {
	c.log.mu.Lock()
	defer c.log.mu.Unlock()
	g := c.ring
	b := Batch{Gone: g.gone}
	for r := g.last; r != nil && r.seq > c.seq; r = r.prev {
		b.Calls = append(b.Calls, &r.Call)
	}
	slices.Reverse(b.Calls)
	b.Missed = g.seq - c.seq - uint64(len(b.Calls))
	if c.seq = g.seq; b.Gone {
		b.Missed = 0
		return b
	}
	if g.changed == nil {
		g.changed = make(chan struct{})
	}
	b.Changed = g.changed
	return b
}

// Reader is a cursor of somebody to whom not everything may be shown, or not for ever.
type Reader struct {
	*Cursor
	// Show takes out of a batch what the reader may not see, or refuses to go on.
	Show func(*Batch) error
}

// Read is that of the cursor. A batch that says that the extension is gone has no calls.
func (r *Reader) Read() (Batch, error) {
	b := r.Cursor.Read()
	if b.Gone {
		return b, nil
	}
	return b, r.Show(&b)
}

// Close ends the reading.
func (c *Cursor) Close() {
	c.log.mu.Lock()
	defer c.log.mu.Unlock()
	c.ring.readers--
	c.log.tidy(c.ring)
}

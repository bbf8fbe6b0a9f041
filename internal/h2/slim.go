package h2

import (
	"errors"
	"maps"
	"os"
	"slices"
	"time"
)

// What a burst has made a connection hold (a buffer for large frames, room for the fields of a large header block, requests that
// are remembered, a map of many streams) it would hold until it ends, and there may be many connections. So one that holds much
// is looked at in intervals, and gives back what it can do without. Its reader alone may do that, and waits for the client: a
// deadline wakes it up. A connection that holds little is looked at by nobody, and one that is busy grows its buffer again at
// most once in an interval.

const (
	slimEvery = 10 * time.Second

	// From so much on a connection holds much.
	fatBuffer  = 4 << 10 // bytes
	fatBlock   = 4 << 10 // bytes of fields, as MaxHeaderList counts them: of a block,
	fatKnown   = 8 << 10 // of requests that are remembered, and of fields with ids
	fatStreams = 256
)

// longAgo is a deadline that has passed.
var longAgo = time.Now()

func (r *reader) fat() bool { return len(r.buf) > fatBuffer }

func (h *headers) fat() bool {
	return h.most > fatBlock || len(h.block) > fatBlock || h.weight > fatKnown || h.table.weight > fatKnown
}

// noteFat has the connection looked at if it holds much. By the reader, with mu held.
func (c *conn) noteFat() {
	if c.fat || c.dead || !c.in.fat() && !c.headers.fat() && c.peak <= fatStreams {
		return
	}
	c.fat = true
	if c.look == nil {
		c.look = time.AfterFunc(c.s.o.slimEvery, c.wakeReader)
	} else {
		c.look.Reset(c.s.o.slimEvery)
	}
}

// wakeReader has the reader call slim, at once if it waits for the client.
func (c *conn) wakeReader() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.dead { // or fail has set a deadline
		_ = c.nc.SetReadDeadline(longAgo)
	}
}

// next returns the next frame.
func (c *conn) next() (frame, error) {
	for {
		f, err := c.in.next()
		if err == nil || !errors.Is(err, os.ErrDeadlineExceeded) {
			return f, err
		}
		if err := c.slim(); err != nil {
			return frame{}, err
		}
	}
}

// slim gives back what the connection can do without.
func (c *conn) slim() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.dead {
		return c.err
	}
	_ = c.nc.SetReadDeadline(time.Time{})
	h := &c.headers
	if h.frames > 0 && h.frames == h.waited {
		return fatal(enhanceYourCalm, "a header block doesn't go on")
	}
	h.waited = h.frames
	c.in.slim()
	if h.fat() {
		h.slim()
	}
	if n := len(c.streams); c.peak > fatStreams && n <= c.peak/4 {
		streams := make(map[uint32]*stream, n) // a map doesn't shrink
		maps.Copy(streams, c.streams)
		c.streams, c.peak = streams, n
	}
	c.fat = false
	c.noteFat()
	return nil
}

// slim makes the buffer small if what has been in it since the last call doesn't need it.
func (r *reader) slim() {
	have := r.end - r.off
	if want := max(r.most, smallBuffer); want*bufferGrowth <= len(r.buf) {
		buf := make([]byte, want)
		copy(buf, r.buf[r.off:r.end])
		r.buf, r.off, r.end, r.filled = buf, 0, have, false
	}
	r.most = have
}

// slim forgets what is made anew by the next blocks: all but the table.
func (h *headers) slim() {
	h.fields, h.ids, h.most = nil, nil, 0
	h.table.entries = slices.Clone(h.table.entries)
	h.table.renumber()
	h.epoch, h.known, h.weight = h.table.epoch, nil, 0
}

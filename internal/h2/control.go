package h2

import (
	"context"
	"encoding/binary"
	"net/http"
	"time"
)

// handle deals with a frame. The error ends the connection.
func (c *conn) handle(f frame) error {
	if c.headers.frames > 0 && f.typ != frameContinuation {
		return fatal(protocolError, "a header block is interrupted")
	}
	switch f.typ {
	case frameData:
		return c.data(f)
	case frameHeaders:
		return c.headersFrame(f)
	case frameContinuation:
		return c.continuation(f)
	case frameReset:
		return c.resetFrame(f)
	case frameSettings:
		return c.settingsFrame(f)
	case framePing:
		return c.ping(f)
	case frameWindow:
		return c.window(f)
	case framePriority:
		return c.priority(f)
	case framePush:
		return fatal(protocolError, "PUSH_PROMISE of a client")
	case frameGoAway:
		if f.stream != 0 || len(f.payload) < 8 {
			return fatal(protocolError, "malformed GOAWAY")
		}
	}
	return c.useless() // types that aren't known are ignored, as §4.1 asks
}

// headersFrame begins a call, or ends a request.
func (c *conn) headersFrame(f frame) error {
	block, ok := f.unpadded()
	if f.stream%2 == 0 || !ok {
		return fatal(protocolError, "malformed HEADERS")
	}
	if f.has(flagPriority) {
		if len(block) < 5 {
			return fatal(frameSize, "malformed HEADERS")
		}
		if binary.BigEndian.Uint32(block)&maxStreamID == f.stream {
			return fatal(protocolError, "a stream that depends on itself")
		}
		block = block[5:]
	}
	if f.has(flagEndHeaders) {
		return c.requested(f, block)
	}
	h := &c.headers
	h.frames, h.block = 1, append(h.block[:0], block...)
	h.first = frame{typ: f.typ, flags: f.flags, stream: f.stream} // its payload is the reader's
	return nil
}

func (c *conn) continuation(f frame) error {
	h := &c.headers
	if h.frames == 0 || f.stream != h.first.stream {
		return fatal(protocolError, "CONTINUATION of nothing")
	}
	if h.frames++; h.frames > maxContinuations || len(h.block)+len(f.payload) > int(c.s.o.MaxHeaderList) {
		return fatal(enhanceYourCalm, "a header block is too large")
	}
	h.block = append(h.block, f.payload...)
	if !f.has(flagEndHeaders) {
		return nil
	}
	first, block := h.first, h.block
	h.frames, h.waited, h.block = 0, 0, nil
	return c.requested(first, block)
}

// requested takes a whole header block.
func (c *conn) requested(f frame, block []byte) error {
	r, timeout, err := c.headers.decode(block)
	if err != nil {
		return err
	}
	ctx, refusal := r.base, r.refusal
	if f.stream > c.lastID && r.err == noError && refusal == nil {
		ctx, refusal = r.arrived(&c.s.o)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	last := f.has(flagEndStream)
	if st := c.streams[f.stream]; st != nil { // trailers, which mean nothing
		switch {
		case st.remoteEnded:
			return c.fault(st, streamClosed)
		case !last:
			return fatal(protocolError, "a request's second headers don't end it")
		}
		c.received(st, nil, 0, true)
		return nil
	}
	if f.stream <= c.lastID {
		return fatal(streamClosed, "HEADERS of a stream that is closed")
	}
	c.lastID = f.stream
	if err := c.makeRoom(); err != nil {
		return err
	}
	switch {
	case c.draining || c.pending > maxPending || c.homeless > 0 || uint64(len(c.streams)+c.abandoned) >= uint64(c.s.o.MaxStreams):
		c.out = appendReset(c.out, f.stream, refusedStream)
		return c.budget.spend(1)
	case r.err != noError:
		c.out = appendReset(c.out, f.stream, r.err)
		return c.budget.spend(streamFault)
	}
	room := 0
	if refusal == nil {
		room = c.holds(r)
		refusal = c.roomFor(r, room)
	}
	if refusal != nil {
		b := appendStatus(nil, max(r.httpStatus, http.StatusOK))
		b = appendGRPCStatus(appendField(b, "content-type", "application/grpc"+r.subtype), refusal)
		c.sendHeaders(b, flagEndStream, f.stream)
		if !last {
			c.out = appendReset(c.out, f.stream, noError)
		}
		c.budget.earn(perCall)
		return nil
	}
	c.begin(f.stream, r, ctx, timeout, room, last)
	return nil
}

// begin makes a call, which holds so much room. With mu held.
func (c *conn) begin(id uint32, r *request, ctx context.Context, timeout time.Duration, room int, last bool) {
	st := &stream{c: c, id: id, req: r, base: ctx, sendWindow: c.initialWindow, recvWindow: int64(c.s.o.StreamWindow)}
	st.in.arrival.call = room
	c.streams[id] = st
	c.peak = max(c.peak, len(c.streams))
	c.budget.earn(perCall)
	if timeout > 0 {
		st.expireAt(time.Now().Add(timeout))
	}
	if r.method.unary == nil {
		st.mayRecv, st.maySend = make(chan struct{}, 1), make(chan struct{}, 1)
		st.started = true
		go st.run()
	} else {
		st.begun = true
		c.begun++
		st.in.arrival.room = c.s.room
		c.watch(st)
	}
	if last {
		c.received(st, nil, 0, true)
	}
}

func (c *conn) resetFrame(f frame) error {
	if f.stream == 0 {
		return fatal(protocolError, "malformed RST_STREAM")
	}
	if len(f.payload) != 4 {
		return fatal(frameSize, "malformed RST_STREAM")
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if f.stream > c.lastID || f.stream%2 == 0 {
		return fatal(protocolError, "RST_STREAM of a stream that is idle")
	}
	st := c.streams[f.stream]
	if st == nil {
		return c.budget.spend(1)
	}
	c.abandon(st)
	return nil
}

func (c *conn) settingsFrame(f frame) error {
	switch {
	case f.stream != 0:
		return fatal(protocolError, "SETTINGS of a stream")
	case f.has(flagAck) && len(f.payload) > 0 || len(f.payload)%6 != 0:
		return fatal(frameSize, "malformed SETTINGS")
	case f.has(flagAck):
		return c.useless()
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	window := c.initialWindow
	for b := f.payload; len(b) > 0; b = b[6:] {
		if err := c.setting(binary.BigEndian.Uint16(b), binary.BigEndian.Uint32(b[2:])); err != nil {
			return err
		}
	}
	cost := 1 + len(f.payload)/64
	if c.initialWindow != window {
		cost += len(c.streams) / streamsPerFrame
		if err := c.widen(c.initialWindow - window); err != nil {
			return err
		}
	}
	c.out = appendHeader(c.out, 0, frameSettings, flagAck, 0)
	c.pump()
	return c.budget.spend(cost)
}

// setting takes one of the client's settings. With mu held.
func (c *conn) setting(id uint16, v uint32) error {
	switch id {
	case settingTable:
		c.resize = c.resize || v < tableSize
	case settingPush:
		if v > 1 {
			return fatal(protocolError, "SETTINGS_ENABLE_PUSH is neither 0 nor 1")
		}
	case settingMaxFrame:
		if v < maxFrame || v > 1<<24-1 {
			return fatal(protocolError, "SETTINGS_MAX_FRAME_SIZE is out of range")
		}
		c.frameLimit = int(min(v, 64<<10)) // larger frames would only delay others
	case settingInitialWindow:
		if v > maxWindow {
			return fatal(flowControl, "SETTINGS_INITIAL_WINDOW_SIZE is out of range")
		}
		c.initialWindow = int64(v)
	}
	return nil
}

// widen changes the windows of all streams. With mu held.
func (c *conn) widen(more int64) error {
	for _, st := range c.streams {
		if st.sendWindow += more; st.sendWindow > maxWindow {
			return fatal(flowControl, "a stream's window is too large")
		}
		if more > 0 && st.out.left > 0 {
			c.blocked.push(st)
		}
	}
	return nil
}

func (c *conn) window(f frame) error {
	if len(f.payload) != 4 {
		return fatal(frameSize, "malformed WINDOW_UPDATE")
	}
	n := int64(binary.BigEndian.Uint32(f.payload) & maxStreamID)
	c.mu.Lock()
	defer c.mu.Unlock()
	if f.stream == 0 {
		if c.sendWindow += n; n == 0 || c.sendWindow > maxWindow {
			return fatal(windowError(n), "WINDOW_UPDATE out of range")
		}
		c.pump()
		return c.budget.spend(1)
	}
	st := c.streams[f.stream]
	switch {
	case st == nil && (f.stream > c.lastID || f.stream%2 == 0):
		return fatal(protocolError, "WINDOW_UPDATE of a stream that is idle")
	case st == nil:
		return c.budget.spend(1)
	}
	if st.sendWindow += n; n == 0 || st.sendWindow > maxWindow {
		return c.fault(st, windowError(n))
	}
	if st.out.left > 0 && !st.turn.queued {
		c.send(st)
	}
	return c.budget.spend(1)
}

func windowError(n int64) errorCode {
	if n == 0 {
		return protocolError
	}
	return flowControl
}

func (c *conn) priority(f frame) error {
	switch {
	case f.stream == 0:
		return fatal(protocolError, "malformed PRIORITY")
	case len(f.payload) != 5:
		return fatal(frameSize, "malformed PRIORITY")
	case binary.BigEndian.Uint32(f.payload)&maxStreamID == f.stream:
		return fatal(protocolError, "a stream that depends on itself")
	}
	return c.useless()
}

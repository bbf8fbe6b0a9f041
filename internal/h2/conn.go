package h2

import (
	"context"
	"errors"
	"io"
	"net"
	"sync"
	"time"

	"google.golang.org/grpc/peer"
)

const (
	defaultWindow = 64<<10 - 1 // RFC 9113 §6.9.2
	helloTimeout  = 20 * time.Second

	// maxUnsent is how much may wait for a client to read before no more is read from it, and
	// senders of streams wait.
	maxUnsent = 1 << 20
	// maxPending is how much may wait for a client's windows before new calls are refused.
	maxPending = 64 << 20
	// maxAbandoned is how many handlers may run whose calls the client has cancelled before no
	// more is read from it.
	maxAbandoned = 250
	// maxLinger is how much is read of what a client sends that has been told to go.
	maxLinger = 16 << 20
)

// conn is a connection.
type conn struct {
	s   *Server
	nc  net.Conn
	ctx context.Context // ends with the connection
	end context.CancelFunc

	// The reader's.
	base     context.Context // ctx with the peer
	in       reader
	headers  headers
	lastPing time.Time
	strikes  int
	holding  bool    // answers are held back: see cork
	inline   *stream // its handler is to be called by the reader
	inlined  int     // handlers that it has called
	gone     func()  // called when the connection has ended

	answered bool // late answers wait to be written; of the goroutine that answers

	mu        sync.Mutex
	room      sync.Cond // reading may go on; with mu
	streams   map[uint32]*stream
	peak      int    // of streams, since the map was made
	lastID    uint32 // the client's highest
	abandoned int
	begun     int // unary calls whose handlers don't run yet
	unsents   int // those whose answers wait for the client,
	homeless  int // and of these, those that have found no room
	budget    budget
	waiting   bool // the reader, for room
	dead      bool
	draining  bool   // no new streams
	drained   []byte // the payload of the ping that is to be answered before
	err       error

	out     []byte // to be written
	writing bool
	parting []byte // to be written last, by the goroutine that is writing when the connection ends
	corked  bool   // the reader will write
	sent    bool   // something other than an answer to a ping, since the last ping

	recvWindow, unacked int64 // of what the client sends
	straying            int64 // bytes that it may still send to calls that have been ended here
	sendWindow          int64 // of what it takes
	initialWindow       int64 // of its streams
	frameLimit          int   // of its frames
	resize              bool  // it has asked for a smaller table of headers
	pending             int64 // bytes of messages that wait for windows or room, see weight
	blocked             queue // streams that wait for the connection's window or room in out
	timer               *time.Timer
	look                *time.Timer // see slim
	fat                 bool        // it is running, or the reader has been woken up
	heard               time.Time   // when a frame came last
	began, idleSince    time.Time
	pinged              bool
}

func newConn(s *Server, nc net.Conn, gone func()) *conn {
	c := &conn{
		s: s, nc: nc, gone: gone, streams: map[uint32]*stream{}, sendWindow: defaultWindow, initialWindow: defaultWindow,
		frameLimit: maxFrame, recvWindow: int64(max(s.o.ConnWindow, defaultWindow)),
	}
	c.room.L = &c.mu
	c.ctx, c.end = context.WithCancel(context.Background())
	c.began = time.Now()
	c.heard, c.idleSince = c.began, c.began
	c.budget = budget{left: maxBudget, filled: c.began}
	return c
}

// serve is the first goroutine of a connection.
func (c *conn) serve() {
	err := c.open()
	c.holding = true // there is something to write
	c.readOn(err)
}

// readOn reads until the connection ends, or until a handler detaches: then another goroutine
// has become the reader. When gone is called, all contexts are cancelled.
func (c *conn) readOn(err error) {
	for err == nil {
		if err = c.step(); err == nil && c.inline != nil && !c.runInline() {
			return
		}
	}
	c.fail(err)
	c.linger()
	c.gone()
}

// step deals with a frame. Before it waits for one it writes.
func (c *conn) step() error {
	if c.holding && !c.in.ready() {
		c.uncork()
	}
	f, err := c.next()
	if err != nil {
		return err
	}
	if !c.holding {
		if err := c.cork(); err != nil {
			return err
		}
	}
	return c.handle(f)
}

// open does the handshakes.
func (c *conn) open() error {
	_ = c.nc.SetDeadline(time.Now().Add(helloTimeout))
	info := &peer.Peer{Addr: c.nc.RemoteAddr(), LocalAddr: c.nc.LocalAddr()}
	if creds := c.s.o.Creds; creds != nil {
		nc, auth, err := creds.ServerHandshake(c.nc)
		if err != nil {
			return err
		}
		c.mu.Lock()
		c.nc, info.AuthInfo = nc, auth
		c.mu.Unlock()
	}
	c.base = peer.NewContext(c.ctx, info)
	c.in.from = c.nc
	c.headers.init(c)
	hello := make([]byte, len(preface))
	if _, err := io.ReadFull(c.nc, hello); err != nil {
		return err
	}
	if string(hello) != preface {
		return fatal(protocolError, "the connection doesn't begin with HTTP/2's preface")
	}
	c.mu.Lock()
	c.settings()
	c.timer = time.AfterFunc(c.patience(), c.tick)
	c.flush()
	c.mu.Unlock()
	f, err := c.in.next()
	if err != nil {
		return err
	}
	if f.typ != frameSettings || f.has(flagAck) {
		return fatal(protocolError, "the first frame isn't SETTINGS")
	}
	if err := c.handle(f); err != nil {
		return err
	}
	c.in.grown = func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.noteFat()
	}
	return c.nc.SetDeadline(time.Time{})
}

// settings sends this side's. With mu held.
func (c *conn) settings() {
	o := &c.s.o
	var b []byte
	if o.MaxStreams < 1<<32-1 {
		b = appendSetting(b, settingMaxStreams, o.MaxStreams)
	}
	b = appendSetting(b, settingInitialWindow, uint32(o.StreamWindow))
	b = appendSetting(b, settingMaxHeaderList, o.MaxHeaderList)
	c.out = append(appendHeader(c.out, len(b), frameSettings, 0, 0), b...)
	if more := c.recvWindow - defaultWindow; more > 0 {
		c.out = appendWindow(c.out, 0, uint32(more))
	}
}

// cork leaves writing to the reader until it has dealt with all that it has read.
func (c *conn) cork() error {
	c.holding = true
	now := time.Now()
	c.mu.Lock()
	defer c.mu.Unlock()
	c.heard = now
	c.budget.refill(now)
	return c.makeRoom()
}

// full tells whether the client makes this side hold too much. With mu held.
func (c *conn) full() bool { return len(c.out) > maxUnsent || c.abandoned > maxAbandoned }

// makeRoom lets the reader wait until the connection isn't full any more. With mu held.
func (c *conn) makeRoom() error {
	for !c.dead && c.full() {
		c.corked = false
		if c.flush(); c.full() && !c.dead {
			c.waiting = true
			c.room.Wait()
		}
	}
	if c.dead {
		return c.err
	}
	c.corked = true
	return nil
}

func (c *conn) uncork() {
	c.holding = false
	c.mu.Lock()
	c.corked = false
	c.noteFat()
	c.flush()
	c.mu.Unlock()
}

// errDrained ends a connection that is drained: the client has been told to go, and has all answers, or they are on their way.
var errDrained = errors.New("h2: all calls have ended")

// fail ends the connection with a GOAWAY, and cancels its calls.
func (c *conn) fail(err error) {
	c.mu.Lock()
	if c.dead {
		c.mu.Unlock()
		return
	}
	c.dead, c.err, c.corked = true, err, false
	all := c.streams
	c.streams = map[uint32]*stream{}
	var goAway *connError
	last := []byte(nil)
	if errors.As(err, &goAway) {
		last = appendGoAway(c.out, c.lastID, goAway.code, goAway.text)
	}
	parting := c.writing && last != nil
	if parting {
		c.parting = last
	}
	c.out = nil
	for _, t := range [...]*time.Timer{c.timer, c.look} {
		if t != nil {
			t.Stop()
		}
	}
	nc := c.nc
	for _, st := range all { // before the reader can see dead, and end
		c.release(st)
		st.cancel(context.Canceled)
	}
	c.room.Broadcast()
	c.mu.Unlock()

	switch told := last != nil || errors.Is(err, errDrained); {
	case !told, nc.SetDeadline(time.Now().Add(time.Second)) != nil, last != nil && !parting && !written(nc, last):
		nc.Close()
	case last == nil:
		closeWrite(nc) // the reader may be waiting for the client
	}
	c.end()
}

func closeWrite(nc net.Conn) {
	if half, ok := nc.(interface{ CloseWrite() error }); ok {
		_ = half.CloseWrite()
	}
}

func written(nc net.Conn, b []byte) bool {
	_, err := nc.Write(b)
	return err == nil
}

// linger reads what a client still sends that has been told to go, before it closes the
// connection: an operating system that has to discard it might discard what the client hasn't
// read, too.
func (c *conn) linger() {
	c.mu.Lock()
	for c.writing {
		c.room.Wait()
	}
	c.mu.Unlock()
	closeWrite(c.nc)
	_, _ = io.Copy(io.Discard, io.LimitReader(c.nc, maxLinger)) // until the deadline of fail
	c.nc.Close()
}

// drain announces that no new calls are taken, and ends the connection after the last. A first
// GOAWAY lets calls that are under way still in; the answer to a ping says that there are none
// left (RFC 9113 §6.8).
func (c *conn) drain() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.dead || c.draining || c.drained != nil {
		return
	}
	c.drained = []byte("h2:drain")
	c.out = appendGoAway(c.out, maxStreamID, noError, "")
	c.out = appendPing(c.out, 0, c.drained)
	c.flush()
}

// refuseMore is the second part of drain. With mu held.
func (c *conn) refuseMore() {
	c.draining = true
	c.out = appendGoAway(c.out, c.lastID, noError, "")
	c.flush()
}

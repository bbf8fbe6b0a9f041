package host

import (
	"context"
	"io"
	"math/rand/v2"
	"net"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

// wires are a network in memory between clients and servers. Bytes take their time, and a
// connection can be cut at any of them.
type wires struct {
	mu    sync.Mutex
	rng   *rand.Rand
	doors map[string]*door
	open  []*cable
	slow  time.Duration // what bytes take, at most
	lives int           // what a connection carries before it breaks, on average; 0: anything
}

func newWires(seed uint64, slow time.Duration) *wires {
	return &wires{rng: rand.New(rand.NewPCG(seed, 1)), doors: map[string]*door{}, slow: slow}
}

// between draws a time of up to d.
func (w *wires) between(d time.Duration) time.Duration {
	w.mu.Lock()
	defer w.mu.Unlock()
	return time.Duration(w.rng.Int64N(int64(d) + 1))
}

// below draws a number below n.
func (w *wires) below(n int) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.rng.IntN(n)
}

// door is where a server listens.
type door struct {
	name   string
	comes  chan net.Conn
	closed chan struct{}
	once   sync.Once
	shut   func() bool // the server is down
}

func (w *wires) lifetime() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.lives
}

// live has connections carry n bytes from now on before they break, on average; 0: anything.
func (w *wires) live(n int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.lives = n
}

func (w *wires) listen(name string, shut func() bool) *door {
	d := &door{name: name, comes: make(chan net.Conn), closed: make(chan struct{}), shut: shut}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.doors[name] = d
	return d
}

// Accept implements net.Listener.
func (d *door) Accept() (net.Conn, error) {
	select {
	case c := <-d.comes:
		return c, nil
	case <-d.closed:
		return nil, net.ErrClosed
	}
}

// Close implements net.Listener.
func (d *door) Close() error {
	d.once.Do(func() { close(d.closed) })
	return nil
}

// Addr implements net.Listener.
func (d *door) Addr() net.Addr { return address(d.name) }

type address string

func (address) Network() string  { return "memory" }
func (a address) String() string { return string(a) }

func (w *wires) dial(ctx context.Context, name string) (net.Conn, error) {
	select {
	case <-time.After(w.between(w.slow)):
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	w.mu.Lock()
	d := w.doors[name]
	w.mu.Unlock()
	if d == nil || d.shut() {
		return nil, syscall.ECONNREFUSED
	}
	up, down := newLane(w), newLane(w)
	here := &cable{w: w, door: d, in: down, out: up}
	up.wears, down.wears = here.wears, here.wears
	here.left.Store(1 << 40)
	if lives := w.lifetime(); lives > 0 {
		here.left.Store(int64(w.below(2 * lives)))
	}
	select {
	case d.comes <- &cable{w: w, door: d, in: up, out: down}:
	case <-d.closed:
		return nil, syscall.ECONNREFUSED
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.open = append(w.open, here)
	return here, nil
}

// some returns one of the open connections, of one server if it is named; nil if there is none.
func (w *wires) some(name string) *cable {
	w.mu.Lock()
	defer w.mu.Unlock()
	var open, fit []*cable
	for _, c := range w.open {
		if !c.in.ended() {
			open = append(open, c)
			if name == "" || c.door.name == name {
				fit = append(fit, c)
			}
		}
	}
	w.open = open
	if len(fit) == 0 {
		return nil
	}
	return fit[w.rng.IntN(len(fit))]
}

// cutAll cuts the connections of one server, or of all.
func (w *wires) cutAll(name string) {
	for c := w.some(name); c != nil; c = w.some(name) {
		c.cut()
	}
}

// stallAll lets nothing through for a while, over any of the open connections.
func (w *wires) stallAll(d time.Duration) {
	for _, c := range w.all() {
		c.in.stall(d)
		c.out.stall(d)
	}
}

// stallAnswers lets nothing through from servers for a while, over any of the open connections.
func (w *wires) stallAnswers(d time.Duration) {
	for _, c := range w.all() {
		c.in.stall(d)
	}
}

func (w *wires) all() []*cable {
	w.mu.Lock()
	defer w.mu.Unlock()
	return append([]*cable(nil), w.open...)
}

// cable is one end of a connection.
type cable struct {
	w       *wires
	door    *door
	in, out *lane
	left    atomic.Int64 // bytes that it carries before it breaks
}

// Read implements net.Conn.
func (c *cable) Read(b []byte) (int, error) { return c.in.read(b) }

// Write implements net.Conn.
func (c *cable) Write(b []byte) (int, error) { return c.out.write(b) }

// Close implements net.Conn. What is on its way to the other end arrives.
func (c *cable) Close() error {
	c.in.end(0, 0, net.ErrClosed)
	c.out.end(everythingSent, 0, io.EOF)
	return nil
}

// cut breaks the connection. Each end gets what is on its way up to any byte; the server may
// learn late that there is nothing more.
func (c *cable) cut() {
	w := c.w
	kept := func() int { return []int{0, w.below(200), w.below(5000), everythingSent}[w.below(4)] }
	c.in.end(kept(), 0, syscall.ECONNRESET)
	c.out.end(kept(), w.between(300*time.Millisecond), io.EOF)
}

// stall lets nothing through for a while, in one direction or in both.
func (c *cable) stall(d time.Duration) {
	which := c.w.below(3)
	if which != 0 {
		c.in.stall(d)
	}
	if which != 1 {
		c.out.stall(d)
	}
}

// LocalAddr implements net.Conn.
func (c *cable) LocalAddr() net.Addr { return address("client") }

// RemoteAddr implements net.Conn.
func (c *cable) RemoteAddr() net.Addr { return address(c.door.name) }

// SetDeadline implements net.Conn. There are none.
func (c *cable) SetDeadline(time.Time) error { return nil }

// SetReadDeadline implements net.Conn.
func (c *cable) SetReadDeadline(time.Time) error { return nil }

// SetWriteDeadline implements net.Conn.
func (c *cable) SetWriteDeadline(time.Time) error { return nil }

// wears breaks the connection when it has carried what it can.
func (c *cable) wears(bytes int) {
	if left := c.left.Add(-int64(bytes)); left < 0 && left+int64(bytes) >= 0 && c.w.lifetime() > 0 {
		c.cut()
	}
}

const everythingSent = 1 << 30

// lane is one direction of a connection.
type lane struct {
	w     *wires
	wake  chan struct{}
	wears func(bytes int)

	mu    sync.Mutex
	parts []part
	last  time.Time // when the last of them arrives
	over  error     // behind them
	at    time.Time // from then on
}

type part struct {
	at    time.Time
	bytes []byte
}

func newLane(w *wires) *lane { return &lane{w: w, wake: make(chan struct{}, 1)} }

func (l *lane) stir() {
	select {
	case l.wake <- struct{}{}:
	default:
	}
}

func (l *lane) write(b []byte) (int, error) {
	delay := l.w.between(l.w.slow)
	defer l.wears(len(b)) // without the lock
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.over != nil { // the reader of the other lane learns of it: TCP has no end that can be read and not be written
		return len(b), nil
	}
	if at := time.Now().Add(delay); at.After(l.last) {
		l.last = at
	}
	l.parts = append(l.parts, part{l.last, append([]byte(nil), b...)})
	l.stir()
	return len(b), nil
}

func (l *lane) read(b []byte) (int, error) {
	for {
		l.mu.Lock()
		now, due := time.Now(), time.Time{}
		switch {
		case len(l.parts) > 0 && !l.parts[0].at.After(now):
			p := &l.parts[0]
			n := copy(b, p.bytes)
			if p.bytes = p.bytes[n:]; len(p.bytes) == 0 {
				l.parts = l.parts[1:]
			}
			l.mu.Unlock()
			return n, nil
		case len(l.parts) > 0:
			due = l.parts[0].at
		case l.over != nil && !l.at.After(now):
			defer l.mu.Unlock()
			return 0, l.over
		case l.over != nil:
			due = l.at
		}
		l.mu.Unlock()
		l.await(due)
	}
}

// await waits until something has changed, or until a time unless it is zero.
func (l *lane) await(due time.Time) {
	var alarm <-chan time.Time
	if !due.IsZero() {
		t := time.NewTimer(time.Until(due))
		defer t.Stop()
		alarm = t.C
	}
	select {
	case <-l.wake:
	case <-alarm:
	}
}

// end lets so many more bytes through, and then, after a while, an error.
func (l *lane) end(bytes int, after time.Duration, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.over != nil && bytes > 0 {
		return
	}
	left := bytes
	for i := range l.parts {
		p := &l.parts[i]
		if len(p.bytes) > left {
			p.bytes = p.bytes[:left]
		}
		if left -= len(p.bytes); left == 0 {
			l.parts = l.parts[:i+1]
			break
		}
	}
	if n := len(l.parts); n > 0 && len(l.parts[n-1].bytes) == 0 {
		l.parts = l.parts[:n-1]
	}
	l.over, l.at = err, time.Now().Add(after)
	l.stir()
}

func (l *lane) stall(d time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	until := time.Now().Add(d)
	for i := range l.parts {
		if l.parts[i].at.Before(until) {
			l.parts[i].at = until
		}
	}
	if l.last.Before(until) {
		l.last = until
	}
}

func (l *lane) ended() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.over != nil
}

package serve

import (
	"errors"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"time"
)

// helloTimeout bounds the time until a new connection has shown its protocol,
// TLS handshake included.
const helloTimeout = 30 * time.Second

// preface is what every HTTP/2 connection begins with (RFC 9113 §3.4). No
// HTTP/1 request that a client would send starts with it.
const preface = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"

const tlsHandshakeByte = 0x16

// conn is a connection whose first bytes have been read ahead.
type conn struct {
	net.Conn
	head     []byte // read, but not yet handed out
	grpcOnly bool   // by the TLS hello: nothing but gRPC is offered
	traffic  *Traffic
	scarce   Scarce        // nil: memory never is
	writes   atomic.Uint64 // begun and ended, together: odd while one is under way
	received atomic.Int64  // bytes, since the last Shed
	forget   func(*conn)   // called once it is closed; nil: nothing is
}

// Traffic counts the bytes of gRPC connections, as they are on the wire.
type Traffic struct{ Received, Sent atomic.Uint64 }

func (c *conn) Read(b []byte) (int, error) {
	if len(c.head) > 0 {
		n := copy(b, c.head)
		c.head = c.head[n:]
		return n, nil
	}
	if c.scarce != nil {
		c.hold()
	}
	n, err := c.Conn.Read(b)
	if c.traffic != nil {
		c.traffic.Received.Add(uint64(n))
		c.received.Add(int64(n))
	}
	return n, err
}

func (c *conn) Write(b []byte) (int, error) {
	c.writes.Add(1)
	n, err := c.Conn.Write(b)
	c.writes.Add(1)
	if c.traffic != nil {
		c.traffic.Sent.Add(uint64(n))
	}
	return n, err
}

// Close implements net.Conn.
func (c *conn) Close() error {
	if c.forget != nil {
		c.forget(c)
	}
	return c.Conn.Close()
}

// peek makes sure that n bytes are in head.
func (c *conn) peek(n int) error {
	have := len(c.head)
	if have >= n {
		return nil
	}
	buf := make([]byte, n)
	copy(buf, c.head)
	_, err := io.ReadFull(c.Conn, buf[have:])
	c.head = buf
	return err
}

// isHTTP2 reads as far as the connection follows the preface, and no further:
// a client of another protocol may be waiting for an answer to a short
// request.
func (c *conn) isHTTP2() (bool, error) {
	for n := 1; n <= len(preface); n++ {
		if err := c.peek(n); err != nil {
			return false, err
		}
		if c.head[n-1] != preface[n-1] {
			return false, nil
		}
	}
	return true, nil
}

// handOver is the listener that a server accepts from: connections come from
// the goroutines that have detected their protocol.
type handOver struct {
	addr  net.Addr
	conns chan net.Conn
	done  chan struct{}
	once  sync.Once
}

func newHandOver(addr net.Addr) *handOver {
	return &handOver{addr: addr, conns: make(chan net.Conn), done: make(chan struct{})}
}

var errClosed = errors.New("serve: listener closed")

func (l *handOver) Accept() (net.Conn, error) {
	select {
	case c := <-l.conns:
		return c, nil
	case <-l.done:
		return nil, net.ErrClosed
	}
}

func (l *handOver) give(c net.Conn) error {
	select {
	case l.conns <- c:
		return nil
	case <-l.done:
		return errClosed
	}
}

// memoryAddr is the address of connections within the process.
type memoryAddr struct{}

func (memoryAddr) Network() string { return "memory" }
func (memoryAddr) String() string  { return "memory" }

func (l *handOver) Close() error   { l.once.Do(func() { close(l.done) }); return nil }
func (l *handOver) Addr() net.Addr { return l.addr }

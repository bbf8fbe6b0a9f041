// Package socket counts the bytes that a client writes to and reads from its
// sockets: everything above TCP, of any protocol.
package socket

import (
	"context"
	"net"
	"sync/atomic"
	"time"
)

// Tap opens connections and counts what goes through them.
type Tap struct {
	sent, received atomic.Int64
}

// Sent is the number of bytes written so far.
func (t *Tap) Sent() int64 { return t.sent.Load() }

// Received is the number of bytes read so far.
func (t *Tap) Received() int64 { return t.received.Load() }

// DialGRPC has the form that gRPC asks for.
func (t *Tap) DialGRPC(ctx context.Context, address string) (net.Conn, error) {
	var d net.Dialer
	return t.count(d.DialContext(ctx, "tcp", address))
}

// DialZooKeeper has the form that the ZooKeeper client asks for.
func (t *Tap) DialZooKeeper(network, address string, timeout time.Duration) (net.Conn, error) {
	return t.count(net.DialTimeout(network, address, timeout))
}

func (t *Tap) count(c net.Conn, err error) (net.Conn, error) {
	if err != nil {
		return nil, err
	}
	return &conn{Conn: c, tap: t}, nil
}

type conn struct {
	net.Conn
	tap *Tap
}

func (c *conn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	c.tap.received.Add(int64(n))
	return n, err
}

func (c *conn) Write(b []byte) (int, error) {
	n, err := c.Conn.Write(b)
	c.tap.sent.Add(int64(n))
	return n, err
}

package serve

import (
	"net"
	"time"
)

// Scarce tells whether memory is scarce. It is asked for each read of a gRPC connection, from any
// goroutine.
type Scarce func() bool

// readAgain is how often a connection looks whether it is to be read again.
const readAgain = 10 * time.Millisecond

// hold waits, while memory is scarce, for the client to take what is written to it: it would ask
// for more. gRPC reads on, whatever waits to be written. A client that keeps to HTTP/2 isn't held
// up by it: it reads whether or not it can write.
func (c *conn) hold() {
	for blocked := c.writes.Load(); blocked%2 == 1 && c.scarce(); time.Sleep(readAgain) {
		if c.writes.Load() != blocked {
			return
		}
	}
}

// Shed closes the gRPC connection that has brought the most since the last call, if that is at
// least so many bytes. It is the last resort when memory runs out: of a message of a stream, and of
// any with grpc-go's transport, nothing is known before it is complete.
func (s *Server) Shed(least int64) (closed net.Addr) {
	var most *conn
	s.mu.Lock()
	for c := range s.grpc {
		if n := c.received.Swap(0); n >= least {
			most, least = c, n
		}
	}
	s.mu.Unlock()
	if most == nil {
		return nil
	}
	_ = most.Close()
	return most.RemoteAddr()
}

// remember has Shed know a connection until it is closed.
func (s *Server) remember(c *conn) {
	c.forget = s.forget
	s.mu.Lock()
	defer s.mu.Unlock()
	s.grpc[c] = struct{}{}
}

func (s *Server) forget(c *conn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.grpc, c)
}

package serve

import (
	"io"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// While memory is scarce, a client that doesn't take what is written isn't read from; it is
// again when it takes it, or memory isn't scarce any more.
func TestHold(t *testing.T) {
	for name, free := range map[string]func(scarce *atomic.Bool, there net.Conn){
		"the client reads":          func(_ *atomic.Bool, there net.Conn) { _, _ = there.Read(make([]byte, 1)) },
		"memory isn't scarce":       func(scarce *atomic.Bool, _ net.Conn) { scarce.Store(false) },
		"the connection was closed": func(_ *atomic.Bool, there net.Conn) { _ = there.Close() },
	} {
		t.Run(name, func(t *testing.T) {
			here, there := net.Pipe()
			defer there.Close()
			var scarce atomic.Bool
			scarce.Store(true)
			c := &conn{Conn: here, scarce: scarce.Load}
			go func() { _, _ = c.Write([]byte("x")) }()
			require.Eventually(t, func() bool { return c.writes.Load() == 1 }, 10*time.Second, time.Millisecond)
			read := make(chan struct{})
			go func() { defer close(read); _, _ = c.Read(make([]byte, 1)) }()
			wrote := make(chan struct{})
			go func() { defer close(wrote); _, _ = there.Write([]byte("y")) }()
			select {
			case <-wrote:
				t.Fatal("it was read from")
			case <-time.After(50 * time.Millisecond):
			}
			free(&scarce, there)
			<-wrote
			<-read
		})
	}
}

// The connection that has brought the most since the last time is closed, once.
func TestShed(t *testing.T) {
	s := New(Options{})
	var conns [3]*conn
	for i := range conns {
		here, there := net.Pipe()
		defer there.Close()
		conns[i] = &conn{Conn: here, traffic: new(Traffic)}
		s.remember(conns[i])
		go func() { _, _ = there.Write(make([]byte, 10*(i+1))) }()
		_, err := conns[i].Read(make([]byte, 100))
		require.NoError(t, err)
	}
	require.NotNil(t, s.Shed(20))
	_, err := conns[2].Read(make([]byte, 1))
	require.ErrorIs(t, err, io.ErrClosedPipe)
	require.Nil(t, s.Shed(20), "the others have brought nothing since")
	require.Len(t, s.grpc, 2)
}

package socket

import (
	"io"
	"net"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestTapCountsBothWays(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer l.Close()
	go func() {
		c, err := l.Accept()
		if err != nil {
			return
		}
		io.CopyN(io.Discard, c, 5)
		c.Write([]byte("seventy"))
		c.Close()
	}()

	var tap Tap
	open := []func() (net.Conn, error){
		func() (net.Conn, error) { return tap.DialZooKeeper("tcp", l.Addr().String(), time.Second) },
		func() (net.Conn, error) { return tap.DialGRPC(t.Context(), "127.0.0.1:1") },
	}
	c, err := open[0]()
	require.NoError(t, err)
	_, err = c.Write([]byte("hello"))
	require.NoError(t, err)
	_, err = io.ReadAll(c)
	require.NoError(t, err)
	require.EqualValues(t, 5, tap.Sent())
	require.EqualValues(t, 7, tap.Received())

	_, err = open[1]()
	require.Error(t, err)
}

package h2_test

import (
	"net"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/net/http2"
	"google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/protobuf/proto"

	"github.com/stoa-kv/stoa/internal/h2"
)

// A client that takes its time over the last answer gets all of it, though it sends something meanwhile: the
// operating system would answer that with a reset if the connection was closed.
func TestTheLastAnswerOfAConnection(t *testing.T) {
	const size = 3 << 20
	p, r := newPostponed(t, h2.Options{})
	w := dialWire(t, r.addr)
	require.NoError(t, w.Conn.(*net.TCPConn).SetReadBuffer(64<<10))
	require.NoError(t, w.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 2 * size}))
	require.NoError(t, w.WriteWindowUpdate(0, 2*size))
	w.begin(1, "UnaryCall")
	require.NoError(t, w.WriteData(1, true, make([]byte, 5)))
	call := <-p.calls
	stopped := make(chan struct{})
	go func() {
		r.GracefulStop()
		close(stopped)
	}()
	for goAways := 0; goAways < 2; {
		f, err := w.ReadFrame()
		require.NoError(t, err)
		switch f := f.(type) {
		case *http2.PingFrame:
			require.NoError(t, w.WritePing(true, f.Data))
		case *http2.GoAwayFrame:
			goAways++
		}
	}
	call.ready(func() (any, error) {
		return &grpc_testing.SimpleResponse{Payload: body(size)}, nil
	})
	<-call.err
	time.Sleep(200 * time.Millisecond)
	require.NoError(t, w.WritePing(false, [8]byte{}))
	time.Sleep(100 * time.Millisecond)
	got, ended := 0, false
	for !ended {
		f, err := w.ReadFrame()
		require.NoError(t, err, "%d bytes have come", got)
		switch f := f.(type) {
		case *http2.DataFrame:
			got += len(f.Data())
		case *http2.HeadersFrame:
			ended = f.StreamEnded()
		}
	}
	require.Equal(t, 5+proto.Size(&grpc_testing.SimpleResponse{Payload: body(size)}), got)
	w.Close()
	<-stopped
}

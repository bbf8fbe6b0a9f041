package rpc

import (
	"bytes"
	"io"
	"math"
	"net"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

// wire is a connection whose frames a test writes and reads by itself.
type wire struct {
	*testing.T
	net.Conn
	*http2.Framer
}

// openWire begins a connection, with one stream that stays open.
func openWire(t *testing.T, o Options) *wire {
	_, l := listen(t, o)
	conn, err := l.DialContext(testContext(t))
	require.NoError(t, err)
	t.Cleanup(func() { conn.Close() })
	require.NoError(t, conn.SetDeadline(time.Now().Add(30*time.Second)))
	w := &wire{t, conn, http2.NewFramer(conn, conn)}
	_, err = io.WriteString(conn, http2.ClientPreface)
	require.NoError(t, err)
	require.NoError(t, w.WriteSettings())
	var head bytes.Buffer
	e := hpack.NewEncoder(&head)
	for _, f := range [][2]string{{":method", "POST"}, {":scheme", "http"}, {":path", "/etcdserverpb.Watch/Watch"}, {":authority", "x"},
		{"content-type", "application/grpc"}, {"te", "trailers"}} {
		require.NoError(t, e.WriteField(hpack.HeaderField{Name: f[0], Value: f[1]}))
	}
	require.NoError(t, w.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: head.Bytes(), EndHeaders: true}))
	return w
}

// ping sends one, and returns the GOAWAY that comes for it, if not its answer.
func (w *wire) ping() *http2.GoAwayFrame {
	_ = w.WritePing(false, [8]byte{7}) // fails if the server is done; the GOAWAY is still to be read then
	for {
		f, err := w.ReadFrame()
		require.NoError(w, err)
		switch f := f.(type) {
		case *http2.GoAwayFrame:
			return f
		case *http2.PingFrame:
			if f.IsAck() {
				return nil
			}
		}
	}
}

// A client may ping as often as the setting says.
func TestPingsOfClients(t *testing.T) {
	w := openWire(t, Options{KeepAliveMinTime: time.Hour})
	var away *http2.GoAwayFrame
	for range 10 {
		if away = w.ping(); away != nil {
			break
		}
	}
	require.NotNil(t, away)
	require.Equal(t, http2.ErrCodeEnhanceYourCalm, away.ErrCode)
	require.Equal(t, "too_many_pings", string(away.DebugData()))

	w = openWire(t, Options{KeepAliveMinTime: -1})
	for range 100 {
		require.Nil(t, w.ping())
	}
}

// A client that doesn't answer the server's pings is cut off.
func TestSilentClient(t *testing.T) {
	t.Parallel() // grpc's shortest times are a second each
	w := openWire(t, Options{KeepAliveInterval: time.Second, KeepAliveTimeout: time.Second})
	pings := 0
	for {
		f, err := w.ReadFrame()
		if err != nil {
			require.NotErrorIs(t, err, os.ErrDeadlineExceeded)
			break
		}
		if p, ok := f.(*http2.PingFrame); ok && !p.IsAck() {
			pings++
		}
	}
	require.Positive(t, pings)
}

func TestPingsSwitchedOff(t *testing.T) {
	for _, o := range []Options{{KeepAliveInterval: -1}, {KeepAliveTimeout: -1}} {
		require.EqualValues(t, math.MaxInt64, o.withDefaults().pings().Time)
	}
	p := Options{}.withDefaults().pings()
	require.Equal(t, 2*time.Hour, p.Time)
	require.Equal(t, 20*time.Second, p.Timeout)
	require.Equal(t, 5*time.Second, Options{}.withDefaults().enforcement().MinTime)
}

// A client is told how many streams it may have.
func TestStreamsOfAConnection(t *testing.T) {
	w := openWire(t, Options{MaxConcurrentStreams: 17})
	for {
		f, err := w.ReadFrame()
		require.NoError(t, err)
		if s, ok := f.(*http2.SettingsFrame); ok && !s.IsAck() {
			n, ok := s.Value(http2.SettingMaxConcurrentStreams)
			require.True(t, ok)
			require.EqualValues(t, 17, n)
			return
		}
	}
}

package h2_test

import (
	"bytes"
	"errors"
	"io"
	"net"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
	"google.golang.org/protobuf/proto"

	"google.golang.org/grpc/interop/grpc_testing"

	"github.com/stoa-kv/stoa/internal/h2"
)

// wire is a client that sends what it likes.
type wire struct {
	*http2.Framer
	net.Conn
	t    testing.TB
	buf  bytes.Buffer
	hpk  *hpack.Encoder
	last uint32
}

func dialWire(t testing.TB, addr string) *wire {
	nc, err := net.Dial("tcp", addr)
	require.NoError(t, err)
	t.Cleanup(func() { nc.Close() })
	w := &wire{Conn: nc, Framer: http2.NewFramer(nc, nc), t: t, last: 1}
	w.hpk = hpack.NewEncoder(&w.buf)
	w.AllowIllegalWrites = true
	_, err = io.WriteString(nc, http2.ClientPreface)
	require.NoError(t, err)
	require.NoError(t, w.WriteSettings())
	return w
}

// block is the headers of a call, and more.
func (w *wire) block(method string, more ...string) []byte {
	w.buf.Reset()
	fields := append([]string{":method", "POST", ":scheme", "http", ":path", "/grpc.testing.TestService/" + method, ":authority", "x",
		"content-type", "application/grpc", "te", "trailers"}, more...)
	for i := 0; i < len(fields); i += 2 {
		require.NoError(w.t, w.hpk.WriteField(hpack.HeaderField{Name: fields[i], Value: fields[i+1]}))
	}
	return bytes.Clone(w.buf.Bytes())
}

func (w *wire) begin(id uint32, method string, more ...string) {
	require.NoError(w.t, w.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: w.block(method, more...), EndHeaders: true}))
}

// pseudo begins a call whose pseudo-headers are these and then those of any call but the path.
func (w *wire) pseudo(id uint32, fields ...string) {
	w.buf.Reset()
	fields = append(fields, ":method", "POST", ":scheme", "http", "content-type", "application/grpc")
	for i := 0; i < len(fields); i += 2 {
		require.NoError(w.t, w.hpk.WriteField(hpack.HeaderField{Name: fields[i], Value: fields[i+1]}))
	}
	require.NoError(w.t, w.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: w.buf.Bytes(), EndHeaders: true}))
}

func (w *wire) raw(b ...byte) {
	_, err := w.Write(b)
	require.NoError(w.t, err)
}

// ended reads until the connection ends, and returns the last GOAWAY's code and those of RST_STREAM.
func (w *wire) ended() (code http2.ErrCode, text string, resets map[uint32]http2.ErrCode) {
	resets = map[uint32]http2.ErrCode{}
	code = 255
	_ = w.SetReadDeadline(time.Now().Add(20 * time.Second))
	for {
		f, err := w.ReadFrame()
		if err != nil {
			var ne net.Error
			require.False(w.t, errors.As(err, &ne) && ne.Timeout(), "the connection goes on")
			return code, text, resets
		}
		switch f := f.(type) {
		case *http2.GoAwayFrame:
			code, text = f.ErrCode, string(f.DebugData())
		case *http2.RSTStreamFrame:
			resets[f.StreamID] = f.ErrCode
		}
	}
}

// What RFC 9113 calls an error of the connection ends it, with the code that it asks for.
func TestConnectionErrors(t *testing.T) {
	for name, c := range map[string]struct {
		do   func(w *wire)
		code http2.ErrCode
	}{
		"DATA of stream 0":          {func(w *wire) { w.raw(0, 0, 0, 0, 0, 0, 0, 0, 0) }, http2.ErrCodeProtocol},
		"DATA of an idle stream":    {func(w *wire) { w.WriteData(5, true, []byte("x")) }, http2.ErrCodeProtocol},
		"HEADERS of an even stream": {func(w *wire) { w.begin(2, "EmptyCall") }, http2.ErrCodeProtocol},
		"a large frame":             {func(w *wire) { w.raw(0, 64, 1, 0, 0, 0, 0, 0, 1) }, http2.ErrCodeFrameSize},
		"padding":                   {func(w *wire) { w.begin(1, "EmptyCall"); w.raw(0, 0, 1, 0, 8, 0, 0, 0, 1, 1) }, http2.ErrCodeProtocol},
		"PUSH_PROMISE":              {func(w *wire) { w.raw(0, 0, 4, 5, 4, 0, 0, 0, 1, 0, 0, 0, 2) }, http2.ErrCodeProtocol},
		"PING of 7 bytes":           {func(w *wire) { w.raw(0, 0, 7, 6, 0, 0, 0, 0, 0, 1, 2, 3, 4, 5, 6, 7) }, http2.ErrCodeFrameSize},
		"SETTINGS of 5 bytes":       {func(w *wire) { w.raw(0, 0, 5, 4, 0, 0, 0, 0, 0, 1, 2, 3, 4, 5) }, http2.ErrCodeFrameSize},
		"SETTINGS of a stream":      {func(w *wire) { w.raw(0, 0, 0, 4, 0, 0, 0, 0, 1) }, http2.ErrCodeProtocol},
		"a window of 2^31":          {func(w *wire) { w.WriteSettings(http2.Setting{ID: 4, Val: 1 << 31}) }, http2.ErrCodeFlowControl},
		"a frame size of 1":         {func(w *wire) { w.WriteSettings(http2.Setting{ID: 5, Val: 1}) }, http2.ErrCodeProtocol},
		"a push of 2":               {func(w *wire) { w.WriteSettings(http2.Setting{ID: 2, Val: 2}) }, http2.ErrCodeProtocol},
		"WINDOW_UPDATE of 0":        {func(w *wire) { w.raw(0, 0, 4, 8, 0, 0, 0, 0, 0, 0, 0, 0, 0) }, http2.ErrCodeProtocol},
		"a window that overflows":   {func(w *wire) { w.WriteWindowUpdate(0, 1<<31-1) }, http2.ErrCodeFlowControl},
		"RST_STREAM of idle":        {func(w *wire) { w.WriteRSTStream(9, 0) }, http2.ErrCodeProtocol},
		"CONTINUATION of nothing":   {func(w *wire) { w.WriteContinuation(1, true, nil) }, http2.ErrCodeProtocol},
		"an interrupted block":      {func(w *wire) { w.WriteHeaders(http2.HeadersFrameParam{StreamID: 1}); w.WritePing(false, [8]byte{}) }, http2.ErrCodeProtocol},
		"a bad header block": {func(w *wire) {
			w.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: []byte{0xff, 0xff, 0xff}, EndHeaders: true})
		}, http2.ErrCodeCompression},
		"an index of nothing": {func(w *wire) {
			w.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: []byte{0xfe}, EndHeaders: true})
		}, http2.ErrCodeCompression},
		"a stream number again":   {func(w *wire) { w.begin(3, "EmptyCall"); w.begin(1, "EmptyCall") }, http2.ErrCodeStreamClosed},
		"second headers":          {func(w *wire) { w.begin(1, "FullDuplexCall"); w.begin(1, "FullDuplexCall") }, http2.ErrCodeProtocol},
		"a flood of CONTINUATION": {func(w *wire) { continuations(w, nil) }, http2.ErrCodeEnhanceYourCalm},
		"a large CONTINUATION":    {func(w *wire) { continuations(w, make([]byte, 16<<10)) }, http2.ErrCodeEnhanceYourCalm},
	} {
		t.Run(name, func(t *testing.T) {
			w := dialWire(t, newRig(t, h2.Options{StreamWindow: 1 << 22, ConnWindow: 70_000, MaxHeaderList: 32 << 10}).addr)
			c.do(w)
			code, text, _ := w.ended()
			require.Equal(t, c.code, code, text)
		})
	}
}

func continuations(w *wire, b []byte) {
	_ = w.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: b})
	for range 100 {
		if w.WriteContinuation(1, false, b) != nil {
			return
		}
	}
}

// A client that makes its table of headers smaller is told, in the first block behind that, that the table isn't larger:
// nghttp2 and netty end the connection else (RFC 7541 §4.2).
func TestSmallerTable(t *testing.T) {
	for name, method := range map[string]string{"an answer": "EmptyCall", "a refusal": "Nothing"} {
		t.Run(name, func(t *testing.T) {
			w := dialWire(t, newRig(t, h2.Options{}).addr)
			updated := func(id uint32) (first bool) {
				w.begin(id, method)
				require.NoError(t, w.WriteData(id, true, make([]byte, 5)))
				n := 0
				until(w, func(f *http2.HeadersFrame) bool {
					update := f.HeaderBlockFragment()[0] == 0x20
					require.True(t, n == 0 || !update)
					first = first || update
					n++
					return f.StreamEnded()
				})
				return first
			}
			require.False(t, updated(1))
			require.NoError(t, w.WriteSettings(http2.Setting{ID: http2.SettingHeaderTableSize, Val: 4096}))
			require.False(t, updated(3))
			require.NoError(t, w.WriteSettings(http2.Setting{ID: http2.SettingHeaderTableSize, Val: 100}))
			require.True(t, updated(5))
			require.False(t, updated(7))
		})
	}
}

// The longest timeouts are no past ones, the shortest no longer ones, and what is none is refused.
func TestTimeouts(t *testing.T) {
	for timeout, code := range map[string]string{
		"99999999H": "0", "99999999n": "0", "1n": "4", "0S": "4",
		"": "13", "H": "13", "1": "13", "100000000S": "13", "-1S": "13", "+1S": "13", "1.5S": "13", "1s": "13", " 1S": "13",
	} {
		t.Run(timeout, func(t *testing.T) {
			w := dialWire(t, newRig(t, h2.Options{}).addr)
			w.ReadMetaHeaders = hpack.NewDecoder(4096, nil)
			w.begin(1, "UnaryCall", "grpc-timeout", timeout)
			if code == "4" {
				wait(w, 1)
			} else {
				require.NoError(t, w.WriteData(1, true, make([]byte, 5)))
			}
			until(w, func(f http2.Frame) bool {
				if h, ok := f.(*http2.MetaHeadersFrame); ok && h.StreamEnded() {
					require.Contains(t, h.Fields, hpack.HeaderField{Name: "grpc-status", Value: code})
					return true
				}
				return code == "4" && f.Header().Type == http2.FrameRSTStream // before its message
			})
		})
	}
}

// Errors of a stream leave the connection alone.
func TestStreamErrors(t *testing.T) {
	for name, c := range map[string]struct {
		do   func(w *wire)
		code http2.ErrCode
	}{
		"an upper-case name":   {func(w *wire) { w.begin(1, "EmptyCall", "Upper", "x") }, http2.ErrCodeProtocol},
		"CR and LF":            {func(w *wire) { w.begin(1, "EmptyCall", "a", "x\r\nb: y") }, http2.ErrCodeProtocol},
		"LF":                   {func(w *wire) { w.begin(1, "EmptyCall", "a", "x\ny") }, http2.ErrCodeProtocol},
		"a zero byte":          {func(w *wire) { w.begin(1, "EmptyCall", "a", "x\x00y") }, http2.ErrCodeProtocol},
		"a space in a name":    {func(w *wire) { w.begin(1, "EmptyCall", "a b", "x") }, http2.ErrCodeProtocol},
		"a colon in a name":    {func(w *wire) { w.begin(1, "EmptyCall", "a:b", "x") }, http2.ErrCodeProtocol},
		"LF in a name":         {func(w *wire) { w.begin(1, "EmptyCall", "a\n", "x") }, http2.ErrCodeProtocol},
		"no name":              {func(w *wire) { w.begin(1, "EmptyCall", "", "x") }, http2.ErrCodeProtocol},
		"LF in the path":       {func(w *wire) { w.begin(1, "Empty\nCall") }, http2.ErrCodeProtocol},
		"two paths":            {func(w *wire) { w.pseudo(1, ":path", "", ":path", "/grpc.testing.TestService/EmptyCall") }, http2.ErrCodeProtocol},
		"two verbs":            {func(w *wire) { w.pseudo(1, ":method", "", ":path", "/grpc.testing.TestService/EmptyCall") }, http2.ErrCodeProtocol},
		"a connection's":       {func(w *wire) { w.begin(1, "EmptyCall", "connection", "x") }, http2.ErrCodeProtocol},
		"te":                   {func(w *wire) { w.begin(1, "EmptyCall", "te", "gzip") }, http2.ErrCodeProtocol},
		"a late pseudo-header": {func(w *wire) { w.begin(1, "EmptyCall", ":path", "x") }, http2.ErrCodeProtocol},
		"too many headers":     {func(w *wire) { w.begin(1, "EmptyCall", "a", strings.Repeat("x", 9<<10)) }, http2.ErrCodeEnhanceYourCalm},
		"many small headers":   {func(w *wire) { w.begin(1, "EmptyCall", bomb(300)...) }, http2.ErrCodeEnhanceYourCalm},
		"no increment":         {func(w *wire) { w.begin(1, "FullDuplexCall"); w.raw(0, 0, 4, 8, 0, 0, 0, 0, 1, 0, 0, 0, 0) }, http2.ErrCodeProtocol},
		"a window":             {func(w *wire) { w.begin(1, "FullDuplexCall"); w.WriteWindowUpdate(1, 1<<31-1) }, http2.ErrCodeFlowControl},
		"DATA behind the end":  {func(w *wire) { w.begin(1, "UnaryCall"); wait(w, 1); w.WriteData(1, true, []byte("x")) }, http2.ErrCodeStreamClosed},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, h2.Options{MaxHeaderList: 8 << 10})
			r.entered = make(chan struct{}, 1)
			w := dialWire(t, r.addr)
			c.do(w)
			w.begin(101, "EmptyCall")
			require.NoError(t, w.WriteData(101, true, make([]byte, 5)))
			_ = w.SetReadDeadline(time.Now().Add(20 * time.Second))
			var code http2.ErrCode
			for answered := false; code == 0 || !answered; {
				f, err := w.ReadFrame()
				require.NoError(t, err)
				switch f := f.(type) {
				case *http2.RSTStreamFrame:
					if f.StreamID == 1 && code == 0 {
						code = f.ErrCode
					}
				case *http2.HeadersFrame:
					answered = answered || f.StreamID == 101 && f.StreamEnded()
				}
			}
			require.Equal(t, c.code, code)
		})
	}
}

// A request of one message may end in a later frame, as grpc-java's do: its handler is called
// once, and an answer that waits for the client's window is not given up at that end.
func TestEndOfRequestAlone(t *testing.T) {
	r := newRig(t, h2.Options{})
	w := dialWire(t, r.addr)
	require.NoError(t, w.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 10}))
	m, err := proto.Marshal(&grpc_testing.SimpleRequest{ResponseSize: 1000})
	require.NoError(t, err)
	w.begin(1, "UnaryCall")
	require.NoError(t, w.WriteData(1, false, append([]byte{0, 0, 0, 0, byte(len(m))}, m...)))

	_ = w.SetReadDeadline(time.Now().Add(20 * time.Second))
	got := 0
	until := func(stream uint32) { // its call has ended
		for {
			f, err := w.ReadFrame()
			require.NoError(t, err)
			switch f := f.(type) {
			case *http2.RSTStreamFrame:
				t.Fatalf("RST_STREAM of %d with %v", f.StreamID, f.ErrCode)
			case *http2.DataFrame:
				if f.StreamID == 1 {
					got += len(f.Data())
				}
			case *http2.HeadersFrame:
				if f.StreamID == stream && f.StreamEnded() {
					return
				}
			}
		}
	}
	for id := uint32(3); id < 100; id += 2 { // time for a handler of the first call
		w.begin(id, "EmptyCall")
		require.NoError(t, w.WriteData(id, true, make([]byte, 5)))
		until(id)
	}
	require.NoError(t, w.WriteData(1, true, nil))
	require.NoError(t, w.WriteWindowUpdate(1, 1<<20))
	until(1)
	require.Greater(t, got, 1000)
}

// wait makes a call that has been begun wait in its handler.
func wait(w *wire, stream uint32) {
	m, err := proto.Marshal(&grpc_testing.SimpleRequest{FillUsername: true})
	require.NoError(w.t, err)
	require.NoError(w.t, w.WriteData(stream, true, append([]byte{0, 0, 0, 0, byte(len(m))}, m...)))
}

// bomb is many headers that take few bytes on the wire.
func bomb(n int) (fields []string) {
	for range n {
		fields = append(fields, "x-bomb", "0123456789")
	}
	return fields
}

// Cancelled calls whose handlers go on are bounded: no more is read from their client then, and
// what others send is (CVE-2023-44487).
func TestRapidReset(t *testing.T) {
	r := newRig(t, h2.Options{})
	stuck := make(chan struct{})
	r.stuck = stuck
	w := dialWire(t, r.addr)
	go func() {
		_, _ = io.Copy(io.Discard, w.Conn)
	}()
	block := w.block("UnaryCall")
	known := w.block("UnaryCall")
	for id := uint32(1); id < 5000; id += 2 {
		_ = w.SetWriteDeadline(time.Now().Add(200 * time.Millisecond))
		if w.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: block, EndHeaders: true}) != nil {
			break // it isn't read any more
		}
		block = known
		_ = w.WriteData(id, true, []byte{0, 0, 0, 0, 2, 0x20, 1}) // fill_username
		_ = w.WriteRSTStream(id, http2.ErrCodeCancel)
	}
	_, err := r.cli.EmptyCall(context10(t), &grpc_testing.Empty{})
	require.NoError(t, err)
	require.Less(t, r.running.Load(), int64(2000))
	close(stuck)
	require.Eventually(t, func() bool { return r.running.Load() == 0 }, 20*time.Second, time.Millisecond)
}

// A client that asks for answers and doesn't read them can't fill the memory.
func TestFloods(t *testing.T) {
	for name, one := range map[string]func(w *wire, id uint32) error{
		"SETTINGS": func(w *wire, _ uint32) error { return w.WriteSettings() },
		"large answers": func(w *wire, id uint32) error {
			_ = w.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: w.block("UnaryCall"), EndHeaders: true})
			m, _ := proto.Marshal(&grpc_testing.SimpleRequest{ResponseSize: 30_000})
			return w.WriteData(id, true, append([]byte{0, 0, 0, 0, byte(len(m))}, m...))
		},
		"half-open": func(w *wire, id uint32) error {
			return w.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: w.block("UnaryCall"), EndHeaders: true})
		},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, h2.Options{MaxStreams: 1000})
			w := dialWire(t, r.addr)
			before := heap()
			for id := uint32(1); id < 100_000; id += 2 {
				_ = w.SetWriteDeadline(time.Now().Add(500 * time.Millisecond))
				if one(w, id) != nil {
					break
				}
			}
			_, err := r.cli.EmptyCall(context10(t), &grpc_testing.Empty{})
			require.NoError(t, err)
			require.Less(t, heap(), before+100<<20)
		})
	}
}

func heap() uint64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

// FuzzConn sends anything.
func FuzzConn(f *testing.F) {
	s := h2.NewServer(h2.Options{MaxHeaderList: 4 << 10, StreamWindow: 4 << 10, ConnWindow: 1 << 16})
	grpc_testing.RegisterTestServiceServer(s, &service{})
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(f, err)
	go func() { _ = s.Serve(l) }()
	f.Cleanup(s.Stop)
	w := dialWire(f, l.Addr().String())
	call := w.block("FullDuplexCall")
	f.Add(append([]byte{0, 0, byte(len(call)), 1, 4, 0, 0, 0, 1}, call...))
	f.Add([]byte{0, 0, 8, 6, 0, 0, 0, 0, 0, 1, 2, 3, 4, 5, 6, 7, 8})
	f.Add([]byte{0, 0, 6, 4, 0, 0, 0, 0, 0, 0, 4, 0, 0, 0, 0})
	f.Add(append(append([]byte{0, 0, byte(len(call)), 1, 4, 0, 0, 0, 1}, call...), 0, 0, 10, 0, 1, 0, 0, 0, 1, 0, 0, 0, 0, 5, 10, 3, 1, 2, 3))
	f.Fuzz(func(t *testing.T, b []byte) {
		nc, err := net.Dial("tcp", l.Addr().String())
		require.NoError(t, err)
		defer nc.Close()
		_, _ = nc.Write(append([]byte(http2.ClientPreface+"\x00\x00\x00\x04\x00\x00\x00\x00\x00"), b...))
		_ = nc.(*net.TCPConn).CloseWrite()
		_ = nc.SetReadDeadline(time.Now().Add(10 * time.Second))
		_, err = io.Copy(io.Discard, nc)
		if ne, ok := err.(net.Error); ok && ne.Timeout() {
			t.Fatal("the connection doesn't end")
		}
	})
}

package h2_test

import (
	"bytes"
	"compress/gzip"
	"encoding/binary"
	"errors"
	"net"
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/stoa-kv/stoa/internal/h2"
)

// drainer collects what a server sends, so that a client that only sends isn't held up by it.
type drainer struct {
	done   chan struct{}
	goAway http2.ErrCode
	resets map[http2.ErrCode]int
	pinged chan struct{} // when a ping has been answered
}

func (w *wire) drain() *drainer {
	d := &drainer{done: make(chan struct{}), resets: map[http2.ErrCode]int{}, pinged: make(chan struct{}, 10)}
	go func() {
		defer close(d.done)
		for {
			f, err := w.ReadFrame()
			if err != nil {
				return
			}
			switch f := f.(type) {
			case *http2.GoAwayFrame:
				d.goAway = f.ErrCode
			case *http2.RSTStreamFrame:
				d.resets[f.ErrCode]++
			case *http2.PingFrame:
				d.pinged <- struct{}{}
			}
		}
	}()
	return d
}

// write sends frames until the server closes the connection, and reports whether it hasn't.
func (w *wire) write(frames []byte, times int) bool {
	_ = w.SetWriteDeadline(time.Now().Add(5 * time.Minute))
	for range times {
		if _, err := w.Conn.Write(frames); err != nil {
			var ne net.Error
			require.False(w.t, errors.As(err, &ne) && ne.Timeout(), "the server neither reads nor ends the connection")
			return false
		}
	}
	return true
}

// frames are frames as bytes.
func frames(write func(f *http2.Framer)) []byte {
	var b bytes.Buffer
	f := http2.NewFramer(&b, nil)
	f.AllowIllegalWrites = true
	write(f)
	return b.Bytes()
}

func repeated(n int, write func(f *http2.Framer)) []byte { return bytes.Repeat(frames(write), n) }

// Frames that have no effect are counted, whatever they are: a client that sends nothing else is
// ended with ENHANCE_YOUR_CALM.
func TestUselessFrames(t *testing.T) {
	for name, write := range map[string]func(f *http2.Framer){
		"PRIORITY":                        func(f *http2.Framer) { _ = f.WritePriority(3, http2.PriorityParam{Weight: 1}) },
		"empty DATA":                      func(f *http2.Framer) { _ = f.WriteData(1, false, nil) },
		"DATA of padding":                 func(f *http2.Framer) { _ = f.WriteDataPadded(1, false, nil, []byte{0}) },
		"SETTINGS":                        func(f *http2.Framer) { _ = f.WriteSettings() },
		"acknowledgements of no SETTINGS": func(f *http2.Framer) { _ = f.WriteSettingsAck() },
		"answers to no PING":              func(f *http2.Framer) { _ = f.WritePing(true, [8]byte{}) },
		"GOAWAY":                          func(f *http2.Framer) { _ = f.WriteGoAway(0, 0, nil) },
		"an unknown type":                 func(f *http2.Framer) { _ = f.WriteRawFrame(0x42, 0, 0, nil) },
		"a connection's WINDOW_UPDATE":    func(f *http2.Framer) { _ = f.WriteWindowUpdate(0, 1) },
		"a stream's WINDOW_UPDATE":        func(f *http2.Framer) { _ = f.WriteWindowUpdate(1, 1) },
		"a closed stream's WINDOW_UPDATE": func(f *http2.Framer) { _ = f.WriteWindowUpdate(3, 1) },
		"a closed stream's DATA":          func(f *http2.Framer) { _ = f.WriteData(3, false, []byte{0}) },
		"a closed stream's RST_STREAM":    func(f *http2.Framer) { _ = f.WriteRSTStream(3, http2.ErrCodeCancel) },
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, h2.Options{ConnWindow: 1 << 30})
			w := dialWire(t, r.addr)
			d := w.drain()
			w.begin(1, "FullDuplexCall")
			w.begin(3, "EmptyCall")
			require.NoError(t, w.WriteRSTStream(3, http2.ErrCodeCancel))
			w.write(repeated(1000, write), 200)
			<-d.done
			require.Equal(t, http2.ErrCodeEnhanceYourCalm, d.goAway)
		})
	}
}

// One frame of settings may change the windows of many streams: it costs accordingly.
func TestSettingsOfManyStreams(t *testing.T) {
	r := newRig(t, h2.Options{})
	w := dialWire(t, r.addr)
	d := w.drain()
	const streams = 20_000
	w.write(calls(w, 1, streams, "UnaryCall"), 1)
	once := frames(func(f *http2.Framer) {
		for i := range 1000 {
			all := make([]http2.Setting, 2000)
			for j := range all {
				all[j] = http2.Setting{ID: http2.SettingInitialWindowSize, Val: uint32(i+j) % 2}
			}
			_ = f.WriteSettings(all...)
		}
	})
	before := cpu()
	w.write(once, 1)
	<-d.done
	require.Equal(t, http2.ErrCodeEnhanceYourCalm, d.goAway)
	require.Less(t, cpu()-before, 10*time.Second) // 40 billion changes of a window, if each had its own
}

// calls are the headers of n calls.
func calls(w *wire, first uint32, n int, method string) []byte {
	block, known := w.block(method), w.block(method)
	return frames(func(f *http2.Framer) {
		for id := first; id < first+2*uint32(n); id += 2 {
			_ = f.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: block, EndHeaders: true})
			block = known
		}
	})
}

// One that does so slowly is ended, too, before as many of its handlers run as make the server stop
// to read.
func TestMadeYouResetSlowly(t *testing.T) {
	r := newRig(t, h2.Options{})
	stuck := make(chan struct{})
	r.stuck = stuck
	defer close(stuck)
	w := dialWire(t, r.addr)
	d := w.drain()
	block, known := w.block("UnaryCall"), w.block("UnaryCall")
	for id := uint32(1); id < 600; id += 2 {
		call := frames(func(f *http2.Framer) {
			_ = f.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: block, EndHeaders: true})
			_ = f.WriteData(id, true, []byte{0, 0, 0, 0, 2, 0x20, 1}) // fill_username
			_ = f.WriteWindowUpdate(id, 0)
		})
		block = known
		if !w.write(call, 1) {
			break
		}
		time.Sleep(15 * time.Millisecond)
	}
	select {
	case <-d.done:
	case <-time.After(time.Minute):
		require.Fail(t, "the server doesn't end the connection")
	}
	require.Equal(t, http2.ErrCodeEnhanceYourCalm, d.goAway)
	require.Less(t, r.running.Load(), int64(250))
}

// A client that makes the server reset its calls has no more handlers than one that resets them
// itself, and is ended (CVE-2025-8671).
func TestMadeYouReset(t *testing.T) {
	for name, c := range map[string]struct {
		fault func(f *http2.Framer, id uint32)
		code  http2.ErrCode
	}{
		"an increment of 0":     {func(f *http2.Framer, id uint32) { _ = f.WriteWindowUpdate(id, 0) }, http2.ErrCodeProtocol},
		"a window's overflow":   {func(f *http2.Framer, id uint32) { _ = f.WriteWindowUpdate(id, 1<<31-1) }, http2.ErrCodeFlowControl},
		"DATA behind the end":   {func(f *http2.Framer, id uint32) { _ = f.WriteData(id, true, []byte{1}) }, http2.ErrCodeStreamClosed},
		"too much DATA":         {func(f *http2.Framer, id uint32) { _ = f.WriteData(id, false, make([]byte, 1100)) }, http2.ErrCodeStreamClosed},
		"HEADERS behind it":     {nil, http2.ErrCodeStreamClosed},
		"priority of itself":    {func(f *http2.Framer, id uint32) { _ = f.WritePriority(id, http2.PriorityParam{StreamDep: id}) }, 0},
		"a priority of 4 bytes": {func(f *http2.Framer, id uint32) { _ = f.WriteRawFrame(http2.FramePriority, 0, id, make([]byte, 4)) }, 0},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, h2.Options{StreamWindow: 1000})
			stuck := make(chan struct{})
			r.stuck = stuck
			w := dialWire(t, r.addr)
			d := w.drain()
			block, known := w.block("UnaryCall"), w.block("UnaryCall")
			w.write(frames(func(f *http2.Framer) {
				for id := uint32(1); id < 20_000; id += 2 {
					_ = f.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: block, EndHeaders: true})
					block = known
					_ = f.WriteData(id, true, []byte{0, 0, 0, 0, 2, 0x20, 1}) // fill_username
					if c.fault == nil {
						_ = f.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: known, EndHeaders: true})
					} else {
						c.fault(f, id)
					}
				}
			}), 1)
			<-d.done
			require.LessOrEqual(t, r.running.Load(), int64(260))
			if c.code == 0 {
				require.NotZero(t, d.goAway)
			} else {
				require.Equal(t, http2.ErrCodeEnhanceYourCalm, d.goAway)
				require.NotZero(t, d.resets[c.code])
			}
			close(stuck)
			require.Eventually(t, func() bool { return r.running.Load() == 0 }, time.Minute, time.Millisecond)
		})
	}
}

// Handlers whose calls have been reset count as calls.
func TestResetCallsCount(t *testing.T) {
	r := newRig(t, h2.Options{MaxStreams: 10})
	stuck := make(chan struct{})
	r.stuck, r.entered = stuck, make(chan struct{})
	w := dialWire(t, r.addr)
	for id := uint32(1); id <= 19; id += 2 {
		w.begin(id, "UnaryCall")
		wait(w, id)
		<-r.entered
		require.NoError(t, w.WriteRSTStream(id, http2.ErrCodeCancel))
	}
	refused := func(id uint32) bool {
		w.begin(id, "EmptyCall")
		require.NoError(t, w.WriteData(id, true, make([]byte, 5)))
		_ = w.SetReadDeadline(time.Now().Add(time.Minute))
		for {
			f, err := w.ReadFrame()
			require.NoError(t, err)
			switch f := f.(type) {
			case *http2.RSTStreamFrame:
				if f.StreamID == id && f.ErrCode == http2.ErrCodeRefusedStream {
					return true
				}
			case *http2.HeadersFrame:
				if f.StreamID == id {
					return false
				}
			}
		}
	}
	require.True(t, refused(21))
	close(stuck)
	for id := uint32(23); refused(id); id += 2 { // until a handler has returned
		runtime.Gosched()
	}
}

// Frames of a client that works are paid by its calls.
func TestBudgetOfAClientThatWorks(t *testing.T) {
	r := newRig(t, h2.Options{})
	var sizes []*grpc_testing.ResponseParameters
	for range 30_000 {
		sizes = append(sizes, &grpc_testing.ResponseParameters{Size: 10})
	}
	w := dialWire(t, r.addr)
	m, err := proto.Marshal(&grpc_testing.StreamingOutputCallRequest{ResponseParameters: sizes})
	require.NoError(t, err)
	w.begin(1, "StreamingOutputCall")
	m = append(binary.BigEndian.AppendUint32([]byte{0}, uint32(len(m))), m...)
	for len(m) > 0 { // more than a window, in time
		n := min(len(m), 16<<10)
		require.NoError(t, w.WriteData(1, n == len(m), m[:n]))
		m = m[n:]
	}
	_ = w.SetReadDeadline(time.Now().Add(time.Minute))
	for n := 0; ; { // each message's bytes are given back at once, and the connection's
		f, err := w.ReadFrame()
		require.NoError(t, err)
		if f, ok := f.(*http2.DataFrame); ok {
			n++
			require.NoError(t, w.WriteWindowUpdate(0, uint32(len(f.Data()))))
			require.NoError(t, w.WriteWindowUpdate(1, uint32(len(f.Data()))))
		}
		if f.Header().StreamID == 1 && f.Header().Type == http2.FrameHeaders && f.Header().Flags.Has(http2.FlagHeadersEndStream) {
			require.GreaterOrEqual(t, n, len(sizes))
			return
		}
	}
}

// Answers to calls that the client resets, or for which it never opens a window, don't stay.
func TestZeroWindows(t *testing.T) {
	answer, err := proto.Marshal(&grpc_testing.SimpleRequest{ResponseSize: 1})
	require.NoError(t, err)
	answer = append([]byte{0, 0, 0, 0, byte(len(answer))}, answer...)
	for name, c := range map[string]struct {
		window uint32
		reset  bool
	}{
		"a stream's, reset":              {0, true},
		"a stream's, never opened":       {0, false},
		"the connection's, reset":        {1 << 30, true},
		"the connection's, never opened": {1 << 30, false},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, h2.Options{PingInterval: 1, PingsWithoutStreams: true})
			w := dialWire(t, r.addr)
			d := w.drain()
			require.NoError(t, w.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: c.window}))
			before := memory()
			if c.window > 0 { // use up the connection's
				large, err := proto.Marshal(&grpc_testing.SimpleRequest{ResponseSize: 1 << 16})
				require.NoError(t, err)
				w.begin(1, "UnaryCall")
				require.NoError(t, w.WriteData(1, true, append([]byte{0, 0, 0, 0, byte(len(large))}, large...)))
			}
			block, known := w.block("UnaryCall"), w.block("UnaryCall")
			const round = 2 * 500
			for id := uint32(3); id < 60_000; {
				w.write(frames(func(f *http2.Framer) {
					for end := id + round; id < end; id += 2 {
						_ = f.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: block, EndHeaders: true})
						block = known
						_ = f.WriteData(id, true, answer)
						if c.reset && id > round+3 { // of the round before, which has been answered
							_ = f.WriteRSTStream(id-round, http2.ErrCodeCancel)
						}
					}
					_ = f.WritePing(false, [8]byte{})
				}), 1)
				<-d.pinged
			}
			if c.reset {
				require.Less(t, memory(), before+5<<20)
			} else {
				require.Less(t, memory(), before+100<<20)
			}
			_, err := r.cli.EmptyCall(context10(t), &grpc_testing.Empty{})
			require.NoError(t, err)
			w.Close()
			<-d.done
			require.Eventually(t, func() bool { return memory() < before+20<<20 }, time.Minute, 10*time.Millisecond)
		})
	}
}

// memory is what the heap and the stacks hold, in bytes.
func memory() uint64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc + m.StackInuse
}

// Small requests for refusals that are large, from a client that doesn't read them.
func TestLargeRefusals(t *testing.T) {
	r := newRig(t, h2.Options{})
	before := memory()
	for range 5 {
		w := dialWire(t, r.addr)
		block, known := w.refused(3000), w.refused(3000)
		all := frames(func(f *http2.Framer) {
			_ = f.WriteRawFrame(0x42, 0, 0, make([]byte, 16<<10)) // now the server reads more at once
			for id := uint32(1); id < 20_000; id += 2 {
				_ = f.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: block, EndHeaders: true, EndStream: true})
				block = known
			}
		})
		_ = w.SetWriteDeadline(time.Now().Add(100 * time.Millisecond))
		_, _ = w.Conn.Write(all)
	}
	_, err := r.cli.EmptyCall(context10(t), &grpc_testing.Empty{})
	require.NoError(t, err)
	require.Less(t, memory(), before+5*4<<20)
}

// refused is the headers of a call to a method that doesn't exist and has a long name.
func (w *wire) refused(n int) []byte {
	w.buf.Reset()
	for _, f := range [][2]string{{":method", "POST"}, {":scheme", "http"}, {":path", "/" + string(bytes.Repeat([]byte("%"), n)) + "/m"}, {"content-type", "application/grpc"}} {
		require.NoError(w.t, w.hpk.WriteField(hpack.HeaderField{Name: f[0], Value: f[1]}))
	}
	return bytes.Clone(w.buf.Bytes())
}

// Clients that begin calls and don't go on: each costs little.
func TestHalfOpen(t *testing.T) {
	for method, c := range map[string]struct{ conns, streams, most int }{
		"UnaryCall":      {conns: 100, streams: 1000, most: 1200},
		"FullDuplexCall": {conns: 10, streams: 1000, most: 10_000},
	} {
		t.Run(method, func(t *testing.T) {
			r := newRig(t, h2.Options{})
			before := memory()
			var last *wire
			for range c.conns {
				last = dialWire(t, r.addr)
				last.drain()
				last.write(calls(last, 1, c.streams, method), 1)
			}
			_, err := r.cli.EmptyCall(context10(t), &grpc_testing.Empty{})
			require.NoError(t, err)
			require.Less(t, memory()-before, uint64(c.most*c.conns*c.streams))
		})
	}
}

// A message takes memory as it arrives, not as it announces; what it becomes when it is
// decompressed is limited like any other.
func TestAnnouncedMessages(t *testing.T) {
	r := newRig(t, h2.Options{})
	w := dialWire(t, r.addr)
	w.drain()
	before := memory()
	w.write(calls(w, 1, 5000, "UnaryCall"), 1)
	w.write(frames(func(f *http2.Framer) {
		for id := uint32(1); id < 10_000; id += 2 {
			for _, b := range []byte{0, 0, 0x3f, 0xff, 0xff, 1, 2, 3} { // byte by byte
				_ = f.WriteData(id, false, []byte{b})
			}
		}
	}), 1)
	_, err := r.cli.EmptyCall(context10(t), &grpc_testing.Empty{})
	require.NoError(t, err)
	require.Less(t, memory(), before+30<<20)
}

func TestGzipBomb(t *testing.T) {
	var bomb bytes.Buffer
	z := gzip.NewWriter(&bomb)
	for range 32 {
		_, _ = z.Write(make([]byte, 1<<20))
	}
	require.NoError(t, z.Close())
	r := newRig(t, h2.Options{})
	w := dialWire(t, r.addr)
	w.begin(1, "UnaryCall", "grpc-encoding", "gzip")
	m := append(binary.BigEndian.AppendUint32([]byte{1}, uint32(bomb.Len())), bomb.Bytes()...)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	for len(m) > 0 {
		n := min(len(m), 16<<10)
		require.NoError(t, w.WriteData(1, n == len(m), m[:n]))
		m = m[n:]
	}
	_ = w.SetReadDeadline(time.Now().Add(time.Minute))
	w.ReadMetaHeaders = hpack.NewDecoder(4096, nil)
	for {
		f, err := w.ReadFrame()
		require.NoError(t, err)
		if f, ok := f.(*http2.MetaHeadersFrame); ok {
			require.Contains(t, f.Fields, hpack.HeaderField{Name: "grpc-status", Value: "8"}, status.New(codes.ResourceExhausted, "").String())
			break
		}
	}
	runtime.ReadMemStats(&after)
	require.Less(t, after.TotalAlloc-before.TotalAlloc, uint64(20<<20))
}

// Blocks that change the table of headers again and again cost CPU in proportion to their bytes, as
// calls do (about a third of it).
func TestTableChurn(t *testing.T) {
	perByte := func(write func(w *wire, f *http2.Framer, id uint32)) time.Duration {
		r := newRig(t, h2.Options{})
		w := dialWire(t, r.addr)
		w.drain()
		var all [][]byte
		bytes := 0
		for id := uint32(1); id < 20_000; id += 200 {
			b := frames(func(f *http2.Framer) {
				for i := range uint32(100) {
					write(w, f, id+2*i)
				}
			})
			all, bytes = append(all, b), bytes+len(b)
		}
		before := cpu()
		for _, b := range all {
			w.write(b, 1)
		}
		_, err := r.cli.EmptyCall(context10(t), &grpc_testing.Empty{})
		require.NoError(t, err)
		return (cpu() - before) * 1000 / time.Duration(bytes)
	}
	call := perByte(func(w *wire, f *http2.Framer, id uint32) {
		_ = f.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: w.block("EmptyCall"), EndHeaders: true})
		_ = f.WriteData(id, true, make([]byte, 5))
	})
	churn := perByte(func(w *wire, f *http2.Framer, id uint32) {
		resize := bytes.Repeat([]byte{0x20, 0x3f, 0xe1, 0x1f}, 20) // 0 and 4,096 bytes
		block := append(resize, w.refused(1000)...)
		_ = f.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: block, EndHeaders: true, EndStream: true})
	})
	t.Logf("CPU per 1000 bytes: %v of calls, %v of table churn", call, churn)
	require.Less(t, churn, 10*call)
}

// What calls had been sent that are reset, unread and padded, is given back to the connection's window.
func TestWindowOfResetCalls(t *testing.T) {
	r := newRig(t, h2.Options{ConnWindow: 1 << 17})
	w := dialWire(t, r.addr)
	message := append([]byte{0, 0, 1, 0, 0}, make([]byte, 15_000)...) // a part of it
	for i := range 100 {
		id := uint32(4*i + 1)
		w.begin(id, "FullDuplexCall")
		require.NoError(t, w.WriteDataPadded(id, false, message, make([]byte, 200)))
		require.NoError(t, w.WriteRSTStream(id, http2.ErrCodeCancel))
		w.begin(id+2, "EmptyCall")
		require.NoError(t, w.WriteData(id+2, true, make([]byte, 5)))
		w.answered(id + 2)
	}
}

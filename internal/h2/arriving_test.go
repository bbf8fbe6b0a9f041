package h2_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"net"
	"strings"
	"sync/atomic"
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

// room has so many bytes.
type room struct{ left atomic.Int64 }

func newRoom(n int64) *room {
	r := &room{}
	r.left.Store(n)
	return r
}

func (r *room) Take(n int) error {
	if r.left.Add(int64(-n)) < 0 {
		r.Give(n)
		return status.Error(codes.ResourceExhausted, "no room")
	}
	return nil
}

func (r *room) Give(n int) { r.left.Add(int64(n)) }

// request is a message of UnaryCall, with so many bytes in it.
func request(t *testing.T, n int) []byte {
	b, err := proto.Marshal(&grpc_testing.SimpleRequest{Payload: body(n)})
	require.NoError(t, err)
	return append(binary.BigEndian.AppendUint32([]byte{0}, uint32(len(b))), b...)
}

const frameSize = 16 << 10

// send sends a message in frames, the last of which ends the call.
func (w *wire) send(id uint32, b []byte) {
	for len(b) > frameSize {
		require.NoError(w.t, w.WriteData(id, false, b[:frameSize]))
		b = b[frameSize:]
	}
	require.NoError(w.t, w.WriteData(id, true, b))
}

// until reads frames until one is what is asked for.
func until[T http2.Frame](w *wire, want func(T) bool) {
	_ = w.SetReadDeadline(time.Now().Add(20 * time.Second))
	for {
		f, err := w.ReadFrame()
		require.NoError(w.t, err)
		if f, ok := f.(T); ok && want(f) {
			return
		}
	}
}

func (w *wire) answered(id uint32) {
	until(w, func(f *http2.HeadersFrame) bool { return f.StreamID == id && f.StreamEnded() })
}

// A message for which there is no room is refused when its length is known, and not when it has
// arrived; meanwhile others arrive, and small ones need no room.
func TestMessageWithoutRoom(t *testing.T) {
	const size = 100_000
	free := newRoom(3 * size / 2)
	r := newRig(t, h2.Options{Room: free, StreamWindow: 1 << 18})
	w := dialWire(t, r.addr)
	w.begin(1, "UnaryCall")
	require.NoError(t, w.WriteData(1, false, request(t, size)[:frameSize]))
	require.Eventually(t, func() bool { return free.left.Load() < size }, 10*time.Second, time.Millisecond)

	_, err := r.cli.UnaryCall(context10(t), &grpc_testing.SimpleRequest{Payload: body(size)})
	require.Equal(t, codes.ResourceExhausted, status.Code(err))
	require.ErrorContains(t, err, "no room")
	_, err = r.cli.UnaryCall(context10(t), &grpc_testing.SimpleRequest{Payload: body(1000)})
	require.NoError(t, err)

	w.begin(3, "UnaryCall")
	require.NoError(t, w.WriteData(3, false, request(t, size)[:frameSize]))
	w.answered(3)

	w.send(1, request(t, size)[frameSize:])
	w.answered(1)
	_, err = r.cli.UnaryCall(context10(t), &grpc_testing.SimpleRequest{Payload: body(size)})
	require.NoError(t, err)
	require.EqualValues(t, 3*size/2, free.left.Load(), "all of the room is there again")
}

// Room comes back however a call ends whose message hasn't arrived.
func TestRoomComesBack(t *testing.T) {
	const size = 100_000
	for name, end := range map[string]func(w *wire){
		"cancelled":          func(w *wire) { _ = w.WriteRSTStream(1, http2.ErrCodeCancel) },
		"the connection too": func(w *wire) { _ = w.Close() },
		"cut off":            func(w *wire) { _ = w.WriteData(1, true, nil) },
		"too much":           func(w *wire) { w.send(1, make([]byte, 2*size)) },
		"a fault":            func(w *wire) { _ = w.WriteWindowUpdate(1, 0) },
		"its deadline":       func(*wire) {},
	} {
		t.Run(name, func(t *testing.T) {
			free := newRoom(size * 3 / 2)
			r := newRig(t, h2.Options{Room: free, StreamWindow: 1 << 18})
			w := dialWire(t, r.addr)
			if name == "its deadline" {
				w.begin(1, "UnaryCall", "grpc-timeout", "50m")
			} else {
				w.begin(1, "UnaryCall")
			}
			require.NoError(t, w.WriteData(1, false, request(t, size)[:frameSize]))
			if name != "its deadline" {
				require.Eventually(t, func() bool { return free.left.Load() < size }, 10*time.Second, time.Millisecond)
			}
			end(w)
			require.Eventually(t, func() bool { return free.left.Load() == size*3/2 }, 10*time.Second, time.Millisecond)
		})
	}
}

// A message that doesn't go on holds no room that another needs.
func TestLateMessage(t *testing.T) {
	const size = 100_000
	free := newRoom(size * 9 / 4)
	r := newRig(t, h2.Options{Room: free, StreamWindow: 1 << 18}.ArriveWithin(50*time.Millisecond))
	w := dialWire(t, r.addr)
	w.begin(1, "UnaryCall")
	require.NoError(t, w.WriteData(1, false, request(t, size)[:frameSize]))
	time.Sleep(200 * time.Millisecond)
	require.Less(t, free.left.Load(), int64(size*9/4), "there is room for another")
	other := dialWire(t, r.addr)
	other.begin(1, "UnaryCall")
	require.NoError(t, other.WriteData(1, false, request(t, size)[:frameSize]))
	ended := make(chan error, 2) // either of them: whose time is looked at first
	for _, one := range []*wire{w, other} {
		go func() { ended <- one.hears(1) }()
	}
	require.NoError(t, <-ended)
}

// hears reads frames until a call is answered.
func (w *wire) hears(id uint32) error {
	_ = w.SetReadDeadline(time.Now().Add(20 * time.Second))
	for {
		f, err := w.ReadFrame()
		if h, ok := f.(*http2.HeadersFrame); err != nil || ok && h.StreamID == id && h.StreamEnded() {
			return err
		}
	}
}

// What was under way to calls that have been refused isn't held against their client.
func TestWhatIsUnderWayToRefusedCalls(t *testing.T) {
	r := newRig(t, h2.Options{Room: newRoom(0), StreamWindow: 1 << 17, ConnWindow: 1 << 30})
	w := dialWire(t, r.addr)
	require.NoError(t, w.WriteWindowUpdate(0, 1<<30))
	d := w.drain()
	message := request(t, 120_000)
	for id := uint32(1); id < 6000; id += 2 {
		w.begin(id, "UnaryCall")
		w.send(id, message)
	}
	ping := [8]byte{1}
	require.NoError(t, w.WritePing(false, ping))
	select {
	case <-d.pinged:
	case <-time.After(20 * time.Second):
		require.Fail(t, "the connection doesn't go on")
	}
	require.Zero(t, d.resets[http2.ErrCodeStreamClosed])
	require.NoError(t, w.Close())
	<-d.done
}

// A call of one message ends at the second, and not when the client says that there are no more: for small messages no
// room is asked, and a window of them takes seven times as much as its bytes.
func TestSecondMessage(t *testing.T) {
	for _, method := range []string{"UnaryCall", "StreamingOutputCall"} {
		r := newRig(t, h2.Options{})
		w := dialWire(t, r.addr)
		w.ReadMetaHeaders = hpack.NewDecoder(4096, nil)
		w.begin(1, method)
		require.NoError(t, w.WriteData(1, false, make([]byte, 10)))
		until(w, func(f *http2.MetaHeadersFrame) bool {
			require.Contains(t, f.Fields, hpack.HeaderField{Name: "grpc-status", Value: "13"})
			return f.StreamEnded()
		})
	}
}

// Headers are as large as they are decoded, not as they are sent: a byte may stand for 4 KiB of them. A call that shares them
// with no other takes room for them until it ends.
func TestHeadersTakeRoom(t *testing.T) {
	for _, method := range []string{"UnaryCall", "FullDuplexCall"} {
		t.Run(method, func(t *testing.T) {
			const size = 1 << 20
			free := newRoom(size)
			r := newRig(t, h2.Options{Room: free})
			w := dialWire(t, r.addr)
			d := w.drain()
			before := memory()
			w.bombs(1, 2000, method)
			require.NoError(t, w.WritePing(false, [8]byte{}))
			<-d.pinged
			require.Less(t, free.left.Load(), int64(64<<10))
			require.Less(t, memory(), before+10<<20)
			_, err := r.cli.UnaryCall(context10(t), &grpc_testing.SimpleRequest{Payload: body(1000)})
			require.NoError(t, err)
			w.Close()
			<-d.done
			require.Eventually(t, func() bool { return free.left.Load() == size }, 10*time.Second, time.Millisecond)
		})
	}
}

// bombs begins n calls of 31 bytes, whose headers are 50 KB.
func (w *wire) bombs(first uint32, n int, method string) {
	value := strings.Repeat("AAAA", 900)
	block, known := w.block(method, "x-bin", value), w.block(method, "x-bin", value)
	index := known[len(known)-1:]
	w.write(frames(func(f *http2.Framer) {
		for id := first; id < first+2*uint32(n); id += 2 {
			_ = f.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: append(bytes.Clone(block), bytes.Repeat(index, 13)...), EndHeaders: true})
			block = known
		}
	}), 1)
}

// Requests that are remembered, for calls with the same headers, are bounded.
func TestRememberedHeaders(t *testing.T) {
	r := newRig(t, h2.Options{})
	before := memory()
	const conns = 30
	for range conns {
		w := dialWire(t, r.addr)
		d := w.drain()
		value := strings.Repeat("AAAA", 480)
		block, known := w.block("EmptyCall", "x-bin", value), w.block("EmptyCall", "x-bin", value)
		w.write(frames(func(f *http2.Framer) {
			for i := range uint32(64) {
				with := append(bytes.Clone(block), bytes.Repeat(known[len(known)-1:], 30)...)
				with = append(with, 0, 1, 'n', 1, byte(i)+'0')
				_ = f.WriteHeaders(http2.HeadersFrameParam{StreamID: 1 + 2*i, BlockFragment: with, EndHeaders: true})
				_ = f.WriteData(1+2*i, true, make([]byte, 5))
				block = known
			}
		}), 1)
		require.NoError(t, w.WritePing(false, [8]byte{}))
		<-d.pinged
	}
	require.Less(t, memory(), before+conns*300<<10)
}

// A call that has room for its headers and sends no message holds none that another needs.
func TestLateBehindHeaders(t *testing.T) {
	free := newRoom(60 << 10)
	r := newRig(t, h2.Options{Room: free}.ArriveWithin(10*time.Millisecond))
	w := dialWire(t, r.addr)
	w.bombs(1, 1, "UnaryCall")
	w.answered(1)
	require.EqualValues(t, 60<<10, free.left.Load())
}

// Calls without a message need room for themselves if a connection has many of them, and not if they go on.
func TestManyCallsWithoutMessages(t *testing.T) {
	free := newRoom(100 << 10)
	r := newRig(t, h2.Options{Room: free})
	w := dialWire(t, r.addr)
	d := w.drain()
	w.write(calls(w, 1, 1000, "UnaryCall"), 1)
	require.NoError(t, w.WritePing(false, [8]byte{}))
	<-d.pinged
	require.Zero(t, free.left.Load())
	_, err := r.cli.EmptyCall(context10(t), &grpc_testing.Empty{})
	require.NoError(t, err)
	require.NoError(t, w.Close())
	<-d.done
	require.Eventually(t, func() bool { return free.left.Load() == 100<<10 }, 10*time.Second, time.Millisecond)

	free.left.Store(0)
	other := dialWire(t, r.addr)
	for id := uint32(1); id < 2000; id += 2 {
		other.begin(id, "EmptyCall")
		require.NoError(t, other.WriteData(id, true, make([]byte, 5)))
		other.answered(id)
	}
	require.Zero(t, free.left.Load())
	for id := uint32(2001); id < 2001+2*300; id += 2 {
		other.begin(id, "EmptyCall")
		require.NoError(t, other.WriteRSTStream(id, http2.ErrCodeCancel))
	}
	other.begin(4001, "EmptyCall")
	require.NoError(t, other.WriteData(4001, true, make([]byte, 5)))
	until(other, func(f *http2.HeadersFrame) bool { return f.StreamID == 4001 && !f.StreamEnded() })
}

// withoutWindow has a server serve, and connects a client that takes no answers before it says so.
func withoutWindow(t *testing.T, s *h2.Server) *wire {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	go func() { _ = s.Serve(ln) }()
	t.Cleanup(s.Stop)
	w := dialWire(t, ln.Addr().String())
	require.NoError(t, w.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 0}))
	return w
}

// leaves is a service whose streams end while a message of theirs waits for the client.
type leaves struct {
	grpc_testing.UnimplementedTestServiceServer
	sent chan error
}

func (l *leaves) FullDuplexCall(both grpc_testing.TestService_FullDuplexCallServer) error {
	go func() {
		l.sent <- both.Send(&grpc_testing.StreamingOutputCallResponse{Payload: body(100)})
	}()
	_, err := both.Recv()
	return err
}

// A stream takes room for its headers and has no message to be late with, also behind the return of its handler.
func TestAStreamIsNotLate(t *testing.T) {
	const size = 60 << 10
	free := newRoom(size)
	s := h2.NewServer(h2.Options{Room: free}.ArriveWithin(10 * time.Millisecond))
	l := &leaves{sent: make(chan error, 1)}
	grpc_testing.RegisterTestServiceServer(s, l)
	w := withoutWindow(t, s)
	w.bombs(1, 1, "FullDuplexCall")
	until(w, func(f *http2.HeadersFrame) bool { return f.StreamID == 1 })
	require.NoError(t, w.WriteData(1, false, make([]byte, 5)))
	require.Error(t, <-l.sent)
	require.NoError(t, w.WriteData(1, false, make([]byte, 5)))
	time.Sleep(100 * time.Millisecond)
	require.NoError(t, w.WriteWindowUpdate(1, 1000))
	w.answered(1)
	require.EqualValues(t, size, free.left.Load())
}

// A connection's requests are remembered until others take their place, and no calls that are open with them go without room: each
// takes it, whether or not it shares its headers.
func TestForgottenHeadersTakeRoom(t *testing.T) {
	free := newRoom(1 << 20)
	r := newRig(t, h2.Options{Room: free})
	before := memory()
	for range 10 {
		w := dialWire(t, r.addr)
		d := w.drain()
		value := strings.Repeat("AAAA", 480)
		block, known := w.block("UnaryCall", "x-bin", value), w.block("UnaryCall", "x-bin", value)
		n := 0
		w.write(frames(func(f *http2.Framer) {
			for id := uint32(1); id < 400; id += 4 {
				remembered := append(bytes.Clone(block), bytes.Repeat(known[len(known)-1:], 30)...)
				_ = f.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: remembered, EndHeaders: true})
				block = known
				others := bytes.Clone(known)
				for range 190 {
					n++
					others = append(append(others, 0, 1, 'n', 5), fmt.Sprintf("%05d", n)...)
				}
				others = append(append(append(others, 0, 12), "content-type"...), 1, 'x') // it is refused
				_ = f.WriteHeaders(http2.HeadersFrameParam{StreamID: id + 2, BlockFragment: others, EndHeaders: true})
			}
		}), 1)
		require.NoError(t, w.WritePing(false, [8]byte{}))
		<-d.pinged
	}
	require.Less(t, memory(), before+10<<20)
}

// What many connections hold in calls without messages is bounded, too, also just below the size from which on headers take room.
func TestCallsWithoutMessagesOfManyConnections(t *testing.T) {
	r := newRig(t, h2.Options{Room: newRoom(1 << 20)})
	before := memory()
	for range 100 {
		w := dialWire(t, r.addr)
		d := w.drain()
		value := strings.Repeat("AAAA", 850)
		block, known := w.block("UnaryCall", "x-bin", value), w.block("UnaryCall", "x-bin", value)
		w.write(frames(func(f *http2.Framer) {
			for id := uint32(1); id < 2*256; id += 2 {
				_ = f.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: block, EndHeaders: true})
				block = known
			}
		}), 1)
		require.NoError(t, w.WritePing(false, [8]byte{}))
		<-d.pinged
	}
	require.Less(t, memory(), before+40<<20)
}

// Small calls that don't go on leave no room for a large message, though there may be some for another of them: they end when one has been refused.
func TestSmallOnesAreInTheWayOfLargeOnes(t *testing.T) {
	free := newRoom(100 << 10)
	r := newRig(t, h2.Options{Room: free}.ArriveWithin(50*time.Millisecond))
	w := dialWire(t, r.addr)
	d := w.drain()
	w.write(calls(w, 1, 1000, "UnaryCall"), 1)
	require.NoError(t, w.WritePing(false, [8]byte{}))
	<-d.pinged
	require.Eventually(t, func() bool {
		_, err := r.cli.UnaryCall(context10(t), &grpc_testing.SimpleRequest{Payload: body(90_000)})
		return err == nil
	}, 10*time.Second, 10*time.Millisecond)
}

// Streams may last as long as they like: what their headers take leaves the room of messages alone.
func TestHeadersOfStreamsLeaveRoomForMessages(t *testing.T) {
	messages, streams := newRoom(200<<10), newRoom(100<<10)
	r := newRig(t, h2.Options{Room: messages, StreamRoom: streams})
	w := dialWire(t, r.addr)
	d := w.drain()
	w.bombs(1, 100, "FullDuplexCall")
	require.NoError(t, w.WritePing(false, [8]byte{}))
	<-d.pinged
	require.Less(t, streams.left.Load(), int64(50<<10))
	_, err := r.cli.UnaryCall(context10(t), &grpc_testing.SimpleRequest{Payload: body(150_000)})
	require.NoError(t, err)
	require.NoError(t, w.Close())
	<-d.done
	require.Eventually(t, func() bool { return streams.left.Load() == 100<<10 }, 10*time.Second, time.Millisecond)
	require.EqualValues(t, 200<<10, messages.left.Load())
}

// A call whose message is there may last as long as a stream, if the client takes no answer: what it holds leaves the room of messages alone.
func TestCallsThatHaveArrivedLeaveRoomForMessages(t *testing.T) {
	const had = 200 << 10
	for name, n := range map[string]int{"with large headers": 3, "begun before they end": 200} {
		t.Run(name, func(t *testing.T) {
			large := n < 10
			messages, streams := newRoom(had), newRoom(1<<20)
			r := newRig(t, h2.Options{Room: messages, StreamRoom: streams})
			w := dialWire(t, r.addr)
			require.NoError(t, w.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 0}))
			d := w.drain()
			if large {
				w.bombs(1, n, "EmptyCall")
			} else {
				w.write(calls(w, 1, n, "EmptyCall"), 1)
			}
			require.NoError(t, w.WritePing(false, [8]byte{}))
			<-d.pinged
			require.Less(t, messages.left.Load(), int64(80<<10))
			w.write(frames(func(f *http2.Framer) {
				for id := uint32(1); id < 2*uint32(n); id += 2 {
					_ = f.WriteData(id, true, make([]byte, 5))
				}
			}), 1)
			require.NoError(t, w.WritePing(false, [8]byte{}))
			<-d.pinged
			require.EqualValues(t, had, messages.left.Load())
			_, err := r.cli.UnaryCall(context10(t), &grpc_testing.SimpleRequest{Payload: body(150_000)})
			require.NoError(t, err)
			if large {
				require.Less(t, streams.left.Load(), int64(1<<20-100<<10))
			}
			require.NoError(t, w.Close())
			<-d.done
			require.Eventually(t, func() bool { return streams.left.Load() == 1<<20 }, 10*time.Second, time.Millisecond)
			require.EqualValues(t, had, messages.left.Load())
		})
	}
}

// What many connections hold in calls whose answers they don't take is bounded, too, also just below the size from which on headers take room.
func TestAnswersOfManyConnectionsThatAreNotTaken(t *testing.T) {
	const had = 1 << 20
	streams := newRoom(had)
	r := newRig(t, h2.Options{Room: newRoom(had), StreamRoom: streams, PingInterval: 1, PingsWithoutStreams: true})
	var all []*wire
	var read []*drainer
	before := memory()
	for range 5 {
		w := dialWire(t, r.addr)
		require.NoError(t, w.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 0}))
		d := w.drain()
		value := strings.Repeat("AAAA", 850)
		block, known := w.block("EmptyCall", "x-bin", value), w.block("EmptyCall", "x-bin", value)
		for first := range uint32(20) {
			w.write(frames(func(f *http2.Framer) {
				for i := 200 * first; i < 200*first+200; i++ {
					alone := append(bytes.Clone(block), 0, 1, 'n', 2, 'a'+byte(i%26), 'a'+byte(i/26%26))
					_ = f.WriteHeaders(http2.HeadersFrameParam{StreamID: 1 + 2*i, BlockFragment: alone, EndHeaders: true})
					_ = f.WriteData(1+2*i, true, make([]byte, 5))
					block = known
				}
			}), 1)
			require.NoError(t, w.WritePing(false, [8]byte{}))
			<-d.pinged
		}
		all, read = append(all, w), append(read, d)
	}
	require.Less(t, streams.left.Load(), int64(8<<10))
	require.Less(t, memory(), before+30<<20)
	_, err := r.cli.UnaryCall(context10(t), &grpc_testing.SimpleRequest{Payload: body(1000)})
	require.NoError(t, err)
	for i, w := range all {
		require.NoError(t, w.Close())
		<-read[i].done
	}
	require.Eventually(t, func() bool { return streams.left.Load() == had }, 10*time.Second, time.Millisecond)
}

// outlives is a service whose calls go on when their connection has ended.
type outlives struct {
	grpc_testing.UnimplementedTestServiceServer
	running atomic.Int64
	goOn    chan struct{}
}

func (o *outlives) EmptyCall(context.Context, *grpc_testing.Empty) (*grpc_testing.Empty, error) {
	o.running.Add(1)
	defer o.running.Add(-1)
	<-o.goOn
	return &grpc_testing.Empty{}, nil
}

// The answers of handlers that outlive their connection take no room, which nothing would give back.
func TestAnswersBehindTheirConnection(t *testing.T) {
	const had, n = 1 << 20, 100
	streams := newRoom(had)
	s := h2.NewServer(h2.Options{Room: newRoom(had), StreamRoom: streams})
	o := &outlives{goOn: make(chan struct{})}
	grpc_testing.RegisterTestServiceServer(s, o)
	w := withoutWindow(t, s)
	d := w.drain()
	for id := uint32(1); id < 2*n; id += 2 {
		w.begin(id, "EmptyCall")
		require.NoError(t, w.WriteData(id, true, make([]byte, 5)))
	}
	require.Eventually(t, func() bool { return o.running.Load() == n }, time.Minute, time.Millisecond)
	require.NoError(t, w.Close())
	<-d.done
	time.Sleep(100 * time.Millisecond) // until the server knows
	close(o.goOn)
	require.Eventually(t, func() bool { return o.running.Load() == 0 }, time.Minute, time.Millisecond)
	time.Sleep(50 * time.Millisecond)
	require.EqualValues(t, had, streams.left.Load())
}

// One with large headers for which there is no room when its message is there is refused.
func TestHeadersWithoutRoomBehindTheMessage(t *testing.T) {
	messages, streams := newRoom(200<<10), newRoom(10<<10)
	r := newRig(t, h2.Options{Room: messages, StreamRoom: streams})
	w := dialWire(t, r.addr)
	w.ReadMetaHeaders = hpack.NewDecoder(4096, nil)
	w.bombs(1, 1, "EmptyCall")
	require.NoError(t, w.WriteData(1, true, make([]byte, 5)))
	until(w, func(f *http2.MetaHeadersFrame) bool {
		require.Contains(t, f.Fields, hpack.HeaderField{Name: "grpc-status", Value: "8"})
		return f.StreamEnded()
	})
	require.EqualValues(t, 200<<10, messages.left.Load())
	require.EqualValues(t, 10<<10, streams.left.Load())
}

// Small messages that don't go on need room, if a connection has many of them: up to 4 MiB of a connection would be held without
// anybody knowing of it, and for as long as it lives.
func TestManyPartsOfSmallMessages(t *testing.T) {
	t.Run("without their last byte", func(t *testing.T) { manyParts(t, 1) })
	t.Run("without the end of their call", func(t *testing.T) { manyParts(t, 0) })
}

func manyParts(t *testing.T, lacking int) {
	const size, parts, had = 15 << 10, 100, 10 << 20
	free := newRoom(had)
	r := newRig(t, h2.Options{Room: free}.ArriveWithin(50*time.Millisecond))
	w := dialWire(t, r.addr)
	d := w.drain()
	message := request(t, size)
	block, known := w.block("UnaryCall"), w.block("UnaryCall")
	w.write(frames(func(f *http2.Framer) {
		for id := uint32(1); id < 2*parts; id += 2 {
			_ = f.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: block, EndHeaders: true})
			block = known
			_ = f.WriteData(id, false, message[:len(message)-lacking])
		}
		_ = f.WritePing(false, [8]byte{})
	}), 1)
	<-d.pinged
	require.Less(t, free.left.Load(), int64(had-(parts-20)*size))
	_, err := r.cli.UnaryCall(context10(t), &grpc_testing.SimpleRequest{Payload: body(size)})
	require.NoError(t, err)
	free.Give(-int(free.left.Load())) // others take the rest: one that doesn't go on ends
	require.Eventually(t, func() bool { return free.left.Load() >= size }, time.Minute, time.Millisecond)
	require.NoError(t, w.Close())
	<-d.done
}

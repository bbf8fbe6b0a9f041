package h2_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
	"google.golang.org/grpc"
	"google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/protobuf/proto"

	"github.com/stoa-kv/stoa/internal/h2"
)

var sequences = flag.Int("sequences", 100, "sequences of frames to compare with grpc-go's server")

// script is a client's frames, one after the other.
type script struct {
	frames [][]byte
	ended  []uint32 // streams whose requests are complete
	change string   // what isn't as the protocol has it, or ""
}

// resets tells whether the client resets a stream, which may come before its answer or behind it.
func (s *script) resets(id uint32) bool {
	return slices.ContainsFunc(s.frames, func(f []byte) bool {
		return http2.FrameType(f[3]) == http2.FrameRSTStream && binary.BigEndian.Uint32(f[5:]) == id
	})
}

// scribe writes a script.
type scribe struct {
	*rand.Rand
	block bytes.Buffer
	hpack *hpack.Encoder
	s     script
}

func newScript(seed uint64) script {
	w := &scribe{Rand: rand.New(rand.NewPCG(seed, 1))}
	w.hpack = hpack.NewEncoder(&w.block)
	var open [][][]byte // what is left of the requests
	for id, calls := uint32(1), 2+w.IntN(5); calls > 0 || len(open) > 0; {
		switch {
		case calls > 0 && (len(open) == 0 || w.IntN(3) == 0):
			request := w.call(id)
			w.s.frames = append(w.s.frames, request[0])
			if len(request) > 1 {
				open = append(open, request[1:])
			}
			id, calls = id+2, calls-1
		case w.IntN(8) == 0:
			w.s.frames = append(w.s.frames, w.aside())
		default:
			i := w.IntN(len(open))
			w.s.frames = append(w.s.frames, open[i][0])
			if open[i] = open[i][1:]; len(open[i]) == 0 {
				open = slices.Delete(open, i, i+1)
			}
		}
	}
	if w.IntN(4) > 0 {
		w.spoil()
	}
	return w.s
}

// aside is a frame that belongs to no request.
func (w *scribe) aside() []byte {
	return frames(func(f *http2.Framer) {
		switch w.IntN(5) {
		case 0:
			_ = f.WritePing(false, [8]byte{byte(w.IntN(256))})
		case 1:
			_ = f.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 1<<16 - 1 + w.Uint32N(1000)})
		case 2:
			_ = f.WriteWindowUpdate(0, 1+w.Uint32N(1000))
		case 3:
			_ = f.WritePriority(1+2*w.Uint32N(10), http2.PriorityParam{StreamDep: 0, Weight: 3})
		case 4:
			_ = f.WriteRawFrame(http2.FrameType(0x20+w.IntN(10)), 0, 0, make([]byte, w.IntN(20)))
		}
	})
}

// call is the frames of a request.
func (w *scribe) call(id uint32) [][]byte {
	methods := []string{"EmptyCall", "UnaryCall", "UnaryCall", "StreamingInputCall", "StreamingOutputCall", "FullDuplexCall", "UnimplementedCall", "Nothing"}
	method := methods[w.IntN(len(methods))]
	path := "/grpc.testing.TestService/" + method
	if w.IntN(12) == 0 {
		path = []string{"/no.such/Service", "nothing", "/", "/grpc.testing.TestService"}[w.IntN(4)]
	}
	fields := [][2]string{{":method", "POST"}, {":scheme", "http"}, {":path", path}, {":authority", "x"}, {"content-type", "application/grpc"}, {"te", "trailers"}}
	more := [][2]string{{"grpc-timeout", "100S"}, {initialKey, "hello"}, {trailingKey, "AP8"}, {"a", ""}, {"user-agent", "x/1"}, {"content-type", "application/grpc+proto"},
		{"grpc-timeout", "1x"}, {"b-bin", "!"}, {"grpc-encoding", "gzip"}, {"grpc-encoding", "zip"}, {"grpc-accept-encoding", "gzip"}, {"connection", "close"}, {"X", "y"}, {"te", "gzip"}, {"content-type", "text/html"}, {":method", "GET"}}
	for w.IntN(3) == 0 {
		f := more[w.IntN(len(more))]
		i := slices.IndexFunc(fields, func(g [2]string) bool { return g[0] == f[0] })
		if i < 0 {
			fields = append(fields, f)
		} else {
			fields[i] = f
		}
	}
	w.block.Reset()
	for _, f := range fields {
		_ = w.hpack.WriteField(hpack.HeaderField{Name: f[0], Value: f[1], Sensitive: w.IntN(5) == 0})
	}
	w.s.ended = append(w.s.ended, id)
	block, messages := bytes.Clone(w.block.Bytes()), w.messages(method)
	request := [][]byte{frames(func(f *http2.Framer) {
		cut := len(block)
		if w.IntN(4) == 0 {
			cut = w.IntN(len(block))
		}
		p := http2.HeadersFrameParam{StreamID: id, BlockFragment: block[:cut], EndHeaders: cut == len(block), PadLength: uint8(w.IntN(2) * w.IntN(20))}
		if w.IntN(6) == 0 {
			p.Priority = http2.PriorityParam{Weight: 2}
		}
		_ = f.WriteHeaders(p)
		if cut < len(block) {
			_ = f.WriteContinuation(id, true, block[cut:])
		}
	})}
	for len(messages) > 0 {
		n := 1 + w.IntN(len(messages))
		request = append(request, frames(func(f *http2.Framer) {
			_ = f.WriteDataPadded(id, n == len(messages) && w.IntN(5) > 0, messages[:n], make([]byte, w.IntN(2)*w.IntN(20)))
		}))
		messages = messages[n:]
	}
	if last := request[len(request)-1]; last[3] != 0 || last[4]&1 == 0 {
		request = append(request, frames(func(f *http2.Framer) { _ = f.WriteData(id, true, nil) }))
	}
	return request
}

// messages are the messages of a request, as they go over the wire.
func (w *scribe) messages(method string) (b []byte) {
	add := func(m proto.Message) {
		all, _ := proto.Marshal(m)
		b = append(binary.BigEndian.AppendUint32(append(b, 0), uint32(len(all))), all...)
	}
	echo := func() *grpc_testing.EchoStatus {
		if w.IntN(4) > 0 {
			return nil
		}
		return &grpc_testing.EchoStatus{Code: int32(w.IntN(20)), Message: "text % ☺ \n"}
	}
	sizes := func() (all []*grpc_testing.ResponseParameters) {
		for range w.IntN(4) {
			all = append(all, &grpc_testing.ResponseParameters{Size: w.Int32N(2000)})
		}
		return all
	}
	switch method {
	case "UnaryCall":
		add(&grpc_testing.SimpleRequest{ResponseSize: w.Int32N(20_000), Payload: body(w.IntN(500)), ResponseStatus: echo()})
	case "StreamingInputCall":
		for range w.IntN(4) {
			add(&grpc_testing.StreamingInputCallRequest{Payload: body(w.IntN(500))})
		}
	case "StreamingOutputCall":
		add(&grpc_testing.StreamingOutputCallRequest{ResponseParameters: sizes()})
	case "FullDuplexCall":
		for range w.IntN(4) {
			add(&grpc_testing.StreamingOutputCallRequest{ResponseParameters: sizes(), ResponseStatus: echo()})
		}
	default:
		add(&grpc_testing.Empty{})
	}
	return b
}

// spoil makes a script that isn't as the protocol has it, probably.
func (w *scribe) spoil() {
	s := &w.s
	i := w.IntN(len(s.frames))
	f := bytes.Clone(s.frames[i])
	switch w.IntN(6) {
	case 0:
		at := w.IntN(len(f))
		s.change = fmt.Sprintf("byte %d of frame %d (%x) is changed", at, i, f[:min(len(f), 12)])
		f[at] ^= 1 << w.IntN(8)
		s.frames[i] = f
	case 1:
		s.change = fmt.Sprintf("frame %d (%x) is missing", i, f[:min(len(f), 12)])
		s.frames = slices.Delete(s.frames, i, i+1)
	case 2:
		s.change = fmt.Sprintf("frame %d (%x) comes twice", i, f[:min(len(f), 12)])
		s.frames = slices.Insert(s.frames, i, f)
	default:
		payload := make([]byte, []int{0, 1, 4, 5, 6, 8, 9, 40}[w.IntN(8)])
		for j := range payload {
			payload[j] = byte(w.IntN(256)) * byte(w.IntN(2))
		}
		stream := []uint32{0, 1, 1, 3, 5, 2, 99}[w.IntN(7)]
		t, flags := http2.FrameType(w.IntN(11)), http2.Flags(w.IntN(256)*w.IntN(2))
		s.change = fmt.Sprintf("before frame %d comes %v, flags %x, stream %d, payload %x", i, t, flags, stream, payload)
		s.frames = slices.Insert(s.frames, i, frames(func(f *http2.Framer) { _ = f.WriteRawFrame(t, flags, stream, payload) }))
	}
}

// outcome is what a client sees.
type outcome struct {
	closed  bool
	code    http2.ErrCode // of a GOAWAY
	text    string
	streams map[uint32]*answer
}

type answer struct {
	fields []string // of headers and trailers
	data   int
	ended  bool
	reset  bool
	code   http2.ErrCode
}

func (a *answer) String() string {
	if a == nil {
		return "nothing"
	}
	if a.reset && !a.ended {
		return fmt.Sprintf("reset with %v", a.code)
	}
	return fmt.Sprintf("%v, %d bytes, ended: %v", a.fields, a.data, a.ended)
}

// play sends a script to a server and waits for its answers, for those that may not come only for
// a while.
func play(t *testing.T, addr string, s script, patience time.Duration) outcome {
	nc, err := net.Dial("tcp", addr)
	require.NoError(t, err)
	defer nc.Close()
	_, err = nc.Write(append([]byte(http2.ClientPreface), frames(func(f *http2.Framer) { _ = f.WriteSettings() })...))
	require.NoError(t, err)
	all := bytes.Join(s.frames, nil)
	_, _ = nc.Write(append(all, frames(func(f *http2.Framer) { _ = f.WritePing(false, [8]byte{'e', 'n', 'd'}) })...))
	f := http2.NewFramer(io.Discard, nc)
	f.ReadMetaHeaders = hpack.NewDecoder(4096, nil)
	o := outcome{streams: map[uint32]*answer{}, code: 255}
	pinged := false
	for {
		wait := 5 * patience
		if pinged {
			if !slices.ContainsFunc(s.ended, func(id uint32) bool { a := o.streams[id]; return a == nil || !a.ended && !a.reset }) {
				return o
			}
			wait = patience
		}
		_ = nc.SetReadDeadline(time.Now().Add(wait))
		got, err := f.ReadFrame()
		var ne net.Error
		if errors.As(err, &ne) && ne.Timeout() {
			return o
		}
		if err != nil {
			o.closed = true
			return o
		}
		pinged = pinged || got.Header().Type == http2.FramePing && got.Header().Flags.Has(http2.FlagPingAck) && got.(*http2.PingFrame).Data == [8]byte{'e', 'n', 'd'}
		o.add(got)
	}
}

func (o *outcome) add(f http2.Frame) {
	if g, ok := f.(*http2.GoAwayFrame); ok {
		o.code, o.text = g.ErrCode, string(g.DebugData())
		o.closed = true // soon
	}
	id := f.Header().StreamID
	if id == 0 {
		return
	}
	a := o.streams[id]
	if a == nil {
		a = &answer{}
		o.streams[id] = a
	}
	switch f := f.(type) {
	case *http2.MetaHeadersFrame:
		for _, h := range f.Fields {
			if h.Name == "grpc-message" && h.Value == "" {
				continue // grpc-go sends it, and no client can tell
			}
			a.fields = append(a.fields, h.Name+"="+h.Value)
		}
		slices.Sort(a.fields)
		a.ended = f.StreamEnded()
	case *http2.DataFrame:
		a.data += len(f.Data())
		a.ended = f.StreamEnded()
	case *http2.RSTStreamFrame:
		if !a.reset {
			a.reset, a.code = true, f.ErrCode
		}
	case *http2.WindowUpdateFrame:
		if len(a.fields) == 0 && !a.reset {
			delete(o.streams, id)
		}
	}
}

// stricter is what ends a connection here, by the word of RFC 9113, and not always there.
var stricter = map[string]string{
	"DATA of a stream that is idle":           "§5.1: any frame other than HEADERS or PRIORITY on an idle stream MUST be a connection error",
	"RST_STREAM of a stream that is idle":     "§5.1, likewise",
	"WINDOW_UPDATE of a stream that is idle":  "§5.1, likewise",
	"PUSH_PROMISE of a client":                "§8.4: servers MUST treat the receipt of a PUSH_PROMISE frame as a connection error",
	"a request's second headers don't end it": "§8.1.1: the request is malformed, a stream error; §5.4.1 as below",
	"HEADERS of a stream that is closed":      "§5.1.1: an unexpected stream identifier MUST be a connection error",
	"malformed HEADERS":                       "§5.1.1, of even identifiers; §6.2, of padding",
	"malformed DATA":                          "§6.1: padding of the length of the payload or more MUST be a connection error",
	"malformed PRIORITY":                      "§6.3: a length other than 5 is a stream error; §5.4.1",
	"a stream that depends on itself":         "RFC 7540 §5.3.1: a stream error; §5.4.1",
}

// differ says how two outcomes differ, or "". What is sent with a connection's end, and whether it
// is said why, is not compared (§5.4.1: an endpoint SHOULD send GOAWAY).
func differ(s script, own, theirs outcome) string {
	switch {
	case own.closed && theirs.closed:
		return ""
	case own.closed && stricter[own.text] != "":
		return ""
	case theirs.closed && own.faults():
		return "" // §5.4.1: an endpoint MAY choose to treat a stream error as a connection error
	case own.closed || theirs.closed:
		return fmt.Sprintf("closed %v with %v %s instead of %v with %v %s", own.closed, own.code, own.text, theirs.closed, theirs.code, theirs.text)
	}
	var all []string
	for id := uint32(1); id < 128; id++ {
		if a, b := own.streams[id], theirs.streams[id]; a.String() != b.String() && !s.resets(id) && !mayDiffer(a, b) {
			all = append(all, fmt.Sprintf("%d: %v instead of %v", id, a, b))
		}
	}
	return strings.Join(all, "; ")
}

// faults tells whether a stream has been reset for an error of the client.
func (o *outcome) faults() bool {
	for _, a := range o.streams {
		if a.reset && a.code != http2.ErrCodeNo {
			return true
		}
	}
	return false
}

func mayDiffer(own, theirs *answer) bool {
	failed := func(a *answer) bool {
		return a != nil && (slices.Contains(a.fields, "grpc-status=13") || slices.Contains(a.fields, "grpc-status=8"))
	}
	reset := func(a *answer, c http2.ErrCode) bool { return a != nil && a.reset && a.code == c }
	switch {
	case reset(own, http2.ErrCodeProtocol):
		return true // §8.1.1: a malformed request MUST be a stream error; grpc-go answers some
	case reset(own, http2.ErrCodeStreamClosed) || reset(theirs, http2.ErrCodeStreamClosed):
		return true // §5.1: frames on a closed stream, before or after its answer
	}
	return failed(own) && failed(theirs) // of a request that breaks two rules, either may be named
}

// The same frames, some of them spoilt, to this server and to grpc-go's: a client sees the same, but
// for differences that the protocol allows. How many pings are too many depends on what has been answered between them, which
// is a matter of time: they may all come here, and TestPingsAsGRPC compares it step by step.
func TestDifferential(t *testing.T) {
	own := newRig(t, h2.Options{PingInterval: 1, PingsWithoutStreams: true})
	theirs := serve(t, grpc.NewServer(grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: 1, PermitWithoutStream: true})))
	for seed := range uint64(*sequences) {
		s := newScript(seed)
		if slices.ContainsFunc(s.frames, func(f []byte) bool { return f[3] == 0x10 }) {
			continue // RFC 9218's PRIORITY_UPDATE is unknown here, and so ignored (§5.5); grpc-go checks it
		}
		d := ""
		for _, patience := range []time.Duration{5 * time.Millisecond, 50 * time.Millisecond, time.Second, 10 * time.Second} {
			if d = differ(s, play(t, own.addr, s, patience), play(t, theirs.addr, s, patience)); d == "" {
				break
			}
		}
		if d != "" {
			t.Errorf("seed %d: %s: %s", seed, s.change, d)
		}
	}
}

// The ping that is one too many is the same for both servers, whatever is sent between pings: each step waits for its answer.
func TestPingsAsGRPC(t *testing.T) {
	for name, c := range map[string]struct {
		own    h2.Options
		theirs keepalive.EnforcementPolicy
	}{
		"without streams none": {h2.Options{}, keepalive.EnforcementPolicy{}},
		"seldom":               {h2.Options{PingInterval: time.Hour, PingsWithoutStreams: true}, keepalive.EnforcementPolicy{MinTime: time.Hour, PermitWithoutStream: true}},
		"seldom, with streams": {h2.Options{PingInterval: time.Hour}, keepalive.EnforcementPolicy{MinTime: time.Hour}},
		"with streams any":     {h2.Options{PingInterval: 1}, keepalive.EnforcementPolicy{MinTime: 1}},
		"any":                  {h2.Options{PingInterval: 1, PingsWithoutStreams: true}, keepalive.EnforcementPolicy{MinTime: 1, PermitWithoutStream: true}},
	} {
		t.Run(name, func(t *testing.T) {
			own, theirs := newRig(t, c.own), serve(t, grpc.NewServer(grpc.KeepaliveEnforcementPolicy(c.theirs)))
			for seed := range uint64(60) {
				r := rand.New(rand.NewPCG(seed, 2))
				steps := make([]byte, 20)
				for i := range steps {
					steps[i] = "ppppppcs"[r.IntN(8)]
				}
				require.Equal(t, endsAt(t, theirs.addr, steps), endsAt(t, own.addr, steps), "%s", steps)
			}
		})
	}
}

// endsAt takes steps, pings (p), calls (c) and streams that stay open (s), and returns with which of them the server ends the connection.
func endsAt(t *testing.T, addr string, steps []byte) int {
	w := dialWire(t, addr)
	defer w.Conn.Close()
	_ = w.SetReadDeadline(time.Now().Add(time.Minute))
	confirmed := -1 // of the settings that follow each step, and of the first
	for i, step := range steps {
		id := uint32(2*i + 1)
		switch step {
		case 'p':
			_ = w.WritePing(false, [8]byte{})
		case 'c':
			w.begin(id, "EmptyCall")
			_ = w.WriteData(id, true, make([]byte, 5))
		case 's':
			w.begin(id, "FullDuplexCall")
			_ = w.WriteData(id, false, streamed)
		}
		_ = w.WriteSettings()
		for answered := step == 'p'; !answered || confirmed <= i; {
			f, err := w.ReadFrame()
			require.NoError(t, err)
			switch f := f.(type) {
			case *http2.GoAwayFrame:
				require.Equal(t, "too_many_pings", string(f.DebugData()))
				return i
			case *http2.SettingsFrame:
				if f.IsAck() {
					confirmed++
				}
			case *http2.HeadersFrame:
				answered = answered || f.StreamID == id && f.StreamEnded()
			case *http2.DataFrame:
				answered = answered || f.StreamID == id && step == 's'
			}
		}
	}
	return len(steps)
}

// streamed is a message that is answered by one of 100 bytes.
var streamed = func() []byte {
	m, _ := proto.Marshal(&grpc_testing.StreamingOutputCallRequest{ResponseParameters: []*grpc_testing.ResponseParameters{{Size: 100}}})
	return append([]byte{0, 0, 0, 0, byte(len(m))}, m...)
}()

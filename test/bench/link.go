package main

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

// link is one connection that speaks just as much HTTP/2 and gRPC as bidirectional
// streams need. Unlike a unary call's, what goes through a stream is more than its
// window, so what may not be sent yet waits here.
type link struct {
	conn    net.Conn
	framer  *http2.Framer
	out     *bufio.Writer
	in      *bufio.Reader
	encode  *hpack.Encoder
	block   bytes.Buffer
	decode  *hpack.Decoder
	status  string // grpc-status of the block that is being decoded
	note    string // grpc-message
	next    uint32 // id of the next stream
	streams map[uint32]*stream
	window  int // what may be sent on the connection
	initial int // window of a new stream
	unread  int // received bytes not yet returned to the server's window
}

// stream is one bidirectional call.
type stream struct {
	id      uint32
	window  int
	waiting []byte // what the windows don't allow to be sent yet
	in      []byte // received, and not taken
	unread  int
	ended   error // why, once the server has ended it
	refused bool  // it ended with ResourceExhausted
	last    bool  // nothing is sent behind what is sent or waits: a unary call's
}

// resourceExhausted is gRPC's code of a refusal for want of room, as headers have it.
const resourceExhausted = "8"

// errEnded is the end of a stream that the server ended without complaint.
var errEnded = errors.New("the server ended the stream")

const maxFrame = 16 << 10 // that every server takes

func openLink(address string) (*link, error) {
	conn, err := net.DialTimeout("tcp", address, 5*time.Second)
	if err != nil {
		return nil, fmt.Errorf("connecting to %s: %w", address, err)
	}
	l := &link{conn: conn, in: bufio.NewReaderSize(conn, 64<<10), out: bufio.NewWriterSize(conn, 64<<10),
		next: 1, streams: map[uint32]*stream{}, window: 65535, initial: 65535}
	l.framer = http2.NewFramer(l.out, l.in)
	l.framer.SetReuseFrames()
	l.encode = hpack.NewEncoder(&l.block)
	l.decode = hpack.NewDecoder(4096, func(f hpack.HeaderField) {
		switch f.Name {
		case "grpc-status":
			l.status = f.Value
		case "grpc-message":
			l.note = f.Value
		}
	})
	_, err = l.out.WriteString(http2.ClientPreface)
	err = errors.Join(err,
		l.framer.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: streamWindow}),
		l.framer.WriteWindowUpdate(0, connWindow-65535))
	if err != nil {
		conn.Close()
		return nil, fmt.Errorf("greeting %s: %w", address, err)
	}
	return l, nil
}

func (l *link) close() { l.conn.Close() }

// call sends a unary call's request, sealed. The stream ends with the answer.
func (l *link) call(path string, sealed []byte) (*stream, error) {
	s, err := l.open(path)
	if err != nil {
		return nil, err
	}
	s.last = true
	return s, l.send(s, sealed)
}

// open begins a stream.
func (l *link) open(path string, metadata ...hpack.HeaderField) (*stream, error) {
	l.block.Reset()
	for _, f := range append([]hpack.HeaderField{
		{Name: ":method", Value: "POST"}, {Name: ":scheme", Value: "http"}, {Name: ":path", Value: path},
		{Name: ":authority", Value: "bench"}, {Name: "content-type", Value: "application/grpc"}, {Name: "te", Value: "trailers"},
	}, metadata...) {
		if err := l.encode.WriteField(f); err != nil {
			return nil, err
		}
	}
	s := &stream{id: l.next, window: l.initial}
	l.next += 2
	l.streams[s.id] = s
	return s, l.framer.WriteHeaders(http2.HeadersFrameParam{StreamID: s.id, BlockFragment: l.block.Bytes(), EndHeaders: true})
}

// prefix is what stands before a message.
const prefix = 5

// seal completes a message whose first bytes were left free for the prefix.
func seal(message []byte) []byte {
	message[0] = 0
	binary.BigEndian.PutUint32(message[1:prefix], uint32(len(message)-prefix))
	return message
}

// send sends sealed messages, as far as the windows allow it now.
func (l *link) send(s *stream, sealed []byte) error {
	if s.ended != nil {
		return s.ended
	}
	if len(s.waiting) > 0 {
		s.waiting = append(s.waiting, sealed...)
		return nil
	}
	sent, err := l.some(s, sealed)
	s.waiting = append(s.waiting, sealed[sent:]...)
	return err
}

// some sends what the windows allow of all that a stream has to send.
func (l *link) some(s *stream, b []byte) (sent int, err error) {
	for {
		n := min(len(b)-sent, s.window, l.window, maxFrame)
		if n <= 0 {
			return sent, nil
		}
		if err := l.framer.WriteData(s.id, s.last && sent+n == len(b), b[sent:sent+n]); err != nil {
			return sent, err
		}
		sent += n
		s.window -= n
		l.window -= n
	}
}

// more sends what has waited for windows.
func (l *link) more(s *stream) error {
	if len(s.waiting) == 0 || s.ended != nil {
		return nil
	}
	sent, err := l.some(s, s.waiting)
	s.waiting = append(s.waiting[:0], s.waiting[sent:]...)
	return err
}

func (l *link) flush() error { return l.out.Flush() }

// pending tells whether a whole frame's head is there to be read without waiting.
func (l *link) pending() bool { return l.in.Buffered() >= 9 }

// await waits until there is something to read, at most until the given time.
func (l *link) await(until time.Time) (bool, error) { return await(l.conn, l.in, 9, until) }

// await peeks, so that nothing is lost at the timeout.
func await(conn net.Conn, in *bufio.Reader, head int, until time.Time) (bool, error) {
	if err := conn.SetReadDeadline(until); err != nil {
		return false, err
	}
	_, err := in.Peek(head)
	if err := conn.SetReadDeadline(time.Time{}); err != nil {
		return false, err
	}
	if errors.Is(err, os.ErrDeadlineExceeded) {
		return false, nil
	}
	return err == nil, err
}

// receive reads one frame and returns the stream that got something: data, or its end.
func (l *link) receive() (*stream, error) {
	frame, err := l.framer.ReadFrame()
	if err != nil {
		return nil, err
	}
	switch f := frame.(type) {
	case *http2.DataFrame:
		s := l.streams[f.StreamID]
		if s == nil {
			return nil, nil
		}
		s.in = append(s.in, f.Data()...)
		return s, l.account(s, int(f.Length))
	case *http2.HeadersFrame:
		return l.headers(f)
	case *http2.WindowUpdateFrame:
		return nil, l.opened(f)
	case *http2.SettingsFrame:
		return nil, l.settings(f)
	case *http2.PingFrame:
		if !f.IsAck() {
			return nil, errors.Join(l.framer.WritePing(true, f.Data), l.flush())
		}
	case *http2.RSTStreamFrame:
		if s := l.streams[f.StreamID]; s != nil {
			s.ended = fmt.Errorf("the server broke stream %d off: %v", f.StreamID, f.ErrCode)
			delete(l.streams, s.id)
			return s, nil
		}
	case *http2.GoAwayFrame:
		return nil, fmt.Errorf("the server sends away: %v %s", f.ErrCode, f.DebugData())
	}
	return nil, nil
}

// account gives the server its windows back.
func (l *link) account(s *stream, n int) error {
	l.unread += n
	s.unread += n
	if s.unread > streamWindow/4 {
		if err := l.framer.WriteWindowUpdate(s.id, uint32(s.unread)); err != nil {
			return err
		}
		s.unread = 0
	}
	if l.unread > connWindow/4 {
		if err := l.framer.WriteWindowUpdate(0, uint32(l.unread)); err != nil {
			return err
		}
		l.unread = 0
	}
	return nil
}

// headers are a stream's first or last.
func (l *link) headers(f *http2.HeadersFrame) (*stream, error) {
	l.status, l.note = "", ""
	if _, err := l.decode.Write(f.HeaderBlockFragment()); err != nil {
		return nil, err
	}
	if err := l.decode.Close(); err != nil {
		return nil, err
	}
	s := l.streams[f.StreamID]
	if s == nil || !f.StreamEnded() {
		return nil, nil
	}
	delete(l.streams, s.id)
	s.ended = errEnded
	if l.status != "0" {
		s.refused = l.status == resourceExhausted
		s.ended = fmt.Errorf("%w with gRPC status %s %s", errEnded, l.status, l.note)
	}
	return s, nil
}

func (l *link) opened(f *http2.WindowUpdateFrame) error {
	if f.StreamID == 0 {
		l.window += int(f.Increment)
		for _, s := range l.streams {
			if err := l.more(s); err != nil {
				return err
			}
		}
		return nil
	}
	if s := l.streams[f.StreamID]; s != nil {
		s.window += int(f.Increment)
		return l.more(s)
	}
	return nil
}

func (l *link) settings(f *http2.SettingsFrame) error {
	if f.IsAck() {
		return nil
	}
	if v, ok := f.Value(http2.SettingInitialWindowSize); ok {
		for _, s := range l.streams {
			s.window += int(v) - l.initial
			if err := l.more(s); err != nil {
				return err
			}
		}
		l.initial = int(v)
	}
	return errors.Join(l.framer.WriteSettingsAck(), l.flush())
}

// take hands over the messages that a stream has got whole, one by one. They are
// good until the next receive.
func (s *stream) take(message func([]byte) error) error {
	rest := s.in
	for len(rest) >= prefix {
		n := int(binary.BigEndian.Uint32(rest[1:prefix]))
		if len(rest) < prefix+n {
			break
		}
		if rest[0] != 0 {
			return errors.New("an unrequested compressed message")
		}
		if err := message(rest[prefix : prefix+n]); err != nil {
			return err
		}
		rest = rest[prefix+n:]
	}
	s.in = append(s.in[:0], rest...)
	if s.ended != nil && len(s.in) > 0 {
		return io.ErrUnexpectedEOF
	}
	return nil
}

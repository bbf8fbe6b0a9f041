package main

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"sync/atomic"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

// wire is one connection that speaks just as much HTTP/2 and gRPC as unary calls
// need. One goroutine runs all of its clients: it reads what has come, starts the next
// call of each client whose answer was in it, and writes those calls at once. That
// costs a fraction of what a gRPC client does for each call, and leaves the cores to
// the servers.
type wire struct {
	conn   net.Conn
	framer *http2.Framer
	out    *bufio.Writer
	in     *bufio.Reader
	header []byte // the encoded headers of a call, once both sides' tables hold them
	decode *hpack.Decoder
	status string // grpc-status of the block that is being decoded
	note   string // grpc-message
	stream uint32 // the next call's
	open   map[uint32]*call
	failed *atomic.Int64 // the load's, if it counts answers that are errors
	unread int           // received bytes not yet returned to the server's window
}

// call is one request on its way.
type call struct {
	client int
	begin  time.Time
	bytes  int
	status string
}

const (
	connWindow   = 1 << 30
	streamWindow = 16 << 20
)

func openWire(address, path, token string, buffer int) (*wire, error) {
	conn, err := net.DialTimeout("tcp", address, 5*time.Second)
	if err != nil {
		return nil, fmt.Errorf("connecting to %s: %w", address, err)
	}
	w := &wire{conn: conn, in: bufio.NewReaderSize(conn, buffer), out: bufio.NewWriterSize(conn, buffer), stream: 1, open: map[uint32]*call{}}
	w.framer = http2.NewFramer(w.out, w.in)
	w.framer.SetReuseFrames()
	w.decode = hpack.NewDecoder(4096, func(f hpack.HeaderField) {
		switch f.Name {
		case "grpc-status":
			w.status = f.Value
		case "grpc-message":
			w.note = f.Value
		}
	})
	if err := w.greet(address, path, token); err != nil {
		conn.Close()
		return nil, fmt.Errorf("greeting %s: %w", address, err)
	}
	return w, nil
}

// greet opens the connection and makes one empty call: afterwards the server's table
// knows the headers, and each further call carries but their indexes.
func (w *wire) greet(address, path, token string) error {
	if _, err := w.out.WriteString(http2.ClientPreface); err != nil {
		return err
	}
	err := errors.Join(
		w.framer.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: streamWindow}),
		w.framer.WriteWindowUpdate(0, connWindow-65535))
	if err != nil {
		return err
	}
	var block bytes.Buffer
	enc := hpack.NewEncoder(&block)
	fields := []hpack.HeaderField{
		{Name: ":method", Value: "POST"}, {Name: ":scheme", Value: "http"}, {Name: ":path", Value: path},
		{Name: ":authority", Value: address}, {Name: "content-type", Value: "application/grpc"}, {Name: "te", Value: "trailers"},
	}
	if token != "" {
		fields = append(fields, hpack.HeaderField{Name: rpctypes.TokenFieldNameGRPC, Value: token})
	}
	for range 2 {
		block.Reset()
		for _, f := range fields {
			if err := enc.WriteField(f); err != nil {
				return err
			}
		}
		if w.header == nil {
			w.header = bytes.Clone(block.Bytes())
			w.start(&call{client: -1}, nil)
			if err := w.out.Flush(); err != nil {
				return err
			}
			for len(w.open) > 0 { // the answer to a request without a key doesn't matter
				if _, err := w.next(); err != nil {
					return err
				}
			}
		}
	}
	w.header = bytes.Clone(block.Bytes())
	return nil
}

// start writes a call into the buffer.
func (w *wire) start(c *call, message []byte) error {
	id := w.stream
	w.stream += 2
	w.open[id] = c
	var prefix [5]byte
	binary.BigEndian.PutUint32(prefix[1:], uint32(len(message)))
	err := w.framer.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: w.header, EndHeaders: true})
	if err != nil {
		return err
	}
	return w.framer.WriteData(id, true, append(prefix[:], message...))
}

// next reads one frame and returns the call that it ended, if it did.
func (w *wire) next() (*call, error) {
	frame, err := w.framer.ReadFrame()
	if err != nil {
		return nil, err
	}
	switch f := frame.(type) {
	case *http2.DataFrame:
		if c := w.open[f.StreamID]; c != nil {
			c.bytes += len(f.Data())
		}
		if w.unread += int(f.Length); w.unread > connWindow/4 {
			err := w.framer.WriteWindowUpdate(0, uint32(w.unread))
			w.unread = 0
			return nil, err
		}
	case *http2.HeadersFrame:
		w.status, w.note = "", ""
		if _, err := w.decode.Write(f.HeaderBlockFragment()); err != nil {
			return nil, err
		}
		if err := w.decode.Close(); err != nil {
			return nil, err
		}
		if !f.StreamEnded() {
			return nil, nil
		}
		c := w.open[f.StreamID]
		delete(w.open, f.StreamID)
		if c != nil && w.status != "0" {
			c.status = w.status + " " + w.note
		}
		return c, nil
	case *http2.SettingsFrame:
		if !f.IsAck() {
			return nil, errors.Join(w.framer.WriteSettingsAck(), w.out.Flush())
		}
	case *http2.PingFrame:
		if !f.IsAck() {
			return nil, w.framer.WritePing(true, f.Data)
		}
	case *http2.RSTStreamFrame:
		if w.open[f.StreamID] == nil {
			return nil, nil // answered before the server had seen that the request was whole
		}
		return nil, fmt.Errorf("the server broke call %d off: %v", f.StreamID, f.ErrCode)
	case *http2.GoAwayFrame:
		return nil, fmt.Errorf("the server sends away: %v %s", f.ErrCode, f.DebugData())
	}
	return nil, nil
}

// pending tells whether a whole frame's head is there to be read without waiting.
func (w *wire) pending() bool { return w.in.Buffered() >= 9 }

// drive runs the given clients until stop says so: message gives a client its next
// request, done takes the answer.
func (w *wire) drive(clients []int, message func(client int) []byte, done func(*call), stop func() bool) error {
	for _, c := range clients {
		if err := w.start(&call{client: c, begin: time.Now()}, message(c)); err != nil {
			return err
		}
	}
	for len(w.open) > 0 {
		if !w.pending() {
			if err := w.out.Flush(); err != nil {
				return err
			}
		}
		c, err := w.next()
		if err != nil {
			if errors.Is(err, io.EOF) && stop() {
				return nil
			}
			return err
		}
		if c == nil {
			continue
		}
		if c.status != "" {
			return fmt.Errorf("answered with gRPC status %s", c.status)
		}
		done(c)
		if stop() {
			continue
		}
		c.begin, c.bytes = time.Now(), 0
		if err := w.start(c, message(c.client)); err != nil {
			return err
		}
	}
	return w.out.Flush()
}

package h2

import (
	"context"
	"encoding/binary"
	"io"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/status"
)

// message is one that has arrived.
type message struct {
	data       mem.Buffer
	compressed bool
	held       int64 // bytes of the stream's window that it takes until it is read
}

// incoming is what a stream has received. Guarded by conn.mu.
type incoming struct {
	prefix    [5]byte
	have      int    // bytes of prefix
	part      []byte // of a message that isn't complete
	ready     []message
	arrival   arrival
	abandoned bool // the client has cancelled the call while the handler runs
	many      bool // more than freeParts calls of the connection wait for their messages
	lasts     bool // the room for its headers is that of streams
	unsent    bool // it counts for conn.unsents,
	homeless  bool // and for conn.homeless
}

func (in *incoming) take() (message, bool) {
	if len(in.ready) == 0 {
		return message{}, false
	}
	in.arrival.release()
	m := in.ready[0]
	in.ready[0] = message{}
	in.ready = in.ready[1:]
	return m, true
}

// length is that of the message that has begun to arrive.
func (in *incoming) length() int { return int(binary.BigEndian.Uint32(in.prefix[1:])) }

// add takes bytes of a stream and returns how many needn't be held: those of a message that
// isn't complete, which has to become so whatever the window is. The error is a gRPC status.
func (in *incoming) add(b []byte, o *Options) (free int64, err error) {
	for len(b) > 0 {
		held := 0
		if in.have < len(in.prefix) {
			n := copy(in.prefix[in.have:], b)
			in.have += n
			b = b[n:]
			held += n
			if in.have < len(in.prefix) {
				return free + int64(held), nil
			}
			if n := in.length(); n > o.MaxRecvMessage {
				return free, status.Errorf(codes.ResourceExhausted, "grpc: received message larger than max (%d vs. %d)", n, o.MaxRecvMessage)
			}
			if in.prefix[0] > 1 {
				return free, status.Errorf(codes.Internal, "grpc: received unexpected payload format %d", in.prefix[0])
			}
			if n := in.length(); n > len(b) {
				if err := in.arrival.admit(n, in.many); err != nil {
					return free, err
				}
			}
		}
		n := min(in.length()-len(in.part), len(b))
		held += n
		if len(in.part)+n < in.length() {
			if in.part == nil && in.arrival.held > 0 {
				in.part = make([]byte, 0, in.length())
			}
			in.part = append(in.part, b[:n]...)
			return free + int64(held), nil
		}
		in.complete(b[:n], int64(held), o.BufferPool)
		b = b[n:]
	}
	return free, nil
}

// complete adds the last bytes of a message.
func (in *incoming) complete(b []byte, held int64, pool mem.BufferPool) {
	m := message{compressed: in.prefix[0] == 1, held: held}
	switch {
	case len(in.part) > 0:
		m.data = mem.SliceBuffer(append(in.part, b...))
	case mem.IsBelowBufferPoolingThreshold(len(b)):
		m.data = mem.SliceBuffer(append([]byte(nil), b...))
	default:
		buf := pool.Get(len(b))
		copy(*buf, b)
		m.data = mem.NewBuffer(buf, pool)
	}
	in.ready = append(in.ready, m)
	in.part, in.have = nil, 0
}

// data takes a DATA frame.
func (c *conn) data(f frame) error {
	payload, ok := f.unpadded()
	if f.stream == 0 || !ok {
		return fatal(protocolError, "malformed DATA")
	}
	n := int64(len(f.payload))
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.recvWindow -= n; c.recvWindow < 0 {
		return fatal(flowControl, "more DATA than the connection's window allows")
	}
	if c.unacked += n; c.unacked >= int64(c.s.o.ConnWindow)/4 {
		c.out = appendWindow(c.out, 0, uint32(c.unacked))
		c.recvWindow += c.unacked
		c.unacked = 0
	}
	st := c.streams[f.stream]
	switch {
	case st == nil && f.stream > c.lastID || f.stream%2 == 0:
		return fatal(protocolError, "DATA of a stream that is idle")
	case st == nil:
		return c.strayData(f)
	case st.remoteEnded:
		return c.fault(st, streamClosed)
	}
	if st.recvWindow -= n; st.recvWindow < 0 {
		return c.fault(st, flowControl)
	}
	if len(payload) == 0 && !f.has(flagEndStream) {
		c.consumed(st, n)
		return c.budget.spend(1)
	}
	c.received(st, payload, n-int64(len(payload)), f.has(flagEndStream))
	return nil
}

// strayData answers DATA of a stream that is closed. Such may be on its way when a call ends, as
// much as the windows of calls allowed that this side has ended; only a client that doesn't know the
// protocol goes on for long. With mu held.
func (c *conn) strayData(f frame) error {
	if n := max(int64(len(f.payload)), leastStray); len(f.payload) > 0 && n <= c.straying {
		c.straying -= n
		return nil
	}
	c.out = appendReset(c.out, f.stream, streamClosed)
	return c.budget.spend(1)
}

// received adds the payload of a DATA frame to its stream. With mu held.
func (c *conn) received(st *stream, payload []byte, free int64, last bool) {
	if st.failure == nil {
		var err error
		st.in.many = c.begun > freeParts
		n, err := st.in.add(payload, &c.s.o)
		free += n
		if err == nil && !last && len(st.in.ready) > 0 && st.in.arrival.held == 0 {
			err = st.in.arrival.admit(st.in.ready[0].data.Len(), st.in.many) // it waits for the end of its call
		}
		if st.failure = err; err == nil && len(st.in.ready) > 1 && !st.req.method.info.IsClientStream {
			st.failure = status.Error(codes.Internal, "cardinality violation: received multiple request messages for non-client-streaming RPC")
		}
	} else {
		free += int64(len(payload))
	}
	c.watch(st)
	if !last {
		c.consumed(st, free)
	} else {
		c.ended(st)
	}
	if st.req.method.unary == nil {
		st.wake()
	} else if !st.started && (st.failure != nil || last) {
		st.started = true
		c.start(st)
		if st.failure == nil {
			st.failure = c.lasts(st)
		}
		if st.small() {
			c.inline = st
		} else {
			go st.runUnary()
		}
	}
}

// ended notes the end of a client's messages. With mu held.
func (c *conn) ended(st *stream) {
	st.remoteEnded = true
	switch {
	case st.failure != nil:
	case st.in.have > 0:
		st.failure = status.Error(codes.Internal, io.ErrUnexpectedEOF.Error())
	case len(st.in.ready) == 0 && !st.req.method.info.IsClientStream:
		st.failure = status.Error(codes.Internal, "cardinality violation: received no request message from non-client-streaming RPC")
	}
}

// consumed gives a stream's window back. With mu held.
func (c *conn) consumed(st *stream, n int64) {
	st.unacked += n
	if st.unacked < int64(c.s.o.StreamWindow)/4 || st.remoteEnded || st.closed {
		return
	}
	c.out = appendWindow(c.out, st.id, uint32(st.unacked))
	st.recvWindow += st.unacked
	st.unacked = 0
	c.flush()
}

// reset ends a stream with RST_STREAM. With mu held.
func (c *conn) reset(st *stream, code errorCode) {
	c.out = appendReset(c.out, st.id, code)
	c.abandon(st)
}

// abandon removes a stream that the client won't hear of. With mu held.
func (c *conn) abandon(st *stream) {
	if st.started && !st.in.abandoned {
		st.in.abandoned = true
		c.abandoned++
	}
	c.remove(st)
	st.cancel(context.Canceled)
}

package h2

import (
	"context"
	"io"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
)

// stream is a call. It is the context of its handler (cheaper than one of package context, and
// than the values for peer and metadata: these are shared by all calls of a connection with the
// same headers), grpc's ServerTransportStream, and the ServerStream of a streaming handler.
type stream struct {
	c    *conn
	id   uint32
	req  *request
	base context.Context // peer and metadata

	// Guarded by conn.mu.
	in          incoming
	out         outgoing
	trailers    []byte // to be sent behind out
	sendWindow  int64
	recvWindow  int64
	unacked     int64
	remoteEnded bool // the client has sent all
	closed      bool // it isn't in conn.streams
	turn        turn // in conn.blocked
	begun       bool // it counts for conn.begun
	started     bool // its handler runs
	headersSent bool
	header      metadata.MD
	trailer     metadata.MD
	failure     error         // instead of a message
	mayRecv     chan struct{} // of streaming calls: look again
	maySend     chan struct{}

	onReader bool // the reader runs the handler, whose goroutine alone uses this
	life     life
}

// life is the context's part of a stream.
type life struct {
	mu       sync.Mutex
	err      error
	done     chan struct{} // made when it is asked for
	after    map[*func()]struct{}
	deadline time.Time
	timer    *time.Timer
	later    *later // nil: the handler answers by returning
}

// streamKey is what grpc-go looks its ServerTransportStream up by.
var streamKey = func() any {
	var p probe
	grpc.ServerTransportStreamFromContext(&p)
	return p.key
}()

type probe struct {
	context.Context
	key any
}

func (p *probe) Value(key any) any {
	p.key = key
	return nil
}

// Deadline implements context.Context.
func (st *stream) Deadline() (time.Time, bool) {
	return st.life.deadline, !st.life.deadline.IsZero()
}

// Done implements context.Context.
func (st *stream) Done() <-chan struct{} {
	l := &st.life
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.done == nil {
		l.done = make(chan struct{})
		if l.err != nil {
			close(l.done)
		}
	}
	return l.done
}

// Err implements context.Context.
func (st *stream) Err() error {
	st.life.mu.Lock()
	defer st.life.mu.Unlock()
	return st.life.err
}

// Value implements context.Context.
func (st *stream) Value(key any) any {
	switch key {
	case streamKey:
		return transport{st}
	case inlineKey{}:
		return st
	}
	return st.base.Value(key)
}

// AfterFunc is what package context asks of contexts that aren't its own, to save a goroutine
// for each context that is derived from one.
func (st *stream) AfterFunc(f func()) (stop func() bool) {
	l := &st.life
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.err != nil {
		go f()
		return func() bool { return false }
	}
	if l.after == nil {
		l.after = map[*func()]struct{}{}
	}
	l.after[&f] = struct{}{}
	return func() bool {
		l.mu.Lock()
		defer l.mu.Unlock()
		_, waiting := l.after[&f]
		delete(l.after, &f)
		return waiting
	}
}

// expireAt sets the deadline.
func (st *stream) expireAt(t time.Time) {
	l := &st.life
	l.mu.Lock()
	defer l.mu.Unlock()
	l.deadline = t
	l.timer = time.AfterFunc(time.Until(t), st.expire)
}

// expire ends a call whose deadline has passed: its handler answers, if there is one.
func (st *stream) expire() {
	st.cancel(context.DeadlineExceeded)
	c := st.c
	c.mu.Lock()
	defer c.mu.Unlock()
	if !st.closed && !st.started {
		c.reset(st, cancelled)
		c.flush()
	}
	st.wake()
}

// cancel ends the context.
func (st *stream) cancel(err error) {
	l := &st.life
	l.mu.Lock()
	if l.err != nil {
		l.mu.Unlock()
		return
	}
	l.err = err
	if l.done != nil {
		close(l.done)
	}
	if l.timer != nil {
		l.timer.Stop()
	}
	if l.later != nil {
		st.answerWith(nil, err)
	}
	after := l.after
	l.after = nil
	l.mu.Unlock()
	for f := range after {
		go (*f)()
	}
}

// wake makes handlers that wait look again. With conn.mu held.
func (st *stream) wake() {
	for _, may := range [...]chan struct{}{st.mayRecv, st.maySend} {
		select {
		case may <- struct{}{}:
		default: // it will look anyway, or the call is unary
		}
	}
}

// wait waits for wake, without conn.mu, which is held before and after.
func (st *stream) wait(may <-chan struct{}) error {
	st.c.mu.Unlock()
	var err error
	select {
	case <-may:
	case <-st.Done():
		err = status.FromContextError(st.Err()).Err()
	}
	st.c.mu.Lock()
	return err
}

// Method implements grpc.ServerTransportStream.
func (st *stream) Method() string { return st.req.path }

// Context implements grpc.ServerStream.
func (st *stream) Context() context.Context { return st }

var errHeaderSent = status.Error(codes.Internal, "transport: SendHeader called multiple times")

// SetHeader implements grpc.ServerStream.
func (st *stream) SetHeader(md metadata.MD) error {
	if md.Len() == 0 {
		return nil
	}
	st.c.mu.Lock()
	defer st.c.mu.Unlock()
	if st.headersSent || st.closed {
		return errHeaderSent
	}
	st.header = metadata.Join(st.header, md)
	return nil
}

// SendHeader implements grpc.ServerStream.
func (st *stream) SendHeader(md metadata.MD) error {
	if err := st.SetHeader(md); err != nil {
		return err
	}
	st.c.mu.Lock()
	defer st.c.mu.Unlock()
	if st.headersSent || st.closed {
		return errHeaderSent
	}
	st.begin()
	st.c.flush()
	return nil
}

// SetTrailer implements grpc.ServerStream.
func (st *stream) SetTrailer(md metadata.MD) {
	if md.Len() == 0 {
		return
	}
	st.c.mu.Lock()
	defer st.c.mu.Unlock()
	st.trailer = metadata.Join(st.trailer, md)
}

// transport is a stream as grpc.ServerTransportStream, whose SetTrailer returns an error.
type transport struct{ *stream }

func (t transport) SetTrailer(md metadata.MD) error {
	t.stream.SetTrailer(md)
	return nil
}

// RecvMsg implements grpc.ServerStream.
func (st *stream) RecvMsg(m any) error {
	c := st.c
	c.mu.Lock()
	for {
		if msg, ok := st.next(); ok {
			c.consumed(st, msg.held)
			c.mu.Unlock()
			return st.decode(msg, m)
		}
		switch {
		case st.failure != nil:
			err := st.failure
			c.mu.Unlock()
			return err
		case st.closed:
			c.mu.Unlock()
			if err := st.Err(); err != nil {
				return status.FromContextError(err).Err()
			}
			return status.Error(codes.Canceled, "the call has ended")
		case st.remoteEnded:
			c.mu.Unlock()
			return io.EOF
		}
		if err := st.wait(st.mayRecv); err != nil {
			c.mu.Unlock()
			return err
		}
	}
}

// next takes a message. If there may be one only, it is known to be so when the client has ended
// its side. With conn.mu held.
func (st *stream) next() (message, bool) {
	if !st.req.method.info.IsClientStream && (!st.remoteEnded || st.failure != nil) {
		return message{}, false
	}
	return st.in.take()
}

// SendMsg implements grpc.ServerStream. It returns when the message is on its way.
func (st *stream) SendMsg(m any) error {
	data, compressed, err := st.encode(m)
	if err != nil {
		return err
	}
	c := st.c
	c.mu.Lock()
	defer c.mu.Unlock()
	if st.closed {
		data.Free()
		return status.Error(codes.Canceled, "the call has ended")
	}
	c.put(st, compressed, data)
	c.flush()
	for st.out.left > 0 && !st.closed {
		if err := st.wait(st.maySend); err != nil {
			return err
		}
	}
	if st.closed {
		return status.Error(codes.Canceled, "the call has ended")
	}
	return nil
}

// run calls the handler of a stream, on a goroutine of its own.
func (st *stream) run() {
	var err error
	m := st.req.method
	if h := st.c.s.o.Stream; h != nil {
		err = h(m.impl, st, &m.info, m.stream)
	} else {
		err = m.stream(m.impl, st)
	}
	st.finish(err)
}

// runUnary calls the handler of a unary call: on a goroutine of its own, or on the reader's.
func (st *stream) runUnary() {
	m := st.req.method
	resp, err := m.unary(m.impl, st, st.decodeRequest, st.c.s.o.Unary)
	if st.life.later == nil {
		st.answer(resp, err)
	}
}

// answer ends a unary call.
func (st *stream) answer(resp any, err error) {
	if err != nil {
		st.finish(err)
		return
	}
	data, compressed, err := st.encode(resp)
	if err != nil {
		st.finish(err)
		return
	}
	c := st.c
	c.mu.Lock()
	if st.closed {
		data.Free()
	} else {
		st.begin()
		st.trailers = st.trailersOf(nil)
		c.put(st, compressed, data)
		c.unsent(st)
	}
	st.returned()
}

// finish ends a call with the error of its handler.
func (st *stream) finish(err error) {
	s, ok := status.FromError(err)
	if !ok {
		s = status.FromContextError(err)
	}
	c := st.c
	c.mu.Lock()
	if !st.closed {
		if st.out.left > 0 && err != nil { // the handler has given up waiting for the client
			c.reset(st, cancelled)
		} else {
			st.trailers = st.trailersOf(s)
			c.send(st)
		}
	}
	st.returned()
}

// returned notes that the handler has done its work, writes what it has left, and ends the context. With conn.mu
// held, which it releases.
func (st *stream) returned() {
	c := st.c
	if st.started && st.in.abandoned {
		c.abandoned--
		c.unblock()
	}
	st.started = false
	if st.life.later == nil { // else for all together
		c.flush()
	}
	c.mu.Unlock()
	st.cancel(context.Canceled)
}

// decodeRequest is what the generated handler of a unary call asks for the request.
func (st *stream) decodeRequest(m any) error {
	st.c.mu.Lock()
	msg, ok := st.next()
	err := st.failure
	st.c.mu.Unlock()
	switch {
	case ok:
		return st.decode(msg, m)
	case err != nil:
		return err
	}
	return status.Error(codes.Internal, "the request of the call has been read already")
}

func (st *stream) decode(msg message, m any) error {
	data := mem.BufferSlice{msg.data}
	if msg.compressed {
		plain, err := st.decompress(data)
		data.Free()
		if err != nil {
			return err
		}
		data = plain
	}
	err := st.c.s.o.Codec.Unmarshal(data, m)
	data.Free()
	if err != nil {
		return status.Errorf(codes.Internal, "grpc: error unmarshalling request: %v", err)
	}
	return nil
}

// encode returns a message as it goes over the wire.
func (st *stream) encode(m any) (data mem.BufferSlice, compressed bool, err error) {
	data, err = st.c.s.o.Codec.Marshal(m)
	if err != nil {
		return nil, false, status.Errorf(codes.Internal, "grpc: error while marshaling: %v", err)
	}
	if st.req.compressor != nil && data.Len() > 0 {
		plain := data
		data, err = st.compress(plain)
		plain.Free()
		if err != nil {
			return nil, false, err
		}
		compressed = true
	}
	if n, limit := data.Len(), st.c.s.o.MaxSendMessage; n > limit {
		data.Free()
		return nil, false, status.Errorf(codes.ResourceExhausted, "trying to send message larger than max (%d vs. %d)", n, limit)
	}
	return data, compressed, nil
}

package engine

import (
	"context"
	"errors"
	"math"
	"runtime"
	"time"

	"go.uber.org/zap"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/status"

	stoapb "github.com/stoa-kv/stoa/api/stoa/v1"
	"github.com/stoa-kv/stoa/api/stoa/v1/sessionwire"
)

// stream is one gRPC stream that carries the session for a while. Its session's
// run goroutine reads it, write has a goroutine of its own.
type stream struct {
	grpc.ClientStream
	conn        *connection
	cancel      context.CancelCauseFunc
	ctx         context.Context
	from        origin
	window      int
	windowBytes int
	opened      time.Time
	answers     int      // replies that it has brought
	first       *inbound // replies received with the opening, nil if none
	written     chan struct{}
}

// run carries the session over its streams, the first of which is attached, until
// it has ended.
func (s *Session) run(st *stream) {
	defer close(s.stopped)
	fruitless := 0
	for {
		err := s.read(st)
		s.detach(st)
		if st.answers == 0 && time.Since(st.opened) < time.Second {
			fruitless++
		} else {
			fruitless = 0
		}
		if s.over(err) {
			return
		}
		s.c.cfg.Logger.Info("session lost its connection", zap.Int64("session", s.id), zap.String("endpoint", st.conn.endpoint), zap.Error(err))
		s.backoff(fruitless)
		if st, err = s.connect(); err != nil {
			s.over(err)
			s.end(err) // if that was no reason in itself
			return
		}
		s.void = false
		s.attach(st)
	}
}

// over handles the end of a stream, or of the attempt to open one.
func (s *Session) over(err error) bool {
	s.mu.Lock()
	ended := s.err != nil
	left := s.backlog.len()
	closing := s.closing
	s.mu.Unlock()
	switch {
	case ended:
	case closing && left == 0:
		s.end(ErrSessionClosed)
	case status.Code(err) == codes.NotFound && closing && left == 1:
		s.closedBefore()
	case status.Code(err) == codes.NotFound:
		s.end(ErrSessionExpired)
	case status.Code(err) == codes.Aborted:
		s.end(ErrSessionTaken)
	case s.renews(err):
		s.void = true
		return false
	case status.Code(err) == codes.InvalidArgument, errors.Is(err, errMalformed):
		s.end(err)
	default:
		return false
	}
	return true
}

// closedBefore ends a session whose Close took effect though its reply was lost. If Close
// has been given up meanwhile, nobody waits for it.
func (s *Session) closedBefore() {
	s.mu.Lock()
	left := s.backlog.drain()
	s.mu.Unlock()
	for _, last := range left {
		last.to.answer(&arrival{from: new(origin), revision: s.token.Load()})
	}
	s.end(ErrSessionClosed)
}

func (s *Session) attach(st *stream) {
	s.mu.Lock()
	s.backlog.rewind()
	s.acked = 0
	s.stream = st
	s.life.attached(s)
	s.mu.Unlock()
	go s.write(st)
	s.stir()
}

func (s *Session) detach(st *stream) {
	s.mu.Lock()
	s.stream = nil
	s.life.detached(s)
	s.mu.Unlock()
	st.cancel(nil)
	<-st.written
	st.conn.release()
}

// close closes a stream that was never attached.
func (st *stream) close() {
	st.cancel(nil)
	st.conn.release()
}

// frame is a message as it goes over the wire.
type frame struct{ data mem.BufferSlice }

// writeAtOnce bounds the requests of one message, in bytes. Larger ones would
// save nothing, and delay the first of them.
const writeAtOnce = 64 << 10

// write sends pending requests as soon as there are any. Those that come while
// a message is being written go with the next.
func (s *Session) write(st *stream) {
	defer close(st.written)
	for {
		select {
		case <-s.wake:
		case <-st.ctx.Done():
			return
		}
		// The waking caller may be in the middle of a series.
		runtime.Gosched()
		for {
			f := s.nextFrame(st)
			if f == nil {
				break
			}
			if err := st.SendMsg(f); err != nil {
				return // the reader gets the reason
			}
		}
	}
}

// nextFrame is the next message for the stream, nil if there is nothing to
// send.
func (s *Session) nextFrame(st *stream) *frame {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stream != st {
		return nil
	}
	b := &s.backlog
	fresh := b.sent < b.len() && !s.life.moving &&
		(b.sent == 0 || b.sent < st.window && b.sentBytes < st.windowBytes)
	if !fresh && !s.life.ping {
		return nil
	}
	buf := sessionwire.Pool.Get(16 + min(b.bytes()-b.sentBytes, writeAtOnce))
	data := (*buf)[:0]
	if answered := b.first - 1; answered > s.acked {
		data = appendAnswered(data, answered)
		s.acked = answered
	}
	if fresh {
		data = b.take(data, writeAtOnce, st.window, st.windowBytes)
	}
	s.life.sent(s)
	*buf = data
	return &frame{mem.BufferSlice{mem.NewBuffer(buf, sessionwire.Pool)}}
}

// read processes the server's messages until the stream ends.
func (s *Session) read(st *stream) error {
	var batch serverBatch
	for {
		var in inbound
		if st.first != nil {
			in, st.first = *st.first, nil
		} else if err := st.RecvMsg(&in); err != nil {
			if why := context.Cause(st.ctx); why != nil && s.ctx.Err() == nil {
				return why
			}
			return err
		}
		err := batch.read(in.data.ReadOnlyData(), &st.from)
		if err == nil {
			err = s.receive(st, &batch)
		}
		in.data.Free()
		if err != nil {
			return err
		}
	}
}

// receive matches replies with requests under the lock, and delivers them, in
// their order, without it.
func (s *Session) receive(st *stream, batch *serverBatch) error {
	if batch.atlas != nil {
		s.c.placement.learn(batch.atlas)
	}
	st.answers += len(batch.arrivals)
	s.mu.Lock()
	s.life.hears()
	n, err := s.match(batch.arrivals)
	s.makeRoom()
	b := &s.backlog
	more := b.sent < b.len()
	if s.life.moving && b.sent == 0 {
		st.cancel(errMoving)
	}
	s.mu.Unlock()
	if more {
		s.stir()
	}
	for i := range batch.arrivals[:n] {
		a := &batch.arrivals[i]
		switch {
		case a.call.to != nil:
			s.passes(a)
			a.call.to.answer(a)
		case a.watch != nil:
			a.watch.events(a)
		}
		*a = arrival{}
	}
	return err
}

var errOutOfOrder = errors.New("client: the server has answered out of order")

// match finds the request of each arrival, up to the first invalid one. It
// needs the lock.
func (s *Session) match(arrivals []arrival) (int, error) {
	for i := range arrivals {
		a := &arrivals[i]
		level := Strict
		switch {
		case a.event:
			if a.watch = s.watches[a.seq]; a.watch == nil {
				continue
			}
			level = a.watch.level
		case a.seq != s.backlog.first || s.backlog.sent == 0:
			return i, errOutOfOrder
		default:
			a.call = s.backlog.pop()
			if level = a.call.level; s.watchChanged(a) {
				level = Strict
			}
		}
		if level != Fast {
			s.saw(a.revision)
		}
	}
	return len(arrivals), nil
}

// inbound is a received message, whose memory is reused.
type inbound struct{ data mem.Buffer }

// rawCodec leaves frames alone: the session's messages are written and read by
// hand. It has the name of the codec that the server uses, so the server sees no
// difference.
type rawCodec struct{}

func (rawCodec) Name() string { return "proto" }

func (rawCodec) Marshal(v any) (mem.BufferSlice, error) {
	if f, ok := v.(*frame); ok {
		return f.data, nil
	}
	return encoding.GetCodecV2("proto").Marshal(v)
}

func (rawCodec) Unmarshal(data mem.BufferSlice, v any) error {
	if in, ok := v.(*inbound); ok {
		in.data = data.MaterializeToBuffer(sessionwire.Pool)
		return nil
	}
	return encoding.GetCodecV2("proto").Unmarshal(data, v)
}

var streamOptions = []grpc.CallOption{
	grpc.ForceCodecV2(rawCodec{}),
	grpc.MaxCallRecvMsgSize(math.MaxInt32),
	grpc.MaxCallSendMsgSize(math.MaxInt32),
}

var streamDesc = &stoapb.Sessions_ServiceDesc.Streams[0]

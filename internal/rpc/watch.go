package rpc

import (
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"sync"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/stoa-kv/stoa/internal/fault"
	"github.com/stoa-kv/stoa/internal/memory"
	"github.com/stoa-kv/stoa/internal/watch"
)

type watchServer struct {
	pb.UnsafeWatchServer
	header
	watcher Watcher
	o       Options
	audit   *auditor
}

// Watch sends on this goroutine and receives on another one, which ends when
// the client is done or the stream is: grpc makes a blocked receive return when
// this method does.
func (s *watchServer) Watch(stream pb.Watch_WatchServer) error {
	ctx, cancel := context.WithCancelCause(stream.Context())
	defer cancel(nil)
	hub := s.watcher.NewWatchStream(ctx)
	defer hub.Close()
	periodic := &periodic{interval: s.o.ProgressInterval, tick: hub.Tick}
	defer periodic.stop()

	go func() {
		// A client that only closes its sending side goes on receiving.
		if err := s.receive(ctx, stream, hub, periodic); !errors.Is(err, io.EOF) {
			cancel(err)
		}
	}()
	for {
		r, err := hub.Recv(ctx)
		if err == nil {
			s.identify(r.Header)
			if r.Cause != nil {
				r.CancelReason = reason(r.Cause)
				s.audit.watch(ctx, r.Key, r.End, r.Cause)
			}
			err = sendWatch(r, s.o.MaxRequestBytes+frameOverhead, s.sender(stream, r.Bytes))
		} else if ctx.Err() != nil {
			err = context.Cause(ctx)
		}
		if errors.Is(err, context.Canceled) {
			return rpctypes.ErrGRPCWatchCanceled
		}
		if err != nil {
			return toStatus(err)
		}
	}
}

// sender sends responses of about so many bytes.
func (s *watchServer) sender(stream pb.Watch_WatchServer, bytes int) func(*pb.WatchResponse) error {
	if bytes < memory.LeastLoan {
		return stream.Send
	}
	return func(r *pb.WatchResponse) error {
		return send(stream, s.o.Memory, r, proto.Size(r), errWatchFull)
	}
}

// errWatchFull ends a stream whose next response finds no memory. Clients open it again after
// this code, and miss nothing.
var errWatchFull = status.Error(codes.Unavailable, rpctypes.ErrorDesc(rpctypes.ErrGRPCRequestTooManyRequests))

func (s *watchServer) receive(ctx context.Context, stream pb.Watch_WatchServer, hub *watch.Stream, p *periodic) error {
	for {
		req, err := stream.Recv()
		if err != nil {
			return err
		}
		if err := hub.Admit(ctx); err != nil {
			return err
		}
		// A request with no known kind in it is ignored, as in etcd.
		switch r := req.RequestUnion.(type) {
		case *pb.WatchRequest_CreateRequest:
			if r.CreateRequest == nil {
				continue
			}
			if r.CreateRequest.StartRevision < 0 {
				hub.Refuse(rpctypes.ErrCompacted.Error())
				continue
			}
			opening, called := s.audit.calls(ctx)
			first, user, err := s.watcher.OpenWatch(opening, r.CreateRequest)
			if called.Load() || err != nil && !errors.Is(err, fault.Uncertain) {
				s.audit.watch(ctx, r.CreateRequest.Key, r.CreateRequest.RangeEnd, err)
			}
			if errors.Is(err, fault.Uncertain) {
				// A refusal would be the end of a watch that may wait for long. Clients
				// open it again after the end of a stream, as after any that they see.
				return status.Error(codes.Unavailable, err.Error())
			}
			if err != nil {
				hub.Refuse(reason(err))
				continue
			}
			hub.As(user)
			if n := hub.CreateWith(r.CreateRequest, first); n > 0 {
				time.AfterFunc(openWithin, func() { hub.Hasten(n) })
			}
			if r.CreateRequest.ProgressNotify {
				p.start()
			}
		case *pb.WatchRequest_CancelRequest:
			if r.CancelRequest != nil {
				hub.Cancel(r.CancelRequest.WatchId)
			}
		case *pb.WatchRequest_ProgressRequest:
			if r.ProgressRequest != nil {
				hub.RequestProgress()
			}
		}
	}
}

// reason is the text with which a watch is refused or cancelled. Those of authentication are
// etcd's in full, by which clients know that they have to authenticate again.
func reason(err error) string {
	st := status.Convert(toStatus(err))
	switch st.Code() {
	case codes.PermissionDenied, codes.Unauthenticated:
		return st.Err().Error()
	}
	for _, f := range [...]error{fault.AuthOldRevision, fault.UserEmpty} {
		if errors.Is(err, f) {
			return st.Err().Error()
		}
	}
	return st.Message()
}

// openWithin is how long a watch may wait until all partitions show what this
// server has reached. With a leader that is a round trip; a partitioned server
// opens it nevertheless, as etcd's do.
const openWithin = time.Second

// periodic ticks for the watchers with periodic progress notifications. Streams
// without such watchers have no timer.
type periodic struct {
	interval time.Duration
	tick     func()

	mu      sync.Mutex
	timer   *time.Timer
	stopped bool
}

func (p *periodic) start() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.timer != nil || p.stopped {
		return
	}
	// Up to a tenth more, so that clients that reconnected together after a
	// restart aren't all notified at the same time.
	every := p.interval + rand.N(p.interval/10)
	p.timer = time.AfterFunc(every, func() {
		p.tick()
		p.mu.Lock()
		defer p.mu.Unlock()
		if !p.stopped {
			p.timer.Reset(every)
		}
	})
}

func (p *periodic) stop() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.stopped = true
	if p.timer != nil {
		p.timer.Stop()
	}
}

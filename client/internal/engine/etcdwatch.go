package engine

import (
	"context"
	"errors"
	"io"
	"sync"

	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"

	stoapb "github.com/stoa-kv/stoa/api/stoa/v1"
)

var errNotGRPC = errors.New("client: a session's stream isn't gRPC's")

// Watcher is etcd's Watcher at the reader's level. Events come through channels
// of their own, one per watch, so only a Feed shows the order among several
// watches.
func (r Reader) Watcher() clientv3.Watcher {
	logger := clientv3.WithZapLogger(r.s.c.GetLogger())
	return clientv3.NewWatchFromWatchClient(watchOver{r}, clientv3.NewCtxClient(r.s.ctx, logger))
}

// watchOver is etcd's Watch service over a session. A stream of it never breaks
// but with its session, which carries its watches over to new connections.
type watchOver struct{ r Reader }

func (w watchOver) Watch(ctx context.Context, _ ...grpc.CallOption) (grpc.BidiStreamingClient[pb.WatchRequest, pb.WatchResponse], error) {
	if err := w.r.s.Err(); err != nil {
		return nil, gone(err)
	}
	t := &watchStream{streamOver: streamOver{ctx}, r: w.r, ready: make(chan struct{}, 1), watches: map[int64]*Watch{}}
	context.AfterFunc(ctx, t.leave)
	return t, nil
}

// gone is an error on which etcd's watcher doesn't retry.
func gone(err error) error { return status.Error(codes.FailedPrecondition, err.Error()) }

type watchStream struct {
	streamOver
	r     Reader
	ready chan struct{}

	mu      sync.Mutex
	waiting []*pb.WatchResponse
	watches map[int64]*Watch
}

// Send handles a request of etcd's watcher.
func (t *watchStream) Send(in *pb.WatchRequest) error {
	switch u := in.RequestUnion.(type) {
	case *pb.WatchRequest_CreateRequest:
		t.create(u.CreateRequest)
	case *pb.WatchRequest_CancelRequest:
		t.stop(u.CancelRequest.WatchId)
	case *pb.WatchRequest_ProgressRequest:
		f := &progressFuture{t: t}
		if err := t.r.s.send(t.ctx, &request{kind: stoapb.Kind_PROGRESS, to: f}); err != nil {
			return gone(err)
		}
	}
	return nil
}

// create opens a watch. Fragments are for messages of bounded size, which those of
// a session are not.
func (t *watchStream) create(in *pb.WatchCreateRequest) {
	in.Fragment = false
	one := &etcdWatch{t: t}
	one.w = t.r.NewWatch(in, one)
	f := OpenWatch(t.ctx, one.w, struct{}{})
	go func() {
		_, err := f.Wait(t.ctx)
		switch {
		case t.ctx.Err() != nil:
			one.w.Close() // leave may have been too early to know of it
		case errors.Is(err, ErrOvertaken):
			t.create(in) // etcd's watcher waits for it
		case err != nil && !one.told:
			t.refuse(one.w, err)
		}
	}()
}

// etcdWatch is one watch of a stream.
type etcdWatch struct {
	t    *watchStream
	w    *Watch
	told bool // the answer to the opening
}

func (e *etcdWatch) Respond(r *pb.WatchResponse) {
	e.told = true
	e.t.take(e.w, r)
}

func (e *etcdWatch) Bring(r *pb.WatchResponse) { e.t.take(e.w, r) }
func (e *etcdWatch) End(error)                 {}

// take passes a response on. The watch's id is its number in the session.
func (t *watchStream) take(w *Watch, r *pb.WatchResponse) {
	t.mu.Lock()
	switch {
	case r.Canceled:
		delete(t.watches, r.WatchId)
	case r.Created:
		t.watches[r.WatchId] = w
	}
	t.mu.Unlock()
	if r.Created && r.CompactRevision != 0 {
		// etcd sends the one after the other, and its watcher relies on that.
		t.push(&pb.WatchResponse{Header: r.Header, WatchId: r.WatchId, Created: true})
		r.Created = false
	}
	t.push(r)
}

// refuse answers for a watch that the server has not opened.
func (t *watchStream) refuse(w *Watch, err error) {
	t.push(&pb.WatchResponse{
		Header: &pb.ResponseHeader{Revision: t.r.s.Token()}, WatchId: int64(w.seq),
		Created: true, Canceled: true, CancelReason: err.Error(),
	})
}

func (t *watchStream) stop(id int64) {
	t.mu.Lock()
	w := t.watches[id]
	delete(t.watches, id)
	t.mu.Unlock()
	if w == nil {
		return
	}
	w.Close()
	t.push(&pb.WatchResponse{Header: &pb.ResponseHeader{Revision: t.r.s.Token()}, WatchId: id, Canceled: true})
}

// leave closes the open watches when etcd's watcher has closed the stream.
func (t *watchStream) leave() {
	t.mu.Lock()
	left := t.watches
	t.watches = map[int64]*Watch{}
	t.mu.Unlock()
	for _, w := range left {
		w.Close()
	}
}

func (t *watchStream) push(r *pb.WatchResponse) {
	t.mu.Lock()
	t.waiting = append(t.waiting, r)
	t.mu.Unlock()
	select {
	case t.ready <- struct{}{}:
	default:
	}
}

// Recv waits for the next response.
func (t *watchStream) Recv() (*pb.WatchResponse, error) {
	for {
		t.mu.Lock()
		if len(t.waiting) > 0 {
			r := t.waiting[0]
			t.waiting[0] = nil
			t.waiting = t.waiting[1:]
			t.mu.Unlock()
			return r, nil
		}
		t.mu.Unlock()
		select {
		case <-t.ready:
		case <-t.ctx.Done():
			return nil, io.EOF
		case <-t.r.s.Done():
			return nil, gone(t.r.s.Err())
		}
	}
}

// progressFuture answers a request for progress to all watches of a stream.
type progressFuture struct {
	Future[struct{}]
	t *watchStream
}

// allWatches is the id under which etcd reports the progress of a whole stream.
const allWatches = -1

func (f *progressFuture) answer(a *arrival) {
	if a.code == codes.OK {
		f.t.push(&pb.WatchResponse{Header: a.header(), WatchId: allWatches})
	}
	f.resolve(struct{}{}, nil)
}

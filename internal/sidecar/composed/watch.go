package composed

import (
	"context"
	"errors"
	"io"
	"sync"

	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"

	"github.com/stoa-kv/stoa/client/compose"
)

// watch is etcd's Watch service: the watches of one stream are one merged feed.
type watch struct {
	pb.UnimplementedWatchServer
	clients *clients
}

// maxUnread bounds the notifications, in bytes, that a stream's client hasn't read when there is another one. That one is
// as large as its revision.
const maxUnread = 16 << 20

// maxControls is the number of responses without events that a stream's client hasn't read at which no more requests are
// taken: each may bring one.
const maxControls = 64

var errUnread = status.Error(codes.Unavailable, "stoa sidecar: the client doesn't read the events of its watches")

type serverStream = grpc.BidiStreamingServer[pb.WatchRequest, pb.WatchResponse]

// Watch carries out one stream. Requests are carried out one after the other, as by a member: clients
// match the answers by their order.
func (w *watch) Watch(st serverStream) error {
	c, err := w.clients.of(st.Context())
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancelCause(st.Context())
	defer cancel(nil)
	s := &watchStream{ctx: ctx, feed: c.NewFeed(), ids: map[int64]*watcher{}, watchers: map[*compose.FeedWatch]*watcher{}}
	defer s.feed.Close()
	s.opening = make(chan struct{}, 1)
	s.added = make(chan struct{}, 1)
	s.drained = make(chan struct{}, 1)
	s.filled = make(chan struct{}, 1)
	go func() { cancel(s.receive(st)) }()
	go func() { cancel(s.follow()) }()
	switch err := s.send(st); {
	case errors.Is(err, io.EOF):
		return nil
	case errors.Is(err, context.Canceled):
		return rpctypes.ErrGRPCWatchCanceled
	default:
		return asStatus(err)
	}
}

// watchStream is one stream of a local client.
type watchStream struct {
	ctx   context.Context
	feed  *compose.Feed
	added chan struct{} // a watch was added to the feed

	opening  chan struct{} // full while a watch is added, which may wait for clusters: its first notifications wait for that; before mu
	mu       sync.Mutex
	ids      map[int64]*watcher
	watchers map[*compose.FeedWatch]*watcher
	next     int64 // ID
	unread   []*pb.WatchResponse
	size     int           // of unread, in bytes
	controls int           // of unread, without events
	filled   chan struct{} // unread has something
	drained  chan struct{} // a response without events was taken
}

// watcher is one watch of the client's: several of the feed's if its range lies in several clusters.
type watcher struct {
	id    int64
	parts []*compose.FeedWatch
}

func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// receive carries out requests until the client ends the stream: io.EOF, or is lost.
func (s *watchStream) receive(st serverStream) error {
	for {
		r, err := st.Recv()
		if errors.Is(err, io.EOF) {
			<-s.ctx.Done() // watches go on, as at a member
		}
		if err == nil {
			err = s.admit()
		}
		if err != nil {
			return err
		}
		switch r := r.RequestUnion.(type) {
		case *pb.WatchRequest_CreateRequest:
			s.create(r.CreateRequest)
		case *pb.WatchRequest_CancelRequest:
			s.cancel(r.CancelRequest.GetWatchId())
		case *pb.WatchRequest_ProgressRequest:
			return errProgress
		}
	}
}

// admit waits until another request may be taken.
func (s *watchStream) admit() error {
	for s.full() {
		select {
		case <-s.drained:
		case <-s.ctx.Done():
			return s.ctx.Err()
		}
	}
	return nil
}

func (s *watchStream) full() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.controls >= maxControls
}

func (s *watchStream) create(r *pb.WatchCreateRequest) {
	key := r.GetKey()
	if len(key) == 0 {
		key = []byte{0} // as members do
	}
	s.opening <- struct{}{}
	defer func() { <-s.opening }()
	id, free := s.id(r.GetWatchId())
	if !free {
		s.refused("mvcc: duplicate watch ID provided on the WatchStream")
		return
	}
	parts, err := s.feed.Watch(s.ctx, string(key), options(r)...)
	if err != nil {
		s.refused(err.Error())
		return
	}
	one := &watcher{id: id, parts: parts}
	created := &pb.WatchResponse{Header: &pb.ResponseHeader{Revision: unknownRevision}, WatchId: id, Created: true}
	if len(parts) == 1 {
		created.Header.Revision = parts[0].Begin()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.put(created)
	s.ids[id] = one
	for _, p := range parts {
		s.watchers[p] = one
	}
	signal(s.added)
}

// id is the one that a watch gets, and whether it is free: the client's own, or the next one that none
// has.
func (s *watchStream) id(asked int64) (id int64, free bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if asked != clientv3.AutoWatchID {
		return asked, s.ids[asked] == nil
	}
	for s.ids[s.next] != nil {
		s.next++
	}
	s.next++
	return s.next - 1, true
}

func (s *watchStream) refused(reason string) {
	s.tell(&pb.WatchResponse{Header: &pb.ResponseHeader{}, WatchId: clientv3.InvalidWatchID, Created: true, Canceled: true, CancelReason: reason})
}

// unknownRevision is told of a watch over several clusters, which have no common revision. It isn't 0:
// etcd's clients would open the watch again from "now", and would miss events without a word.
// From this revision they are refused.
const unknownRevision = 1

func options(r *pb.WatchCreateRequest) []clientv3.OpOption {
	out := []clientv3.OpOption{clientv3.WithRev(r.GetStartRevision())}
	if len(r.GetRangeEnd()) > 0 {
		out = append(out, clientv3.WithRange(string(r.RangeEnd)))
	}
	if r.GetPrevKv() {
		out = append(out, clientv3.WithPrevKV())
	}
	if r.GetProgressNotify() {
		out = append(out, clientv3.WithProgressNotify())
	}
	for _, f := range r.GetFilters() {
		switch f {
		case pb.WatchCreateRequest_NOPUT:
			out = append(out, clientv3.WithFilterPut())
		case pb.WatchCreateRequest_NODELETE:
			out = append(out, clientv3.WithFilterDelete())
		}
	}
	return out
}

// cancel ends a watch. Nothing is told of it behind the answer; an unknown one isn't answered, as by a
// member.
func (s *watchStream) cancel(id int64) {
	s.mu.Lock()
	one := s.ids[id]
	s.forget(one)
	s.mu.Unlock()
	if one == nil {
		return
	}
	for _, p := range one.parts {
		p.Close()
	}
	s.tell(&pb.WatchResponse{Header: &pb.ResponseHeader{}, WatchId: id, Canceled: true})
}

// forget needs mu.
func (s *watchStream) forget(one *watcher) {
	if one == nil {
		return
	}
	delete(s.ids, one.id)
	for _, p := range one.parts {
		delete(s.watchers, p)
	}
}

// follow takes notifications out of the feed until the stream ends.
func (s *watchStream) follow() error {
	for {
		n, err := s.feed.Next(s.ctx)
		switch {
		case errors.Is(err, compose.ErrFeedClosed): // it has no watch, yet or any more
			select {
			case <-s.added:
			case <-s.ctx.Done():
				return s.ctx.Err()
			}
		case err != nil:
			return err
		default:
			if err := s.notified(n); err != nil {
				return err
			}
		}
	}
}

func (s *watchStream) notified(n compose.Notification) error {
	if !s.knows(n.Watch) { // it has just been opened, and waits to be known; or it was cancelled
		s.opening <- struct{}{}
		<-s.opening
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	one := s.watchers[n.Watch]
	switch {
	case one == nil, len(n.Events) == 0 && n.Err == nil && len(one.parts) > 1: // progress in one cluster says nothing of the others
		return nil
	case s.size > maxUnread:
		return errUnread
	}
	r := &pb.WatchResponse{Header: &pb.ResponseHeader{Revision: n.Revision}, WatchId: one.id}
	if n.Err != nil {
		r.Canceled, r.CancelReason, r.CompactRevision = true, n.Err.Error(), n.CompactRevision
		s.forget(one)
		for _, p := range one.parts { // without this part the others are no watch of the range
			p.Close()
		}
	}
	for _, e := range n.Events {
		r.Events = append(r.Events, (*mvccpb.Event)(e))
	}
	s.put(r)
	return nil
}

// knows tells whether a watch of the client's has a part.
func (s *watchStream) knows(part *compose.FeedWatch) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.watchers[part] != nil
}

func (s *watchStream) tell(r *pb.WatchResponse) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.put(r)
}

// put needs mu.
func (s *watchStream) put(r *pb.WatchResponse) {
	s.unread = append(s.unread, r)
	s.size += proto.Size(r)
	if len(r.Events) == 0 {
		s.controls++
	}
	signal(s.filled)
}

func (s *watchStream) take() *pb.WatchResponse {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.unread) == 0 {
		return nil
	}
	r := s.unread[0]
	s.unread[0] = nil
	s.unread = s.unread[1:]
	s.size -= proto.Size(r)
	if len(r.Events) == 0 {
		s.controls--
		signal(s.drained)
	}
	return r
}

func (s *watchStream) send(st serverStream) error {
	for {
		if r := s.take(); r != nil {
			if err := st.Send(r); err != nil {
				return err
			}
			continue
		}
		select {
		case <-s.filled:
		case <-s.ctx.Done():
			return context.Cause(s.ctx)
		}
	}
}

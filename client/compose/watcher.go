package compose

import (
	"context"
	"encoding/binary"
	"sync"
	"sync/atomic"

	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"

	"github.com/stoa-kv/stoa/client/internal/engine"
)

// watcher is etcd's Watcher of one cluster, whose watches bring nothing from before they were open when their stream breaks.
//
// Until something has come, etcd's client goes on with a watch from "now" on at the revision that it was open at, not behind it; and
// behind the answer of an extension, which may be of any age, at the revision after that.
// So each watch has a number, which stands before its key on the way through etcd's client: by it the request that opens it again is
// known, and is for no revision below its first one. Members don't see the number.
type watcher struct {
	clientv3.Watcher
	begun *beginnings
}

// beginnings is where the watches of a watcher begin; and it opens its streams.
type beginnings struct {
	of    *cluster
	moves atomic.Int64 // of the cluster, before the present stream was opened

	mu    sync.Mutex
	last  uint64
	first map[uint64]int64 // revisions, by number; 0: not known yet
}

func (c *cluster) newWatcher(near *engine.Client) *watcher {
	b := &beginnings{of: c, first: map[uint64]int64{}}
	return &watcher{clientv3.NewWatchFromWatchClient(b, near.Client), b}
}

// watcher is the one that watches of all forks share.
func (c *cluster) watcher(near *engine.Client) *watcher {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.watches == nil {
		c.watches = c.newWatcher(near)
	}
	return c.watches
}

// number gives a watch its number, and returns its key behind that.
func (b *beginnings) number(key []byte, from int64) (number uint64, numbered []byte) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.last++
	b.first[b.last] = from
	return b.last, append(binary.BigEndian.AppendUint64(nil, b.last), key...)
}

// forget is for watches that have ended.
func (b *beginnings) forget(number uint64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.first, number)
}

// Watch opens a stream: at the near member, or if that is a learner of etcd's, which has none, at a voter.
func (b *beginnings) Watch(ctx context.Context, opts ...grpc.CallOption) (pb.Watch_WatchClient, error) {
	b.moves.Store(b.of.moves.Load())
	near := !b.of.learner.Load()
	by, err := b.of.deciding(ctx)
	if err != nil {
		return nil, status.Error(codes.Unavailable, err.Error()) // and it is tried again
	}
	st, err := pb.NewWatchClient(by.ActiveConnection()).Watch(ctx, opts...)
	if err != nil {
		return nil, err
	}
	return &watchStream{Watch_WatchClient: st, begun: b, near: near}, nil
}

// watchStream is one stream. Its member answers requests for watches in their order.
type watchStream struct {
	pb.Watch_WatchClient
	begun  *beginnings
	near   bool     // it was opened at the near member, which isn't known to be a learner
	opened []uint64 // numbers of the watches whose answers are to come
}

func (s *watchStream) Send(r *pb.WatchRequest) error {
	if q := r.GetCreateRequest(); q != nil {
		s.open(q)
	}
	return s.Watch_WatchClient.Send(r)
}

func (s *watchStream) open(q *pb.WatchCreateRequest) {
	s.begun.mu.Lock()
	defer s.begun.mu.Unlock()
	number := binary.BigEndian.Uint64(q.Key)
	q.Key = q.Key[8:]
	if q.StartRevision != 0 {
		q.StartRevision = max(q.StartRevision, s.begun.first[number])
	}
	s.opened = append(s.opened, number)
}

func (s *watchStream) Recv() (*pb.WatchResponse, error) {
	r, err := s.Watch_WatchClient.Recv()
	switch {
	case err == nil && r.Created:
		s.created(r)
	case err != nil && s.near && isLearner(err):
		s.begun.of.learner.Store(true)
		return nil, status.Error(codes.Unavailable, err.Error()) // etcd's client opens the next stream
	}
	return r, err
}

func (s *watchStream) created(r *pb.WatchResponse) {
	s.begun.mu.Lock()
	defer s.begun.mu.Unlock()
	if len(s.opened) == 0 {
		return
	}
	number := s.opened[0]
	s.opened = s.opened[1:]
	if first, watched := s.begun.first[number]; watched && first == 0 {
		s.begun.first[number] = r.Header.GetRevision() + 1
	}
}

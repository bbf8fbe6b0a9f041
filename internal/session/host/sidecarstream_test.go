package host

import (
	"context"
	"fmt"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
)

// sidecarStream is a stream of watches as it is on the wire: etcd's client would hide what becomes of it.
type sidecarStream struct {
	n      int64 // in the order in which all things happened
	remote pb.Watch_WatchClient
	cancel context.CancelFunc
	idle   time.Duration // what its reader pauses behind each response, at most

	asked     []*streamWatch // in order
	got       []streamNote
	cancelled map[int64]bool // it was asked to
	progress  int64          // number of the latest request for it
	err       error          // by which it has ended
	over      time.Duration  // when
	whole     bool           // it hadn't, when all had come
}

// streamWatch is a watch of a stream.
type streamWatch struct {
	n int64
	watched
	from     int64 // its start revision; 0: now
	id       int64 // that is asked for; 0: any
	fragment bool
	periodic bool  // progress is told from time to time
	floor    int64 // what anybody had been told when it was asked for
}

type streamNote struct {
	n  int64
	at time.Duration
	*pb.WatchResponse
}

func (s *sidecarStream) String() string {
	return fmt.Sprintf("stream %d of %d watches, %d responses, %v", s.n, len(s.asked), len(s.got), s.err)
}

func (v *streamWatch) String() string {
	return fmt.Sprintf("watch %d (id %d) of %q..%q from %d", v.n, v.id, v.key, v.end, v.from)
}

// stream is the latest one that goes on, if it isn't to be another.
func (a *sidecarApp) stream() *sidecarStream {
	if n := len(a.streams); n > 0 && !a.one(6) && !a.ended(a.streams[n-1]) {
		return a.streams[n-1]
	}
	ctx, cancel := context.WithCancel(context.Background())
	remote, err := pb.NewWatchClient(a.c.ActiveConnection()).Watch(ctx)
	if err != nil {
		cancel()
		return nil
	}
	s := &sidecarStream{n: a.w.next(), remote: remote, cancel: cancel, idle: []time.Duration{0, 0, 0, 10 * time.Millisecond, time.Second}[a.rng.IntN(5)], cancelled: map[int64]bool{}}
	a.mu.Lock()
	a.streams = append(a.streams, s)
	a.mu.Unlock()
	a.watching.Go(func() { a.receive(s) })
	return s
}

func (a *sidecarApp) ended(s *sidecarStream) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return s.err != nil
}

// receive reads all that comes, at the pace of the stream's reader until all is to be well.
func (a *sidecarApp) receive(s *sidecarStream) {
	for {
		r, err := s.remote.Recv()
		a.mu.Lock()
		if err != nil {
			s.err, s.over = err, a.w.now()
			a.mu.Unlock()
			return
		}
		s.got = append(s.got, streamNote{a.w.next(), a.w.now(), r})
		a.w.noted.Store(int64(a.w.now()))
		if n := len(r.Events); n > 0 {
			raise(&a.w.cluster.ledger.answered, r.Events[n-1].Kv.ModRevision)
		}
		a.mu.Unlock()
		if s.idle > 0 && !a.w.calm.Load() {
			time.Sleep(a.w.local.between(s.idle))
		}
	}
}

// request does something to a stream.
func (a *sidecarApp) request() {
	s := a.stream()
	if s == nil {
		return
	}
	var r pb.WatchRequest
	switch a.rng.IntN(8) {
	case 0:
		id := int64(a.rng.IntN(4))
		a.mu.Lock()
		s.cancelled[id] = true
		a.mu.Unlock()
		r.RequestUnion = &pb.WatchRequest_CancelRequest{CancelRequest: &pb.WatchCancelRequest{WatchId: id}}
	case 1, 2, 3:
		a.askProgress(s)
		return
	default:
		r.RequestUnion = &pb.WatchRequest_CreateRequest{CreateRequest: a.create(s)}
	}
	_ = s.remote.Send(&r)     // the reader gets the error
	for range a.rng.IntN(3) { // perhaps while a watch catches up
		a.askProgress(s)
		time.Sleep(time.Duration(a.rng.IntN(5)) * time.Millisecond)
	}
	if a.one(20) {
		s.cancel()
	}
}

// create asks for a watch.
func (a *sidecarApp) create(s *sidecarStream) *pb.WatchCreateRequest {
	v := &streamWatch{watched: watched{key: a.key(), prev: a.one(3)}, fragment: a.one(3), periodic: a.one(3)}
	if !a.one(3) {
		v.key, v.end = a.span()
	}
	if a.one(4) {
		v.filter = append(v.filter, pb.WatchCreateRequest_FilterType(a.rng.IntN(2)))
	}
	if a.one(2) {
		v.from = a.somewhen()
	}
	if a.one(6) {
		v.id = int64(a.rng.IntN(4))
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	v.n, v.floor = a.w.next(), a.w.cluster.ledger.answered.Load()
	s.asked = append(s.asked, v)
	return &pb.WatchCreateRequest{
		Key: []byte(v.key), RangeEnd: []byte(v.end), StartRevision: v.from, WatchId: v.id, PrevKv: v.prev, Filters: v.filter,
		Fragment: v.fragment, ProgressNotify: v.periodic,
	}
}

func (a *sidecarApp) askProgress(s *sidecarStream) {
	a.mu.Lock()
	s.progress = a.w.next()
	a.mu.Unlock()
	_ = s.remote.Send(&pb.WatchRequest{RequestUnion: &pb.WatchRequest_ProgressRequest{ProgressRequest: &pb.WatchProgressRequest{}}})
}

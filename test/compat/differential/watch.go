package differential

import (
	"context"
	"fmt"
	"strings"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/protobuf/proto"
)

// watchPair is one watch stream on each side, with the same watchers.
type watchPair struct {
	server   int
	ref, sut *watchStream
	previous map[int64]bool // watchers that asked for values of before
}

// watchStream collects what one side says on a watch stream.
type watchStream struct {
	stream    pb.Watch_WatchClient
	cancel    context.CancelFunc
	in        chan *pb.WatchResponse
	control   map[int64][]proto.Message // watcher → what created and cancelled it
	created   int
	newest    int64          // the watcher that was created last
	compacted map[int64]bool // watchers cancelled by a compaction, and by us in turn
	events    map[int64][]*mvccpb.Event
	last      map[int64]int64 // watcher → highest revision shown
	partial   map[int64]bool  // watchers in the midst of fragments
}

func (s *side) watch(server int) (*watchStream, error) {
	ctx, cancel := context.WithCancel(context.Background())
	stream, err := pb.NewWatchClient(s.conns[server%len(s.conns)]).Watch(ctx)
	if err != nil {
		cancel()
		return nil, fmt.Errorf("opening a watch stream: %w", err)
	}
	w := &watchStream{stream: stream, cancel: cancel, in: make(chan *pb.WatchResponse, 1024),
		control: map[int64][]proto.Message{}, compacted: map[int64]bool{}, events: map[int64][]*mvccpb.Event{}, last: map[int64]int64{}, partial: map[int64]bool{}}
	go func() {
		defer close(w.in)
		for {
			r, err := stream.Recv()
			if err != nil {
				return
			}
			w.in <- r
		}
	}()
	return w, nil
}

// openWatch opens a stream on both sides.
func (p *pair) openWatch(server int) (*watchPair, error) {
	ref, err := p.ref.watch(server)
	if err != nil {
		return nil, err
	}
	sut, err := p.sut.watch(server)
	if err != nil {
		ref.cancel()
		return nil, err
	}
	w := &watchPair{server: server, ref: ref, sut: sut, previous: map[int64]bool{}}
	p.watches = append(p.watches, w)
	// etcd tells no progress on a stream without a watcher.
	return w, p.ask(w, &pb.WatchRequest{RequestUnion: &pb.WatchRequest_CreateRequest{
		CreateRequest: &pb.WatchCreateRequest{Key: []byte("start"), WatchId: 1000}}})
}

func (p *pair) stopWatches() {
	for _, w := range p.watches {
		w.ref.cancel()
		w.sut.cancel()
	}
	p.watches = nil
}

// ask sends a watch request on both streams and waits for the answer, so that
// creations and cancellations come in one order on both.
func (p *pair) ask(w *watchPair, req *pb.WatchRequest) error {
	p.log = append(p.log, fmt.Sprintf("server %d: watch %v", w.server, req))
	if err := p.catchUp(w.server); err != nil {
		return err
	}
	if err := p.findNow(w.server, req); err != nil {
		return err
	}
	p.furthest = max(p.furthest, req.GetCreateRequest().GetStartRevision())
	n := w.ref.created
	if err := w.ref.stream.Send(req); err != nil {
		return err
	}
	if err := w.sut.stream.Send(p.revs.request(req).(*pb.WatchRequest)); err != nil {
		return err
	}
	if req.GetCreateRequest() == nil {
		return nil // an unknown id is answered with nothing: progress will tell
	}
	for _, s := range []*watchStream{w.ref, w.sut} {
		if err := s.until(func(*pb.WatchResponse) bool { return s.created > n }); err != nil {
			return fmt.Errorf("creating a watch by %v: %w", req, err)
		}
	}
	w.previous[w.ref.newest] = req.GetCreateRequest().PrevKv
	return nil
}

// compareWatches waits until all streams have shown everything and compares it.
func (p *pair) compareWatches() error {
	if len(p.watches) == 0 {
		return nil
	}
	// A write tells the progress that is asked for now from answers that come late. And
	// etcd tells none while a watcher waits for the future, so one gets there.
	for first := true; first || p.revs.current() < p.furthest; first = false {
		if err := p.do(0, &pb.PutRequest{Key: []byte("start")}); err != nil {
			return err
		}
	}
	for _, w := range p.watches {
		if err := p.catchUp(w.server); err != nil {
			return err
		}
		if err := w.ref.catchUp(p.revs.current(), func(r int64) int64 { return r }); err != nil {
			return fmt.Errorf("%s: %w", p.ref.name, err)
		}
		if err := w.sut.catchUp(p.revs.current(), p.revs.floor); err != nil {
			return p.difference(&pb.WatchProgressRequest{}, answer{}, answer{}, err)
		}
		if err := p.compareWatch(w); err != nil {
			return p.difference(&pb.WatchRequest{}, answer{}, answer{}, err)
		}
	}
	return nil
}

func (p *pair) compareWatch(w *watchPair) error {
	for id := range w.ref.control {
		want, got := w.ref.control[id], w.sut.control[id]
		if len(want) != len(got) {
			return fmt.Errorf("control of watcher %d: want %v\ngot %v", id, want, got)
		}
		for i := range want {
			if translated := p.revs.response(got[i]); !proto.Equal(strip(want[i]), translated) {
				return fmt.Errorf("control of watcher %d: want %v\ngot  %v\nfrom %v", id, strip(want[i]), translated, got[i])
			}
		}
	}
	for id := range w.sut.events {
		if _, ok := w.ref.events[id]; !ok {
			return fmt.Errorf("watcher %d has events that it must not have: %v", id, w.sut.events[id])
		}
	}
	for id, want := range w.ref.events {
		got := w.sut.events[id]
		for i := range max(len(want), len(got)) {
			if i >= len(want) || i >= len(got) {
				return fmt.Errorf("watcher %d has %d events where %s has %d", id, len(got), p.ref.name, len(want))
			}
			translated := p.revs.response(got[i])
			if w.previous[id] && want[i].PrevKv == nil && got[i].PrevKv != nil {
				want[i].PrevKv = p.ref.before(w.server, want[i].Kv, translated.(*mvccpb.Event).PrevKv)
			}
			if !proto.Equal(want[i], translated) {
				return fmt.Errorf("watcher %d, event %d:\nwant %v\ngot  %v\nfrom %v", id, i, want[i], translated, got[i])
			}
		}
	}
	return nil
}

// before is what etcd has at a key before a change: events of the past may be under way before it notes that a watcher has asked
// for that, which it does once the watcher is there (recvLoop in v3rpc/watch.go). If it is compacted, anybody's word is as good.
func (s *side) before(server int, kv, word *mvccpb.KeyValue) *mvccpb.KeyValue {
	a := s.call(server, &pb.RangeRequest{Key: kv.Key, Revision: kv.ModRevision - 1})
	r, _ := a.msg.(*pb.RangeResponse)
	switch {
	case strings.HasSuffix(a.err, rpctypes.ErrorDesc(rpctypes.ErrGRPCCompacted)):
		return word
	case r == nil || len(r.Kvs) == 0:
		return nil
	}
	return r.Kvs[0]
}

// catchUp asks for progress until it is at the given revision.
func (s *watchStream) catchUp(rev int64, translate func(int64) int64) error {
	progress := &pb.WatchRequest{RequestUnion: &pb.WatchRequest_ProgressRequest{ProgressRequest: &pb.WatchProgressRequest{}}}
	reached := func(r *pb.WatchResponse) bool {
		return r.WatchId == -1 && !r.Created && !r.Canceled && translate(r.Header.Revision) >= rev
	}
	for deadline := time.Now().Add(10 * time.Second); time.Now().Before(deadline); {
		if err := s.stream.Send(progress); err != nil {
			return fmt.Errorf("asking for progress: %w", err)
		}
		// A server that is behind may leave the request unanswered.
		if err := s.wait(50*time.Millisecond, reached); err == nil {
			return nil
		}
	}
	return fmt.Errorf("no progress through revision %d within 10 s", rev)
}

func (s *watchStream) until(done func(*pb.WatchResponse) bool) error {
	return s.wait(10*time.Second, done)
}

// wait takes responses until done says so.
func (s *watchStream) wait(atMost time.Duration, done func(*pb.WatchResponse) bool) error {
	timeout := time.After(atMost)
	for {
		select {
		case r, ok := <-s.in:
			if !ok {
				return fmt.Errorf("the watch stream has ended")
			}
			if err := s.take(r); err != nil {
				return err
			}
			if done(r) {
				return nil
			}
		case <-timeout:
			return fmt.Errorf("nothing more within %v", atMost)
		}
	}
}

// take files a response and checks what holds on any server: revisions never go
// back, and all events of one revision come together unless they are fragments.
func (s *watchStream) take(r *pb.WatchResponse) error {
	if r.CompactRevision != 0 {
		// etcd tells no progress on a stream with a compacted watcher until the client
		// cancels it, and answers that with a second cancellation.
		s.compacted[r.WatchId] = true
		cancel := &pb.WatchCancelRequest{WatchId: r.WatchId}
		err := s.stream.Send(&pb.WatchRequest{RequestUnion: &pb.WatchRequest_CancelRequest{CancelRequest: cancel}})
		if err != nil {
			return fmt.Errorf("cancelling a compacted watch: %w", err)
		}
	} else if r.Canceled && s.compacted[r.WatchId] {
		delete(s.compacted, r.WatchId)
		return nil
	}
	if r.Created || r.Canceled {
		s.control[r.WatchId] = append(s.control[r.WatchId], proto.Clone(r))
		if r.Created {
			s.created++
			s.newest = r.WatchId
		}
		return nil
	}
	for _, ev := range r.Events {
		rev := ev.Kv.ModRevision
		if rev < s.last[r.WatchId] || rev == s.last[r.WatchId] && len(r.Events) > 0 && ev == r.Events[0] && !s.partial[r.WatchId] {
			return fmt.Errorf("watcher %d: an event of revision %d after one of revision %d in an earlier response", r.WatchId, rev, s.last[r.WatchId])
		}
		if rev > r.Header.Revision {
			return fmt.Errorf("watcher %d: an event of revision %d under a header of revision %d", r.WatchId, rev, r.Header.Revision)
		}
		s.last[r.WatchId] = rev
	}
	s.partial[r.WatchId] = r.Fragment
	s.events[r.WatchId] = append(s.events[r.WatchId], r.Events...)
	if len(r.Events) == 0 { // a progress notification: nothing at or below is still to come
		for id := range s.last {
			if r.WatchId == -1 || r.WatchId == id {
				s.last[id] = max(s.last[id], r.Header.Revision)
			}
		}
	}
	return nil
}

package engine

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"

	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"

	stoapb "github.com/stoa-kv/stoa/api/stoa/v1"
)

// ErrWatchClosed: the watch was closed, or all watches of a feed have ended, and
// there is nothing more to read.
var ErrWatchClosed = errors.New("client: the watch is closed")

// Watch delivers the events of a key or a range, each once, in the order of
// their revisions, over all streams of the session.
type Watch struct {
	s     *Session
	level Level
	ask   *pb.WatchCreateRequest
	seq   uint64
	to    Watching
	// next is the revision from which a new stream resumes. Only the session's
	// reading goroutine uses it.
	next int64
	// answered: an extension may have answered the opening with an event, which is in no order.
	answered bool

	mu    sync.Mutex
	ended bool
	err   error
}

// Watching receives the events of a watch. The session's reading goroutine
// calls it, in the order of arrival; it must not block.
type Watching interface {
	// Respond has the server's answer to the opening, and its announcement that the
	// watch has ended.
	Respond(*pb.WatchResponse)
	// Bring has events or progress.
	Bring(*pb.WatchResponse)
	// End is called once, when the watch has ended.
	End(error)
}

// AskFor is the request for a watch.
func AskFor(key string, opts []clientv3.OpOption) *pb.WatchCreateRequest {
	op := clientv3.OpWatch(key, opts...)
	ask := &pb.WatchCreateRequest{
		Key: op.KeyBytes(), RangeEnd: op.RangeBytes(), StartRevision: op.Rev(),
		ProgressNotify: op.IsProgressNotify(), PrevKv: op.IsPrevKV(),
	}
	if op.IsFilterPut() {
		ask.Filters = append(ask.Filters, pb.WatchCreateRequest_NOPUT)
	}
	if op.IsFilterDelete() {
		ask.Filters = append(ask.Filters, pb.WatchCreateRequest_NODELETE)
	}
	return ask
}

// NewWatch makes a watch that isn't open.
func (r Reader) NewWatch(ask *pb.WatchCreateRequest, to Watching) *Watch {
	return &Watch{s: r.s, level: r.level, ask: ask, to: to}
}

// OpenWatch asks for a watch, once. The future has its value, opened, when it is open.
func OpenWatch[T any](ctx context.Context, w *Watch, opened T) *Future[T] {
	f := &watchFuture[T]{watch: w, opened: opened}
	body, err := proto.Marshal(w.ask)
	if err == nil {
		// The number is noted before anything can be done with the watch.
		err = w.s.sendNumbered(ctx, &request{kind: stoapb.Kind_WATCH, level: w.level, body: body, to: f}, &w.seq)
	}
	if err != nil {
		f.fail(err)
	}
	return &f.Future
}

// sendNumbered is send for a request whose number is of interest.
func (s *Session) sendNumbered(ctx context.Context, r *request, seq *uint64) error {
	if err := s.check(r); err != nil {
		return err
	}
	s.mu.Lock()
	if err := s.waitForRoom(ctx); err != nil {
		s.mu.Unlock()
		return err
	}
	*seq = s.backlog.next()
	s.enqueue(r)
	s.mu.Unlock()
	s.stir()
	return nil
}

// watchFuture is answered when the watch is open, or refused.
type watchFuture[T any] struct {
	Future[T]
	watch  *Watch
	opened T
}

// opener is who waits for the reply to the opening of a watch.
type opener interface{ opens() *Watch }

func (f *watchFuture[T]) opens() *Watch { return f.watch }

func (f *watchFuture[T]) answer(a *arrival) {
	response, err := f.read(a)
	if response != nil {
		f.watch.to.Respond(response)
	}
	if err != nil {
		f.fail(err)
		return
	}
	f.resolve(f.opened, nil)
}

func (f *watchFuture[T]) read(a *arrival) (*pb.WatchResponse, error) {
	if err := a.err(); err != nil {
		return nil, err
	}
	response, err := readWatchResponse(a)
	if err != nil {
		return nil, err
	}
	response.Events = nil // see begin
	if response.Canceled {
		err = canceled(response)
	}
	return response, err
}

func (f *watchFuture[T]) fail(err error) {
	f.watch.gone(ErrWatchClosed) // the future has the reason
	f.Future.fail(err)
}

func readWatchResponse(a *arrival) (*pb.WatchResponse, error) {
	response := new(pb.WatchResponse)
	if err := proto.Unmarshal(a.body, response); err != nil {
		return nil, malformed(err)
	}
	response.Header = a.header()
	response.WatchId = int64(a.seq)
	return response, nil
}

// canceled is the reason for which a server ended or refused a watch.
func canceled(r *pb.WatchResponse) error {
	switch {
	case r.CompactRevision != 0:
		return rpctypes.ErrCompacted
	case r.CancelReason != "":
		return fmt.Errorf("client: the watch was canceled: %s", r.CancelReason)
	}
	return ErrWatchClosed
}

// watchChanged updates the set of open watches on the reply to a request. It
// needs the session's lock. It reports whether an extension has answered: that was a write.
func (s *Session) watchChanged(a *arrival) (called bool) {
	switch to := a.call.to.(type) {
	case opener:
		if a.code == 0 && s.watches != nil {
			w := to.opens()
			w.begin(a)
			s.watches[w.seq] = w
			return w.answered
		}
	case *cancelFuture:
		delete(s.watches, to.watch.seq)
	}
	return false
}

// begin records the key and start revision of an opened watch. They are in the
// response where an extension may have changed them.
func (w *Watch) begin(a *arrival) {
	var opened pb.WatchResponse
	if proto.Unmarshal(a.body, &opened) != nil {
		return // reported by the reader of the response
	}
	switch {
	case opened.Header != nil:
		w.next = max(opened.Header.Revision+1, 1)
	case w.ask.StartRevision == 0:
		w.next = a.revision + 1
	default:
		w.next = max(w.ask.StartRevision, 1)
	}
	if len(opened.Events) > 0 {
		w.ask.Key, w.ask.RangeEnd, w.answered = opened.Events[0].GetKv().GetKey(), nil, true
	}
}

// passes notes what a reply says of events. Those of ordered watches come in one order, and before what reflects
// them; a watch that has just been opened may begin far back.
func (s *Session) passes(a *arrival) {
	if a.code != codes.OK {
		return
	}
	switch a.call.kind {
	case stoapb.Kind_PROGRESS:
		s.progressed(a)
	case stoapb.Kind_RANGE, stoapb.Kind_TXN, stoapb.Kind_DELETE_RANGE, stoapb.Kind_SYNC: // a put may be answered before its event
		if a.call.level != Fast {
			s.through = max(s.through, a.revision+1)
		}
	case stoapb.Kind_WATCH:
		if w := a.call.to.(opener).opens(); w.level != Fast && w.next < s.through {
			s.beginAgain(w)
		}
	}
}

// beginAgain notes that a watch has been opened whose events lie behind what the others have shown.
func (s *Session) beginAgain(from *Watch) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for seq, w := range s.watches { // of the same message there may be some that are opened behind it
		if seq < from.seq && w.level != Fast {
			w.next = max(w.next, s.through)
		}
	}
	s.through = from.next
}

// progressed records that no event up to a revision is still to come. The
// session's reading goroutine calls it, after the events that came before.
func (s *Session) progressed(a *arrival) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for seq, w := range s.watches { // as in beginAgain
		if seq < a.seq {
			w.next = max(w.next, a.revision+1)
		}
	}
}

// events processes the events of a watch. The session's reading goroutine calls
// it.
func (w *Watch) events(a *arrival) {
	response, err := readWatchResponse(a)
	if e := a.err(); e != nil {
		err = e
	}
	switch {
	case err != nil:
		w.gone(err)
	case response.Canceled:
		w.to.Respond(response)
		w.gone(canceled(response))
	case len(response.Events) > 0:
		w.changed(response)
	default:
		w.next = max(w.next, a.revision+1)
		if w.ask.ProgressNotify {
			w.deliver(response)
		}
	}
}

// changed delivers events, without those that an earlier stream has delivered.
func (w *Watch) changed(r *pb.WatchResponse) {
	seen := 0
	for seen < len(r.Events) && r.Events[seen].Kv.ModRevision < w.next {
		seen++
	}
	if r.Events = r.Events[seen:]; len(r.Events) == 0 {
		return
	}
	last := r.Events[len(r.Events)-1].Kv.ModRevision
	w.next = last + 1
	if w.level != Fast && !w.answered {
		w.s.through = max(w.s.through, last)
	}
	w.answered = false
	w.deliver(r)
}

func (w *Watch) deliver(r *pb.WatchResponse) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.ended {
		w.to.Bring(r)
	}
}

// gone ends a watch that the server has ended.
func (w *Watch) gone(err error) {
	w.s.mu.Lock()
	delete(w.s.watches, w.seq)
	w.s.mu.Unlock()
	w.end(err)
}

// end is the end of the watch.
func (w *Watch) end(err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.ended {
		return
	}
	w.ended, w.err = true, err
	w.to.End(err)
}

// Err is nil until the watch has ended.
func (w *Watch) Err() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.err
}

// Close ends the watch: no event is delivered after it.
func (w *Watch) Close() {
	w.mu.Lock()
	ended := w.ended
	w.mu.Unlock()
	if ended {
		return
	}
	w.end(ErrWatchClosed)
	w.s.cancelWatch(w)
}

// cancelWatch doesn't wait for room: there is at most one request of this kind per watch.
func (s *Session) cancelWatch(w *Watch) {
	body, _ := proto.Marshal(&pb.WatchCancelRequest{WatchId: int64(w.seq)})
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err == nil && !s.closing {
		s.enqueue(&request{kind: stoapb.Kind_CANCEL, body: body, to: &cancelFuture{watch: w}})
		s.stir()
	}
}

type cancelFuture struct {
	Future[struct{}]
	watch *Watch
}

func (f *cancelFuture) answer(a *arrival) { f.resolve(struct{}{}, a.err()) }

func sortedKeys(m map[uint64]*Watch) []uint64 { return slices.Sorted(maps.Keys(m)) }

package watch

import (
	"container/list"
	"context"
	"errors"
	"maps"
	"slices"
	"sync"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
)

// ErrClosed is what Recv returns on a closed stream.
var ErrClosed = errors.New("watch stream is closed")

// Response is the next response of a stream. The header holds the revision
// only.
type Response struct {
	*pb.WatchResponse
	// Bytes is about the size of the events.
	Bytes int
	// Fragment: the watcher allows a large response to be sent in pieces.
	Fragment bool
	// Cause is why the watcher was refused or cancelled, if that is for lack of permission or
	// because of a quota.
	Cause error
	// Key and End are the range of the watcher, with a Cause.
	Key, End []byte
}

// item is a response with its parts, in one allocation.
type item struct {
	watcher *watcher // nil: a notification for the whole stream
	bytes   int
	events  bool
	cause   error
	key     []byte // with a cause: the watcher's
	end     []byte
	resp    pb.WatchResponse
	header  pb.ResponseHeader
	one     [1]*mvccpb.Event
}

func newItem(w *watcher, id, rev int64) *item {
	it := &item{watcher: w}
	it.header.Revision = rev
	it.resp.Header = &it.header
	it.resp.WatchId = id
	return it
}

// fence: progress of all watchers, which holds for what comes before it.
func (it *item) fence() bool {
	return it.watcher == nil && !it.resp.Created && !it.resp.Canceled
}

func (it *item) response() Response {
	return Response{&it.resp, it.bytes, it.watcher != nil && it.watcher.fragment, it.cause, it.key, it.end}
}

// Stream is the watchers of one client stream. Create, Cancel and
// RequestProgress may be called while one goroutine at a time receives.
type Stream struct {
	hub    *Hub
	client string
	user   uint64        // for whom watchers are created; Hub.mu
	eager  bool          // gets changes that not all partitions show yet
	place  *list.Element // in Hub.streams; Hub.mu

	// watchers and nextID are guarded by Hub.mu and mu together: either is
	// enough to read them.
	watchers map[int64]*watcher
	nextID   int64
	owed     bool     // progress of all watchers was requested; Hub.mu
	waits    bool     // is in Hub.waiting; Hub.mu
	openings []answer // to creations, in their order; Hub.mu
	numbered int64    // how many of them there have been; Hub.mu
	hastened int64    // up to this number; Hub.mu
	told     int64    // highest progress announced for all watchers; Hub.mu

	mu       sync.Mutex
	queue    []*item
	head     int
	bytes    int // of the events in the queue
	events   int // responses with events in the queue
	controls int // other responses in the queue
	waiting  int // answers to creations that are not in the queue yet
	fences   int // of these, progress of all watchers
	lagging  []*watcher
	turn     bool // the next response comes from history if it can
	closed   bool // Hub.mu and mu: either is enough to read it
	why      error

	wanted int64  // notify when Through comes to it, 0 for nothing; Hub.mu
	notify func() // instead of signal, if not nil

	signal chan struct{} // something to receive
	drain  chan struct{} // requests are taken again
	done   chan struct{}
}

// NewStream opens a stream without watchers, which announces a revision only
// once reads of all partitions show it. Extensions may hide changes from the
// given client.
func (h *Hub) NewStream(client string) *Stream {
	h.stats.streams.Add(1)
	s := &Stream{
		hub:      h,
		client:   client,
		watchers: map[int64]*watcher{},
		signal:   make(chan struct{}, 1),
		drain:    make(chan struct{}, 1),
		done:     make(chan struct{}),
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	s.place = h.streams.PushBack(s)
	if h.fenced != nil {
		s.close(h.fenced)
	}
	return s
}

// Fence ends all streams, and those that are opened later, with an error, until it is called with
// nil: this server's state must not be shown.
func (h *Hub) Fence(why error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.fenced = why
	h.permitRev = 0 // the state may have been wrong in this, too, and another one comes
	for e := h.streams.Front(); e != nil && why != nil; {
		next := e.Next()
		e.Value.(*Stream).close(why)
		e = next
	}
}

// Close ends the stream and all its watchers.
func (s *Stream) Close() {
	s.hub.mu.Lock()
	defer s.hub.mu.Unlock()
	s.close(ErrClosed)
}

// close ends the stream; Recv returns why. With Hub.mu held.
func (s *Stream) close(why error) {
	h := s.hub
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		return
	}
	s.closed, s.why = true, why
	s.queue, s.lagging, s.bytes, s.events, s.controls, s.head = nil, nil, 0, 0, 0, 0
	s.mu.Unlock()
	// In order: removing a watcher from an index moves another, and a
	// simulation must be repeatable.
	for _, id := range slices.Sorted(maps.Keys(s.watchers)) {
		h.drop(s.watchers[id])
	}
	h.forget(s)
	s.openings = nil
	h.streams.Remove(s.place)
	h.stats.streams.Add(-1)
	close(s.done)
}

// Recv waits for the next response. Only one goroutine may be in it.
func (s *Stream) Recv(ctx context.Context) (Response, error) {
	for {
		r, ok, err := s.TryRecv()
		if ok || err != nil {
			return r, err
		}
		select {
		case <-s.signal:
		case <-s.done:
		case <-ctx.Done():
			return Response{}, ctx.Err()
		}
	}
}

// TryRecv returns the next response if there is one now. It may read history.
func (s *Stream) TryRecv() (Response, bool, error) {
	for {
		it, w, err := s.take()
		switch {
		case err != nil:
			return Response{}, false, err
		case it != nil:
			return it.response(), true, nil
		case w == nil:
			return Response{}, false, nil
		}
		it, err = s.hub.catchUp(w)
		if err != nil {
			return Response{}, false, err
		}
		if it != nil {
			return it.response(), true, nil
		}
	}
}

// take removes either the next response in the queue or a lagging watcher to
// read for: by turns when there are both, so that neither starves the other. A
// watcher with queued responses isn't ready: those must be received first. None
// is ready while progress of all watchers is in the queue: events read later
// would be overtaken by it.
func (s *Stream) take() (*item, *watcher, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil, nil, s.why
	}
	if s.fences == 0 && (s.turn || s.head == len(s.queue)) {
		for i, w := range s.lagging {
			if w.queued == 0 {
				s.lagging = slices.Delete(s.lagging, i, i+1)
				s.turn = false
				return nil, w, nil
			}
		}
	}
	if s.head == len(s.queue) {
		return nil, nil, nil
	}
	s.turn = len(s.lagging) > 0
	it := s.pop()
	if it.events && len(s.queue)-s.head >= gatherFrom {
		it = s.gather(it)
	}
	return it, nil, nil
}

func (s *Stream) pop() *item {
	it := s.queue[s.head]
	s.queue[s.head] = nil
	s.head++
	if s.head == len(s.queue) {
		s.queue, s.head = s.queue[:0], 0
	} else if s.head > 64 && s.head > len(s.queue)/2 {
		n := copy(s.queue, s.queue[s.head:])
		clear(s.queue[n:])
		s.queue, s.head = s.queue[:n], 0
	}
	switch {
	case it.watcher != nil:
		it.watcher.queued--
	case it.fence():
		s.fences--
	}
	if it.events {
		s.events--
		s.bytes -= it.bytes
	} else {
		s.controls--
		s.relieve()
	}
	return it
}

// A reader that is this many responses behind gets the queued revisions of a
// watcher in one response, up to this many events. One that keeps up gets each
// revision in a response of its own, as from etcd.
const (
	gatherFrom = 16
	gatherMax  = 512
)

// gather adds to a response those that follow it for the same watcher.
func (s *Stream) gather(first *item) *item {
	n := s.head
	for n < len(s.queue) && s.queue[n].events && s.queue[n].watcher == first.watcher && n-s.head < gatherMax {
		n++
	}
	if n == s.head {
		return first
	}
	events := make([]*mvccpb.Event, 0, 2*(n-s.head+1))
	events = append(events, first.resp.Events...)
	bytes := first.bytes
	for s.head < len(s.queue) && len(events) < gatherMax && bytes < maxBatchBytes {
		next := s.queue[s.head]
		if !next.events || next.watcher != first.watcher {
			break
		}
		s.pop()
		events = append(events, next.resp.Events...)
		bytes += next.bytes
		first.header.Revision = next.header.Revision
	}
	first.resp.Events, first.bytes = events, bytes
	return first
}

// push queues the events of one revision for a watcher; false: the queue is
// full.
func (s *Stream) push(w *watcher, rev int64, events []*mvccpb.Event, bytes int) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return true
	}
	if s.events >= s.hub.o.QueueResponses || s.events > 0 && s.bytes+bytes > maxQueueBytes {
		return false
	}
	it := newItem(w, w.id, rev)
	it.events, it.bytes = true, bytes
	if len(events) == 1 {
		it.one[0] = events[0]
		it.resp.Events = it.one[:]
	} else {
		it.resp.Events = append([]*mvccpb.Event(nil), events...)
	}
	s.add(it)
	s.events++
	s.bytes += bytes
	w.sent(rev)
	return true
}

// sent records the revision sent to a watcher; progress never goes below it.
func (w *watcher) sent(rev int64) {
	w.high = max(w.high, rev)
	w.quiet = false
}

// control queues a response without events.
func (s *Stream) control(it *item) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return
	}
	s.controls++
	s.add(it)
}

func (s *Stream) add(it *item) {
	switch {
	case it.watcher != nil:
		it.watcher.queued++
	case it.fence():
		s.fences++
	}
	s.queue = append(s.queue, it)
	s.ring()
}

func (s *Stream) addLagging(w *watcher) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return
	}
	s.lagging = append(s.lagging, w)
	s.ring()
}

func (s *Stream) ring() {
	if s.notify != nil {
		s.notify()
		return
	}
	select {
	case s.signal <- struct{}{}:
	default:
	}
}

package watch

import (
	"bytes"
	"context"
	"errors"
	"slices"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
)

// Reasons for which a watcher was not created. Clients see these texts as
// cancel reasons; they are etcd's.
var (
	ErrEmptyRange  = errors.New("mvcc: watcher range is empty")
	ErrDuplicateID = errors.New("mvcc: duplicate watch ID provided on the WatchStream")
)

// noID is the watch id of responses that concern no single watcher.
const noID = -1

// Admit waits until the stream can take one more request: it throttles a client
// that sends requests without reading responses.
func (s *Stream) Admit(ctx context.Context) error {
	for {
		if admits, err := s.admits(); admits || err != nil {
			return err
		}
		select {
		case <-s.drain:
		case <-s.done:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

func (s *Stream) admits() (bool, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.spare() > 0, s.why
}

// spare is how many requests the stream takes. With mu held.
func (s *Stream) spare() int { return s.hub.o.QueueControls - s.controls - s.waiting }

// relieve has Admit look again once the stream takes a request. With mu held.
func (s *Stream) relieve() {
	if s.spare() == 1 { // one is enough: who is admitted asks again
		select {
		case s.drain <- struct{}{}:
		default:
		}
	}
}

// Create starts a watcher. The answer, created or refused, comes through Recv
// before the first event. An empty key means the smallest one, as in etcd.
func (s *Stream) Create(r *pb.WatchCreateRequest) { s.CreateWith(r, nil) }

// CreateWith is Create for a watcher whose first event is known: an extension
// has answered the request. That event is delivered before all others of the
// watcher. If the answer has to wait until all partitions show the revision that
// the server has reached, it returns its number, for Hasten; else 0.
func (s *Stream) CreateWith(r *pb.WatchCreateRequest, first *mvccpb.Event) (number int64) {
	h := s.hub
	w := newWatcher(s, r)
	h.mu.Lock()
	defer h.mu.Unlock()
	if s.closed {
		return 0
	}
	if err := s.enter(w, r.WatchId); err != nil {
		s.refuse(answer{refused: err.Error(), cause: err, key: w.key, end: w.rangeEnd()})
		return 0
	}
	a := answer{w: w, rev: h.Rev(), first: first}
	a.rev = max(a.rev, a.least())
	h.admit(w)
	return h.answerOrQueue(s, a)
}

// Refuse answers a request to create a watcher with a cancel reason.
func (s *Stream) Refuse(reason string) {
	s.hub.mu.Lock()
	defer s.hub.mu.Unlock()
	s.refuse(answer{refused: reason})
}

func (s *Stream) refuse(a answer) { s.hub.answerOrQueue(s, a) }

// admit adds a watcher to its stream.
func (h *Hub) admit(w *watcher) {
	w.group = h.join(h.o.Parts(w.key, w.rangeEnd()), w.stream)
	w.stream.watchers[w.id] = w
	w.state = opening
	h.stats.watchers.Add(1)
}

// begin starts an admitted watcher.
func (h *Hub) begin(w *watcher) {
	w.next = w.start
	h.enroll(w)
}

// Cancel ends a watcher. An unknown id is ignored, as in etcd. Responses
// already queued for it are still delivered, then the answer.
func (s *Stream) Cancel(id int64) {
	h := s.hub
	h.mu.Lock()
	defer h.mu.Unlock()
	w := s.watchers[id]
	if w == nil || s.closed {
		return
	}
	s.cancel(w, nil)
	s.reconsider()
}

// cancel ends a watcher, and says why if there is a cause. If its creation is not answered yet, and has to wait for the
// answers before it, it waits with the answer.
func (s *Stream) cancel(w *watcher, cause error) {
	h := s.hub
	if w.state == opening && s.endOpening(w, cause) {
		h.drop(w)
		return
	}
	h.drop(w)
	s.control(h.canceled(w, cause))
	h.open(s, h.Shown()) // those behind it may have waited for its answer alone
}

// endOpening notes that a watcher is canceled, in the answer to its creation, and reports whether that has to wait. If not
// it is sent.
func (s *Stream) endOpening(w *watcher, cause error) (waits bool) {
	i := slices.IndexFunc(s.openings, func(a answer) bool { return a.w == w })
	if i == 0 {
		s.hub.hasten(s)
		return false
	}
	a := &s.openings[i]
	a.ended, a.cause, a.first = true, cause, nil
	return true
}

// canceled says that a watcher has ended.
func (h *Hub) canceled(w *watcher, cause error) *item {
	it := newItem(nil, w.id, h.Shown())
	it.resp.Canceled = true
	if cause != nil {
		it.resp.CancelReason, it.cause, it.key, it.end = cause.Error(), cause, w.key, w.rangeEnd()
	}
	return it
}

// drop removes a watcher from everything but its stream's queue.
func (h *Hub) drop(w *watcher) {
	s := w.stream
	switch w.state {
	case synced:
		w.group.synced.remove(w)
	case lagging:
		h.stats.slow.Add(-1)
		s.mu.Lock()
		s.lagging = slices.DeleteFunc(s.lagging, func(o *watcher) bool { return o == w })
		s.mu.Unlock()
	case gone:
		return
	}
	w.state = gone
	h.leave(w.group)
	delete(s.watchers, w.id)
	h.stats.watchers.Add(-1)
	if h.limiter != nil {
		h.limiter.Leave(w.quotas)
	}
}

func newWatcher(s *Stream, r *pb.WatchCreateRequest) *watcher {
	w := &watcher{
		stream:   s,
		key:      r.Key,
		start:    r.StartRevision,
		prevKv:   r.PrevKv,
		fragment: r.Fragment,
		periodic: r.ProgressNotify,
		quiet:    true,
	}
	if len(w.key) == 0 {
		w.key = []byte{0}
	}
	switch {
	case len(r.RangeEnd) == 1 && r.RangeEnd[0] == 0:
		w.toEnd = true
	case len(r.RangeEnd) > 0:
		w.end = r.RangeEnd
	}
	for _, f := range r.Filters {
		switch f {
		case pb.WatchCreateRequest_NOPUT:
			w.noPut = true
		case pb.WatchCreateRequest_NODELETE:
			w.noDelete = true
		}
	}
	return w
}

// enter gives a watcher its user and id and counts it, or says why it can't be admitted: for lack of
// permission, as in etcd, also where the request is malformed.
func (s *Stream) enter(w *watcher, id int64) (err error) {
	w.user = s.user
	if err := s.hub.permitted(w); err != nil {
		return err
	}
	if err := s.assign(w, id); err != nil {
		return err
	}
	w.quotas, err = s.hub.charge(w.user, w.key, w.rangeEnd())
	return err
}

// assign gives a watcher the requested id, or the next free one for 0.
func (s *Stream) assign(w *watcher, id int64) error {
	if w.end != nil && bytes.Compare(w.key, w.end) >= 0 {
		return ErrEmptyRange
	}
	if id != 0 {
		if s.watchers[id] != nil {
			return ErrDuplicateID
		}
		w.id = id
		return nil
	}
	for s.watchers[s.nextID] != nil {
		s.nextID++
	}
	w.id = s.nextID
	s.nextID++
	return nil
}

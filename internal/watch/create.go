package watch

import (
	"bytes"
	"context"
	"errors"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
)

// Why a watcher was not created. Clients see these texts as cancel reasons;
// they are etcd's.
var (
	ErrEmptyRange  = errors.New("mvcc: watcher range is empty")
	ErrDuplicateID = errors.New("mvcc: duplicate watch ID provided on the WatchStream")
)

// noID is the watch id of responses that are about no one watcher.
const noID = -1

// maxControls is how many responses without events may wait in a stream before
// Admit holds its client up.
const maxControls = 64

// Admit waits until the stream can take one more request: a client that sends
// requests and reads nothing stops here.
func (s *Stream) Admit(ctx context.Context) error {
	for {
		s.mu.Lock()
		full, closed := s.controls >= maxControls, s.closed
		s.mu.Unlock()
		if closed {
			return ErrClosed
		}
		if !full {
			return nil
		}
		select {
		case <-s.drain:
		case <-s.done:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// Create starts a watcher. The answer, created or refused, comes through Recv
// before the first event. An empty key means the smallest one, as in etcd.
func (s *Stream) Create(r *pb.WatchCreateRequest) { s.CreateWith(r, nil) }

// CreateWith is Create for a watcher whose first event is known: an extension has
// answered the request. The event comes before all that the watcher finds itself.
func (s *Stream) CreateWith(r *pb.WatchCreateRequest, first *mvccpb.Event) {
	h := s.hub
	w := newWatcher(s, r)
	h.mu.Lock()
	defer h.mu.Unlock()
	if s.closed {
		return
	}
	if err := s.assign(w, r.WatchId); err != nil {
		s.refuse(err.Error())
		return
	}
	h.start(w, 0, first, true)
}

// start sets an admitted watcher going, and says where the server is.
func (h *Hub) start(w *watcher, after int64, first *mvccpb.Event, announce bool) (rev int64) {
	s := w.stream
	w.group = h.join(h.o.Parts(w.key, w.rangeEnd()))
	rev = h.Rev()
	if w.start <= 0 {
		// Now: after everything that this server has reached in any partition.
		w.start = max(rev, after) + 1
	}
	w.next = w.start
	s.watchers[w.id] = w
	h.stats.watchers.Add(1)

	if announce {
		it := newItem(w, w.id, rev)
		it.resp.Created = true
		s.control(it)
	}
	if first != nil {
		it := newItem(w, w.id, rev)
		it.resp.Events = []*mvccpb.Event{first}
		s.control(it)
	}
	if w.next > w.group.at {
		w.group.synced.add(w)
		return rev
	}
	w.state = lagging
	h.stats.slow.Add(1)
	s.addLagging(w)
	return rev
}

// Refuse answers a request to create a watcher with the reason why not.
func (s *Stream) Refuse(reason string) {
	s.hub.mu.Lock()
	defer s.hub.mu.Unlock()
	s.refuse(reason)
}

func (s *Stream) refuse(reason string) {
	it := newItem(nil, noID, s.hub.Rev())
	it.resp.Created, it.resp.Canceled, it.resp.CancelReason = true, true, reason
	s.control(it)
}

// Cancel ends a watcher. An id that isn't there is ignored, as in etcd. What
// was already queued for it still comes, then the answer, then nothing.
func (s *Stream) Cancel(id int64) {
	h := s.hub
	h.mu.Lock()
	defer h.mu.Unlock()
	w := s.watchers[id]
	if w == nil || s.closed {
		return
	}
	h.drop(w)
	it := newItem(nil, id, h.Rev())
	it.resp.Canceled = true
	s.control(it)
	s.reconsider()
}

// drop takes a watcher out of everything but its stream's queue.
func (h *Hub) drop(w *watcher) {
	s := w.stream
	switch w.state {
	case synced:
		w.group.synced.remove(w)
	case lagging:
		h.stats.slow.Add(-1)
		s.mu.Lock()
		for i, other := range s.lagging {
			if other == w {
				s.lagging = append(s.lagging[:i], s.lagging[i+1:]...)
				break
			}
		}
		s.mu.Unlock()
	case gone:
		return
	}
	w.state = gone
	h.leave(w.group)
	delete(s.watchers, w.id)
	h.stats.watchers.Add(-1)
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

// assign gives a watcher the id that was asked for, or the next free one for 0.
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

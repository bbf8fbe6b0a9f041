package sim

import (
	"math"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"

	stoapb "github.com/stoa-kv/stoa/api/stoa/v1"
	"github.com/stoa-kv/stoa/internal/apply"
	"github.com/stoa-kv/stoa/internal/command"
	"github.com/stoa-kv/stoa/internal/fault"
	"github.com/stoa-kv/stoa/internal/session"
	"github.com/stoa-kv/stoa/internal/watch"
)

// mergeBytes is little, so that watches have to wait for one that is behind.
const mergeBytes = 2 << 10

// sessionWatches are the watches of a session on a server: the ordered ones of one
// stream, the fast ones of another.
type sessionWatches struct {
	streams       map[uint64]*watch.Stream // by the number of the request
	ordered, fast *watch.Stream
	merge         session.Merge
	through       int64 // ordered events up to here are in merge or handed over
	collected     int64
	out           int64 // ordered events up to here are handed over
}

func (w *sessionWatches) init() {
	w.streams = map[uint64]*watch.Stream{}
	w.through, w.collected, w.out = math.MaxInt64, math.MaxInt64, math.MaxInt64
}

func (w *sessionWatches) close() {
	for _, s := range []*watch.Stream{w.ordered, w.fast} {
		if s != nil {
			s.Close()
		}
	}
}

func (h *sessionHost) stream(level stoapb.Level) *watch.Stream {
	w := &h.watches
	stir := func() { h.put(func(in *sessionInbox) { in.stirred = true }) }
	s := &w.ordered
	if level == stoapb.Level_FAST {
		s = &w.fast
	}
	if *s == nil {
		*s = h.l.hub.NewNotifiedStream(apply.Anonymous, stir)
	}
	return *s
}

func (h *sessionHost) planWatch(op *session.Op, r *session.Request) session.Plan {
	if p, handled := h.l.core.machine.PlanRead(command.Watch, r.Message, h.who); handled {
		h.plan = p
		return session.Plan{Class: session.Write, Parts: p.Parts}
	}
	op.Unseen = true
	return session.Plan{Class: session.Act}
}

// Act implements session.Host. Watches are opened when their reply leaves.
func (h *sessionHost) Act(op *session.Op) {
	r := op.Request.(*session.Request)
	if r.Kind != stoapb.Kind_CANCEL {
		return
	}
	id := uint64(r.Message.(*pb.WatchCancelRequest).GetWatchId())
	h.shut(id)
	op.Unseen, op.Revision = true, h.l.hub.Rev()
	r.Response = &pb.WatchResponse{WatchId: int64(id), Canceled: true}
}

// shut ends a watch, if there is one.
func (h *sessionHost) shut(id uint64) {
	if s := h.watches.streams[id]; s != nil {
		delete(h.watches.streams, id)
		h.watches.merge.Forget(id)
		s.Cancel(int64(id))
	}
}

// replyWatch opens a watch and says so, or why not.
func (h *sessionHost) replyWatch(op *session.Op, r *session.Request) {
	resp := &pb.WatchResponse{WatchId: int64(op.Seq), Created: true}
	req := r.Message.(*pb.WatchCreateRequest)
	fromNow := req.StartRevision == 0
	rev, err := h.open(op.Seq, r.Level, req)
	if err == nil && fromNow && h.overtaken(h.l.core, op) {
		h.shut(op.Seq)
		h.said = append(h.said, said{seq: op.Seq, err: fault.ReadOvertaken})
		return
	}
	if err != nil {
		resp.Canceled, resp.CancelReason = true, err.Error()
	}
	h.said = append(h.said, said{seq: op.Seq, rev: rev, response: resp})
}

func (h *sessionHost) open(seq uint64, level stoapb.Level, req *pb.WatchCreateRequest) (int64, error) {
	req.WatchId = int64(seq)
	s := h.stream(level)
	rev, err := s.Open(req, nil, h.order.Seen())
	if err == nil {
		h.watches.streams[seq] = s
		if s == h.watches.ordered {
			h.watches.out, h.watches.through = min(h.watches.out, req.StartRevision-1), 0
		}
	}
	return rev, err
}

// resume opens the watches that a session brings with it.
func (h *sessionHost) resume() {
	items := h.resumed
	h.resumed = nil
	for i := range items {
		op, r := &items[i].Op, &items[i].Request
		if _, err := h.open(op.Seq, r.Level, r.Message.(*pb.WatchCreateRequest)); err != nil {
			h.event(op.Seq, &pb.WatchResponse{Canceled: true, CancelReason: err.Error()})
		}
	}
}

func (h *sessionHost) event(id uint64, r *pb.WatchResponse) {
	h.said = append(h.said, said{seq: id, event: r})
}

// deliver hands over the events that have come. It returns true if there is more
// than goes out at once.
func (h *sessionHost) deliver() (more bool) {
	w := &h.watches
	for w.fast != nil {
		if h.Full() {
			return true
		}
		r, ok, err := w.fast.TryRecv()
		h.complain(err)
		if err != nil || !ok {
			break
		}
		if id, known := h.hears(r); known && (len(r.Events) > 0 || r.Canceled) {
			if r.Canceled {
				delete(w.streams, id)
			}
			h.event(id, r.WatchResponse)
		}
	}
	return w.ordered != nil && h.deliverOrdered()
}

func (h *sessionHost) deliverOrdered() (more bool) {
	w := &h.watches
	for {
		full := w.merge.Bytes() >= mergeBytes
		if full {
			w.through = min(w.ordered.Through(), w.collected)
		} else {
			w.through, w.collected = w.ordered.Collect(h.hear)
		}
		if !h.emit() {
			return true
		}
		r, ok, err := w.ordered.Behind()
		h.complain(err)
		if err != nil || !ok && !full {
			if rev := w.merge.First(); rev > 0 {
				w.ordered.Await(rev)
			}
			return false
		}
		if ok {
			h.hear(r)
		}
	}
}

// emit hands over, in their order, the events up to through.
func (h *sessionHost) emit() (all bool) {
	w := &h.watches
	through := w.through
	if h.l.sv.c.mutation.MergeWithoutWait {
		through = math.MaxInt64
	}
	for !h.Full() {
		id, r, ok := w.merge.Pop(through)
		if !ok {
			w.out = w.through
			return true
		}
		if w.streams[id] == nil {
			continue
		}
		if r.Canceled {
			delete(w.streams, id)
		}
		if rev := r.GetHeader().GetRevision(); len(r.Events) > 0 {
			h.order.Saw(rev)
			w.out = rev - 1
		}
		h.event(id, r)
	}
	return false
}

func (h *sessionHost) hears(r watch.Response) (id uint64, known bool) {
	id = uint64(r.WatchId)
	return id, h.watches.streams[id] != nil
}

func (h *sessionHost) hear(r watch.Response) {
	id, known := h.hears(r)
	switch {
	case !known:
	case r.Canceled:
		h.watches.merge.End(id, r.WatchResponse)
	default:
		h.watches.merge.Add(id, r.Events)
	}
}

func (h *sessionHost) complain(err error) {
	if err != nil {
		h.l.sv.c.fail("I4", "session %d on server %d: %v", h.id, h.l.sv.id, err)
	}
}

// Delivered implements session.Host.
func (h *sessionHost) Delivered(op *session.Op) bool {
	w := &h.watches
	if h.l.sv.c.mutation.ReplyBeforeEvents {
		return true
	}
	if w.ordered != nil && w.out < op.Revision {
		if h.deliverOrdered(); w.out < op.Revision {
			w.ordered.Await(op.Revision)
			return false
		}
	}
	if r := op.Request.(*session.Request); r.Kind != stoapb.Kind_PROGRESS || w.fast == nil {
		return true
	}
	reached := w.fast.Through() >= op.Revision
	if h.deliver() || !reached {
		w.fast.Await(op.Revision)
		return false
	}
	return true
}

package host

import (
	"cmp"
	"errors"
	"slices"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"

	stoapb "github.com/stoa-kv/stoa/api/stoa/v1"
	"github.com/stoa-kv/stoa/internal/apply"
	"github.com/stoa-kv/stoa/internal/fault"
	"github.com/stoa-kv/stoa/internal/placement"
	"github.com/stoa-kv/stoa/internal/session"
	"github.com/stoa-kv/stoa/internal/watch"
)

// watches are the watches of a session: the ordered ones of one stream, the fast
// ones of another.
type watches struct {
	streams       map[uint64]*watch.Stream // by the number of the request
	ordered, fast *watch.Stream            // nil until needed
	merge         session.Merge
	through       int64 // ordered events up to here are in merge or handed over
	collected     int64
	out           int64 // ordered events up to here are handed over
}

func (w *watches) init() {
	w.streams = map[uint64]*watch.Stream{}
	w.through, w.collected, w.out = everything, everything, everything
}

func (w *watches) close() {
	for _, s := range []*watch.Stream{w.ordered, w.fast} {
		if s != nil {
			s.Close()
		}
	}
}

// stream returns the stream for watches of a level.
func (d *driver) stream(level stoapb.Level) *watch.Stream {
	s := &d.watches.ordered
	if level == stoapb.Level_FAST {
		s = &d.watches.fast
	}
	if *s == nil {
		*s = d.server.Hub().NewNotifiedStream(cmp.Or(d.s.client, apply.Anonymous), func() {
			d.s.put(func(in *inbox) { in.stirred = true })
		})
		(*s).As(d.s.user)
	}
	return *s
}

// Act implements session.Host. Watches are opened when their reply leaves.
func (d *driver) Act(op *session.Op) {
	r := op.Request.(*session.Request)
	if r.Kind != stoapb.Kind_CANCEL {
		return
	}
	id := uint64(r.Message.(*pb.WatchCancelRequest).GetWatchId())
	d.shut(id)
	op.Revision = d.order.Seen() // it shows nothing
	r.Response = &pb.WatchResponse{WatchId: int64(id), Canceled: true}
}

// shut ends a watch, if there is one.
func (d *driver) shut(id uint64) {
	if s := d.watches.streams[id]; s != nil {
		delete(d.watches.streams, id)
		d.watches.merge.Forget(id)
		s.Cancel(int64(id))
	}
}

// replyWatch opens a watch and says so, or why not.
func (d *driver) replyWatch(op *session.Op, r *session.Request) {
	var first *mvccpb.Event
	if op.Err == nil {
		var err error
		if first, err = d.openWatch(op, r); elsewhere(err) {
			d.abandon(err)
			return
		}
	}
	d.s.sink.Reply(op)
	if first != nil {
		d.s.sink.Event(op.Seq, &pb.WatchResponse{WatchId: int64(op.Seq), Header: &pb.ResponseHeader{Revision: op.Revision}, Events: []*mvccpb.Event{first}})
	}
}

// openWatch opens a watch, and returns the event with which an extension has answered it, if one has. What its
// client is told is in op: that it is open, or ended at once because of the error.
func (d *driver) openWatch(op *session.Op, r *session.Request) (first *mvccpb.Event, err error) {
	if r.Response == nil && d.recall(d.server.State(), op, r) && op.Err != nil {
		return nil, nil
	}
	req := r.Message.(*pb.WatchCreateRequest)
	resp := &pb.WatchResponse{WatchId: int64(op.Seq), Created: true}
	if answer, ok := r.Response.(*pb.RangeResponse); ok {
		first = apply.WatchAnswer(req, answer)
		if len(answer.GetKvs()) > 0 { // which the session will come back for, on another stream
			resp.Events = []*mvccpb.Event{{Kv: &mvccpb.KeyValue{Key: req.Key}}}
		}
	}
	if req.GetStartRevision() > 0 {
		resp.Header = &pb.ResponseHeader{Revision: before(req, first)}
	}
	var rev int64
	if d.mayLack(op, req) {
		rev, err = d.openAgain(op, r.Level, req)
	} else {
		rev, err = d.open(op.Seq, r.Level, req)
	}
	if op.Err != nil {
		return nil, nil
	}
	if err != nil {
		first = nil
		resp.Canceled, resp.CancelReason = true, err.Error()
	}
	op.Revision, r.Response = rev, resp
	return first, err
}

// mayLack tells whether a watch could miss events of its session's own writes: those that were
// sent behind it and have taken effect before it is opened.
func (d *driver) mayLack(op *session.Op, req *pb.WatchCreateRequest) bool {
	return req.GetStartRevision() == 0 && d.sentBefore(op)
}

// openAgain opens a watch from now on that was sent before, or says in op why it has lost its
// place. It begins behind what all partitions show: of the session's writes up to there each is
// remembered here. Behind the latest revision of any partition one could still be on its way
// to another.
func (d *driver) openAgain(op *session.Op, level stoapb.Level, req *pb.WatchCreateRequest) (rev int64, err error) {
	rev = d.server.Hub().Shown()
	op.Err = d.overtaken(d.server.State(), op)
	if op.Err == nil && rev < d.order.Seen() {
		op.Err = fault.ReadOvertaken // events have told more since it was planned
	}
	if op.Err != nil {
		return 0, nil
	}
	req.StartRevision = rev + 1
	if at, err := d.open(op.Seq, level, req); err != nil {
		return at, err
	}
	return rev, nil
}

// before is the revision behind which the events of a watch begin that has been given a
// revision, by its client or by an extension: the client drops earlier ones as seen. An
// extension's first event can be older than what it makes the client wait for.
func before(req *pb.WatchCreateRequest, first *mvccpb.Event) int64 {
	from := req.GetStartRevision()
	if first != nil {
		from = min(from, first.GetKv().GetModRevision())
	}
	return from - 1
}

func (d *driver) open(seq uint64, level stoapb.Level, req *pb.WatchCreateRequest) (int64, error) {
	if req.GetStartRevision() < 0 {
		return 0, fault.Compacted
	}
	req.WatchId = int64(seq)
	s := d.stream(level)
	rev, err := s.Open(req, d.order.Seen())
	if err == nil {
		d.watches.streams[seq] = s
		if s == d.watches.ordered {
			d.watches.out, d.watches.through = min(d.watches.out, req.StartRevision-1), 0
		}
	}
	return rev, err
}

// forbidden reports whether a watch would be refused now for lack of a permission.
func (d *driver) forbidden(req *pb.WatchCreateRequest) bool {
	return d.server.Hub().Permits(d.s.user, req) != nil
}

// resume opens the watches that a session brings with it, all together, for their events have one order. If one is
// forbidden, they wait for what the leader knows: they were allowed elsewhere. It reports whether they are open.
func (d *driver) resume() bool {
	if d.asking {
		return false
	}
	if !d.asked && slices.ContainsFunc(d.resumed, func(it session.Item) bool { return d.forbidden(it.Message.(*pb.WatchCreateRequest)) }) {
		d.asking = true
		d.askRights(d.server.Now().Add(d.cfg.RequestTimeout))
		return false
	}
	d.reopen()
	return true
}

// askRights waits until this server has heard of all permissions that were granted before. It runs on any goroutine.
func (d *driver) askRights(until time.Time) {
	d.server.State().Replica.ReadPoint(placement.Of(0), func(err error) {
		if err != nil && d.server.Now().Before(until) {
			d.server.After(pauseBetween, func() { d.askRights(until) })
			return
		}
		d.s.put(func(in *inbox) { in.rights = true })
	})
}

func (d *driver) reopen() {
	items := d.resumed
	d.resumed = nil
	for i := range items {
		op, r := &items[i].Op, &items[i].Request
		d.oweWatch(r)
		_, err := d.open(op.Seq, r.Level, r.Message.(*pb.WatchCreateRequest))
		if elsewhere(err) {
			d.abandon(err)
			return
		}
		if err != nil {
			d.s.sink.Event(op.Seq, &pb.WatchResponse{WatchId: int64(op.Seq), Canceled: true, CancelReason: err.Error()})
		}
	}
}

// deliver hands over the events that have come. It returns true if there is more
// than goes out at once.
func (d *driver) deliver() (more bool) {
	w := &d.watches
	for w.fast != nil {
		if d.Full() {
			return true
		}
		r, ok, err := w.fast.TryRecv()
		if err != nil || !ok {
			d.complain(err)
			break
		}
		if id, known := d.hears(r); known && elsewhere(r.Cause) {
			d.abandon(r.Cause)
		} else if known && (len(r.Events) > 0 || r.Canceled) {
			if r.Canceled {
				delete(w.streams, id)
			}
			d.s.sink.Event(id, r.WatchResponse)
		}
	}
	return w.ordered != nil && d.deliverOrdered()
}

func (d *driver) deliverOrdered() (more bool) {
	w := &d.watches
	for {
		full := w.full(d.cfg.MergeBytes)
		if full {
			w.through = min(w.ordered.Through(), w.collected)
		} else {
			w.through, w.collected = w.ordered.Collect(d.hear)
		}
		if !d.emit() {
			return true
		}
		r, ok, err := w.ordered.Behind()
		if err != nil || !ok && (!full || w.full(d.cfg.MergeBytes)) {
			d.complain(err)
			if rev := w.merge.First(); rev > 0 {
				w.ordered.Await(rev)
			}
			return false
		}
		if ok {
			d.hear(r)
		}
	}
}

// full reports whether no more events are to be collected before some have been handed
// over. If only the events that have not been collected hold these up, they are.
func (w *watches) full(most int) bool {
	if w.merge.Bytes() < most {
		return false
	}
	first := w.merge.First()
	return first <= w.collected || first > w.ordered.Through()
}

// emit hands over, in their order, the events up to through.
func (d *driver) emit() (all bool) {
	w := &d.watches
	for !d.Full() {
		id, r, ok := w.merge.Pop(w.through)
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
		r.WatchId = int64(id)
		if rev := r.GetHeader().GetRevision(); len(r.Events) > 0 {
			d.order.Saw(rev)
			w.out = rev - 1
		}
		d.s.sink.Event(id, r)
	}
	return false
}

func (d *driver) hears(r watch.Response) (id uint64, known bool) {
	id = uint64(r.WatchId)
	return id, d.watches.streams[id] != nil
}

// hear takes in what an ordered watch has to say.
func (d *driver) hear(r watch.Response) {
	id, known := d.hears(r)
	switch {
	case !known:
	case elsewhere(r.Cause):
		d.abandon(r.Cause)
	case r.Canceled:
		d.watches.merge.End(id, r.WatchResponse)
	default:
		d.watches.merge.Add(id, r.Events)
	}
}

func (d *driver) complain(err error) {
	if err != nil && !errors.Is(err, fault.Fenced) && !errors.Is(err, fault.Stopped) { // which end the session
		d.server.Unreadable(d.s.id, err)
	}
}

// Ready implements session.Host.
func (d *driver) Ready(op *session.Op) bool {
	return d.covers(op.Seq) && (!op.Reflects || d.delivered(op))
}

// delivered tells whether all ordered events up to the revision of a reply have been
// handed over, and for PROGRESS the others too.
func (d *driver) delivered(op *session.Op) bool {
	w := &d.watches
	if w.ordered != nil && w.out < op.Revision {
		if d.deliverOrdered(); w.out < op.Revision {
			// Behind what has not been collected, for too much has, it waits for the first of that, as deliverOrdered does.
			if w.collected >= op.Revision || !w.full(d.cfg.MergeBytes) {
				w.ordered.Await(op.Revision)
			}
			return false
		}
	}
	if r := op.Request.(*session.Request); r.Kind != stoapb.Kind_PROGRESS || w.fast == nil {
		return true
	}
	reached := w.fast.Through() >= op.Revision
	if d.deliver() || !reached {
		w.fast.Await(op.Revision)
		return false
	}
	return true
}

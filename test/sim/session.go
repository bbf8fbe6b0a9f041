package sim

import (
	"errors"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/protobuf/proto"

	stoapb "github.com/stoa-kv/stoa/api/stoa/v1"
	"github.com/stoa-kv/stoa/internal/apply"
	"github.com/stoa-kv/stoa/internal/fault"
	"github.com/stoa-kv/stoa/internal/session"
)

// In every fourth run clients with sessions take part. The order of a session is
// package session's; sessionHost drives it as node's session*.go do, with the loop
// in the place of goroutines.

// sessionHost is a session on a server.
type sessionHost struct {
	l     *life
	id    int64
	ttl   time.Duration
	out   *sessionStream
	order *session.Session

	in      sessionInbox
	driven  bool
	ended   bool
	leaving bool
	closing bool
	renewed time.Duration

	before   uint64 // requests up to here may have come over another stream
	answered uint64
	lost     error         // why the order has been lost
	moved    time.Duration // since when writes come back to be planned anew, 0: they don't
	plan     apply.Plan
	flight   *flight
	reads    sessionReads
	resumed  []session.Item // watches to open first
	watches  sessionWatches
	said     []said // not sent yet
}

// sessionInbox is what has come for a session since its last turn.
type sessionInbox struct {
	batches  [][]session.Item
	answered uint64
	landed   []*flight
	arrived  []arrival
	stirred  bool
}

func (in *sessionInbox) empty() bool {
	return len(in.batches) == 0 && len(in.landed) == 0 && len(in.arrived) == 0 && !in.stirred
}

// said is a word to the client: a reply, events, or with end the last.
type said struct {
	seq      uint64
	rev      int64
	response proto.Message
	err      error
	end      bool
	event    *pb.WatchResponse // of the watch that request seq created
}

// gatherReplies is how many go out in one message.
const gatherReplies = 5

// openSession opens a session on this server, or takes one up again.
func (l *life) openSession(st *sessionStream, id int64, ttl int64, fresh bool, next, before uint64, seen int64, watches []session.Item, done func(*sessionHost, proto.Message, error)) {
	opened := func(m proto.Message, err error) {
		switch {
		case err != nil:
			done(nil, nil, err)
			return
		case st.closed:
			return
		}
		h := &sessionHost{l: l, id: id, ttl: time.Duration(ttl) * time.Second, out: st, renewed: l.sv.c.loop.now}
		h.order, h.before = session.New(h, next, seen), before
		h.resumed = watches
		h.watches.init()
		if before := l.sessions[id]; before != nil {
			before.end(fault.SessionTaken)
		}
		l.sessions[id] = h
		done(h, m, nil)
		h.put(func(in *sessionInbox) { in.stirred = true })
	}
	if fresh {
		l.grantSession(id, ttl, opened)
		return
	}
	l.renewSession(id, opened)
}

// revoked ends the session whose lease has ended here.
func (l *life) revoked(id int64) {
	if h := l.sessions[id]; h != nil && !h.leaving {
		l.after(0, "session revoked", uint64(id), func() { h.end(fault.SessionGone) })
	}
}

// put changes the inbox and plans a turn.
func (h *sessionHost) put(change func(*sessionInbox)) {
	change(&h.in)
	if h.driven || h.ended {
		return
	}
	h.driven = true
	h.l.after(h.l.between(0, 100*time.Microsecond), "session", uint64(h.id), h.drive)
}

func (h *sessionHost) drive() {
	for !h.ended && !h.in.empty() {
		in := h.in
		h.in = sessionInbox{answered: in.answered}
		h.turn(&in)
	}
	h.driven = false
}

// take takes the requests of one message.
func (h *sessionHost) take(items []session.Item, answered uint64) {
	if h.ended {
		return
	}
	h.renew()
	h.put(func(in *sessionInbox) {
		in.batches = append(in.batches, items)
		in.answered = max(in.answered, answered)
	})
}

// renew prolongs the lease, now and then: the client has been heard of.
func (h *sessionHost) renew() {
	now := h.l.sv.c.loop.now
	if now-h.renewed < h.ttl/4 {
		return
	}
	h.renewed = now
	h.l.renewSession(h.id, func(_ proto.Message, err error) {
		if errors.Is(err, fault.LeaseNotFound) {
			h.end(fault.SessionGone)
		}
	})
}

// end ends the session on this server. What is under way may take effect.
func (h *sessionHost) end(err error) {
	if h.ended {
		return
	}
	h.ended = true
	if h.l.sessions[h.id] == h {
		delete(h.l.sessions, h.id)
	}
	h.l.sv.c.loop.printf("session %d ends on server %d: %v", h.id, h.l.sv.id, err)
	h.watches.close()
	h.out.down([]said{{end: true, err: err}})
}

// turn takes what has come, and does all that can be done.
func (h *sessionHost) turn(in *sessionInbox) {
	h.answered = max(h.answered, in.answered)
	for _, f := range in.landed {
		h.land(f)
	}
	for _, a := range in.arrived {
		h.arrive(a)
	}
	h.resume()
	for _, batch := range in.batches {
		for i := range batch {
			h.accept(&batch[i].Op)
		}
	}
	for {
		late := h.deliver()
		more := h.order.Advance()
		h.launch()
		h.flush()
		switch {
		case h.closing:
			h.end(nil)
			return
		case h.order.Ended():
			h.end(h.why())
			return
		case !late && !more:
			return
		}
	}
}

func (h *sessionHost) why() error {
	if h.lost != nil {
		return h.lost
	}
	return fault.SessionGap
}

func (h *sessionHost) flush() {
	if len(h.said) > 0 {
		h.out.down(h.said)
		h.said = nil
	}
}

// accept takes a request in; a fast read is answered at once.
func (h *sessionHost) accept(op *session.Op) {
	r := op.Request.(*session.Request)
	if r.Level == stoapb.Level_FAST || r.Level == stoapb.Level_CAUSAL && h.l.sv.c.mutation.ReadAhead {
		op.Done = h.readNow(op, r)
	}
	h.order.Take(op)
}

// Full implements session.Host.
func (h *sessionHost) Full() bool { return len(h.said) >= gatherReplies }

// Reply implements session.Host.
func (h *sessionHost) Reply(op *session.Op) {
	r := op.Request.(*session.Request)
	w := said{seq: op.Seq, rev: op.Revision, response: r.Response, err: op.Err}
	head := &pb.ResponseHeader{Revision: op.Revision}
	switch {
	case r.Kind == stoapb.Kind_WATCH:
		h.replyWatch(op, r)
		return
	case r.Kind == stoapb.Kind_CLOSE:
		h.closing = true
		w.response = nil
	case op.Err != nil:
	case r.Kind == stoapb.Kind_PUT && r.Response == nil:
		w.response = &pb.PutResponse{Header: head}
	case r.Kind == stoapb.Kind_RANGE && r.Message == nil:
		resp := &pb.RangeResponse{Header: head}
		if r.Kv != nil {
			resp.Kvs, resp.Count = append(resp.Kvs, r.Kv), 1
		}
		w.response = resp
	}
	h.said = append(h.said, w)
}

package sim

import (
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"

	stoapb "github.com/stoa-kv/stoa/api/stoa/v1"
	"github.com/stoa-kv/stoa/internal/session"
)

// sessionWatch is a watch of a session, as its client knows it.
type sessionWatch struct {
	*watched
	seq   uint64
	level stoapb.Level
	sight *sight  // of a user with few rights
	asked *asking // that an extension has answered with what it hands over, which comes next; nil: nothing
}

// watching draws a request that has to do with watches. Behind one that opens a watch
// there may be a read, which must show all that the watch begins behind.
func (cl *sessionClient) watching() []*asking {
	c, s := cl.c, cl.present
	n := c.loop.rng.IntN(10)
	switch {
	case n < 2 && len(s.watches) > 0:
		id := int64(pick(c.loop, s.watches).seq)
		return []*asking{{op: &op{req: &pb.WatchCancelRequest{WatchId: id}}, kind: stoapb.Kind_CANCEL}}
	case n < 6 || len(s.watches) >= 3:
		return []*asking{{op: &op{req: &pb.WatchProgressRequest{}, strict: true}, kind: pick(c.loop, []stoapb.Kind{stoapb.Kind_PROGRESS, stoapb.Kind_SYNC})}}
	}
	d := (&watcher{c: c, who: s.who}).draw()
	all := []*asking{{
		op:    &op{req: &pb.WatchCreateRequest{Key: d.key, RangeEnd: d.end, StartRevision: d.start, PrevKv: d.prevKv}},
		kind:  stoapb.Kind_WATCH,
		level: pick(c.loop, []stoapb.Level{stoapb.Level_STRICT, stoapb.Level_CAUSAL, stoapb.Level_FAST}),
	}}
	if c.loop.chance(2) {
		all = append(all, c.causally())
	}
	return all
}

// resumed are the watches that a session brings to another server. Those whose events have one order go on behind what
// any of them has shown: what was hidden from one comes no more.
func (s *sessionPast) resumed(c *cluster) []session.Item {
	items := session.NewItems(len(s.watches))
	for i, w := range s.watches {
		it := &items[i]
		it.Seq, it.Kind, it.Level = w.seq, stoapb.Kind_WATCH, w.level
		from := w.next
		if w.level != stoapb.Level_FAST && (c.has.hides || c.has.waits) {
			from = max(from, s.ordered)
		}
		it.Message = &pb.WatchCreateRequest{Key: w.key, RangeEnd: w.end, StartRevision: from, PrevKv: w.prevKv}
	}
	return items
}

// watchReply takes the reply to a request that has to do with watches.
func (cl *sessionClient) watchReply(a *asking, w *said) {
	c, s, rev := cl.c, cl.present, w.rev
	switch r := a.req.(type) {
	case *pb.WatchCreateRequest:
		g := cl.sight(r)
		if resp := w.response.(*pb.WatchResponse); resp.Canceled {
			cl.forbidden(a, g, resp)
			return
		}
		if g != nil {
			c.steward.begun(a, g)
		}
		d := &watched{w: &watcher{c: c, id: cl.id, who: s.who}, key: r.Key, end: r.RangeEnd, prevKv: r.PrevKv, created: true, start: r.StartRevision}
		if d.start == 0 {
			d.start, a.rev = rev+1, rev
			if h := w.response.(*pb.WatchResponse).Header; h != nil { // behind the call of an extension, which answered nothing
				d.start = h.Revision + 1
			}
			c.see(rev)
		}
		var asked *asking
		if a.who != "" && cl.asksFor(a, d, w.response.(*pb.WatchResponse)) {
			asked = a
		}
		d.next = d.start
		if a.level != stoapb.Level_FAST {
			s.ordered = min(s.ordered, d.start-1)
			s.shown, s.seen = max(s.shown, rev), max(s.seen, rev)
		}
		s.watches = append(s.watches, &sessionWatch{watched: d, seq: uint64(s.replied), level: a.level, sight: g, asked: asked})
	case *pb.WatchCancelRequest:
		cl.unwatch(uint64(r.WatchId))
	case *pb.WatchProgressRequest:
		if rev < max(a.floor, a.seen) {
			c.fail("I1", "%s is answered at revision %d, after a client was shown revision %d", a, rev, max(a.floor, a.seen))
		}
		s.shown, s.seen = max(s.shown, rev), max(s.seen, rev)
		c.see(rev)
		cl.reflects(rev, a.kind == stoapb.Kind_PROGRESS)
	}
}

// reflects notes that no event at or below a revision is still to come.
func (cl *sessionClient) reflects(rev int64, all bool) {
	for _, w := range cl.present.watches {
		if all || w.level != stoapb.Level_FAST {
			w.next = max(w.next, rev+1)
		}
	}
}

// event takes events: after replies that don't reflect them, in the order of all
// ordered watches.
func (cl *sessionClient) event(w *said) {
	c, s := cl.c, cl.present
	d := s.watch(w.seq)
	switch {
	case d == nil:
		c.fail("I4", "session %d gets events of watch %d, which it doesn't have", s.id, w.seq)
		return
	case d.asked != nil:
		cl.handedOverTo(d, w.event)
		return
	case w.event.Canceled && (s.term != nil || s.few != nil) && w.event.CompactRevision == 0:
		cl.forbidden(d, d.sight, w.event)
		d.next = d.start // what comes behind the user's right, no reply said
		for _, e := range d.events {
			d.next = e.Kv.ModRevision + 1
		}
		cl.unwatch(w.seq)
		return
	case w.event.Canceled:
		if at := w.event.CompactRevision; at == 0 || d.next > at || !c.mayBeCompacted(at) {
			c.fail("I4", "%s, which is at revision %d, is canceled: %v", d, d.next, w.event)
		}
		cl.unwatch(w.seq)
		return
	}
	c.loop.note(w.seq, uint64(w.event.Header.GetRevision()), uint64(len(w.event.Events)))
	c.loop.printf("session %d: %d events of watch %d to revision %d", s.id, len(w.event.Events), w.seq, w.event.Header.GetRevision())
	first, last := w.event.Events[0].Kv.ModRevision, w.event.Events[len(w.event.Events)-1].Kv.ModRevision
	cl.permitted(d, w.event)
	if d.take(w.event); d.level == stoapb.Level_FAST {
		return
	}
	if first < s.ordered {
		c.fail("I4", "session %d: %s gets an event of revision %d after others got one of %d", s.id, d, first, s.ordered)
	}
	s.ordered, s.shown = last, max(s.shown, last)
}

// forbidden makes sure that a watch is refused or canceled only if its user's right may be gone.
func (cl *sessionClient) forbidden(what any, g *sight, r *pb.WatchResponse) {
	if g != nil {
		cl.c.steward.ended(what, g, r)
		return
	}
	if t := cl.present.term; t == nil || t.asked == 0 {
		cl.c.fail("users", "session %d: %s is canceled, and nobody has wanted that: %s", cl.present.id, what, r.CancelReason)
	}
}

// permitted makes sure that events are of the time in which the user had its right.
func (cl *sessionClient) permitted(d *sessionWatch, r *pb.WatchResponse) {
	if d.sight != nil {
		cl.c.steward.seen(d, d.sight, cl.stream.life, r)
	}
	if t := cl.present.term; t != nil {
		cl.c.stats.UserEvents += len(r.Events)
		cl.c.inTime(t, d, r)
	}
}

func (s *sessionPast) watch(seq uint64) *sessionWatch {
	for _, w := range s.watches {
		if w.seq == seq {
			return w
		}
	}
	return nil
}

// unwatch removes a watch; its events will be checked.
func (cl *sessionClient) unwatch(seq uint64) {
	s := cl.present
	for i, w := range s.watches {
		if w.seq == seq {
			cl.c.finished = append(cl.c.finished, w.watched)
			s.watches = append(s.watches[:i], s.watches[i+1:]...)
			return
		}
	}
}

// watchesAt returns a watch of a session that doesn't know that it is at a revision.
// Clients ask for progress at the end.
func (c *cluster) sessionWatchesAt(rev int64) *sessionWatch {
	for _, cl := range c.sessions {
		for _, w := range cl.present.watches {
			if w.next <= rev {
				return w
			}
		}
	}
	return nil
}

// reflecting says that a reply comes after the events of what it shows.
func (a *asking) reflecting() bool {
	if r, is := a.req.(*pb.PutRequest); is {
		return r.PrevKv
	}
	return !a.reads() || a.level != stoapb.Level_FAST
}

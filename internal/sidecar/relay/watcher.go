package relay

import (
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
)

// Watcher is one watcher of a local client.
type Watcher struct {
	stream             *Stream
	span               *span
	id                 int64
	periodic, fragment bool

	opened bool
	gone   bool
	ready  bool // is in Stream.ready

	start int64
	next  int64 // the lowest revision that it may still have to get
	pos   int   // the number of the entry of its span to look at next
	high  int64 // the highest revision that was sent

	behind  bool    // it catches up
	turn    int     // counts how often it did
	fed     []entry // then: what it has got
	partial []event
	resume  func() // then: see Caught
}

// begin starts a watcher whose creation is answered.
func (w *Watcher) begin(o *Opening) {
	w.opened, w.start = true, o.start
	if w.start == 0 {
		w.start = o.rev + 1
	}
	w.next = w.start
	w.pos = -1
	if !o.compacted {
		w.join()
	}
	w.stream.postpone(w)
	w.stir()
}

// join lets a watcher follow its span, if that has all that it needs.
func (w *Watcher) join() bool {
	if !w.span.open && !w.span.ended || w.next <= w.span.floor {
		return false
	}
	w.pos = w.span.seek(w.next)
	return true
}

// lost reports whether it has to catch up.
func (w *Watcher) lost() bool {
	return w.opened && !w.behind && w.pos < w.span.base && (w.span.open || w.span.ended) && (w.pos < 0 || !w.join())
}

func (w *Watcher) stir() {
	if w.opened && !w.ready && !w.gone {
		w.ready = true
		w.stream.ready = append(w.stream.ready, w)
		w.stream.ring()
	}
}

// drop removes a watcher from everything.
func (w *Watcher) drop() {
	if w.gone {
		return
	}
	w.gone = true
	delete(w.stream.watchers, w.id)
	delete(w.span.watchers, w)
	w.span.hub.release(w.span)
	w.drained()
}

// batch is what a response tells.
type batch struct {
	rev    int64
	events []event // none: progress
	bytes  int
}

// A reader that is this many entries behind gets several in a response, up to so many events and
// bytes.
const (
	gatherFrom  = 16
	gatherMax   = 512
	gatherBytes = 1 << 20
)

// take is what comes next, at or below a revision.
func (w *Watcher) take(limit int64) (b batch, ok bool) {
	if w.behind {
		return w.takeFed(limit)
	}
	s := w.span
	if w.pos < s.base {
		return b, false // until the span is open again
	}
	gather := s.tail()-w.pos >= gatherFrom
	for ; w.pos < s.tail(); w.pos++ {
		e := &s.recent[w.pos-s.base]
		if e.rev > limit || b.full(e) {
			return w.sent(b)
		}
		switch {
		case len(e.events) > 0 && e.rev >= w.next:
			b.add(e)
			w.next = e.rev + 1
		case len(e.events) == 0 && w.periodic && len(b.events) == 0 && e.rev >= max(w.start-1, w.high):
			w.pos++
			b.rev, w.high = e.rev, e.rev
			return b, true
		}
		if len(b.events) > 0 && !gather {
			w.pos++
			return w.sent(b)
		}
	}
	if s.open {
		w.next = max(w.next, s.through()+1)
	}
	if s.ended && len(b.events) == 0 {
		w.end(answer{rev: s.hub.known, reason: s.reason})
	}
	return w.sent(b)
}

func (b *batch) full(e *entry) bool {
	return len(b.events) > 0 && (len(b.events)+len(e.events) > gatherMax || b.bytes+e.bytes > gatherBytes)
}

func (b *batch) add(e *entry) {
	b.rev, b.bytes = e.rev, b.bytes+e.bytes
	if len(b.events) == 0 {
		b.events = e.events[:len(e.events):len(e.events)]
		return
	}
	b.events = append(b.events, e.events...)
}

func (w *Watcher) sent(b batch) (batch, bool) {
	if len(b.events) == 0 {
		return b, false
	}
	w.high = max(w.high, b.rev)
	return b, true
}

// end cancels a watcher, and says why.
func (w *Watcher) end(a answer) {
	a.id, a.canceled = w.id, true
	w.drop()
	w.stream.control(a)
}

// through reports whether it has got everything at or below a revision.
func (w *Watcher) through(rev int64) bool {
	switch s := w.span; {
	case !w.opened:
		return false
	case w.behind:
		return w.next > rev || len(w.fed) > 0 && w.fed[0].rev > rev
	case w.next > rev:
		return true
	default:
		return s.open && s.through() >= rev && w.pos >= s.base && (w.pos == s.tail() || s.recent[w.pos-s.base].rev > rev)
	}
}

// Request is how a watcher that is behind is created upstream.
func (w *Watcher) Request() *pb.WatchCreateRequest {
	r := w.span.key.request()
	r.StartRevision, r.Fragment = w.next, true
	w.partial = nil
	return r
}

// CatchUp begins to feed a watcher that Next has returned: resume is called when it is Hungry
// again, or no longer Behind. The turn is for Behind and Feed.
func (w *Watcher) CatchUp(resume func()) (turn int) {
	w.resume = resume
	w.turn++
	return w.turn
}

// Behind reports whether a watcher needs Feed, still in that turn.
func (w *Watcher) Behind(turn int) bool { return w.behind && !w.gone && turn == w.turn }

// Hungry reports whether all that was fed was sent.
func (w *Watcher) Hungry() bool { return len(w.fed) == 0 }

// Whole reports whether no fragments of a response wait for the last one.
func (w *Watcher) Whole() bool { return len(w.partial) == 0 }

// Feed takes a response of the watcher that was created by Request, while it is Hungry. again: the
// stream has to be opened again.
func (w *Watcher) Feed(turn int, r *Response) (again bool) {
	h := w.span.hub
	switch {
	case !w.Behind(turn):
	case r.Canceled && Renew(r.Reason):
		return true
	case r.Canceled:
		w.end(answer{rev: r.Header.Revision, compacted: r.Compacted, reason: r.Reason})
	case r.Created:
	case len(r.events) == 0:
		h.known = max(h.known, r.Header.Revision)
		w.next = max(w.next, r.Header.Revision+1)
		w.caughtUp()
	default:
		w.partial = append(w.partial, r.events...)
		if !r.partial {
			w.fed, w.partial = entries(w.partial), nil
			w.stir()
		}
	}
	return false
}

func (w *Watcher) takeFed(limit int64) (b batch, ok bool) {
	for len(w.fed) > 0 && w.fed[0].rev <= limit && !b.full(&w.fed[0]) {
		if e := &w.fed[0]; e.rev >= w.next {
			b.add(e)
			w.next = e.rev + 1
		}
		w.fed = w.fed[1:]
	}
	if len(w.fed) == 0 {
		w.fed = nil
		w.caughtUp()
	}
	return w.sent(b)
}

// caughtUp lets a watcher follow its span if it has reached that; else more has to be fed.
func (w *Watcher) caughtUp() {
	if w.join() {
		w.behind = false
		w.stir()
	}
	if w.stream.fence > 0 {
		w.stream.ring()
	}
	if w.stream.owed {
		w.stream.hub.askProgress()
	}
	w.drained()
}

func (w *Watcher) drained() {
	if w.resume != nil {
		w.resume()
	}
}

// Renew reports whether a watch was refused for a token that another one can replace: then
// etcd's clients open the stream again.
func Renew(reason string) bool {
	return reason == rpctypes.ErrGRPCInvalidAuthToken.Error() || reason == rpctypes.ErrGRPCAuthOldRevision.Error()
}

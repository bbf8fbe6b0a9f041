package relay

import (
	"math"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
)

// Reasons for which a watcher is not created; they are etcd's.
const (
	emptyRange  = "mvcc: watcher range is empty"
	duplicateID = "mvcc: duplicate watch ID provided on the WatchStream"
)

// tooMany is the reason for which a watcher beyond Options.Watchers isn't created.
const tooMany = "stoa sidecar: too many watches on this stream"

// maxRange bounds the two ends of a watcher's range, in bytes. A member ends a stream that brings it a request above its limit, which is never
// below 512 KiB, and this one is of all watchers.
const maxRange = 511 << 10

// tooLong is the reason for which a watcher beyond it isn't created.
const tooLong = "stoa sidecar: the keys of a watch are longer than 511 KiB"

// maxControls is the number of requests without an answer that a stream takes.
const maxControls = 64

// Stream is a local client's stream.
type Stream struct {
	hub    *Hub
	wake   func() // there may be something for Next
	failed error

	watchers map[int64]*Watcher // those being opened, too
	nextID   int64
	openings []*Opening // in the order of the requests
	controls []answer
	rest     [][]byte // fragments to be sent next
	ready    []*Watcher

	owed  bool  // progress was asked for
	wants int   // the request for progress to the member that has to be answered for it
	fence int64 // progress to be told once all watchers have got everything through it; 0: none
	told  int64 // the latest
}

// Open begins a stream. wake is called whenever Next may have something.
func (h *Hub) Open(wake func()) *Stream {
	st := &Stream{hub: h, wake: wake, watchers: map[int64]*Watcher{}}
	h.streams[st] = struct{}{}
	return st
}

// Close ends a stream and its watchers.
func (st *Stream) Close() {
	delete(st.hub.streams, st)
	for _, o := range st.openings {
		o.gone = true
		o.leave()
	}
	for _, w := range st.watchers {
		w.drop()
	}
	st.openings = nil
}

func (st *Stream) ring() { st.wake() }

// Full reports whether the client has to read before it may ask for more.
func (st *Stream) Full() bool { return len(st.controls)+len(st.openings) >= maxControls }

// Opening is a request to create a watcher, until it is answered.
type Opening struct {
	stream    *Stream
	w         *Watcher
	span      *span
	start     int64
	refused   string
	ready     bool // a member has answered for the range, or need not
	gone      bool
	cancelled bool // by the client

	answered  bool
	rev       int64
	compacted bool
}

// Create asks for a watcher. The revision at which it is opened comes by Answered.
func (st *Stream) Create(r *pb.WatchCreateRequest) *Opening {
	o := &Opening{stream: st, start: r.StartRevision}
	st.openings = append(st.openings, o)
	k := st.hub.keyOf(r)
	switch {
	case r.StartRevision < 0:
		o.refused = rpctypes.ErrCompacted.Error()
	case k.empty():
		o.refused = emptyRange
	case len(k.key)+len(k.end) > maxRange:
		o.refused = tooLong
	case r.WatchId != 0 && st.watchers[r.WatchId] != nil:
		o.refused = duplicateID
	case st.hub.o.Watchers > 0 && len(st.watchers) >= st.hub.o.Watchers:
		o.refused = tooMany
	}
	if o.refused != "" {
		o.ready = true
		return o
	}
	o.w = &Watcher{stream: st, id: st.id(r.WatchId), periodic: r.ProgressNotify, fragment: r.Fragment}
	st.watchers[o.w.id] = o.w
	o.span = st.hub.span(k)
	if o.ready = o.span.open; !o.ready {
		o.span.openings = append(o.span.openings, o)
	}
	o.w.span = o.span
	o.span.watchers[o.w] = struct{}{} // so that the span stays
	return o
}

// id is the one that a client asks for, or the next free one for 0.
func (st *Stream) id(asked int64) int64 {
	if asked != 0 {
		return asked
	}
	for st.watchers[st.nextID] != nil {
		st.nextID++
	}
	st.nextID++
	return st.nextID - 1
}

// Answered gives the cluster's revision at a time after Create: a watcher without a start
// revision begins after it. compacted: so is the start revision.
func (o *Opening) Answered(rev int64, compacted bool) {
	if o.gone {
		return
	}
	o.answered, o.rev, o.compacted = true, rev, compacted
	o.stream.hub.known = max(o.stream.hub.known, rev)
	o.stream.settle()
}

// leave has the span of a request that isn't answered any more forget it.
func (o *Opening) leave() {
	if o.span == nil {
		return
	}
	for i, other := range o.span.openings {
		if other == o {
			o.span.openings = append(o.span.openings[:i], o.span.openings[i+1:]...)
			break
		}
	}
}

// settle answers the requests that can be, in their order.
func (st *Stream) settle() {
	for len(st.openings) > 0 && st.openings[0].ready && st.openings[0].answered {
		o := st.openings[0]
		st.openings = st.openings[1:]
		o.gone = true
		if o.refused != "" {
			if o.w != nil {
				o.w.drop()
			}
			st.control(answer{id: everyWatcher, rev: o.rev, created: true, canceled: true, reason: o.refused})
			continue
		}
		st.control(answer{id: o.w.id, rev: o.rev, created: true})
		o.w.begin(o)
		if o.cancelled {
			st.Cancel(o.w.id)
		}
	}
}

func (st *Stream) control(a answer) {
	st.controls = append(st.controls, a)
	st.ring()
}

// Cancel ends a watcher. An unknown id is ignored, as in etcd.
func (st *Stream) Cancel(id int64) {
	w := st.watchers[id]
	if w == nil {
		return
	}
	for _, o := range st.openings {
		if o.w == w {
			o.cancelled = true
			return
		}
	}
	w.drop()
	st.control(answer{id: id, rev: st.hub.known, canceled: true})
}

// Next is the next response for the client, nil for none. behind is a watcher that has to catch
// up, by Feed. An error ends the stream.
func (st *Stream) Next() (message []byte, behind *Watcher, err error) {
	switch {
	case st.failed != nil:
		return nil, nil, st.failed
	case len(st.rest) > 0:
		message, st.rest = st.rest[0], st.rest[1:]
		return message, nil, nil
	case len(st.controls) > 0:
		a := st.controls[0]
		if st.controls = st.controls[1:]; len(st.controls) == 0 {
			st.controls = nil
		}
		return st.hub.begin(a, 0), nil, nil
	}
	limit := int64(math.MaxInt64)
	if st.fence > 0 {
		limit = st.fence
	}
	for len(st.ready) > 0 {
		w := st.ready[0]
		st.ready = st.ready[1:]
		w.ready = false
		if w.gone {
			continue
		}
		if w.lost() {
			w.behind = true
			return nil, w, nil
		}
		if got, ok := w.take(limit); ok {
			w.stir() // there may be more, in its turn
			return st.compose(w, got), nil, nil
		}
		if len(st.controls) > 0 { // it has been cancelled
			return st.Next()
		}
	}
	if st.fence > 0 && st.level() {
		a := answer{id: everyWatcher, rev: st.fence}
		st.told, st.fence = st.fence, 0
		for _, w := range st.watchers {
			w.stir()
		}
		return st.hub.begin(a, 0), nil, nil
	}
	return nil, nil, nil
}

func (st *Stream) compose(w *Watcher, got batch) []byte {
	limit := 0
	if w.fragment {
		limit = st.hub.o.Fragment
	}
	all := st.hub.pieces(answer{id: w.id, rev: got.rev}, got.events, got.bytes, limit)
	st.rest = all[1:]
	return all[0]
}

// level reports whether all watchers have got everything through the fence.
func (st *Stream) level() bool {
	for _, w := range st.watchers {
		if !w.through(st.fence) {
			return false
		}
	}
	return true
}

// Fail has Next return an error.
func (st *Stream) Fail(err error) {
	st.failed = err
	st.ring()
}

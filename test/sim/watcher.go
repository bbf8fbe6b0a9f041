package sim

import (
	"fmt"
	"math"
	"slices"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"

	"github.com/stoa-kv/stoa/internal/watch"
)

// watcher is a client with a watch stream: one to three watches, which it
// resumes on another server when its server ends.
type watcher struct {
	c       *cluster
	id      int
	who     string // the client, where extensions are to know it
	life    *life
	stream  *watch.Stream
	pace    time.Duration // how long it takes to read
	polling bool
	watches []*watched
	waits   bool // for one event, of which an extension has told it
	gone    bool // it is not needed any more
}

// watched is one watch of a stream, from its first creation on.
type watched struct {
	w        *watcher
	key, end []byte
	prevKv   bool
	periodic bool
	created  bool          // on the present stream
	ends     bool          // it is being canceled there
	first    *mvccpb.Event // what an extension has answered, and has not come yet
	start    int64         // the first revision that it wants; 0: not known yet
	next     int64         // the first that it doesn't have yet
	events   []*mvccpb.Event
}

func newWatcher(c *cluster, id int) *watcher {
	w := &watcher{c: c, id: id, pace: pick(c.loop, []time.Duration{100 * time.Microsecond, time.Millisecond, 50 * time.Millisecond})}
	if c.has.hides {
		w.who = pick(c.loop, []string{"", alice, bob})
	}
	for range 1 + c.loop.rng.IntN(3) {
		w.watches = append(w.watches, w.draw())
	}
	return w
}

// draw makes a new watch, from now or from an old revision.
func (w *watcher) draw() *watched {
	c := w.c
	d := &watched{w: w, prevKv: c.loop.chance(2), periodic: c.loop.chance(2)}
	switch c.loop.rng.IntN(4) {
	case 0:
		d.key = c.single()
	case 1:
		d.key, d.end = prefix(pick(c.loop, c.keys.dirs))
	case 2:
		d.key, d.end = []byte(pairsFrom), []byte(pairsTo)
	case 3:
		d.key, d.end = []byte{0}, []byte{0}
	}
	if c.has.hides && c.loop.chance(2) {
		d.key, d.end = prefix("/x/e/")
	}
	if c.loop.chance(2) {
		d.start = max(1, c.floor-int64(c.loop.rng.IntN(100)))
	}
	d.next = d.start
	return d
}

// connect opens the stream on a running server.
func (w *watcher) connect() {
	loop := w.c.loop
	if w.life != nil || w.c.survivor != nil || w.gone {
		return
	}
	sv := pick(loop, w.c.servers)
	if sv.life == nil {
		loop.after(loop.between(time.Millisecond, 50*time.Millisecond), "connect", uint64(w.id), 0, w.connect)
		return
	}
	w.attach(sv.life)
	for i, d := range w.watches {
		d.created, d.ends, d.first = false, false, nil
		w.stream.Create(d.request(int64(i + 1)))
	}
	w.poke()
}

// attach opens the stream on a server.
func (w *watcher) attach(l *life) {
	w.life = l
	w.polling = false
	w.stream = l.hub.NewStream(w.who)
	w.stream.As(w.c.own())
	l.streams = append(l.streams, w)
	w.c.loop.printf("watcher %d connects to server %d", w.id, l.sv.id)
}

func (d *watched) request(id int64) *pb.WatchCreateRequest {
	return &pb.WatchCreateRequest{WatchId: id, Key: d.key, RangeEnd: d.end, StartRevision: d.next, PrevKv: d.prevKv, ProgressNotify: d.periodic}
}

// lost ends the stream: the server has ended.
func (w *watcher) lost() {
	w.life, w.stream = nil, nil
	w.c.loop.after(w.c.loop.between(time.Millisecond, 100*time.Millisecond), "reconnect", uint64(w.id), 0, w.connect)
}

// poke schedules the next reading of the stream.
func (w *watcher) poke() {
	if w.polling || w.life == nil {
		return
	}
	w.polling = true
	pace := w.pace
	if w.c.quiet { // in the end all have to catch up
		pace = min(pace, time.Millisecond)
	}
	life := w.life
	life.after(w.c.loop.between(0, pace), "watcher", uint64(w.id), func() {
		if w.life != life {
			return
		}
		w.polling = false
		w.poll()
	})
}

func (w *watcher) poll() {
	for range 3 {
		r, more, err := w.stream.TryRecv()
		if isFenced(err) {
			w.life.forget(w)
			w.lost()
			return
		}
		if err != nil {
			w.c.fail("I4", "watcher %d on server %d: %v", w.id, w.life.sv.id, err)
			return
		}
		if !more {
			return
		}
		w.take(r.WatchResponse)
		if w.life == nil {
			return
		}
	}
	w.poke()
}

// take sorts a response to its watch.
func (w *watcher) take(r *pb.WatchResponse) {
	w.c.loop.note(uint64(r.WatchId), uint64(r.Header.Revision), uint64(len(r.Events)))
	w.life.announced = max(w.life.announced, r.Header.Revision)
	if r.WatchId == -1 {
		w.c.loop.printf("watcher %d: progress of all to %d", w.id, r.Header.Revision)
		for _, d := range w.watches {
			if d.created {
				d.progress(r.Header.Revision)
			}
		}
		return
	}
	if r.WatchId < 1 || int(r.WatchId) > len(w.watches) {
		w.c.fail("I4", "watcher %d got a response for watch %d", w.id, r.WatchId)
		return
	}
	d := w.watches[r.WatchId-1]
	w.c.loop.printf("watcher %d.%d: created %v canceled %v (compact %d) revision %d, %d events", w.id, r.WatchId, r.Created, r.Canceled, r.CompactRevision, r.Header.Revision, len(r.Events))
	switch {
	case r.Created:
		d.created = true
		if d.next == 0 {
			d.start = r.Header.Revision + 1
			d.next = d.start
			w.c.see(r.Header.Revision)
		}
	case r.Canceled && d.ends:
		d.followed(w.draw(), r.WatchId)
	case r.Canceled:
		d.canceled(r, r.WatchId)
	case len(r.Events) > 0:
		if d.take(r); w.waits && d.first == nil && !w.c.quiet {
			w.leave()
		}
	default:
		d.progress(r.Header.Revision)
	}
}

// canceled by compaction: the client reads what it missed, which the
// simulation's doesn't, and begins anew from there.
func (d *watched) canceled(r *pb.WatchResponse, id int64) {
	c := d.w.c
	if r.CompactRevision == 0 || d.next > r.CompactRevision || !c.mayBeCompacted(r.CompactRevision) {
		c.fail("I4", "%s, which is at revision %d, is canceled: %v", d, d.next, r)
		return
	}
	c.checkWatch(nil, d)
	d.followed(&watched{w: d.w, key: d.key, end: d.end, prevKv: d.prevKv, periodic: d.periodic, start: r.CompactRevision, next: r.CompactRevision}, id)
}

// followed begins another watch in the place of one that has been canceled, on the same stream.
func (d *watched) followed(by *watched, id int64) {
	d.w.watches[id-1] = by
	d.w.c.finished = append(d.w.c.finished, d)
	d.w.stream.Create(by.request(id))
}

// take takes events: in order, none twice, whole revisions.
func (d *watched) take(r *pb.WatchResponse) {
	c := d.w.c
	if !d.created {
		c.fail("I4", "%s gets events before it is created", d)
		return
	}
	r.Events = slices.DeleteFunc(r.Events, func(e *mvccpb.Event) bool {
		return string(e.Kv.Key) == flippedKey && !d.w.life.showable("a watch")
	})
	if d.first != nil && len(r.Events) > 0 {
		d.handsOver(r)
	}
	if len(r.Events) == 0 {
		return
	}
	for _, e := range r.Events {
		if e.Kv.ModRevision < d.next {
			c.fail("I4", "%s gets %s again or too late: it is at revision %d", d, name(e), d.next)
			return
		}
		if n := len(d.events); n > 0 && e.Kv.ModRevision < d.events[n-1].Kv.ModRevision {
			c.fail("I4", "%s gets %s after %s", d, name(e), name(d.events[n-1]))
			return
		}
		c.stats.WatchEvents++
		d.events = append(d.events, e)
	}
	last := r.Events[len(r.Events)-1].Kv.ModRevision
	if r.Header.Revision < last {
		c.fail("I4", "%s gets an event of revision %d under a header of revision %d", d, last, r.Header.Revision)
		return
	}
	d.next = last + 1
	c.see(last)
}

// progress promises that nothing at or below rev is to come.
func (d *watched) progress(rev int64) {
	c := d.w.c
	if rev < d.next-1 {
		c.fail("I4", "%s, which is at revision %d, gets progress to revision %d", d, d.next, rev)
		return
	}
	c.stats.Progress++
	if rev+1 > d.next {
		d.next = rev + 1
	}
	c.see(rev)
}

// ask wants to know the progress of all watches.
func (w *watcher) ask() {
	loop := w.c.loop
	if w.gone {
		return
	}
	loop.after(loop.between(50*time.Millisecond, 300*time.Millisecond), "progress", uint64(w.id), 0, w.ask)
	if w.life == nil || w.life.paused > loop.now {
		return
	}
	switch loop.rng.IntN(5) {
	case 0:
		w.stream.Hasten(math.MaxInt64)
	case 1, 2:
		w.stream.Tick()
	default:
		w.stream.RequestProgress()
	}
	w.poke()
}

// change replaces one of the watches, now and then, or the whole stream.
func (w *watcher) change() {
	loop := w.c.loop
	loop.after(loop.between(200*time.Millisecond, 2*time.Second), "change", uint64(w.id), 0, w.change)
	if w.life == nil || w.c.quiet || w.life.paused > loop.now {
		return
	}
	if w.c.has.ends && loop.chance(2) {
		i := loop.rng.IntN(len(w.watches))
		w.watches[i].ends = true
		w.stream.Cancel(int64(i + 1))
		w.poke()
		return
	}
	w.stream.Close()
	w.life.forget(w)
	if !loop.chance(3) {
		i := loop.rng.IntN(len(w.watches))
		w.c.finished = append(w.c.finished, w.watches[i])
		w.watches[i] = w.draw()
	}
	w.lost()
}

func (l *life) forget(w *watcher) {
	l.streams = slices.DeleteFunc(l.streams, func(o *watcher) bool { return o == w })
}

func (d *watched) String() string {
	where := "nowhere"
	if d.w.life != nil {
		where = fmt.Sprintf("server %d", d.w.life.sv.id)
	}
	return fmt.Sprintf("the watch of [%q, %q) from revision %d by watcher %d on %s", d.key, d.end, d.start, d.w.id, where)
}

func name(e *mvccpb.Event) string {
	return fmt.Sprintf("%s of %s=%s at revision %d", e.Type, e.Kv.Key, e.Kv.Value, e.Kv.ModRevision)
}

package sim

import (
	"fmt"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"

	"github.com/stoa-kv/stoa/internal/watch"
)

// userWatcher watches all keys as the user of the time, on any server, until the watch is
// canceled. Nothing may come of what stands in the log behind the end of the user's right. That
// nothing is missing is what other watchers are for.
type userWatcher struct {
	c      *cluster
	id     int
	term   *term
	life   *life
	stream *watch.Stream // nil: there is none
}

// live opens a stream, or reads what has come.
func (w *userWatcher) live() {
	c := w.c
	if c.quiet || c.survivor != nil {
		return
	}
	c.loop.after(c.loop.between(time.Millisecond, 30*time.Millisecond), "user's watcher", uint64(w.id), 0, w.live)
	switch {
	case w.stream != nil && w.life.ended:
		w.stream = nil
	case w.stream != nil:
		w.life.now("user's watcher", uint64(w.id), w.poll)
	case c.keeper.now != nil && (c.keeper.now.revoked == 0 || c.loop.chance(4)):
		w.open()
	}
}

func (w *userWatcher) open() {
	sv := pick(w.c.loop, w.c.servers)
	if sv.life == nil || sv.life.paused > w.c.loop.now {
		return
	}
	w.term, w.life = w.c.keeper.now, sv.life
	w.stream = w.life.hub.NewStream("")
	w.stream.As(w.term.credential)
	r := &pb.WatchCreateRequest{WatchId: 1, Key: []byte{0}, RangeEnd: []byte{0}}
	if w.c.loop.chance(3) { // it has to catch up
		r.StartRevision = max(1, w.c.floor-50)
	}
	w.stream.Create(r)
	w.c.loop.printf("watcher %d of %s connects to server %d, from revision %d", w.id, w.term.user(), sv.id, r.StartRevision)
}

func (w *userWatcher) poll() {
	for w.stream != nil {
		r, more, err := w.stream.TryRecv()
		if err != nil || !more {
			return
		}
		w.take(r.WatchResponse)
	}
}

// inTime makes sure that events are of the time in which the user had its right.
func (c *cluster) inTime(t *term, what any, r *pb.WatchResponse) {
	for _, e := range r.Events {
		at := c.ledger.revisions[e.Kv.ModRevision]
		if at != nil && t.revoked > 0 && at.at > t.revoked {
			c.fail("users", "%s of %s gets %s, first applied at %v; the user has had no right since %v", what, t.user(), name(e), at.at, t.revoked)
			return
		}
	}
}

func (w *userWatcher) String() string {
	return fmt.Sprintf("watcher %d on server %d", w.id, w.life.sv.id)
}

// take takes events, or the end of the watch.
func (w *userWatcher) take(r *pb.WatchResponse) {
	c := w.c
	c.stats.UserEvents += len(r.Events)
	c.inTime(w.term, w, r)
	if r.Canceled || c.loop.chance(200) {
		c.loop.printf("watcher %d of %s: canceled %v, %s", w.id, w.term.user(), r.Canceled, r.CancelReason)
		w.stream.Close()
		w.stream = nil
	}
}

package host

import (
	"errors"
	"io"
	"strings"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc/codes"
)

// checkStream: each request is answered, in order, and each watch brings what it is for.
func (a *sidecarApp) checkStream(s *sidecarStream) {
	w := a.w
	c := &streamCheck{a: a, s: s, open: map[int64]*streamed{}, closed: map[int64]int64{}}
	for i, r := range s.got {
		c.take(i, r)
	}
	for _, v := range c.open {
		c.end(v, s.whole)
	}
	if code := codeOf(s.err); s.err != nil && code != codes.Unavailable && code != codes.Canceled && !errors.Is(s.err, io.EOF) && !a.governed(s.err.Error(), s.over) {
		w.found("app %d: %v: no such error is documented", a.id, s)
	}
	if codeOf(s.err) == codes.Unavailable && !w.disturbed(s.over, s.over) && !(w.plan.Users && strings.Contains(s.err.Error(), "extensions")) {
		w.found("app %d: %v: nothing has ended it", a.id, s)
	}
	if s.err != nil && (strings.Contains(s.err.Error(), "has gone back") || strings.Contains(s.err.Error(), "another cluster") || strings.Contains(s.err.Error(), "extensions") && !w.flips() && !w.plan.Users) {
		w.found("app %d: %v: that isn't so", a.id, s)
	}
	if s.whole && c.created < len(s.asked) {
		w.found("app %d: %v: %v has no answer", a.id, s, s.asked[c.created])
	}
	if s.whole && len(c.open) > 0 && c.told < s.progress && !c.future() {
		w.found("app %d: %v: progress was asked for, and isn't told", a.id, s)
	}
}

// future tells whether a watch begins later than all that there is.
func (c *streamCheck) future() bool {
	all := c.a.w.cluster.ledger.all
	for _, v := range c.open {
		if v.from > all[len(all)-1].ModRevision {
			return true
		}
	}
	return false
}

// streamed is a watch that is open.
type streamed struct {
	*streamWatch
	id      int64
	opened  int64 // the revision at which it was
	events  []*clientv3.Event
	at      []time.Duration // when they came
	last    int64           // the revision of the latest event
	through int64           // what it was told: nothing at or below comes any more
	partial bool            // more of this revision comes
}

// streamCheck looks at the responses of a stream.
type streamCheck struct {
	a       *sidecarApp
	s       *sidecarStream
	open    map[int64]*streamed
	closed  map[int64]int64 // when a watch had ended
	created int             // requests that were answered
	told    int64           // when progress was told last
}

func (c *streamCheck) found(i int, format string, args ...any) {
	c.a.w.found("app %d: %v: response %d, %v: "+format, append([]any{c.a.id, c.s, i, c.s.got[i]}, args...)...)
}

// take looks at the next response.
func (c *streamCheck) take(i int, r streamNote) {
	v := c.open[r.WatchId]
	switch {
	case r.Created:
		c.create(i, r)
	case r.WatchId == -1 && !r.Canceled && len(r.Events) == 0:
		c.told = r.n
		c.a.w.counts.Progress++
		for _, o := range c.open {
			c.progress(i, o, r.Header.Revision)
		}
	case v == nil:
		c.found(i, "there is no such watch")
	case r.Canceled:
		delete(c.open, r.WatchId)
		c.closed[r.WatchId] = r.n
		whole := false
		switch compacted := c.a.w.cluster.ledger.compacted.Load(); {
		case r.CompactRevision > 0 && v.next() <= compacted:
			c.a.w.counts.Compacted++
		case r.CompactRevision == 0 && r.CancelReason == "" && c.s.cancelled[r.WatchId]:
		case c.a.governed(r.CancelReason, r.at):
			c.a.w.counts.Governed++
		default:
			c.found(i, "nothing ended it, it was at %d, and what is compacted at %d", v.next(), compacted)
		}
		c.end(v, whole)
	case len(r.Events) == 0:
		if !v.periodic {
			c.found(i, "nothing asked for it")
		}
		c.a.w.counts.Periodic++
		c.progress(i, v, r.Header.Revision)
	default:
		c.events(i, v, r)
	}
}

// next is the lowest revision that the watch may still bring.
func (v *streamed) next() int64 { return max(v.from, v.last+1, v.through+1) }

// create takes the answer to the next request.
func (c *streamCheck) create(i int, r streamNote) {
	if c.created >= len(c.s.asked) {
		c.found(i, "nothing was asked for")
		return
	}
	asked := c.s.asked[c.created]
	c.created++
	if r.Canceled && c.a.governed(r.CancelReason, r.at) {
		return
	}
	if r.Canceled {
		if c.open[asked.id] == nil && c.closed[asked.id] < asked.n || asked.id == 0 || r.CancelReason == "" {
			c.found(i, "nothing is wrong with %v", asked)
		}
		return
	}
	switch {
	case c.open[r.WatchId] != nil:
		c.found(i, "there is such a watch")
	case asked.id != 0 && asked.id != r.WatchId:
		c.found(i, "%v has another id", asked)
	case asked.from == 0 && c.a.follows() && r.Header.Revision < asked.floor:
		c.found(i, "%v: %d had been told before", asked, asked.floor)
	}
	c.open[r.WatchId] = &streamed{streamWatch: asked, id: r.WatchId, opened: r.Header.Revision}
}

// progress notes that everything at or below a revision has come.
func (c *streamCheck) progress(i int, v *streamed, rev int64) {
	if rev < max(v.through, v.last) || v.partial {
		c.found(i, "%v has brought %d, and was told %d", v.streamWatch, v.last, v.through)
	}
	if v.from == 0 && rev < v.opened {
		c.found(i, "%v begins behind %d", v.streamWatch, v.opened)
	}
	v.through = max(v.through, rev)
}

func (c *streamCheck) events(i int, v *streamed, r streamNote) {
	first := r.Events[0].Kv.ModRevision
	if first <= v.through || first < v.last || first == v.last && !v.partial {
		c.found(i, "%v has brought %d, and was told %d", v.streamWatch, v.last, v.through)
	}
	if v.partial = r.Fragment; v.partial && !v.fragment {
		c.found(i, "%v takes no fragments", v.streamWatch)
	}
	for _, e := range r.Events {
		if e.Kv.ModRevision < v.last || e.Kv.ModRevision > r.Header.Revision {
			c.found(i, "%v brings %v behind %d", v.streamWatch, e, v.last)
		}
		v.last = e.Kv.ModRevision
		v.events, v.at = append(v.events, (*clientv3.Event)(e)), append(v.at, r.at)
	}
}

// end compares all that a watch has brought with what there was: through all if nothing was in its way.
func (c *streamCheck) end(v *streamed, whole bool) {
	first, through := v.from, max(v.last, v.through)
	if whole {
		through = everything
	}
	if first == 0 {
		first = v.opened + 1
	}
	if v.partial && !whole {
		through = v.last - 1
		for len(v.events) > 0 && v.events[len(v.events)-1].Kv.ModRevision == v.last {
			v.events = v.events[:len(v.events)-1]
		}
	}
	c.a.w.counts.Events += len(v.events)
	c.a.checkSight(v.streamWatch, v.watched, v.events, v.at)
	c.a.compareEvents(v.streamWatch, v.watched, v.events, first, through)
}

package sim

import (
	"fmt"
	"slices"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"

	"github.com/stoa-kv/stoa/internal/watch"
)

// sight is what a user with few rights watches, and the rights, by their revisions, that its server knew before it looked
// whether the user may, and those that it permitted watches by afterwards.
type sight struct {
	user        *fewUser
	credential  uint64
	key, end    []byte
	knew, knows uint64
}

// sees says whether rights allow it.
func (s *steward) sees(g *sight, r *rights) verdict {
	return s.c.allows(r, &op{few: g.user, user: g.credential, req: &pb.WatchCreateRequest{Key: g.key, RangeEnd: g.end}}, nil)
}

// may reports whether it can be that it is allowed, or forbidden, by some rights between two revisions.
func (s *steward) may(g *sight, be verdict, from, to uint64) bool {
	return slices.ContainsFunc(s.rights, func(r *rights) bool {
		v := s.sees(g, r)
		return r.revision >= from && r.revision <= to && (v == be || v == either)
	})
}

// newest is the revision of the newest rights.
func (s *steward) newest() uint64 { return s.rights[len(s.rights)-1].revision }

// begun: a watch isn't created without a right.
func (s *steward) begun(what any, g *sight) {
	if !s.may(g, yes, g.knew, g.knows) {
		s.c.fail("rights", "%v of %s is created, without a right to it", what, g.user.name)
	}
}

// ended: a watch isn't refused or canceled while there is the right to it.
func (s *steward) ended(what any, g *sight, r *pb.WatchResponse) {
	s.c.stats.WatchesForbidden++
	if r.CompactRevision == 0 && !s.may(g, no, g.knew, s.newest()) {
		s.c.fail("rights", "%v of %s is canceled, and it had the right to it: %s", what, g.user.name, r.CancelReason)
	}
}

// seen: nothing comes of what stands behind the end of a right, also if there is a right again: the server has canceled the
// watch then, unless a snapshot has spared it the end.
func (s *steward) seen(what any, g *sight, l *life, r *pb.WatchResponse) {
	s.c.stats.UserEvents += len(r.Events)
	for _, e := range r.Events {
		at := s.c.ledger.revisions[e.Kv.ModRevision]
		if at != nil && slices.ContainsFunc(l.had, func(rev uint64) bool { return rev > g.knows && rev <= at.rights && s.sees(g, s.at(rev)) == no }) {
			s.c.fail("rights", "%v gets %s, behind the end of the right of %s", what, name(e), g.user.name)
			return
		}
	}
}

// fewWatcher watches as users with few rights, on any server.
type fewWatcher struct {
	c      *cluster
	id     int
	sight  sight
	life   *life
	stream *watch.Stream // nil: there is none
}

func (w *fewWatcher) String() string {
	return fmt.Sprintf("watcher %d of [%q, %q)", w.id, w.sight.key, w.sight.end)
}

// live opens a stream, or reads what has come.
func (w *fewWatcher) live() {
	c := w.c
	if c.quiet {
		return
	}
	c.loop.after(c.loop.between(time.Millisecond, 30*time.Millisecond), "watcher with few rights", uint64(w.id), 0, w.live)
	switch {
	case w.stream != nil && w.life.ended:
		w.stream = nil
	case w.stream != nil:
		w.life.now("watcher with few rights", uint64(w.id), w.poll)
	case c.loop.chance(4):
		w.open()
	}
}

func (w *fewWatcher) open() {
	c := w.c
	sv := pick(c.loop, c.servers)
	if sv.life == nil || sv.life.paused > c.loop.now {
		return
	}
	span := pick(c.loop, c.spans())
	w.life = sv.life
	u := pick(c.loop, c.steward.users)
	w.sight = sight{user: u, credential: u.credential, key: span[0], end: span[1], knew: w.life.knows()}
	w.stream = w.life.hub.NewStream("")
	w.stream.As(u.credential)
	r := &pb.WatchCreateRequest{WatchId: 1, Key: w.sight.key, RangeEnd: w.sight.end, PrevKv: c.loop.chance(2)}
	if c.loop.chance(3) { // it has to catch up
		r.StartRevision = max(1, c.floor-50)
	}
	w.stream.Create(r)
	c.loop.printf("%v of %s connects to server %d, from revision %d", w, w.sight.user.name, sv.id, r.StartRevision)
}

func (w *fewWatcher) poll() {
	for w.stream != nil {
		r, more, err := w.stream.TryRecv()
		if err != nil { // the server was fenced
			w.stream = nil
			return
		}
		if !more {
			return
		}
		w.take(r.WatchResponse)
	}
}

// take takes events, or the end of the watch.
func (w *fewWatcher) take(r *pb.WatchResponse) {
	s := w.c.steward
	switch {
	case r.Canceled:
		s.ended(w, &w.sight, r)
		w.c.loop.printf("%v of %s is canceled: %s", w, w.sight.user.name, r.CancelReason)
		w.stream.Close()
		w.stream = nil
	case r.Created:
		w.sight.knows = w.life.permits()
		s.begun(w, &w.sight)
	default:
		s.seen(w, &w.sight, w.life, r)
		if w.c.loop.chance(100) {
			w.stream.Close()
			w.stream = nil
		}
	}
}

// checkSights: in the end no watch is open without a right.
func (c *cluster) checkSights(*past) {
	if c.steward == nil {
		return
	}
	for _, w := range c.steward.watchers {
		if w.stream == nil || w.life.ended || w.life.fence.Now() != nil {
			continue
		}
		if w.poll(); w.stream != nil && c.steward.sees(&w.sight, c.steward.rights[len(c.steward.rights)-1]) == no {
			c.fail("rights", "%v of %s is open, without a right to it", w, w.sight.user.name)
		}
	}
}

// sight is that of a session's watch, which is looked at when it is asked for and when a server takes the session up; nil for
// users with all rights.
func (cl *sessionClient) sight(r *pb.WatchCreateRequest) *sight {
	u := cl.present.few
	if u == nil {
		return nil
	}
	return &sight{user: u, credential: cl.stream.user, key: r.Key, end: r.RangeEnd, knew: cl.stream.knew, knows: cl.stream.life.permits()}
}

// looksAgain: the server that takes a session up looks whether it may have its watches.
func (cl *sessionClient) looksAgain() {
	for _, w := range cl.present.watches {
		w.sight = cl.sight(&pb.WatchCreateRequest{Key: w.key, RangeEnd: w.end})
	}
}

// know notes which rights the server knows when requests come.
func (st *sessionStream) know(list []*asking) {
	for _, a := range list {
		if a.sends == 1 {
			a.knew = st.life.knows()
		}
		a.knew = min(a.knew, st.life.knows())
		a.sentBy(st.user)
	}
}

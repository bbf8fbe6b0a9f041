package sim

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"sort"
	"time"

	"github.com/stoa-kv/stoa/internal/auth"
	"github.com/stoa-kv/stoa/internal/kvwire"
	"github.com/stoa-kv/stoa/internal/store"
)

// ledger is the committed history, as the first server to apply each part of it
// saw it. Every other must apply the same (I6), now, after a restart, and after
// a snapshot.
type ledger struct {
	c         *cluster
	parts     map[uint32][]*revision // what changed each group's partition, ascending, by its number
	revisions map[int64]*revision
	ordered   []*revision            // these, ascending
	systems   map[uint64]systemEvent // by the place in group 0's log
	// systemPlaces are the entries that these come from.
	systemPlaces map[uint64]logPlace
	auths        map[uint64]*auth.State // by their revisions
	quotas       []quotas               // in the order of the log
	// forced: one server is left, which may have entries that no other has applied. gaps: it lacks
	// some that others have.
	forced, gaps bool
	// A cluster that began with a backup has its leases, and gives out no revision up to next (restore.go).
	leases map[int64]int64
	next   int64
}

// revision is all that happened at one revision.
type revision struct {
	rev     int64
	changes []store.Change            // by sub-revision
	in      map[uint32][]store.Change // by the group's number
	places  map[uint32]logPlace
	at      time.Duration // when it was first applied anywhere
	latest  time.Duration // when it or a later one was first applied: it took effect before
	by      *op           // the request whose effect it is
	rights  uint64        // those with which it took effect, by their revision
	noSpace bool          // it took effect under this alarm
}

// logPlace is where an entry is in a group's log.
type logPlace struct{ index, term uint64 }

// systemEvent is a change of what all partitions share.
type systemEvent struct {
	granted, ttl int64
	number       uint64 // of the lease
	revoked      int64
	compacted    int64
	at           time.Duration // when it was first applied anywhere
}

// reader is a core's place in the ledger.
type reader struct{ next map[uint32]int }

func newLedger(c *cluster) *ledger {
	return &ledger{c: c, parts: map[uint32][]*revision{}, revisions: map[int64]*revision{}, systems: map[uint64]systemEvent{}, systemPlaces: map[uint64]logPlace{}, auths: map[uint64]*auth.State{}}
}

// apply notes or compares what a server has applied.
func (g *ledger) apply(c *core, partition int, rev int64, changes []store.Change) {
	c.l.sv.c.loop.note(uint64(partition), uint64(rev), uint64(len(changes)))
	p := c.groups.Number(partition)
	id := c.l.sv.id
	g.c.loop.printf("server %d applies revision %d in partition %d: %s", id, rev, p, describe(changes))
	at := c.seen.next[p]
	if g.forced && at < len(g.parts[p]) && rev < g.parts[p][at].rev {
		g.cut(c.seen)
	}
	c.seen.next[p]++
	if at < len(g.parts[p]) {
		if e := g.parts[p][at]; e.rev != rev || !sameChanges(e.in[p], changes) {
			g.c.fail("I6", "server %d applies revision %d in partition %d (%s), another server applied revision %d there (%s)",
				id, rev, p, describe(changes), e.rev, describe(e.in[p]))
		}
		return
	}
	if rev <= g.next {
		g.c.fail("I1", "server %d applies revision %d, and its cluster began with a backup at revision %d", id, rev, g.next)
		return
	}
	if at > 0 && g.parts[p][at-1].rev >= rev {
		g.c.fail("I1", "server %d applies revision %d in partition %d after revision %d", id, rev, p, g.parts[p][at-1].rev)
		return
	}
	e := g.revisions[rev]
	if e == nil {
		e = &revision{rev: rev, in: map[uint32][]store.Change{}, places: map[uint32]logPlace{}, at: g.c.loop.now, rights: c.machine.Auth().Revision, noSpace: noSpace(c.machine.Alarms())}
		g.add(e)
	}
	e.in[p], e.places[p] = slices.Clone(changes), c.place(partition)
	e.changes = append(e.changes, changes...)
	slices.SortFunc(e.changes, func(a, b store.Change) int { return cmp.Compare(a.Sub, b.Sub) })
	for i := range e.changes {
		if e.changes[i].Sub != int64(i) && len(e.changes) > len(changes) && i > 0 && e.changes[i].Sub == e.changes[i-1].Sub {
			g.c.fail("I1", "two writes share revision %d: %s", rev, describe(e.changes))
		}
	}
	g.parts[p] = append(g.parts[p], e)
}

// place is that of the entry that a partition executes.
func (c *core) place(p int) logPlace {
	before, _ := c.stores[p].Applied()
	term, err := c.logs[p].Term(before + 1)
	if err != nil {
		c.l.sv.c.fail("log", "server %d has no entry %d in group %d, which it executes: %v", c.l.sv.id, before+1, p, err)
	}
	return logPlace{before + 1, term}
}

// system notes or compares a change of system state. Its place is the index
// that group 0 had applied before.
func (g *ledger) system(c *core, e systemEvent) {
	at, _ := c.stores[0].Applied()
	was, known := g.systems[at]
	if e.at = g.c.loop.now; known {
		e.at = was.at
	}
	if known && was != e {
		g.c.fail("I6", "server %d applies %+v after index %d of group 0, another server applied %+v", c.l.sv.id, e, at, was)
	}
	g.systems[at], g.systemPlaces[at] = e, c.place(0)
}

// resume finds a recovered core's place, and compares what it has recovered.
func (g *ledger) resume(c *core) *reader {
	r := &reader{next: map[uint32]int{}}
	for p := range g.parts {
		switch q, is := c.groups.Partition(p); {
		case p == restoredGroup && len(c.members.List.Members) == 0: // it joins, and has nothing yet
		case is:
			rev := c.stores[q].Rev()
			r.next[p] = sort.Search(len(g.parts[p]), func(i int) bool { return g.parts[p][i].rev > rev })
		case c.groups.Gone(p): // all of it came before this generation
			r.next[p] = len(g.parts[p])
		}
	}
	if g.gaps {
		g.cut(r)
		g.gaps = false
	}
	c.seen = r
	g.compare(c)
	return r
}

// compare checks a core's state against the history up to where it is.
func (g *ledger) compare(c *core) {
	if applied, _ := c.stores[0].Applied(); c.l.sv.flip != nil || applied < c.l.sv.lapsed { // a file may have what had changed
		return
	}
	want := map[string]kvwire.KeyValue{}
	for _, ch := range g.seenBy(c) {
		switch {
		case isNotice(ch):
		case ch.Delete:
			delete(want, string(ch.Kv.Key()))
		default:
			want[string(ch.Kv.Key())] = ch.Kv
		}
	}
	at, have := "", 0
	for p, s := range c.stores {
		index, _ := s.Applied()
		at += fmt.Sprintf(" %d@%d/%d", p, s.Rev(), index)
		have += s.Keys()
	}
	for _, key := range slices.Sorted(maps.Keys(want)) {
		var got []kvwire.KeyValue
		for _, s := range c.stores {
			if kv := s.Get([]byte(key)); kv.Exists() {
				got = append(got, kv)
			}
		}
		if len(got) != 1 || got[0] != want[key] {
			g.c.fail("I6", "server %d at%s: key %q is %v, should be %v, once", c.l.sv.id, at, key, got, want[key])
			return
		}
	}
	if have != len(want) {
		g.c.fail("I6", "server %d at%s: has %d keys, should have %d", c.l.sv.id, at, have, len(want))
		return
	}
	g.compareLeases(c)
}

// seenBy are the changes that a core has applied, in order. The ledger ignores
// the partition of a key: it may change.
func (g *ledger) seenBy(c *core) []store.Change {
	var all []store.Change
	for p := range g.parts {
		for _, e := range g.parts[p][:c.seen.next[p]] {
			all = append(all, e.in[p]...)
		}
	}
	slices.SortStableFunc(all, func(a, b store.Change) int { return a.Compare(b.Revision) })
	return all
}

func (g *ledger) compareLeases(c *core) {
	applied, _ := c.stores[0].Applied()
	want := g.leasesAt(applied)
	got := map[int64]int64{}
	for _, l := range c.leases.List() {
		got[l.ID] = l.TTL
	}
	if !maps.Equal(got, want) {
		g.c.fail("I6", "server %d at index %d of group 0 has the leases %v, should have %v", c.l.sv.id, applied, got, want)
	}
}

// leasesAt are those that there are, with their times, once group 0 has applied so much.
func (g *ledger) leasesAt(applied uint64) map[int64]int64 {
	want := map[int64]int64{}
	if applied > 0 {
		maps.Copy(want, g.leases)
	}
	for _, at := range slices.Sorted(maps.Keys(g.systems)) {
		e := g.systems[at]
		switch {
		case at >= applied:
		case e.granted != 0:
			want[e.granted] = e.ttl
		case e.revoked != 0:
			delete(want, e.revoked)
		}
	}
	return want
}

// add takes up a revision, which is mostly the last.
func (g *ledger) add(r *revision) {
	g.revisions[r.rev] = r
	g.ordered = slices.Insert(g.ordered, g.index(r.rev), r)
}

func (g *ledger) remove(rev int64) {
	if g.revisions[rev] != nil {
		delete(g.revisions, rev)
		i := g.index(rev)
		g.ordered = slices.Delete(g.ordered, i, i+1)
	}
}

// index is where a revision is in the history, or would be.
func (g *ledger) index(rev int64) int {
	return sort.Search(len(g.ordered), func(i int) bool { return g.ordered[i].rev >= rev })
}

func sameChanges(a, b []store.Change) bool {
	return slices.EqualFunc(a, b, func(x, y store.Change) bool {
		return x.Sub == y.Sub && x.Delete == y.Delete && x.Kv == y.Kv
	})
}

func describe(changes []store.Change) string {
	s := ""
	for i, c := range changes {
		if i > 0 {
			s += ", "
		}
		if c.Delete {
			s += "delete " + string(c.Kv.Key())
		} else {
			s += string(c.Kv.Key()) + "=" + string(c.Kv.Value())
		}
	}
	return s
}

package compose

import (
	"math"
	"slices"
)

// merger is the order of a feed: it takes the events of the watches of several
// clusters and releases each after those on which it depends. It is a pure
// state machine without a clock.
//
// A dependency means: events of cluster C from revision `from` on may be
// effects of a request of this client, and before that request the client had
// seen cluster A up to revision needs[A]. So no event of C at or above `from`
// is released before every watch of A is past needs[A]: all its events up to
// there are released, and it is known to have no others.
//
// Why a feed makes progress: number the dependencies in the order in which they
// were made, and take the first that holds anything back. A watch of A isn't
// past needs[A]. Either it has nothing waiting, and is asked for progress
// (lacking), or an event at or below needs[A] waits there. That was seen before
// the dependency was made; so a dependency that holds it back has a `from` at
// or below the revision seen, and is an earlier one, which contradicts the
// choice of the first. For that, events are split by revision. And the absence
// of events of a watch counts at once, even if the event or the progress that
// implies it is held back itself: two watches may both be held back until the
// other is past a revision at which neither has anything.
type merger struct {
	lanes []*lane
	deps  []dependency
}

// lane is one watch.
type lane struct {
	cluster int
	past    int64 // all events up to here were released; see reached
	waiting []item
	ended   bool // no further items will be added
}

// item is a watch's events of one revision, or its progress.
type item struct {
	lane     *lane
	revision int64
	what     Notification
	progress bool
	quiet    bool // progress that was not requested
}

type dependency struct {
	cluster int
	from    int64
	needs   []int64 // by cluster; 0: nothing
}

func (m *merger) add(cluster int, past int64) *lane {
	l := &lane{cluster: cluster, past: past}
	m.lanes = append(m.lanes, l)
	return l
}

func (m *merger) bring(l *lane, it item) {
	it.lane = l
	if n := len(l.waiting); it.quiet && n > 0 && l.waiting[n-1].quiet {
		l.waiting[n-1] = it
		return
	}
	l.waiting = append(l.waiting, it)
}

// reached is the revision up to which all events of a watch have been released,
// and there are no others.
func (l *lane) reached() int64 {
	at := l.past
	for i := range l.waiting {
		switch it := &l.waiting[i]; {
		case it.progress:
			at = max(at, it.revision)
		case it.revision != atEnd:
			return max(at, it.revision-1)
		}
	}
	return at
}

// idle reports that no event of a watch waits.
func (l *lane) idle() bool {
	return !slices.ContainsFunc(l.waiting, func(it item) bool { return !it.progress && it.revision != atEnd })
}

// end removes a lane once all its items are released.
func (m *merger) end(l *lane) { l.ended = true }

// depend adds a dependency; later ones have higher numbers.
func (m *merger) depend(d dependency) {
	if len(m.lanes) > 0 {
		m.deps = append(m.deps, d)
	}
}

// forgo is for a cluster that has gone back: nothing waits for what was seen of it before.
func (m *merger) forgo(cluster int) {
	for i := range m.deps {
		d := &m.deps[i]
		d.needs = slices.Clone(d.needs) // other feeds have it, too
		d.needs[cluster] = 0
	}
}

// take releases the items that are free now, in order.
func (m *merger) take() (out []item) {
	for {
		before := len(out)
		for _, l := range m.lanes {
			for len(l.waiting) > 0 && m.free(l, l.waiting[0].revision) {
				it := l.waiting[0]
				l.waiting[0] = item{}
				l.waiting = l.waiting[1:]
				l.past = max(l.past, it.revision)
				out = append(out, it)
			}
		}
		m.lanes = slices.DeleteFunc(m.lanes, func(l *lane) bool { return l.ended && len(l.waiting) == 0 })
		if len(out) == before {
			break
		}
	}
	m.forget()
	return out
}

// free reports whether a lane's events of a revision depend on no event that is
// still to come.
func (m *merger) free(l *lane, revision int64) bool {
	for i := range m.deps {
		d := &m.deps[i]
		if d.cluster == l.cluster && d.from <= revision && !m.met(d) {
			return false
		}
	}
	return true
}

func (m *merger) met(d *dependency) bool {
	for _, other := range m.lanes {
		if other.cluster != d.cluster && other.reached() < d.needs[other.cluster] {
			return false
		}
	}
	return true
}

// forget drops the dependencies that are met by all watches.
func (m *merger) forget() {
	m.deps = slices.DeleteFunc(m.deps, func(d dependency) bool { return m.met(&d) })
}

// lacking are the clusters whose watches hold others back: they are asked for
// progress.
func (m *merger) lacking() (clusters []int) {
	for i := range m.deps {
		d := &m.deps[i]
		held := slices.ContainsFunc(m.lanes, func(l *lane) bool {
			return l.cluster == d.cluster && len(l.waiting) > 0 && l.waiting[0].revision >= d.from
		})
		if !held {
			continue
		}
		for _, other := range m.lanes {
			if other.cluster != d.cluster && other.reached() < d.needs[other.cluster] &&
				other.idle() && !slices.Contains(clusters, other.cluster) {
				clusters = append(clusters, other.cluster)
			}
		}
	}
	return clusters
}

// atEnd is the revision of the item with the reason of a watch's end, which
// comes after all its events and depends on nothing.
const atEnd = math.MinInt64

package faults

import (
	"errors"
	"fmt"
	"slices"
	"sort"

	stoa "github.com/stoa-kv/stoa/client"
)

// step is one request of a session, as it was sent and as it was answered.
type step struct {
	write bool
	key   string // of a read: "" for all keys
	value string // of a write; no two have the same
	level stoa.Level
	token int64 // highest revision that another session handed over before

	sent     int64 // when
	returned int64
	answered bool
	rev      int64             // the answer's
	found    map[string]string // what a read found
}

// life is one session: its requests, in the order in which they were sent.
// Requests may be sent before earlier ones are answered.
type life struct {
	name  string
	steps []step
}

// effect is one change of a key, as the final history tells it.
type effect struct {
	rev        int64
	key, value string
}

// record is the final history, ready to be asked.
type record struct {
	byValue map[string][]int64
	byKey   map[string][]effect // in the order of their revisions
}

func newRecord(all []effect) *record {
	r := &record{byValue: map[string][]int64{}, byKey: map[string][]effect{}}
	for _, e := range all {
		r.byValue[e.value] = append(r.byValue[e.value], e.rev)
		r.byKey[e.key] = append(r.byKey[e.key], e)
	}
	return r
}

// at is what a key held at a revision, "" if nothing.
func (r *record) at(key string, rev int64) string {
	changes := r.byKey[key]
	i := sort.Search(len(changes), func(i int) bool { return changes[i].rev > rev })
	if i == 0 {
		return ""
	}
	return changes[i-1].value
}

// took is the revision at which a write took effect, 0 if it did not.
func (r *record) took(s step) int64 {
	if revs := r.byValue[s.value]; len(revs) > 0 {
		return revs[0]
	}
	return 0
}

// complaints collects what is wrong, and stops at some.
type complaints []error

func (c *complaints) add(format string, args ...any) {
	if len(*c) < 10 {
		*c = append(*c, fmt.Errorf(format, args...))
	}
}

func (c complaints) err() error { return errors.Join(c...) }

// checkOnce: no write took effect twice, however often it was sent.
func checkOnce(lives []life, r *record) error {
	var bad complaints
	for _, l := range lives {
		for i, s := range l.steps {
			if revs := r.byValue[s.value]; s.write && len(revs) > 1 {
				bad.add("TWICE: request %d of %s (%s = %s) took effect at %v", i, l.name, s.key, s.value, revs)
			}
		}
	}
	return bad.err()
}

// checkAcknowledged: what was acknowledged is in the history, at the revision that the
// answer named.
func checkAcknowledged(lives []life, r *record) error {
	var bad complaints
	for _, l := range lives {
		for i, s := range l.steps {
			if !s.write || !s.answered {
				continue
			}
			if rev := r.took(s); rev != s.rev {
				bad.add("LOST: request %d of %s (%s = %s) was acknowledged at revision %d, and took effect at %d (0: never)", i, l.name, s.key, s.value, s.rev, rev)
			}
		}
	}
	return bad.err()
}

// checkFIFO: the writes of a session took effect in the order in which they were sent.
func checkFIFO(lives []life, r *record) error {
	var bad complaints
	for _, l := range lives {
		last, at := int64(0), 0
		for i, s := range l.steps {
			rev := int64(0)
			if s.write {
				rev = r.took(s)
			}
			if rev == 0 {
				continue
			}
			if rev <= last {
				bad.add("ORDER: %s sent request %d before %d, and they took effect at %d and %d", l.name, at, i, last, rev)
			}
			last, at = rev, i
		}
	}
	return bad.err()
}

// checkPrefix: of the writes of a session those that took effect are a prefix.
// In spite of all faults, none is missing before one that is there.
func checkPrefix(lives []life, r *record) error {
	var bad complaints
	for _, l := range lives {
		missing := -1
		for i, s := range l.steps {
			switch {
			case !s.write:
			case r.took(s) == 0:
				if missing < 0 {
					missing = i
				}
			case missing >= 0:
				bad.add("GAP: request %d of %s took effect, and %d, sent before it, did not", i, l.name, missing)
			}
		}
	}
	return bad.err()
}

// checkReads: a strict or causal read shows the state at its revision, which is not
// below anything that the session has seen or sent before, nor below a token that it
// was handed, and below every write that it sent afterwards.
func checkReads(lives []life, r *record) error {
	var bad complaints
	for _, l := range lives {
		seen := int64(0)
		for i, s := range l.steps {
			if s.write {
				seen = max(seen, r.took(s))
				continue
			}
			if !s.answered || s.level == stoa.Fast {
				continue
			}
			if floor := max(seen, s.token); s.rev < floor {
				bad.add("STALE: %s read %d of %s saw revision %d, and had to see %d", s.level, i, l.name, s.rev, floor)
			}
			seen = max(seen, s.rev)
			bad.content(l, i, s, r)
		}
		bad.future(l, r)
	}
	return bad.err()
}

func (c *complaints) content(l life, i int, s step, r *record) {
	if s.key != "" {
		if want := r.at(s.key, s.rev); s.found[s.key] != want {
			c.add("WRONG: %s read %d of %s found %q in %s at revision %d, where %q was", s.level, i, l.name, s.found[s.key], s.key, s.rev, want)
		}
		return
	}
	for key := range r.byKey {
		if want := r.at(key, s.rev); s.found[key] != want {
			c.add("WRONG: %s read %d of %s found %q in %s at revision %d, where %q was", s.level, i, l.name, s.found[key], key, s.rev, want)
		}
	}
}

// future: no read reflects what its session wrote after it.
func (c *complaints) future(l life, r *record) {
	next, at := int64(0), 0
	for i, s := range slices.Backward(l.steps) {
		if s.write {
			if rev := r.took(s); rev > 0 {
				next, at = rev, i
			}
			continue
		}
		if s.answered && s.level != stoa.Fast && next > 0 && s.rev >= next {
			c.add("EARLY: %s read %d of %s saw revision %d, and request %d, sent after it, took effect at %d", s.level, i, l.name, s.rev, at, next)
		}
	}
}

// checkStrict: a strict read sees every write that was acknowledged to any
// client before it was sent.
func checkStrict(lives []life) error {
	type moment struct{ at, rev int64 }
	var acknowledged []moment
	for _, l := range lives {
		for _, s := range l.steps {
			if s.answered && s.write {
				acknowledged = append(acknowledged, moment{s.returned, s.rev})
			}
		}
	}
	slices.SortFunc(acknowledged, func(a, b moment) int { return int(a.at - b.at) })
	for i := 1; i < len(acknowledged); i++ {
		acknowledged[i].rev = max(acknowledged[i].rev, acknowledged[i-1].rev)
	}
	var bad complaints
	for _, l := range lives {
		for i, s := range l.steps {
			if s.write || !s.answered || s.level != stoa.Strict {
				continue
			}
			n := sort.Search(len(acknowledged), func(i int) bool { return acknowledged[i].at >= s.sent })
			if n > 0 && s.rev < acknowledged[n-1].rev {
				bad.add("STALE: strict read %d of %s saw revision %d, and %d had been acknowledged before", i, l.name, s.rev, acknowledged[n-1].rev)
			}
		}
	}
	return bad.err()
}

// sighting is what a session with ordered watches saw: an event, or the answer to a
// read, in the order in which they came.
type sighting struct {
	read bool
	effect
}

// checkWatches: the events of all ordered watches of a session come in the order of
// their revisions, each once, none is left out, and none comes behind the answer to a
// read that reflects it. The watches began behind revision from, and were seen up to
// revision to.
func checkWatches(name string, saw []sighting, all []effect, from, to int64) error {
	var bad complaints
	last, reflected := from, int64(0)
	var events []effect
	for i, s := range saw {
		if s.read {
			reflected = max(reflected, s.rev)
			continue
		}
		if s.rev < last {
			bad.add("ORDER: %s saw the event of revision %d behind that of %d", name, s.rev, last)
		}
		if s.rev <= reflected {
			bad.add("LATE: %s saw the event of revision %d behind the answer to a read of revision %d (sighting %d)", name, s.rev, reflected, i)
		}
		last = s.rev
		events = append(events, s.effect)
	}
	var want []effect
	for _, e := range all {
		if e.rev > from && e.rev <= to {
			want = append(want, e)
		}
	}
	for i := range max(len(want), len(events)) {
		switch {
		case i >= len(events):
			bad.add("MISSED: %s did not see %+v", name, want[i])
		case i >= len(want):
			bad.add("INVENTED: %s saw %+v, behind the last", name, events[i])
		case want[i] != events[i]:
			bad.add("DIFFERENT: %s saw %+v where %+v was to come", name, events[i], want[i])
			return bad.err() // all that follows is shifted
		}
	}
	return bad.err()
}

// glimpse is one look at the ready example: the round that /ready named, and those of
// the data that was read afterwards.
type glimpse struct {
	ready int
	data  []int
}

// checkReady: a client that has seen that a round is ready sees its data, or
// later data.
func checkReady(name string, saw []glimpse) error {
	var bad complaints
	last := 0
	for i, g := range saw {
		if g.ready < last {
			bad.add("BACK: %s saw round %d behind %d", name, g.ready, last)
		}
		last = max(last, g.ready)
		for k, d := range g.data {
			if d < g.ready {
				bad.add("UNREADY: look %d of %s found round %d ready, and data %d of round %d", i, name, g.ready, k, d)
			}
		}
	}
	return bad.err()
}

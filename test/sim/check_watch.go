package sim

import (
	"slices"

	"go.etcd.io/etcd/api/v3/mvccpb"

	"github.com/stoa-kv/stoa/internal/kvwire"
	"github.com/stoa-kv/stoa/internal/store"
)

// hides reports whether an extension may have kept a change from a watch: its client used the extension, or began
// or ceased to with the same request. History has the change. Without a past it isn't known yet who does.
func (c *cluster) hides(p *past, d *watched, r *revision, ch store.Change) bool {
	if !c.has.hides || d.w.who == "" || string(ch.Kv.Key()) != hiddenKey {
		return false
	}
	return p == nil || slices.ContainsFunc([]int64{r.rev - 1, r.rev}, func(rev int64) bool {
		e := evaluation{keys: p.at(rev), who: d.w.who}
		return e.uses("events") && !e.standing("events").Disabled
	})
}

// checkWatch compares a watch's events with the history: everything of its
// range from its start to where it is, with the right content.
func (c *cluster) checkWatch(p *past, d *watched) {
	if d.start == 0 {
		return
	}
	n := 0
	for _, r := range c.ledger.ordered[c.ledger.index(d.start):] {
		if r.rev >= d.next {
			break
		}
		for _, ch := range r.changes {
			if !inRange(ch.Kv.Key(), d.key, d.end) {
				continue
			}
			if isNotice(ch) { // not part of the history: catching up doesn't deliver it
				if n < len(d.events) && kvwire.Of(d.events[n].Kv) == ch.Kv {
					c.stats.Notices++
					n++
				}
				continue
			}
			kind, kv := mvccpb.Event_PUT, ch.Kv
			if ch.Delete {
				kind, kv = mvccpb.Event_DELETE, kvwire.Make(ch.Kv.Key(), nil, kvwire.Fields{ModRevision: r.rev})
			}
			want := func() string { return name(&mvccpb.Event{Type: kind, Kv: kv.Message()}) }
			if c.hides(p, d, r, ch) && (n == len(d.events) || name(d.events[n]) != want()) {
				c.stats.Hidden++
				continue
			}
			if n == len(d.events) {
				c.fail("I4", "%s, which is at revision %d, has missed %s at the end", d, d.next, want())
				return
			}
			got := d.events[n]
			if got.Type != kind || kvwire.Of(got.Kv) != kv {
				c.fail("I4", "%s got %s where %s was to come", d, name(got), want())
				return
			}
			prev := ch.Prev
			if !ch.Delete && ch.Kv.CreateRevision() == ch.Kv.ModRevision() {
				prev = kvwire.KeyValue{} // the creation of a key replaces no value
			}
			// The value replaced at a compaction's own revision is compacted.
			if d.prevKv && kvwire.Of(got.PrevKv) != prev && (got.PrevKv != nil || !c.mayBeCompacted(r.rev)) {
				c.fail("I4", "%s got %s with the previous value %v, not %v", d, name(got), got.PrevKv, prev)
				return
			}
			n++
		}
	}
	if n < len(d.events) {
		c.fail("I4", "%s got %s, which never happened", d, name(d.events[n]))
	}
}

package sim

import (
	"go.etcd.io/etcd/api/v3/mvccpb"
	"google.golang.org/protobuf/proto"
)

// checkWatch compares a watch's events with the history: everything of its
// range from its start to where it is, with the right content.
func (c *cluster) checkWatch(d *watched) {
	if d.start == 0 {
		return
	}
	n := 0
	for _, r := range c.ledger.all() {
		if r.rev < d.start || r.rev >= d.next {
			continue
		}
		for _, ch := range r.changes {
			if !inRange(ch.Kv.Key(), d.key, d.end) {
				continue
			}
			if isNotice(ch) { // not part of the history: catching up doesn't deliver it
				if n < len(d.events) && proto.Equal(d.events[n].Kv, ch.Kv.Message()) {
					c.stats.Notices++
					n++
				}
				continue
			}
			want := &mvccpb.Event{Kv: ch.Kv.Message()}
			if ch.Delete {
				want.Type, want.Kv.ModRevision = mvccpb.Event_DELETE, r.rev
			}
			if n == len(d.events) {
				c.fail("I4", "%s, which is at revision %d, has missed %s at the end", d, d.next, name(want))
				return
			}
			got := d.events[n]
			if got.Type != want.Type || !proto.Equal(got.Kv, want.Kv) {
				c.fail("I4", "%s got %s where %s was to come", d, name(got), name(want))
				return
			}
			// The value replaced at a compaction's own revision is compacted.
			gone := got.PrevKv == nil && c.mayBeCompacted(r.rev)
			prev := ch.Prev.Message()
			if !ch.Delete && ch.Kv.CreateRevision() == ch.Kv.ModRevision() {
				prev = nil // the creation of a key replaces no value
			}
			if d.prevKv && !gone && !proto.Equal(got.PrevKv, prev) {
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

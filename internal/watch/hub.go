package watch

import (
	"container/list"
	"context"
	"sync"
	"sync/atomic"

	"go.uber.org/zap"

	"github.com/stoa-kv/stoa/internal/placement"
	"github.com/stoa-kv/stoa/internal/store"
)

// History reads what happened in one partition to keys of a range, as
// [store.Store.Changes] does: changes from revision from on, ascending by
// (revision, sub), whole revisions, through a revision that it names and that
// is at most to. It may stop early once it has limit changes. With prev, the
// previous values are there. It answers fault.Compacted when from is gone.
//
// The hub asks only for revisions that were published to it, so the store has
// them. It calls without holding any lock of its own, from the goroutine that
// receives on a stream; calls may run at the same time.
type History func(partition int, key, end []byte, from, to int64, limit int, prev bool) (changes []store.Change, through int64, err error)

// Options bound the hub. The zero value of a bound means its default.
type Options struct {
	// Parts says which partitions a range may touch, until [Hub.Moved]; nil: all
	// of them. It is called under the hub's lock.
	Parts func(key, end []byte) placement.Set
	// Moving says that keys may move between the partitions that Parts names for them,
	// each of them once, until [Hub.Moved].
	Moving bool

	// RecentRevisions and RecentBytes bound, per partition, what the hub keeps
	// of the last changes (4,096 and 8 MiB).
	RecentRevisions int
	RecentBytes     int

	// QueueResponses and QueueBytes bound what may wait in one stream (512 and
	// 2 MiB); a watcher that doesn't fit any more goes back to history.
	QueueResponses int
	QueueBytes     int

	// BatchEvents and BatchBytes are where a response of catching up ends, at
	// the next whole revision (1,000 and 1 MiB).
	BatchEvents int
	BatchBytes  int

	Logger *zap.Logger
}

func (o Options) withDefaults(partitions int) Options {
	def := func(v *int, d int) {
		if *v <= 0 {
			*v = d
		}
	}
	def(&o.RecentRevisions, 4096)
	def(&o.RecentBytes, 8<<20)
	def(&o.QueueResponses, 512)
	def(&o.QueueBytes, 2<<20)
	def(&o.BatchEvents, 1000)
	def(&o.BatchBytes, 1<<20)
	if o.Parts == nil {
		var all placement.Set
		for p := range partitions {
			all |= placement.Of(p)
		}
		o.Parts = func(_, _ []byte) placement.Set { return all }
	}
	if o.Logger == nil {
		o.Logger = zap.NewNop()
	}
	return o
}

// Hub takes in the changes of all partitions and hands each watcher the ones
// that it asked for. There is one per server.
//
// Locks are taken in the order Hub.mu, Stream.mu, partition.mu. A store's lock
// may be held on the way in (Changes takes only partition.mu); none is taken
// while one of these is held.
type Hub struct {
	o       Options
	history History
	parts   []*partition
	all     placement.Set

	mu        sync.Mutex   // guards the fields below and every watcher's state
	groups    []*group     // in the order in which they came up
	feed      *Feed        // the one that is listened to
	streams   list.List    // of *Stream, in the order in which they were opened
	resets    int          // how often the stores were replaced, or keys moved
	waiting   []*Stream    // streams that are owed a progress notification
	opening   []*Stream    // streams with watchers that are about to open
	views     []view       // scratch of Step
	matched   []*watcher   // scratch of Step
	touched   []*watcher   // scratch of Step
	owed      atomic.Int32 // len(waiting)
	compacted atomic.Int64
	floor     atomic.Int64 // see Floor

	stirred atomic.Bool   // something came in that Step hasn't seen
	wake    chan struct{} // tells Run so

	// A gap of so few recent revisions is closed while holding mu, so that
	// catching up ends however fast changes come in.
	shortGap int

	stats counters
}

// NewHub makes a hub that has seen nothing. Call [Hub.Reset] with the state of
// the stores before the first watcher, and run [Hub.Run], or [Hub.Step] by hand.
func NewHub(partitions int, history History, o Options) *Hub {
	h := &Hub{
		o:       o.withDefaults(partitions),
		history: history,
		parts:   make([]*partition, partitions),
		views:   make([]view, partitions),
		wake:    make(chan struct{}, 1),

		shortGap: 64,
	}
	for p := range h.parts {
		h.parts[p] = &partition{maxRevisions: h.o.RecentRevisions, maxBytes: h.o.RecentBytes}
		h.all |= placement.Of(p)
	}
	return h
}

// Run delivers until ctx ends.
func (h *Hub) Run(ctx context.Context) {
	for {
		select {
		case <-h.wake:
			h.Step()
		case <-ctx.Done():
			return
		}
	}
}

// Step delivers all that has come in so far. Run calls it; a simulation calls
// it itself and so decides when delivery happens.
func (h *Hub) Step() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.step()
}

// Feed is by what one life of the stores, from a load to the next, tells the hub of
// their changes. Once the stores have been replaced the hub takes no more of it: what
// was closed in the old ones may come again in the new.
type Feed struct{ h *Hub }

// Changes publishes the changes of one revision in one partition: in revision
// order per partition, once for each revision that changed something there. It
// may be called under the store's write lock: it takes one short lock and never
// waits for a watcher. The slice may be reused after the call, the key-values
// in it never change.
func (f *Feed) Changes(partition int, rev int64, changes []store.Change) {
	if f.h.parts[partition].publish(f, rev, changes) {
		f.h.stir()
	}
}

// Advance closes a partition: every change of it at or below closed has been
// published. A lower value than before is ignored.
func (f *Feed) Advance(partition int, closed int64) {
	if f.h.parts[partition].advance(f, closed) || f.h.owed.Load() > 0 {
		f.h.stir()
	}
}

// Compacted says that history below rev is going. Call it before the stores
// compact, so that a watcher that finds history gone is told why.
func (h *Hub) Compacted(rev int64) {
	for {
		old := h.compacted.Load()
		if rev <= old || h.compacted.CompareAndSwap(old, rev) {
			return
		}
	}
}

// Reset says that the stores were loaded, from a file or from another server's
// snapshot, without passing through Changes: partition p now stands at
// published[p]. That may be behind where it was: a snapshot that brings one
// partition forward can take another one back, which then comes through the same
// changes again. Watchers go on from where they were. The history function must
// not read the new stores before Reset has returned. It returns the feed for their
// changes.
func (h *Hub) Reset(published []int64, compacted int64) *Feed {
	h.Compacted(compacted)
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.reset(published)
}

func (h *Hub) reset(published []int64) *Feed {
	h.resets++
	h.feed = &Feed{h}
	for p, rev := range published {
		h.parts[p].reset(h.feed, rev)
	}
	h.look()
	for _, g := range h.groups {
		h.goBack(g)
	}
	clear(h.views)
	h.stir()
	return h.feed
}

// goBack takes a group back to what its partitions now have. What its watchers
// were given doesn't come to them again.
func (h *Hub) goBack(g *group) {
	to := g.target(h.views)
	if to >= g.at {
		return
	}
	for _, w := range g.synced.all {
		w.next = max(w.next, g.at+1)
	}
	g.at = to
}

// Rev is the highest revision that this server is known to have reached. A
// write that starts after Rev returned has a higher one.
func (h *Hub) Rev() int64 {
	var rev int64
	for _, p := range h.parts {
		rev = max(rev, p.reached())
	}
	return rev
}

func (h *Hub) stir() {
	if h.stirred.Swap(true) {
		return
	}
	select {
	case h.wake <- struct{}{}:
	default:
	}
}

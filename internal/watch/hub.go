package watch

import (
	"container/list"
	"context"
	"sync"
	"sync/atomic"

	"github.com/stoa-kv/stoa/internal/placement"
	"github.com/stoa-kv/stoa/internal/store"
)

// History reads the changes in one partition to keys of a range, as
// [store.Store.Changes] does: changes from revision from on, ascending by
// (revision, sub), complete revisions, through a revision that it returns and
// that is at most to. It stops early where the bounds say. With prev, the
// previous values are there. It fails with fault.Compacted when from is
// compacted.
//
// The hub asks only for revisions that were published to it, so the store has
// them. It is called without any lock of the hub held, from the goroutine that
// receives on a stream; calls may run concurrently. The stores may be replaced
// meanwhile, and the partition be gone: then it may return anything, and what a
// watcher lacks is read anew.
type History func(partition int, key, end []byte, from, to int64, bounds store.Bounds, prev bool) (changes []store.Change, through int64, err error)

// Options bound the hub. The zero value of a bound means its default.
type Options struct {
	// Parts returns the partitions that a range may touch, until [Hub.Moved];
	// nil: all of them. It is called under the hub's lock.
	Parts func(key, end []byte) placement.Set
	// Moving reports that keys may move between the partitions that Parts
	// returns, each of them once, until [Hub.Moved].
	Moving bool

	// RecentRevisions bounds, per partition, the recent changes that the hub keeps
	// (4,096), as maxRecentBytes does.
	RecentRevisions int

	// QueueResponses bounds the queue of one stream (512), as maxQueueBytes does; a
	// watcher that doesn't fit any more goes back to history.
	QueueResponses int
	// QueueControls is the number of responses without events, queued or still to
	// be, at which a stream takes no more requests (64).
	QueueControls int

	// BatchEvents is the size at which a response of catching up ends, at the
	// next whole revision (1,000), as maxBatchBytes is.
	BatchEvents int

	// MayWatch tells whether there is memory for another watcher (nil: always). It is called
	// under the hub's lock.
	MayWatch func() bool
}

// The same bounds in bytes.
const (
	maxRecentBytes = 8 << 20
	maxQueueBytes  = 2 << 20
	maxBatchBytes  = 1 << 20
)

func (o Options) withDefaults(partitions int) Options {
	def := func(v *int, d int) {
		if *v <= 0 {
			*v = d
		}
	}
	def(&o.RecentRevisions, 4096)
	def(&o.QueueResponses, 512)
	def(&o.QueueControls, 64)
	def(&o.BatchEvents, 1000)
	if o.Parts == nil {
		all := placement.All(partitions)
		o.Parts = func(_, _ []byte) placement.Set { return all }
	}
	return o
}

// Hub receives the changes of all partitions and delivers to each watcher those
// of its range. There is one per server.
//
// Locks are taken in the order Hub.mu, Stream.mu, partition.mu. A store's lock
// may be held by the caller of Changes (which takes only partition.mu); none is
// taken while one of these is held.
type Hub struct {
	o       Options
	history History
	parts   []*partition // the first count of them are in use
	count   atomic.Int32

	mu        sync.Mutex    // guards the fields below and every watcher's state
	all       placement.Set // those in use
	groups    []*group      // in the order of their creation
	feed      *Feed         // the current one; calls of others are ignored
	permit    Permit        // nil: every watch is permitted
	permitRev uint64        // its revision
	fenced    error         // why every stream ends; nil: none does
	limiter   Limiter       // nil: watches aren't counted
	streams   list.List     // of *Stream, in the order in which they were opened
	resets    int           // counts replacements of the stores and moves of keys
	waiting   []*Stream     // streams with a pending progress notification
	opening   []*Stream     // streams with watchers that are about to open
	views     []view        // scratch of Step
	matched   []*watcher    // scratch of Step
	touched   []*watcher    // scratch of Step
	owed      atomic.Int32  // len(waiting)
	compacted atomic.Int64
	floor     atomic.Int64 // see Floor

	stirred atomic.Bool   // changes since the last Step
	wake    chan struct{} // wakes Run

	// A gap of at most this many recent revisions is read while holding mu, so
	// that catching up ends even under a high rate of changes.
	shortGap int

	stats counters
}

// NewHub makes a hub without any published state. Call [Hub.Reset] with the
// state of the stores before the first watcher, and run [Hub.Run], or
// [Hub.Step] by hand.
func NewHub(partitions int, history History, o Options) *Hub {
	h := &Hub{
		o:       o.withDefaults(partitions),
		history: history,
		parts:   make([]*partition, max(partitions, mostPartitions)),
		views:   make([]view, max(partitions, mostPartitions)),
		wake:    make(chan struct{}, 1),

		shortGap: 64,
	}
	for p := range h.parts {
		h.parts[p] = &partition{maxRevisions: h.o.RecentRevisions}
	}
	h.use(partitions)
	return h
}

// mostPartitions is how many there can be once their number has changed.
const mostPartitions = 16

// use sets how many partitions there are. With mu held, or before the hub is used.
func (h *Hub) use(partitions int) {
	h.count.Store(int32(partitions))
	h.all = placement.All(partitions)
}

// present are the partitions in use.
func (h *Hub) present() []*partition { return h.parts[:h.count.Load()] }

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

// Step delivers all that was published so far. Run calls it; a simulation calls
// it itself and so decides when delivery happens.
func (h *Hub) Step() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.step()
}

// Feed publishes the changes of one generation of the stores, from a load to
// the next. Once the stores have been replaced the hub ignores it: revisions
// that were closed in the old ones may be published again by the new.
type Feed struct{ h *Hub }

// Changes publishes the changes of one revision in one partition: in revision
// order per partition, once for each revision that changed something there. It
// may be called under the store's write lock: it takes one short lock and never
// waits for a watcher. The slice may be reused after the call, but the
// key-values in it must not change.
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

// Compacted announces a compaction at rev. Call it before the stores compact,
// so that a watcher that finds history compacted is cancelled with the right
// revision.
func (h *Hub) Compacted(rev int64) { raise(&h.compacted, rev) }

// Reset announces that the stores were loaded, from a file or from another
// server's snapshot, without passing through Changes: partition p is now at
// published[p]. That may be behind where it was: a snapshot that brings one
// partition forward can take another one back, which then comes through the
// same changes again. Watchers continue from their positions. The history
// function must not read the new stores before Reset has returned. It returns
// the feed for their changes.
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

// goBack takes a group back to the position of its partitions. Its watchers
// don't get delivered events again.
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
	for _, p := range h.present() {
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

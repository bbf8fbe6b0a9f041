package watch

import (
	"sync"

	"github.com/stoa-kv/stoa/internal/store"
)

// entry is the changes of one revision in one partition. Immutable.
type entry struct {
	rev     int64
	changes []store.Change
	bytes   int
}

// partition receives the changes of one partition from its apply loop, and
// keeps the most recent ones: a watcher that is a little behind, and one that
// has to wait for other partitions to close, read them here and not from
// history.
type partition struct {
	maxRevisions int

	mu   sync.Mutex
	feed *Feed // the one that is listened to
	// recent holds every revision in (floor, published] that changed something.
	// Its elements are never written again, so a view of it stays valid after
	// the lock is released; trimming moves the start, and append drops the
	// trimmed elements when it moves the slice.
	recent    []entry
	bytes     int
	floor     int64
	published int64
	closed    int64
	singles   int // watched groups of this partition alone
	merges    int // watched groups of this partition that wait for others too
	awaited   int // watched groups of others that wait for this one
	spare     []store.Change
}

// view is a partition at one moment.
type view struct {
	recent    []entry
	floor     int64
	published int64
	closed    int64
}

// publish reports whether a Step is needed now.
func (p *partition) publish(f *Feed, rev int64, changes []store.Change) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if f != p.feed || rev <= p.published {
		return false // the stores have been replaced, or it is a replay of what Reset covered
	}
	p.published = rev
	if p.singles+p.merges == 0 {
		p.forget(rev)
		return false
	}
	e := entry{rev: rev, changes: p.keep(changes)}
	for i := range changes {
		e.bytes += changeBytes(&changes[i])
	}
	p.recent = append(p.recent, e)
	p.bytes += e.bytes
	for len(p.recent) > p.maxRevisions || p.bytes > maxRecentBytes && len(p.recent) > 1 {
		p.bytes -= p.recent[0].bytes
		p.floor = p.recent[0].rev
		p.recent = p.recent[1:]
	}
	return p.singles > 0
}

// keep copies changes into the partition's own memory, many revisions to one
// allocation.
func (p *partition) keep(changes []store.Change) []store.Change {
	if len(p.spare) < len(changes) {
		p.spare = make([]store.Change, max(128, len(changes)))
	}
	n := copy(p.spare, changes)
	kept := p.spare[:n:n]
	p.spare = p.spare[n:]
	return kept
}

func (p *partition) advance(f *Feed, closed int64) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if f != p.feed || closed <= p.closed {
		return false
	}
	p.closed = closed
	return p.merges+p.awaited > 0
}

func (p *partition) reset(f *Feed, rev int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if rev < p.published {
		p.closed = rev // revisions closed above it will be published again
	}
	p.feed, p.published, p.closed = f, rev, max(p.closed, rev)
	p.forget(rev)
}

// forget drops the recent changes, all of which are at or below rev. With mu held.
func (p *partition) forget(rev int64) {
	p.recent, p.bytes, p.floor, p.spare = nil, 0, rev, nil
}

func (p *partition) reached() int64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	return max(p.published, p.closed)
}

func (p *partition) view() view {
	p.mu.Lock()
	defer p.mu.Unlock()
	return view{p.recent, p.floor, p.published, p.closed}
}

func changeBytes(c *store.Change) int {
	const overhead = 64
	return overhead + c.Kv.Len() + c.Prev.Len()
}

package node

import (
	"context"

	"github.com/stoa-kv/stoa/internal/apply"
	"github.com/stoa-kv/stoa/internal/fault"
	"github.com/stoa-kv/stoa/internal/store"
	"github.com/stoa-kv/stoa/internal/watch"
)

// Changes implements apply.Sink.
func (s sink) Changes(partition int, rev int64, changes []store.Change) {
	if s.n.counts.changed(changes) {
		s.n.managed(rev, changes)
	}
	s.c.feed.Changes(partition, rev, changes)
}

// NewWatchStream opens a stream of watches.
func (n *Node) NewWatchStream(ctx context.Context) *watch.Stream {
	client := ""
	if who, err := n.identify(ctx); err == nil {
		client, _, _ = n.client(ctx, n.core.Load(), who.user)
	}
	if client == "" {
		client = apply.Anonymous
	}
	return n.hub.NewStream(client)
}

// Watchers is how many watches are open on this server.
func (n *Node) Watchers() int64 { return n.hub.Stats().Watchers }

// history reads for watchers that have to catch up. While a snapshot is being
// installed it waits: the old stores don't have the revisions that the hub has
// published. While the number of partitions changes it waits, too, and reads anew what it had
// read beside that: keys may have gone from store to store, before the hub hears of it.
func (n *Node) history(partition int, key, end []byte, from, to int64, bounds store.Bounds, prev bool) ([]store.Change, int64, error) {
	for {
		c := n.current()
		if partition >= len(c.stores) { // its keys have gone to others: the hub reads these anew
			return nil, 0, fault.Moved
		}
		changes, through, err := c.stores[partition].Changes(key, end, from, to, bounds, prev)
		switch {
		case !c.stale.Load():
			return changes, through, n.damaged(err)
		case n.life.Err() != nil:
			return nil, 0, fault.Stopped
		}
	}
}

package node

import (
	"context"
	"math"
	"time"

	"github.com/stoa-kv/stoa/internal/backend"
)

// A restart and a peer complete the file from the logs, so a cut may take each partition wherever its loop is. A
// backup has no log: a later write that it has, of one partition, would say that an earlier one of another, which it
// lacks, was never made. So it is of a state that all partitions have had together. They have one when each is
// closed through the newest revision of any. On a server that is busy, or behind, they hardly ever do, except at an
// entry that all execute together.

// longestMeeting is how long a backup holds up flushes, and the installation of another file, at a time.
const longestMeeting = 100 * time.Millisecond

// meeting is a backup that waits for all partitions to execute an entry together.
type meeting struct{ cut chan *backend.Cut }

// backup opens a snapshot of a state that existed: the present one, or, if the partitions don't come together in the
// time of a request, as without a leader, the last that all of them have had.
func (n *Node) backup(ctx context.Context) (*backend.Snapshot, error) {
	limited, cancel := n.limited(ctx)
	defer cancel()
	for {
		s, err := n.tryBackup(limited)
		if s != nil || err != nil {
			return s, err
		}
		if n.pause(limited, shortly) != nil {
			break
		}
	}
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	return n.staleBackup()
}

// tryBackup returns nil if the partitions haven't come together soon.
func (n *Node) tryBackup(ctx context.Context) (*backend.Snapshot, error) {
	n.rebuild.Lock()
	defer n.rebuild.Unlock()
	c := n.core.Load()
	c.flushing.Lock() // until the snapshot is open: it is of this cut
	defer c.flushing.Unlock()
	cut, together := c.cutTogether()
	if !together {
		cut, together = n.cutAtMeeting(ctx, c)
	}
	if !together {
		return nil, nil
	}
	return n.snapshotOf(c, cut)
}

// staleBackup is of the highest revision that all partitions are closed through.
func (n *Node) staleBackup() (*backend.Snapshot, error) {
	s, rev, err := n.snapshotApart()
	if err != nil {
		return nil, err
	}
	defer s.Close()
	return s.Past(rev)
}

func (n *Node) snapshotApart() (s *backend.Snapshot, rev int64, err error) {
	n.rebuild.Lock()
	defer n.rebuild.Unlock()
	c := n.core.Load()
	c.flushing.Lock()
	defer c.flushing.Unlock()
	c.lockAll()
	rev, _ = c.closed()
	cut := c.cut()
	c.unlockAll()
	s, err = n.snapshotOf(c, cut)
	return s, rev, err
}

// snapshotOf opens one of the file with the cut. The caller holds the locks of flushes.
func (n *Node) snapshotOf(c *core, cut *backend.Cut) (*backend.Snapshot, error) {
	if err := n.write(c, cut); err != nil {
		return nil, n.unflushed(err)
	}
	return c.backend.Snapshot()
}

// closed is the highest revision that all partitions are closed through, and the newest of any. It is called while all
// stores are locked.
func (c *core) closed() (rev, newest int64) {
	rev = math.MaxInt64
	for p, s := range c.stores {
		rev, newest = min(rev, c.replica.Visible(p)), max(newest, s.Rev())
	}
	return max(rev, c.stores[0].Compacted()), newest
}

// cutTogether makes a cut if the partitions are in a state that they have had together.
func (c *core) cutTogether() (cut *backend.Cut, together bool) {
	c.lockAll()
	defer c.unlockAll()
	if rev, newest := c.closed(); rev < newest {
		return nil, false
	}
	return c.cut(), true
}

// cutAtMeeting has the partitions meet, and makes the cut there; perhaps at an entry that was on its way.
func (n *Node) cutAtMeeting(ctx context.Context, c *core) (cut *backend.Cut, met bool) {
	ctx, cancel := context.WithTimeout(ctx, longestMeeting)
	defer cancel()
	m := &meeting{make(chan *backend.Cut, 1)}
	c.awaited.Store(m)
	n.meet(c)
	select {
	case cut := <-m.cut:
		return cut, true
	case <-ctx.Done():
	case <-n.life.Done():
	}
	if c.awaited.CompareAndSwap(m, nil) {
		return nil, false
	}
	return <-m.cut, true
}

// met makes the cut that a backup waits for, while all partitions stand at one entry and all stores are locked.
func (c *core) met() {
	if m := c.awaited.Swap(nil); m != nil {
		m.cut <- c.cut()
	}
}

package node

import (
	"context"
	"time"

	"go.uber.org/zap"

	"github.com/stoa-kv/stoa/internal/backend"
	"github.com/stoa-kv/stoa/internal/fault"
)

// longestMeeting is how long a backup holds up flushes, and the installation of another file, at a time.
const longestMeeting = 100 * time.Millisecond

// backup opens a snapshot of a state that existed: the present one, with all that was acknowledged before, or, if this server
// isn't there, and its partitions together, in the time of a request, as without a leader, the last that all of them have had.
func (n *Node) backup(ctx context.Context) (*backend.Snapshot, error) {
	limited, cancel := n.limited(ctx)
	defer cancel()
	for {
		if c, err := n.strictAll(limited); err == nil {
			s, err := n.tryBackup(limited, c)
			if s != nil || err != nil {
				return s, err
			}
		}
		if n.pause(limited, shortly) != nil {
			break
		}
	}
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	return n.staleBackup(ctx)
}

// tryBackup returns nil if the partitions of a core haven't come together soon, or another one has taken its place, which may
// be behind it, or others wait for the file until ctx ends.
func (n *Node) tryBackup(ctx context.Context, c *core) (*backend.Snapshot, error) {
	ended, err := n.alone(ctx, n.filing)
	if err != nil {
		return nil, nil
	}
	defer ended()
	n.rebuild.Lock()
	defer n.rebuild.Unlock()
	if c != n.core.Load() {
		return nil, nil
	}
	c.flushing.Lock() // until the snapshot is open: it is of this cut
	defer c.flushing.Unlock()
	var cut *backend.Cut
	if !c.backups.Together(func() { cut = c.cut() }) {
		var met bool
		if cut, met = n.cutAtMeeting(ctx, c); !met {
			return nil, nil
		}
	}
	return n.snapshotOf(c, cut)
}

// staleBackup is of the highest revision that all partitions are closed through, if that isn't less than what was loaded. If no
// partition is beyond that, as where there is only one, it is the file as it is. Otherwise it is a copy, which takes as much of the disk
// as the file: there is one at a time, until it has been read.
func (n *Node) staleBackup(ctx context.Context) (*backend.Snapshot, error) {
	ended, err := n.alone(ctx, n.copying)
	if err != nil {
		return nil, err
	}
	s, rev, err := n.snapshotApart()
	if err != nil || !s.Beyond(rev) {
		ended()
		return s, err
	}
	defer s.Close()
	past, err := s.Past(rev)
	if err != nil {
		ended()
		return nil, err
	}
	past.Then(ended)
	return past, nil
}

func (n *Node) snapshotApart() (s *backend.Snapshot, rev int64, err error) {
	n.rebuild.Lock()
	defer n.rebuild.Unlock()
	c := n.core.Load()
	c.flushing.Lock()
	defer c.flushing.Unlock()
	var cut *backend.Cut
	rev, made := c.backups.Apart(func() { cut = c.cut() })
	if !made {
		n.log.Warn("no backup is given: until there is a leader, all that is known of all partitions is older than what was loaded", zap.Int64("revision", rev))
		return nil, 0, fault.Timeout
	}
	n.log.Warn("this member has not come to all that the cluster has: a backup is of the last state that it is known to have had", zap.Int64("revision", rev))
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

// cutAtMeeting has the partitions meet, and makes the cut there; perhaps at an entry that was on its way.
func (n *Node) cutAtMeeting(ctx context.Context, c *core) (cut *backend.Cut, met bool) {
	ctx, cancel := context.WithTimeout(ctx, longestMeeting)
	defer cancel()
	made := make(chan *backend.Cut, 1)
	withdraw := c.backups.AtMeeting(func() { made <- c.cut() })
	n.meet(c)
	select {
	case cut := <-made:
		return cut, true
	case <-ctx.Done():
	case <-n.life.Done():
	}
	if withdraw() {
		return nil, false
	}
	return <-made, true
}

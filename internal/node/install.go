package node

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"sync/atomic"
	"time"

	"go.uber.org/zap"

	peerpb "github.com/stoa-kv/stoa/api/stoa/peer/v1"
	"github.com/stoa-kv/stoa/internal/backend"
	"github.com/stoa-kv/stoa/internal/fault"
	"github.com/stoa-kv/stoa/internal/recovery"
)

// A follower that is too far behind in any group gets the leader's whole file:
// one cut over all groups, so that no rendezvous is half in it. In groups in
// which the follower is ahead of the cut, it goes back to the cut and applies
// its own log from there again, which is why the log of a catch-up tail is
// kept, and is not shortened while a snapshot is coming in.
//
// Nor does a server drop what follows the last entry that all groups have executed together
// (raftlog.Tail.Common). Otherwise two could need each other's file, each ahead in one group and behind in
// another, and neither could go back to the other's cut; with the third lost, nobody leads both groups
// any more. Of two servers that have executed the same such entry as their last one, both have the log from
// there on, and need no file. If one has executed a later one, it is ahead in all groups. One that has
// taken in a file has its log from that on only, until it has executed the next. So that logs stay
// short, who stamps has all groups execute one when it has to keep more than the tail for this (meet).

// installing is at most one snapshot being received.
type installing struct {
	turn     chan struct{} // held by who receives one
	active   atomic.Bool
	loading  atomic.Bool // what was received takes the place of the present core
	received bool        // the file is one just received; under Node.rebuild
}

var errBehind = errors.New("the snapshot is older than what this server's log can complete")

// install receives a snapshot, makes it durable and begins anew from it.
// It may wait for the disk: a sender that has given up meanwhile, and tries again, is not waited for.
func (n *Node) install(ctx context.Context, from uint64, head *peerpb.SnapshotHeader, r io.Reader) error {
	ended, err := n.alone(ctx, n.spool.turn)
	if err != nil {
		return err
	}
	defer ended()
	n.spool.active.Store(true)
	defer n.spool.active.Store(false)
	// Once active is seen by the flusher the log keeps its tail.
	n.rebuild.Lock()
	useful, err := n.core.Load().fits(head, !n.fence.Reports())
	n.rebuild.Unlock()
	if err != nil {
		return err
	}
	if !useful {
		_, err := io.Copy(io.Discard, r)
		return err
	}
	began := time.Now()
	err = backend.Receive(n.dbPath(), backend.Identity{Cluster: n.cfg.ClusterID, Server: n.cfg.ID}, r)
	n.cfg.Metrics.Disk.SnapshotSave.Observe(time.Since(began).Seconds())
	if err != nil {
		return fmt.Errorf("receiving a snapshot from %x: %w", from, err)
	}
	n.log.Info("received and saved database snapshot", memberID("remote-snapshot-sender-id", from),
		zap.Uint64("incoming-snapshot-size-bytes", head.GetSize()), zap.Duration("download-took", time.Since(began)))
	n.cfg.Metrics.Server.SnapshotInstalls.Set(1)
	defer n.cfg.Metrics.Server.SnapshotInstalls.Set(0)
	if err := n.replace(head.GetGeneration()); err != nil {
		return err
	}
	n.log.Info("applied snapshot", memberID("remote-snapshot-sender-id", from), zap.Int64("revision", n.core.Load().revision()))
	return nil
}

// fits says whether a cut brings any group forward, or the server needs any, and whether the log
// reaches back to it in the groups that it brings backward.
func (c *core) fits(head *peerpb.SnapshotHeader, needed bool) (useful bool, err error) {
	useful = needed
	switch {
	case head.GetGeneration() < c.groups.Generation:
		return false, nil
	case head.GetGeneration() > c.groups.Generation:
		useful = true
	case len(head.GetPositions()) != len(c.stores):
		return false, fmt.Errorf("the snapshot has %d partitions, this server %d", len(head.GetPositions()), len(c.stores))
	}
	var behind error
	for _, at := range head.GetPositions() {
		p, here := c.groups.Partition(at.GetGroup())
		if !here && head.GetGeneration() > c.groups.Generation {
			continue
		}
		if !here {
			return false, fmt.Errorf("the snapshot has a group %d", at.GetGroup())
		}
		first, err := c.logs[p].FirstIndex()
		if err != nil {
			return false, err
		}
		_, applied := c.replica.Progress(p)
		if at.GetIndex() > applied {
			useful = true
		} else if at.GetIndex()+1 < first {
			behind = fmt.Errorf("%w: group %d begins at %d, the cut is at %d", errBehind, p, first, at.GetIndex())
		}
	}
	if !useful {
		return false, nil
	}
	return true, behind
}

// replace swaps the file for the one received, of a generation of groups, and recovers from it, as
// a restart does. This server may have gone on to a later generation meanwhile.
func (n *Node) replace(generation uint32) error {
	n.rebuild.Lock()
	defer n.rebuild.Unlock()
	if n.stopping.Load() {
		return errors.Join(errors.New("the server is stopping"), backend.Discard(n.dbPath()))
	}
	old := n.core.Load()
	if generation < old.groups.Generation {
		return backend.Discard(n.dbPath())
	}
	old.stale.Store(true)
	defer old.release()
	defer n.loads()()
	old.stopLoops()
	old.machine.Retire() // damage that is found in its state late says nothing of the next
	if err := old.close(); err != nil {
		n.fatal(err)
		return err
	}
	if err := backend.Install(n.dbPath()); err != nil {
		n.fatal(err)
		return err
	}
	n.spool.received = true
	n.fence.Installed()
	c, err := n.open()
	n.spool.received = false
	if err != nil {
		err = fmt.Errorf("recovering from an installed snapshot: %w", err)
		n.fatal(err)
		return err
	}
	n.installed.Add(1)
	n.succeed(old, c, false)
	return nil
}

// succeed puts a recovered core in the place of another, which has been closed.
func (n *Node) succeed(old, c *core, led bool) {
	old.replica.Stop(fault.TimeoutLeaderFail)
	if !n.Fenced() { // a snapshot may take a partition back, and neither headers nor reads go back
		c.replica.Shown(old.replica.Revision())
		c.follows(old)
	}
	published, compacted := recovery.Published(c.stores)
	placed := c.machine.Placement()
	c.feed = n.hub.Install(placed.Wide, placed.Transit() != nil, published, compacted) // before history is read from the new stores
	c.regain()
	n.enforce(c, c.machine.Auth())
	if t := n.cfg.Tokens.Simple; t != nil && c.machine.Auth().Since != old.machine.Auth().Since {
		t.Clear() // what the log behind the file assigns comes again
	}
	n.core.Store(c)
	n.role(c, 0) // what the old one still says of its own role isn't heard any more
	n.callLog.Retain(func(name string) bool { return c.machine.Extensions().Get(name) != nil })
	n.profiles.EndAll()
	n.sessions.Replaced()
	n.begin(c, led)
	n.peersChanged()
}

// restWhileLoading is a rest of a load: a million keys take fifteen seconds, a quarter of
// them on a processor.
const restWhileLoading = time.Millisecond

// loadRest returns the rests of the load of an installed snapshot, nil for none. The keys
// of a large file take seconds of the processors' time, which others on this machine may
// need more urgently than a learner that joins does. One that gets a second snapshot has
// been too slow with the first.
func (n *Node) loadRest(c *core) func() {
	if !n.spool.received || !c.members.List.Find(n.cfg.ID).GetIsLearner() || n.installed.Load() > 0 {
		return nil
	}
	var one sync.Mutex // so that the goroutines of all partitions together rest that often
	return func() {
		one.Lock()
		defer one.Unlock()
		_ = n.pause(n.life, restWhileLoading)
	}
}

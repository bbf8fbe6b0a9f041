package node

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
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

// installing is at most one snapshot being received.
type installing struct {
	mu     sync.Mutex
	active atomic.Bool
}

var errBehind = errors.New("the snapshot is older than what this server's log can complete")

// install receives a snapshot, makes it durable and begins anew from it.
func (n *Node) install(_ context.Context, from uint64, head *peerpb.SnapshotHeader, r io.Reader) error {
	n.spool.mu.Lock()
	defer n.spool.mu.Unlock()
	n.spool.active.Store(true)
	defer n.spool.active.Store(false)
	// Once active is seen by the flusher the log keeps its tail.
	n.rebuild.Lock()
	useful, err := n.core.Load().fits(head)
	n.rebuild.Unlock()
	if err != nil {
		return err
	}
	if !useful {
		_, err := io.Copy(io.Discard, r)
		return err
	}
	path := filepath.Join(filepath.Dir(n.dbPath()), "incoming.snap")
	defer os.Remove(path)
	began := time.Now()
	if err := receive(path, r); err != nil {
		return fmt.Errorf("receiving a snapshot from %x: %w", from, err)
	}
	n.log.Info("received and saved database snapshot", memberID("remote-snapshot-sender-id", from),
		zap.Uint64("incoming-snapshot-size-bytes", head.GetSize()), zap.Duration("download-took", time.Since(began)))
	n.cfg.Metrics.Server.SnapshotInstalls.Set(1)
	defer n.cfg.Metrics.Server.SnapshotInstalls.Set(0)
	if err := n.replace(path); err != nil {
		return err
	}
	n.log.Info("applied snapshot", memberID("remote-snapshot-sender-id", from), zap.Int64("revision", n.Revision()))
	return nil
}

// fits says whether a cut brings any group forward, and whether the log reaches
// back to it in the groups that it brings backward.
func (c *core) fits(head *peerpb.SnapshotHeader) (useful bool, err error) {
	if len(head.GetPositions()) != len(c.stores) {
		return false, fmt.Errorf("the snapshot has %d partitions, this server %d", len(head.GetPositions()), len(c.stores))
	}
	var behind error
	for _, at := range head.GetPositions() {
		p := int(at.GetGroup())
		if p >= len(c.logs) {
			return false, fmt.Errorf("the snapshot has a partition %d", p)
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

func receive(path string, r io.Reader) error {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	_, err = io.Copy(f, r)
	return errors.Join(err, f.Close())
}

// replace swaps the file and recovers from it, as a restart does.
func (n *Node) replace(path string) error {
	n.rebuild.Lock()
	defer n.rebuild.Unlock()
	if n.stopping.Load() {
		return errors.New("the server is stopping")
	}
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	old := n.core.Load()
	old.stale.Store(true)
	old.stopLoops()
	if err := old.close(); err != nil {
		n.fatal(err)
		return err
	}
	began := time.Now()
	err = backend.Install(n.dbPath(), f)
	n.cfg.Metrics.Disk.SnapshotSave.Observe(time.Since(began).Seconds())
	if err != nil {
		err = fmt.Errorf("installing a snapshot: %w", err)
		n.fatal(err)
		return err
	}
	c, err := n.open()
	if err != nil {
		err = fmt.Errorf("recovering from an installed snapshot: %w", err)
		n.fatal(err)
		return err
	}
	old.replica.Stop(fault.TimeoutLeaderFail)
	published, compacted := recovery.Published(c.stores)
	placed := c.machine.Placement()
	c.feed = n.hub.Install(placed.Wide, placed.Transit() != nil, published, compacted) // before history is read from the new stores
	n.enforce(c, c.machine.Auth())
	n.core.Store(c)
	n.callLog.Retain(func(name string) bool { return c.machine.Extensions().Get(name) != nil })
	n.profiles.EndAll()
	n.sessions.Replaced()
	n.installed.Add(1)
	n.begin(c)
	n.peersChanged()
	return nil
}

// sending is the snapshots being sent, one to a peer.
type sending struct {
	mu sync.Mutex
	to map[uint64]bool
}

// sendSnapshot starts sending the file to a peer, unless that is under way.
func (n *Node) sendSnapshot(to uint64) {
	n.snapshots.mu.Lock()
	defer n.snapshots.mu.Unlock()
	if n.snapshots.to[to] || n.stopping.Load() {
		return
	}
	if n.snapshots.to == nil {
		n.snapshots.to = map[uint64]bool{}
	}
	n.snapshots.to[to] = true
	n.running.Go(func() { // asked for by a group's loop, which Stop ends before it waits
		err := n.streamSnapshot(to)
		n.snapshots.mu.Lock()
		delete(n.snapshots.to, to)
		n.snapshots.mu.Unlock()
		if err != nil {
			n.log.Warn("sending a snapshot failed", memberID("remote-peer-id", to), zap.Error(err))
		}
		n.core.Load().replica.SnapshotSent(to)
	})
}

func (n *Node) streamSnapshot(to uint64) error {
	// What is flushed now is what the peer's log must be able to go on from.
	if err := n.flushNow(); err != nil {
		return err
	}
	s, err := n.core.Load().backend.Snapshot()
	if err != nil {
		return err
	}
	head := &peerpb.SnapshotHeader{Size: uint64(s.Size)}
	for p, at := range s.Positions {
		head.Positions = append(head.Positions, &peerpb.Position{Group: uint32(p), Index: at.Index, Term: at.Term})
	}
	began := time.Now()
	n.log.Info("sending database snapshot", memberID("remote-peer-id", to), zap.Int64("bytes", s.Size))
	r, w := io.Pipe()
	go func() {
		_, err := s.WriteTo(w)
		_ = s.Close()
		n.cfg.Metrics.Disk.Snapshot.Observe(time.Since(began).Seconds())
		w.CloseWithError(n.damaged(err))
	}()
	defer r.Close()
	if err := n.transport.SendSnapshot(n.life, to, head, r); err != nil {
		return err
	}
	n.log.Info("sent database snapshot", memberID("remote-peer-id", to), zap.Int64("bytes", s.Size), zap.Duration("took", time.Since(began)))
	return nil
}

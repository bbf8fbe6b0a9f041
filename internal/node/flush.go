package node

import (
	"context"
	"fmt"
	"math"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"

	"github.com/stoa-kv/stoa/internal/backend"
	"github.com/stoa-kv/stoa/internal/command"
	"github.com/stoa-kv/stoa/internal/raftlog"
	"github.com/stoa-kv/stoa/internal/recovery"
	"github.com/stoa-kv/stoa/internal/store"
)

// Bounds of the log entries that all groups together keep in memory for lagging
// followers, except those since the last that all groups have executed together (meet): one that is further behind gets the file.
const (
	maxLogBytes  = 32 << 20  // for any follower: more than a second of the fastest writing; on disk, too
	maxHeldBytes = 512 << 20 // for one that installs a snapshot, to continue from there
)

// flushLoop writes what has changed to the backend file.
func (n *Node) flushLoop() {
	ticker := time.NewTicker(n.cfg.FlushInterval)
	defer ticker.Stop()
	for {
		select {
		case <-n.life.Done():
			return
		case <-ticker.C:
			n.flushDue.Store(max(1, n.clock()))
			n.rebuild.Lock()
			err := n.flush(n.core.Load())
			n.rebuild.Unlock()
			n.flushDone()
			if err != nil && n.life.Err() == nil {
				n.fatal(fmt.Errorf("flushing to the backend file: %w", err))
				return
			}
		}
	}
}

// flush makes one cut durable and lets the log forget it.
func (n *Node) flush(c *core) error {
	c.flushing.Lock()
	defer c.flushing.Unlock()
	store.LockAll(c.stores)
	cut := c.cut()
	store.UnlockAll(c.stores)
	return n.write(c, cut)
}

// write brings a cut into the file, unless it is nil.
func (n *Node) write(c *core, cut *backend.Cut) error {
	if cut == nil {
		return nil
	}
	c.system.complete(&cut.System)
	cut.System.Log = backend.LogPlace(c.wal.Durable())
	began, before := time.Now(), c.backend.CommitTimes()
	if err := c.backend.Flush(cut); err != nil {
		return err
	}
	n.observeFlush(c, cut, time.Since(began), before)
	c.hashes.compute(n, c, cut)
	c.hashes.hold(cut)
	n.release(c, cut)
	c.system.written()
	n.noteSwept(c, cut)
	return n.shortenLog(c, cut)
}

// cut takes all partitions at one moment, so that a rendezvous is in the file
// whole or not at all. It costs each store a pointer swap. It is called while all stores are
// locked, and returns nil if the file has everything.
func (c *core) cut() *backend.Cut {
	// The first cut is made at once: a peer that joins needs the members from it, perhaps
	// before anything can be committed.
	dirty := (!c.system.stored || c.system.file.auth == nil) && !c.joins()
	for p, s := range c.stores {
		index, _ := s.Applied()
		dirty = dirty || s.Dirty() || index != c.flushed[p]
	}
	if !dirty {
		return nil
	}
	cut := &backend.Cut{Partitions: make([]store.Cut, len(c.stores)), System: c.system.cut(c)}
	c.common = c.machine.Common()
	for p, s := range c.stores {
		cut.Partitions[p] = s.Cut()
	}
	return cut
}

// shortenLog drops what the file now holds from the log, but for what followers may
// still ask for. In memory that is bounded by entries and bytes; on disk whole
// segments go. The last entry always stays: it may be a rendezvous that another group
// executed, and this group's Raft doesn't know yet that it is applied, and looks at
// it before a campaign.
//
// All groups share the segments, so one that has little to log would keep all that others have logged since. Whoever
// lacks an entry of which the record is further back than the entries of all groups together that are kept for
// followers lacks one of these, too, and gets the file: so such entries go, and a last one that lies there is followed by
// another (meet).
func (n *Node) shortenLog(c *core, cut *backend.Cut) error {
	keep, short := make([]uint64, len(c.logs)), true
	far := c.wal.Behind(n.cfg.CatchUpBytes)
	for p, l := range c.logs {
		at := cut.Partitions[p]
		l.SetApplied(raftlog.Position{Index: at.Index, Term: at.Term})
		if n.spool.active.Load() {
			continue // a snapshot is on its way: its cut may be behind ours
		}
		// The disk keeps what memory keeps: a snapshot's cut that is behind this
		// server in some group is completed from there (install.go).
		tail := n.tail(c, p)
		tail.Far = far[c.groups.Number(p)]
		index, held := l.Shorten(tail)
		keep[p], short = index+1, short && !held && (tail.Far == 0 || tail.Far < at.Index)
	}
	if !short && c.replica.Leading() {
		n.meet(c)
	}
	if err := c.wal.Release(recovery.Keep(c.groups, keep)); err != nil {
		return fmt.Errorf("releasing log segments: %w", err)
	}
	return nil
}

// meet has all partitions execute a command together, which changes nothing: what precedes it in the logs needs to
// be kept no longer for one that is behind in one group and ahead in another, and a backup finds them in one state.
func (n *Node) meet(c *core) {
	if c.meets.Swap(true) {
		return
	}
	c.propose(0, command.LeaseCheckpoint, &pb.LeaseCheckpointRequest{}, func(error) { c.meets.Store(false) })
}

func (n *Node) tail(c *core, p int) raftlog.Tail {
	if len(c.replica.Peers()) == 0 {
		return raftlog.Tail{Entries: 1, Common: math.MaxUint64}
	}
	groups := int64(len(c.logs))
	return raftlog.Tail{
		Entries: n.cfg.CatchUpEntries, Bytes: n.cfg.CatchUpBytes / groups,
		Needed: c.replica.Needed(p), Held: maxHeldBytes / groups, Common: c.common[p],
	}
}

// flushNow flushes and returns when everything that was applied before the call
// is in the file.
func (n *Node) flushNow() error {
	n.rebuild.Lock()
	defer n.rebuild.Unlock()
	if err := n.flush(n.core.Load()); err != nil {
		return n.unflushed(err)
	}
	return nil
}

// flushFor is flushNow for a request. The disk may hang: of those that wait for it one does so for good, and the others leave with their requests.
func (n *Node) flushFor(ctx context.Context) error {
	ended, err := n.alone(ctx, n.filing)
	if err != nil {
		return err
	}
	defer ended()
	return n.flushNow()
}

// unflushed ends the server: what the file has is unknown.
func (n *Node) unflushed(err error) error {
	err = fmt.Errorf("flushing to the backend file: %w", err)
	n.fatal(err)
	return err
}

package node

import (
	"time"

	"go.uber.org/zap"
)

// A disk may hang without an error, or take very long, with the state file alone, or the log with it (replica, hung.go). Requests are answered from
// memory and the log, so nothing has to wait for that. But until the file is written the log keeps all of its segments, and
// memory what the file lacks, on followers, too, which refuse no writes: that has an end only if somebody is told. A flush that fails ends the
// server; one that hangs may still succeed, and the next start would need the file.

// flushPatience is for how many intervals between two flushes one may not end.
const flushPatience = 100

// Flushing is for how long the flush that is due, or under way, hasn't ended; 0: none is. It may wait for another that is under way, or for a
// defragmentation. While a snapshot is loaded, which takes minutes with many keys, nothing is executed, and so nothing has to be written.
func (n *Node) Flushing() time.Duration {
	if due := n.flushDue.Load(); due != 0 && !n.spool.loading.Load() {
		return time.Duration(n.clock() - due)
	}
	return 0
}

// loads has no flush be due for as long as a snapshot is loaded.
func (n *Node) loads() (loaded func()) {
	n.spool.loading.Store(true)
	return func() {
		if due := n.flushDue.Load(); due != 0 {
			n.flushDue.CompareAndSwap(due, n.clock())
		}
		n.spool.loading.Store(false)
	}
}

func (n *Node) overdue(waited time.Duration) bool { return waited > flushPatience*n.cfg.FlushInterval }

// watchFlush is called with each tick. It leaves the line to others: the disk of the log file may be the one that hangs.
func (n *Node) watchFlush() {
	waited := n.Flushing()
	if !n.overdue(waited) || n.clock()-n.flushTold < int64(tellAgain) && n.flushTold != 0 {
		return
	}
	n.flushTold = n.clock()
	n.lines.add(func(lg *zap.Logger) {
		lg.Error("the state file has not been written for too long; until it is, the log is not cut, and memory grows with each write",
			zap.String("path", n.dbPath()), zap.Duration("took", waited))
	})
}

// flushDone ends what watchFlush watches.
func (n *Node) flushDone() {
	took := n.Flushing()
	n.flushDue.Store(0)
	if n.overdue(took) {
		n.log.Warn("the state file has been written at last", zap.String("path", n.dbPath()), zap.Duration("took", took))
	}
}

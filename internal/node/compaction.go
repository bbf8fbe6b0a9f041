package node

import (
	"sync"
	"time"

	"go.uber.org/zap"

	"github.com/stoa-kv/stoa/internal/backend"
)

// compactions are those not finished in the file yet.
type compactions struct {
	mu      sync.Mutex
	pending []pendingCompaction // in order
	removed int                 // revisions, since one has been finished
}

type pendingCompaction struct {
	rev   int64
	began time.Time
}

// asked is called while all stores are locked.
func (k *compactions) asked(rev int64) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.pending = append(k.pending, pendingCompaction{rev, time.Now()})
}

// inherit takes over those of another core.
func (k *compactions) inherit(from *compactions) {
	from.mu.Lock()
	defer from.mu.Unlock()
	k.pending, k.removed = from.pending, from.removed
}

// swept takes those that a cut has finished out, and returns them with the number of
// revisions that were removed for them.
func (k *compactions) swept(cut *backend.Cut, through int64) (done []pendingCompaction, removed int) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for p := range cut.Partitions {
		k.removed += len(cut.Partitions[p].Dead)
	}
	n := 0
	for n < len(k.pending) && k.pending[n].rev <= through {
		n++
	}
	if n == 0 {
		return nil, 0
	}
	done, removed = k.pending[:n:n], k.removed
	k.pending, k.removed = k.pending[n:], 0
	return done, removed
}

// noteSwept keeps the revision up to which compactions have been carried out in the file,
// and logs those that a cut has finished.
func (n *Node) noteSwept(c *core, cut *backend.Cut) {
	through := cut.Partitions[0].Swept
	for p := range cut.Partitions {
		through = min(through, cut.Partitions[p].Swept)
	}
	c.swept.Store(through)
	m := &n.cfg.Metrics.Store.Compaction
	done, removed := c.compactions.swept(cut, through)
	for _, one := range done {
		took := time.Since(one.began)
		m.Total.Observe(milliseconds(took))
		m.Last.SetToCurrentTime()
		fields := []zap.Field{
			zap.Int64("compact-revision", one.rev), zap.Duration("took", took), zap.Int("number-of-keys-compacted", removed),
			zap.Int64("current-db-size-bytes", c.backend.Size()), zap.Int64("current-db-size-in-use-bytes", c.backend.SizeInUse()),
		}
		if sum, ok := c.hashes.at(one.rev); ok {
			fields = append(fields, zap.Uint32("hash", sum.sum))
		}
		n.log.Info("finished scheduled compaction", fields...)
		removed = 0 // counted for the first
	}
}

// observeFlush counts a flush, its parts, and the share of a compaction in it.
func (n *Node) observeFlush(c *core, cut *backend.Cut, took time.Duration, before backend.CommitTimes) {
	disk, compaction := &n.cfg.Metrics.Disk, &n.cfg.Metrics.Store.Compaction
	disk.BackendCommit.Observe(took.Seconds())
	parts := c.backend.CommitTimes().Since(before)
	disk.Rebalance.Observe(parts.Rebalance.Seconds())
	disk.Spill.Observe(parts.Spill.Seconds())
	disk.Write.Observe(parts.Write.Seconds())
	dead := 0
	for p := range cut.Partitions {
		dead += len(cut.Partitions[p].Dead)
	}
	if dead > 0 {
		compaction.Keys.Add(float64(dead))
		compaction.Pause.Observe(milliseconds(took))
	}
}

// release lets the stores forget a cut that the file has, and look for revisions that
// compactions have made obsolete.
func (n *Node) release(c *core, cut *backend.Cut) {
	sweeping, began := false, time.Now()
	for p, s := range c.stores {
		sweeping = sweeping || cut.Partitions[p].Swept < cut.Partitions[p].Sweep
		s.Release(cut.Partitions[p])
		c.flushed[p] = cut.Partitions[p].Index
	}
	if sweeping {
		n.cfg.Metrics.Store.Compaction.IndexPause.Observe(milliseconds(time.Since(began)))
	}
}

func milliseconds(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

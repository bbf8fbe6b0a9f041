package node

import (
	"context"
	"errors"
	"time"

	"go.uber.org/zap"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"

	"github.com/stoa-kv/stoa/internal/fault"
)

// AutoCompaction is the history to keep: the last Revisions, or that of the
// last Period. Zero values keep all.
type AutoCompaction struct {
	Period    time.Duration
	Revisions int64
}

// compactor compacts on the leader, as etcd's periodic and revision modes do.
type compactor struct {
	n     *Node
	every time.Duration
	past  []int64 // one revision per interval, the oldest first
}

// How often etcd looks in revision mode.
const revisionInterval = 5 * time.Minute

func (n *Node) startCompactor() {
	a, c := n.cfg.Compaction, &compactor{n: n}
	switch {
	case a.Period > 0:
		c.every = max(min(a.Period, time.Hour)/10, time.Millisecond) // a tenth of the period, of an hour at the most
	case a.Revisions > 0:
		c.every = revisionInterval
	default:
		return
	}
	n.every(c.every, nil, c.step)
}

func (c *compactor) step() {
	rev := c.n.Revision()
	target := int64(0)
	if a := c.n.cfg.Compaction; a.Revisions > 0 {
		target = rev - a.Revisions
	} else {
		c.past = append(c.past, rev)
		if keep := int((a.Period + c.every - 1) / c.every); len(c.past) > keep {
			target = c.past[0]
			c.past = c.past[1:]
		}
	}
	if target <= 0 || !c.n.core.Load().replica.Leading() {
		return
	}
	ctx, cancel := context.WithTimeout(asServer(c.n.life), c.n.cfg.requestTimeout())
	defer cancel()
	began := time.Now()
	_, err := c.n.Compact(ctx, &pb.CompactionRequest{Revision: target})
	mode, fields := "periodic", []zap.Field{zap.Int64("revision", target), zap.Duration("compact-period", c.n.cfg.Compaction.Period)}
	if c.n.cfg.Compaction.Revisions > 0 {
		mode, fields[1] = "revision", zap.Int64("revision-compaction-retention", c.n.cfg.Compaction.Revisions)
	}
	switch {
	case errors.Is(err, fault.Compacted): // nothing has been written since
	case err != nil:
		c.n.log.Warn("failed auto "+mode+" compaction", append(fields, zap.Error(err))...)
	default:
		c.n.log.Info("completed auto "+mode+" compaction", append(fields, zap.Duration("took", time.Since(began)))...)
	}
}

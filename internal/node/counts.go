package node

import (
	"sync/atomic"

	"github.com/stoa-kv/stoa/internal/session/host"
	"github.com/stoa-kv/stoa/internal/store"
)

// counters count since the server's start. Changes of keys are counted when
// they are applied, so every member counts all of them.
type counters struct {
	puts, deletes, putBytes            atomic.Int64
	ranges, txns                       atomic.Int64
	failed                             atomic.Int64
	promoted                           atomic.Int64 // learners, asked of this member
	granted, revoked, renewed, expired atomic.Int64
	decisions, slotsMoved              atomic.Int64 // of the balancer
	sessions                           host.Counts
}

// Counts are the numbers behind etcd's counters of the same names.
type Counts struct {
	Puts, Deletes, PutBytes            int64
	Ranges, Txns                       int64 // asked of this member
	ProposalsFailed                    int64
	Promoted                           int64 // learners, asked of this member
	Granted, Revoked, Renewed, Expired int64 // leases
	Decisions, SlotsMoved              int64 // of the balancer, here
}

// Counts returns the counters since the server's start.
func (n *Node) Counts() Counts {
	c := &n.counts
	return Counts{
		Puts: c.puts.Load(), Deletes: c.deletes.Load(), PutBytes: c.putBytes.Load(),
		Ranges: c.ranges.Load() + c.sessions.Reads.Load(), Txns: c.txns.Load(), ProposalsFailed: c.failed.Load() + c.sessions.Failed.Load(),
		Promoted: c.promoted.Load(), Granted: c.granted.Load(), Revoked: c.revoked.Load(), Renewed: c.renewed.Load(), Expired: c.expired.Load(),
		Decisions: c.decisions.Load(), SlotsMoved: c.slotsMoved.Load(),
	}
}

// changed counts the changes of one revision, and reports whether any concerns extensions.
func (c *counters) changed(changes []store.Change) (managing bool) {
	var puts, deletes, bytes int64
	for i := range changes {
		managing = managing || manages(changes[i].Kv.Key())
		if changes[i].Delete {
			deletes++
			continue
		}
		if changes[i].Kv.Version() == 0 {
			continue // an extension's notice
		}
		puts++
		bytes += int64(len(changes[i].Kv.Key()) + len(changes[i].Kv.Value()))
	}
	if puts > 0 {
		c.puts.Add(puts)
		c.putBytes.Add(bytes)
	}
	if deletes > 0 {
		c.deletes.Add(deletes)
	}
	return managing
}

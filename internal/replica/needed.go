package replica

import (
	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/tracker"
)

// silentTimeouts is the number of election timeouts for which the log is kept
// for a follower that has become silent: it is reading the snapshot's file, or
// has failed.
const silentTimeouts = 30

// catchingUp is a follower that gets a snapshot. Until it has installed that
// and received all later entries, its groups' logs are kept from the snapshot's
// position on: it would need another snapshot otherwise, and one more after
// that.
type catchingUp struct {
	index uint64 // the snapshot has all entries up to it
	taken bool   // its transfer has ended
}

// Needed is the first entry of a group that a follower will ask for once it has
// taken in a snapshot, or 0.
func (r *Replica) Needed(group int) uint64 { return r.groups[group].needed.Load() }

// snapshotTo says that a follower needs a snapshot, which is one of all groups and has, of
// this group, at least the entries up to index.
func (g *group) snapshotTo(peer, index uint64) {
	if g.catching == nil {
		g.catching = map[uint64]*catchingUp{}
	}
	if c := g.catching[peer]; c != nil && !c.taken {
		// It is being sent, perhaps since before entry index was flushed.
		c.index = min(c.index, index)
	} else {
		g.catching[peer] = &catchingUp{index: index}
	}
	g.noteNeeded()
}

// snapshotSent reports the end of a snapshot to Raft, if it waits for that. It
// reports success also after a failure: then Raft probes the peer. After a
// reported failure it would send the same again, to a peer that may have
// refused the server's cut because of another group and need nothing in this
// one.
func (g *group) snapshotSent(peer uint64) {
	g.node.ReportSnapshot(peer, raft.SnapshotFinish)
	if c := g.catching[peer]; c != nil {
		c.taken = true
	}
}

// noteNeeded updates the progress of the followers that are catching up.
func (g *group) noteNeeded() {
	if !g.leading {
		clear(g.catching)
	}
	first, now := uint64(0), g.r.now()
	g.node.WithProgress(func(id uint64, _ raft.ProgressType, pr tracker.Progress) {
		c := g.catching[id]
		if c == nil {
			return
		}
		there := c.taken && pr.State == tracker.StateReplicate && pr.Match >= g.commitAtTick
		if there || now-g.r.peers.heard(id) > int64(silentTimeouts*g.r.cfg.ElectionTicks) {
			delete(g.catching, id)
			return
		}
		if from := max(pr.Match, c.index) + 1; first == 0 || from < first {
			first = from
		}
	})
	g.commitAtTick = g.commit.Load()
	g.needed.Store(first)
}

package replica

import (
	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/tracker"
	"go.uber.org/zap"
)

// ownDisk is what a leader knows of its disk. Raft executes no entries that the server's own disk has not, also if the others have
// committed them: a leader whose disk hangs would send heartbeats, and lead, and answer no read and no write, for as long as that
// lasts. So it hands its groups to a server whose disk works, if there is one. (etcd's server writes its log in the goroutine that sends
// heartbeats, and loses its lead that way.)
type ownDisk struct {
	match uint64 // of this group's log
	since int64  // the tick since which it is that, and more waits
	next  int64  // the tick of the next attempt to have another server lead
}

// diskPatience is for how many ticks a leader's disk may write nothing: half of what a request may take, so that those that come
// meanwhile can be carried out by the next leader.
func (r *Replica) diskPatience() int64 {
	return max(r.cfg.RequestTicks/2, 2*int64(r.cfg.ElectionTicks))
}

// watchDisk is called with each tick. If the disks of too few others for a majority have what the own one has not, theirs may hang as well, and
// wait for the same, or nobody could lead without this server: then nothing is gained.
func (g *group) watchDisk(now int64) {
	if !g.leading {
		g.disk = ownDisk{}
		return
	}
	own := g.durable()
	last, err := g.log.LastIndex()
	if d := &g.disk; own != d.match || own == last || err != nil {
		*d = ownDisk{match: own, since: now, next: now + g.r.diskPatience()}
		return
	}
	if now < g.disk.next || !g.outrun(own) {
		return
	}
	g.disk.next = now + int64(g.r.cfg.ElectionTicks) // when a transfer that doesn't succeed ends
	g.r.cfg.Logger.Error("this server's disk has written nothing for too long: another server is to lead",
		zap.Int("group", g.id), zap.Int64("ticks", now-g.disk.since))
	g.r.handOver(func(uint64) bool { return true })
}

// durable is the last entry of a leader's log that is on its own disk.
func (g *group) durable() (index uint64) {
	g.node.WithProgress(func(id uint64, _ raft.ProgressType, pr tracker.Progress) {
		if id == g.r.cfg.ID {
			index = pr.Match
		}
	})
	return index
}

// outrun reports whether a majority of the voters have more than this leader on their disks.
func (g *group) outrun(own uint64) bool {
	voters, ahead := 0, 0
	g.node.WithProgress(func(_ uint64, typ raft.ProgressType, pr tracker.Progress) {
		if typ == raft.ProgressTypePeer {
			voters++
			if pr.Match > own {
				ahead++
			}
		}
	})
	return 2*ahead > voters
}

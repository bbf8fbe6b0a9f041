package replica

// gather transfers the leadership of the other groups to the leader of group 0.
// Every group elects by Raft's own rules; this only moves leaders elected on
// different servers.
func (l *leadership) gather() {
	if l.stopped {
		return
	}
	now, first := l.r.now(), l.groups[0]
	if first.leading || l.r.alive(first.leader) {
		l.unled = now
	}
	for p := 1; p < len(l.groups); p++ {
		ro := &l.groups[p]
		switch {
		case ro.leading && !first.leading && now-l.unled >= 2*int64(l.r.cfg.ElectionTicks):
			// Group 0 may have a leader that doesn't talk to this server, which has been
			// removed there, or not been added yet. Others are in both groups.
			l.r.groups[p].order(func(g *group) {
				if to := g.longest(func(uint64) bool { return true }); to != 0 {
					g.node.TransferLeader(to)
				}
			})
		case ro.leading && !first.leading && l.r.alive(first.leader):
			// Not to a silent one: group 0 is about to elect another, and a
			// group can't accept proposals during a transfer.
			to := first.leader
			l.r.groups[p].order(func(g *group) { g.node.TransferLeader(g.heir(to)) })
		case first.leading && !ro.leading && !l.r.alive(ro.leader) && !ro.voting(now) &&
			(ro.campaigned == 0 || now-ro.campaigned >= int64(l.r.cfg.ElectionTicks)):
			// An active one transfers the group by itself, and a campaign at
			// that moment would only disturb that.
			ro.campaigned = now + 1
			l.r.groups[p].order(func(g *group) {
				if !g.leading {
					_ = g.node.Campaign()
				}
			})
		}
	}
}

// voting reports that a term has begun just now, and has no leader yet as far as this server
// knows: one is being elected. It may be the one to which this server hands all groups over, and
// group 0 comes later. A campaign at that moment could undo the election: those who have voted
// would refuse both candidates for an election timeout.
func (ro *role) voting(now int64) bool { return ro.leader == 0 && now-ro.turned <= silence }

// silence is the number of ticks without a message after which a leader counts
// as failed; it sends heartbeats with every tick.
const silence = 3

// alive reports whether a message of a server was received lately.
func (r *Replica) alive(id uint64) bool {
	return r.now()-r.peers.heard(id) <= silence
}

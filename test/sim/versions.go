package sim

import (
	"fmt"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"

	"github.com/stoa-kv/stoa/internal/command"
	"github.com/stoa-kv/stoa/internal/membership"
	"github.com/stoa-kv/stoa/internal/replica"
	"github.com/stoa-kv/stoa/internal/version"
)

// upgrader changes the version of the cluster up and down at any time, and has servers
// announce releases: as all of them run this program, each change is one that could be decided.
// What one level adds meets, in the log, the command that takes it away.
func (c *cluster) busyUpgrader() *meddler {
	return &meddler{
		c: c, name: "upgrader",
		draw: c.drawUpgrade,
		done: func(err error) {
			if err == nil {
				c.stats.VersionChanges++
			}
		},
	}
}

// drawUpgrade draws a change, of which some don't fit the version.
func (c *cluster) drawUpgrade(s *server) command.Command {
	l, m := c.loop, s.life.core.machine
	list := m.Membership()
	change := membership.VersionChange{Op: membership.Raise, From: list.Level, To: min(list.Level+1, version.Newest)}
	switch l.rng.IntN(5) {
	case 0:
		if list.Level <= c.lowest || !m.MayDowngrade(list.Level-1) {
			break
		}
		change = membership.VersionChange{Op: membership.Downgrade, To: list.Level - 1}
	case 1:
		change = membership.VersionChange{Op: membership.Cancel}
	case 2, 3:
		a := membership.Announcement{Member: &pb.Member{ID: s.id, Name: fmt.Sprint("s", s.id)}, Release: fmt.Sprint("0.", l.rng.IntN(3))}
		body, err := a.Encode()
		if err != nil {
			c.fail("versions", "%v", err)
		}
		return command.Command{Kind: command.MemberAnnounce, Body: body}
	}
	return command.Command{Kind: command.ClusterVersion, Body: change.Encode()}
}

// levelOfUsers is the level from which there are users, and from which files have the epochs that a forced
// server may need to tell apart who stamped what in its logs (command.Epoch.Before).
const levelOfUsers version.Level = 2

// rise ends a downgrade and has the version rise, as it does by itself once all members run this program: the servers
// of an earlier version don't compare their states.
func (c *cluster) rise() {
	if c.upgrader == nil {
		return
	}
	risen := c.waitFor(equalAfter, func() bool {
		l := c.leader().life
		if l == nil || !l.core.replica.Leading() {
			return false
		}
		list := l.core.machine.Membership()
		if list.Level == version.Newest {
			return true
		}
		change := membership.VersionChange{Op: membership.Raise, From: list.Level, To: version.Newest}
		if list.Downgrading {
			change = membership.VersionChange{Op: membership.Cancel}
		}
		cmd := command.Command{Kind: command.ClusterVersion, User: c.own(), Body: change.Encode()}
		l.core.replica.Submit(&replica.Write{Command: cmd, Parts: l.core.machine.Placement().All(), System: true, Done: func(replica.Outcome) {}})
		return false
	})
	if !risen {
		c.fail("liveness", "%v after everything has healed, the version hasn't risen", equalAfter)
	}
}

// agree: once all have applied everything, all have the same version and releases, and so do
// their files.
func (c *cluster) agree() {
	if c.upgrader == nil {
		return
	}
	var lists []string
	same := func() bool {
		lists = nil
		for _, s := range c.alive() {
			if s.life == nil {
				return false
			}
			list := s.life.core.machine.Membership()
			meta, err := s.file.Meta()
			if err != nil {
				c.fail("versions", "%v", err)
				return false
			}
			lists = append(lists, fmt.Sprintf("%v, file %v, downgrading %v, %v", list.Level, meta.Level, list.Downgrading, list.Releases))
			if lists[0] != lists[len(lists)-1] || meta.Level != list.Level {
				return false
			}
		}
		return true
	}
	if !c.waitFor(equalAfter, same) {
		c.fail("I6", "servers have different versions of the cluster: %q", lists)
	}
}

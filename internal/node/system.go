package node

import (
	"time"

	"go.uber.org/zap"
	"google.golang.org/protobuf/proto"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"

	"github.com/stoa-kv/stoa/internal/apply"
	"github.com/stoa-kv/stoa/internal/auth"
	"github.com/stoa-kv/stoa/internal/backend"
	"github.com/stoa-kv/stoa/internal/command"
	"github.com/stoa-kv/stoa/internal/lease"
	"github.com/stoa-kv/stoa/internal/membership"
	"github.com/stoa-kv/stoa/internal/placement"
	"github.com/stoa-kv/stoa/internal/recovery"
	"github.com/stoa-kv/stoa/internal/token"
)

// systemParts is the state that belongs to no partition, but for leases and sessions, which keep their changes themselves.
type systemParts struct {
	alarms  []*pb.AlarmMember
	members recovery.Membership
	placed  *placement.Map
	epochs  []command.Epochs
	groups  *membership.Groups
	auth    *auth.State // nil: the file hasn't all of it
	grants  []byte
}

// systemState knows what the file holds of the state that belongs to no
// partition, so that a cut carries the difference.
type systemState struct {
	file, next systemParts // next is that of the last cut
	stored     bool        // the file has members
	noteStored func(before, now *membership.List)
	sessions   apply.SessionsCut // of the last cut, not yet encoded
}

// cut is called while all stores are locked.
func (s *systemState) cut(c *core) backend.System {
	var sys backend.System
	changed, gone := c.leases.Cut()
	for _, l := range changed {
		sys.Leases = append(sys.Leases, backend.Lease(l))
	}
	sys.LeasesRevoked = gone
	m := c.machine
	s.next = systemParts{
		alarms:  m.Alarms(),
		members: recovery.Membership{List: m.Membership(), Configs: m.Configurations()},
		placed:  m.StoredPlacement(),
		epochs:  recovery.StoredEpochs(m.Epochs(), m.Level()),
		groups:  m.Groups(),
		auth:    m.Auth(),
		grants:  m.CutGrants(),
	}
	s.sessions = m.CutSessions()
	return sys
}

// complete adds to a cut what need not be done while the stores are locked.
func (s *systemState) complete(sys *backend.System) {
	sys.AlarmsOn = missingFrom(s.file.alarms, s.next.alarms)
	sys.AlarmsOff = missingFrom(s.next.alarms, s.file.alarms)
	if !s.stored || !s.next.members.Equal(s.file.members) {
		s.next.members.Cut(sys)
	}
	recovery.CutPlacement(sys, s.file.placed, s.next.placed)
	recovery.CutEpochs(sys, s.file.epochs, s.next.epochs)
	recovery.CutGroups(sys, s.file.groups, s.next.groups)
	recovery.CutAuth(sys, s.file.auth, s.next.auth)
	sys.Blobs = s.sessions.AddTo(apply.AddGrants(sys.Blobs, s.file.grants, s.next.grants))
	s.sessions = apply.SessionsCut{}
}

// written is called when the last cut is in the file.
func (s *systemState) written() {
	s.noteStored(s.file.members.List, s.next.members.List)
	s.file, s.stored = s.next, true
}

// missingFrom returns what of list is not in base.
func missingFrom(base, list []*pb.AlarmMember) []*pb.AlarmMember {
	var out []*pb.AlarmMember
next:
	for _, a := range list {
		for _, b := range base {
			if proto.Equal(a, b) {
				continue next
			}
		}
		out = append(out, a)
	}
	return out
}

// sink passes changes of keys on to the watches.
type sink struct {
	n *Node
	c *core
}

// observer passes changes of system state on to those who keep soft state.
type observer struct {
	n *Node
	c *core
}

func (o observer) LeaseGranted(l lease.Lease) {
	o.n.counts.granted.Add(1)
	o.n.cfg.Metrics.Store.LeaseTTL.Observe(float64(l.TTL))
	o.n.leases.Expirer.Granted(l, time.Now())
}

func (o observer) LeaseRevoked(id int64) {
	o.n.counts.revoked.Add(1)
	o.n.leases.Expirer.Revoked(id)
	o.n.sessions.Revoked(id)
}

func (o observer) LeaseEnding(id int64) { o.n.leases.Expirer.Ending(id, time.Now()) }

// AuthChanged ends what isn't permitted any more, before anything else is applied.
func (o observer) AuthChanged(now *auth.State) {
	o.n.enforce(o.c, now)
	if t := o.n.cfg.Tokens.Simple; t != nil && !now.Enabled {
		t.Clear()
	}
	o.n.lines.add(func(lg *zap.Logger) {
		lg.Info("users, roles or permissions have changed", zap.Bool("enabled", now.Enabled), zap.Uint64("auth-revision", now.Revision))
	})
}

func (o observer) Authenticated(index, credential uint64, prefix string) {
	if t := o.n.cfg.Tokens.Simple; t != nil {
		t.Assign(token.Text(prefix, index), credential, o.n.clock())
	}
}

func (o observer) Moved(through int64, to *placement.Map) {
	signal(o.n.moving)
	o.c.replica.AllClosed(through)
	o.c.feed.Moved(through, to.Wide, to.Transit() != nil)
}

func (o observer) Compacted(rev int64) {
	o.c.hashes.compacted(rev)
	o.c.compactions.asked(rev)
	o.n.hub.Compacted(rev)
}

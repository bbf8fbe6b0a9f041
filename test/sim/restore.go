package sim

import (
	"go.uber.org/zap"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"

	"github.com/stoa-kv/stoa/internal/bootstrap"
	"github.com/stoa-kv/stoa/internal/snapshot"
	"github.com/stoa-kv/stoa/internal/store"
	"github.com/stoa-kv/stoa/internal/version"
)

// toRestore draws whether a cluster that is lost goes on from a backup, and from which; nil: it doesn't.
func (v *saver) toRestore() *saved {
	if v == nil || len(v.all) == 0 || v.rng.IntN(2) == 0 {
		return nil
	}
	// A sound one; it may be old. The alarm of a member that is lost would stay.
	if b := v.all[v.rng.IntN(len(v.all))].made; !b.flipped && b.alarms == "" {
		return b
	}
	return nil
}

// restore loses all servers, and has new ones begin a cluster with a backup, as an operator does by stoactl snapshot restore on each
// machine. It has what the backup has and nothing else, as the ledger says from then on, and gives out no revision of
// the backup again.
func (c *cluster) restore(b *saved) {
	v := c.saver
	partitions, members, bump := 1+v.rng.IntN(5), 1+2*v.rng.IntN(2), int64(v.rng.IntN(2)*v.rng.IntN(1000))
	c.loop.printf("all servers are lost; %d begin a cluster of %d partitions with a backup of server %d, with revisions from %d beyond", members, partitions, b.server, bump)
	c.stats.Restored++
	c.hush()
	c.compareBackups()
	for _, s := range c.servers {
		s.kill()
		s.lost = true
	}
	c.forgetClients()
	if c.keeper != nil {
		c.keeper.now = nil // whom the backup may know with other rights
	}
	c.partitions, c.begins = partitions, nil
	self := bootstrap.Self{Cluster: 0x5704}
	var begin []*server
	for range members {
		s := c.addServer()
		s.joins = false
		begin = append(begin, s)
		c.begins = append(c.begins, &pb.Member{ID: s.id})
		self.Members = append(self.Members, bootstrap.Member{ID: bootstrap.ID(s.id)})
	}
	c.survivor = begin[0]
	for _, s := range begin {
		self.Member = bootstrap.ID(s.id)
		if err := s.restore(b, self, partitions, bump); err != nil {
			c.fail("restore", "server %d can't begin with a backup of server %d: %v", s.id, b.server, err)
			return
		}
	}
	c.until(clientTimeout) // an operator takes longer: the clients of before have given up
	for _, s := range begin {
		s.start()
	}
	c.calm()
	c.settle()
	c.quiesce()
}

// restore makes the server's file of a backup, and what the file has the history.
func (s *server) restore(b *saved, self bootstrap.Self, partitions int, bump int64) error {
	if err := s.file.Close(); err != nil {
		return err
	}
	file, err := openContent(s.path(), b.content)
	if err != nil {
		return err
	}
	st, err := snapshot.ReadState(file, partitions, bump, zap.NewNop())
	if err != nil {
		return err
	}
	initial := st.Initial(self)
	if initial.Level = max(initial.Level, s.c.lowest); !s.c.has.versions {
		initial.Level = version.Newest // it rises by itself once the servers run
	}
	s.file = file
	if err := file.Reset(initial); err != nil {
		return err
	}
	if s.c.survivor == s {
		leases := map[int64]int64{}
		meta, err := file.Meta()
		if err != nil {
			return err
		}
		for _, l := range meta.Leases {
			leases[l.ID] = l.TTL
		}
		s.c.ledger.begin(b.rev, initial.Position.Rev, leases)
		s.c.compacted = max(s.c.compacted, initial.Compacted)
	}
	return nil
}

// restoredGroup is the group of all that precedes the restore of a backup: one that no server has any more.
const restoredGroup uint32 = 0xff

// begin reduces the history to that of a backup, of a revision and with leases, with which a cluster begins whose first write has a
// revision above next.
func (g *ledger) begin(rev, next int64, leases map[int64]int64) {
	all := g.ordered
	g.parts, g.revisions, g.ordered = map[uint32][]*revision{}, map[int64]*revision{}, nil
	g.systems, g.systemPlaces, g.leases = map[uint64]systemEvent{}, map[uint64]logPlace{}, leases
	g.forced, g.gaps, g.next = false, false, next
	for _, r := range all {
		if r.rev <= rev {
			r.in, r.places = map[uint32][]store.Change{restoredGroup: r.changes}, map[uint32]logPlace{restoredGroup: {}}
			g.parts[restoredGroup] = append(g.parts[restoredGroup], r)
			g.add(r)
		}
	}
}

package bootstrap

import (
	"errors"
	"fmt"
	"slices"

	"go.uber.org/zap"

	peerpb "github.com/stoa-kv/stoa/api/stoa/peer/v1"
	"github.com/stoa-kv/stoa/internal/version"
)

// protocol never changes: the levels that a server knows say what it can read and do.
const protocol = 1

// own is this server's side of an introduction.
func (r *Registry) own(to ID) *peerpb.Introduction {
	m := &peerpb.Introduction{
		Protocol: protocol, Cluster: uint64(r.rec.Cluster), From: uint64(r.rec.Member), To: uint64(to),
		Data: uint64(r.rec.Data), Starts: r.rec.Starts, Start: uint64(r.start),
		Partitions: uint32(r.rec.Partitions), Admitted: r.rec.Admitted,
		OldestLevel: uint64(version.Oldest), NewestLevel: uint64(version.Newest), ClusterLevel: uint64(r.level),
		Name: r.self.Name, InitialCluster: r.self.InitialCluster, InitialClusterToken: r.self.Token,
	}
	if !r.rec.Admitted {
		m.Partitions = uint32(r.self.Partitions)
	}
	for id, data := range recorders(r.rec.Peers) {
		m.Recorders = append(m.Recorders, &peerpb.Recorder{Member: uint64(id), Data: uint64(data)})
	}
	if r.rec.Admitted {
		for id, p := range r.rec.Peers {
			m.Met = append(m.Met, &peerpb.Met{Member: uint64(id), Data: uint64(p.Data), Starts: p.Starts, Start: uint64(p.Start)})
		}
	}
	return m
}

// recordersOf decodes the sender's recorders.
func recordersOf(m *peerpb.Introduction) map[ID]ID {
	all := map[ID]ID{}
	for _, r := range m.GetRecorders() {
		all[ID(r.GetMember())] = ID(r.GetData())
	}
	return all
}

// knownBy are the levels that the sender's program knows.
func knownBy(m *peerpb.Introduction) version.Known {
	if m.GetNewestLevel() == 0 {
		return version.First
	}
	return version.Known{Oldest: version.Level(m.GetOldestLevel()), Newest: version.Level(m.GetNewestLevel())}
}

func markOf(m *peerpb.Introduction) Mark {
	return Mark{ID(m.GetData()), m.GetStarts(), ID(m.GetStart())}
}

// ErrNotReady is returned while this server can't answer yet.
var ErrNotReady = errors.New("the server is starting")

// Introduce answers a server without data. An error means that this server
// can't answer; a refusal is an answer.
func (r *Registry) Introduce(q *peerpb.Introduction) (*peerpb.Introduction, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.rec == nil {
		return nil, ErrNotReady
	}
	a := r.own(ID(q.GetFrom()))
	is, known := r.isMember(ID(q.GetFrom()))
	bothFresh := !q.GetAdmitted() && !r.rec.Admitted
	switch {
	case !known:
		return nil, ErrNotReady
	case q.GetCluster() != a.GetCluster():
		a.Refusal = peerpb.Refusal_OTHER_CLUSTER
	case q.GetTo() != a.GetFrom():
		a.Refusal = peerpb.Refusal_OTHER_MEMBER
	case slices.Contains(r.rec.Removed, ID(q.GetFrom())):
		a.Refusal = peerpb.Refusal_REMOVED
	case !is || q.GetFrom() == a.GetFrom():
		a.Refusal = peerpb.Refusal_NO_MEMBER
	case bothFresh && q.GetPartitions() != a.GetPartitions():
		a.Refusal = peerpb.Refusal_OTHER_PARTITIONS
	}
	if a.GetRefusal() == peerpb.Refusal_NONE {
		if err := knownBy(q).CheckMember(r.level); err != nil {
			r.log.Warn("refused a member", zap.String("remote-peer-name", q.GetName()), zap.Error(err))
			a.Refusal = peerpb.Refusal_OTHER_VERSION
		}
	}
	if a.GetRefusal() != peerpb.Refusal_NONE {
		return a, nil
	}
	var refused *Refused
	switch err := r.vouch(q, bothFresh); {
	case errors.As(err, &refused):
		r.log.Warn("refused a member that has lost data", zap.String("remote-peer-name", q.GetName()), zap.Error(err))
		a.Refusal = refused.Why
		return a, nil
	case err != nil:
		return nil, err
	}
	a.Fresh = r.rec.Peers[ID(q.GetFrom())].Fresh
	select {
	case r.news <- struct{}{}:
	default:
	}
	return a, nil
}

// vouch is meet for a server without data. A member whose record of the others
// was lost can't exclude that a server was a member before.
func (r *Registry) vouch(q *peerpb.Introduction, bothFresh bool) error {
	id := ID(q.GetFrom())
	if _, known := r.rec.Peers[id]; !known && r.rec.Adopted {
		return &Refused{peerpb.Refusal_OTHER_DATA, fmt.Sprintf("member %s may have been bootstrapped before: this member's record of the others was lost", id)}
	}
	return r.meet(id, markOf(q), func(p *Peer) {
		p.Fresh = p.Fresh || bothFresh
		p.Recorders = recordersOf(q)
	})
}

// learn processes a member's answer. The error is the reason for which it
// doesn't count.
func (r *Registry) learn(from Member, a *peerpb.Introduction) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if a.GetRefusal() != peerpb.Refusal_NONE {
		return r.refusedBy(from, a)
	}
	if a.GetClusterLevel() != 0 {
		if err := r.checkVersion(a); err != nil {
			return err
		}
	}
	if ID(a.GetFrom()) != from.ID || ID(a.GetCluster()) != r.rec.Cluster {
		return fmt.Errorf("answers as member %s of cluster %s", ID(a.GetFrom()), ID(a.GetCluster()))
	}
	// One that joins gets the whole state, with the number in it. Records may have different
	// ones: that with which the cluster began, or the one that a member had when its record was lost.
	counts := !r.self.Existing || len(r.vouched) == 0
	if a.GetAdmitted() && counts && int(a.GetPartitions()) != r.self.Partitions {
		if err := r.takeOver(int(a.GetPartitions())); err != nil {
			return err
		}
	}
	err := r.meet(from.ID, markOf(a), func(p *Peer) {
		p.Fresh = p.Fresh || a.GetFresh()
		p.Recorded = true
		p.Recorders = recordersOf(a)
	})
	if err != nil {
		return err
	}
	if a.GetAdmitted() {
		if err := r.inherit(a.GetMet()); err != nil {
			return err
		}
		r.vouched[from.ID] = true
	} else if r.self.Existing {
		return errors.New("it has not been bootstrapped either, though --initial-cluster-state is existing")
	}
	return nil
}

// inherit records the members that an admitted one has met: this server may have to vouch
// later, when those that have met them are not members any more. The other's record
// takes precedence over what a server that isn't admitted has met itself.
func (r *Registry) inherit(met []*peerpb.Met) error {
	rec := r.rec.clone()
	changed := false
	for _, m := range met {
		id, now := ID(m.GetMember()), Mark{ID(m.GetData()), m.GetStarts(), ID(m.GetStart())}
		p := rec.Peers[id]
		if id == rec.Member || p.Data == now.Data && p.Starts >= now.Starts {
			continue
		}
		if p.Data != now.Data {
			p = Peer{}
		}
		p.Data, p.Starts, p.Start = now.Data, now.Starts, now.Start
		rec.Peers[id], changed = p, true
	}
	if !changed {
		return nil
	}
	return r.write(&rec)
}

// takeOver makes the cluster's number of partitions, which an admitted member has, this
// server's. Those that it has met while it had another don't count any more.
func (r *Registry) takeOver(partitions int) error {
	if len(r.vouched) > 0 {
		return fmt.Errorf("it has %d partitions, and others have %d", partitions, r.self.Partitions)
	}
	rec := r.rec.clone()
	for id, p := range rec.Peers {
		p.Fresh = false
		rec.Peers[id] = p
	}
	rec.Partitions = partitions
	if err := r.write(&rec); err != nil {
		return err
	}
	r.log.Warn("--partitions is not obeyed: the cluster has another number",
		zap.Int("partitions", partitions), zap.Int("asked-for", r.self.Partitions))
	r.self.Partitions = partitions
	return nil
}

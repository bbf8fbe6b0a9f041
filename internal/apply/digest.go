package apply

import (
	"encoding/binary"
	"fmt"

	"github.com/cespare/xxhash/v2"
	"google.golang.org/protobuf/proto"

	"github.com/stoa-kv/stoa/internal/check"
	"github.com/stoa-kv/stoa/internal/lease"
	"github.com/stoa-kv/stoa/internal/store"
)

// Digest is a checksum of the whole state by version 1 of the algorithm (package check): what it
// is computed of must not change. It is the same on all replicas at the same place in the logs.
// What there can be many of is added up, in any order.
//
// Epochs are left out. No client is shown one, and they aren't the same everywhere: a cluster below
// level 2 has them in memory alone, so one that begins there, rises, and has lost no leader since, has
// members that know the present epoch and others, which were restarted or took in a snapshot, that
// don't. Salvage, which reads them, expects that (command.Epoch.Before). Builds of level 6 that had them in
// the digest were never released, so this is version 1 all the same, and needs no level of its own.
//
// The numbers of leases are in it from levelOfMeantLeases on, where all members know them. Below, nothing asks for those of a
// backup, and a release that doesn't know them keeps some; the rise to the level takes them away.
func (m *Machine) Digest() check.Digest {
	all := m.Placement().All()
	m.rlock(all)
	defer m.runlock(all)
	return m.digest()
}

// digest is Digest under the locks of all stores.
func (m *Machine) digest() (d check.Digest) {
	d[check.Keys], d[check.Revisions] = m.digestStores()
	known := 4 // of a lease's parts
	if m.Level() >= levelOfMeantLeases {
		known = 5
	}
	m.Leases.Each(func(l lease.Lease) {
		parts := [...]uint64{uint64(l.ID), uint64(l.TTL), uint64(l.Remaining), l.Owner, l.Number}
		d[check.Leases] += numbers(parts[:known]...)
	})
	for p := range m.sessions {
		d[check.Sessions] += m.sessions[p].digest(p)
	}
	d[check.Users] = m.digestUsers()
	d[check.Members] = m.digestMembers()
	d[check.Placement] = xxhash.Sum64(m.Placement().Encode())
	for _, a := range m.Alarms() {
		d[check.Alarms] += numbers(a.GetMemberID(), uint64(a.GetAlarm()))
	}
	return d
}

func (m *Machine) digestStores() (keys, revisions uint64) {
	var sums store.Sums
	var at []uint64
	for _, s := range m.Stores {
		own := s.Sums()
		sums.Add(&own)
		// A store that was loaded is at least at the compacted revision.
		at = append(at, uint64(max(s.Rev(), s.Compacted())), uint64(s.Compacted()))
	}
	var all []uint64
	for _, s := range sums {
		all = append(all, s.Content, s.Place)
	}
	return numbers(all...), numbers(at...)
}

// digest of a partition's table: not of the results themselves, which may be many megabytes.
func (t *sessions) digest(p int) (sum uint64) {
	for id, s := range t.byID {
		var seq uint64
		var rev int64
		if n := len(s.results); n > 0 {
			seq, rev = s.results[n-1].seq, s.results[n-1].rev
		}
		sum += numbers(uint64(p), uint64(id), s.last, s.answered, uint64(len(s.results)), seq, uint64(rev))
	}
	return sum
}

func (m *Machine) digestUsers() (sum uint64) {
	stored := m.Auth().Stored()
	for i, bucket := range []map[string][]byte{stored.Auth, stored.Users, stored.Roles} {
		for name, value := range bucket {
			sum += numbers(uint64(i), xxhash.Sum64String(name), xxhash.Sum64(value))
		}
	}
	return sum
}

func (m *Machine) digestMembers() uint64 {
	list := m.Membership()
	sum := numbers(list.Generation, uint64(list.Level), uint64(len(list.Members)), uint64(len(list.Removed)))
	for _, member := range list.Members {
		b, err := proto.MarshalOptions{Deterministic: true}.Marshal(member)
		if err != nil {
			m.Fatal(fmt.Errorf("encoding member %x: %w", member.GetID(), err))
		}
		sum += numbers(xxhash.Sum64(b), xxhash.Sum64String(list.Releases[member.GetID()]))
	}
	for _, id := range list.Removed {
		sum += numbers(id)
	}
	return sum
}

// numbers is a hash of numbers in their order.
func numbers(list ...uint64) uint64 {
	var room [64]byte // of all of which there can be many
	b := room[:0]
	for _, n := range list {
		b = binary.BigEndian.AppendUint64(b, n)
	}
	return xxhash.Sum64(b)
}

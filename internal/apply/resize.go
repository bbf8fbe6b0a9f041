package apply

import (
	"fmt"
	"sync/atomic"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"

	"github.com/stoa-kv/stoa/internal/command"
	"github.com/stoa-kv/stoa/internal/extension"
	"github.com/stoa-kv/stoa/internal/fault"
	"github.com/stoa-kv/stoa/internal/membership"
	"github.com/stoa-kv/stoa/internal/placement"
	"github.com/stoa-kv/stoa/internal/version"
)

// levelOfResizing is the level from which on the number of partitions can change.
const levelOfResizing version.Level = 4

// levelOfDraining is the level from which on keys move beside other requests when their number
// changes. Before, all of them move at the change, while everything waits.
const levelOfDraining version.Level = 5

// MaxGroups is the highest number of partitions.
const MaxGroups = 16

// resizing is the number of partitions and what becomes of it. A machine has one number for
// as long as it lives: the command that changes it is the last that it executes. The state
// is then stored, with the next number and its map, and the machine of the next generation goes on
// with it (package recovery).
type resizing struct {
	groups atomic.Pointer[membership.Groups]
	next   atomic.Pointer[placement.Map] // of the next generation, once there is one
}

// Groups are those of the cluster. Next is set once nothing more is executed.
func (m *Machine) Groups() *membership.Groups { return m.resizes.groups.Load() }

// LoadGroups sets the groups after a restart.
func (m *Machine) LoadGroups(g *membership.Groups) { m.resizes.groups.Store(g) }

// StoredPlacement is the map that is to be stored: that of the next generation at the end
// of one.
func (m *Machine) StoredPlacement() *placement.Map {
	if next := m.resizes.next.Load(); next != nil {
		return next
	}
	return m.Placement()
}

// MayDrain reports whether the wish drain can be proposed.
func (m *Machine) MayDrain() bool { return m.Level() >= levelOfDraining }

// MayResize returns the reason for which the number of partitions can't change now. Proposed
// nevertheless, the command would be refused, and stop the leader's stamping for a moment.
func (m *Machine) MayResize() error {
	switch {
	case m.Level() < levelOfResizing:
		return fault.VersionTooLow
	case !membership.Settled(m.Membership(), m.Configurations()):
		return fault.Moving // members come or go
	}
	return nil
}

// resize ends the generation: the cluster goes on with another number of partitions. It moves
// no key itself, and need not: see following.
func (x *execution) resize(body []byte) Result {
	to, err := command.DecodeResize(body)
	if err != nil {
		return x.failed(unreadable(command.Resize, body))
	}
	m := x.m
	now := m.Placement()
	if err := x.covers(now.All()); err != nil {
		return x.failed(fmt.Errorf("apply %v: %w", command.Resize, err))
	}
	if to > MaxGroups {
		return x.failed(fault.BadPlacement.With(fmt.Sprintf("stoa: there can be 1 to %d partitions", MaxGroups)))
	}
	if err := m.MayResize(); err != nil {
		return x.failed(err)
	}
	if to != now.Partitions() {
		x.mergeSessions()
		m.resizes.next.Store(m.following(to))
		m.LoadGroups(m.Groups().Ending(to))
	}
	return x.done(false, &pb.CompactionResponse{Header: x.header(false)})
}

// following is the map with which the next generation begins. With more partitions every key is
// where it was, and the map is in transit to one that is even. With fewer it is so, too, if all keys
// have left the partitions that go (command.Drain); otherwise those that haven't move at once, while
// everything waits.
func (m *Machine) following(to int) *placement.Map {
	now := m.Placement().Settled()
	switch {
	case m.Level() < levelOfDraining:
		return m.mapOf(to)
	case to > now.Partitions():
		return m.towards(now.Over(to), m.mapOf(to))
	case to > 1 && now.Within(to):
		return now.Over(to)
	}
	return m.mapOf(to)
}

// drained is the map by which the partitions from a number on have no keys any more.
func (m *Machine) drained(to int) *placement.Map {
	now := m.Placement()
	switch {
	case now.Within(to):
		return now
	case to == 1: // with all rules, as long as there are other partitions
		return now.Resized(1).Over(now.Partitions())
	}
	return m.mapOf(to).Over(now.Partitions())
}

// mapOf is the map for another number of partitions: with the rules that extensions and pins
// ask for. One partition has no use for any.
func (m *Machine) mapOf(partitions int) *placement.Map {
	if partitions == 1 {
		return placement.New(1)
	}
	next := m.Placement().Resized(partitions)
	next, _ = m.Extensions().Place(next, extension.RuledBy(next))
	return next
}

// mayLeaveGroups reports whether the cluster could go down to a level as far as its groups go:
// a release below knows only those with which it began.
func (m *Machine) mayLeaveGroups(to version.Level) bool {
	return to >= levelOfResizing || m.Groups().Generation == 0 && m.Groups().Next == 0
}

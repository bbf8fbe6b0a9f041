package apply

import (
	"slices"
	"sync/atomic"

	"google.golang.org/protobuf/proto"

	"github.com/stoa-kv/stoa/internal/auth"
	"github.com/stoa-kv/stoa/internal/check"
	"github.com/stoa-kv/stoa/internal/command"
	"github.com/stoa-kv/stoa/internal/extension"
	"github.com/stoa-kv/stoa/internal/fault"
	"github.com/stoa-kv/stoa/internal/lease"
	"github.com/stoa-kv/stoa/internal/membership"
	"github.com/stoa-kv/stoa/internal/placement"
	"github.com/stoa-kv/stoa/internal/script"
	"github.com/stoa-kv/stoa/internal/store"
)

// Sink gets every change of keys. It is called under the write lock of the
// partition's store, in revision order per partition; a rendezvous calls it for
// each partition that it changed, before it releases any lock. The slice
// belongs to the sink.
type Sink interface {
	Changes(partition int, rev int64, changes []store.Change)
}

// Observer learns of changes of system state, while all stores are locked.
type Observer interface {
	LeaseGranted(l lease.Lease)
	LeaseRevoked(id int64)
	// LeaseEnding says that the lease is over, and has to be revoked again, since the
	// events of all its keys at once would be too much work.
	LeaseEnding(id int64)
	Compacted(rev int64)
	// Moved says that a transit of keys between the stores has begun or ended. All
	// changes of all partitions at or below the revision through have been given to
	// the sink, and those that come from now on are where the new map's Wide says.
	// It isn't called for the steps in between.
	Moved(through int64, to *placement.Map)
	// AuthChanged says that users, roles or their permissions have changed, or whether they
	// are enforced.
	AuthChanged(now *auth.State)
	// Authenticated says that a user has proved who it is, by the entry at that index of the
	// log of partition 0. Only that store is locked.
	Authenticated(index, credential uint64, token string)
}

// Meter measures commands and extensions. It is called under the locks of the
// participating partitions, so it must be quick; its results never affect the state.
type Meter interface {
	Now() int64 // nanoseconds, of any clock
	// Profile is where the steps of the next call of an extension are counted; nil:
	// nowhere.
	Profile(name string) *script.Profile
	// Called reports a run of a handler. A run without a handler stands for a failure
	// that is attributed to the extension though none of its runs has failed.
	Called(name string, nanoseconds int64, out *extension.Outcome, err error)
	// Undone says that the runs which were reported for a command of revision rev have no
	// effect: the command was rolled back because of err. That of the end of a lease
	// is then executed in smaller steps, at the same revision, by new runs.
	Undone(name string, rev int64, err error)
	// Applied reports the time that all commands of an entry took together.
	Applied(e *command.Entry, t Tally, nanoseconds int64)
	// Sampled reports one of an entry's commands, which stands for those that aren't: the spot of
	// the key that it concerns, good until the return, and a measure of the work that it causes.
	Sampled(at *placement.Spot, weight int64)
}

// Tally counts commands by their kinds, and those of them that failed. A session's command
// counts by the kind inside; 0 stands for unknown kinds.
type Tally struct{ All, Failed [command.Kinds]uint32 }

// Config has the dependencies of a machine.
type Config struct {
	Stores    []*store.Store // one per partition
	Leases    *lease.Table
	Placement *placement.Map // as the stores were filled
	Sink      Sink           // may be nil
	Observer  Observer       // may be nil
	Meter     Meter          // may be nil

	// Visible is the revision at which a partition can be read as it is now: everything
	// up to it is in the store, and nothing beyond. It is called under the store's lock.
	// nil: the revision of the store's last write.
	Visible func(partition int) int64
	// Met is told that all partitions have executed an entry together, while their stores are locked: what these have is a
	// state that all partitions have had. nil: nobody wants to know.
	Met func()
	// Fatal ends the server, over a condition that is its own and that must not become
	// part of the state: its data can't be read, or contradicts its log. It should not
	// return; if it does, the execution of the log ends there. nil: it panics.
	Fatal func(error)

	// Precompile prepares the servers for a source that a client wants to register, by
	// [Machine.Prepare] on each of them. It may wait until other clients have had their
	// share of the processor. An error refuses the registration. nil: nothing is prepared.
	Precompile func(language int, source []byte) error
	// ExtensionMemory is what extensions may keep on this server, in bytes. Beyond it the
	// server ends, and doesn't start: the others have agreed on what it can't hold. 0: any.
	ExtensionMemory int64
	// Codes are this server's, of all of its machines. nil: new ones, without pauses.
	Codes *Codes
	// Fence is this server's, of all of its machines. While it is fenced nothing is answered from
	// the state; commands are executed as ever. nil: a new one.
	Fence *check.Fence
}

// Machine executes commands.
type Machine struct {
	Config
	alarms  atomic.Pointer[alarms]
	auth    atomic.Pointer[auth.State]
	tenants atomic.Pointer[tenants]
	members members
	placed  atomic.Pointer[placement.Map] // see place.go
	resizes resizing
	// refusal is why nothing is answered from the state, nil nearly always: fault.Moved once the
	// stores are another machine's, fault.Fenced while the server is fenced. Under their locks.
	refusal error
	checks  checks
	// scratch is a buffer for each partition's loop, which that one reuses from entry to entry.
	scratch [][]Result
	// The session table of each partition, under its store's lock.
	sessions []sessions
	epochs   []command.Epochs // of each partition, under its store's lock
	common   []uint64         // see Common; under the locks of all stores
	bounds   sessionBounds

	extensions atomic.Pointer[extension.Registry]
	audiences  audiences
	reaches    atomic.Pointer[reaches]
	// ruled has the keys that the map has rules for. wanted is the map by which keys should
	// be placed; a field, so that tests can set others than those of extensions.
	ruled  extension.Ruled
	wanted func(now *placement.Map) *placement.Map
}

// New returns a machine over the given state.
func New(c Config) *Machine {
	m := &Machine{Config: c, scratch: make([][]Result, len(c.Stores)), epochs: make([]command.Epochs, len(c.Stores)), common: make([]uint64, len(c.Stores))}
	m.bound(defaultSessionBounds)
	if m.Visible == nil {
		m.Visible = func(p int) int64 { return m.Stores[p].Rev() }
	}
	if m.Precompile == nil {
		m.Precompile = func(int, []byte) error { return nil }
	}
	if m.Codes == nil {
		m.Codes = NewCodes(nil)
	}
	if m.Fatal == nil {
		m.Fatal = func(err error) { panic(err) }
	}
	if m.Fence == nil {
		m.Fence = new(check.Fence)
	}
	if m.Fence.Now() != nil {
		m.refusal = fault.Fenced
	}
	m.alarms.Store(&alarms{})
	m.auth.Store(auth.New())
	m.placed.Store(c.Placement)
	m.LoadGroups(membership.FirstGroups(len(c.Stores)))
	m.LoadMembership(membership.Of(), nil)
	m.extensions.Store(extension.New(m.extensionBounds().Defaults, nil))
	m.ruled = extension.RuledBy(c.Placement.Settled())
	m.wanted = func(now *placement.Map) (next *placement.Map) {
		next, m.ruled = m.Extensions().Place(now, m.ruled)
		return next
	}
	return m
}

// Retire ends the life of a machine in whose place another is to be: one with another server's state, or one that has its
// stores, and goes on from the last command of this one. Reads that still come are answered with fault.Moved: by the
// revisions that this machine's replica knows of they would see too much in those.
func (m *Machine) Retire() {
	all := m.Placement().All()
	m.lock(all)
	defer m.unlock(all)
	m.refusal = fault.Moved
}

// Result is the outcome of a command.
type Result struct {
	// Response is the etcd response message, its header filled in as far as the
	// revision.
	Response proto.Message
	Err      error
	// Rev is the revision at which the command took effect, or at which it was
	// found to have none.
	Rev int64
}

// Reply hands over the result of an entry's command i.
type Reply func(i int, r Result)

// Arrival says that a partition's loop has arrived at a rendezvous, and at which
// place in its log.
type Arrival struct {
	Partition   int
	Index, Term uint64
}

// Local executes a local entry of partition p. With a nil reply no request of this
// server waits, and no answers are built. reply is called after the lock is released.
func (m *Machine) Local(p int, index, term uint64, e *command.Entry, reply Reply) {
	s := m.Stores[p]
	x := execution{m: m, parts: placement.Of(p), local: p, index: index, answers: reply != nil}
	s.Lock()
	results := x.run(e, m.scratch[p][:0])
	m.consume(p, e)
	s.SetApplied(index, term)
	m.refuse(results)
	s.Unlock()
	m.scratch[p] = deliver(results, reply)
}

// Rendezvous executes an entry of several partitions, once, at the places where
// it stands in their logs. The loops of all participants must be waiting.
func (m *Machine) Rendezvous(at []Arrival, e *command.Entry, reply Reply) {
	x := execution{m: m, local: several, answers: reply != nil}
	for _, a := range at {
		x.parts |= placement.Of(a.Partition)
		if a.Partition == 0 {
			x.first = a
		}
	}
	m.lock(x.parts)
	results := x.run(e, nil)
	for _, a := range at {
		m.consume(a.Partition, e)
		m.Stores[a.Partition].SetApplied(a.Index, a.Term)
	}
	if len(at) == len(m.common) {
		for _, a := range at {
			m.common[a.Partition] = a.Index
		}
		if m.Met != nil {
			m.Met()
		}
	}
	m.refuse(results)
	m.unlock(x.parts)
	deliver(results, reply)
}

// refuse replaces the results of a state that isn't to be shown.
func (m *Machine) refuse(results []Result) {
	if m.refusal == nil {
		return
	}
	for i := range results {
		results[i] = Result{Err: m.refusal}
	}
}

// shows returns why a read isn't answered here, if it isn't: where its keys are is told. Under the
// locks of its partitions.
func (m *Machine) shows(here bool) error {
	switch {
	case m.refusal != nil:
		return m.refusal
	case !here:
		return fault.Moved
	}
	return nil
}

// consume moves a store past the stamps of an entry, also past those that wrote
// nothing: their headers have been shown to clients, so the next leader, which
// stamps above the newest that its stores have seen, must not give them out again (I1).
func (m *Machine) consume(p int, e *command.Entry) {
	if n := e.Stamps(); n > 0 && e.Stamp > 0 {
		m.Stores[p].SetRev(e.Stamp + int64(n) - 1)
		if m.epochs[p].First == 0 {
			m.epochs[p].Epoch = m.epochs[p].Note(e)
		}
	}
}

// Skip notes that partition p has applied an entry without commands.
func (m *Machine) Skip(p int, index, term uint64) {
	s := m.Stores[p]
	s.Lock()
	s.SetApplied(index, term)
	s.Unlock()
}

// Open notes that partition p has applied the barrier of an epoch.
func (m *Machine) Open(p int, index, term uint64, epoch command.Epoch) {
	s := m.Stores[p]
	s.Lock()
	s.SetApplied(index, term)
	m.epochs[p] = m.epochs[p].Open(epoch)
	s.Unlock()
}

// Epochs returns the epoch in which each partition is, and those before that others are not in yet. It is called
// with the locks of all stores, so that they belong to one cut.
func (m *Machine) Epochs() []command.Epochs {
	command.Trim(m.epochs)
	return slices.Clone(m.epochs)
}

// Common is the place, in each partition's log, of the last entry that all partitions have executed together,
// 0 if this machine has executed none. It is called with the locks of all stores.
func (m *Machine) Common() []uint64 {
	if len(m.Stores) == 1 {
		index, _ := m.Stores[0].Applied()
		return []uint64{index}
	}
	return slices.Clone(m.common)
}

// LoadEpochs sets the epochs after a restart.
func (m *Machine) LoadEpochs(epochs []command.Epochs) { copy(m.epochs, epochs) }

// deliver hands out the results and returns the slice, emptied, for reuse.
func deliver(results []Result, reply Reply) []Result {
	if reply != nil {
		for i, r := range results {
			reply(i, r)
		}
	}
	clear(results)
	return results[:0]
}

// Locks are always taken in ascending order of partitions.

func (m *Machine) lock(parts placement.Set) {
	for p := range parts.Each() {
		m.Stores[p].Lock()
	}
}

func (m *Machine) unlock(parts placement.Set) {
	for p := range parts.Each() {
		m.Stores[p].Unlock()
	}
}

func (m *Machine) rlock(parts placement.Set) {
	for p := range parts.Each() {
		m.Stores[p].RLock()
	}
}

func (m *Machine) runlock(parts placement.Set) {
	for p := range parts.Each() {
		m.Stores[p].RUnlock()
	}
}

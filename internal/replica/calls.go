package replica

import (
	"maps"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/stoa-kv/stoa/internal/fault"
	"github.com/stoa-kv/stoa/internal/placement"
)

// Methods of calls between servers. MethodFirstFree and above are the caller's
// of the replica.
const (
	methodWrite uint32 = iota + 1
	methodReadPoint
	methodAnnounce
	methodBehind
	methodState
	methodReport
	methodWindows
	MethodFirstFree uint32 = 16
)

// Call is a request to another server.
type Call struct {
	ID     uint64
	Method uint32
	Body   []byte
	Trace  []byte // of the write (Trace.Wire); nil: it isn't traced
	// Generation is that of the caller's groups. A server in another one can't answer.
	Generation uint32
}

// noneOfTheSender stands for a group that the generation from which a write came hasn't.
const noneOfTheSender = placement.MaxPartitions

// Reply answers the call with the same ID. Err holds a fault, if any.
type Reply struct {
	ID   uint64
	Body []byte
	Err  error
}

// Calls forwards requests to the leader, and holds them while there is none. It
// outlives a replica: when a snapshot has replaced the replica, calls in flight
// are answered as before, and those that wait for a leader keep waiting.
type Calls struct {
	r       atomic.Pointer[Replica] // the present one
	now     atomic.Int64            // the server's clock, in ticks
	shown   atomic.Int64            // in headers of answers that have no revision of their own: perhaps no partition is closed through it yet
	mu      sync.Mutex
	nextID  uint64
	calls   map[uint64]*call // in flight, by their number
	parked  []*call          // waiting for a leader
	owing   map[uint64]bool  // peers whose answers may be lost, to be told so
	landing []landing
	stopped error
}

// NewCalls returns the calls that successive replicas of one server share.
func NewCalls() *Calls { return &Calls{calls: map[uint64]*call{}, owing: map[uint64]bool{}} }

// attach makes a replica the present one. It takes over the known leader:
// otherwise the first report of any group would fail the calls in flight there.
func (f *Calls) attach(r *Replica) {
	old := f.r.Load()
	if old == nil {
		f.nextID = r.numbering()
	} else {
		for p, g := range old.groups[:min(len(old.groups), len(r.groups))] {
			if g.number() != r.groups[p].number() {
				continue
			}
			if leader := g.leaderSeen.Load(); leader != r.cfg.ID {
				r.groups[p].leaderSeen.Store(leader)
			}
		}
	}
	f.r.Store(r)
}

// call is a request for the present or the next leader, or for one server.
type call struct {
	method   uint32
	body     []byte
	trace    []byte
	deadline int64 // tick
	to       uint64
	sender   uint32 // the generation of this server's groups when it was sent
	only     bool   // for to, whichever server leads
	done     func([]byte, error)
	local    func() // runs instead, once this server leads
}

// CallLeader sends a call to the leader, now or once there is one. local runs
// instead if that is this server; by then this replica may have been replaced.
func (r *Replica) CallLeader(method uint32, body []byte, local func(), done func([]byte, error)) {
	if r.seq.IsOpen() {
		local()
		return
	}
	r.calls.start(&call{method: method, body: body, deadline: r.deadline(), local: local, done: done})
}

// unheard is for calls whose answers say nothing.
func unheard([]byte, error) {}

// start sends a call or parks it.
func (f *Calls) start(c *call) {
	sends, err := f.admit(c)
	if err != nil {
		c.done(nil, err)
		return
	}
	f.send(sends)
}

// admit gives a call a number, unless too many wait.
func (f *Calls) admit(c *call) (sends []sending, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	switch {
	case f.stopped != nil:
		return nil, f.stopped
	case len(f.calls)+len(f.parked) >= maxPendingWrites*len(f.r.Load().groups):
		return nil, fault.TooManyRequests
	}
	return f.route(c, nil), nil
}

// ask sends a call to one server, whichever leads. It is never made again: done gets an error if
// the network doesn't accept it, or may have lost it or its answer.
func (f *Calls) ask(to uint64, method uint32, body []byte, deadline int64, done func([]byte, error)) {
	c := &call{method: method, body: body, deadline: deadline, to: to, only: true, done: done}
	f.mu.Lock()
	if err := f.stopped; err != nil {
		f.mu.Unlock()
		c.done(nil, err)
		return
	}
	f.nextID++
	id := f.nextID
	f.calls[id] = c
	f.mu.Unlock()
	if !f.r.Load().cfg.Network.Send(c.to, Packet{Call: &Call{ID: id, Method: c.method, Body: c.body, Generation: f.r.Load().generation()}}) {
		f.fail(fault.TimeoutConnLost, func(other *call) bool { return other == c })
	}
}

// sending is a routed call, to be sent once mu is released.
type sending struct {
	to   uint64
	call *Call
}

// route determines the target of a call, and adds it to those to be sent. With
// mu held.
func (f *Calls) route(c *call, sends []sending) []sending {
	r := f.r.Load()
	leader := r.Leader()
	if leader == 0 || leader == r.cfg.ID {
		f.parked = append(f.parked, c)
		return sends
	}
	f.nextID++
	c.to, c.sender = leader, r.generation()
	f.calls[f.nextID] = c
	return append(sends, sending{leader, &Call{ID: f.nextID, Method: c.method, Body: c.body, Trace: c.trace, Generation: r.generation()}})
}

// send sends routed calls. A call that the network doesn't accept has not
// begun, and waits.
func (f *Calls) send(sends []sending) {
	r := f.r.Load()
	for _, s := range sends {
		if !r.cfg.Network.Send(s.to, Packet{Call: s.call}) {
			f.park(s.call.ID)
		}
	}
}

// park keeps a call that is known not to have begun until there is another leader, or
// the next tick.
func (f *Calls) park(id uint64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if c := f.calls[id]; c != nil {
		delete(f.calls, id)
		f.parked = append(f.parked, c)
	}
}

// replied handles the answer to a call.
func (f *Calls) replied(m *Reply) {
	f.mu.Lock()
	c := f.calls[m.ID]
	delete(f.calls, m.ID)
	again := c != nil && !c.only && fault.CodeOf(m.Err) == fault.NotLeader.Code()
	if again {
		f.parked = append(f.parked, c)
	}
	f.mu.Unlock()
	if c != nil && !again {
		c.done(m.Body, m.Err)
	}
}

// leaderChanged fails calls that were sent to another leader than the present
// one: whether they took effect is unknown. The present one is read under the
// same lock, as by route: group 0 publishes its leader before it reports it,
// and calls sent there meanwhile must not fail because another group reports
// first.
func (f *Calls) leaderChanged() {
	f.fail(fault.TimeoutLeaderFail, func(c *call) bool { return !c.only && c.to != f.r.Load().Leader() })
	f.unpark()
}

// lost fails calls that were sent to a peer: they, or the answers, may not have
// arrived.
func (f *Calls) lost(peer uint64) {
	f.fail(fault.TimeoutConnLost, func(c *call) bool { return c.to == peer })
}

func (f *Calls) fail(err error, match func(*call) bool) {
	for _, c := range f.take(match) {
		c.done(nil, err)
	}
}

// take removes the calls in flight that match, in the order in which they were
// made, so that a simulation repeats itself.
func (f *Calls) take(match func(*call) bool) (taken []*call) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, id := range slices.Sorted(maps.Keys(f.calls)) {
		if c := f.calls[id]; match(c) {
			delete(f.calls, id)
			taken = append(taken, c)
		}
	}
	return taken
}

// tick fails calls that have timed out.
func (f *Calls) tick(now int64) {
	f.fail(fault.TimeoutLeaderFail, func(c *call) bool { return c.deadline <= now })
	f.unpark()
	f.land(now)
	f.reportLost()
}

// unpark routes the calls that wait for a leader again, and runs them here if
// that is this server.
func (f *Calls) unpark() {
	late, local, sends := f.sort()
	for _, c := range local {
		c.local()
	}
	f.send(sends)
	for _, c := range late {
		c.done(nil, fault.Timeout)
	}
}

// sort routes the parked calls.
func (f *Calls) sort() (late, local []*call, sends []sending) {
	f.mu.Lock()
	defer f.mu.Unlock()
	parked := f.parked
	f.parked = nil
	for _, c := range parked {
		switch {
		case c.deadline <= f.now.Load():
			late = append(late, c)
		case f.r.Load().seq.IsOpen():
			local = append(local, c)
		default:
			sends = f.route(c, sends)
		}
	}
	return late, local, sends
}

// Stop fails everything that waits, and all that comes later, with err.
func (f *Calls) Stop(err error) {
	f.mu.Lock()
	f.stopped = err
	parked := f.parked
	f.parked = nil
	f.mu.Unlock()
	f.fail(err, func(*call) bool { return true })
	for _, c := range parked {
		c.done(nil, err)
	}
	f.land(f.now.Load())
}

package replica

import (
	"errors"
	"maps"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"

	"go.uber.org/zap"

	"github.com/stoa-kv/stoa/internal/fault"
)

// Methods of calls between servers. MethodFirstFree and above are the caller's
// of the replica.
const (
	methodWrite uint32 = iota + 1
	methodReadPoint
	MethodFirstFree uint32 = 16
)

// Call is a request to another server.
type Call struct {
	ID     uint64
	Method uint32
	Body   []byte
}

// Reply answers the call with the same ID. Err holds a fault, if any.
type Reply struct {
	ID   uint64
	Body []byte
	Err  error
}

// Calls sends to the leader what only the leader can do, and keeps what waits for
// one. It outlives a replica: when a snapshot has put another in its place, what is
// under way at the leader is answered as if nothing had happened, and what waits for
// a leader waits on.
type Calls struct {
	r       atomic.Pointer[Replica] // the present one
	now     atomic.Int64            // the server's clock, in ticks
	mu      sync.Mutex
	nextID  uint64
	calls   map[uint64]*call // under way, by their number
	parked  []*call          // for want of a leader
	owing   map[uint64]bool  // peers whose answers may be lost, and that don't know
	stopped error
}

// NewCalls returns what the replicas of one server share, one after the other.
func NewCalls() *Calls { return &Calls{calls: map[uint64]*call{}, owing: map[uint64]bool{}} }

// attach makes a replica the present one. Who leads, it knows from the one before:
// or else it would give up, on the first report of any group, what is under way there.
func (f *Calls) attach(r *Replica) {
	old := f.r.Load()
	if old == nil {
		f.nextID = r.numbering()
	} else {
		for p, g := range old.groups {
			if leader := g.leaderSeen.Load(); leader != r.cfg.ID {
				r.groups[p].leaderSeen.Store(leader)
			}
		}
	}
	f.r.Store(r)
}

// call is a request for the leader, whoever that will be.
type call struct {
	method   uint32
	body     []byte
	deadline int64 // tick
	to       uint64
	done     func([]byte, error)
	local    func() // runs instead, once this server leads
}

// Submit sends a write on its way: into this server's own groups if it
// stamps, else to the server that does, now or once there is one. Either Done
// is called once.
func (r *Replica) Submit(w *Write) {
	if r.seq.IsOpen() {
		switch {
		case w.Session:
			r.groups[w.Home].accept(w)
		case w.System || w.Parts.Len() != 1:
			r.submitMulti(w)
		default:
			r.groups[w.Parts.First()].accept(w)
		}
		return
	}
	r.limit(w)
	f := r.calls
	f.start(&call{
		method:   methodWrite,
		body:     encodeWrite(w),
		deadline: w.deadline,
		local:    func() { f.r.Load().Submit(w) },
		done: func(body []byte, err error) {
			if err != nil {
				w.fail(err)
				return
			}
			out, err := decodeOutcome(w.Command.Request(), body)
			if err != nil {
				w.fail(err)
				return
			}
			f.landed(w, out)
		},
	})
}

// landed answers a write that another server has carried out, once this one has
// applied it: the client may read here what it wrote at once.
func (f *Calls) landed(w *Write, out Outcome) {
	r := f.r.Load()
	r.awaitApplied(out.Group, out.Index, w.deadline, func(err error) {
		switch {
		case f.r.Load() != r: // and the one in its place may be behind it
			f.landed(w, out)
		case errors.Is(err, fault.Timeout):
			w.fail(err)
		default:
			w.Done(out)
		}
	})
}

// CallLeader sends a call to the leader, now or once there is one. local runs
// instead if that is this server; by then another replica may be in this one's place.
func (r *Replica) CallLeader(method uint32, body []byte, local func(), done func([]byte, error)) {
	if r.seq.IsOpen() {
		local()
		return
	}
	r.calls.start(&call{method: method, body: body, deadline: r.deadline(), local: local, done: done})
}

// start sends a call or parks it.
func (f *Calls) start(c *call) {
	sends, err := f.admit(c)
	if err != nil {
		c.done(nil, err)
		return
	}
	f.send(sends)
}

// admit gives a call its place, if there is one.
func (f *Calls) admit(c *call) (sends []sending, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	switch {
	case f.stopped != nil:
		return nil, f.stopped
	case len(f.calls)+len(f.parked) >= MaxPendingWrites*len(f.r.Load().groups):
		return nil, fault.TooManyRequests
	}
	return f.route(c, nil), nil
}

// sending is a call that has been routed, to be sent once mu is free.
type sending struct {
	to   uint64
	call *Call
}

// route finds out where a call has to go, and adds it to what is to be sent. With mu
// held.
func (f *Calls) route(c *call, sends []sending) []sending {
	r := f.r.Load()
	leader := r.Leader()
	if leader == 0 || leader == r.cfg.ID {
		f.parked = append(f.parked, c)
		return sends
	}
	f.nextID++
	c.to = leader
	f.calls[f.nextID] = c
	return append(sends, sending{leader, &Call{ID: f.nextID, Method: c.method, Body: c.body}})
}

// send sends what has been routed. A call that the network doesn't take has not begun,
// and waits.
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

// replied takes the answer to a call.
func (f *Calls) replied(m *Reply) {
	if fault.CodeOf(m.Err) == fault.NotLeader.Code() {
		f.park(m.ID)
		return
	}
	f.mu.Lock()
	c := f.calls[m.ID]
	delete(f.calls, m.ID)
	f.mu.Unlock()
	if c != nil {
		c.done(m.Body, m.Err)
	}
}

// leaderChanged gives up what was sent to another leader than the present one:
// whether it took effect is unknown. The present one is what route goes by, asked for
// under the same lock: group 0 publishes its leader before it reports it, and what has
// gone there meanwhile must not be given up because another group reports first.
func (f *Calls) leaderChanged() {
	f.fail(fault.TimeoutLeaderFail, func(c *call) bool { return c.to != f.r.Load().Leader() })
	f.unpark()
}

// lost gives up what was sent to a peer: it, or the answer, may not have arrived.
func (f *Calls) lost(peer uint64) {
	f.fail(fault.TimeoutConnLost, func(c *call) bool { return c.to == peer })
}

func (f *Calls) fail(err error, match func(*call) bool) {
	for _, c := range f.take(match) {
		c.done(nil, err)
	}
}

// take removes the calls under way that match, in the order in which they were made, so
// that a simulation repeats itself.
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

// tick gives up what has waited too long.
func (f *Calls) tick(now int64) {
	f.fail(fault.TimeoutLeaderFail, func(c *call) bool { return c.deadline <= now })
	f.unpark()
	f.confess()
}

// unpark routes again what waits for a leader, and runs it here if that is this
// server.
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

// sort empties the parking place.
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
}

// answer does for another server what it asks for.
func (r *Replica) answer(from uint64, c *Call) {
	reply := func(body []byte, err error) { r.reply(from, &Reply{ID: c.ID, Body: body, Err: err}) }
	if !r.seq.IsOpen() {
		reply(nil, fault.NotLeader)
		return
	}
	switch c.Method {
	case methodWrite:
		w, err := decodeWrite(c.Body, r.cfg.Map.All())
		if err != nil {
			r.cfg.Logger.Warn("a peer forwarded a write that can't be read", zap.String("remote-peer-id", strconv.FormatUint(from, 16)), zap.Error(err))
			reply(nil, fault.Internal)
			return
		}
		w.Done = func(out Outcome) {
			body, err := encodeOutcome(out)
			reply(body, err)
		}
		r.Submit(w)
	case methodReadPoint:
		r.answerReadPoint(from, c.Body, reply)
	default:
		r.cfg.Serve(c.Method, c.Body, reply)
	}
}

// reply sends an answer. If the network doesn't take it, the asker is told that answers
// are lost, as soon as that can be said.
func (r *Replica) reply(to uint64, m *Reply) {
	if !r.cfg.Network.Send(to, Packet{Reply: m}) {
		r.calls.answersLost(to)
	}
}

// answersLost says that answers to a peer's calls may be lost.
func (f *Calls) answersLost(peer uint64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.owing[peer] = true
}

// confess tells the peers whose answers may be lost so, that they needn't wait until
// their calls have taken too long.
func (f *Calls) confess() {
	f.mu.Lock()
	peers := slices.Sorted(maps.Keys(f.owing))
	clear(f.owing)
	f.mu.Unlock()
	r := f.r.Load()
	for _, peer := range peers {
		if !r.cfg.Network.Send(peer, Packet{AnswersLost: true}) {
			f.answersLost(peer)
		}
	}
}

package replica

import (
	"slices"
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
	mu      sync.Mutex
	now     int64 // ticks
	nextID  uint64
	calls   map[uint64]*call
	parked  []*call
	stopped error
}

// NewCalls returns what the replicas of one server share, one after the other.
func NewCalls() *Calls { return &Calls{calls: map[uint64]*call{}} }

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

// Submit routes a write to where it can be stamped. Its Done is called once.
func (r *Replica) Submit(w *Write) {
	if r.seq.IsOpen() {
		switch {
		case w.Session:
			r.groups[w.Home].local(w)
		case w.System || w.Parts.Len() != 1:
			r.submitMulti(w)
		default:
			r.groups[w.Parts.First()].local(w)
		}
		return
	}
	f := r.calls
	f.start(&call{
		method: methodWrite,
		body:   encodeWrite(w),
		local:  func() { f.r.Load().Submit(w) },
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
	r.AwaitApplied(out.Group, out.Index, func(error) {
		if f.r.Load() != r { // and the one in its place may be behind it
			f.landed(w, out)
			return
		}
		w.Done(out)
	})
}

// CallLeader sends a call to the leader, now or once there is one. local runs
// instead if that is this server; by then another replica may be in this one's place.
func (r *Replica) CallLeader(method uint32, body []byte, local func(), done func([]byte, error)) {
	if r.seq.IsOpen() {
		local()
		return
	}
	r.calls.start(&call{method: method, body: body, local: local, done: done})
}

// start sends a call or parks it.
func (f *Calls) start(c *call) {
	r := f.r.Load()
	f.mu.Lock()
	c.deadline = f.now + r.cfg.RequestTicks
	switch {
	case f.stopped != nil:
		f.mu.Unlock()
		c.done(nil, f.stopped)
	case len(f.calls)+len(f.parked) >= MaxPendingWrites*len(r.groups):
		f.mu.Unlock()
		c.done(nil, fault.TooManyRequests)
	default:
		f.route(c)
		f.mu.Unlock()
	}
}

// route is called with mu held.
func (f *Calls) route(c *call) {
	r := f.r.Load()
	leader := r.Leader()
	if leader == 0 || leader == r.cfg.ID {
		f.parked = append(f.parked, c)
		return
	}
	f.nextID++
	c.to = leader
	f.calls[f.nextID] = c
	r.cfg.Network.Send(leader, Packet{Call: &Call{ID: f.nextID, Method: c.method, Body: c.body}})
}

// replied takes the answer to a call.
func (f *Calls) replied(m *Reply) {
	f.mu.Lock()
	c := f.calls[m.ID]
	delete(f.calls, m.ID)
	if c != nil && fault.CodeOf(m.Err) == fault.NotLeader.Code() {
		// It didn't even begin: it waits for another leader.
		f.parked = append(f.parked, c)
		c = nil
	}
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
}

func (f *Calls) disconnected(peer uint64) {
	f.fail(fault.TimeoutConnLost, func(c *call) bool { return c.to == peer })
}

func (f *Calls) fail(err error, lost func(*call) bool) {
	f.mu.Lock()
	var failed []*call
	for _, id := range f.ids() {
		if c := f.calls[id]; lost(c) {
			delete(f.calls, id)
			failed = append(failed, c)
		}
	}
	f.mu.Unlock()
	for _, c := range failed {
		c.done(nil, err)
	}
}

// ids returns the calls in the order in which they were made, so that a
// simulation repeats itself.
func (f *Calls) ids() []uint64 {
	ids := make([]uint64, 0, len(f.calls))
	for id := range f.calls {
		ids = append(ids, id)
	}
	slices.Sort(ids)
	return ids
}

// tick gives up what has waited too long.
func (f *Calls) tick() {
	f.mu.Lock()
	f.now++
	f.mu.Unlock()
	f.fail(fault.TimeoutLeaderFail, func(c *call) bool { return c.deadline <= f.now })
	f.unpark()
}

// unpark routes again what waits for a leader, and runs it here if that is this
// server.
func (f *Calls) unpark() {
	f.mu.Lock()
	parked := f.parked
	f.parked = nil
	var failed, local []*call
	for _, c := range parked {
		switch {
		case c.deadline <= f.now:
			failed = append(failed, c)
		case f.r.Load().seq.IsOpen():
			local = append(local, c)
		default:
			f.route(c)
		}
	}
	f.mu.Unlock()
	for _, c := range local {
		c.local()
	}
	for _, c := range failed {
		c.done(nil, fault.Timeout)
	}
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
	reply := func(body []byte, err error) {
		r.cfg.Network.Send(from, Packet{Reply: &Reply{ID: c.ID, Body: body, Err: err}})
	}
	if !r.seq.IsOpen() {
		reply(nil, fault.NotLeader)
		return
	}
	switch c.Method {
	case methodWrite:
		w, err := decodeWrite(c.Body, r.cfg.Map.All())
		if err != nil {
			r.cfg.Logger.Warn("a peer forwarded a write that can't be read", zap.Uint64("peer", from), zap.Error(err))
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

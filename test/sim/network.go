package sim

import (
	"time"

	"go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/proto"

	"github.com/stoa-kv/stoa/internal/fault"
	"github.com/stoa-kv/stoa/internal/replica"
)

// network is a link for each ordered pair of servers. A link is first in, first
// out, as the transport's streams are; messages lost by a break are reported to
// the sender, a while later.
type network struct {
	c     *cluster
	links map[[2]uint64]*link
	// withholds tells which messages don't arrive, in scripts. nil: all do.
	withholds func(to *server, m message) bool
}

type link struct {
	from, to *server
	cut      bool
	slow     time.Duration // added to each delay, for a while
	queue    []*message
	last     time.Duration // when the last in the queue arrives
	epoch    int           // deliveries of earlier ones are void
	telling  bool          // the sender will be told of a loss
}

// message is either Raft's or a packet.
type message struct {
	group int
	raft  *raftpb.Message
	other replica.Packet
}

func newNetwork(c *cluster) *network {
	n := &network{c: c, links: map[[2]uint64]*link{}}
	for _, a := range c.servers {
		for _, b := range c.servers {
			if a != b {
				n.links[[2]uint64{a.id, b.id}] = &link{from: a, to: b}
			}
		}
	}
	return n
}

// connect makes the links of a new server.
func (n *network) connect(s *server) {
	for _, o := range n.c.servers {
		if o != s {
			n.links[[2]uint64{s.id, o.id}] = &link{from: s, to: o}
			n.links[[2]uint64{o.id, s.id}] = &link{from: o, to: s}
		}
	}
}

func (n *network) link(from, to uint64) *link { return n.links[[2]uint64{from, to}] }

// each visits all links in order.
func (n *network) each(fn func(*link)) {
	for _, a := range n.c.servers {
		for _, b := range n.c.servers {
			if a != b {
				fn(n.link(a.id, b.id))
			}
		}
	}
}

// send tells whether the sender's queue took the message.
func (n *network) send(from, to uint64, m message) bool {
	l := n.link(from, to)
	loop := n.c.loop
	switch {
	case l == nil:
		return false
	case n.withholds != nil && n.withholds(l.to, m):
		return true
	case l.cut:
		n.lost(l)
		return true
	case loop.chance(n.c.plan.loseOneIn):
		// The queue overflowed.
		n.lost(l)
		return false
	}
	n.enqueue(l, &m)
	if m.mayRepeat() && loop.chance(n.c.plan.repeatOneIn) {
		n.enqueue(l, &m)
	}
	return true
}

func (n *network) enqueue(l *link, m *message) {
	loop := n.c.loop
	delay := loop.between(n.c.plan.delay/2, 2*n.c.plan.delay) + l.slow
	if loop.chance(n.c.plan.lateOneIn) {
		delay += loop.between(0, n.c.plan.late)
	}
	l.queue = append(l.queue, m)
	l.last = max(l.last, loop.now+delay)
	epoch := l.epoch
	loop.after(l.last-loop.now, "deliver", l.from.id, l.to.id, func() {
		if l.epoch == epoch {
			n.deliver(l)
		}
	})
}

// deliver gives the oldest message to the receiver, if it is running.
func (n *network) deliver(l *link) {
	life := l.to.life
	if life == nil {
		n.breakLink(l)
		n.lost(l)
		return
	}
	if n.c.operator != nil && life.hasRemoved(l.from.id) {
		n.breakLink(l)
		n.lost(l)
		return
	}
	m := l.queue[0]
	l.queue = l.queue[1:]
	life.now("receive", l.from.id, func() { life.receive(l.from.id, m) })
}

// breakLink loses the messages in flight.
func (n *network) breakLink(l *link) {
	l.epoch++
	l.queue = nil
}

// lost tells the sender, later.
func (n *network) lost(l *link) {
	sender := l.from.life
	if l.telling || sender == nil {
		return
	}
	l.telling = true
	to := l.to.id
	loop := n.c.loop
	loop.after(loop.between(time.Millisecond, 100*time.Millisecond), "lost", l.from.id, to, func() {
		l.telling = false
		sender.now("unreachable", to, func() {
			sender.core.replica.Unreachable(to)
		})
	})
}

// gone breaks all links of a server that has ended. Its earlier messages may
// still arrive.
func (n *network) gone(s *server) {
	n.each(func(l *link) {
		if l.to == s || l.from == s && n.c.loop.chance(2) {
			if len(l.queue) > 0 && l.to == s {
				n.lost(l)
			}
			n.breakLink(l)
		}
	})
}

func (n *network) setCut(l *link, cut bool) {
	if l.cut = cut; cut {
		if len(l.queue) > 0 {
			n.lost(l)
		}
		n.breakLink(l)
	}
}

func (n *network) heal() {
	n.each(func(l *link) { l.cut, l.slow = false, 0 })
}

func (m *message) mayRepeat() bool { return m.other.Call == nil && m.other.Reply == nil }

// wire is what a server's replica sends through. It copies: servers share no
// memory.
type wire struct{ c *core }

func (w wire) Raft(to uint64, group int, m *raftpb.Message) {
	if !w.c.ended {
		w.c.l.sv.c.net.send(w.c.l.sv.id, to, message{group: group, raft: proto.CloneOf(m)})
	}
}

func (w wire) Send(to uint64, p replica.Packet) bool {
	if w.c.ended {
		return true
	}
	if p.Reply != nil && p.Reply.Err != nil {
		r := *p.Reply
		r.Err = fault.FromCode(fault.CodeOf(r.Err))
		p.Reply = &r
	}
	return w.c.l.sv.c.net.send(w.c.l.sv.id, to, message{other: p})
}

func (w wire) Snapshot(to uint64) { w.c.l.sendSnapshot(to) }

// receive runs on the receiver.
func (l *life) receive(from uint64, m *message) {
	loop := l.sv.c.loop
	if m.raft != nil {
		loop.note(uint64(m.group), uint64(m.raft.GetType()), m.raft.GetTerm(), m.raft.GetIndex(), m.raft.GetCommit(), uint64(len(m.raft.GetEntries())))
		l.core.replica.ReceiveRaft(m.group, m.raft)
		return
	}
	for _, c := range m.other.Closed {
		loop.note(uint64(c.Group), c.Index, uint64(c.Revision))
	}
	l.core.replica.Receive(from, m.other)
}

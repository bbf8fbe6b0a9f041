package node

import (
	"context"
	"io"
	"time"

	"go.etcd.io/raft/v3/raftpb"
	"go.uber.org/zap"

	peerpb "github.com/stoa-kv/stoa/api/stoa/peer/v1"
	"github.com/stoa-kv/stoa/internal/fault"
	"github.com/stoa-kv/stoa/internal/membership"
	"github.com/stoa-kv/stoa/internal/replica"
	"github.com/stoa-kv/stoa/internal/transport/raftwire"
)

// network implements replica.Network over the transport.
type network struct {
	n     *Node
	beats []heartbeats // of each group
}

func (w network) Raft(to uint64, group int, m *raftpb.Message) {
	if m.GetType() == raftpb.MsgHeartbeat {
		p := membership.PartitionOf(uint32(group))
		w.beats[p].note(w.n, p, m, time.Now())
	}
	w.n.transport.Send(to, &peerpb.Batch{Raft: raftwire.Append(nil, uint32(group), m)})
}

func (w network) Snapshot(to uint64) { w.n.sendSnapshot(to) }

func (w network) Send(to uint64, p replica.Packet) bool {
	b := &peerpb.Batch{AnswersLost: p.AnswersLost, Settled: p.Settled}
	if p.Confirm != nil {
		b.Confirm = &peerpb.Confirm{Round: p.Confirm.Round, Terms: p.Confirm.Terms, Generation: p.Confirm.Generation}
	}
	if p.ConfirmAck != nil {
		b.ConfirmAck = &peerpb.ConfirmAck{Round: p.ConfirmAck.Round, Ok: p.ConfirmAck.OK}
	}
	for _, c := range p.Closed {
		b.Closed = append(b.Closed, &peerpb.Closed{Group: uint32(c.Group), Index: c.Index, Revision: c.Revision})
	}
	if p.Call != nil {
		b.Calls = []*peerpb.Call{{Id: p.Call.ID, Method: p.Call.Method, Body: p.Call.Body, Trace: p.Call.Trace, Generation: p.Call.Generation}}
	}
	if p.Reply != nil {
		r := &peerpb.Reply{Id: p.Reply.ID, Fault: fault.CodeOf(p.Reply.Err), Body: p.Reply.Body}
		if p.Reply.Err != nil {
			r.Body = []byte(fault.TextOf(p.Reply.Err))
		}
		b.Replies = []*peerpb.Reply{r}
	}
	return w.n.transport.Send(to, b)
}

// handler passes messages of other servers to the replica.
type handler struct{ n *Node }

func (h handler) Receive(from uint64, b *peerpb.Batch) {
	r := h.n.core.Load().replica
	for rest := b.GetRaft(); len(rest) > 0; {
		group, m, next, err := raftwire.Next(rest)
		if err != nil {
			h.n.log.Warn("a peer sent a Raft message that can't be read", memberID("remote-peer-id", from), zap.Error(err))
			break
		}
		if m.GetFrom() == from {
			r.ReceiveRaft(int(group), m)
		}
		rest = next
	}
	p := replica.Packet{Settled: b.GetSettled()}
	if c := b.GetConfirm(); c != nil {
		p.Confirm = &replica.Confirm{Round: c.GetRound(), Terms: c.GetTerms(), Generation: c.GetGeneration()}
	}
	if a := b.GetConfirmAck(); a != nil {
		p.ConfirmAck = &replica.ConfirmAck{Round: a.GetRound(), OK: a.GetOk()}
	}
	for _, c := range b.GetClosed() {
		p.Closed = append(p.Closed, replica.Closed{Group: int(c.GetGroup()), Index: c.GetIndex(), Revision: c.GetRevision()})
	}
	r.Receive(from, p)
	for _, c := range b.GetCalls() {
		r.Receive(from, replica.Packet{Call: &replica.Call{ID: c.GetId(), Method: c.GetMethod(), Body: c.GetBody(), Trace: c.GetTrace(), Generation: c.GetGeneration()}})
	}
	for _, m := range b.GetReplies() {
		reply := &replica.Reply{ID: m.GetId(), Body: m.GetBody()}
		if m.GetFault() != 0 {
			reply.Err = fault.FromCode(m.GetFault())
			if len(m.GetBody()) > 0 {
				reply.Err = fault.FromCode(m.GetFault()).With(string(m.GetBody()))
			}
		}
		r.Receive(from, replica.Packet{Reply: reply})
	}
	if b.GetAnswersLost() { // behind the replies that are here
		r.Receive(from, replica.Packet{AnswersLost: true})
	}
}

func (h handler) InstallSnapshot(ctx context.Context, from uint64, head *peerpb.SnapshotHeader, r io.Reader) error {
	return h.n.install(ctx, from, head, r)
}

func (h handler) Unreachable(peer uint64) {
	h.n.core.Load().replica.Unreachable(peer)
}

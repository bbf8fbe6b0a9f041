package node

import (
	"time"

	"go.etcd.io/raft/v3/raftpb"
	"go.uber.org/zap"
)

// heartbeats measure whether this server, as a leader, sends its heartbeats in time. Each
// group's are used by the goroutine that steps its Raft, one at a time.
type heartbeats struct {
	last map[uint64]beat // by follower
	told time.Time       // when the last line was logged
}

type beat struct {
	term uint64
	at   time.Time
}

// tellAgain is the least time between two lines of a group.
const tellAgain = 10 * time.Second

// note looks at a heartbeat that is about to be sent. The first of a term is in time.
func (h *heartbeats) note(n *Node, group int, m *raftpb.Message, now time.Time) {
	before := h.last[m.GetTo()]
	if h.last == nil {
		h.last = map[uint64]beat{}
	}
	h.last[m.GetTo()] = beat{m.GetTerm(), now}
	late := now.Sub(before.at) - 2*n.cfg.Tick
	if before.term != m.GetTerm() || late <= 0 {
		return
	}
	n.cfg.Metrics.Server.HeartbeatFailures.Inc()
	if now.Sub(h.told) < tellAgain {
		return
	}
	h.told = now
	to := m.GetTo()
	n.lines.add(func(lg *zap.Logger) {
		lg.Warn("leader failed to send out heartbeat on time; took too long, leader is overloaded likely from slow disk",
			memberID("to", to), zap.Int("group", group), zap.Duration("heartbeat-interval", n.cfg.Tick),
			zap.Duration("expected-duration", 2*n.cfg.Tick), zap.Duration("exceeded-duration", late))
	})
}

package node

import (
	"io"
	"sync"
	"time"

	"go.uber.org/zap"

	peerpb "github.com/stoa-kv/stoa/api/stoa/peer/v1"
	"github.com/stoa-kv/stoa/internal/backend"
	"github.com/stoa-kv/stoa/internal/fault"
)

// hurryFor is how long further snapshots to a peer are sent without pauses: while it took
// in the last one, the log has been shortened.
const hurryFor = 10 * time.Minute

// sending is the snapshots being sent, one to a peer.
type sending struct {
	mu  sync.Mutex
	now map[uint64]bool
	end map[uint64]time.Time // of the last one to a peer
}

// begin reports whether a snapshot is to be sent, because none is under way, and whether
// without pauses.
func (s *sending) begin(to uint64, at time.Time) (send, hurry bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.now[to] {
		return false, false
	}
	if s.now == nil {
		s.now, s.end = map[uint64]bool{}, map[uint64]time.Time{}
	}
	s.now[to] = true
	end, again := s.end[to]
	return true, again && at.Sub(end) < hurryFor
}

func (s *sending) ended(to uint64, at time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.now, to)
	s.end[to] = at
}

// sendSnapshot starts sending the file to a peer, unless that is under way.
func (n *Node) sendSnapshot(to uint64) {
	if n.stopping.Load() || n.Fenced() {
		return
	}
	send, hurry := n.snapshots.begin(to, time.Now())
	if !send {
		return
	}
	n.running.Go(func() { // asked for by a group's loop, which Stop ends before it waits
		err := n.streamSnapshot(to, hurry)
		n.snapshots.ended(to, time.Now())
		if err != nil {
			n.log.Warn("sending a snapshot failed", memberID("remote-peer-id", to), zap.Error(err))
		}
		n.core.Load().replica.SnapshotSent(to)
	})
}

// snapshot returns one of the file, and what it is of: the groups of one generation.
func (n *Node) snapshot() (*backend.Snapshot, *peerpb.SnapshotHeader, error) {
	n.rebuild.Lock()
	defer n.rebuild.Unlock()
	c := n.core.Load()
	s, err := c.backend.Snapshot()
	if err != nil {
		return nil, nil, err
	}
	head := &peerpb.SnapshotHeader{Size: uint64(s.Size), Generation: c.groups.Generation}
	for p, at := range s.Positions {
		head.Positions = append(head.Positions, &peerpb.Position{Group: c.groups.Number(p), Index: at.Index, Term: at.Term})
	}
	return s, head, nil
}

// streamSnapshot sends with pauses while there are writes, or without any.
func (n *Node) streamSnapshot(to uint64, hurry bool) error {
	fenced := n.fence.Times()
	if n.Fenced() {
		return fault.Fenced
	}
	// What is flushed now is what the peer's log must be able to go on from.
	if err := n.flushNow(); err != nil {
		return err
	}
	s, head, err := n.snapshot()
	if err != nil {
		return err
	}
	began := time.Now()
	n.log.Info("sending database snapshot", memberID("remote-peer-id", to), zap.Int64("bytes", s.Size))
	busy := n.written() // without writes nothing has to be spared
	if hurry {
		busy = func() bool { return false }
	}
	r := n.stream(s, fenced, func(w *io.PipeWriter) (int64, error) { return s.Transfer(w, busy) })
	defer r.Close()
	if err := n.transport.SendSnapshot(n.life, to, head, r); err != nil {
		return err
	}
	n.log.Info("sent database snapshot", memberID("remote-peer-id", to), zap.Int64("bytes", s.Size), zap.Duration("took", time.Since(began)))
	return nil
}

// stream has a snapshot written, for one who reads it at their own pace, and closed. It ends with fault.Fenced if this server
// has been fenced more often than before: the state was wrong.
func (n *Node) stream(s *backend.Snapshot, fences uint64, write func(*io.PipeWriter) (int64, error)) *io.PipeReader {
	r, w := io.Pipe()
	began := time.Now()
	go func() {
		_, err := write(w)
		if n.fence.Times() != fences {
			err = fault.Fenced
		}
		_ = s.Close()
		n.cfg.Metrics.Disk.Snapshot.Observe(time.Since(began).Seconds())
		w.CloseWithError(n.damaged(err))
	}()
	return r
}

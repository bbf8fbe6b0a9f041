package replica

import (
	"encoding/binary"
	"slices"
	"sync"

	"go.uber.org/zap"

	"github.com/stoa-kv/stoa/internal/store"
)

// Between two checks servers compare what the entries of their logs have changed, window by window
// (store.Windows): the one that stamps tells the others, each tick, of the windows that it has applied
// since. Nothing of it reaches the state, and nobody is judged by it: a server for which a window has
// changed something else asks for a check.
//
// The clock and the links do this, which wait for no apply: what they find taken is told, or compared, later.

// windows is what this server has told, and what it was told before it had got there.
type windows struct {
	mu      sync.Mutex
	sent    []uint64 // by partition, the end of the last window that was told; if this server stamps
	awaited []windowOf
	differs bool // and the log says so
}

type windowOf struct {
	partition int
	store.WindowSum
}

// maxAwaited bounds what a server keeps that is far behind: it is compared by the checks.
const maxAwaited = 1024

func (w *windows) tick(r *Replica, now int64) {
	if r.cfg.CheckTicks <= 0 || !r.cfg.Machine.Checks() || r.cfg.Machine.Fence.Now() != nil {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if r.seq.IsOpen() {
		w.tell(r, now)
	} else if len(w.awaited) > 0 {
		w.compare(r)
	}
}

// tell sends the others what they haven't been told. What doesn't reach one isn't sent again.
func (w *windows) tell(r *Replica, now int64) {
	if w.awaited = nil; w.sent == nil {
		w.sent = make([]uint64, len(r.cfg.Stores))
	}
	var body []byte
	for p, s := range r.cfg.Stores {
		if !s.TryRLock() {
			continue // with the next tick
		}
		list := s.Windows().Since(w.sent[p])
		s.RUnlock()
		for _, c := range list {
			body = windowOf{p, c}.appendTo(body)
			w.sent[p] = c.End
		}
	}
	if len(body) == 0 {
		return
	}
	for _, id := range r.Peers() {
		r.calls.ask(id, methodWindows, body, now+int64(r.cfg.ElectionTicks), unheard)
	}
}

// told compares what another server tells with what has been applied here, now or once it has been.
func (w *windows) told(r *Replica, generation uint32, body []byte) {
	if generation != r.generation() || r.cfg.Machine.Fence.Now() != nil {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	for len(body) > 0 {
		c, rest, ok := decodeWindow(body)
		if !ok || c.partition >= len(r.cfg.Stores) {
			return // of a later version
		}
		w.awaited, body = append(w.awaited, c), rest
	}
	if n := len(w.awaited) - maxAwaited; n > 0 {
		w.awaited = slices.Delete(w.awaited, 0, n)
	}
	w.compare(r)
}

// compare looks at the windows that are awaited, where no apply holds the store.
func (w *windows) compare(r *Replica) {
	w.awaited = slices.DeleteFunc(w.awaited, func(c windowOf) bool {
		s := r.cfg.Stores[c.partition]
		if !s.TryRLock() {
			return false
		}
		same, reached := s.Windows().Compare(c.WindowSum)
		s.RUnlock()
		if !same {
			w.differ(r, c)
		}
		return reached
	})
}

func (w *windows) differ(r *Replica, c windowOf) {
	if !w.differs {
		w.differs = true
		r.cfg.Logger.Error("entries of the log have changed something else here than on the server that leads: asking for a check",
			zap.Int("partition", c.partition), zap.Uint64("last-index", c.End))
	}
	r.wantCheck()
}

func (c windowOf) appendTo(b []byte) []byte {
	b = binary.AppendUvarint(b, uint64(c.partition))
	b = binary.AppendUvarint(b, c.End)
	return binary.BigEndian.AppendUint64(b, c.Diff)
}

func decodeWindow(b []byte) (c windowOf, rest []byte, ok bool) {
	p, n := binary.Uvarint(b)
	if n <= 0 || p > 1<<16 {
		return c, nil, false
	}
	b = b[n:]
	if c.End, n = binary.Uvarint(b); n <= 0 || len(b) < n+8 {
		return c, nil, false
	}
	c.partition, c.Diff = int(p), binary.BigEndian.Uint64(b[n:])
	return c, b[n+8:], true
}

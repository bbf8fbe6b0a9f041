package transport

import (
	"sync"

	peerpb "github.com/stoa-kv/stoa/api/stoa/peer/v1"
)

const (
	// Above this size nothing is added to a batch: larger ones save nothing,
	// and delay later ones.
	fullBatch = 1 << 20
	// No batch may be larger, even if the queue has space.
	maxBatch = 512 << 20
)

// queue holds the messages for one peer, already merged into batches.
type queue struct {
	limit int
	// Holds a token while there may be something to take.
	wake chan struct{}

	mu      sync.Mutex
	batches []waiting
	bytes   int
	// Something was refused since the last take.
	overflow bool
}

type waiting struct {
	batch *peerpb.Batch
	bytes int
	// The batch was made here. Callers' batches are never written to: they may
	// have been sent to other peers too.
	own bool
}

func newQueue(limit int) *queue {
	return &queue{limit: limit, wake: make(chan struct{}, 1)}
}

// push accepts all of b, or nothing. A batch larger than the whole limit is
// taken when nothing else waits, since there will be no better moment.
func (q *queue) push(b *peerpb.Batch) bool {
	n := weight(b)
	q.mu.Lock()
	defer q.mu.Unlock()
	if n > maxBatch || q.bytes > 0 && q.bytes+n > q.limit {
		q.overflow = true
		return false
	}
	if last := len(q.batches) - 1; last >= 0 && q.batches[last].bytes+n <= fullBatch {
		w := &q.batches[last]
		if !w.own {
			w.batch, w.own = merge(&peerpb.Batch{}, w.batch), true
		}
		merge(w.batch, b)
		w.bytes += n
	} else {
		q.batches = append(q.batches, waiting{batch: b, bytes: n})
	}
	q.bytes += n
	select {
	case q.wake <- struct{}{}:
	default:
	}
	return true
}

// take returns the oldest batch, or nil, and whether anything was refused since
// the last call.
func (q *queue) take() (b *peerpb.Batch, bytes int, overflow bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	overflow, q.overflow = q.overflow, false
	if len(q.batches) == 0 {
		return nil, 0, overflow
	}
	w := q.batches[0]
	q.batches[0] = waiting{}
	q.batches = q.batches[1:]
	if len(q.batches) == 0 {
		q.batches = nil
	}
	q.bytes -= w.bytes
	return w.batch, w.bytes, overflow
}

// clear drops everything and reports whether there was anything.
func (q *queue) clear() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	lost := len(q.batches) > 0 || q.overflow
	q.batches, q.bytes, q.overflow = nil, 0, false
	return lost
}

// merge adds the items of src to dst, which must be this package's own.
func merge(dst, src *peerpb.Batch) *peerpb.Batch {
	dst.Raft = append(dst.Raft, src.Raft...)
	// A later round covers the earlier ones; an older answer has no more
	// information than the newer.
	if c := src.Confirm; c != nil && c.Round >= dst.Confirm.GetRound() {
		dst.Confirm = c
	}
	if a := src.ConfirmAck; a != nil && a.Round >= dst.ConfirmAck.GetRound() {
		dst.ConfirmAck = a
	}
	for _, c := range src.Closed {
		dst.Closed = setClosed(dst.Closed, c)
	}
	dst.Calls = append(dst.Calls, src.Calls...)
	dst.Replies = append(dst.Replies, src.Replies...)
	dst.AnswersLost = dst.AnswersLost || src.AnswersLost
	dst.Settled = max(dst.Settled, src.Settled)
	return dst
}

// setClosed keeps one item per group: closed revisions only grow.
func setClosed(list []*peerpb.Closed, c *peerpb.Closed) []*peerpb.Closed {
	for i := range list {
		if list[i].Group == c.Group {
			list[i] = c
			return list
		}
	}
	return append(list, c)
}

// weight is the approximate size of b in memory and on the wire.
func weight(b *peerpb.Batch) int {
	n := 32*len(b.Closed) + 8*len(b.Confirm.GetTerms())
	for _, m := range b.Raft {
		n += 24 + len(m)
	}
	for _, c := range b.Calls {
		n += 64 + len(c.Body) + len(c.Trace)
	}
	for _, r := range b.Replies {
		n += 64 + len(r.Body)
	}
	return n + 16
}

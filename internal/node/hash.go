package node

import (
	"context"
	"errors"
	"slices"
	"sync"

	"go.uber.org/zap"

	"github.com/stoa-kv/stoa/internal/backend"
	"github.com/stoa-kv/stoa/internal/fault"
	"github.com/stoa-kv/stoa/internal/rpc"
)

// maxHashes is how many hashes of compactions are remembered, as in etcd.
const maxHashes = 10

// hashes are the checksums of the history that compactions have removed since:
// etcd takes the sum when it compacts, and answers with it when a client asks
// for the hash at the compaction's revision, so that members can be compared
// there. Nothing is removed before its sum is taken.
type hashes struct {
	mu      sync.Mutex
	asked   []rpc.KVHash // compactions whose hash is still to be computed, in order
	known   []rpc.KVHash
	through int64 // compactions up to here have their hash, or never will
	running bool
}

// compacted notes a compaction. It is called while all stores are locked, so
// that every server sees the same pairs of compactions.
func (h *hashes) compacted(rev int64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	previous := h.through
	if n := len(h.asked); n > 0 {
		previous = h.asked[n-1].HashRevision
	}
	h.asked = append(h.asked, rpc.KVHash{HashRevision: rev, CompactRevision: previous})
}

// hold tells up to which compaction a cut may be swept.
func (h *hashes) hold(cut *backend.Cut) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for p := range cut.Partitions {
		cut.Partitions[p].Sweep = min(cut.Partitions[p].Sweep, h.through)
	}
}

// compute starts to take the sums of the compactions that the file now holds.
func (h *hashes) compute(n *Node, c *core, cut *backend.Cut) {
	h.mu.Lock()
	defer h.mu.Unlock()
	flushed := cut.Partitions[0].Compacted
	if h.running || len(h.asked) == 0 || h.asked[0].HashRevision > flushed {
		return
	}
	h.running = true
	c.loops.Go(func() {
		for next, ok := h.next(flushed); ok; next, ok = h.next(flushed) {
			sum, err := c.backend.CompactionHash(next.HashRevision, next.CompactRevision, c.halted)
			if n.damaged(err) != nil && !errors.Is(err, backend.ErrAborted) {
				n.log.Warn("the hash of a compaction could not be computed", zap.Int64("revision", next.HashRevision), zap.Error(err))
			}
			next.Hash = sum
			h.computed(next, err == nil)
		}
	})
}

func (h *hashes) next(flushed int64) (rpc.KVHash, bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(h.asked) == 0 || h.asked[0].HashRevision > flushed {
		h.running = false
		return rpc.KVHash{}, false
	}
	return h.asked[0], true
}

func (h *hashes) computed(sum rpc.KVHash, ok bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.asked = h.asked[1:]
	h.through = sum.HashRevision
	if !ok {
		return
	}
	if h.known = append(h.known, sum); len(h.known) > maxHashes {
		h.known = slices.Delete(h.known, 0, 1)
	}
}

func (h *hashes) at(rev int64) (rpc.KVHash, bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	i := slices.IndexFunc(h.known, func(k rpc.KVHash) bool { return k.HashRevision == rev })
	if i < 0 {
		return rpc.KVHash{}, false
	}
	return h.known[i], true
}

// halted says whether the core is being stopped.
func (c *core) halted() bool {
	select {
	case <-c.halt:
		return true
	default:
		return false
	}
}

// HashKV is the checksum of the history through rev, 0 for all of it.
func (n *Node) HashKV(_ context.Context, rev int64) (rpc.KVHash, error) {
	c := n.current()
	current, compacted := n.readableRevision(c), c.machine.Compacted()
	if sum, ok := c.hashes.at(rev); ok {
		sum.CurrentRevision = current
		return sum, nil
	}
	if rev == 0 {
		rev = current
	}
	switch {
	case rev < compacted:
		return rpc.KVHash{}, fault.Compacted
	case rev > current:
		return rpc.KVHash{}, fault.FutureRevision
	}
	if err := n.flushNow(); err != nil {
		return rpc.KVHash{}, err
	}
	h, err := n.core.Load().backend.HashKV(rev, compacted)
	return rpc.KVHash{Hash: h, HashRevision: rev, CompactRevision: compacted, CurrentRevision: current}, n.damaged(err)
}

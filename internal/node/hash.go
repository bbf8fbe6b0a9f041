package node

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.uber.org/zap"

	"github.com/stoa-kv/stoa/internal/backend"
	"github.com/stoa-kv/stoa/internal/fault"
)

// maxHashes is how many hashes of compactions are remembered, as in etcd.
const maxHashes = 10

// historyHash is the checksum of the revisions above compacted, through revision.
type historyHash struct {
	compacted, revision int64
	sum                 uint32
}

// hashes are the checksums of the history that compactions have removed since:
// etcd takes the sum when it compacts, and answers with it when a client asks
// for the hash at the compaction's revision, so that members can be compared
// there. Nothing is removed before its sum is taken, unless compactions come
// faster than sums can be: then those that wait are given up, or the file would
// grow as long as that goes on.
type hashes struct {
	mu      sync.Mutex
	asked   []historyHash // compactions whose hash is still to be computed, in order
	known   []historyHash
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
		previous = h.asked[n-1].revision
	}
	h.asked = append(h.asked, historyHash{compacted: previous, revision: rev})
	if len(h.asked) > maxHashes { // the first ones would be forgotten by the time that all are taken
		h.asked, h.through = nil, rev
	}
}

// waitsFor reports whether a hash is still wanted: it is the first that is to be computed.
func (h *hashes) waitsFor(hash historyHash) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.isFirst(hash)
}

// isFirst needs mu.
func (h *hashes) isFirst(hash historyHash) bool { return len(h.asked) > 0 && h.asked[0] == hash }

// inherit takes over what another core knew and had still to do, whose goroutines have ended.
func (h *hashes) inherit(from *hashes) {
	from.mu.Lock()
	defer from.mu.Unlock()
	h.asked, h.known, h.through = slices.Clone(from.asked), slices.Clone(from.known), from.through
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
	if c.halted() || h.running || len(h.asked) == 0 || h.asked[0].revision > flushed {
		return
	}
	h.running = true
	c.loops.Go(func() {
		for next, ok := h.next(flushed); ok; next, ok = h.next(flushed) {
			sum, err := c.backend.CompactionHash(next.revision, next.compacted, func() bool { return c.halted() || !h.waitsFor(next) })
			if n.damaged(err) != nil && !errors.Is(err, backend.ErrAborted) {
				n.log.Warn("the hash of a compaction could not be computed", zap.Int64("revision", next.revision), zap.Error(err))
			}
			h.computed(next, sum, err == nil)
		}
	})
}

func (h *hashes) next(flushed int64) (historyHash, bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(h.asked) == 0 || h.asked[0].revision > flushed {
		h.running = false
		return historyHash{}, false
	}
	return h.asked[0], true
}

func (h *hashes) computed(hash historyHash, sum uint32, ok bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if !h.isFirst(hash) {
		return // given up: what it is of may have been removed meanwhile
	}
	h.asked = h.asked[1:]
	h.through = hash.revision
	if !ok {
		return
	}
	hash.sum = sum
	if h.known = append(h.known, hash); len(h.known) > maxHashes {
		h.known = slices.Delete(h.known, 0, 1)
	}
}

func (h *hashes) at(rev int64) (historyHash, bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	i := slices.IndexFunc(h.known, func(k historyHash) bool { return k.revision == rev })
	if i < 0 {
		return historyHash{}, false
	}
	return h.known[i], true
}

// halted reports whether the core is being stopped.
func (c *core) halted() bool {
	select {
	case <-c.halt:
		return true
	default:
		return false
	}
}

// HashKV is the checksum of the history through rev, 0 for all of it. The header's
// revision is the current one.
func (n *Node) HashKV(ctx context.Context, rev int64) (*pb.HashKVResponse, error) {
	ended, err := n.alone(ctx, n.hashing)
	if err != nil {
		return nil, err
	}
	defer ended()
	return routed(ctx, n, func(c *core) (*pb.HashKVResponse, error) {
		resp, err := n.hashKV(ctx, c, rev)
		if errors.Is(err, backend.ErrAborted) {
			return nil, context.Cause(ctx)
		}
		return resp, c.retryIfReplaced(err)
	})
}

// alone waits until nobody else has what one may have at a time.
func (n *Node) alone(ctx context.Context, held chan struct{}) (ended func(), err error) {
	select {
	case held <- struct{}{}:
		return func() { <-held }, nil
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	case <-n.life.Done():
		return nil, fault.Stopped
	}
}

func (n *Node) hashKV(ctx context.Context, c *core, rev int64) (*pb.HashKVResponse, error) {
	current := n.readableRevision(c)
	if known, ok := c.hashes.at(rev); ok {
		return known.response(current), nil
	}
	if rev > current {
		return nil, fault.FutureRevision
	}
	hash := historyHash{revision: cmp.Or(rev, current)}
	if err := n.flushFor(ctx); err != nil {
		return nil, err
	}
	began := time.Now()
	var err error
	left := func() bool { return ctx.Err() != nil }
	hash.sum, hash.compacted, err = c.backend.HashKV(hash.revision, left)
	for rev == 0 && hash.revision < hash.compacted { // by now, with everything through the compaction
		hash.revision, current = hash.compacted, hash.compacted
		hash.sum, hash.compacted, err = c.backend.HashKV(hash.revision, left)
	}
	n.cfg.Metrics.Store.HashRevision.Observe(time.Since(began).Seconds())
	if err != nil {
		return nil, n.damaged(err)
	}
	return hash.response(current), nil
}

func (h historyHash) response(current int64) *pb.HashKVResponse {
	return &pb.HashKVResponse{
		Header: &pb.ResponseHeader{Revision: current}, Hash: h.sum, CompactRevision: h.compacted, HashRevision: h.revision,
	}
}

package sequencer

import (
	"errors"
	"math"
	"sync"
	"sync/atomic"

	"github.com/stoa-kv/stoa/internal/placement"
)

// ErrClosed is returned by Reserve outside an epoch, and by ReserveIn outside that one.
var ErrClosed = errors.New("sequencer: not the leader of every group")

// nothing is the floor of a lane in which no stamp is outstanding.
const nothing = math.MaxInt64

// Sequencer is the stamp counter of one server and the lanes of its partitions.
type Sequencer struct {
	// epoch is the number of the open epoch, or 0. It is written under the locks
	// of all lanes.
	epoch     atomic.Uint64
	last      atomic.Int64 // the highest stamp given out
	committed atomic.Int64
	lanes     []lane
	// moved, if set, runs right after the counter has moved: a hook for tests
	// of concurrent reservations.
	moved func()
}

// lane serialises reserve-and-append for one partition.
type lane struct {
	mu sync.Mutex
	// floor is at or below the oldest stamp reserved but not applied. It is
	// written under mu and read without.
	floor atomic.Int64
	// outstanding holds the last stamp of each reservation not yet applied,
	// with its first: a FIFO, since a lane's stamps are applied in order.
	outstanding []span
	_           [24]byte // padding against false sharing between lanes
}

type span struct{ first, last int64 }

// New returns a closed sequencer for a number of partitions.
func New(partitions int) *Sequencer {
	s := &Sequencer{lanes: make([]lane, partitions)}
	for p := range s.lanes {
		s.lanes[p].floor.Store(nothing)
	}
	return s
}

// Open starts an epoch (> 0) above the stamp highest. The caller leads every
// group, has applied everything that was in their logs, and highest is the
// highest stamp among it.
func (s *Sequencer) Open(epoch uint64, highest int64) {
	s.lockAll()
	defer s.unlockAll()
	s.last.Store(highest)
	s.committed.Store(highest)
	for p := range s.lanes {
		s.lanes[p].outstanding = nil
		s.lanes[p].floor.Store(nothing)
	}
	s.epoch.Store(epoch)
}

// Close ends the epoch, if one is open. Reservations in progress finish
// first. The floors stay: what was reserved and not applied remains undecided
// until the next Open.
func (s *Sequencer) Close() {
	s.lockAll()
	defer s.unlockAll()
	s.epoch.Store(0)
}

// Seal ends the epoch with the entry that is being enqueued: nothing is stamped after it. It is
// called by the enqueue of an entry of all partitions, whose lanes are locked therefore.
func (s *Sequencer) Seal() { s.epoch.Store(0) }

func (s *Sequencer) lockAll() {
	for p := range s.lanes {
		s.lanes[p].mu.Lock()
	}
}

func (s *Sequencer) unlockAll() {
	for p := range s.lanes {
		s.lanes[p].mu.Unlock()
	}
}

// Epoch is the number of the open epoch, 0 if none is.
func (s *Sequencer) Epoch() uint64 { return s.epoch.Load() }

// IsOpen says whether this server stamps.
func (s *Sequencer) IsOpen() bool { return s.epoch.Load() != 0 }

// Committed returns the committed watermark C.
func (s *Sequencer) Committed() int64 { return s.committed.Load() }

// Commit raises the committed watermark to stamp, which the caller has seen
// committed in some group. It must be called before the entry is applied.
func (s *Sequencer) Commit(stamp int64) {
	for {
		c := s.committed.Load()
		if stamp <= c || s.committed.CompareAndSwap(c, stamp) {
			return
		}
	}
}

// Reserve takes n stamps for one entry of the given partitions and calls
// enqueue with the first of them, under the lanes of all the partitions. For
// n = 0 it calls enqueue with the stamp that would be next: such an entry
// takes no place in the order of revisions, only in its logs.
//
// enqueue appends the entry to the queue of each partition and must not block.
func (s *Sequencer) Reserve(parts placement.Set, n int, enqueue func(epoch uint64, stamp int64)) error {
	return s.ReserveIn(0, parts, n, enqueue)
}

// ReserveIn is Reserve in one epoch, and ErrClosed in another; 0 is any.
func (s *Sequencer) ReserveIn(in uint64, parts placement.Set, n int, enqueue func(epoch uint64, stamp int64)) error {
	for p := range parts.Each() {
		s.lanes[p].mu.Lock()
		defer s.lanes[p].mu.Unlock()
	}
	epoch := s.epoch.Load()
	if epoch == 0 || in != 0 && in != epoch {
		return ErrClosed
	}
	if n == 0 {
		enqueue(epoch, s.last.Load()+1)
		return nil
	}
	// The floor is published before the counter moves. A reader loads C first
	// and the floor second; C can only have reached our stamp after the counter
	// did, so such a reader sees the floor.
	for p := range parts.Each() {
		if l := &s.lanes[p]; len(l.outstanding) == 0 {
			l.floor.Store(s.last.Load() + 1)
		}
	}
	last := s.last.Add(int64(n))
	first := last - int64(n) + 1
	if s.moved != nil {
		s.moved()
	}
	for p := range parts.Each() {
		l := &s.lanes[p]
		if len(l.outstanding) == 0 {
			l.floor.Store(first)
		}
		l.outstanding = append(l.outstanding, span{first, last})
	}
	enqueue(epoch, first)
	return nil
}

// Queue runs fn under the lane of partition p: how the owner of the queue
// takes out what Reserve's enqueue put in.
func (s *Sequencer) Queue(p int, fn func()) {
	l := &s.lanes[p]
	l.mu.Lock()
	defer l.mu.Unlock()
	fn()
}

// Applied says that partition p has applied everything stamped <= stamp. The
// caller has made the effects readable before.
func (s *Sequencer) Applied(p int, stamp int64) {
	l := &s.lanes[p]
	l.mu.Lock()
	defer l.mu.Unlock()
	done := 0
	for done < len(l.outstanding) && l.outstanding[done].last <= stamp {
		done++
	}
	if done == 0 {
		return
	}
	l.outstanding = l.outstanding[done:]
	if len(l.outstanding) == 0 {
		l.outstanding = nil
		l.floor.Store(nothing)
		return
	}
	l.floor.Store(l.outstanding[0].first)
}

// Closed returns the closed revision of partition p, and false outside an
// epoch.
func (s *Sequencer) Closed(p int) (revision int64, ok bool) {
	epoch := s.epoch.Load()
	c := s.committed.Load() // before the floor, see Reserve
	floor := s.lanes[p].floor.Load()
	// Floors don't move between epochs, but C does, with what a new leader
	// commits: the figures belong together only if the epoch still lasts.
	if epoch == 0 || s.epoch.Load() != epoch {
		return 0, false
	}
	return min(c, floor-1), true
}

// Last returns the highest stamp given out.
func (s *Sequencer) Last() int64 { return s.last.Load() }

// Floor is at or below the oldest stamp of partition p that was reserved and
// is not applied.
func (s *Sequencer) Floor(p int) int64 { return s.lanes[p].floor.Load() }

package raftlog

import pb "go.etcd.io/raft/v3/raftpb"

// Tail bounds the applied entries that a log keeps for lagging followers.
type Tail struct {
	// Entries, at least one, and Bytes bound the entries kept although no
	// follower is known to need them.
	Entries uint64
	Bytes   int64
	// Needed, unless it is 0, is the first entry that a follower is known to
	// need. It and its successors stay, as long as the log costs no more than
	// Held bytes.
	Needed uint64
	Held   int64
	// Far, unless it is 0, is the last entry of which there are records far back in the write-ahead log, which would keep all
	// behind them. Entries up to it stay for nobody but those of whom Needed speaks, and but for the last that is applied.
	Far uint64
	// Common is the last entry that this group has executed together with all others. What follows
	// it stays, whatever it costs: for servers each of which is ahead of the other in some group
	// (package node, install.go).
	Common uint64
}

// Shorten compacts the entries that exceed the tail's bounds, and returns the
// index of the last one removed, and whether Common alone has kept others. Entries that have not been applied stay, and
// so does the last applied one. The write-ahead log is shortened separately,
// by wal.Release.
func (l *Log) Shorten(t Tail) (index uint64, held bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	index = l.excess(t.Bytes)
	if l.applied.Index > t.Entries {
		index = max(index, min(l.applied.Index-t.Entries, l.last()))
	}
	if l.applied.Index > 1 {
		index = max(index, min(t.Far, l.applied.Index-1, l.last()))
	}
	if t.Needed > 0 {
		index = min(index, max(t.Needed-1, l.excess(t.Held)))
	}
	held = index > max(t.Common, l.base.Index)
	l.compactTo(min(index, t.Common))
	return l.base.Index, held
}

// excess is the index up to which the log must be compacted for the remainder
// to take at most limit bytes.
func (l *Log) excess(most int64) uint64 {
	index, left := l.base.Index, l.bytes
	for index+1 < min(l.applied.Index, l.last()+1) && left > most {
		left -= cost(l.ents[index-l.base.Index])
		index++
	}
	return index
}

// compactTo removes entries up to index from memory. It copies the remaining
// ones: readers may hold the old array, and an array that is only sliced
// would keep every entry alive.
func (l *Log) compactTo(index uint64) {
	if index <= l.base.Index {
		return
	}
	gone := l.ents[:index-l.base.Index]
	for _, e := range gone {
		l.bytes -= cost(e)
	}
	l.base = Position{index, gone[len(gone)-1].GetTerm()}
	l.ents = append([]*pb.Entry(nil), l.ents[len(gone):]...)
}

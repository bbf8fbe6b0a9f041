package raftlog

import pb "go.etcd.io/raft/v3/raftpb"

// Tail says what a log keeps of what is applied, for followers that lag.
type Tail struct {
	// Entries, at least one, and Bytes bound what is kept for whoever may come.
	Entries uint64
	Bytes   int64
	// Needed, unless it is 0, is the first entry that somebody is known to need. What
	// follows it stays, as long as the log costs no more than Held bytes.
	Needed uint64
	Held   int64
}

// Shorten takes out of memory what the tail has no room for, and returns the index
// of the entry before those that it has left. What has not been applied stays, and
// so does the last entry that has. The write-ahead log is shortened separately, by
// wal.Release.
func (l *Log) Shorten(t Tail) uint64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	index := l.excess(t.Bytes)
	if l.applied.Index > t.Entries {
		index = max(index, min(l.applied.Index-t.Entries, l.last()))
	}
	if t.Needed > 0 {
		index = min(index, max(t.Needed-1, l.excess(t.Held)))
	}
	l.compactTo(index)
	return l.base.Index
}

// excess is how far the log would have to go for the rest to cost no more than some
// bytes.
func (l *Log) excess(most int64) uint64 {
	index, left := l.base.Index, l.bytes
	for index+1 < min(l.applied.Index, l.last()+1) && left > most {
		left -= cost(l.ents[index-l.base.Index])
		index++
	}
	return index
}

// compactTo takes entries up to index out of memory. It copies what stays: readers
// may hold the old array, and an array that is only sliced would keep every entry
// alive.
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

package store

import "sort"

// changeLog is the newest part of history, in memory: all changes not yet
// in History, and before these a window for watchers that lag slightly. It grows
// in chunks, so that neither an append nor a cut ever copies it.
type changeLog struct {
	chunks []*chunk
	base   position // of chunks[0]
	next   position // of the change to be appended next

	// floor is the newest change that is no longer here. Everything above it is
	// here; everything up to it is in History.
	floor Revision
	last  Revision
	bytes int // of the key-values in all chunks
}

const chunkChanges = 64

// Every chunk but the last is full.
type chunk struct {
	n     int
	bytes int
	items [chunkChanges]Change
}

// position is the number of changes ever appended before a place in the log.
type position int64

func (l *changeLog) append(c Change) {
	if l.next%chunkChanges == 0 {
		l.chunks = append(l.chunks, &chunk{})
	}
	tail := l.chunks[len(l.chunks)-1]
	tail.items[tail.n] = c
	tail.n++
	size := c.Kv.Len()
	tail.bytes += size
	l.bytes += size
	l.next++
	l.last = c.Revision
}

// since returns a position's part of the log as whole chunks, of which the
// first has skip changes too many at its front. Later appends don't touch the
// returned chunks, if they are read only up to the position that was the end.
func (l *changeLog) since(p position) (chunks []*chunk, skip int) {
	p = max(p, l.base)
	i := int(p-l.base) / chunkChanges
	return l.chunks[i:len(l.chunks):len(l.chunks)], int(p-l.base) % chunkChanges
}

// trim forgets whole chunks from the front while more than window bytes or
// chunks are held, but nothing at or behind the position keep.
func (l *changeLog) trim(keep position, windowBytes, windowChunks int) {
	n := 0
	for n < len(l.chunks) && l.base+chunkChanges <= keep && (l.bytes > windowBytes || len(l.chunks)-n > windowChunks) {
		c := l.chunks[n]
		l.floor = c.items[c.n-1].Revision
		l.bytes -= c.bytes
		l.base += chunkChanges
		n++
	}
	if n > 0 {
		// A fresh array: reslicing would keep the dropped chunks reachable.
		l.chunks = append(make([]*chunk, 0, 2*(len(l.chunks)-n)), l.chunks[n:]...)
	}
}

// from returns the chunk number and offset of the first change at or above rev.
func (l *changeLog) from(rev Revision) (int, int) {
	i := sort.Search(len(l.chunks), func(i int) bool {
		c := l.chunks[i]
		return !c.items[c.n-1].Revision.Less(rev)
	})
	if i == len(l.chunks) {
		return i, 0
	}
	c := l.chunks[i]
	return i, sort.Search(c.n, func(j int) bool { return !c.items[j].Revision.Less(rev) })
}

// change returns the change at rev, or nil if it is not in the log.
func (l *changeLog) change(rev Revision) *Change {
	if !l.floor.Less(rev) {
		return nil
	}
	i, j := l.from(rev)
	if i == len(l.chunks) || l.chunks[i].items[j].Revision != rev {
		return nil
	}
	return &l.chunks[i].items[j]
}

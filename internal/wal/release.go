package wal

import (
	"fmt"

	"go.uber.org/zap"
)

// Release deletes old segments in which no record is needed: of group g,
// those with an index of at least keep[g] are, and none of a group that
// isn't in keep. Only a prefix of the log goes, so a segment that
// is not needed stays behind one that is.
func (w *WAL) Release(keep map[uint32]uint64) error {
	w.releasing.Lock()
	defer w.releasing.Unlock()
	if err := w.failed(); err != nil {
		return err
	}
	for {
		s := w.firstIfFree(keep)
		if s == nil {
			return nil
		}
		if err := w.o.FS.Remove(s.path); err != nil {
			return fmt.Errorf("removing log segment %s: %w", s.path, err)
		}
		// One sync for each: of several unsynced removals a crash may undo the
		// first and not the second, which would look like a lost segment.
		if err := w.o.FS.SyncDir(w.o.Dir); err != nil {
			return w.fail(fmt.Errorf("removing log segment %s: %w", s.path, err))
		}
		w.mu.Lock()
		w.segments = w.segments[1:]
		w.mu.Unlock()
		w.log.Debug("removed a log segment", zap.String("file", s.path))
	}
}

// Behind returns, by group, the highest indexes in the segments behind which the log has at least so many bytes. It is
// nil if there are none.
func (w *WAL) Behind(bytes int64) (highest map[uint32]uint64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	n := len(w.segments)
	for n > 0 && bytes > 0 {
		n--
		bytes -= w.segments[n].end
	}
	for _, s := range w.segments[:n] {
		for group, index := range s.last {
			if highest == nil {
				highest = map[uint32]uint64{}
			}
			highest[group] = max(highest[group], index)
		}
	}
	return highest
}

func (w *WAL) firstIfFree(keep map[uint32]uint64) *segment {
	w.mu.Lock()
	defer w.mu.Unlock()
	first := w.segments[0]
	if len(w.segments) == 1 {
		return nil
	}
	for group, last := range first.last {
		if needed, is := keep[group]; is && last >= needed {
			return nil
		}
	}
	return first
}

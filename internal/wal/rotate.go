package wal

import (
	"fmt"

	"go.uber.org/zap"
)

// SetHead replaces Options.Head, for groups other than those with which the log was opened. It must
// not be called during an Append.
func (w *WAL) SetHead(head func() []Record) { w.o.Head = head }

// rotate begins a new segment with room for a frame of need bytes. Recovery
// relies on the order: everything before is durable before the new segment
// gets its name (so damage in a segment with a successor is never a torn
// tail), and the old segment is sealed after (so a seal without a successor
// is never a crash).
func (w *WAL) rotate(need int64) (*segment, error) {
	old := w.tail()
	if err := w.Sync(); err != nil {
		return nil, err
	}
	head := make([]byte, frameHeadBytes)
	var recs []Record
	if w.o.Head != nil {
		recs = w.o.Head()
	}
	for i := range recs {
		head = appendRecord(head, &recs[i])
	}
	h := segmentHead{
		number:    old.number + 1,
		prevEnd:   old.end,
		prevChain: w.chain,
		metadata:  w.o.Metadata,
	}
	h.size = segmentSize(w.o.SegmentBytes, h.metadata, align(int64(len(head)))+need)
	chain := uint32(0)
	s, f, err := createSegment(w.o.FS, w.o.Dir, h, func(seed uint32, at int64) []byte {
		chain = seed
		if len(recs) > 0 {
			head, chain = finishFrame(head, frameRecords, seed, seed, at)
			return head
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	for i := range recs {
		s.note(&recs[i])
	}
	if err := w.seal(old); err != nil {
		return nil, err
	}
	w.log.Debug("created a log segment", zap.String("file", s.path), zap.Int64("bytes", s.size))
	w.file, w.chain = f, chain
	w.setDurable(s)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.segments = append(w.segments, s)
	return s, nil
}

// seal marks for a later Open that old has a successor. Records leave room
// for it.
func (w *WAL) seal(old *segment) error {
	b, _ := finishFrame(make([]byte, frameHeadBytes), frameSeal, old.seed, w.chain, w.durable)
	if _, err := w.file.WriteAt(b, old.end); err != nil {
		return fmt.Errorf("sealing %s at offset %d: %w", old.path, old.end, err)
	}
	if err := w.file.Sync(); err != nil {
		return fmt.Errorf("sealing %s: %w", old.path, err)
	}
	return w.file.Close()
}

// segmentSize is the usual size, or what it takes to hold frames of need
// bytes and a seal.
func segmentSize(usual int64, metadata []byte, need int64) int64 {
	return max(usual, segmentHeadBytes(len(metadata))+need+frameHeadBytes)
}

package backend

import (
	"fmt"

	"github.com/stoa-kv/stoa/internal/store"
)

// Flush makes a cut durable, all of it or nothing. After an error the state of
// the file is unknown and the server must stop (I5).
func (b *Backend) Flush(c *Cut) error {
	if len(c.Partitions) != b.id.Partitions {
		return fmt.Errorf("flush to %s: cut of %d partitions, the file has %d", b.path, len(c.Partitions), b.id.Partitions)
	}
	err := b.eng.update(func(w writer) error {
		if err := writeChanges(w, c.Partitions); err != nil {
			return err
		}
		if err := writePartitions(w, c.Partitions); err != nil {
			return err
		}
		if (c.System.Log != LogPlace{}) {
			if err := writeLog(w, b.id.Server, c.System.Log); err != nil {
				return err
			}
		}
		if err := writeSystem(w, &c.System); err != nil {
			return err
		}
		return writeSums(w, c.Partitions)
	})
	if err != nil {
		return fmt.Errorf("flush to %s: %w", b.path, err)
	}
	return nil
}

// writeChanges writes all partitions' changes in one order of revision, so that
// bbolt fills its last pages one after the other.
func writeChanges(w writer, parts []store.Cut) error {
	key := make([]byte, 0, revLen+1)
	for c := range merged(parts) {
		key = appendRev(key[:0], c.Revision, c.Delete)
		// bbolt refers to the store's own bytes until it commits.
		if err := w.put(bucketKey, key, c.Kv.Wire()); err != nil {
			return fmt.Errorf("change %d.%d of key %q: %w", c.Main, c.Sub, c.Kv.Key(), err)
		}
	}
	for i := range parts {
		for _, d := range parts[i].Dead {
			key = appendRev(key[:0], d.Revision, d.Tombstone)
			if err := w.remove(bucketKey, key); err != nil {
				return fmt.Errorf("remove revision %d.%d: %w", d.Main, d.Sub, err)
			}
		}
	}
	return nil
}

// writePartitions writes the positions of the partitions and of the
// compaction.
func writePartitions(w writer, parts []store.Cut) error {
	compacted, swept := int64(-1), int64(1<<62)
	for i := range parts {
		p := &parts[i]
		if err := writePosition(w, i, Position{p.Index, p.Term, p.Rev}); err != nil {
			return fmt.Errorf("position of partition %d: %w", i, err)
		}
		compacted, swept = max(compacted, p.Compacted), min(swept, p.Swept)
	}
	// etcd has one log; its consistent_index is the first group's position.
	if len(parts) > 0 && parts[0].Index > 0 {
		if err := w.put(bucketMeta, metaIndex, be64(parts[0].Index)); err != nil {
			return err
		}
		if err := w.put(bucketMeta, metaTerm, be64(parts[0].Term)); err != nil {
			return err
		}
	}
	if compacted >= 0 && compacted != readCompaction(w, metaScheduled) {
		if err := w.put(bucketMeta, metaScheduled, appendRev(nil, store.Revision{Main: compacted}, false)); err != nil {
			return err
		}
	}
	// A compaction is finished once every partition's compacted revisions are
	// out of the file.
	if swept >= 0 && swept != readCompaction(w, metaFinished) {
		return w.put(bucketMeta, metaFinished, appendRev(nil, store.Revision{Main: swept}, false))
	}
	return nil
}

// merged yields the changes of all partitions in order of revision.
func merged(parts []store.Cut) func(yield func(*store.Change) bool) {
	return func(yield func(*store.Change) bool) {
		type source struct {
			next func() (*store.Change, bool)
			head *store.Change
		}
		if len(parts) == 1 {
			parts[0].Changes()(yield)
			return
		}
		var sources []source
		for i := range parts {
			if parts[i].Len() == 0 {
				continue
			}
			next := parts[i].Cursor()
			head, _ := next()
			sources = append(sources, source{next, head})
		}
		for len(sources) > 0 {
			least := 0
			for i := range sources {
				if sources[i].head.Less(sources[least].head.Revision) {
					least = i
				}
			}
			s := &sources[least]
			if !yield(s.head) {
				return
			}
			head, ok := s.next()
			if s.head = head; !ok {
				sources = append(sources[:least], sources[least+1:]...)
			}
		}
	}
}

package backend

import (
	"bytes"
	"fmt"
)

// Resized is what another number of partitions changes in a file.
type Resized struct {
	Partitions int
	Positions  []Position        // of each of them
	Blobs      map[string][]byte // a nil one is removed
}

// Resize gives the file another number of partitions, in one transaction. Keys are not stored by
// partition, so none is touched.
func (b *Backend) Resize(to Resized) error {
	err := b.eng.update(func(w writer) error {
		sums := bytes.Clone(w.get(bucketStoa, stoaSums))
		sums, summed := bytes.CutPrefix(sums, sumsHead(w, b.id.Partitions))
		if err := w.put(bucketStoa, stoaPartitions, be64(uint64(to.Partitions))); err != nil {
			return err
		}
		for p := to.Partitions; p < b.id.Partitions; p++ {
			if err := w.remove(bucketStoa, stoaPosition(p)); err != nil {
				return err
			}
		}
		for p, at := range to.Positions {
			if err := writePosition(w, p, at); err != nil {
				return fmt.Errorf("position of partition %d: %w", p, err)
			}
		}
		if summed { // the keys are the same
			if err := w.put(bucketStoa, stoaSums, append(sumsHead(w, to.Partitions), sums...)); err != nil {
				return err
			}
		}
		return writeSystem(w, &System{Blobs: to.Blobs})
	})
	if err != nil {
		return fmt.Errorf("resize %s to %d partitions: %w", b.path, to.Partitions, err)
	}
	b.id.Partitions = to.Partitions
	return nil
}

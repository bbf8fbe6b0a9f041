package backend

import (
	"fmt"
	"io"
)

// rewriter is a file whose content may be newer than what is on the disk.
type rewriter interface {
	io.ReaderAt
	io.WriterAt
	Sync() error
}

// settle makes the state that a file shows durable. bbolt syncs a state's pages before it
// writes the header that leads to them; but if the server was killed, or the sync failed,
// after that, the header may be in the page cache only, though marked as written (Rebello et
// al., "Can Applications Recover from fsync Failures?", ATC '20). The next flush would reuse
// pages of the state before, and a power failure in it would leave the disk with the header
// of that state and without its pages. So the header is written again: it has a checksum,
// and one that is torn is the same.
func settle(f rewriter) error {
	c := checker{file: f}
	m, err := c.newestMeta()
	if err != nil {
		return fmt.Errorf("%w: %w", ErrDamaged, err)
	}
	offset := int64(m.txid%2) * int64(m.pageSize)
	var b [pageHeader + metaSize]byte
	if _, err := f.ReadAt(b[:], offset); err != nil {
		return fmt.Errorf("reading its header at offset %d: %w", offset, err)
	}
	if _, err := f.WriteAt(b[:], offset); err != nil {
		return fmt.Errorf("writing its header again at offset %d: %w", offset, err)
	}
	if err := f.Sync(); err != nil {
		return fmt.Errorf("syncing its header: %w", err)
	}
	return nil
}

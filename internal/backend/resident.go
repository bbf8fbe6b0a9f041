package backend

import (
	"golang.org/x/sys/unix"

	"go.uber.org/zap"
)

// forgetEvery is after how many transactions the file is forgotten: flushes and the scrubber make
// some twenty a second.
const forgetEvery = 64

// used counts a transaction.
func (f *file) used() {
	if f.uses.Add(1)%forgetEvery == 0 {
		f.forget()
	}
}

// forget takes the mapped file out of the process's memory. All current values are in memory
// anyway, so its pages are seldom read twice; but the scrubber reads all of them, a flush reads
// those around the places that it changes, the kernel maps the neighbours along, and in time the
// whole file would be resident beside its values. What is read again comes from the kernel's
// cache, at the price of a page fault.
func (f *file) forget() {
	tx, err := f.begin() // while it is open, the mapping doesn't move
	if err != nil {
		return
	}
	defer tx.Rollback() //nolint:errcheck // it has only read
	_, _, errno := unix.Syscall(unix.SYS_MADVISE, tx.DB().Info().Data, uintptr(tx.Size()), unix.MADV_DONTNEED)
	if errno != 0 {
		f.lg.Warn("could not release the memory of the mapped file", zap.String("path", f.path), zap.Error(errno))
	}
}

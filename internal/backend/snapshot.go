package backend

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"
)

// Snapshot is one consistent state of the file, readable while flushes go on.
// Pages that it sees can't be used again before Close.
type Snapshot struct {
	Size      int64 // bytes that WriteTo writes
	Positions []Position

	eng engineSnapshot
}

// Snapshot opens a snapshot of the last flushed state.
func (b *Backend) Snapshot() (*Snapshot, error) {
	eng, err := b.eng.snapshot()
	if err != nil {
		return nil, err
	}
	ps, err := readPositions(eng.reader(), b.id.Partitions)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("snapshot of %s: %w", b.path, err), eng.close())
	}
	return &Snapshot{Size: eng.size(), Positions: ps, eng: eng}, nil
}

// WriteTo writes a file that Install, Open and etcd can read (or, of a backend
// in memory, what ReadMem can).
func (s *Snapshot) WriteTo(w io.Writer) (int64, error) { return s.eng.WriteTo(w) }

// A backup pauses after each piece, in bytes, backupPauses times as long as
// that took, up to longestBackupPause: much of the time may be the reader's,
// and a slow reader should not be made slower.
const (
	backupPiece        = 512 << 10
	backupPauses       = 2
	longestBackupPause = 5 * time.Millisecond
)

// Backup is WriteTo at a lower priority: it pauses between pieces while busy
// reports other requests.
func (s *Snapshot) Backup(w io.Writer, busy func() bool) (int64, error) {
	return s.WriteTo(&pausingWriter{Writer: w, busy: busy, pace: begin(backupPauses, longestBackupPause)})
}

// pausingWriter pauses between the pieces written, while busy returns true.
type pausingWriter struct {
	io.Writer
	busy func() bool
	pace *pace
	size int // bytes of the present piece
}

func (p *pausingWriter) Write(b []byte) (int, error) {
	if p.size >= backupPiece {
		p.size = 0
		if p.busy() {
			p.pace.pause()
		} else {
			p.pace.restart()
		}
	}
	p.size += len(b)
	return p.Writer.Write(b)
}

// Close releases the pages.
func (s *Snapshot) Close() error { return s.eng.close() }

// Install replaces the file at path by a received snapshot: written beside it,
// synced, checked, renamed. A crash leaves the old file or the new one. No
// backend may have the file open.
func Install(path string, r io.Reader) error {
	tmp := path + ".received"
	err := receive(tmp, r)
	if err == nil {
		err = check(tmp)
	}
	if err == nil {
		err = os.Rename(tmp, path)
	}
	if err == nil {
		return syncDir(filepath.Dir(path))
	}
	os.Remove(tmp) //nolint:errcheck // the next one writes over it
	return fmt.Errorf("install snapshot as %s: %w", path, err)
}

func receive(path string, r io.Reader) error {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	_, err = io.Copy(f, r)
	if err == nil {
		err = f.Sync()
	}
	return errors.Join(err, f.Close())
}

// ReadMem returns a new backend in memory with a snapshot of another one: the
// simulation's Install.
func ReadMem(id Identity, r io.Reader) (*Backend, error) {
	raw, err := io.ReadAll(r)
	if err != nil {
		return nil, fmt.Errorf("read snapshot: %w", err)
	}
	t, err := decodeMem(raw)
	if err != nil {
		return nil, err
	}
	b := &Backend{eng: &mem{data: t}, path: "memory"}
	if err := b.identify(id); err != nil {
		return nil, fmt.Errorf("install snapshot: %w", err)
	}
	return b, nil
}

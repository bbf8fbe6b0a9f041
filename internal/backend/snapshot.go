package backend

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"time"
)

// Snapshot is one consistent state of the file, readable while flushes go on.
// Pages that it sees can't be used again before Close.
type Snapshot struct {
	Size      int64 // bytes that WriteTo writes
	Positions []Position

	eng  engineSnapshot
	own  engine // that has to be closed with it; see Past
	then func() // see Then; nil: nothing
}

// Snapshot opens a snapshot of the last flushed state.
func (b *Backend) Snapshot() (*Snapshot, error) { return openSnapshot(b.eng, b.path) }

func openSnapshot(of engine, path string) (*Snapshot, error) {
	eng, err := of.snapshot()
	if err != nil {
		return nil, err
	}
	// The number of partitions is the snapshot's own: Resize may change that of the file.
	id, err := readIdentity(eng.reader())
	var ps []Position
	if err == nil {
		ps, err = readPositions(eng.reader(), id.Partitions)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("snapshot of %s: %w", path, err), eng.close())
	}
	return &Snapshot{Size: eng.size(), Positions: ps, eng: eng}, nil
}

// WriteTo writes a file that Install, Open and etcd can read (or, of a backend
// in memory, what ReadMem can).
func (s *Snapshot) WriteTo(w io.Writer) (int64, error) { return s.eng.WriteTo(w) }

// A throttle pauses after each piece, in bytes, times as long as that took, up to longest:
// much of the time may be the reader's, and a slow reader should not be made slower.
type throttle struct {
	piece   int
	times   int
	longest time.Duration
}

var (
	forClient = throttle{512 << 10, 2, 5 * time.Millisecond}
	// Another server writes and syncs what it gets, perhaps on the same machine.
	forServer = throttle{256 << 10, 6, 8 * time.Millisecond}
)

// Backup is WriteTo at a lower priority, for a client: it pauses between pieces while busy
// reports other requests.
func (s *Snapshot) Backup(w io.Writer, busy func() bool) (int64, error) {
	return s.pausing(w, busy, forClient)
}

// Transfer is Backup for another server, which pauses longer.
func (s *Snapshot) Transfer(w io.Writer, busy func() bool) (int64, error) {
	return s.pausing(w, busy, forServer)
}

func (s *Snapshot) pausing(w io.Writer, busy func() bool, t throttle) (int64, error) {
	return s.WriteTo(&pausingWriter{Writer: w, busy: busy, piece: t.piece, pace: begin(t.times, t.longest)})
}

// pausingWriter pauses between the pieces written, while busy returns true.
type pausingWriter struct {
	io.Writer
	busy  func() bool
	pace  *pace
	piece int
	size  int // bytes of the present piece
}

func (p *pausingWriter) Write(b []byte) (int, error) {
	if p.size >= p.piece {
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

// Then has a function called once the snapshot is closed.
func (s *Snapshot) Then(closed func()) { s.then = closed }

// Close releases the pages.
func (s *Snapshot) Close() error {
	err := s.eng.close()
	if s.own != nil {
		err = errors.Join(err, s.own.close())
	}
	if s.then != nil {
		s.then()
	}
	return err
}

// syncPiece is how much of a snapshot is written between two syncs, in bytes. One sync
// of the whole would hold up those of the log, which are on the same disk.
const syncPiece = 4 << 20

// The check of a received file pauses less than its sender: it doesn't know whether there
// are writes, or whether they wait for this server.
const (
	checkPauses       = 2
	longestCheckPause = 2 * time.Millisecond
)

// Receive stores a snapshot beside the file at path, for Install: synced, and checked before that costs the sound file
// which may be there. This may be in use. The identity is that of the server.
func Receive(path string, id Identity, r io.Reader) error {
	tmp := received(path)
	err := write(tmp, r)
	if err == nil {
		err = checkPaced(tmp, begin(checkPauses, longestCheckPause))
	}
	if err == nil {
		err = checkContent(tmp, id)
	}
	if err == nil {
		return nil
	}
	return fmt.Errorf("receive snapshot for %s: %w", path, errors.Join(err, Discard(path)))
}

// checkContent checks what a file says of itself, and its keys by its sums.
func checkContent(path string, id Identity) error {
	b, err := Open(path, Options{ReadOnly: true, Checked: true})
	if err != nil {
		return err
	}
	err = accept(b.id, id)
	if err == nil {
		_, err = b.Meta()
	}
	if err == nil {
		err = b.eng.view(func(r reader) error {
			never := func() bool { return false }
			return checkOwnSums(&pausingReader{r, never, begin(checkPauses, longestCheckPause)}, b.id.Partitions)
		})
	}
	return errors.Join(err, b.Close())
}

// Install replaces the file at path by the snapshot that was received for it. A crash
// leaves the old file or the new one. No backend may have the file open.
func Install(path string) error {
	if err := os.Rename(received(path), path); err != nil {
		return fmt.Errorf("install snapshot: %w", err)
	}
	return syncDir(filepath.Dir(path))
}

// Discard removes a snapshot that was received for the file at path, if there is one.
func Discard(path string) error {
	if err := os.Remove(received(path)); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

func received(path string) string { return path + arrived }

func write(path string, r io.Reader) error {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	return errors.Join(copySynced(f, r), f.Close())
}

func copySynced(f *os.File, r io.Reader) error {
	for {
		_, err := io.CopyN(f, r, syncPiece)
		if err != nil && err != io.EOF {
			return err
		}
		last := err == io.EOF
		if err := f.Sync(); err != nil || last {
			return err
		}
	}
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

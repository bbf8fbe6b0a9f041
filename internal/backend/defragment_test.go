package backend_test

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/stoa-kv/stoa/internal/backend"
)

// defragmented is a file that is defragmented beside everything else that happens to it.
type defragmented struct {
	t    *testing.T
	rng  *rand.Rand
	path string
	s    *server
	done chan error                   // of the defragmentation that is under way; nil: none is
	open map[*backend.Snapshot]string // snapshots, and what they have to have
}

// A file is defragmented at any time, also while it is flushed, read, compared with the stores and backed up, and is
// closed or copied in the midst of that. It always holds what was flushed, and a backup what was flushed when it began.
func TestDefragmentationBesideAllElse(t *testing.T) {
	for seed := range uint64(4) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			d := &defragmented{
				t: t, rng: rand.New(rand.NewPCG(seed, 0)), path: filepath.Join(t.TempDir(), "db"), open: map[*backend.Snapshot]string{},
			}
			d.start()
			steps := []func(){
				d.write, d.write, d.compact, d.defragment, d.join, d.snapshot, d.backUp, d.restart,
				func() { require.NoError(t, d.s.compare()) },
				func() { require.Equal(t, dump(t, d.s.be), d.copied()) },
			}
			for range 40 {
				steps[d.rng.IntN(len(steps))]()
			}
			d.restart()
			require.NoError(t, d.s.be.Close())
		})
	}
}

func (d *defragmented) start() {
	be, err := backend.Open(d.path, backend.Options{Identity: identity, NoSync: true})
	require.NoError(d.t, err)
	d.s = newServer(be)
	require.NoError(d.t, be.Load(d.s.stores, benchRoute(2), nil))
	d.s.rev = max(1, d.s.stores[0].Rev(), d.s.stores[1].Rev())
}

// write writes and removes keys, some of them large, and flushes them, which waits for a defragmentation.
func (d *defragmented) write() {
	for range 1 + d.rng.IntN(20) {
		key := fmt.Sprintf("key-%02d", d.rng.IntN(40))
		if kv := d.s.of(key).Get([]byte(key)); kv.Exists() && d.rng.IntN(3) == 0 {
			d.s.remove(key)
		} else {
			d.s.put(key, strings.Repeat("x", []int{1, 100, 3 * page}[d.rng.IntN(3)]))
		}
	}
	flush(d.t, d.s.be, d.s.stores)
}

func (d *defragmented) compact() {
	d.s.compact(d.rng.Int64N(d.s.rev + 1))
	flush(d.t, d.s.be, d.s.stores)
}

// defragment begins to, over what one that was killed may have left.
func (d *defragmented) defragment() {
	d.join()
	if d.rng.IntN(2) == 0 {
		require.NoError(d.t, os.WriteFile(d.path+".defrag", make([]byte, 5*page), 0o600))
	}
	be, done := d.s.be, make(chan error, 1)
	d.done = done
	go func() { done <- be.Defragment() }()
}

func (d *defragmented) join() {
	if d.done != nil {
		require.NoError(d.t, <-d.done)
		d.done = nil
	}
}

func (d *defragmented) snapshot() {
	if len(d.open) < 3 {
		s, err := d.s.be.Snapshot()
		require.NoError(d.t, err)
		d.open[s] = dump(d.t, d.s.be)
	}
}

// backUp writes the snapshots that are open, whichever files they are of by now.
func (d *defragmented) backUp() {
	for s, want := range d.open {
		var b bytes.Buffer
		size, err := s.WriteTo(&b)
		require.NoError(d.t, err)
		require.Equal(d.t, s.Size, size)
		require.NoError(d.t, s.Close())
		got := d.read(b.Bytes())
		require.Equal(d.t, want, got)
		delete(d.open, s)
	}
}

// copied is what the file has for who opens it after a kill at this moment.
func (d *defragmented) copied() string {
	raw, err := os.ReadFile(d.path)
	require.NoError(d.t, err)
	return d.read(raw)
}

// read is what a file with these bytes has.
func (d *defragmented) read(raw []byte) string {
	path := d.path + ".read"
	require.NoError(d.t, os.WriteFile(path, raw, 0o600))
	be, err := backend.Open(path, backend.Options{ReadOnly: true, NoSync: true})
	require.NoError(d.t, err)
	defer be.Close()
	return dump(d.t, be)
}

// restart closes the file, which waits for a defragmentation, and opens it.
func (d *defragmented) restart() {
	want := dump(d.t, d.s.be)
	d.backUp() // close would wait for them
	require.NoError(d.t, d.s.be.Close())
	if d.done != nil {
		<-d.done // it may have come too late
		d.done = nil
	}
	d.start()
	require.Equal(d.t, want, dump(d.t, d.s.be))
}

// What is in the way of the copy is told, and the file goes on as it was.
func TestADefragmentationThatFails(t *testing.T) {
	path := filepath.Join(t.TempDir(), "db")
	s := newServer(open(t, path))
	s.fill(t, 100)
	require.NoError(t, os.MkdirAll(path+".defrag/full", 0o700))
	require.ErrorContains(t, s.be.Defragment(), path)
	s.fill(t, 110)
	want := dump(t, s.be)
	require.NoError(t, os.RemoveAll(path+".defrag"))
	require.NoError(t, s.be.Defragment())
	require.Equal(t, want, dump(t, s.be))
}

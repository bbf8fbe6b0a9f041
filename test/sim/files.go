package sim

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"reflect"
	"time"

	"github.com/stoa-kv/stoa/internal/backend"
)

// In some of the runs with some of all, servers have real files (bbolt) in the place of trees in memory, in a directory of the
// run's own. The files are defragmented at any time. Until a defragmentation ends, flushes and what would
// replace the file wait for it, snapshots that are open are read, and a crash leaves a part of the copy.

// files are where the servers' files are.
type files struct{ dir string }

// hasFiles draws whether a run has files, from a source of its own: so other runs are what they would be without it.
func (o *Options) hasFiles() bool {
	return o.Files || o.Swarm && o.script == nil && rand.New(rand.NewPCG(o.Seed, 0xf11e)).IntN(6) == 0
}

func newFiles(c *cluster) *files {
	dir, err := os.MkdirTemp("", "sim-files-")
	if err != nil {
		panic(err)
	}
	return &files{dir}
}

// removeFiles is called when the run is over.
func (c *cluster) removeFiles() {
	if c.files == nil {
		return
	}
	if c.saver != nil {
		c.saver.close()
	}
	for _, s := range c.servers {
		if s.life != nil {
			s.life.closeSnapshots()
		}
		_ = s.file.Close()
	}
	_ = os.RemoveAll(c.files.dir)
}

// fileOptions: that nothing is synced makes no difference, as no run ends the machine on which it runs.
func fileOptions(id backend.Identity) backend.Options {
	return backend.Options{Identity: id, Quota: 1 << 20, NoSync: true}
}

// path is that of the server's file, "" if that is in memory.
func (s *server) path() string {
	if s.c.files == nil {
		return ""
	}
	return filepath.Join(s.c.files.dir, fmt.Sprint(s.id))
}

// makeFile makes the file of a new server.
func (s *server) makeFile() {
	if s.path() == "" {
		s.file = backend.NewMem(s.identity())
		return
	}
	var err error
	if s.file, err = backend.Open(s.path(), fileOptions(s.identity())); err != nil {
		panic(err)
	}
}

// leaveFile is the end of the process that had the file open. The next one opens it, beside what this one has left.
func (l *life) leaveFile() {
	s := l.sv
	if s.path() == "" {
		return
	}
	l.closeSnapshots()
	err := s.file.Close()
	if err == nil && l.core.rewrites {
		err = s.leaveRest()
	}
	if err == nil {
		err = backend.RemoveRests(s.path())
	}
	if err == nil {
		s.file, err = backend.Open(s.path(), fileOptions(s.identity().Any()))
	}
	if err != nil {
		s.c.fail("restart", "server %d can't open its file: %v", s.id, err)
	}
}

// leaveRest leaves a part of the copy that a defragmentation was making.
func (s *server) leaveRest() error {
	raw, err := os.ReadFile(s.path())
	if err != nil {
		return err
	}
	return os.WriteFile(s.path()+".defrag", raw[:s.c.loop.rng.IntN(len(raw))], 0o600)
}

// install puts a snapshot in the place of the file.
func (s *server) install(content []byte) (err error) {
	id := s.identity().Any()
	if s.path() == "" {
		s.file, err = backend.ReadMem(id, bytes.NewReader(content))
		return err
	}
	if err := backend.Receive(s.path(), id, bytes.NewReader(content)); err != nil {
		return err
	}
	if err := s.file.Close(); err != nil {
		return err
	}
	if err := backend.Install(s.path()); err != nil {
		return err
	}
	s.file, err = backend.Open(s.path(), fileOptions(id))
	return err
}

// openContent makes a file of a snapshot's content, at a path or, if that is "", in memory.
func openContent(path string, content []byte) (*backend.Backend, error) {
	if path == "" {
		return backend.ReadMem(backend.Identity{}, bytes.NewReader(content))
	}
	if err := os.WriteFile(path, content, 0o600); err != nil {
		return nil, err
	}
	return backend.Open(path, fileOptions(backend.Identity{}))
}

// readSnapshot reads a snapshot and closes it. That of a file is open for a while.
func (l *life) readSnapshot(s *backend.Snapshot, then func(content []byte, err error)) {
	read := func() {
		var content bytes.Buffer
		_, err := s.WriteTo(&content)
		delete(l.snapshots, s)
		if err == nil {
			err = s.Close()
		}
		then(content.Bytes(), err)
	}
	if l.sv.path() == "" {
		read()
		return
	}
	l.snapshots[s] = true
	l.after(l.between(0, 100*time.Millisecond), "snapshot is read", 0, read)
}

// closeSnapshots closes those that are being read.
func (l *life) closeSnapshots() {
	for s := range l.snapshots {
		_ = s.Close()
	}
	clear(l.snapshots)
}

// defragmenter has a server defragment its file, and another one after a while.
func (c *cluster) defragmenter() {
	c.later("defragmentation", c.loop.between(10*time.Millisecond, 400*time.Millisecond), func() {
		c.defragmenter()
		if s := c.anyServer(); s.life != nil && s.life.paused <= c.loop.now {
			c.loop.printf("server %d defragments its file", s.id)
			s.life.defragment()
		}
	})
}

// defragment is what node's does.
func (l *life) defragment() {
	c := l.core
	if c.flushing {
		l.after(time.Millisecond, "defragmentation waits", 0, l.defragment)
		return
	}
	c.flushing, c.rewrites = true, true
	takes := l.between(0, 30*time.Millisecond)
	if l.sv.c.loop.chance(5) {
		takes = l.between(0, l.sv.c.plan.flushing)
	}
	c.after(takes, "defragmented", 0, func() {
		c.flushing, c.rewrites = false, false
		if err := c.rewrite(); err != nil {
			l.sv.c.fail("files", "server %d can't defragment its file: %v", l.sv.id, err)
		}
		l.sv.c.stats.Defragmented++
	})
}

// rewrite defragments the file, which changes nothing in it.
func (c *core) rewrite() error {
	meta, hash, err := c.inFile()
	if err != nil {
		return err
	}
	if err := c.backend.Defragment(); err != nil {
		return err
	}
	now, hashNow, err := c.inFile()
	switch {
	case err != nil:
		return err
	case !reflect.DeepEqual(meta, now):
		return errors.New("it says something else of itself now")
	case hash != hashNow:
		return fmt.Errorf("its checksum was %x, and is %x", hash, hashNow)
	}
	return nil
}

// inFile is what is in the file, the keys and their history by a checksum.
func (c *core) inFile() (meta backend.Meta, hash uint32, err error) {
	if meta, err = c.backend.Meta(); err == nil {
		hash, err = c.backend.Hash()
	}
	return meta, hash, err
}

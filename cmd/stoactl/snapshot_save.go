package main

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"hash"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/spf13/cobra"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"

	"github.com/stoa-kv/stoa/internal/snapshot"
)

func (a *app) snapshotSaveCommand() *cobra.Command {
	return &cobra.Command{
		Use: "save <filename>", Short: "Stores the state of a server of stoa or etcd in a file",
		Long: "The file ends with the SHA-256 of its content, as etcdctl's. It gets its name when it is complete and synced; until then it is called FILENAME.part.\n" +
			"A broken connection can't be resumed: save it again. There is no limit of time unless --command-timeout is given.",
		Args: argsAre(cobra.ExactArgs(1)),
		RunE: func(cmd *cobra.Command, args []string) error {
			ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
			defer stop()
			if a.limited(cmd) {
				var cancel context.CancelFunc
				ctx, cancel = context.WithTimeout(ctx, a.o.command)
				defer cancel()
			}
			if err := a.snapshotSave(ctx, args[0]); err != nil {
				return &exit{exitInterrupted, err} // etcdctl's, whatever the reason
			}
			return nil
		},
	}
}

func (a *app) snapshotSave(ctx context.Context, file string) error {
	if len(a.o.endpoints) != 1 {
		return fmt.Errorf("snapshot must be requested to one selected node, not multiple %v", a.o.endpoints)
	}
	c, err := a.connect()
	if err != nil {
		return err
	}
	defer c.Close()
	// clientv3's own call doesn't say how much is still to come.
	stream, err := pb.NewMaintenanceClient(c.ActiveConnection()).Snapshot(ctx, &pb.SnapshotRequest{})
	if err != nil {
		return c.explain(err)
	}
	bar := a.progressBar("saving")
	version, err := saveAs(file, stream.Recv, bar.show)
	bar.end()
	if err != nil {
		return c.explain(err)
	}
	fmt.Fprintf(a.out, "Snapshot saved at %s\n", file)
	if version != "" {
		fmt.Fprintf(a.out, "Server version %s\n", version)
	}
	return nil
}

// saveAs makes a file of a stream. On an error there is no file, or the one from before.
func saveAs(file string, recv func() (*pb.SnapshotResponse, error), progress func(done, total int64)) (version string, err error) {
	part := file + ".part"
	f, err := openPart(part)
	if errors.Is(err, syscall.EWOULDBLOCK) {
		return "", fmt.Errorf("another process is saving a snapshot to %s", file)
	}
	if err != nil {
		return "", fmt.Errorf("could not open %s: %w", part, err)
	}
	defer f.Close() // and unlock it, when it has its name, or none: a process that opens it before would write into it
	version, err = receive(f, recv, progress)
	if err == nil {
		err = f.Sync()
	}
	if err == nil {
		err = os.Rename(part, file)
	}
	if err != nil {
		return "", errors.Join(fmt.Errorf("could not save the snapshot: %w", err), remove(part))
	}
	return version, syncDirectory(filepath.Dir(file))
}

// openPart opens an empty file for one process alone, where there are locks: not all file systems have any.
func openPart(part string) (*os.File, error) {
	f, err := os.OpenFile(part, os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, err
	}
	if err = syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err == nil && !isAt(f, part) {
		err = syscall.EWOULDBLOCK // between the two it has got the name of a good snapshot, or was removed
	}
	if !errors.Is(err, syscall.EWOULDBLOCK) {
		err = f.Truncate(0)
	}
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

// isAt tells whether an open file is the one that has a name.
func isAt(f *os.File, name string) bool {
	open, err := f.Stat()
	if err != nil {
		return false
	}
	there, err := os.Stat(name)
	return err == nil && os.SameFile(open, there)
}

func remove(file string) error {
	if err := os.Remove(file); !errors.Is(err, os.ErrNotExist) {
		return err
	}
	return nil
}

func syncDirectory(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

// receive writes the stream, and compares it with the checksum at its end.
func receive(w io.Writer, recv func() (*pb.SnapshotResponse, error), progress func(done, total int64)) (version string, err error) {
	s := &signed{w: w, sum: sha256.New()}
	var left uint64
	for {
		r, err := recv()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return "", err
		}
		if err := s.write(r.GetBlob()); err != nil {
			return "", err
		}
		version, left = r.GetVersion(), r.GetRemainingBytes()
		progress(s.size, s.size+int64(left))
	}
	switch {
	case left > 0:
		return "", fmt.Errorf("the stream was cut, with %d bytes to come", left)
	case !snapshot.HasChecksum(s.size):
		return "", fmt.Errorf("sha256 checksum not found [bytes: %d]", s.size)
	case !bytes.Equal(s.sum.Sum(nil), s.tail):
		return "", fmt.Errorf("the content doesn't fit its sha256 checksum %x", s.tail)
	}
	return version, nil
}

// signed computes the checksum of all that is written but the last bytes, which are the
// checksum that the server has sent.
type signed struct {
	w    io.Writer
	sum  hash.Hash
	tail []byte
	size int64
}

func (s *signed) write(b []byte) error {
	n, err := s.w.Write(b)
	s.size += int64(n)
	s.tail = append(s.tail, b...)
	if over := len(s.tail) - sha256.Size; over > 0 {
		s.sum.Write(s.tail[:over])
		s.tail = append(s.tail[:0], s.tail[over:]...)
	}
	return err
}

// bar shows progress in one line of a terminal.
type bar struct {
	w    io.Writer // nil: not at all
	what string
	last int64 // percent
}

// progressBar is on the error output, and only if that is a terminal.
func (a *app) progressBar(what string) *bar {
	b := &bar{what: what, last: -1}
	if f, ok := a.errs.(*os.File); ok {
		if info, err := f.Stat(); err == nil && info.Mode()&os.ModeCharDevice != 0 {
			b.w = f
		}
	}
	return b
}

func (b *bar) show(done, total int64) {
	if b.w == nil || total <= 0 {
		return
	}
	if percent := done * 100 / total; percent != b.last {
		const width = 40
		full := int(percent) * width / 100
		fmt.Fprintf(b.w, "\r%s [%s%s] %3d %%  %s of %s ", b.what, strings.Repeat("=", full), strings.Repeat(" ", width-full), percent, bytesOf(done), bytesOf(total))
		b.last = percent
	}
}

func (b *bar) end() {
	if b.w != nil && b.last >= 0 {
		fmt.Fprintln(b.w)
	}
}

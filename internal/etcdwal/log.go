package etcdwal

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
)

// ErrUsed is returned for a log that a server has written to.
var ErrUsed = errors.New("an etcd server has run on it since")

// Log is the content of a restored directory's log.
type Log struct {
	Cluster, Member uint64
	Last            uint64 // index of the last entry, which is committed
}

var segment = regexp.MustCompile(`^[0-9a-f]{16}-[0-9a-f]{16}\.wal$`)

// firstSegment is the only one of a restored directory.
const firstSegment = "0000000000000000-0000000000000000.wal"

// Found reports whether a directory has a log of etcd's.
func Found(dir string) (bool, error) {
	names, err := segments(dir)
	return len(names) > 0, err
}

func segments(dir string) (names []string, err error) {
	list, err := os.ReadDir(dir)
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	for _, e := range list {
		if segment.MatchString(e.Name()) {
			names = append(names, e.Name())
		}
	}
	return names, err
}

// Read reads the log in a directory. It fails with ErrUsed if the log isn't as `etcdutl
// snapshot restore` leaves it.
func Read(dir string) (Log, error) {
	names, err := segments(dir)
	if err != nil {
		return Log{}, fmt.Errorf("reading etcd's log: %w", err)
	}
	if len(names) != 1 || names[0] != firstSegment {
		return Log{}, ErrUsed
	}
	f, err := os.Open(filepath.Join(dir, firstSegment))
	if err != nil {
		return Log{}, fmt.Errorf("reading etcd's log: %w", err)
	}
	defer f.Close()
	return read(f)
}

// content is a log while it is read.
type content struct {
	Log
	identified bool
	commit     uint64
	snapshot   uint64 // index of the last snapshot
}

func read(r io.Reader) (Log, error) {
	d, c := &decoder{r: bufio.NewReader(r)}, content{}
	for {
		rec, err := d.next()
		if errors.Is(err, io.EOF) {
			return c.finish()
		}
		if err == nil {
			err = c.add(rec)
		}
		if err != nil {
			return Log{}, err
		}
	}
}

func (c *content) finish() (Log, error) {
	switch {
	case !c.identified:
		return Log{}, fmt.Errorf("%w: it doesn't say whose it is", errDamaged)
	case c.Last == 0 || c.commit != c.Last || c.snapshot != c.Last:
		return Log{}, ErrUsed
	}
	return c.Log, nil
}

func (c *content) add(rec record) error {
	switch rec.kind {
	case typeMetadata:
		m := &etcdserverpb.Metadata{}
		if err := proto.Unmarshal(rec.data, m); err != nil {
			return fmt.Errorf("%w: %w", errDamaged, err)
		}
		c.Cluster, c.Member, c.identified = m.GetClusterID(), m.GetNodeID(), true
	case typeEntry:
		e := &raftpb.Entry{}
		if err := proto.Unmarshal(rec.data, e); err != nil {
			return fmt.Errorf("%w: %w", errDamaged, err)
		}
		if e.GetType() != raftpb.EntryConfChange || e.GetTerm() != 1 || e.GetIndex() != c.Last+1 {
			return ErrUsed
		}
		c.Last++
	case typeState:
		s := &raftpb.HardState{}
		if err := proto.Unmarshal(rec.data, s); err != nil {
			return fmt.Errorf("%w: %w", errDamaged, err)
		}
		if s.GetTerm() != 1 {
			return ErrUsed
		}
		c.commit = s.GetCommit()
	case typeSnapshot:
		return eachField(rec.data, func(num protowire.Number, v uint64, _ []byte) {
			if num == 1 {
				c.snapshot = v
			}
		})
	case typeCRC:
	default:
		return fmt.Errorf("%w: a record is of type %d", errDamaged, rec.kind)
	}
	return nil
}

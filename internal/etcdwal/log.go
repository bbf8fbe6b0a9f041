package etcdwal

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strconv"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/proto"

	"github.com/stoa-kv/stoa/internal/protofield"
)

// ErrDamaged is wrapped by the errors about a log that can't be read.
var ErrDamaged = errors.New("etcd's log is damaged")

// Log describes a log.
type Log struct {
	Cluster, Member uint64
	Last            uint64 // index of the last entry, committed or not
	// Fresh means that no server has written to the log since `etcdutl snapshot restore` made
	// it. All of its entries are committed.
	Fresh bool
}

var segment = regexp.MustCompile(`^([0-9a-f]{16})-[0-9a-f]{16}\.wal$`)

// firstSegment is the only one of a restored directory.
const firstSegment = "0000000000000000-0000000000000000.wal"

// Found reports whether a directory has a log of etcd's.
func Found(dir string) (bool, error) {
	names, err := segments(dir)
	return len(names) > 0, err
}

// segments are the files of a log, in order.
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

// Read reads the log in a directory.
func Read(dir string) (Log, error) {
	names, err := segments(dir)
	if err != nil {
		return Log{}, fmt.Errorf("reading etcd's log: %w", err)
	}
	if err := checkNames(names); err != nil {
		return Log{}, err
	}
	c := content{fresh: names[0] == firstSegment && len(names) == 1}
	d := decoder{}
	for _, name := range names {
		if err := c.readSegment(&d, filepath.Join(dir, name)); err != nil {
			return Log{}, fmt.Errorf("%s: %w", name, err)
		}
	}
	return c.finish()
}

// checkNames looks for a missing segment. The first ones are removed as etcd goes on.
func checkNames(names []string) error {
	if len(names) == 0 {
		return fmt.Errorf("%w: it has no segment", ErrDamaged)
	}
	var last uint64
	for i, name := range names {
		number, err := strconv.ParseUint(segment.FindStringSubmatch(name)[1], 16, 64)
		if err != nil {
			return err // never: the name has matched
		}
		if i > 0 && number != last+1 {
			return fmt.Errorf("%w: a segment before %s is missing", ErrDamaged, name)
		}
		last = number
	}
	return nil
}

// content is a log while it is read.
type content struct {
	Log
	identified bool
	fresh      bool // nothing yet says otherwise
	commit     uint64
	snapshot   uint64 // index of the last snapshot
}

func (c *content) readSegment(d *decoder, path string) error {
	f, err := os.Open(path)
	if err != nil {
		return fmt.Errorf("reading etcd's log: %w", err)
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return fmt.Errorf("reading etcd's log: %w", err)
	}
	return c.read(d, f, info.Size())
}

func (c *content) read(d *decoder, r io.Reader, size int64) error {
	d.open(r, size)
	for {
		rec, err := d.next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err == nil {
			err = c.add(rec)
		}
		if err != nil {
			return err
		}
	}
}

func (c *content) finish() (Log, error) {
	if !c.identified {
		return Log{}, fmt.Errorf("%w: it doesn't say whose it is", ErrDamaged)
	}
	c.Fresh = c.fresh && c.Last > 0 && c.commit == c.Last && c.snapshot == c.Last
	return c.Log, nil
}

func (c *content) add(rec record) error {
	switch rec.kind {
	case typeMetadata:
		m := &etcdserverpb.Metadata{}
		if err := proto.Unmarshal(rec.data, m); err != nil {
			return fmt.Errorf("%w: %w", ErrDamaged, err)
		}
		c.Cluster, c.Member, c.identified = m.GetClusterID(), m.GetNodeID(), true
	case typeEntry:
		e := &raftpb.Entry{}
		if err := proto.Unmarshal(rec.data, e); err != nil {
			return fmt.Errorf("%w: %w", ErrDamaged, err)
		}
		if e.GetType() != raftpb.EntryConfChange || e.GetTerm() != 1 || e.GetIndex() != c.Last+1 {
			c.fresh = false
		}
		c.Last = e.GetIndex() // of entries that were replaced by another leader's, the later count
	case typeState:
		s := &raftpb.HardState{}
		if err := proto.Unmarshal(rec.data, s); err != nil {
			return fmt.Errorf("%w: %w", ErrDamaged, err)
		}
		c.fresh = c.fresh && s.GetTerm() == 1
		c.commit = s.GetCommit()
	case typeSnapshot:
		for f, err := range protofield.All(rec.data) {
			if err != nil {
				return fmt.Errorf("%w: %w", ErrDamaged, err)
			}
			if f.Number == 1 {
				c.snapshot = f.Varint
			}
		}
	case typeCRC:
	default:
		return fmt.Errorf("%w: a record is of type %d", ErrDamaged, rec.kind)
	}
	return nil
}

package backend

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.uber.org/zap"

	"github.com/stoa-kv/stoa/internal/store"
	"github.com/stoa-kv/stoa/internal/version"
)

// Reasons for which a file can't be used. The errors that wrap these name the
// file.
var (
	ErrDamaged = errors.New("file is damaged")
	ErrForeign = errors.New("file is not this cluster's")
	ErrInUse   = errors.New("file is in use by another process")
	ErrAborted = errors.New("given up")
)

// Identity names the server, cluster and partition count of a file. It is
// written when the file is made and compared whenever it is opened. The file
// of another server of the same cluster is accepted (a snapshot is one) and
// becomes this server's. Partitions 0 accepts what an existing file has.
type Identity struct {
	Cluster, Server uint64
	Partitions      int
}

// Any is the identity with any number of partitions.
func (id Identity) Any() Identity {
	id.Partitions = 0
	return id
}

// Options of Open. With the zero Identity any file of stoa is accepted, and
// none is made.
type Options struct {
	Identity Identity
	Quota    int64 // bytes that the file may reach, 0 if there is no bound
	Logger   *zap.Logger
	NoSync   bool // for tests without crashes
	// Foreign accepts also a file that etcd wrote, with the zero Identity.
	Foreign bool
	// ReadOnly needs no right to write the file, and refuses Flush and Reset.
	ReadOnly bool
	// Checked says that Receive has just checked the file.
	Checked bool
}

// Position is the applied position of one partition's log in the file.
type Position struct {
	Index, Term uint64
	Rev         int64
}

// Lease is one lease as it is stored. Remaining is the checkpointed remainder
// in seconds, 0 for the full TTL. Owner is the user who was granted it, 0 for none. Number tells it from others
// that have had its ID.
type Lease struct {
	ID, TTL, Remaining int64
	Owner, Number      uint64
}

// Member is a server as etcd lists it in its file, in JSON.
type Member struct {
	ID         uint64   `json:"id"`
	Name       string   `json:"name,omitempty"`
	PeerURLs   []string `json:"peerURLs"`
	ClientURLs []string `json:"clientURLs,omitempty"`
	IsLearner  bool     `json:"isLearner,omitempty"`
}

// Cut is one consistent state of the whole server, as the difference to the
// last one.
type Cut struct {
	Partitions []store.Cut // all of them, in order
	System     System
}

// System is the part of a cut that belongs to no partition. Nil and empty
// fields have not changed.
type System struct {
	Leases        []Lease // granted or checkpointed
	LeasesRevoked []int64
	AlarmsOn      []*etcdserverpb.AlarmMember
	AlarmsOff     []*etcdserverpb.AlarmMember
	Members       []Member // the whole list, if it changed
	// Level is the version of the cluster, and so the format of the file; 0: it has not
	// changed.
	Level version.Level
	// MembersRemoved are the IDs of earlier members, with Members.
	MembersRemoved []uint64
	// Log is a place that the server's log has reached, durably.
	Log   LogPlace
	Blobs map[string][]byte // named values of the core; a nil one is removed
	// Auth is of users and roles what changed, if anything did.
	Auth *AuthChange
}

// LogPlace is a place in the log of the server whose file it is: an offset in bytes in a
// segment. The zero one is unknown.
type LogPlace struct {
	Segment uint64
	Offset  int64
}

// Auth is the content of etcd's buckets auth, authUsers and authRoles.
type Auth struct{ Auth, Users, Roles map[string][]byte }

// AuthChange is what a cut changes in these buckets.
type AuthChange struct {
	Auth map[string][]byte // the whole content
	// With Whole, Users and Roles are the whole contents, too. Otherwise they are what changed; a nil
	// value is removed.
	Whole        bool
	Users, Roles map[string][]byte
}

// Meta is everything in the file but keys and values.
type Meta struct {
	Identity  Identity
	Level     version.Level
	Positions []Position
	// Compacted is the last compaction that was asked for, Finished the last
	// that was carried out in full; -1 if there was none.
	Compacted, Finished int64
	Log                 LogPlace // zero also if another server has written it
	Leases              []Lease
	Alarms              []*etcdserverpb.AlarmMember
	Members             []Member
	Blobs               map[string][]byte
	Auth                Auth
}

// Backend is the file, or its counterpart in memory. Flush has one caller at
// a time; all methods may run concurrently.
type Backend struct {
	eng  engine
	path string
	id   Identity
}

// Open opens the file, or makes it. A damaged file is refused with an error
// that names it and the offset.
func Open(path string, o Options) (*Backend, error) {
	if o.Logger == nil {
		o.Logger = zap.NewNop()
	}
	_, err := os.Stat(path)
	switch {
	case errors.Is(err, os.ErrNotExist) && o.Identity != Identity{}:
		if err := createFile(path, o); err != nil {
			return nil, fmt.Errorf("make %s: %w", path, err)
		}
	case err != nil:
		return nil, fmt.Errorf("open backend: %w", err)
	}
	if !o.Checked {
		if err := check(path); err != nil {
			return nil, err
		}
	}
	f, err := openFile(path, o)
	if err != nil {
		return nil, err
	}
	b := &Backend{eng: f, path: path}
	err = b.identify(o.Identity)
	if o.Foreign && (err == nil || errors.Is(err, ErrForeign)) {
		err = b.eng.view(hasSchema)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("open %s: %w", path, err), f.close())
	}
	return b, nil
}

// createFile makes the file under another name first, so that a crash leaves
// either no file or a complete one.
func createFile(path string, o Options) error {
	tmp := path + made
	if err := os.Remove(tmp); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	f, err := openFile(tmp, o)
	if err != nil {
		return err
	}
	err = f.update(func(w writer) error { return initialise(w, o.Identity) })
	if err = errors.Join(err, f.close()); err != nil {
		return err
	}
	if err := os.Rename(tmp, path); err != nil {
		return err
	}
	return syncDir(filepath.Dir(path))
}

// identify checks the file's identity, and rewrites that of another server of
// the cluster.
func (b *Backend) identify(want Identity) error {
	err := b.eng.view(func(r reader) (err error) {
		b.id, err = readIdentity(r)
		return err
	})
	if err != nil {
		return err
	}
	if err := accept(b.id, want); err != nil {
		return err
	}
	if want.Server == 0 || want.Server == b.id.Server {
		return nil
	}
	b.id.Server = want.Server
	return b.eng.update(func(w writer) error { return w.put(bucketStoa, stoaServer, be64(want.Server)) })
}

// hasSchema refuses a file that doesn't have etcd's schema.
func hasSchema(r reader) error {
	have := r.buckets()
	for _, name := range []string{bucketKey, bucketMeta} {
		if !slices.Contains(have, name) {
			return fmt.Errorf("%w: neither stoa nor etcd has written it: bucket %q is missing", ErrForeign, name)
		}
	}
	return nil
}

// NewMem returns a backend without a file, for the simulation: flushed state
// survives a crash of the server that used it, a flush is atomic, and Close
// does nothing.
func NewMem(id Identity) *Backend {
	t := memTx{}
	if err := initialise(t, id); err != nil {
		panic(err) // memTx can't fail
	}
	return &Backend{eng: &mem{data: t}, id: id, path: "memory"}
}

// Identity returns the file's identity.
func (b *Backend) Identity() Identity { return b.id }

// Close closes the file. It waits for readers, but not long: an open snapshot
// keeps the file until it is closed itself.
func (b *Backend) Close() error {
	if err := b.eng.close(); err != nil {
		return fmt.Errorf("close %s: %w", b.path, err)
	}
	return nil
}

// Meta reads everything but the keys.
func (b *Backend) Meta() (m Meta, err error) {
	err = b.eng.view(func(r reader) error {
		m, err = readMeta(r, b.id)
		return err
	})
	if err != nil {
		return m, fmt.Errorf("read %s: %w", b.path, err)
	}
	return m, nil
}

// Size is the file's size in bytes as etcd counts it for its quota.
func (b *Backend) Size() int64 {
	total, _ := b.eng.size()
	return total
}

// SizeInUse is Size without the free pages.
func (b *Backend) SizeInUse() int64 {
	_, inUse := b.eng.size()
	return inUse
}

// Readers is the number of read transactions that are open.
func (b *Backend) Readers() int {
	if f, ok := b.eng.(*file); ok {
		return f.stats().OpenTxN
	}
	return 0
}

// CommitTimes are the times of the parts of all of bbolt's commits since the file was
// opened or defragmented.
type CommitTimes struct{ Rebalance, Spill, Write time.Duration }

// CommitTimes returns zero for a backend in memory.
func (b *Backend) CommitTimes() CommitTimes {
	f, ok := b.eng.(*file)
	if !ok {
		return CommitTimes{}
	}
	tx := f.stats().TxStats
	return CommitTimes{Rebalance: tx.GetRebalanceTime(), Spill: tx.GetSpillTime(), Write: tx.GetWriteTime()}
}

// Since is the difference to an earlier reading.
func (t CommitTimes) Since(before CommitTimes) CommitTimes {
	return CommitTimes{max(0, t.Rebalance-before.Rebalance), max(0, t.Spill-before.Spill), max(0, t.Write-before.Write)}
}

// Defragment rewrites the file without its free pages. Flushes wait for it,
// reads don't.
func (b *Backend) Defragment() error { return b.eng.defragment() }

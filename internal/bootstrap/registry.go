package bootstrap

import (
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"sync"

	"go.uber.org/zap"

	peerpb "github.com/stoa-kv/stoa/api/stoa/peer/v1"
	"github.com/stoa-kv/stoa/internal/version"
	"github.com/stoa-kv/stoa/internal/vfs"
)

// Self has the settings that matter to a server without data.
type Self struct {
	Cluster, Member ID
	Name            string
	// Members are all members, this one included: the initial ones, or, with Existing,
	// those of the cluster.
	Members []Member
	// Partitions is the number that was asked for. The number of members that
	// are admitted already takes precedence.
	Partitions int
	// Existing: the cluster exists, so this server is not among those that begin it, and
	// gets its state from there.
	Existing bool
	// InitialCluster and Token are for messages.
	InitialCluster, Token string
}

// Registry is a server's record of itself and the others. It is safe for concurrent use.
type Registry struct {
	dir  string // the member directory
	log  *zap.Logger
	lock io.Closer
	// save makes a record durable. Tests replace it.
	save func(*Record) error

	mu      sync.Mutex
	rec     *Record // nil before Begin, in a new directory
	start   ID
	self    Self
	members []ID          // of the cluster; nil: not known yet
	level   version.Level // of the cluster, as far as members are known
	vouched map[ID]bool
	news    chan struct{} // a server has introduced itself
}

// Open locks the member directory for this process and reads its record, if
// there is one.
func Open(dir string, lg *zap.Logger) (*Registry, error) {
	if err := vfs.OS().MkdirAll(dir); err != nil {
		return nil, fmt.Errorf("making the data directory: %w", err)
	}
	lock, err := vfs.OS().Lock(filepath.Join(dir, "LOCK"))
	if errors.Is(err, vfs.ErrLocked) {
		return nil, fmt.Errorf("%s is in use by another process: stop that, or choose another --data-dir", dir)
	}
	if err != nil {
		return nil, fmt.Errorf("taking the data directory: %w", err)
	}
	path := filepath.Join(dir, FileName)
	rec, err := load(path)
	if err != nil {
		return nil, errors.Join(err, lock.Close())
	}
	r := newRegistry(dir, lg, rec, func(rec *Record) error { return save(path, rec) })
	r.lock = lock
	return r, nil
}

func newRegistry(dir string, lg *zap.Logger, rec *Record, save func(*Record) error) *Registry {
	return &Registry{dir: dir, log: lg, save: save, rec: rec, vouched: map[ID]bool{}, news: make(chan struct{}, 1)}
}

// Close releases the directory.
func (r *Registry) Close() error { return r.lock.Close() }

// Record returns the record of a directory whose server has been admitted.
func (r *Registry) Record() (Record, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.rec == nil || !r.rec.Admitted {
		return Record{}, false
	}
	return r.rec.clone(), true
}

// Adopt makes a record for data without one: the data names its cluster and
// member.
func (r *Registry) Adopt(cluster, member ID, partitions int) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.write(&Record{
		Cluster: cluster, Member: member, Data: draw(), Partitions: partitions,
		Admitted: true, Begun: true, Adopted: true,
	})
}

// Resume counts a start on a directory whose server has been admitted.
func (r *Registry) Resume() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.count(r.rec.clone())
}

// Begin counts a start on a directory whose server has not been admitted. Its
// settings replace those that an earlier start recorded.
func (r *Registry) Begin(self Self) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	rec := Record{Data: draw()}
	if r.rec != nil {
		rec = r.rec.clone()
	}
	if rec.Cluster != self.Cluster || rec.Member != self.Member {
		rec = Record{Cluster: self.Cluster, Member: self.Member, Data: rec.Data, Starts: rec.Starts}
		r.vouched = map[ID]bool{}
	}
	rec.Members, rec.Joined = self.Members, self.Existing
	if rec.Partitions != 0 && rec.Partitions != self.Partitions {
		r.log.Warn("--partitions is not obeyed: the number has been agreed on with other members",
			zap.Int("partitions", rec.Partitions), zap.Int("asked-for", self.Partitions))
		self.Partitions = rec.Partitions
	}
	r.self = self
	r.members, r.level = nil, version.Oldest
	for _, m := range self.Members {
		r.members = append(r.members, m.ID)
	}
	return r.count(rec)
}

// count makes rec the record of a new start.
func (r *Registry) count(rec Record) error {
	rec.Starts++
	r.start = draw()
	return r.write(&rec)
}

// write makes the record durable first (invariant 1).
func (r *Registry) write(rec *Record) error {
	if err := r.save(rec); err != nil {
		return fmt.Errorf("writing %s: %w", filepath.Join(r.dir, FileName), err)
	}
	r.rec = rec
	return nil
}

// Begun records that the server's files exist. From now on they must.
func (r *Registry) Begun() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.rec.Begun {
		return nil
	}
	rec := r.rec.clone()
	rec.Begun = true
	return r.write(&rec)
}

// SetMembers sets the members of the cluster, its version, and the members that have been
// removed from it, which are recorded: a restart may begin with an earlier list.
func (r *Registry) SetMembers(ids, removed []ID, level version.Level) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.members, r.level = ids, level
	rec := r.rec.clone()
	for _, id := range removed {
		if !slices.Contains(rec.Removed, id) {
			rec.Removed = append(rec.Removed[:len(rec.Removed):len(rec.Removed)], id)
		}
	}
	if len(rec.Removed) == len(r.rec.Removed) {
		return nil
	}
	return r.write(&rec)
}

// Mark identifies a server's data directory to other servers.
type Mark struct {
	Data   ID
	Starts uint64
	Start  ID
}

// Mark is this server's.
func (r *Registry) Mark() Mark {
	r.mu.Lock()
	defer r.mu.Unlock()
	return Mark{r.rec.Data, r.rec.Starts, r.start}
}

// Refused is the error of a server that must not take part with its data.
type Refused struct {
	Why  peerpb.Refusal
	text string
}

func (e *Refused) Error() string { return e.text }

// Meet records a member that this server has a link with, and returns a
// *Refused if its data is not what it was.
func (r *Registry) Meet(peer ID, m Mark) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.meet(peer, m, func(*Peer) {})
}

// meet records a member, with the changes of change.
func (r *Registry) meet(peer ID, m Mark, change func(*Peer)) error {
	before, known := r.rec.Peers[peer]
	if known {
		if err := compare(peer, before, m); err != nil {
			return err
		}
	}
	after := before
	after.Data, after.Starts, after.Start = m.Data, m.Starts, m.Start
	change(&after)
	if known && after.equal(&before) {
		return nil
	}
	rec := r.rec.clone()
	if rec.Peers == nil {
		rec.Peers = map[ID]Peer{}
	}
	rec.Peers[peer] = after
	if after.Fresh && !rec.Admitted {
		rec.Partitions = r.self.Partitions
	}
	return r.write(&rec)
}

func compare(peer ID, before Peer, now Mark) error {
	if before.Data != now.Data {
		return &Refused{peerpb.Refusal_OTHER_DATA, fmt.Sprintf(
			"member %s has already been bootstrapped, with another data directory (data ID %s, now %s)", peer, before.Data, now.Data)}
	}
	if now.Starts < before.Starts || now.Starts == before.Starts && now.Start != before.Start {
		return &Refused{peerpb.Refusal_OLDER_DATA, fmt.Sprintf(
			"member %s comes with an older copy of its data directory: by its count this is start %d of it, and start %d has been met already",
			peer, now.Starts, before.Starts)}
	}
	return nil
}

// isMember reports whether the cluster has a member; ok is false if that is not
// known yet.
func (r *Registry) isMember(id ID) (is, ok bool) {
	return slices.Contains(r.members, id), r.members != nil
}

// draw returns a random number, not 0.
func draw() ID {
	var b [8]byte
	rand.Read(b[:]) //nolint:errcheck // it never fails, by its documentation
	return ID(binary.LittleEndian.Uint64(b[:]) | 1)
}

package node

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"

	"go.uber.org/zap"

	"github.com/stoa-kv/stoa/internal/apply"
	"github.com/stoa-kv/stoa/internal/backend"
	"github.com/stoa-kv/stoa/internal/backup"
	"github.com/stoa-kv/stoa/internal/command"
	"github.com/stoa-kv/stoa/internal/lease"
	"github.com/stoa-kv/stoa/internal/membership"
	"github.com/stoa-kv/stoa/internal/placement"
	"github.com/stoa-kv/stoa/internal/raftlog"
	"github.com/stoa-kv/stoa/internal/recovery"
	"github.com/stoa-kv/stoa/internal/replica"
	"github.com/stoa-kv/stoa/internal/session/host"
	"github.com/stoa-kv/stoa/internal/store"
	"github.com/stoa-kv/stoa/internal/vfs"
	"github.com/stoa-kv/stoa/internal/wal"
	"github.com/stoa-kv/stoa/internal/watch"
)

// core is one life of the replicated state: from a recovery to the next.
type core struct {
	backend   *backend.Backend
	wal       *wal.WAL
	logs      []*raftlog.Log
	stores    []*store.Store
	leases    *lease.Table
	placement *placement.Map // as of the recovery; the machine has the present one
	machine   *apply.Machine
	replica   *replica.Replica
	state     host.State // the three that sessions need
	feed      *watch.Feed
	groups    *membership.Groups
	members   recovery.Membership // as of the recovery
	epochs    []command.Epochs    // likewise
	disk      *disk

	wake     []chan struct{}
	halt     chan struct{}
	stopOnce sync.Once
	loops    sync.WaitGroup
	stale    atomic.Bool   // about to be replaced
	replaced chan struct{} // closed, by release, once it is, or can't be
	release  func()
	before   atomic.Pointer[reached] // by the core that this one has replaced; nil: nothing, or as far as that

	// Of the flusher.
	flushing sync.Mutex
	flushed  []uint64    // applied index of each partition in the file
	common   []uint64    // apply.Machine.Common of the last cut
	meets    atomic.Bool // a command is under way for which all partitions meet (meet)
	system   systemState
	swept    atomic.Int64 // compactions up to here are finished in the file
	hashes   hashes
	backups  *backup.Partitions

	compactions compactions
}

func newCore() *core {
	c := &core{halt: make(chan struct{}), replaced: make(chan struct{})}
	c.release = sync.OnceFunc(func() { close(c.replaced) })
	return c
}

func (n *Node) dbPath() string { return filepath.Join(n.cfg.DataDir, "member", "snap", "db") }

func (n *Node) walDir() string {
	if n.cfg.WALDir != "" {
		return n.cfg.WALDir
	}
	return filepath.Join(n.cfg.DataDir, "member", "wal")
}

// open recovers everything from the data directory.
func (n *Node) open() (_ *core, err error) {
	c := newCore()
	defer func() {
		if err != nil {
			_ = c.close()
		}
	}()
	isNew, err := n.openBackend(c)
	if err != nil {
		return nil, err
	}
	return c, n.openRest(c, isNew)
}

// openRest recovers from an open file and the log.
func (n *Node) openRest(c *core, isNew bool) error {
	meta, err := n.resume(c)
	if err != nil {
		return err
	}
	if err := n.loadStores(c, &meta); err != nil {
		return err
	}
	if err := n.openLog(c, &meta, n.hasBegun(isNew, &meta)); err != nil {
		return err
	}
	if n.spool.received {
		c.executed(n.core.Load())
	}
	return n.assemble(c, &meta)
}

// resume brings the file into the generation in which the groups go on, and reads who they are.
func (n *Node) resume(c *core) (meta backend.Meta, err error) {
	if err := recovery.Resize(c.backend); err != nil {
		return meta, err
	}
	if meta, err = c.backend.Meta(); err != nil {
		return meta, fmt.Errorf("reading %s: %w", n.dbPath(), err)
	}
	if c.groups, err = recovery.ReadGroups(&meta); err != nil {
		return meta, fmt.Errorf("loading %s: %w", n.dbPath(), err)
	}
	if err := n.adopt(c, &meta); err != nil {
		return meta, err
	}
	if c.epochs, err = recovery.ReadEpochs(&meta); err != nil {
		return meta, fmt.Errorf("loading %s: %w", n.dbPath(), err)
	}
	return meta, nil
}

// openBackend makes the file if there is none.
func (n *Node) openBackend(c *core) (isNew bool, err error) {
	path := n.dbPath()
	if err := makePrivateDir(filepath.Dir(path)); err != nil {
		return false, err
	}
	_, err = os.Stat(path)
	isNew = errors.Is(err, fs.ErrNotExist)
	if isNew && n.cfg.Begun {
		return false, fmt.Errorf("%s is missing, though this member has taken part in its cluster: put it back; without it the member must not start", path)
	}
	partitions := 0 // what the file has: its number may have changed since the member was admitted
	if isNew {
		partitions = n.cfg.Partitions
	}
	c.backend, err = backend.Open(path, backend.Options{
		Identity: backend.Identity{Cluster: n.cfg.ClusterID, Server: n.cfg.ID, Partitions: partitions},
		Quota:    n.cfg.QuotaBytes,
		Logger:   n.log,
		Checked:  n.spool.received,
	})
	return isNew, err
}

// begun is whether a server has ever taken part with a file, and so with a log.
type begun uint8

const (
	maybe begun = iota
	never
	surely
)

// hasBegun goes by the record of the member, and by whether the state machine has ever moved.
func (n *Node) hasBegun(isNew bool, meta *backend.Meta) begun {
	started := slices.ContainsFunc(meta.Positions, func(p backend.Position) bool { return p.Index > raftlog.Bootstrap.Index })
	switch {
	case n.cfg.Begun || started:
		return surely
	case isNew || n.cfg.Registry != nil:
		return never
	}
	return maybe
}

// replay is how the log is read. One that has records, though the server has never begun, is of an earlier life of the member,
// in a directory of its own (--wal-dir) that was left when the data directory was removed. It has the same IDs, if the cluster is
// made again with the same settings or from the same snapshot. What it has would be executed upon the new state, and its term
// and its length would have this server lead, and undo what the others have acknowledged since.
func (n *Node) replay(c *core, has begun) func(wal.Record) error {
	if has == never {
		return func(wal.Record) error {
			return fmt.Errorf("it is of an earlier life of this member, which has never begun with the state in %s: move %s away, "+
				"or put the data directory back that belongs to it", n.dbPath(), n.walDir())
		}
	}
	return recovery.Replay(c.groups, c.logs)
}

func (n *Node) loadStores(c *core, meta *backend.Meta) (err error) {
	if c.placement, err = recovery.Placement(meta); err != nil {
		return fmt.Errorf("loading %s: %w", n.dbPath(), err)
	}
	if c.stores, c.leases, err = recovery.Load(c.backend, meta, c.placement, c.joins(), n.loadRest(c)); err != nil {
		return fmt.Errorf("loading %s: %w", n.dbPath(), err)
	}
	c.took(meta)
	c.hashes.through = meta.Compacted // what was compacted before is past hashing
	if meta.Compacted > meta.Finished {
		c.compactions.asked(meta.Compacted)
	}
	return nil
}

// took notes how far the file is.
func (c *core) took(meta *backend.Meta) {
	for _, s := range c.stores {
		index, _ := s.Applied()
		c.flushed = append(c.flushed, index)
	}
	c.swept.Store(meta.Finished)
}

// openLog replays the write-ahead log and brings it together with the state.
func (n *Node) openLog(c *core, meta *backend.Meta, has begun) (err error) {
	c.logs = recovery.NewLogs(c.groups, c.members.Configs)
	dir := n.walDir()
	if err := makePrivateDir(filepath.Dir(dir)); err != nil {
		return err
	}
	c.wal, err = wal.Open(wal.Options{
		Dir: dir, SegmentBytes: n.cfg.SegmentBytes, Metadata: n.walMetadata(len(c.stores)), Own: n.ownWAL, MustExist: has == surely, Reaches: wal.Place(meta.Log),
		Head: recovery.Head(c.logs), Logger: n.log,
	}, n.replay(c, has))
	switch {
	case errors.Is(err, wal.ErrMissing):
		return fmt.Errorf("%w, though this member has taken part in its cluster: is it elsewhere (--wal-dir)? Put it back; without it the member must not start", err)
	case err != nil:
		return err
	}
	if err := recovery.Align(c.wal, c.logs, c.stores); err != nil {
		return err
	}
	if has == surely {
		return n.force(c)
	}
	return nil
}

// ownWAL recognizes this server's log. Its number of partitions may have changed.
func (n *Node) ownWAL(metadata []byte) bool {
	own := n.walMetadata(0)
	return len(metadata) == len(own) && bytes.Equal(metadata[:len(own)-1], own[:len(own)-1])
}

// walMetadata says whose log it is, and how many partitions there are.
func (n *Node) walMetadata(partitions int) []byte {
	b := []byte("stoa1")
	b = binary.LittleEndian.AppendUint64(b, n.cfg.ClusterID)
	b = binary.LittleEndian.AppendUint64(b, n.cfg.ID)
	return append(b, byte(partitions))
}

// assemble puts the parts together.
func (n *Node) assemble(c *core, meta *backend.Meta) (err error) {
	c.disk = newDisk(c.wal, n.fatal, &n.cfg.Metrics.Disk, n.cfg.Observe.WALSync)
	for range c.stores {
		c.wake = append(c.wake, make(chan struct{}, 1))
	}
	visible := func(p int) int64 { return c.replica.Visible(p) }
	c.backups = backup.New(c.stores, visible)
	c.machine = apply.New(apply.Config{
		Stores: c.stores, Leases: c.leases, Placement: c.placement,
		Sink: sink{n, c}, Observer: observer{n, c},
		Visible:    visible,
		Met:        c.backups.Met,
		Fatal:      n.fatal,
		Fence:      n.fence,
		Meter:      &meter{n, c, newByKind(n.cfg.Metrics.Server.Applied)},
		Precompile: n.precompile,
		Codes:      n.codes,

		ExtensionMemory: n.cfg.ExtensionMemory,
	})
	if err := c.loadMachine(meta); err != nil {
		return fmt.Errorf("loading %s: %w", n.dbPath(), err)
	}
	c.system.noteStored = n.noteStored
	if c.replica, err = replica.New(n.replicaConfig(c)); err != nil {
		return err
	}
	c.state = host.State{Machine: c.machine, Replica: c.replica, Stores: c.stores, Owes: c.owes}
	n.log.Info("recovered", zap.Int("partitions", len(c.stores)), zap.Int64("revision", c.revision()),
		zap.Int("members", len(c.members.List.Members)), zap.Int64("wal-bytes", c.wal.Size()))
	return nil
}

// loadMachine gives the machine what the file has beside the keys and leases, and notes that it has that.
func (c *core) loadMachine(meta *backend.Meta) (err error) {
	m, file := c.machine, &c.system.file
	m.LoadAlarms(meta.Alarms)
	if err := m.LoadSessions(meta.Blobs); err != nil {
		return err
	}
	m.LoadMembership(c.members.List, c.members.Configs)
	m.LoadEpochs(c.epochs)
	m.LoadGroups(c.groups)
	users, stored, err := recovery.Auth(meta)
	if err != nil {
		return err
	}
	m.LoadAuth(users)
	*file = systemParts{alarms: m.Alarms(), members: c.members, placed: c.placement, epochs: c.epochs, groups: c.groups}
	if stored {
		file.auth = users
	}
	if file.grants, err = m.LoadGrants(meta.Blobs); err != nil {
		return err
	}
	c.system.stored = len(meta.Members) > 0
	return m.LoadExtensions()
}

func (n *Node) replicaConfig(c *core) replica.Config {
	return replica.Config{
		ID: n.cfg.ID, Origin: n.nextOrigin(),
		ElectionTicks: int(n.cfg.Election / n.cfg.Tick), HeartbeatTicks: 1,
		RequestTicks: int64(n.cfg.requestTimeout() / n.cfg.Tick),
		CheckTicks:   n.checkTicks(), InitialCheck: n.cfg.InitialCheck, Fenced: n.fenced, Told: n.told,
		Logs: c.logs, Stores: c.stores, Machine: c.machine,
		Network: network{n, make([]heartbeats, len(c.stores))}, Disk: c.disk, Calls: n.calls, Wake: c.wakeUp,
		Closed: func(p int, rev int64) {
			c.feed.Advance(p, rev)
			n.sessions.Advanced()
		},
		Resized:   func() { n.resized(c) },
		Stops:     n.forcing,
		Announced: c.announced,
		Expect:    func(e *command.Entry) { go c.machine.Expect(e) },
		Role:      func(epoch uint64) { n.role(c, epoch) },
		Peers:     n.peersChanged,
		Trace:     func(wire []byte) *replica.Trace { return follow(n.cfg.Tracer.Continue(wire)) },
		Serve:     func(method uint32, body []byte, reply func([]byte, error)) { n.serve(c, method, body, reply) },
		Fatal:     n.outdated,
		Logger:    n.log,
	}
}

// nextOrigin names a life of the core: proposals of an earlier one may still
// come out of the log.
func (n *Node) nextOrigin() uint64 {
	n.incarnation += 2
	return n.incarnation
}

// revision is the highest revision that any store has applied.
func (c *core) revision() int64 {
	rev := int64(1)
	for _, s := range c.stores {
		s.RLock()
		rev = max(rev, s.Rev())
		s.RUnlock()
	}
	return rev
}

func (c *core) close() error {
	var errs []error
	if c.wal != nil {
		errs = append(errs, c.wal.Close())
	}
	if c.backend != nil {
		errs = append(errs, c.backend.Close())
	}
	return errors.Join(errs...)
}

func makePrivateDir(dir string) error {
	if err := vfs.OS().MkdirAll(dir); err != nil {
		return fmt.Errorf("making the data directory: %w", err)
	}
	return nil
}

package node

import (
	"context"
	"fmt"
	"io"
	"slices"
	"time"

	"go.uber.org/zap"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"

	"github.com/stoa-kv/stoa/internal/backend"
	"github.com/stoa-kv/stoa/internal/command"
	"github.com/stoa-kv/stoa/internal/fault"
	"github.com/stoa-kv/stoa/internal/placement"
)

// ClusterID, MemberID, RaftTerm, Leader and Revision go into every header.
func (n *Node) ClusterID() uint64 { return n.cfg.ClusterID }

// MemberID is this server.
func (n *Node) MemberID() uint64 { return n.cfg.ID }

// RaftTerm is group 0's.
func (n *Node) RaftTerm() uint64 { return n.core.Load().replica.Term() }

// Leader is the server that leads group 0, as far as this one knows.
func (n *Node) Leader() uint64 { return n.core.Load().replica.Leader() }

// LeaderChanges is the number of leader changes that this server has seen.
func (n *Node) LeaderChanges() int64 { return n.changes.Load() }

// Revision is the highest closed revision of any partition.
func (n *Node) Revision() int64 { return n.core.Load().replica.Revision() }

// Status is the status of this server and its file.
func (n *Node) Status(context.Context) (*pb.StatusResponse, error) {
	c := n.core.Load()
	s := &pb.StatusResponse{
		Leader: n.Leader(), DbSize: c.backend.Size(), DbSizeInUse: c.backend.SizeInUse(),
		DbSizeQuota: n.cfg.QuotaBytes, StorageVersion: backend.StorageVersion, IsLearner: n.IsLearner(),
	}
	for _, a := range n.ActiveAlarms() {
		s.Errors = append(s.Errors, a.String())
	}
	// One figure for all groups: the entries of all logs together.
	for p := range c.stores {
		commit, applied := c.replica.Progress(p)
		s.RaftIndex += commit
		s.RaftAppliedIndex += applied
	}
	return s, nil
}

// Hash is the checksum of the whole file.
func (n *Node) Hash(ctx context.Context) (uint32, int64, error) {
	ended, err := n.alone(ctx, n.hashing)
	if err != nil {
		return 0, 0, err
	}
	defer ended()
	if err := n.flushFor(ctx); err != nil {
		return 0, 0, err
	}
	c := n.core.Load()
	rev, began := n.Revision(), time.Now()
	h, err := c.backend.Hash()
	n.cfg.Metrics.Store.Hash.Observe(time.Since(began).Seconds())
	return h, rev, n.damaged(err)
}

// readableRevision is what all partitions are closed through.
func (n *Node) readableRevision(c *core) int64 {
	if len(c.stores) == 1 {
		return c.revision()
	}
	return c.replica.Readable(c.machine.Placement().All())
}

// ActiveAlarms are the alarms that are raised.
func (n *Node) ActiveAlarms() []*pb.AlarmMember { return n.core.Load().machine.Alarms() }

// OwnAlarms are the alarms because of which this server may not serve all: a member that has
// raised CORRUPT for itself is fenced, and the others go on without it.
func (n *Node) OwnAlarms() []*pb.AlarmMember {
	m := n.core.Load().machine
	return slices.DeleteFunc(slices.Clone(m.Alarms()), func(a *pb.AlarmMember) bool {
		return m.Checks() && a.GetAlarm() == pb.AlarmType_CORRUPT && a.GetMemberID() != 0 && a.GetMemberID() != n.cfg.ID
	})
}

// Health reads a key as the server itself, to find out whether it can.
func (n *Node) Health(ctx context.Context, serializable bool) error {
	_, err := n.find(asServer(ctx), &pb.RangeRequest{Key: []byte("\x00"), KeysOnly: true, Limit: 1, Serializable: serializable})
	return err
}

// Alarm raises, lowers or lists alarms.
func (n *Node) Alarm(ctx context.Context, r *pb.AlarmRequest) (*pb.AlarmResponse, error) {
	return submitSystem[*pb.AlarmResponse](ctx, n, command.Alarm, r)
}

// Defragment rewrites the backend file, after what compactions have still to
// remove from it is gone.
func (n *Node) Defragment(ctx context.Context) error {
	c, err := n.present(ctx)
	if err != nil {
		return err
	}
	if err := n.swept(ctx, c.machine.Compacted()); err != nil {
		return err
	}
	ended, err := n.alone(ctx, n.filing)
	if err != nil {
		return err
	}
	defer ended()
	n.rebuild.Lock()
	defer n.rebuild.Unlock()
	if ctx.Err() != nil { // it waited for another one, and its client may have asked again
		return context.Cause(ctx)
	}
	return n.defragment(n.core.Load())
}

func (n *Node) defragment(c *core) error {
	began, m := time.Now(), &n.cfg.Metrics.Disk
	m.Defragmenting.Set(1)
	defer m.Defragmenting.Set(0)
	err := c.backend.Defragment()
	m.Defragment.Observe(time.Since(began).Seconds())
	return err
}

// defragmentAtStart defragments the file if that frees enough.
func (n *Node) defragmentAtStart(c *core) error {
	size, used := c.backend.Size(), c.backend.SizeInUse()
	switch {
	case n.cfg.DefragmentAt <= 0:
		return nil
	case size-used < n.cfg.DefragmentAt:
		n.log.Info("Skipping defragmentation", zap.Int64("current-db-size-bytes", size),
			zap.Int64("current-db-size-in-use-bytes", used), zap.Int64("bootstrap-defrag-threshold-bytes", n.cfg.DefragmentAt))
		return nil
	}
	return n.defragment(c)
}

// Snapshot opens a backup. Reading it is throttled while
// there are writes. It yields exactly size bytes.
func (n *Node) Snapshot(ctx context.Context) (content io.ReadCloser, size int64, version string, err error) {
	fenced := n.fence.Times()
	if n.Fenced() {
		return nil, 0, "", fault.Fenced
	}
	s, err := n.backup(ctx)
	if err != nil {
		return nil, 0, "", err
	}
	r := n.stream(s, fenced, func(w *io.PipeWriter) (int64, error) {
		return n.unlessStalled(w, func(w io.Writer) (int64, error) { return s.Backup(w, n.written()) })
	})
	return r, s.Size, backend.StorageVersion, nil
}

// unlessStalled writes a backup, and ends that once nothing of it has been read for long. Until the end of a backup the file keeps all pages
// of it, and grows with what is written meanwhile, up to the quota, at which the cluster refuses writes: a client that
// stands still, though it answers pings, must not go so far.
func (n *Node) unlessStalled(w *io.PipeWriter, write func(io.Writer) (int64, error)) (int64, error) {
	stalled := time.AfterFunc(n.cfg.BackupStall, func() {
		n.log.Warn("a backup is given up: nothing of it has been read for too long", zap.Duration("after", n.cfg.BackupStall))
		w.CloseWithError(fmt.Errorf("the backup is given up: nothing of it has been read for %v", n.cfg.BackupStall))
	})
	defer stalled.Stop()
	return write(progress{w, func() { stalled.Reset(n.cfg.BackupStall) }})
}

// progress tells of each write that begins.
type progress struct {
	io.Writer
	made func()
}

func (p progress) Write(b []byte) (int, error) {
	p.made()
	return p.Writer.Write(b)
}

// written returns a function that tells whether there have been writes since it was
// asked last.
func (n *Node) written() func() bool {
	last := n.Revision()
	return func() bool {
		before := last
		last = n.Revision()
		return last != before
	}
}

// MoveLeader hands leadership to another member.
func (n *Node) MoveLeader(ctx context.Context, to uint64) error {
	c := n.core.Load()
	if !c.replica.Leading() {
		return fault.NotLeader
	}
	if m := c.machine.Membership().Find(to); m == nil || m.GetIsLearner() {
		return fault.BadLeaderTransfer
	}
	if to == n.cfg.ID {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, n.cfg.requestTimeout())
	defer cancel()
	if n.transfer(ctx, c, to) != nil {
		return fault.Timeout
	}
	return nil
}

// Members lists the cluster.
func (n *Node) Members(ctx context.Context, linearizable bool) ([]*pb.Member, error) {
	c := n.core.Load()
	if linearizable {
		var err error
		if c, err = n.strict(ctx, placement.Of(0)); err != nil { // the core in its place may be behind it
			return nil, err
		}
	}
	return c.machine.Members(), nil
}

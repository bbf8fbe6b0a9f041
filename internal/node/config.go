package node

import (
	"context"
	"crypto/tls"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.uber.org/zap"
	"golang.org/x/crypto/bcrypt"

	"github.com/stoa-kv/stoa/internal/bootstrap"
	"github.com/stoa-kv/stoa/internal/metrics"
	"github.com/stoa-kv/stoa/internal/token"
	"github.com/stoa-kv/stoa/internal/tracing"
	"github.com/stoa-kv/stoa/internal/transport"
	"github.com/stoa-kv/stoa/internal/version"
)

// Config is what a node needs to know. Sizes are in bytes.
type Config struct {
	ID, ClusterID uint64
	// Members are the servers of the cluster when it was bootstrapped, this one
	// included. A data directory that holds a cluster already knows its own.
	Members []*pb.Member
	// Joins says that the cluster exists, Members are its present members, and that it
	// sends its state to a server whose data directory is empty.
	Joins bool
	// StrictReconfig refuses changes of members that put the quorum at risk. MaxLearners
	// bounds the members without a vote.
	StrictReconfig bool
	MaxLearners    int
	// Balance lets this server, while it leads, move slots between partitions to even out their load.
	Balance bool
	// ForceNewCluster makes a member that has taken part in its cluster the only one of it.
	ForceNewCluster bool
	// Runs reports whether the server of another member answers, so that it isn't lost. It may take a few seconds, and is called by
	// several goroutines, before ForceNewCluster. nil: none does.
	Runs func(*pb.Member) bool
	// Known are the levels that this server says it knows; zero: those of this program. Tests
	// set an earlier release's.
	Known version.Known
	// Name and ClientURLs are announced to the cluster once there is a leader. With an
	// empty Name the member keeps the one that it has.
	Name       string
	ClientURLs []string
	// Registry is the record of this data directory and of those of the other members;
	// nil: there is none. Begun says, by that record, that the server has taken part in
	// its cluster: its file and its log must exist.
	Registry *bootstrap.Registry
	Begun    bool

	DataDir string // holds member/snap/db
	WALDir  string // empty: member/wal in DataDir
	// Partitions is P for a new data directory; 0: 1. One that exists has its own.
	Partitions int

	Tick     time.Duration // heartbeat interval
	Election time.Duration // election timeout

	FlushInterval  time.Duration // how often changed stores are written to the file
	CatchUpEntries uint64        // log entries kept in memory for slow followers
	CatchUpBytes   int64         // and the bytes of them in all groups
	SegmentBytes   int64         // of the write-ahead log; 0: the default
	StepPause      time.Duration // at least, between two steps of moving keys

	QuotaBytes      int64       // of the backend file; <= 0: no quota
	ExtensionMemory int64       // bytes that extensions may keep; beyond them the server ends; 0: any
	MayWatch        func() bool // tells whether there is memory for another watch; nil: always
	MaxRequestBytes int
	// DefragmentAt is how many bytes a defragmentation must free for the file to be
	// defragmented at the start; 0: never.
	DefragmentAt int64

	// CheckInterval is the time between two comparisons of the members' states, while this one leads; 0:
	// they are only compared when a fenced one asks for it.
	CheckInterval time.Duration
	// InitialCheck keeps the server from being ready before a check has agreed with the state that it has loaded, as
	// long as others can be compared with.
	InitialCheck bool
	// BackupStall is for how long a backup may not be read until it is given up; <= 0: 10 min.
	BackupStall time.Duration
	// ScrubPass is the time between two comparisons of memory and file; <= 0: 10 s.
	ScrubPass time.Duration

	Compaction AutoCompaction
	// WarningApply is the time beyond which a read, or the application of an entry, is
	// logged as slow; <= 0: none is.
	WarningApply time.Duration

	PeerTLS *tls.Config

	// Caller returns the client ID of a request, for extensions; nil: all are anonymous.
	Caller func(ctx context.Context) (client string, lease int64)

	// Credentials returns how the client of a request proves who it is; nil: it doesn't.
	Credentials func(ctx context.Context) Credentials
	// Detach is called before a Range waits or takes long, with its context; nil: not at all.
	Detach func(ctx context.Context)
	// Called is called when an extension has handled a request that is otherwise a read, with its context; nil: not at all.
	Called func(ctx context.Context)
	// Tokens are those that clients get for their passwords. With the zero value nobody can
	// authenticate by a password.
	Tokens token.Kind
	// BcryptCost is the cost of the hashes of new passwords; 0: bcrypt's default.
	BcryptCost int

	// Fatal is called, at most once, when the server can't go on: its disk
	// failed, or its data contradicts itself. It should log the error and end the
	// process. nil: the error is logged, and nothing more is written.
	Fatal func(error)
	// Removed is called, at most once, when the server was removed from its cluster. It
	// should end the process in order. nil: that is only logged.
	Removed func()
	Logger  *zap.Logger
	Metrics *metrics.Metrics // nil: kept, and not shown
	Observe Observe
	Tracer  *tracing.Tracer // nil: no request is traced
}

// Observe has callbacks for tests and metrics. Fields may be nil.
type Observe struct {
	// WALSync is called after each sync of the log. The log waits for it.
	WALSync   func(time.Duration)
	Transport *transport.Metrics
	// ExtensionCalled must be quick: the partitions that the call concerns wait.
	ExtensionCalled func(ExtensionCall)
}

func (c *Config) setDefaults() {
	def := func(d *time.Duration, v time.Duration) {
		if *d <= 0 {
			*d = v
		}
	}
	def(&c.Tick, 100*time.Millisecond)
	def(&c.Election, 10*c.Tick)
	def(&c.FlushInterval, 100*time.Millisecond)
	def(&c.StepPause, 5*time.Millisecond)
	def(&c.ScrubPass, 10*time.Second)
	def(&c.BackupStall, 10*time.Minute)
	if c.Known == (version.Known{}) {
		c.Known = version.This
	}
	if c.CatchUpEntries == 0 {
		c.CatchUpEntries = 5000
	}
	if c.CatchUpBytes == 0 {
		c.CatchUpBytes = maxLogBytes
	}
	if c.Logger == nil {
		c.Logger = zap.NewNop()
	}
	if c.Metrics == nil {
		c.Metrics = metrics.New()
	}
	if c.Partitions == 0 {
		c.Partitions = 1
	}
	if c.Caller == nil {
		c.Caller = func(context.Context) (string, int64) { return "", 0 }
	}
	if c.Detach == nil {
		c.Detach = func(context.Context) {}
	}
	if c.Called == nil {
		c.Called = func(context.Context) {}
	}
	if c.Credentials == nil {
		c.Credentials = func(context.Context) Credentials { return Credentials{} }
	}
	if c.BcryptCost == 0 {
		c.BcryptCost = bcrypt.DefaultCost
	}
	if c.Observe.Transport == nil {
		c.Observe.Transport = transport.NewMetrics()
	}
}

// requestTimeout is how long a request may take, as in etcd: time for a disk,
// and for an election to fail and one to succeed.
func (c *Config) requestTimeout() time.Duration { return 5*time.Second + 2*c.Election }

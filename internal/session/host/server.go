package host

import (
	"sync/atomic"
	"time"

	"github.com/stoa-kv/stoa/internal/apply"
	"github.com/stoa-kv/stoa/internal/placement"
	"github.com/stoa-kv/stoa/internal/replica"
	"github.com/stoa-kv/stoa/internal/session"
	"github.com/stoa-kv/stoa/internal/store"
	"github.com/stoa-kv/stoa/internal/tenant"
	"github.com/stoa-kv/stoa/internal/throttle"
	"github.com/stoa-kv/stoa/internal/watch"
)

// Server is what surrounds the sessions. Its methods may be called from any goroutine.
type Server interface {
	// State is the present life of the replicated state. It waits while there is none.
	State() *State
	Hub() *watch.Hub
	Now() time.Time
	// Go calls f soon, but not before it returns itself.
	Go(f func())
	// After calls f in a while, in the same way, unless stop is called before.
	After(d time.Duration, f func()) (stop func())
	// Renew prolongs a session's lease, as its user. It doesn't wait for that; done says what came
	// of it, and is never called if the server stops.
	Renew(id int64, user uint64, done func(error))
	// Grows is told of a write of so many bytes before it is proposed, and of 0 bytes if
	// extensions may write because of it. It raises the NOSPACE alarm if it finds no room.
	// It doesn't wait and doesn't refuse: that is the log's part, once the alarm is in it.
	//
	// A refusal here would be an outcome that nothing remembers. The session's next writes
	// take effect; sent again on another stream, this one would come behind them, or a
	// write that has taken effect already would be answered with an error. In the log it is
	// an outcome as any other, kept by (session, number). The price is that the writes
	// which are in flight until the alarm is applied may exceed the quota; each session has
	// at most its window of them. A unary write, of etcd as of stoa, is checked at the same
	// point against a size that lacks those in flight, and so exceeds it likewise.
	// Without a leader the alarm doesn't get into the log, but writes don't either; an
	// alarm that failed is raised again with the next write.
	Grows(bytes int)
	// Unreadable is told why history could not be read for a session's watches.
	Unreadable(id int64, err error)
}

// State is one life of a server's replicated state: from a recovery to the next.
type State struct {
	Machine *apply.Machine
	Replica *replica.Replica
	Stores  []*store.Store
	// Owes reports whether partitions don't show yet what they had shown, or users and roles are older than they were, before a snapshot took this
	// server back: reads that ask no leader wait for that. It may be called from any goroutine. nil: none does.
	Owes func(placement.Set) bool
}

func (s *State) owes(parts placement.Set) bool { return s.Owes != nil && s.Owes(parts) }

// shows is the revision that all of the partitions show here. It waits for an apply that
// holds a store's lock.
func (s *State) shows(parts placement.Set) int64 {
	rev := int64(everything)
	for p := range parts.Each() {
		s.Stores[p].RLock()
		rev = min(rev, s.Replica.Visible(p))
		s.Stores[p].RUnlock()
	}
	return rev
}

// closed is the revision through which all of the partitions are closed here. It may be
// below what they show already, for a moment. It takes no lock.
func (s *State) closed(parts placement.Set) int64 {
	rev := int64(everything)
	for p := range parts.Each() {
		rev = min(rev, s.Replica.Closed(p))
	}
	return rev
}

// Config is what differs from server to server. Zero values take the default, or
// mean that there is no limit.
type Config struct {
	RequestTimeout  time.Duration // how long a request may take
	MaxRequestBytes int
	FlushBytes      int // a message to the client ends about here
	MergeBytes      int // of events that wait for a watch that is behind, before others are received
	Counts          *Counts
	// Lane admits writes for which extensions have work. nil: they all go on.
	Lane *throttle.Lane
	// Limits are the rates of tenants. nil: there are none.
	Limits *tenant.Limits
	// Ended hears, once, that the session that speaks to a sink has ended here.
	Ended func(sink session.Sink, why error)
}

func (c *Config) setDefaults() {
	if c.FlushBytes == 0 {
		c.FlushBytes = 64 << 10
	}
	if c.MergeBytes == 0 {
		c.MergeBytes = 2 << 20
	}
	if c.Counts == nil {
		c.Counts = new(Counts)
	}
	if c.Ended == nil {
		c.Ended = func(session.Sink, error) {}
	}
}

// Counts are what sessions have done.
type Counts struct {
	Reads     atomic.Int64
	Failed    atomic.Int64 // writes that were refused
	Pipelined atomic.Int64 // writes sent while the one before was under way
	Rerouted  atomic.Int64 // requests whose keys had moved
	Lagging   atomic.Int64 // runs of reads that had to wait for this server
}

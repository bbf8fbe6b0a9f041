package migrate

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/stoa-kv/stoa/client/mirror"
	"github.com/stoa-kv/stoa/client/mirror/cluster"
)

// MarkKey is the key of the target that has the progress while a migration is not finished.
const MarkKey = "/stoa/migration"

// Config is that of a migration.
type Config struct {
	From, To *clientv3.Client
	// Overwrite accepts a target that has keys: those that differ from the source's are
	// replaced or deleted. It is for one that was restored from a snapshot of the source.
	Overwrite bool
	// CutOver ends the migration as soon as the source has had no write for Quiet.
	CutOver bool
	Quiet   time.Duration // 3 s if 0
	// MaxTxnOps is the target's --max-txn-ops, 128 if 0.
	MaxTxnOps int
	Observer  Observer
}

// Observer is told how a migration goes on, from one goroutine at a time unless said
// otherwise. Functions may be nil.
type Observer struct {
	// Began: mark is the one that the target had, false if there was none.
	Began func(mark mirror.Mark, resumed bool)
	// Copied: so many of the source's keys are compared, and so many were written or
	// deleted. Often.
	Copied func(keys, total, written int64)
	// Following is called about once a second.
	Following func(Status)
	// Verified: both sides are equal at a place.
	Verified func(mirror.Place, mirror.Sum)
	// Unverified: the source has been compacted each time before both sides could be compared
	// while it is written. They will be at the cut-over.
	Unverified func()
	// CuttingOver: the source is quiet.
	CuttingOver func()
	// Postponed: the cut-over was given up, for this reason, until the source is quiet again.
	Postponed func(error)
	// Retrying: a request failed and is sent again. From several goroutines.
	Retrying func(error)
}

// Status is how far a migration is.
type Status struct {
	Revision int64 // of the source, that the target has
	Behind   int64 // revisions that it doesn't have
	Verified bool  // both sides have been compared, or can't be while the source is written
	Quiet    bool  // the source has had no write for Config.Quiet
}

// Result describes a finished migration.
type Result struct {
	Place  mirror.Place
	Sum    mirror.Sum // of both sides
	Leases int
}

// Errors of a migration that can't go on.
var (
	ErrSame      = errors.New("source and target are the same cluster")
	ErrUnfit     = errors.New("the source can't be migrated")
	ErrDifferent = errors.New("source and target differ")
)

// Times of the loop.
const (
	defaultQuiet = 3 * time.Second
	poll         = 250 * time.Millisecond
	tell         = time.Second
)

// near is how far behind, in revisions, the target may be for the two to be compared while
// the source is written.
const near = 1000

// inFlight is the number of transactions, or requests about leases, at a time.
const inFlight = 8

type migration struct {
	Config
	source *cluster.Source
	target *cluster.Target
	e      *mirror.Executor

	total     int64 // keys in the source when the copy began
	comparing chan comparison
	compacted int // comparisons that failed since a side was compacted
	verified  bool
	told      time.Time
	revision  int64 // that the target has
	since     time.Time
}

type comparison struct {
	place mirror.Place
	mirror.Comparison
	err error
}

// Run migrates until the context ends, there is an error, or, with Config.CutOver, the
// migration is finished. If it ends before, the next Run goes on.
func Run(ctx context.Context, c Config) (Result, error) {
	if c.Quiet == 0 {
		c.Quiet = defaultQuiet
	}
	m := &migration{Config: c, source: cluster.NewSource(c.From, cluster.All), target: cluster.NewTarget(c.To, cluster.All, MarkKey)}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	if err := m.check(ctx); err != nil {
		return Result{}, err
	}
	if err := m.open(ctx); err != nil {
		return Result{}, err
	}
	defer m.e.Close()
	for {
		r, done, err := m.step(ctx)
		if done || err != nil {
			return r, err
		}
	}
}

func (m *migration) open(ctx context.Context) error {
	limits := cluster.DefaultLimits
	if m.MaxTxnOps > 0 {
		limits.Ops = max(m.MaxTxnOps-cluster.MarkOps, 1)
	}
	var before mirror.Mark
	value, at, err := m.target.Mark(ctx)
	if err == nil && at != 0 {
		before, err = mirror.ParseMark(value)
	}
	if err != nil {
		return fmt.Errorf("target: %w", err)
	}
	m.e, err = mirror.Open(ctx, mirror.Config{
		Source: m.source, Target: guarded{m.target, m}, Owner: owner(), Limits: limits, Writers: inFlight,
		Overwrite: m.Overwrite, Retry: cluster.Retry(m.Observer.Retrying), Compared: m.copied,
	})
	if err == nil && m.Observer.Began != nil {
		m.Observer.Began(before, at != 0)
	}
	return err
}

// owner is a name that no other process has.
func owner() string {
	host, _ := os.Hostname()
	return fmt.Sprintf("%s pid %d %s", host, os.Getpid(), rand.Text()[:8])
}

func (m *migration) copied(keys, written int64) {
	if m.Observer.Copied != nil {
		m.Observer.Copied(keys, max(m.total, keys), written)
	}
}

// step writes what has changed, and looks at what is next.
func (m *migration) step(ctx context.Context) (r Result, done bool, err error) {
	if m.total == 0 {
		if err := m.count(ctx); err != nil {
			return r, false, err
		}
	}
	wait, cancel := context.WithTimeout(ctx, poll)
	err = m.e.Next(ctx, wait)
	cancel()
	if errors.Is(err, errExtended) {
		return r, false, m.extended(ctx)
	}
	if err != nil || time.Since(m.told) < min(tell, m.Quiet) {
		return r, false, err
	}
	m.told = time.Now()
	st, err := m.status(ctx)
	if err != nil {
		return r, false, err
	}
	if m.Observer.Following != nil {
		m.Observer.Following(st)
	}
	if !st.Verified && st.Behind <= near {
		return r, false, m.verify(ctx)
	}
	if !m.CutOver || st.Behind > 0 || !st.Quiet {
		return r, false, nil
	}
	if r, err = m.cutOver(ctx); !errors.Is(err, errMoved) {
		return r, err == nil, err
	}
	if m.Observer.Postponed != nil {
		m.Observer.Postponed(err)
	}
	m.e.Repeat()
	m.since = time.Now()
	return r, false, nil
}

func (m *migration) count(ctx context.Context) error {
	r, err := m.From.Get(ctx, "\x00", clientv3.WithFromKey(), clientv3.WithCountOnly())
	if err == nil {
		m.total = max(r.Count, 1)
	} else if cluster.Transient(err) && ctx.Err() == nil {
		err = nil // it is only shown
	}
	return err
}

func (m *migration) status(ctx context.Context) (Status, error) {
	if err := m.e.Check(ctx); err != nil {
		return Status{}, err
	}
	behind, err := m.e.Behind(ctx)
	if err != nil {
		return Status{}, err
	}
	mark := m.e.Mark()
	if mark.Revision != m.revision || behind > 0 || m.since.IsZero() {
		m.revision, m.since = mark.Revision, time.Now()
	}
	return Status{Revision: mark.Revision, Behind: behind, Verified: m.verified, Quiet: time.Since(m.since) >= m.Quiet}, nil
}

// verify compares both sides while the mirror goes on.
func (m *migration) verify(ctx context.Context) error {
	if m.comparing == nil {
		if m.e.Mark().Phase != mirror.At {
			return nil
		}
		m.comparing = make(chan comparison, 1)
		go func(at mirror.Place, done chan<- comparison) {
			c, err := mirror.Compare(ctx, m.source, m.target, at, false)
			done <- comparison{at, c, err}
		}(m.e.Place(), m.comparing)
	}
	select {
	case c := <-m.comparing:
		m.comparing = nil
		if errors.Is(c.err, mirror.ErrCompacted) {
			m.tooSlow()
			return nil
		}
		if c.err != nil && cluster.Transient(c.err) && ctx.Err() == nil {
			return nil // again
		}
		if err := c.check(); err != nil {
			return err
		}
		m.verified = true
		if m.Observer.Verified != nil {
			m.Observer.Verified(c.place, c.Source)
		}
	default:
	}
	return nil
}

// comparisons is how often both sides are compared in vain.
const comparisons = 3

func (m *migration) tooSlow() {
	if m.compacted++; m.compacted < comparisons {
		return
	}
	m.verified = true
	if m.Observer.Unverified != nil {
		m.Observer.Unverified()
	}
}

func (c *comparison) check() error {
	switch {
	case c.err != nil:
		return c.err
	case c.Different != nil:
		return fmt.Errorf("%w: at revision %d of the source, %d of the target, key %q is the first; the source has %s, the target %s: "+
			"does anything else write to the target? Remove its mark (%s) and its keys, and begin again",
			ErrDifferent, c.place.Source, c.place.Target, c.Different, c.Source, c.Target, MarkKey)
	}
	return nil
}

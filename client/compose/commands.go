package compose

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"

	"github.com/stoa-kv/stoa/client/commands"
	"github.com/stoa-kv/stoa/client/commands/queue"
	"github.com/stoa-kv/stoa/client/internal/engine"
	"github.com/stoa-kv/stoa/client/mirror"
)

// Commands is a client's queue of commands that concern several clusters. Each command is carried
// out once in every cluster of the queue's set, in the order of the queue, which keeps that of each
// client's calls; whatever crashes. In each cluster it takes effect as a whole; at one moment in all
// of them it doesn't. Between Send and Done, each part is like another client's update.
//
// An executor has to run somewhere: [Client.CarryOut]. All methods may be called by several
// goroutines.
type Commands struct {
	c   *Client
	set []string
	at  []int // the clusters' numbers in the composition
	q   *queue.Client
	off func() bool
}

// CommandFuture is a command that was sent: Taken waits until it is in the queue, where it
// outlives its client; Done until all clusters have had it. What the client reads after Done
// shows it.
type CommandFuture = queue.Future

// Errors of commands, beside those of a cluster that refuses them.
var (
	// ErrCommand: the command has operations that a queue doesn't take.
	ErrCommand = errors.New("compose: only puts and deletions of single keys, without leases, can be commands")
	// ErrCommandTooLarge: the command has more operations or bytes than one transaction may have.
	ErrCommandTooLarge = commands.ErrTooLarge
	// ErrCommandUnknown: the client was cut off for longer than its lease (60 s) while the
	// command was on its way: it may be in the queue or not.
	ErrCommandUnknown = queue.ErrUnknown
)

// Commands opens the queue of a set of clusters, all if none is named. Commands have an order
// only among those of the same queue, so those that change the same keys have to use the same
// set; it may be larger than their keys need.
func (c *Client) Commands(clusters ...string) (*Commands, error) {
	if err := c.check(); err != nil {
		return nil, err
	}
	set, err := c.shared.set(clusters)
	if err != nil {
		return nil, err
	}
	s := &Commands{c: c, set: set}
	for _, name := range set {
		s.at = append(s.at, slices.Index(c.core.routes.names, name))
	}
	s.q = queue.NewClient(queue.ClientConfig{
		Clusters: set, Dial: c.shared.dial, Limits: queue.Limits(0), Pending: c.core.cfg.Pending, Had: s.had,
		Retrying: func(cluster string, _ error) { c.shared.suspect(cluster) },
	})
	s.off = context.AfterFunc(c.core.ctx, s.q.Close)
	return s, nil
}

// set is the clusters with these names, all if there are none.
func (s *shared) set(names []string) ([]string, error) {
	if len(names) == 0 {
		names = slices.Collect(maps.Keys(s.cfg.Clusters))
	}
	for _, name := range names {
		if _, ok := s.cfg.Clusters[name]; !ok {
			return nil, errors.New("compose: there is no cluster " + name)
		}
	}
	_, set := queue.Of(names)
	return set, nil
}

// dial returns the client of a cluster, and waits until it can.
func (s *shared) dial(ctx context.Context, name string) (*clientv3.Client, error) {
	return s.clusters[slices.Index(s.routes.names, name)].dialAgain(ctx, nil)
}

// suspect has a member of a cluster left if it keeps silent, or is cut off from the others.
func (s *shared) suspect(name string) { s.clusters[slices.Index(s.routes.names, name)].suspect() }

// suspecting has members left that may be the reason for an error of an executor, in one cluster or, if none is named, in any of its set.
// It goes on with the same clients.
func (s *shared) suspecting(set []string, tell func(string, error)) func(string, error) {
	return func(cluster string, err error) {
		for _, name := range set {
			if cluster == "" || cluster == name {
				s.suspect(name)
			}
		}
		if tell != nil {
			tell(cluster, err)
		}
	}
}

// Send appends a command to the queue: puts and deletions of single keys, without leases and
// without other options. It doesn't wait for an answer, only for room when Config.Pending
// commands have none.
func (s *Commands) Send(ops ...clientv3.Op) *CommandFuture {
	var all commands.Command
	for _, op := range ops {
		one, err := s.op(op)
		if err != nil {
			return queue.Failed(err)
		}
		all = append(all, one)
	}
	if len(all) == 0 {
		return queue.Failed(fmt.Errorf("%w: it has no operation", ErrCommand))
	}
	return s.q.Send(all)
}

// op translates an operation for its cluster.
func (s *Commands) op(op clientv3.Op) (one commands.Op, err error) {
	m, err := engine.Message(op)
	if err != nil {
		return one, err
	}
	at, err := s.c.core.routes.place(m)
	if err != nil {
		return one, err
	}
	if at.locked { // executors look at no locks
		return one, fmt.Errorf("%w: a command", ErrTransactions)
	}
	if one.Cluster = slices.Index(s.at, at.cluster); one.Cluster < 0 {
		return one, fmt.Errorf("%w: cluster %q is not in the queue's set", ErrSpans, s.c.core.routes.names[at.cluster])
	}
	switch m := at.message.(type) {
	case *pb.PutRequest:
		if m.Lease == 0 && !m.PrevKv && !m.IgnoreLease && !m.IgnoreValue {
			one.Op = mirror.Op{Key: m.Key, Value: m.Value}
			return one, nil
		}
	case *pb.DeleteRangeRequest:
		if len(m.RangeEnd) == 0 && !m.PrevKv {
			one.Op = mirror.Op{Key: m.Key, Delete: true}
			return one, nil
		}
	}
	return one, ErrCommand
}

// had makes later reads of the client show what the clusters have had.
func (s *Commands) had(revisions []int64) {
	for i, revision := range revisions {
		if revision > 0 {
			s.c.core.saw(s.at[i], revision)
		}
	}
}

// Close ends the use of the queue by this client. Commands that are in it are carried out.
func (s *Commands) Close() {
	s.off()
	s.q.Close()
}

// CarryOutOptions are those of Client.CarryOut.
type CarryOutOptions struct {
	// Sets are the queues, by the clusters of each: one of all clusters if there are none.
	Sets [][]string
	// MaxTxnOps is the clusters' --max-txn-ops: 128 if 0.
	MaxTxnOps int
	// Persist is as in queue.Config.
	Persist time.Duration
	// Observe returns the observer of a queue's executor. It may be nil.
	Observe func(set []string) queue.Observer
}

// CarryOut runs the executors of queues in this process, until ctx ends: nil, or until each has
// ended with an error that an operator has to look at. Any number of processes may do so; each
// queue is worked on by one of them. It is best called next to the first cluster of the set, by
// name.
func (c *Client) CarryOut(ctx context.Context, o CarryOutOptions) error {
	if err := c.check(); err != nil {
		return err
	}
	sets := o.Sets
	if len(sets) == 0 {
		sets = [][]string{nil}
	}
	var queues []queue.Config
	for _, names := range sets {
		set, err := c.shared.set(names)
		if err != nil {
			return err
		}
		q := queue.Config{Clusters: set, Dial: c.shared.dial, MaxTxnOps: o.MaxTxnOps, Persist: o.Persist}
		if o.Observe != nil {
			q.Observer = o.Observe(set)
		}
		q.Observer.Failed, q.Observer.Retrying = c.shared.suspecting(set, q.Observer.Failed), c.shared.suspecting(set, q.Observer.Retrying)
		queues = append(queues, q)
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(c.core.ctx, cancel)()
	ended := make(chan error, len(queues))
	for _, q := range queues {
		go func() {
			err := queue.Run(ctx, q)
			if err != nil {
				err = fmt.Errorf("compose: the queue of %v: %w", q.Clusters, err)
			}
			ended <- err
		}()
	}
	var all []error
	for range queues {
		all = append(all, <-ended)
	}
	return errors.Join(all...)
}

// CommandStatus reads how far the queue of a set of clusters is, all if none is named.
func (c *Client) CommandStatus(ctx context.Context, clusters ...string) (queue.Status, error) {
	if err := c.check(); err != nil {
		return queue.Status{}, err
	}
	set, err := c.shared.set(clusters)
	if err != nil {
		return queue.Status{}, err
	}
	return queue.Read(ctx, set, func(ctx context.Context, name string, with func(context.Context, *clientv3.Client) error) error {
		return c.shared.clusters[slices.Index(c.shared.routes.names, name)].asked(ctx, with)
	})
}

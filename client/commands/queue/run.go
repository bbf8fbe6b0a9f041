package queue

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/stoa-kv/stoa/client/commands"
	"github.com/stoa-kv/stoa/client/internal/elect"
	"github.com/stoa-kv/stoa/client/mirror"
	"github.com/stoa-kv/stoa/client/mirror/cluster"
)

// Config is that of an executor. Clusters and Dial are needed.
type Config struct {
	// Clusters are the names of the set.
	Clusters []string
	// Dial returns the client of a cluster, and waits until it can.
	Dial func(ctx context.Context, cluster string) (*clientv3.Client, error)
	// MaxTxnOps is the --max-txn-ops of all clusters: 128 if 0.
	MaxTxnOps int
	// TTL is the time after which another executor is elected if this one dies: whole
	// seconds, 10 s if 0.
	TTL time.Duration
	// Persist is the time after which an executor begins again that has ended with an error for an
	// operator; until then another one may be elected. 0: Run returns the error.
	Persist  time.Duration
	Observer Observer
}

// Observer is told how an executor goes on. Its functions may be nil, must not block, and are called
// from several goroutines.
type Observer struct {
	// Waiting: another executor may be elected. Elected: it is this one.
	Waiting, Elected func()
	// Carried: so many commands were carried out in a cluster, up to the mark.
	Carried func(cluster string, commands int, mark commands.Mark)
	// Finished: all clusters have had the commands up to an entry.
	Finished func(commands.Done)
	// Looked is called about once in a second.
	Looked func(Look)
	// Failed: the executor, or its work in one cluster if that is named, begins again. Retrying: a
	// request is sent again.
	Failed, Retrying func(cluster string, err error)
}

const (
	defaultTTL = 10 * time.Second
	// pause is between a failure of the work in one cluster and the next attempt.
	pause = time.Second
)

// Run carries out the commands of a queue until the context ends, nil, or an operator has to decide.
func Run(ctx context.Context, c Config) error {
	if c.TTL < time.Second {
		c.TTL = defaultTTL
	}
	x := &executor{Config: c, limits: Limits(c.MaxTxnOps)}
	x.keys, x.set = Of(c.Clusters)
	return elect.Terms(ctx, x.term, final, x.Persist, func(err error) { x.failed("", err) })
}

// Limits are those of a command: it has to be one transaction of each cluster, beside the mark,
// and one entry.
func Limits(maxTxnOps int) mirror.Limits {
	l := cluster.DefaultLimits
	if maxTxnOps > 0 {
		l.Ops = max(maxTxnOps-cluster.MarkOps, 1)
	}
	return l
}

// final reports errors that don't pass by themselves, and that only an operator can do
// something about.
func final(err error) bool {
	for _, f := range []error{commands.ErrOtherQueue, commands.ErrForm,
		rpctypes.ErrPermissionDenied, rpctypes.ErrAuthFailed, rpctypes.ErrUserEmpty} {
		if errors.Is(err, f) {
			return true
		}
	}
	return false
}

type executor struct {
	Config
	limits mirror.Limits
	keys   Keys
	set    []string
}

// term is from an election to the loss of the lease.
type term struct {
	*executor
	home     *clientv3.Client
	owner    string
	ended    context.CancelCauseFunc
	progress chan struct{} // 1: a carrier has passed entries

	mu       sync.Mutex
	carriers []*commands.Carrier // nil: not begun
	newest   int64               // entry that a carrier has read
}

func (x *executor) term(ctx context.Context) error {
	if x.Observer.Waiting != nil {
		x.Observer.Waiting()
	}
	home, err := x.Dial(ctx, x.set[0])
	if err != nil {
		return err
	}
	elected, leave, err := elect.Campaign(ctx, home, x.keys.candidates(), x.TTL)
	if err != nil {
		return fmt.Errorf("election in cluster %q: %w", x.set[0], err)
	}
	defer leave()
	if x.Observer.Elected != nil {
		x.Observer.Elected()
	}
	working, end := context.WithCancelCause(elected)
	defer end(nil)
	t := &term{
		executor: x, home: home, owner: elect.Name(), ended: end,
		progress: make(chan struct{}, 1), carriers: make([]*commands.Carrier, len(x.set)),
	}
	var work sync.WaitGroup
	for i, name := range x.set {
		work.Go(func() { t.again(working, name, func() error { return t.carry(working, i) }) })
	}
	work.Go(func() { t.again(working, x.set[0], func() error { return t.finish(working) }) })
	if x.Observer.Looked != nil {
		work.Go(func() { t.look(working) })
	}
	work.Wait()
	return elect.LeaseLost(ctx, elected, context.Cause(working))
}

// again does a part of the work, anew after each failure, until ctx ends. An error that is
// final ends the term.
func (t *term) again(ctx context.Context, name string, do func() error) {
	for {
		err := do()
		switch {
		case ctx.Err() != nil:
			return
		case final(err):
			t.ended(fmt.Errorf("cluster %q: %w", name, err))
			return
		}
		t.failed(name, err)
		if !sleep(ctx, pause) {
			return
		}
	}
}

func (x *executor) failed(name string, err error) {
	if x.Observer.Failed != nil {
		x.Observer.Failed(name, err)
	}
}

// retry is a mirror.Config.Retry for requests to a cluster.
func (x *executor) retry(name string) func(context.Context, error) bool {
	return cluster.Retry(func(err error) {
		if x.Observer.Retrying != nil {
			x.Observer.Retrying(name, err)
		}
	})
}

func sleep(ctx context.Context, d time.Duration) bool {
	select {
	case <-time.After(d):
		return true
	case <-ctx.Done():
		return false
	}
}

package queue

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"sync"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/stoa-kv/stoa/client/commands"
	"github.com/stoa-kv/stoa/client/mirror"
	"github.com/stoa-kv/stoa/client/mirror/cluster"
)

// Errors of commands that are not known to be in the queue.
var (
	// ErrUnknown: the client was cut off for longer than its lease, while the command was on its
	// way: it may be in the queue or not.
	ErrUnknown = errors.New("whether the command is in the queue is unknown")
	// ErrBehind: a command before this one failed with ErrUnknown. This one was not sent.
	ErrBehind = errors.New("not sent, because the outcome of an earlier command is unknown")
	// ErrClosed: Close was called. The command may be in the queue if it was on its way.
	ErrClosed = errors.New("the client of the queue is closed")
)

// ClientConfig is that of a client. Clusters and Dial are needed.
type ClientConfig struct {
	// Clusters are the names of the set.
	Clusters []string
	// Dial returns the client of a cluster, and waits until it can.
	Dial func(ctx context.Context, cluster string) (*clientv3.Client, error)
	// Limits are those of a command.
	Limits mirror.Limits
	// Pending is the number of commands without an answer at which Send waits: 8,192 if 0.
	Pending int
	// TTL is that of the client's lease, whole seconds: 60 s if 0. A client that is cut off for
	// longer may have commands of unknown outcome.
	TTL time.Duration
	// Had is called before a command is told to be done, with revisions at which the clusters,
	// in the order of the set, have had it: 0 for one that never had any. It may be nil.
	Had func(revisions []int64)
	// Retrying: a request to a cluster failed and is sent again. It may be nil, and must not block.
	Retrying func(cluster string, err error)
}

// Client appends the commands of one client to a queue, in the order of its calls. It may be used by
// several goroutines.
type Client struct {
	cfg  ClientConfig
	keys Keys
	home string
	ctx  context.Context
	end  context.CancelFunc
	work sync.WaitGroup
	more chan struct{} // 1: a command waits
	room chan struct{} // 1: commands were taken

	watching sync.Once

	mu      sync.Mutex
	closed  bool
	waiting []sent // not known to be in the queue, in order
	taken   []taken
	done    commands.Done // the latest that is known
}

type sent struct {
	command commands.Command
	future  *Future
}

type taken struct {
	entry  int64
	future *Future
}

const (
	defaultTTLOfClient = 60 * time.Second
	defaultPending     = 8192
	// batchBytes is the size of a batch at which the next one begins.
	batchBytes = 128 << 10
)

// NewClient makes a client. It connects to the queue's cluster when the first command is sent.
func NewClient(c ClientConfig) *Client {
	if c.TTL < time.Second {
		c.TTL = defaultTTLOfClient
	}
	if c.Pending <= 0 {
		c.Pending = defaultPending
	}
	q := &Client{cfg: c, more: make(chan struct{}, 1), room: make(chan struct{}, 1)}
	var set []string
	q.keys, set = Of(c.Clusters)
	q.home = set[0]
	q.ctx, q.end = context.WithCancel(context.Background())
	q.work.Go(q.run)
	return q
}

// Send appends a command behind those before it. It waits only when too many have no answer.
func (q *Client) Send(c commands.Command) *Future {
	if err := c.Check(q.cfg.Limits); err != nil {
		return Failed(err)
	}
	for {
		q.mu.Lock()
		switch {
		case q.closed:
			q.mu.Unlock()
			return Failed(ErrClosed)
		case len(q.waiting) < q.cfg.Pending:
			f := new(Future)
			q.waiting = append(q.waiting, sent{c, f})
			q.mu.Unlock()
			signal(q.more)
			return f
		}
		q.mu.Unlock()
		select {
		case <-q.room:
		case <-q.ctx.Done():
		}
	}
}

func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// Close ends the client. Commands that are in the queue are carried out nevertheless.
func (q *Client) Close() {
	q.mu.Lock()
	q.closed = true
	q.mu.Unlock()
	q.end()
	q.work.Wait()
}

// run is a client of the queue after the other, each with a lease.
func (q *Client) run() {
	defer q.abandon()
	for {
		select {
		case <-q.more:
		case <-q.ctx.Done():
			return
		}
		err := q.open()
		switch {
		case q.ctx.Err() != nil:
			return
		case errors.Is(err, commands.ErrExpired):
			signal(q.more) // what waits is sent by the next one
		default:
			q.refuse(0, nil, err)
		}
	}
}

// abandon fails what has no answer in the end.
func (q *Client) abandon() {
	q.refuse(0, nil, ErrClosed)
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, t := range q.taken {
		t.future.done.Resolve(0, ErrClosed)
	}
	q.taken = nil
}

// refuse fails all commands that wait: those of the batch on its way, the first so many, with an
// error of their own.
func (q *Client) refuse(flying int, theirs, others error) {
	q.mu.Lock()
	waiting := q.waiting
	q.waiting = nil
	q.mu.Unlock()
	for i, s := range waiting {
		if i < flying {
			s.future.fail(theirs)
		} else {
			s.future.fail(others)
		}
	}
	signal(q.room)
}

// open makes a client's key in the queue and sends batches until its lease is lost.
func (q *Client) open() error {
	home, err := q.cfg.Dial(q.ctx, q.home)
	if err != nil {
		return err
	}
	q.watching.Do(func() { q.work.Go(func() { q.watch(q.ctx, home) }) })
	ctx, cancel := context.WithCancel(q.ctx)
	defer cancel()
	b := &batches{Client: q, home: home, name: rand.Text(), sender: commands.NewSender(batchBytes)}
	defer b.revoke()
	if err := b.grant(ctx); err != nil {
		return err
	}
	return b.send(ctx) // what waits is sent first
}

// batches are those of one client's key.
type batches struct {
	*Client
	home   *clientv3.Client
	name   string
	lease  clientv3.LeaseID
	sender *commands.Sender
	added  int // commands of waiting that the sender has
}

// retry repeats requests to the queue's cluster.
func (q *Client) retry(ctx context.Context, err error) bool {
	return cluster.Retry(q.retrying)(ctx, err)
}

func (q *Client) retrying(err error) {
	if q.cfg.Retrying != nil {
		q.cfg.Retrying(q.home, err)
	}
}

// grant makes the lease and the key.
func (b *batches) grant(ctx context.Context) error {
	for {
		asking, cancel := context.WithTimeout(ctx, requestTimeout)
		granted, err := b.home.Grant(asking, int64(b.cfg.TTL/time.Second))
		if err == nil {
			b.lease = granted.ID
			_, err = b.home.Put(asking, b.keys.client(b.name), "", clientv3.WithLease(b.lease))
		}
		cancel()
		switch {
		case err == nil:
			alive, err := b.home.KeepAlive(ctx, b.lease)
			if err == nil {
				go drain(alive)
			}
			return err
		case !b.retry(ctx, err):
			return err
		}
		b.name = rand.Text() // a late put of the key before has a key of its own
	}
}

// drain takes what etcd's client tells of a lease: a batch finds out that it has ended.
func drain(alive <-chan *clientv3.LeaseKeepAliveResponse) {
	for range alive { //nolint:revive // there is nothing to do
	}
}

func (b *batches) revoke() {
	if b.lease == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	_, _ = b.home.Revoke(ctx, b.lease) // else it expires
}

func (b *batches) send(ctx context.Context) error {
	for {
		b.collect()
		number, value, ok := b.sender.Batch()
		if !ok {
			select {
			case <-b.more:
			case <-ctx.Done():
				return ctx.Err()
			}
			continue
		}
		if err := b.batch(ctx, number, value); err != nil {
			return err
		}
	}
}

// collect gives the sender the commands that came.
func (b *batches) collect() {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, s := range b.waiting[b.added:] {
		b.sender.Add(s.command)
	}
	b.added = len(b.waiting)
}

// batch sends one batch, again while its answer is lost.
func (b *batches) batch(ctx context.Context, number int64, value []byte) error {
	lost := false
	for {
		a, err := b.ask(ctx, number, value)
		if err != nil && b.retry(ctx, err) {
			lost = true
			continue
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if err == nil {
			var n int
			var entry int64
			if n, entry, err = b.sender.Answered(a); err == nil {
				b.answered(n, entry)
				return nil
			}
		}
		if lost || !refused(err) {
			b.refuse(b.sender.Flying(), fmt.Errorf("%w: %w", ErrUnknown, err), ErrBehind)
		}
		return err
	}
}

// refused reports errors that a cluster has answered: the transaction had no effect.
func refused(err error) bool {
	var by rpctypes.EtcdError
	return errors.Is(err, commands.ErrExpired) || errors.As(err, &by)
}

func (b *batches) ask(ctx context.Context, number int64, value []byte) (a commands.Answer, err error) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	key := b.keys.client(b.name)
	r, err := b.home.Txn(ctx).If(clientv3.Compare(clientv3.Version(key), "=", number)).
		Then(clientv3.OpPut(b.keys.entry(b.name, number), string(value)), clientv3.OpPut(key, "", clientv3.WithLease(b.lease))).
		Else(clientv3.OpGet(key)).Commit()
	switch {
	case errors.Is(err, rpctypes.ErrLeaseNotFound): // it ended just now
		return commands.Answer{}, nil
	case err != nil:
		return a, err
	case r.Succeeded:
		return commands.Answer{Taken: true, Revision: r.Header.Revision}, nil
	}
	if kvs := r.Responses[0].GetResponseRange().GetKvs(); len(kvs) > 0 {
		a = commands.Answer{Revision: kvs[0].ModRevision, Version: kvs[0].Version}
	}
	return a, nil
}

// answered tells that the first commands are in the queue.
func (b *batches) answered(n int, entry int64) {
	b.mu.Lock()
	first := b.waiting[:n]
	b.waiting = b.waiting[n:]
	b.added -= n
	had := b.done
	if entry > had.Entry {
		for _, s := range first {
			b.taken = append(b.taken, taken{entry, s.future})
		}
	}
	b.mu.Unlock()
	signal(b.room)
	if entry <= had.Entry && b.cfg.Had != nil {
		b.cfg.Had(had.Revisions)
	}
	for _, s := range first {
		s.future.taken.Resolve(entry, nil)
		if entry <= had.Entry {
			s.future.done.Resolve(entry, nil)
		}
	}
}

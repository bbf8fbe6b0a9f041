package node

import (
	"context"
	"errors"
	"sync"
	"time"

	"google.golang.org/protobuf/proto"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"

	"github.com/stoa-kv/stoa/internal/apply"
	"github.com/stoa-kv/stoa/internal/command"
	"github.com/stoa-kv/stoa/internal/fault"
	"github.com/stoa-kv/stoa/internal/kvwire"
	"github.com/stoa-kv/stoa/internal/placement"
	"github.com/stoa-kv/stoa/internal/tenant"
)

// newest asks the machine for the newest state that the partitions are closed through.
const newest = 0

// Range reads: strictly, unless the request is serializable.
func (n *Node) Range(ctx context.Context, r *pb.RangeRequest) (*kvwire.RangeResponse, error) {
	n.counts.ranges.Add(1)
	began := n.clock()
	resp, err := n.find(ctx, r)
	n.noteRange(r, resp, began, err)
	return resp, err
}

// RangeOn reads on in a range that a request has asked for. It is no request of its own: it counts for no
// rate, and if no extension has handled that one, none handles this, though it may be within what an
// extension subscribes to.
func (n *Node) RangeOn(ctx context.Context, r *pb.RangeRequest) (*kvwire.RangeResponse, error) {
	return n.Range(context.WithValue(tenant.WithCounted(ctx), onKey{}, true), r)
}

// onKey marks the context of a read that goes on in a range.
type onKey struct{}

func (n *Node) find(ctx context.Context, r *pb.RangeRequest) (*kvwire.RangeResponse, error) {
	if len(r.GetRangeEnd()) > 0 || r.GetRevision() > 0 { // many keys, or a file
		n.cfg.Detach(ctx)
	}
	who, err := n.admitAs(ctx, r)
	if err != nil {
		return nil, err
	}
	return as(ctx, n, &who, func(who identity) (*kvwire.RangeResponse, error) { return n.findAs(ctx, r, who) })
}

func (n *Node) findAs(ctx context.Context, r *pb.RangeRequest, who identity) (*kvwire.RangeResponse, error) {
	again := false
	return routed(ctx, n, func(c *core) (*kvwire.RangeResponse, error) {
		parts := c.machine.Placement().Range(r.GetKey(), r.GetRangeEnd())
		if r.GetSerializable() && !c.back(parts) {
			return nil, fault.Moved // until this server is back where it was
		}
		if p, handled, err := n.handled(ctx, c, command.Range, r, who); handled {
			if err != nil {
				return nil, err
			}
			resp, err := extended[*pb.RangeResponse](ctx, n, c, command.Range, r, p, who, &again)
			return kvwire.OfRange(resp), err
		}
		if !r.GetSerializable() {
			var err error
			if c, err = n.strictPlain(ctx, parts, command.Range, r, who); err != nil {
				return nil, err
			}
		}
		floor, began := n.hub.Floor(), n.clock()
		resp, err := c.machine.Range(r, parts, newest, who.user)
		n.cfg.Metrics.Server.Ranged(time.Duration(n.clock()-began), err == nil)
		if err == nil && resp.Header.GetRevision() < floor || future(err, r.GetRevision(), floor) {
			return nil, fault.Moved // see watch.Hub.Floor: another partition may have to come back, too
		}
		return resp, c.retryIfReplaced(err)
	})
}

// future reports whether a read at a revision was refused because this server doesn't know it, though watches
// have announced it here.
func future(err error, at, floor int64) bool {
	return at <= floor && errors.Is(err, fault.FutureRevision)
}

// latest is the highest revision at which a transaction reads.
func latest(r *pb.TxnRequest) (at int64) {
	for _, ops := range [2][]*pb.RequestOp{r.GetSuccess(), r.GetFailure()} {
		for _, op := range ops {
			at = max(at, op.GetRequestRange().GetRevision(), latest(op.GetRequestTxn()))
		}
	}
	return at
}

// retryIfReplaced turns the error of a read that failed while a snapshot
// replaced this core into one that makes the caller retry on the new one: this
// one's file has been closed.
func (c *core) retryIfReplaced(err error) error {
	if err != nil && c.stale.Load() {
		return fault.Moved
	}
	return err
}

// readTxn evaluates a transaction without writes.
func (n *Node) readTxn(ctx context.Context, r *pb.TxnRequest) (*pb.TxnResponse, error) {
	began := n.clock()
	resp, err := n.evaluate(ctx, r)
	n.noteReadTxn(r, resp, began, err)
	return resp, err
}

func (n *Node) evaluate(ctx context.Context, r *pb.TxnRequest) (*pb.TxnResponse, error) {
	who, err := n.admitAs(ctx, r)
	if err != nil {
		return nil, err
	}
	return as(ctx, n, &who, func(who identity) (*pb.TxnResponse, error) { return n.evaluateAs(ctx, r, who) })
}

func (n *Node) evaluateAs(ctx context.Context, r *pb.TxnRequest, who identity) (*pb.TxnResponse, error) {
	again := false
	return routed(ctx, n, func(c *core) (*pb.TxnResponse, error) {
		parts, serializable := c.machine.Parts(r), apply.Serializable(r)
		if serializable && !c.back(parts) {
			return nil, fault.Moved // until this server is back where it was
		}
		if p, handled, err := n.handled(ctx, c, command.Txn, r, who); handled {
			if err != nil {
				return nil, err
			}
			return extended[*pb.TxnResponse](ctx, n, c, command.Txn, r, p, who, &again)
		}
		if !serializable {
			var err error
			if c, err = n.strictPlain(ctx, parts, command.Txn, r, who); err != nil {
				return nil, err
			}
		}
		floor := n.hub.Floor()
		resp, err := c.machine.ReadTxn(r, parts, newest, who.user)
		if err == nil && resp.Header.GetRevision() < floor || future(err, latest(r), floor) {
			return nil, fault.Moved // as a range is
		}
		return resp, c.retryIfReplaced(err)
	})
}

// strict waits until this server may answer a linearizable read of the
// partitions, and returns the core to read from. The replica bounds how long the first
// attempt takes; all others together have as long again.
func (n *Node) strict(ctx context.Context, parts placement.Set) (*core, error) {
	c, err := n.present(ctx)
	if err != nil {
		return nil, err
	}
	if err = n.readPoint(ctx, c, parts); err == nil {
		return c, nil
	}
	n.cfg.Metrics.Server.ReadIndexesFailed.Inc()
	ctx, cancel := n.limited(ctx)
	defer cancel()
	// A read can be tried again without harm: another leader may answer it.
	for fault.Passing(err) {
		if err := n.pause(ctx, shortly); err != nil {
			return nil, err
		}
		if c, err = n.present(ctx); err != nil {
			return nil, err
		}
		if err = n.readPoint(ctx, c, parts); err == nil {
			return c, nil
		}
	}
	return nil, err
}

// strictPlain is strict for a request that no extension handles, as far as this server knew.
func (n *Node) strictPlain(ctx context.Context, parts placement.Set, kind command.Kind, req proto.Message, who identity) (*core, error) {
	c, err := n.strict(ctx, parts)
	if err != nil {
		return nil, err
	}
	if _, handled, _ := n.handled(ctx, c, kind, req, who); handled {
		return nil, fault.Moved // this server has just learned of one
	}
	return c, nil
}

// strictAll is strict for all partitions.
func (n *Node) strictAll(ctx context.Context) (*core, error) {
	return routed(ctx, n, func(asked *core) (*core, error) {
		parts := asked.machine.Placement().All()
		c, err := n.strict(ctx, parts)
		if err == nil && c.machine.Placement().All() != parts {
			return nil, fault.Moved
		}
		return c, err
	})
}

// limited returns a context that ends, with fault.Timeout, once a request has taken too
// long.
func (n *Node) limited(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeoutCause(ctx, n.cfg.requestTimeout(), fault.Timeout)
}

// answers are reused; each is empty when it is in the pool.
var answers = sync.Pool{New: func() any { return make(chan error, 1) }}

func (n *Node) readPoint(ctx context.Context, c *core, parts placement.Set) error {
	answer := answers.Get().(chan error)
	c.replica.ReadPoint(parts, func(err error) { answer <- err })
	select {
	case err := <-answer:
		answers.Put(answer)
		return err
	default:
	}
	n.cfg.Detach(ctx)
	began := n.clock()
	defer func() {
		if n.clock()-began > int64(slowReadPoint) {
			n.cfg.Metrics.Server.SlowReadIndexes.Inc()
		}
	}()
	select {
	case err := <-answer:
		answers.Put(answer)
		return err
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// slowReadPoint is the time after which etcd asks for a read point again.
const slowReadPoint = 500 * time.Millisecond

// shortly is when something that is bound to change soon is looked at again.
const shortly = 10 * time.Millisecond

// pause waits, unless the caller or the server leaves.
func (n *Node) pause(ctx context.Context, d time.Duration) error {
	n.cfg.Detach(ctx)
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-n.life.Done():
		return fault.Stopped
	}
}

package node

import (
	"context"
	"fmt"
	"time"

	"google.golang.org/protobuf/proto"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"

	"github.com/stoa-kv/stoa/internal/apply"
	"github.com/stoa-kv/stoa/internal/command"
	"github.com/stoa-kv/stoa/internal/extension"
	"github.com/stoa-kv/stoa/internal/fault"
	"github.com/stoa-kv/stoa/internal/kvwire"
	"github.com/stoa-kv/stoa/internal/replica"
	"github.com/stoa-kv/stoa/internal/throttle"
)

// Put writes one key.
func (n *Node) Put(ctx context.Context, r *pb.PutRequest) (*pb.PutResponse, error) {
	return write[*pb.PutResponse](ctx, n, r)
}

// DeleteRange deletes the keys of a range.
func (n *Node) DeleteRange(ctx context.Context, r *pb.DeleteRangeRequest) (*pb.DeleteRangeResponse, error) {
	return write[*pb.DeleteRangeResponse](ctx, n, r)
}

// Txn carries out a transaction; one that can't write doesn't go through the
// log.
func (n *Node) Txn(ctx context.Context, r *pb.TxnRequest) (*pb.TxnResponse, error) {
	n.counts.txns.Add(1)
	if apply.ReadOnly(r) {
		return n.readTxn(ctx, r)
	}
	return write[*pb.TxnResponse](ctx, n, r)
}

// write has a client's write carried out and waits for its outcome.
func write[R proto.Message](ctx context.Context, n *Node, req proto.Message) (R, error) {
	kind, who, err := n.admitWrite(ctx, req)
	if err != nil {
		var none R
		return none, err
	}
	return submitAs[R](ctx, n, kind, req, who)
}

// admitWrite finds the user of a write, or refuses what need not be executed to know that it is refused.
func (n *Node) admitWrite(ctx context.Context, req proto.Message) (kind command.Kind, who identity, err error) {
	switch r := req.(type) {
	case *pb.PutRequest:
		who, err = n.admitPut(ctx, r)
		return command.Put, who, err
	case *pb.DeleteRangeRequest:
		who, err = n.admitAs(ctx, r)
		return command.DeleteRange, who, err
	case *pb.TxnRequest:
		who, err = n.admitTxn(ctx, r)
		return command.Txn, who, err
	}
	return 0, who, fault.Internal.With(fmt.Sprintf("%T is no write", req))
}

func (n *Node) admitPut(ctx context.Context, r *pb.PutRequest) (identity, error) {
	if err := n.admit(ctx, len(r.GetKey())+len(r.GetValue())); err != nil {
		return identity{}, err
	}
	who, err := n.admitAs(ctx, r)
	if err != nil {
		return who, err
	}
	if role, _, _ := extension.Parse(r.GetKey()); role == extension.Source {
		n.cfg.Detach(ctx) // it is compiled
		if err := n.core.Load().machine.Verify(r, who.user); err != nil {
			return who, err
		}
	}
	return who, n.overQuota(ctx, r, who)
}

// admitTxn refuses a transaction whose puts there is no room for. One without any passes, as in etcd:
// what deletes makes room.
func (n *Node) admitTxn(ctx context.Context, r *pb.TxnRequest) (identity, error) {
	if bytes := kvwire.PutBytes(r); bytes > 0 {
		if err := n.admit(ctx, bytes); err != nil {
			return identity{}, err
		}
	}
	return n.admitAs(ctx, r)
}

// Compact forgets the history below a revision. With Physical it returns when
// the file has forgotten it too.
func (n *Node) Compact(ctx context.Context, r *pb.CompactionRequest) (*pb.CompactionResponse, error) {
	resp, err := submitSystem[*pb.CompactionResponse](ctx, n, command.Compact, r)
	if err != nil || !r.GetPhysical() {
		return resp, err
	}
	return resp, n.swept(ctx, r.GetRevision())
}

// swept waits until the file holds no revision any more that a compaction at
// rev has dropped. It flushes meanwhile, throttled to a fifth of the time.
func (n *Node) swept(ctx context.Context, rev int64) error {
	for {
		c, err := n.present(ctx)
		if err != nil || c.swept.Load() >= rev {
			return err
		}
		began := time.Now()
		if err := n.flushFor(ctx); err != nil {
			return err
		}
		if err := n.pause(ctx, max(shortly, 4*time.Since(began))); err != nil {
			return err
		}
	}
}

// submitAs submits the command of a user and waits for its outcome.
func submitAs[R proto.Message](ctx context.Context, n *Node, kind command.Kind, req proto.Message, who identity) (R, error) {
	again := false
	return as(ctx, n, &who, func(who identity) (R, error) {
		return routed(ctx, n, func(c *core) (R, error) {
			p, err := n.plan(ctx, c, kind, req, who, again)
			again = true
			if err != nil {
				var none R
				return none, err
			}
			return carryOut[R](ctx, n, c, kind, req, &p, who.user, false)
		})
	})
}

// plan routes a write of a client, or refuses it; again says that it has come back from where it
// was sent.
func (n *Node) plan(ctx context.Context, c *core, kind command.Kind, req proto.Message, who identity, again bool) (apply.Plan, error) {
	var foreign error
	p := c.machine.Plan(kind, req, func() (id string, lease int64) {
		id, lease, foreign = n.asking(ctx, c, req, who.user)
		return id, lease
	})
	if foreign != nil {
		return p, foreign
	}
	p.Parts |= c.machine.ForLeases(who.user, req) | c.machine.ForQuotas(req, again)
	return p, n.known(ctx, who)
}

// submitSystem submits a client's command of all partitions and waits for its outcome.
func submitSystem[R proto.Message](ctx context.Context, n *Node, kind command.Kind, req proto.Message) (R, error) {
	who, err := n.identify(ctx)
	if err != nil {
		var none R
		return none, err
	}
	return as(ctx, n, &who, func(who identity) (R, error) { return submitSystemAs[R](ctx, n, kind, req, who) })
}

func submitSystemAs[R proto.Message](ctx context.Context, n *Node, kind command.Kind, req proto.Message, who identity) (R, error) {
	if kind != command.MemberPublish {
		if err := n.known(ctx, who); err != nil {
			var none R
			return none, err
		}
	}
	return routed(ctx, n, func(c *core) (R, error) { // their number may change
		return carryOut[R](ctx, n, c, kind, req, &apply.Plan{Parts: c.machine.Placement().All()}, who.user, true)
	})
}

// carryOut is carry, timed.
func carryOut[R proto.Message](ctx context.Context, n *Node, c *core, kind command.Kind, req proto.Message, p *apply.Plan, user uint64, system bool) (R, error) {
	began := n.clock()
	resp, err := carry[R](ctx, n, c, kind, req, p, user, system)
	n.requested(kind, began, err)
	return resp, err
}

// carry submits a command of a user as planned, and waits for its outcome; system marks
// one that changes state shared by all partitions.
func carry[R proto.Message](ctx context.Context, n *Node, c *core, kind command.Kind, req proto.Message, p *apply.Plan, user uint64, system bool) (R, error) {
	var none R
	done := make(chan replica.Outcome, 1)
	err := n.submitPlanned(ctx, c, kind, req, p, user, system, func(out replica.Outcome) { done <- out })
	if err != nil {
		return none, err
	}
	select {
	case out := <-done:
		if out.Err != nil {
			n.counts.failed.Add(1)
			return none, out.Err
		}
		return out.Response.(R), nil
	case <-ctx.Done():
		return none, ctx.Err()
	}
}

// submitToAll has all partitions execute a command together, in an epoch (replica.Write), or in any for 0.
func (c *core) submitToAll(cmd command.Command, epoch uint64, done func(error)) {
	c.replica.Submit(&replica.Write{
		Command: cmd, Parts: c.machine.Placement().All(), System: true, Epoch: epoch,
		Done: func(out replica.Outcome) { done(out.Err) },
	})
}

// propose submits a command of the server's own, as submitToAll.
func (c *core) propose(epoch uint64, kind command.Kind, req proto.Message, done func(error)) {
	body, err := proto.Marshal(req)
	if err != nil {
		done(err)
		return
	}
	c.submitToAll(command.Command{Kind: kind, User: own(c), Body: body}, epoch, done)
}

// await waits for what begin tells done, once, or for the end of ctx.
func await(ctx context.Context, begin func(done func(error))) error {
	told := make(chan error, 1)
	begin(func(err error) { told <- err })
	select {
	case err := <-told:
		return err
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// submitPlanned is carry for a caller that doesn't wait. Without an error the outcome is given to done, from any goroutine.
func (n *Node) submitPlanned(ctx context.Context, c *core, kind command.Kind, req proto.Message, p *apply.Plan, user uint64, system bool, done func(replica.Outcome)) error {
	body, err := marshalled(req)
	if err != nil {
		return fmt.Errorf("encoding the request: %w: %w", err, fault.Internal)
	}
	w := &replica.Write{Command: p.Command(kind, body), Parts: p.Parts, System: system, Done: done}
	w.Command.User = user
	if n.cfg.MaxRequestBytes > 0 && len(w.Command.Body) > n.cfg.MaxRequestBytes {
		return fault.RequestTooLarge
	}
	if p.Load.Extension != "" {
		n.grows(0)
	}
	turn, err := n.turn(ctx, c, req, user, &p.Load)
	if err != nil {
		return err
	}
	if turn != nil {
		w.Done = func(out replica.Outcome) {
			turn.End()
			done(out)
		}
	}
	if n.cfg.Tracer != nil {
		w.Trace = follow(n.cfg.Tracer.Of(ctx))
	}
	c.replica.Submit(w)
	return nil
}

// marshalled is proto.Marshal; the most frequent commands, puts and brief transactions, are encoded
// by hand.
func marshalled(req proto.Message) ([]byte, error) {
	switch r := req.(type) {
	case *pb.PutRequest:
		p := kvwire.PutOf(r)
		return p.AppendTo(make([]byte, 0, p.Size())), nil
	case *pb.TxnRequest:
		if t, ok := kvwire.BriefTxn(r); ok {
			return t.AppendTo(make([]byte, 0, t.Size())), nil
		}
	}
	return proto.Marshal(req)
}

// turn waits until a request for which extensions have work may be proposed. The turn is to be
// ended with its outcome. A request that the log is going to refuse, for lack of a permission, makes
// no work, and isn't to hold up others.
func (n *Node) turn(ctx context.Context, c *core, req proto.Message, user uint64, load *apply.Load) (*throttle.Turn, error) {
	if load.Extension == "" || c.machine.Auth().May(user, req) != nil {
		return nil, nil
	}
	admitted := make(chan struct{})
	turn, now, err := n.lane.Enter(load.Extension, load.Cost, func() { close(admitted) })
	switch {
	case err != nil:
		return nil, fault.TooManyRequests
	case now:
		return turn, nil
	}
	n.cfg.Detach(ctx)
	ctx, cancel := n.limited(ctx)
	defer cancel()
	select {
	case <-admitted:
		return turn, nil
	case <-ctx.Done():
		turn.End()
		return nil, context.Cause(ctx)
	}
}

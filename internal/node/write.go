package node

import (
	"context"
	"fmt"
	"time"

	"go.uber.org/zap"
	"google.golang.org/protobuf/proto"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"

	"github.com/stoa-kv/stoa/internal/apply"
	"github.com/stoa-kv/stoa/internal/command"
	"github.com/stoa-kv/stoa/internal/fault"
	"github.com/stoa-kv/stoa/internal/replica"
	"github.com/stoa-kv/stoa/internal/throttle"
)

// Put writes one key.
func (n *Node) Put(ctx context.Context, r *pb.PutRequest) (*pb.PutResponse, error) {
	if err := n.admit(ctx, len(r.GetKey())+len(r.GetValue())); err != nil {
		return nil, err
	}
	if err := n.current().machine.Verify(r); err != nil {
		return nil, err
	}
	return submit[*pb.PutResponse](ctx, n, command.Put, r)
}

// DeleteRange deletes the keys of a range.
func (n *Node) DeleteRange(ctx context.Context, r *pb.DeleteRangeRequest) (*pb.DeleteRangeResponse, error) {
	return submit[*pb.DeleteRangeResponse](ctx, n, command.DeleteRange, r)
}

// Txn carries out a transaction; one that can't write doesn't go through the
// log.
func (n *Node) Txn(ctx context.Context, r *pb.TxnRequest) (*pb.TxnResponse, error) {
	n.counts.txns.Add(1)
	if apply.ReadOnly(r) {
		return n.readTxn(ctx, r)
	}
	if n.cfg.QuotaBytes > 0 {
		if err := n.admit(ctx, proto.Size(r)); err != nil {
			return nil, err
		}
	}
	return submit[*pb.TxnResponse](ctx, n, command.Txn, r)
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
	for n.current().swept.Load() < rev {
		began := time.Now()
		if err := n.flushNow(); err != nil {
			return err
		}
		if err := n.pause(ctx, max(shortly, 4*time.Since(began))); err != nil {
			return err
		}
	}
	return nil
}

// submit submits a command and waits for its outcome.
func submit[R proto.Message](ctx context.Context, n *Node, kind command.Kind, req proto.Message) (R, error) {
	return routed(ctx, n, func(c *core) (R, error) {
		p := c.machine.Plan(kind, req, func() (string, int64) { return n.cfg.Caller(ctx) })
		return carryOut[R](ctx, n, c, kind, req, &p, false)
	})
}

// submitSystem is submit for commands of all partitions.
func submitSystem[R proto.Message](ctx context.Context, n *Node, kind command.Kind, req proto.Message) (R, error) {
	c := n.current()
	return carryOut[R](ctx, n, c, kind, req, &apply.Plan{Parts: c.machine.Placement().All()}, true)
}

// carryOut is carry, timed.
func carryOut[R proto.Message](ctx context.Context, n *Node, c *core, kind command.Kind, req proto.Message, p *apply.Plan, system bool) (R, error) {
	began := n.clock()
	resp, err := carry[R](ctx, n, c, kind, req, p, system)
	n.requests[kind][success(err)].Observe(time.Duration(n.clock() - began))
	return resp, err
}

// carry submits a command as planned, and waits for its outcome; system marks
// one that changes state shared by all partitions.
func carry[R proto.Message](ctx context.Context, n *Node, c *core, kind command.Kind, req proto.Message, p *apply.Plan, system bool) (R, error) {
	var none R
	body, err := proto.Marshal(req)
	if err != nil {
		return none, fmt.Errorf("encoding the request: %w: %w", err, fault.Internal)
	}
	w := &replica.Write{Command: p.Command(kind, body), Parts: p.Parts, System: system}
	if n.cfg.MaxRequestBytes > 0 && len(w.Command.Body) > n.cfg.MaxRequestBytes {
		return none, fault.RequestTooLarge
	}
	done := make(chan replica.Outcome, 1)
	w.Done = func(out replica.Outcome) { done <- out }
	turn, err := n.turn(ctx, &p.Load)
	if err != nil {
		return none, err
	}
	if turn != nil {
		w.Done = func(out replica.Outcome) {
			turn.End()
			done <- out
		}
	}
	c.replica.Submit(w)
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

// turn waits until a request for which extensions have work may be proposed. The turn is to be
// ended with its outcome.
func (n *Node) turn(ctx context.Context, load *apply.Load) (*throttle.Turn, error) {
	if load.Extension == "" {
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

// The approximate overhead of a key in the file; etcd counts the same.
const keyOverhead = 512

func (n *Node) hasRoom(c *core, bytes int) bool {
	return n.cfg.QuotaBytes <= 0 || c.backend.Size()+int64(bytes)+keyOverhead <= n.cfg.QuotaBytes
}

// admit refuses writes beyond the quota, and raises the alarm before that: the
// client may look for it.
func (n *Node) admit(ctx context.Context, bytes int) error {
	c := n.current()
	if n.hasRoom(c, bytes) {
		return nil
	}
	n.alarming.Lock()
	defer n.alarming.Unlock()
	alarm := &pb.AlarmMember{MemberID: n.cfg.ID, Alarm: pb.AlarmType_NOSPACE}
	if len(missingFrom(c.machine.Alarms(), []*pb.AlarmMember{alarm})) == 0 {
		return fault.NoSpace
	}
	n.log.Warn("the backend file has reached its quota; raising the NOSPACE alarm",
		zap.Int64("bytes", c.backend.Size()), zap.Int64("quota", n.cfg.QuotaBytes))
	_, err := n.Alarm(ctx, &pb.AlarmRequest{
		Action: pb.AlarmRequest_ACTIVATE, Alarm: pb.AlarmType_NOSPACE, MemberID: n.cfg.ID,
	})
	if err != nil {
		n.log.Warn("raising the NOSPACE alarm failed", zap.Error(err))
	}
	return fault.NoSpace
}

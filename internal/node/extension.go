package node

import (
	"context"
	"errors"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"google.golang.org/protobuf/proto"

	"github.com/stoa-kv/stoa/internal/apply"
	"github.com/stoa-kv/stoa/internal/command"
	"github.com/stoa-kv/stoa/internal/fault"
	"github.com/stoa-kv/stoa/internal/placement"
)

// handled reports whether an extension answers a read-only request of this
// client, and the plan for it, or why the client is refused.
func (n *Node) handled(ctx context.Context, c *core, kind command.Kind, req proto.Message, who identity) (p apply.Plan, handled bool, err error) {
	p, handled = c.machine.PlanRead(kind, req, func() (id string, lease int64) {
		id, lease, err = n.asking(ctx, c, req, who.user)
		return id, lease
	})
	return p, handled && ctx.Value(onKey{}) == nil, err
}

// extended has an extension answer such a request; again says that it has come back from where it was
// sent, and is set.
func extended[R proto.Message](ctx context.Context, n *Node, c *core, kind command.Kind, req proto.Message, p apply.Plan, who identity, again *bool) (R, error) {
	n.cfg.Detach(ctx)
	p.Parts |= c.machine.ForQuotas(req, *again)
	*again = true
	resp, err := carryOut[R](ctx, n, c, kind, req, &p, who.user, false)
	if !errors.Is(err, fault.Moved) {
		n.cfg.Called(ctx)
	}
	return resp, once(err)
}

// once marks the error of a request that an extension handled and whose outcome
// is unknown: clients take such requests for reads and retry them by themselves
// after an error about leadership.
func once(err error) error {
	if fault.Passing(err) || errors.Is(err, fault.Timeout) {
		return fault.Uncertain.With("stoa: " + err.Error() + " while an extension was handling the request: whether it took effect is unknown")
	}
	return err
}

// OpenWatch has an extension answer the opening of a watch, if one does for this
// client (EZK §6.1.3): it may change what is watched, and give the first event. It returns the
// credential of the user for whom the watch is opened.
func (n *Node) OpenWatch(ctx context.Context, r *pb.WatchCreateRequest) (*mvccpb.Event, uint64, error) {
	who, err := n.admitAs(ctx, r)
	if err != nil {
		return nil, 0, err
	}
	resp, err := as(ctx, n, &who, func(who identity) (*pb.RangeResponse, error) { return n.openWatchAs(ctx, r, who) })
	if err != nil {
		return nil, 0, err
	}
	return apply.WatchAnswer(r, resp), who.user, n.mayWatch(ctx, r, who)
}

func (n *Node) openWatchAs(ctx context.Context, r *pb.WatchCreateRequest, who identity) (*pb.RangeResponse, error) {
	again := false
	return routed(ctx, n, func(c *core) (*pb.RangeResponse, error) {
		p, handled, err := n.handled(ctx, c, command.Watch, r, who)
		switch {
		case err != nil:
			return nil, err
		case !handled:
			return nil, n.plainWatch(ctx, c, r, who)
		}
		if err := n.hub.Room(who.user, r.GetKey(), r.GetRangeEnd()); err != nil {
			return nil, err // before the extension has done something for a watch that can't be opened
		}
		return extended[*pb.RangeResponse](ctx, n, c, command.Watch, r, p, who, &again)
	})
}

// mayWatch makes sure that a refusal, which the hub decides by what this server has applied,
// isn't for a permission that it hasn't applied yet.
func (n *Node) mayWatch(ctx context.Context, r *pb.WatchCreateRequest, who identity) error {
	if n.hub.Permits(who.user, r) == nil {
		return nil
	}
	_, err := n.strict(ctx, placement.Of(0))
	return err
}

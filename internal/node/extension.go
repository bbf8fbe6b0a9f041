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
)

// handled reports whether an extension answers a read-only request of this
// client, and the plan for it.
func (n *Node) handled(ctx context.Context, c *core, kind command.Kind, req proto.Message) (apply.Plan, bool) {
	return c.machine.PlanRead(kind, req, func() (string, int64) { return n.cfg.Caller(ctx) })
}

// extended has an extension answer such a request.
func extended[R proto.Message](ctx context.Context, n *Node, c *core, kind command.Kind, req proto.Message, p apply.Plan) (R, error) {
	resp, err := carryOut[R](ctx, n, c, kind, req, &p, false)
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
// client (EZK §6.1.3): it may change what is watched, and give the first event.
func (n *Node) OpenWatch(ctx context.Context, r *pb.WatchCreateRequest) (*mvccpb.Event, error) {
	resp, err := routed(ctx, n, func(c *core) (*pb.RangeResponse, error) {
		p, handled := n.handled(ctx, c, command.Watch, r)
		if !handled {
			return nil, n.plainWatch(ctx, c, r)
		}
		return extended[*pb.RangeResponse](ctx, n, c, command.Watch, r, p)
	})
	if err != nil {
		return nil, err
	}
	return apply.WatchAnswer(r, resp), nil
}

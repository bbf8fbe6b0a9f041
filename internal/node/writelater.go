package node

import (
	"context"
	"errors"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/protobuf/proto"

	"github.com/stoa-kv/stoa/internal/apply"
	"github.com/stoa-kv/stoa/internal/command"
	"github.com/stoa-kv/stoa/internal/fault"
	"github.com/stoa-kv/stoa/internal/replica"
)

// answer is the answer to a write.
type answer = interface {
	proto.Message
	GetHeader() *pb.ResponseHeader
}

// Write is Put, DeleteRange or Txn, by the type of the request, but that no goroutine waits for the
// outcome: done is called once, from any goroutine, perhaps before Write returns. It must not block.
//
// The end of ctx doesn't end the write: done is called with its outcome nevertheless.
func (n *Node) Write(ctx context.Context, req proto.Message, done func(resp answer, err error)) {
	if r, ok := req.(*pb.TxnRequest); ok {
		n.counts.txns.Add(1)
		if apply.ReadOnly(r) {
			done(n.readTxn(ctx, r))
			return
		}
	}
	kind, who, err := n.admitWrite(ctx, req)
	if err != nil {
		done(nil, err)
		return
	}
	n.submitLater(ctx, kind, req, who, done)
}

// submitLater is submitAs for a caller that doesn't wait. Only a write that has to be routed again,
// which is rare, has a goroutine.
func (n *Node) submitLater(ctx context.Context, kind command.Kind, req proto.Message, who identity, done func(answer, error)) {
	again := func() {
		resp, err := submitAs[answer](ctx, n, kind, req, who)
		done(resp, err)
	}
	c, err := n.present(ctx)
	if err != nil {
		done(nil, err)
		return
	}
	p, err := n.plan(ctx, c, kind, req, who, false)
	if err == nil {
		began := n.clock()
		err = n.submitPlanned(ctx, c, kind, req, &p, who.user, false, func(out replica.Outcome) {
			n.requested(kind, began, out.Err)
			switch {
			case out.Err == nil:
				done(out.Response.(answer), nil)
			case strayed(who, out.Err):
				go again()
			default:
				n.counts.failed.Add(1)
				done(nil, out.Err)
			}
		})
		if err == nil {
			return
		}
		n.requested(kind, began, err)
	}
	if strayed(who, err) {
		n.cfg.Detach(ctx)
		again()
		return
	}
	done(nil, err)
}

// strayed reports whether a write had no effect because this server didn't know where it belongs,
// or that it needs a user.
func strayed(who identity, err error) bool {
	return errors.Is(err, fault.Moved) || who.user == 0 && errors.Is(err, fault.UserEmpty)
}

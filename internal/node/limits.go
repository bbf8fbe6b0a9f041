package node

import (
	"context"

	"google.golang.org/protobuf/proto"

	"github.com/stoa-kv/stoa/internal/auth"
	"github.com/stoa-kv/stoa/internal/tenant"
)

// enforce puts a state of users, roles and quotas in force: for watches, those already open
// included, and for the rates of requests.
func (n *Node) enforce(c *core, now *auth.State) {
	if watches := n.limits.Change(now); watches != nil {
		c.feed.Permit(now.Revision, permitted(now), watches)
		return
	}
	c.feed.Permit(now.Revision, permitted(now), nil) // not an interface with a nil pointer in it
}

// limitedUser is the user whose requests may count for rates; false: none has one, the request
// is a part of one that has been counted, or it is going to be refused in any case.
func (n *Node) limitedUser(ctx context.Context, who identity) (*auth.User, bool) {
	if !n.limits.Rated() || tenant.Counted(ctx) {
		return nil, false
	}
	u, err := n.core.Load().machine.Auth().Authorize(who.user)
	return u, err == nil && u != nil
}

// admitAs finds the user of a request, and counts it for that one's rates, or refuses it. A request
// without keys may be nil.
func (n *Node) admitAs(ctx context.Context, req proto.Message) (identity, error) {
	who, err := n.identify(ctx)
	if err != nil {
		return who, err
	}
	if u, limited := n.limitedUser(ctx, who); limited {
		err = n.limits.Admit(u, tenant.Request{Message: req})
	}
	return who, err
}

// reserved counts a request that is delayed rather than refused, and waits until the rates
// allow it.
func (n *Node) reserved(ctx context.Context, who identity) error {
	u, limited := n.limitedUser(ctx, who)
	if !limited {
		return nil
	}
	wait, err := n.limits.Reserve(u)
	if err != nil || wait == 0 {
		return err
	}
	return n.pause(ctx, wait)
}

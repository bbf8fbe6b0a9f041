package node

import (
	"context"
	"errors"

	"github.com/stoa-kv/stoa/internal/fault"
	"github.com/stoa-kv/stoa/internal/placement"
	"github.com/stoa-kv/stoa/internal/replica"
)

// Calls that only the leader can answer: it alone knows when leases end, and what its followers have.
const (
	methodRenew      = replica.MethodFirstFree + iota // lease id → ttl
	methodTimeToLive                                  // LeaseTimeToLiveRequest → Response
	methodCaughtUp                                    // member id → nothing, or fault.LearnerNotReady
	methodShorten                                     // lease id, seconds → nothing
	methodBalance                                     // nothing → balance.Decision, in JSON
)

// callLeader has a call answered by the leader, which may be this server. If there has been none for as long as a request
// may take, the error says so, as etcd's does.
func (n *Node) callLeader(ctx context.Context, method uint32, body []byte) ([]byte, error) {
	answer, err := n.askLeader(ctx, method, body)
	if errors.Is(err, fault.Timeout) && n.Leader() == 0 {
		return nil, fault.NoLeader
	}
	return answer, err
}

func (n *Node) askLeader(ctx context.Context, method uint32, body []byte) ([]byte, error) {
	type answer struct {
		body []byte
		err  error
	}
	ctx, cancel := n.limited(ctx)
	defer cancel()
	for {
		done := make(chan answer, 1)
		reply := func(body []byte, err error) { done <- answer{body, err} }
		c, err := n.present(ctx)
		if err != nil {
			return nil, err
		}
		c.replica.CallLeader(method, body, func() { n.serve(n.core.Load(), method, body, reply) }, reply)
		select {
		case a := <-done:
			if !fault.Passing(a.err) && !errors.Is(a.err, fault.Moved) {
				return a.body, a.err
			}
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
		if err := n.pause(ctx, shortly); err != nil {
			return nil, err
		}
	}
}

// serve answers a call, after making sure that this server still leads.
func (n *Node) serve(c *core, method uint32, body []byte, reply func([]byte, error)) {
	parts := placement.Of(0) // what was acknowledged has been executed here in all of them, if this server leads
	if method == methodTimeToLive {
		parts = c.machine.Placement().All()
	}
	c.replica.ReadPoint(parts, func(err error) {
		if err != nil {
			reply(nil, err)
			return
		}
		switch method {
		case methodRenew:
			n.renew(c, body, reply)
		case methodShorten:
			n.shorten(c, body, reply)
		case methodTimeToLive:
			go func() { reply(n.timeToLive(c, body)) }() // it reads the stores
		case methodBalance:
			go n.answerBalance(c, reply) // it reads the stores
		case methodCaughtUp:
			go n.caughtUp(c, body, reply) // it takes Raft's locks
		default:
			reply(nil, fault.Internal)
		}
	})
}

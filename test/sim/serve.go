package sim

import (
	"errors"
	"time"

	"google.golang.org/protobuf/proto"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"

	"github.com/stoa-kv/stoa/internal/apply"
	"github.com/stoa-kv/stoa/internal/command"
	"github.com/stoa-kv/stoa/internal/fault"
	"github.com/stoa-kv/stoa/internal/placement"
	"github.com/stoa-kv/stoa/internal/replica"
	"github.com/stoa-kv/stoa/internal/store"
)

// serve does for a client what node's read.go and write.go do.
func (l *life) serve(o *op, answer func(proto.Message, error)) {
	reply := func(m proto.Message, err error) {
		if err != nil && l.replacing && !errors.Is(err, fault.Timeout) && !isFenced(err) { // which was due
			l.sv.c.fail("install", "%s fails because server %d installs a snapshot: %v", o, l.sv.id, err)
		}
		answer(m, err)
	}
	if l.fence.Now() != nil { // as package rpc
		reply(nil, fault.Fenced)
		return
	}
	if o.who != "" {
		l.extended(o, reply)
		return
	}
	user := o.user
	if err := l.rated(user, o.req); err != nil {
		reply(nil, err)
		return
	}
	if reads := isRead(o.req); l.sv.c.mutation.RightsAtArrival && !reads || l.sv.c.mutation.RightsBeforeRead && reads {
		var err error
		if user, err = l.admitted(user, o.req); err != nil {
			reply(nil, err)
			return
		}
	}
	switch r := o.req.(type) {
	case *pb.RangeRequest:
		l.read(o, r, func(c *core, parts placement.Set) (proto.Message, error) {
			resp, err := c.machine.Range(r, parts, 0, user)
			return resp.Message(), err
		}, reply)
	case *pb.TxnRequest:
		if apply.ReadOnly(r) {
			l.read(o, r, func(c *core, parts placement.Set) (proto.Message, error) {
				return c.machine.ReadTxn(r, parts, 0, user)
			}, reply)
			return
		}
		l.write(command.Txn, r, user, false, reply)
	case *pb.PutRequest:
		l.write(command.Put, r, user, false, reply)
	case *pb.DeleteRangeRequest:
		l.write(command.DeleteRange, r, user, false, reply)
	case *pb.CompactionRequest:
		l.write(command.Compact, r, user, true, reply)
	case *pb.LeaseGrantRequest:
		l.write(command.LeaseGrant, r, user, true, reply)
	case *pb.LeaseKeepAliveRequest:
		l.keepAlive(o, r.ID, apply.Renewer{User: user}, reply)
	case *pb.LeaseRevokeRequest:
		l.write(command.LeaseRevoke, r, user, true, reply)
	case *pb.LeaseTimeToLiveRequest:
		l.askTimeToLive(o, r, reply)
	case *pb.LeaseLeasesRequest:
		l.listLeases(o, reply)
	}
}

// write sends a write on its way, and again for a while if its keys move
// meanwhile.
func (l *life) write(kind command.Kind, req proto.Message, user uint64, system bool, reply func(proto.Message, error)) {
	deadline := l.sv.c.loop.now + requestTicks*tickInterval
	var try func()
	again := false
	done := func(out replica.Outcome) {
		switch {
		case errors.Is(out.Err, fault.Moved) && l.sv.c.loop.now <= deadline:
			l.sv.c.stats.Rerouted++
			l.after(10*time.Millisecond, "write again", uint64(kind), try)
		case errors.Is(out.Err, fault.Moved):
			reply(nil, fault.Timeout)
		case out.Err != nil:
			reply(nil, out.Err)
		default:
			reply(out.Response, nil)
		}
	}
	try = func() {
		p := l.core.machine.Plan(kind, req, anonymous)
		p.Parts |= l.forLeases(user, req) | l.core.machine.ForQuotas(req, again)
		again = true
		l.submit(kind, req, p, user, system, done)
	}
	try()
}

func anonymous() (client string, lease int64) { return "", 0 }

// read evaluates a read once this server may, and retries for a while during
// leader changes and moves of keys.
func (l *life) read(o *op, req proto.Message, eval func(*core, placement.Set) (proto.Message, error), reply func(proto.Message, error)) {
	var try func()
	deadline := l.sv.c.loop.now + requestTicks*tickInterval
	answer := func(c *core, parts placement.Set) {
		evaluate := func() {
			floor := l.hub.Floor()
			m, err := eval(c, parts)
			at := int64(0)
			if err == nil {
				at = m.(interface{ GetHeader() *pb.ResponseHeader }).GetHeader().GetRevision()
			}
			r, ranges := req.(*pb.RangeRequest)
			future := ranges && errors.Is(err, fault.FutureRevision) && r.GetRevision() <= floor
			switch behind := err == nil && at < floor || future; { // a snapshot has taken partitions back
			case errors.Is(err, fault.Moved):
				l.sv.c.stats.Rerouted++
				l.after(time.Millisecond, "read again", uint64(o.client), try)
			case behind && l.sv.c.loop.now > deadline:
				reply(nil, fault.Timeout)
			case behind:
				l.after(10*time.Millisecond, "read again", uint64(o.client), try)
			case err != nil:
				reply(nil, err)
			default:
				if !o.strict && at < c.shown[parts] {
					l.sv.c.fail("I1", "%s is answered at revision %d, after another at %d by the same server", o, at, c.shown[parts])
				}
				c.shown[parts] = at
				if !l.showable(o) {
					reply(nil, fault.Timeout)
					return
				}
				reply(m, nil)
			}
		}
		if l.sv.c.loop.chance(3) { // the goroutine has lost its processor
			l.after(l.between(0, 5*time.Millisecond), "evaluate", uint64(o.client), evaluate)
		} else {
			evaluate()
		}
	}
	try = func() {
		c := l.core
		parts := c.machine.Parts(req)
		if !o.strict {
			answer(c, parts)
			return
		}
		c.replica.ReadPoint(parts, func(err error) {
			switch {
			case err == nil:
				l.after(l.between(time.Microsecond, 100*time.Microsecond), "read", uint64(o.client), func() { answer(c, parts) })
			case !fault.Passing(err) && !errors.Is(err, fault.Moved):
				reply(nil, err)
			case l.sv.c.loop.now > deadline:
				reply(nil, fault.Timeout)
			default:
				l.after(10*time.Millisecond, "read again", uint64(o.client), try)
			}
		})
	}
	try()
}

// history reads for watchers that have to catch up.
func (l *life) history(p int, key, end []byte, from, to int64, bounds store.Bounds, prev bool) ([]store.Change, int64, error) {
	return l.core.stores[p].Changes(key, end, from, to, bounds, prev)
}

package sim

import (
	"errors"
	"time"

	"google.golang.org/protobuf/proto"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"

	"github.com/stoa-kv/stoa/internal/command"
	"github.com/stoa-kv/stoa/internal/fault"
	"github.com/stoa-kv/stoa/internal/placement"
	"github.com/stoa-kv/stoa/internal/replica"
	"github.com/stoa-kv/stoa/internal/store"
)

// serve does for a client what node's read.go and write.go do.
func (l *life) serve(o *op, reply func(proto.Message, error)) {
	switch r := o.req.(type) {
	case *pb.RangeRequest:
		l.read(o, l.core.placement.Range(r.Key, r.RangeEnd), func(c *core, at int64) (proto.Message, error) { return c.machine.Range(r, at) }, reply)
	case *pb.TxnRequest:
		parts := l.core.machine.Parts(r)
		if readOnly(r) {
			l.read(o, parts, func(c *core, at int64) (proto.Message, error) { return c.machine.ReadTxn(r, at) }, reply)
			return
		}
		l.write(command.Txn, r, parts, false, reply)
	case *pb.PutRequest:
		l.write(command.Put, r, l.core.machine.Parts(r), false, reply)
	case *pb.DeleteRangeRequest:
		l.write(command.DeleteRange, r, l.core.machine.Parts(r), false, reply)
	case *pb.CompactionRequest:
		l.write(command.Compact, r, l.core.placement.All(), true, reply)
	case *pb.LeaseGrantRequest:
		l.write(command.LeaseGrant, r, l.core.placement.All(), true, reply)
	case *pb.LeaseKeepAliveRequest:
		l.keepAlive(o, r.ID, reply)
	case *pb.LeaseRevokeRequest:
		l.write(command.LeaseRevoke, r, l.core.placement.All(), true, reply)
	}
}

func (l *life) write(kind command.Kind, req proto.Message, parts placement.Set, system bool, reply func(proto.Message, error)) {
	if parts.Len() > 1 {
		l.sv.c.stats.MultiPartition++
	}
	body, err := proto.Marshal(req)
	if err != nil {
		panic(err)
	}
	l.core.replica.Submit(&replica.Write{
		Command: command.Command{Kind: kind, Body: body}, Parts: parts, System: system,
		Done: func(out replica.Outcome) {
			if out.Err != nil {
				reply(nil, out.Err)
			} else {
				reply(out.Response, nil)
			}
		},
	})
}

// read evaluates a read once this server may, and tries again for a while if
// leadership is in the way.
func (l *life) read(o *op, parts placement.Set, eval func(*core, int64) (proto.Message, error), reply func(proto.Message, error)) {
	answer := func(c *core) {
		at := c.replica.Readable(parts)
		if !o.strict && at < c.shown[parts] {
			l.sv.c.fail("I1", "%s is answered at revision %d, after another at %d by the same server", o, at, c.shown[parts])
		}
		c.shown[parts] = at
		evaluate := func() {
			if m, err := eval(c, at); err != nil {
				reply(nil, err)
			} else {
				reply(m, nil)
			}
		}
		if l.sv.c.loop.chance(3) { // the goroutine has lost its processor
			l.after(l.between(0, 5*time.Millisecond), "evaluate", uint64(o.client), evaluate)
		} else {
			evaluate()
		}
	}
	if !o.strict {
		answer(l.core)
		return
	}
	deadline := l.sv.c.loop.now + requestTicks*tickInterval
	var try func()
	try = func() {
		c := l.core
		c.replica.ReadPoint(parts, func(err error) {
			switch {
			case err == nil:
				l.after(l.between(time.Microsecond, 100*time.Microsecond), "read", uint64(o.client), func() { answer(c) })
			case !passing(err):
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

func passing(err error) bool {
	for _, f := range [...]error{fault.LeaderChanged, fault.NotLeader, fault.TimeoutLeaderFail, fault.TimeoutConnLost, fault.Stopped} {
		if errors.Is(err, f) {
			return true
		}
	}
	return false
}

// history reads for watchers that have to catch up.
func (l *life) history(p int, key, end []byte, from, to int64, limit int, prev bool) ([]store.Change, int64, error) {
	return l.core.stores[p].Changes(key, end, from, to, limit, prev)
}

func readOnly(r *pb.TxnRequest) bool {
	for _, ops := range [...][]*pb.RequestOp{r.Success, r.Failure} {
		for _, op := range ops {
			if op.GetRequestRange() == nil {
				return false
			}
		}
	}
	return true
}

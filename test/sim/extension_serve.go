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
)

// extended serves a named client, as node does: requests that an extension
// handles go through the log, reads too.
func (l *life) extended(o *op, reply func(proto.Message, error)) {
	who := func() (string, int64) { return o.who, o.carries }
	deadline := l.sv.c.loop.now + requestTicks*tickInterval
	var try func()
	done := func(out replica.Outcome) {
		switch {
		case errors.Is(out.Err, fault.Moved) && l.sv.c.loop.now <= deadline,
			l.sv.c.mutation.CallTwice && errors.Is(out.Err, fault.TimeoutLeaderFail) && l.sv.c.loop.now <= deadline:
			l.sv.c.stats.Rerouted++
			l.after(10*time.Millisecond, "call again", uint64(o.client), try)
		case errors.Is(out.Err, fault.Moved):
			reply(nil, fault.Timeout)
		case out.Err != nil:
			reply(nil, out.Err)
		default:
			reply(out.Response, nil)
		}
	}
	again := false
	call := func(kind command.Kind, req proto.Message, p apply.Plan, done func(replica.Outcome)) {
		p.Parts |= l.forLeases(o.user, req) | l.core.machine.ForQuotas(req, again)
		again = true
		l.submit(kind, req, p, o.user, false, done)
	}
	try = func() {
		switch r := o.req.(type) {
		case *pb.RangeRequest:
			if p, handled := l.core.machine.PlanRead(command.Range, r, who); handled {
				call(command.Range, r, p, done)
				return
			}
			l.unhandled(o, command.Range, r, r, who, try, reply)
		case *pb.PutRequest:
			call(command.Put, r, l.core.machine.Plan(command.Put, r, who), done)
		case *pb.DeleteRangeRequest:
			call(command.DeleteRange, r, l.core.machine.Plan(command.DeleteRange, r, who), done)
		case *pb.WatchCreateRequest:
			if p, handled := l.core.machine.PlanRead(command.Watch, r, who); handled {
				call(command.Watch, r, p, l.opening(o, done))
				return
			}
			l.unhandledWatch(o, r, who, try, reply)
		}
	}
	try()
}

// errHandled means that a read must not be answered from the keys.
var errHandled = errors.New("an extension handles it")

// unhandled answers a request that no extension handles with a read, unless the server has learned
// of one by the time at which it may answer.
func (l *life) unhandled(o *op, kind command.Kind, req proto.Message, r *pb.RangeRequest, who apply.Caller, again func(), reply func(proto.Message, error)) {
	l.read(o, r, func(c *core, parts placement.Set) (proto.Message, error) {
		if _, handled := c.machine.PlanRead(kind, req, who); handled && !l.sv.c.mutation.ReadAsPlanned {
			return nil, errHandled
		}
		resp, err := c.machine.Range(r, parts, 0, o.user)
		return resp.Message(), err
	}, func(m proto.Message, err error) {
		if errors.Is(err, errHandled) {
			l.sv.c.stats.Rerouted++
			again()
			return
		}
		reply(m, err)
	})
}

// submit sends a request of a user on the way that was planned for it.
func (l *life) submit(kind command.Kind, req proto.Message, p apply.Plan, user uint64, system bool, done func(replica.Outcome)) {
	body, err := proto.Marshal(req)
	if err != nil {
		panic(err)
	}
	if p.Call != nil {
		l.sv.c.stats.Calls++
	}
	if p.Parts.Len() > 1 {
		l.sv.c.stats.MultiPartition++
	}
	w := &replica.Write{Command: p.Command(kind, body), Parts: p.Parts, System: system, Done: done}
	w.Command.User = user
	l.core.replica.Submit(w)
}

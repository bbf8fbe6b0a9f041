package apply

import (
	"cmp"
	"slices"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/protobuf/proto"

	"github.com/stoa-kv/stoa/internal/command"
	"github.com/stoa-kv/stoa/internal/extension"
	"github.com/stoa-kv/stoa/internal/placement"
	"github.com/stoa-kv/stoa/internal/throttle"
)

// Plan is how a request gets into the log.
type Plan struct {
	Parts placement.Set
	// Call is the wrapper of the request, nil if it concerns no extension.
	// Its body is still missing.
	Call *command.Call
	Load Load
}

// Load is the expected work of extensions for a request.
type Load struct {
	Extension string // the one with most of it
	throttle.Cost
}

// Command is the request as the plan has it in the log.
func (p *Plan) Command(kind command.Kind, body []byte) command.Command {
	if p.Call == nil {
		return command.Command{Kind: kind, Body: body}
	}
	p.Call.Body = body
	return command.Command{Kind: command.Extended, Body: p.Call.AppendTo(nil)}
}

// Caller identifies the client of a request: its id, "" for [Anonymous], and a lease
// that its keys can be attached to.
type Caller func() (client string, lease int64)

// Plan routes a write by this server's registry and map. If these have changed when the
// command is executed, the answer is fault.Moved, and the request has to be planned
// again.
func (m *Machine) Plan(kind command.Kind, req proto.Message, who Caller) Plan {
	return m.plan(kind, req, who, false)
}

// PlanInSession is Plan for a write of a session.
func (m *Machine) PlanInSession(kind command.Kind, req proto.Message, who Caller) Plan {
	return m.plan(kind, req, who, true)
}

// PutInSession routes a put in a session of a key that no extension concerns.
func (m *Machine) PutInSession(key []byte) placement.Set { return where(m.Placement(), key, true) }

func (m *Machine) plan(kind command.Kind, req proto.Message, who Caller, wide bool) Plan {
	if put, ok := req.(*pb.PutRequest); ok && !m.Extensions().Concerns(put.GetKey()) {
		return Plan{Parts: where(m.Placement(), put.GetKey(), wide)}
	}
	call, asked := m.concern(kind, req, who, true)
	if call == nil {
		return Plan{Parts: m.parts(req, wide), Load: m.load("", req)}
	}
	return m.planned(call, asked, req)
}

// PlanRead tells whether a read or a watch has to go through the log, because an
// extension handles it. This server may not have applied the client's acknowledgement of
// that extension yet: the log decides, unless the read is serializable.
func (m *Machine) PlanRead(kind command.Kind, req proto.Message, who Caller) (Plan, bool) {
	call, asked := m.concern(kind, req, who, false)
	if call == nil {
		return Plan{}, false
	}
	if r, ok := req.(*pb.RangeRequest); ok && r.GetSerializable() && call.Name == "" {
		return Plan{}, false
	}
	return m.planned(call, asked, req), true
}

// planned adds the homes of the extensions that the client can't use: whether that
// is so is decided there.
func (m *Machine) planned(call *command.Call, asked []*extension.Extension, req proto.Message) Plan {
	var parts placement.Set
	if e := m.Extensions().Get(call.Name); e != nil {
		parts = m.reach(e)
	} else {
		parts = m.parts(req, true)
	}
	for _, e := range asked {
		parts |= m.home(e)
	}
	return Plan{parts, call, m.load(call.Name, req)}
}

// home is where an extension's own keys are, or may be while a transit lasts: a call
// that a session sends again must be routed to a partition of the first copy.
func (m *Machine) home(e *extension.Extension) placement.Set {
	return where(m.Placement(), e.OwnerKey(), true)
}

// concern returns the call for a request that extensions subscribe to, or that
// writes their keys; nil for all others. asked are the extensions that
// were checked to find the one that handles it.
func (m *Machine) concern(kind command.Kind, req proto.Message, who Caller, writes bool) (call *command.Call, asked []*extension.Extension) {
	reg := m.Extensions()
	var one [1]spot
	op, spots := m.subject(req, one[:0])
	list, strict := handlersOf(reg, op, spots), strictOf(reg, spots)
	if len(list)+len(strict) == 0 && !(writes && op != extension.Txn && personal(spots[0].key, spots[0].end)) {
		return nil, nil
	}
	call = &command.Call{Kind: kind, Version: reg.Version(), Language: m.language()}
	if call.Client, call.Lease = who(); call.Client == "" {
		call.Client = Anonymous
	}
	for _, e := range list {
		asked = append(asked, e)
		if m.mayUse(e, call.Client) {
			call.Name = e.Name
			return call, asked
		}
	}
	return call, append(asked, strict...)
}

// latestFirst sorts extensions into the order in which they are checked.
func latestFirst(list []*extension.Extension) {
	slices.SortFunc(list, func(a, b *extension.Extension) int { return cmp.Compare(b.Order, a.Order) })
}

// mayUse decides by the current keys.
func (m *Machine) mayUse(e *extension.Extension, client string) bool {
	home := m.Placement().Partition(e.OwnerKey())
	x := execution{m: m, parts: placement.Of(home), local: home}
	m.Stores[home].RLock()
	defer m.Stores[home].RUnlock()
	return mayUse(view{&x}, e, client)
}

// personal tells whether the effect of a write depends on its client: it registers, or
// acknowledges.
func personal(key, end []byte) bool { return len(end) == 0 && extension.Touches(key, nil) }

// undecided tells whether a plain write should have come as a call.
func (x *execution) undecided(op extension.Op, key, end []byte) bool {
	reg := x.m.Extensions()
	end = x.m.endOf(key, end)
	return !x.decided && (personal(key, end) || len(reg.Operation(op, key, end)) > 0 || len(reg.Strict(key, end)) > 0)
}

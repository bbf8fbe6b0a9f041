package host

import (
	"google.golang.org/protobuf/proto"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"

	stoapb "github.com/stoa-kv/stoa/api/stoa/v1"
	"github.com/stoa-kv/stoa/internal/apply"
	"github.com/stoa-kv/stoa/internal/command"
	"github.com/stoa-kv/stoa/internal/fault"
	"github.com/stoa-kv/stoa/internal/kvwire"
	"github.com/stoa-kv/stoa/internal/placement"
	"github.com/stoa-kv/stoa/internal/session"
)

// Plan implements session.Host. A request that is no write any more keeps no turn: the extension that
// would have handled it has been removed meanwhile, or it is refused.
func (d *driver) Plan(op *session.Op) session.Plan {
	now := d.known()
	p := d.way(op)
	if p.Class != session.Write {
		d.endTurn()
	}
	if p.Class == session.Read && d.reads.planned == (known{}) {
		d.reads.planned = now
	}
	if r := op.Request.(*session.Request); r.Level != stoapb.Level_STRICT && r.Kind != stoapb.Kind_WATCH { // a fast one couldn't be answered at once
		d.reads.local = true
	}
	return p
}

// way is where a request is carried out. A read that is sent again is read at a revision that
// all partitions show here: then each of them knows which writes are in it. If it is a call
// this time, it may have been none before, and the tables of all partitions are asked.
func (d *driver) way(op *session.Op) session.Plan {
	r := op.Request.(*session.Request)
	p := d.route(op, r)
	if d.sentBefore(op) && traceless(r) {
		p.Parts = d.server.State().Machine.Placement().All()
	}
	return p
}

// traceless tells whether a request leaves nothing in the log unless an extension handles it.
func traceless(r *session.Request) bool {
	txn, _ := r.Message.(*pb.TxnRequest)
	return r.Kind == stoapb.Kind_RANGE || r.Kind == stoapb.Kind_WATCH || r.Kind == stoapb.Kind_TXN && apply.ReadOnly(txn)
}

// route is the way that a request takes the first time.
func (d *driver) route(op *session.Op, r *session.Request) session.Plan {
	switch r.Kind {
	case stoapb.Kind_PUT:
		return d.planPut(op, r)
	case stoapb.Kind_DELETE_RANGE:
		return d.planWrite(op, command.DeleteRange, r)
	case stoapb.Kind_TXN:
		return d.planTxn(op, r)
	case stoapb.Kind_RANGE:
		return d.planRange(op, r)
	case stoapb.Kind_WATCH:
		return d.planWatch(op, r)
	case stoapb.Kind_CANCEL:
		return session.Plan{Class: session.Act}
	case stoapb.Kind_CLOSE:
		d.plan = apply.Plan{}
		return session.Plan{Class: session.Write, Parts: d.server.State().Machine.Placement().All(), Alone: true}
	default: // SYNC, PROGRESS
		return session.Plan{Class: session.Read, Parts: d.server.State().Machine.Placement().All(), Strict: true}
	}
}

func (d *driver) planPut(op *session.Op, r *session.Request) session.Plan {
	m := d.server.State().Machine
	d.server.Grows(len(r.Body))
	if r.Message == nil {
		if !m.Extensions().Concerns(r.Key) && !d.namesLease(m, r) {
			if d.tooLarge(r) {
				return refuse(op, fault.RequestTooLarge)
			}
			d.plan = apply.Plan{Parts: m.PutInSession(r.Key) | m.PutForQuotas(r.Key, len(r.Body)-len(r.Key), op.Moved())}
			return session.Plan{Class: session.Write, Parts: d.plan.Parts}
		}
		p, err := kvwire.ReadPut(r.Body)
		if err != nil {
			return refuse(op, fault.Internal) // the services have read it
		}
		r.Message = p.Message()
	}
	if err := m.Verify(r.Message.(*pb.PutRequest), d.s.user); err != nil {
		return refuse(op, err)
	}
	return d.planWrite(op, command.Put, r)
}

// namesLease tells whether the lease of a put may have keys in other partitions that have to
// be looked at.
func (d *driver) namesLease(m *apply.Machine, r *session.Request) bool {
	if !m.Auth().Enabled {
		return false
	}
	p, err := kvwire.ReadPut(r.Body)
	return err != nil || p.Lease != 0
}

func (d *driver) planTxn(op *session.Op, r *session.Request) session.Plan {
	txn := r.Message.(*pb.TxnRequest)
	if apply.ReadOnly(txn) {
		return d.planRead(op, command.Txn, r)
	}
	if bytes := kvwire.PutBytes(txn); bytes > 0 { // what deletes makes room
		d.server.Grows(bytes)
	}
	return d.planWrite(op, command.Txn, r)
}

func (d *driver) planWrite(op *session.Op, kind command.Kind, r *session.Request) session.Plan {
	if d.tooLarge(r) {
		return refuse(op, fault.RequestTooLarge)
	}
	m := d.server.State().Machine
	d.plan = m.PlanInSession(kind, r.Message, d.who)
	d.plan.Parts |= m.ForLeases(d.s.user, r.Message)
	return d.planned(m, op)
}

// planned is the way of the write that was planned just now.
func (d *driver) planned(m *apply.Machine, op *session.Op) session.Plan {
	d.plan.Parts |= m.ForQuotas(nil, op.Moved())
	return session.Plan{Class: session.Write, Parts: d.plan.Parts}
}

func (d *driver) tooLarge(r *session.Request) bool {
	return d.cfg.MaxRequestBytes > 0 && len(r.Body) > d.cfg.MaxRequestBytes
}

func refuse(op *session.Op, err error) session.Plan {
	op.Err = err
	return session.Plan{Class: session.None}
}

func decodeRequest(r *session.Request, m proto.Message) error {
	if err := proto.Unmarshal(r.Body, m); err != nil {
		return fault.Internal // the services have read it
	}
	r.Message = m
	return nil
}

func (d *driver) planRange(op *session.Op, r *session.Request) session.Plan {
	m := d.server.State().Machine
	if r.Message == nil {
		if !m.Extensions().Concerns(r.Key) {
			return session.Plan{
				Class: session.Read, Parts: placement.Of(m.Placement().Partition(r.Key)),
				Strict: r.Level == stoapb.Level_STRICT,
			}
		}
		if err := decodeRequest(r, new(pb.RangeRequest)); err != nil {
			return refuse(op, err)
		}
	}
	return d.planRead(op, command.Range, r)
}

// planRead plans what changes nothing, unless an extension handles it.
func (d *driver) planRead(op *session.Op, kind command.Kind, r *session.Request) session.Plan {
	m := d.server.State().Machine
	if p, handled := m.PlanRead(kind, r.Message, d.who); handled {
		d.plan = p
		return d.planned(m, op)
	}
	return session.Plan{Class: session.Read, Parts: m.Parts(r.Message), Strict: r.Level == stoapb.Level_STRICT}
}

func (d *driver) planWatch(op *session.Op, r *session.Request) session.Plan {
	m, req := d.server.State().Machine, r.Message.(*pb.WatchCreateRequest)
	if p, handled := m.PlanRead(command.Watch, req, d.who); handled {
		if !d.sentBefore(op) { // before the extension has done something for a watch that can't be opened
			if err := d.server.Hub().Room(d.s.user, req.GetKey(), req.GetRangeEnd()); err != nil {
				return refuse(op, err)
			}
		}
		op.Unseen = false // a write, at whatever level
		d.plan = p
		return d.planned(m, op)
	}
	if d.forbidden(req) { // unless by a right that this server hasn't heard of
		return session.Plan{Class: session.Read, Parts: placement.Of(0), Strict: true}
	}
	// This server may not have heard yet of an extension that its client waits for; clients without
	// a name don't pay for that, as those of etcd's API.
	if d.s.client != "" && r.Level != stoapb.Level_FAST {
		return session.Plan{Class: session.Read, Parts: m.Placement().Range(req.GetKey(), req.GetRangeEnd()), Strict: r.Level == stoapb.Level_STRICT}
	}
	if d.mayLack(op, req) {
		return session.Plan{Class: session.Read} // waits until all partitions show what the session has seen
	}
	return session.Plan{Class: session.Act}
}

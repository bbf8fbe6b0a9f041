package apply

import (
	"fmt"
	"slices"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"google.golang.org/protobuf/proto"

	"github.com/stoa-kv/stoa/internal/command"
	"github.com/stoa-kv/stoa/internal/extension"
	"github.com/stoa-kv/stoa/internal/fault"
	"github.com/stoa-kv/stoa/internal/kvwire"
	"github.com/stoa-kv/stoa/internal/script"
)

// extended executes a request that a server found to concern extensions. Whether
// that decision still holds is checked here, from the log alone: a call that was
// routed by a registry or map replaced since is answered with fault.Moved, has no
// effect, and the server routes it again.
func (x *execution) extended(body []byte) Result {
	call, err := command.DecodeCall(body)
	if err != nil {
		return x.failed(unreadable(command.Extended, body))
	}
	if err := x.admit(call.Kind); err != nil {
		return x.failed(err)
	}
	req := newRequest(call.Kind)
	if req == nil || proto.Unmarshal(call.Body, req) != nil {
		return x.failed(unreadable(call.Kind, call.Body))
	}
	x.asked, x.about = call.Kind, keyOf(req)
	x.client, x.lease, x.decided, x.language = call.Client, call.Lease, true, max(call.Language, 1)
	e, err := x.callee(&call, req)
	if err != nil {
		return x.failed(err)
	}
	if e != nil {
		if err := x.permit(req); err != nil {
			return x.failed(err)
		}
		return x.callExtension(e, &call, req)
	}
	if err := x.agreed(&call, req); err != nil {
		return x.failed(err)
	}
	return x.ordinary(&call, req)
}

func newRequest(k command.Kind) proto.Message {
	switch k {
	case command.Put:
		return new(pb.PutRequest)
	case command.DeleteRange:
		return new(pb.DeleteRangeRequest)
	case command.Txn:
		return new(pb.TxnRequest)
	case command.Range:
		return new(pb.RangeRequest)
	case command.Watch:
		return new(pb.WatchCreateRequest)
	}
	return nil
}

// callee returns the extension that the call names, nil if it names none: the last
// registered of those that the client may use. fault.Moved says that it isn't that,
// or not any more.
func (x *execution) callee(call *command.Call, req proto.Message) (*extension.Extension, error) {
	reg := x.m.Extensions()
	op, spots := x.m.subject(req, nil)
	for _, e := range handlersOf(reg, op, spots) {
		if e.Order > call.Version || x.covers(x.m.home(e)) != nil {
			return nil, fault.Moved // registered since, or keys were moved
		}
		if !mayUse(view{x}, e, call.Client) {
			continue
		}
		if e.Name != call.Name || x.covers(x.m.reach(e)) != nil {
			return nil, fault.Moved
		}
		return e, nil
	}
	if call.Name != "" {
		return nil, fault.Moved
	}
	return nil, nil
}

// ordinary executes the request as if there were no extensions, but for the keys
// under /em/.
func (x *execution) ordinary(call *command.Call, req proto.Message) Result {
	c := &command.Command{Kind: call.Kind, Body: call.Body}
	switch r := req.(type) {
	case *pb.PutRequest:
		return x.putCommand(call.Body)
	case *pb.DeleteRangeRequest:
		return handle(x, c, r, x.deleteRangeCommand)
	case *pb.TxnRequest:
		return handle(x, c, r, x.txnCommand)
	case *pb.RangeRequest:
		return handle(x, c, r, x.rangeCommand)
	}
	return x.done(true, &pb.RangeResponse{Header: x.header(false)}) // a watch that no extension handles
}

// rangeCommand is a read that went through the log, or is part of a transaction.
func (x *execution) rangeCommand(req *pb.RangeRequest) (*pb.RangeResponse, error) {
	if err := x.permit(req); err != nil {
		return nil, err
	}
	f, err := x.look(req)
	if err != nil {
		return nil, err
	}
	return assemble(req, f, x.current()).Message(), nil
}

// callExtension runs an operation extension (EZK §3.7).
func (x *execution) callExtension(e *extension.Extension, call *command.Call, req proto.Message) Result {
	t := x.tally(e)
	if t.standing.Disabled {
		return x.failed(fault.ExtensionDisabled.With(fmt.Sprintf("stoa: extension %q is disabled: %s", e.Name, t.standing.Reason)))
	}
	x.handler = e
	x.runAs = x.user
	out, err := x.supervise(t, func() (*extension.Outcome, error) {
		return e.Operation(proxy{view{x}}, &x.m.Extensions().Limits, x.rev, x.m.toldOf(call, req), x.m.profile(e.Name))
	})
	x.callSteps = out.Usage.Steps
	if err != nil {
		return x.failed(err)
	}
	x.commit(out, nil)
	x.awaited = out.Block
	x.consumeAck(e, call.Client)
	return x.done(true, x.answer(req, out))
}

// supervise runs a handler, refuses the operations that it may not do now, and notes its
// cost and whether it failed.
func (x *execution) supervise(t *tally, handler func() (*extension.Outcome, error)) (*extension.Outcome, error) {
	began := x.m.began()
	if x.working == 0 {
		x.working = began
	}
	out, err := handler()
	if err == nil && x.m.alarms.Load().noSpace && out.TakesSpace() {
		err = fault.NoSpace
	}
	if err == nil {
		err = x.affords(out.Writes)
	}
	t.note(err)
	x.worked = x.m.called(t.e.Name, began, out, err)
	return out, err
}

// toldOf is the description of a request that its handler gets.
func (m *Machine) toldOf(call *command.Call, req proto.Message) *extension.Request {
	r := &extension.Request{Client: call.Client, Lease: call.Lease}
	switch q := req.(type) {
	case *pb.PutRequest:
		r.Op, r.Key, r.Value = extension.Put, q.GetKey(), q.GetValue()
		if q.GetLease() != 0 {
			r.Lease = q.GetLease()
		}
	case *pb.DeleteRangeRequest:
		r.Op, r.Key, r.RangeEnd = extension.Delete, q.GetKey(), q.GetRangeEnd()
	case *pb.TxnRequest:
		_, spots := named(q, nil)
		r.Op, r.Key = extension.Txn, spots[0].key
	case *pb.RangeRequest:
		r.Op, r.Key, r.RangeEnd, r.Limit = extension.Read, q.GetKey(), q.GetRangeEnd(), q.GetLimit()
	case *pb.WatchCreateRequest:
		r.Op, r.Key, r.RangeEnd, r.StartRevision = extension.Block, q.GetKey(), q.GetRangeEnd(), q.GetStartRevision()
	}
	r.RangeEnd = m.endOf(r.Key, r.RangeEnd)
	return r
}

// answer is the ordinary response to a request that an extension handled.
func (x *execution) answer(req proto.Message, out *extension.Outcome) proto.Message {
	if !x.answers {
		return nil
	}
	header := x.header(true)
	for _, kv := range out.Kvs {
		if kv.ModRevision == 0 {
			kv.ModRevision = header.Revision
		}
		if kv.CreateRevision == 0 {
			kv.CreateRevision = header.Revision
		}
	}
	switch r := req.(type) {
	case *pb.PutRequest:
		resp := &pb.PutResponse{Header: header}
		if len(out.Kvs) > 0 {
			resp.PrevKv = out.Kvs[0]
		}
		return resp
	case *pb.DeleteRangeRequest:
		return &pb.DeleteRangeResponse{Header: header, Deleted: out.Deleted, PrevKvs: out.Kvs}
	case *pb.TxnRequest:
		return &pb.TxnResponse{Header: header, Succeeded: out.Succeeded, Responses: x.responses(chosen(r, out.Succeeded), out.Kvs)}
	case *pb.RangeRequest:
		resp := &pb.RangeResponse{Header: header, Kvs: out.Kvs, Count: int64(len(out.Kvs))}
		if r.GetCountOnly() {
			resp.Kvs = nil
		}
		return resp
	}
	if out.Block != nil {
		return &pb.RangeResponse{Header: header, Kvs: x.blocked()}
	}
	return &pb.RangeResponse{Header: header, Kvs: out.Kvs}
}

// responses are one for each operation of a transaction that an extension handled, as
// clients expect. The handler's return value answers the first range, or comes behind
// the others if there is none.
func (x *execution) responses(ops []*pb.RequestOp, kvs []*mvccpb.KeyValue) []*pb.ResponseOp {
	found := &pb.ResponseOp{Response: &pb.ResponseOp_ResponseRange{
		ResponseRange: &pb.RangeResponse{Header: x.header(true), Kvs: kvs, Count: int64(len(kvs))},
	}}
	given := len(kvs) == 0
	list := make([]*pb.ResponseOp, 0, len(ops)+1)
	for _, op := range ops {
		switch op.GetRequest().(type) {
		case *pb.RequestOp_RequestRange:
			r := found
			if given {
				r = &pb.ResponseOp{Response: &pb.ResponseOp_ResponseRange{ResponseRange: &pb.RangeResponse{Header: x.header(true)}}}
			}
			list, given = append(list, r), true
		case *pb.RequestOp_RequestPut:
			list = append(list, &pb.ResponseOp{Response: &pb.ResponseOp_ResponsePut{ResponsePut: &pb.PutResponse{Header: x.header(true)}}})
		case *pb.RequestOp_RequestDeleteRange:
			list = append(list, &pb.ResponseOp{Response: &pb.ResponseOp_ResponseDeleteRange{ResponseDeleteRange: &pb.DeleteRangeResponse{Header: x.header(true)}}})
		case *pb.RequestOp_RequestTxn: // failed: by that clients see that their operations were not executed
			list = append(list, &pb.ResponseOp{Response: &pb.ResponseOp_ResponseTxn{ResponseTxn: &pb.TxnResponse{Header: x.header(true)}}})
		}
	}
	if !given {
		list = append(list, found)
	}
	return list
}

// blocked is the answer to a watch whose client was made to wait for a key: the key-value
// that it gets at once, or one of version 0.
func (x *execution) blocked() []*mvccpb.KeyValue {
	if kv := (view{x}).Get(x.awaited); kv.Exists() {
		return []*mvccpb.KeyValue{kv.Message()}
	}
	return []*mvccpb.KeyValue{{Key: x.awaited}}
}

// settleBlock gives a watch the awaited key as the event handlers have left it: its events begin
// behind the call, and those of the handlers are part of that.
func (x *execution) settleBlock(resp proto.Message) {
	if r, ok := resp.(*pb.RangeResponse); ok && x.awaited != nil && x.m.Level() >= levelOfSettledBlocks {
		r.Kvs = x.blocked()
	}
}

// commit carries out the writes that a handler has collected, and passes the previous
// key-value of each to changed.
func (x *execution) commit(out *extension.Outcome, changed func(prev kvwire.KeyValue)) {
	if x.local != several {
		x.changes = slices.Grow(x.changes, len(out.Writes))
	}
	for _, w := range out.Writes {
		if changed != nil {
			changed((view{x}).Get(w.Key))
		}
		if w.Delete {
			x.delete(w.Key)
		} else {
			x.setMade(w.Kv)
		}
	}
	for _, n := range out.Notices {
		if changed != nil {
			changed(kvwire.KeyValue{})
		}
		x.notice(n)
	}
}

// consumeAck uses up an acknowledgement that was good for once.
func (x *execution) consumeAck(e *extension.Extension, client string) {
	if ownerOf(view{x}, e.OwnerKey()) == client {
		return
	}
	key := extension.AckKey(e.Name, client)
	if kv := (view{x}).Get(key); kv.Exists() && string(kv.Value()) == extension.Once {
		x.delete(key)
	}
}

// profile, began and called are for the meter, if there is one.

func (m *Machine) profile(name string) *script.Profile {
	if m.Meter == nil {
		return nil
	}
	return m.Meter.Profile(name)
}

func (m *Machine) began() int64 {
	if m.Meter == nil {
		return 0
	}
	return m.Meter.Now()
}

func (m *Machine) called(name string, began int64, out *extension.Outcome, err error) (ended int64) {
	if m.Meter != nil {
		ended = m.Meter.Now()
		m.Meter.Called(name, ended-began, out, err)
	}
	return ended
}

package apply

import (
	"cmp"
	"fmt"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/protobuf/proto"

	"github.com/stoa-kv/stoa/internal/command"
	"github.com/stoa-kv/stoa/internal/fault"
	"github.com/stoa-kv/stoa/internal/kvwire"
)

// A session's writes are numbered by its client and may be sent again. Each
// partition remembers, for every session, the highest number that has taken effect
// in it and the results that the client may still ask for (sessions.go).
//
// A write is looked for in the tables of all partitions that take part, and its
// result is noted in all of them. Two copies of a write may be routed differently:
// because other extensions are registered or a transit of keys has begun or ended, and
// then all tables have been made equal in between; while it lasts, both go to all
// partitions in which it may find the keys ([placement.Map.Wide]); or because another
// extension handles it now, and then the home of that extension takes part in both.
// So the copies share a table, and the second finds the result of the first.

// openSession grants a session's lease and records the session in all partitions, so
// that there is room for it in all of them as long as it is open.
func (x *execution) openSession(req *pb.LeaseGrantRequest) (*pb.LeaseGrantResponse, error) {
	if most := x.m.bounds.sessions; len(x.m.sessions[0].byID) >= most {
		return nil, fault.TooManySessions.With(fmt.Sprintf("stoa: too many sessions: %d are open, the most that there may be; "+
			"close sessions that aren't needed, or wait until their leases end", most))
	}
	resp, err := x.leaseGrant(req)
	if err != nil {
		return nil, err
	}
	for p := range x.m.sessions {
		x.m.sessions[p].open(req.GetID())
	}
	return resp, nil
}

// inSession executes a write of a session, once, and not before its predecessor.
func (x *execution) inSession(body []byte) Result {
	q, err := command.DecodeSequenced(body)
	if err != nil {
		return x.failed(unreadable(command.InSession, body))
	}
	if err := x.permitSession(q.Session); err != nil {
		return x.failed(err)
	}
	before := x.remembered(&q)
	switch {
	case !before.known:
		return x.failed(fault.SessionGone)
	case before.result != nil:
		x.tell(&q, before.result)
		return before.result.repeated(x.answers)
	case q.Seq <= before.last:
		return x.failed(cmp.Or(x.belongs(&q), error(fault.ResultForgotten)))
	case before.last < q.Pred:
		return x.failed(fault.SessionGap)
	}
	answers := x.answers
	x.wide = true
	r := x.followed(x.inner(&q))
	x.answers = answers
	if r.Err != nil && x.handler == nil && !again(r.Err) && x.m.Level() >= levelOfRefusalsInPlace {
		// Some refusals come before the question whether the write belongs here. Where it does, a first copy may
		// have taken effect.
		if err := x.belongs(&q); err != nil {
			r = x.failed(err)
		}
	}
	if again(r.Err) {
		return r // nothing has happened; it will be sent again with its number
	}
	x.remember(&q, newOutcome(&q, r), before.local)
	if !answers {
		r.Response = nil
	}
	return r
}

// inner executes the command inside. Its response is a part of the state, so it is
// built whether or not a request waits for it; but for that of a put with nothing
// beside its revision.
func (x *execution) inner(q *command.Sequenced) Result {
	switch q.Kind {
	case command.Put:
		x.asked = q.Kind
		if err := x.admit(q.Kind); err != nil {
			return x.failed(err)
		}
		p, err := kvwire.ReadPut(q.Body)
		if err != nil {
			return x.failed(unreadable(command.Put, q.Body))
		}
		x.answers = x.answers || p.PrevKv
		return x.carryOutPut(&put{Put: p})
	case command.DeleteRange, command.Txn, command.Extended:
		x.answers = true
		return x.command(&command.Command{Kind: q.Kind, Body: q.Body})
	}
	return x.failed(unreadable(command.InSession, q.Body))
}

// traces are the participants' records of a session and of one of its writes.
type traces struct {
	known  bool // the session is open
	last   uint64
	result *outcome
	local  *session // of the only participant, if it has one
}

func (x *execution) remembered(q *command.Sequenced) (found traces) {
	if x.local != several {
		if found.local = x.m.sessions[x.local].byID[q.Session]; found.local != nil {
			found.add(found.local, q.Seq)
		}
		return found
	}
	for p := range x.parts.Each() {
		if s := x.m.sessions[p].byID[q.Session]; s != nil {
			found.add(s, q.Seq)
		}
	}
	return found
}

func (f *traces) add(s *session, seq uint64) {
	f.known = true
	f.last = max(f.last, s.last)
	if f.result == nil && seq <= s.last {
		f.result = s.find(seq)
	}
}

// remember records the outcome of a write; local is the record that remembered found.
func (x *execution) remember(q *command.Sequenced, o outcome, local *session) {
	if local != nil {
		x.m.sessions[x.local].remember(local, q.Answered, o)
		return
	}
	for p := range x.parts.Each() {
		t := &x.m.sessions[p]
		t.remember(t.byID[q.Session], q.Answered, o)
	}
}

// tell copies the record of a write, executed before, to the participants that did not
// take part then: the session's next write may be theirs, and look for its predecessor
// there.
func (x *execution) tell(q *command.Sequenced, o *outcome) {
	if x.local != several {
		return
	}
	for p := range x.parts.Each() {
		t := &x.m.sessions[p]
		if s := t.byID[q.Session]; s.last < q.Seq {
			t.remember(s, q.Answered, *o)
		}
	}
}

// belongs returns fault.Moved if a write was routed to other partitions than those of its keys
// now. One that can't be read belongs anywhere.
func (x *execution) belongs(q *command.Sequenced) error {
	call := command.Call{Kind: q.Kind, Body: q.Body}
	if q.Kind == command.Extended {
		var err error
		if call, err = command.DecodeCall(q.Body); err != nil {
			return nil
		}
	}
	req := newRequest(call.Kind)
	if req == nil || proto.Unmarshal(call.Body, req) != nil {
		return nil
	}
	if q.Kind == command.Extended {
		if e, err := x.callee(&call, req); e != nil || err != nil {
			return err
		}
	}
	return x.covers(x.m.parts(req, true))
}

// outcome is the result of a write, as it is kept in the table and stored.
type outcome struct {
	seq    uint64
	rev    int64
	detail *detail // nil for a put that was answered with nothing but its revision
}

// detail is the part of an outcome that most don't have.
type detail struct {
	kind command.Kind // of the request, which tells the response's type; InSession with a fault
	code uint32       // of the fault, 0 for none
	body []byte       // the marshalled response, or the text that came with the fault
}

func newOutcome(q *command.Sequenced, r Result) outcome {
	o := outcome{seq: q.Seq, rev: r.Rev}
	if r.Err == nil {
		put, ok := r.Response.(*pb.PutResponse)
		if ok && put.GetPrevKv() == nil || r.Response == nil {
			return o
		}
	}
	o.detail = &detail{kind: command.InSession}
	if r.Err == nil {
		o.detail.kind = (&command.Command{Kind: q.Kind, Body: q.Body}).Request()
		o.detail.body, r.Err = proto.MarshalOptions{Deterministic: true}.Marshal(r.Response)
	}
	if r.Err != nil {
		o.detail.code, o.detail.body = fault.CodeOf(r.Err), []byte(fault.TextOf(r.Err))
	}
	return o
}

// repeated answers a write that has taken effect before, with its response if that is wanted.
func (o *outcome) repeated(response bool) Result {
	r := Result{Rev: o.rev}
	switch {
	case o.failed():
		r.Err = o.err()
	case response:
		r.Response, r.Err = o.response()
	}
	return r
}

func (o *outcome) failed() bool { return o.detail != nil && o.detail.code != 0 }

// size is the memory that a result refers to, in bytes.
func (o *outcome) size() int {
	if o.detail == nil {
		return 0
	}
	return len(o.detail.body)
}

func (o *outcome) err() error {
	f := fault.FromCode(o.detail.code)
	if len(o.detail.body) > 0 {
		return f.With(string(o.detail.body))
	}
	return f
}

func (o *outcome) response() (proto.Message, error) {
	if o.detail == nil {
		return &pb.PutResponse{Header: &pb.ResponseHeader{Revision: o.rev}}, nil
	}
	resp := NewResponse(o.detail.kind)
	if resp == nil || proto.Unmarshal(o.detail.body, resp) != nil {
		return nil, unreadable(o.detail.kind, o.detail.body)
	}
	return resp, nil
}

// NewResponse returns an empty response to a request of a kind, nil for a kind that
// has none.
func NewResponse(k command.Kind) proto.Message {
	switch k {
	case command.Put:
		return new(pb.PutResponse)
	case command.DeleteRange:
		return new(pb.DeleteRangeResponse)
	case command.Txn:
		return new(pb.TxnResponse)
	case command.Compact, command.Move, command.Place, command.Resize, command.Check, command.Verdict:
		return new(pb.CompactionResponse)
	case command.LeaseGrant, command.SessionOpen:
		return new(pb.LeaseGrantResponse)
	case command.LeaseRevoke:
		return new(pb.LeaseRevokeResponse)
	case command.LeaseCheckpoint:
		return new(pb.LeaseCheckpointResponse)
	case command.Alarm:
		return new(pb.AlarmResponse)
	case command.MemberPublish:
		return new(pb.MemberUpdateResponse)
	case command.MemberChange, command.ClusterVersion, command.MemberAnnounce:
		return new(pb.MemberListResponse)
	case command.Range, command.Watch:
		return new(pb.RangeResponse)
	case command.Auth, command.Quota:
		return new(pb.AuthStatusResponse)
	}
	return nil
}

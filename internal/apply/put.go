package apply

import (
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"

	"github.com/stoa-kv/stoa/internal/command"
	"github.com/stoa-kv/stoa/internal/extension"
	"github.com/stoa-kv/stoa/internal/fault"
	"github.com/stoa-kv/stoa/internal/kvwire"
	"github.com/stoa-kv/stoa/internal/store"
)

// put is a PutRequest that is carried out.
type put struct {
	kvwire.Put
	// replaced is the previous key-value, if PrevKv asks for it.
	replaced kvwire.KeyValue
}

// putAnswersAtOnce bounds both the allocations that a batch of puts costs and
// the memory that a slow reader of one answer keeps in use.
const putAnswersAtOnce = 32

// putAnswer keeps a response and its header together.
type putAnswer struct {
	response pb.PutResponse
	header   pb.ResponseHeader
}

func (x *execution) putCommand(body []byte) Result {
	p, err := kvwire.ReadPut(body)
	if err != nil {
		return x.failed(unreadable(command.Put, body))
	}
	return x.carryOutPut(&put{Put: p})
}

func (x *execution) carryOutPut(p *put) Result {
	x.about = p.Key
	if err := x.permitPut(p); err != nil {
		return x.failed(err)
	}
	if err := x.admitPut(p); err != nil {
		return x.failed(err)
	}
	prev, err := x.checkPut(p)
	if err != nil {
		return x.failed(err)
	}
	x.write(p, prev)
	r := Result{Rev: x.rev}
	if x.answers {
		r.Response = x.putResponse(p)
	}
	return r
}

// admitPut makes sure that the put belongs here, and that extensions leave it as it
// is.
func (x *execution) admitPut(p *put) error {
	if !x.m.Extensions().Concerns(p.Key) {
		return x.covers(where(x.m.Placement(), p.Key, x.wide))
	}
	if err := x.covers(x.m.writeParts(p.Key, nil, x.wide)); err != nil {
		return err
	}
	if x.undecided(extension.Put, p.Key, nil) {
		return fault.Moved
	}
	return x.manage(p)
}

// checkPut finds everything for which a put can fail. It returns the present
// value if the put needs it.
func (x *execution) checkPut(p *put) (prev kvwire.KeyValue, err error) {
	if p.Lease != 0 && !x.m.Leases.Has(p.Lease) {
		return prev, fault.LeaseNotFound
	}
	if p.IgnoreValue || p.IgnoreLease {
		_, s := x.store(p.Key)
		if prev = s.Get(p.Key); !prev.Exists() {
			return prev, fault.KeyNotFound
		}
	}
	return prev, nil
}

// write carries out a put that has been checked. prev may only be missing, where
// the put needs it, in a transaction that was not validated and that deletes the
// key before it; then there is nothing to keep.
func (x *execution) write(p *put, prev kvwire.KeyValue) {
	value, lease := p.Value, p.Lease
	if p.IgnoreValue {
		value = prev.Value()
	}
	if p.IgnoreLease {
		lease = prev.Lease()
	}
	at, s := x.store(p.Key)
	if p.PrevKv {
		p.replaced = s.Get(p.Key)
	}
	if x.tenants != nil {
		x.account(at, p.Key, sizeOf(s.Get(p.Key)), int64(len(p.Key)+len(value)))
	}
	x.record(at, s.Put(store.Revision{Main: x.rev, Sub: x.sub}, p.Key, value, lease))
}

// set writes a key, whether or not it exists, without a lease.
func (x *execution) set(key, value []byte) {
	x.write(&put{Put: kvwire.Put{Key: key, Value: value}}, kvwire.KeyValue{})
}

// setMade is set for a key-value that has been encoded for this revision.
func (x *execution) setMade(kv kvwire.KeyValue) {
	at, s := x.store(kv.Key())
	if x.tenants != nil {
		x.account(at, kv.Key(), sizeOf(s.Get(kv.Key())), int64(len(kv.Key())+len(kv.Value())))
	}
	x.record(at, s.PutMade(store.Revision{Main: x.rev, Sub: x.sub}, kv))
}

func (x *execution) putResponse(p *put) *pb.PutResponse {
	if len(x.putAnswers) == 0 {
		x.putAnswers = make([]putAnswer, max(1, min(x.commands, putAnswersAtOnce)))
	}
	a := &x.putAnswers[0]
	x.putAnswers = x.putAnswers[1:]
	a.header.Revision = x.rev
	a.response.Header = &a.header
	a.response.PrevKv = p.replaced.Message()
	return &a.response
}

// requestedPut is the put that a message asks for, inside a transaction.
func requestedPut(r *pb.PutRequest) put {
	return put{Put: kvwire.PutOf(r)}
}

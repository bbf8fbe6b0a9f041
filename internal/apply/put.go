package apply

import (
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"

	"github.com/stoa-kv/stoa/internal/command"
	"github.com/stoa-kv/stoa/internal/extension"
	"github.com/stoa-kv/stoa/internal/fault"
	"github.com/stoa-kv/stoa/internal/placement"
	"github.com/stoa-kv/stoa/internal/store"
)

// put is a PutRequest. Most of what a busy cluster applies are puts, so they
// have a type without a message's overhead, and a reader of their own.
type put struct {
	key, value                       []byte
	lease                            int64
	prevKv, ignoreValue, ignoreLease bool
	// replaced is what the put found, once it is carried out, if prevKv asks.
	replaced *mvccpb.KeyValue
}

// putAnswersAtOnce bounds both the allocations that a batch of puts costs and
// what a slow reader of one answer keeps alive.
const putAnswersAtOnce = 32

// putAnswer keeps a response and its header together.
type putAnswer struct {
	response pb.PutResponse
	header   pb.ResponseHeader
}

func (x *execution) putCommand(body []byte) Result {
	p, err := readPut(body)
	if err != nil {
		return x.failed(unreadable(command.Put, body))
	}
	return x.carryOutPut(&p)
}

func (x *execution) carryOutPut(p *put) Result {
	if err := x.admitPut(p); err != nil {
		return x.failed(err)
	}
	prev, err := x.checkPut(p)
	if err != nil {
		return x.failed(err)
	}
	// The body lies in the log entry, among its batch. A store that held on to
	// pieces of it would keep all of the batch in memory for the last key's
	// sake.
	p.key = append([]byte(nil), p.key...)
	if !p.ignoreValue {
		p.value = append([]byte(nil), p.value...)
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
	if !x.m.Extensions().Concerns(p.key) {
		return x.covers(placement.Of(x.m.Placement().Partition(p.key)))
	}
	if err := x.covers(x.m.writeParts(p.key, nil)); err != nil {
		return err
	}
	if x.undecided(extension.Put, p.key, nil) {
		return fault.Moved
	}
	return x.manage(p)
}

// checkPut finds everything for which a put can fail. It returns the present
// value if the put needs it.
func (x *execution) checkPut(p *put) (prev *mvccpb.KeyValue, err error) {
	if p.lease != 0 && !x.m.Leases.Has(p.lease) {
		return nil, fault.LeaseNotFound
	}
	if p.ignoreValue || p.ignoreLease {
		_, s := x.store(p.key)
		if prev = s.Get(p.key); prev == nil {
			return nil, fault.KeyNotFound
		}
	}
	return prev, nil
}

// write carries out a put that has been checked. prev may only be missing, where
// the put needs it, in a transaction that nobody validated and that deletes the
// key before it; then there is nothing to keep.
func (x *execution) write(p *put, prev *mvccpb.KeyValue) {
	value, lease := p.value, p.lease
	if p.ignoreValue {
		value = prev.GetValue()
	}
	if p.ignoreLease {
		lease = prev.GetLease()
	}
	at, s := x.store(p.key)
	if p.prevKv {
		p.replaced = s.Get(p.key)
	}
	x.record(at, s.Put(store.Revision{Main: x.rev, Sub: x.sub}, p.key, value, lease))
}

func (x *execution) putResponse(p *put) *pb.PutResponse {
	if len(x.putAnswers) == 0 {
		x.putAnswers = make([]putAnswer, max(1, min(x.commands, putAnswersAtOnce)))
	}
	a := &x.putAnswers[0]
	x.putAnswers = x.putAnswers[1:]
	a.header.Revision = x.rev
	a.response.Header = &a.header
	a.response.PrevKv = p.replaced
	return &a.response
}

// requestedPut is the put that a message asks for, inside a transaction. The
// message's slices are its own, so that they can become the store's.
func requestedPut(r *pb.PutRequest) put {
	return put{
		key: r.GetKey(), value: r.GetValue(), lease: r.GetLease(),
		prevKv: r.GetPrevKv(), ignoreValue: r.GetIgnoreValue(), ignoreLease: r.GetIgnoreLease(),
	}
}

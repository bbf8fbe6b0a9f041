package apply

import (
	"bytes"
	"cmp"
	"fmt"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"

	"github.com/stoa-kv/stoa/internal/extension"
	"github.com/stoa-kv/stoa/internal/fault"
	"github.com/stoa-kv/stoa/internal/kvwire"
)

// txnCommand runs a transaction in three passes over the same tree: decide all
// branches, nested ones too, by the state before; check all operations of the
// chosen branches by the state before; only then execute (invariant 2).
func (x *execution) txnCommand(req *pb.TxnRequest) (*pb.TxnResponse, error) {
	x.about = keyOfTxn(req)
	if err := x.permit(req); err != nil {
		return nil, err
	}
	if x.m.alarms.Load().noSpace && puts(req) {
		return nil, fault.NoSpace
	}
	if err := x.checkManaged(req); err != nil {
		return nil, err
	}
	var path branches
	if err := x.decide(req, &path); err != nil {
		return nil, err
	}
	if err := x.check(req, path.restart()); err != nil {
		return nil, err
	}
	return x.execute(req, path.restart()), nil
}

// checkManaged refuses operations that an extension must handle and operations that only
// the extension manager may do.
func (x *execution) checkManaged(req *pb.TxnRequest) error {
	if reg := x.m.Extensions(); !x.decided && (reg.Handles(extension.Txn) || reg.HasStrict()) {
		_, spots := x.m.subject(req, nil)
		if len(handlersOf(reg, extension.Txn, spots)) > 0 || len(strictOf(reg, spots)) > 0 {
			return fault.Moved
		}
	}
	var wide []*pb.DeleteRangeRequest
	if changesManaged(req, &wide) {
		return fault.BadExtension.With("stoa: keys under " + extension.Root +
			" can't be changed in a transaction: put or delete each in a request of its own")
	}
	for _, r := range wide {
		if err := x.keepsExtensions(r.GetKey(), r.GetRangeEnd()); err != nil {
			return err
		}
	}
	return x.fewRemovals(wide...)
}

// changesManaged reports whether a transaction changes a single key under /em/. Of its deletions it collects those of
// ranges with such keys.
func changesManaged(req *pb.TxnRequest, wide *[]*pb.DeleteRangeRequest) bool {
	return !every(req, func(op *pb.RequestOp) bool {
		switch r := op.GetRequest().(type) {
		case *pb.RequestOp_RequestPut:
			return !extension.Touches(r.RequestPut.GetKey(), nil)
		case *pb.RequestOp_RequestDeleteRange:
			key, end := r.RequestDeleteRange.GetKey(), r.RequestDeleteRange.GetRangeEnd()
			if extension.Touches(key, nil) {
				return false
			}
			if len(end) > 0 && extension.Touches(key, end) {
				*wide = append(*wide, r.RequestDeleteRange)
			}
		}
		return true
	})
}

// branches remembers which branch each transaction of a tree took, in the order
// in which a walk comes by them.
type branches struct {
	taken []bool
	next  int
}

func (b *branches) restart() *branches {
	b.next = 0
	return b
}

// follow returns whether the compares of the next transaction held, and the
// operations that follow from it.
func (b *branches) follow(req *pb.TxnRequest) (bool, []*pb.RequestOp) {
	held := b.taken[b.next]
	b.next++
	return held, chosen(req, held)
}

func chosen(req *pb.TxnRequest, held bool) []*pb.RequestOp {
	if held {
		return req.GetSuccess()
	}
	return req.GetFailure()
}

func (x *execution) decide(req *pb.TxnRequest, path *branches) error {
	held := true
	for _, c := range req.GetCompare() {
		var err error
		if held, err = x.compare(c); err != nil {
			return err
		}
		if !held {
			break
		}
	}
	path.taken = append(path.taken, held)
	for _, op := range chosen(req, held) {
		if nested := op.GetRequestTxn(); nested != nil {
			if err := x.decide(nested, path); err != nil {
				return err
			}
		}
	}
	return nil
}

// compare tells whether a comparison holds for every key of its range. Of no key
// at all, everything but its value is zero, and no comparison with its value
// holds.
func (x *execution) compare(c *pb.Compare) (bool, error) {
	if len(c.GetRangeEnd()) == 0 && x.at == 0 {
		_, s := x.store(c.GetKey())
		return holds(c, s.Get(c.GetKey())), nil
	}
	sel, err := x.find(c.GetKey(), c.GetRangeEnd(), 0, 0)
	if err != nil {
		return false, err
	}
	f, err := x.fetch(&sel)
	if err != nil {
		return false, err
	}
	if len(f.kvs) == 0 {
		return holds(c, kvwire.KeyValue{}), nil
	}
	for _, kv := range f.kvs {
		if !holds(c, kv) {
			return false, nil
		}
	}
	return true, nil
}

// holds compares one key, or none.
func holds(c *pb.Compare, kv kvwire.KeyValue) bool {
	var order int
	switch c.GetTarget() {
	case pb.Compare_VALUE:
		if !kv.Exists() {
			return false
		}
		order = bytes.Compare(kv.Value(), c.GetValue())
	case pb.Compare_CREATE:
		order = cmp.Compare(kv.CreateRevision(), c.GetCreateRevision())
	case pb.Compare_MOD:
		order = cmp.Compare(kv.ModRevision(), c.GetModRevision())
	case pb.Compare_VERSION:
		order = cmp.Compare(kv.Version(), c.GetVersion())
	case pb.Compare_LEASE:
		order = cmp.Compare(kv.Lease(), c.GetLease())
	}
	switch c.GetResult() {
	case pb.Compare_EQUAL:
		return order == 0
	case pb.Compare_NOT_EQUAL:
		return order != 0
	case pb.Compare_GREATER:
		return order > 0
	case pb.Compare_LESS:
		return order < 0
	}
	return true // as etcd takes a result that it doesn't know
}

// check finds every reason for which an operation would fail. Ranges that read a state
// before the transaction are evaluated here: they may have to read the disk.
func (x *execution) check(req *pb.TxnRequest, path *branches) error {
	_, ops := path.follow(req)
	for _, op := range ops {
		var err error
		switch r := op.GetRequest().(type) {
		case *pb.RequestOp_RequestRange:
			err = x.checkRange(r.RequestRange)
		case *pb.RequestOp_RequestPut:
			p := requestedPut(r.RequestPut)
			if _, err = x.checkPut(&p); err == nil {
				err = x.checkWrite()
			}
		case *pb.RequestOp_RequestDeleteRange:
			if err = x.checkWrite(); err == nil {
				err = x.fewEvents(r.RequestDeleteRange)
			}
		case *pb.RequestOp_RequestTxn:
			if r.RequestTxn != nil {
				err = x.check(r.RequestTxn, path)
			}
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// checkRange allows the revisions that exist before the transaction; its own
// can only be read as the current one.
func (x *execution) checkRange(req *pb.RangeRequest) error {
	switch rev := req.GetRevision(); {
	case rev > x.before():
		return fault.FutureRevision
	case rev != 0 && rev < x.compacted():
		return fault.Compacted
	}
	if !x.answers || !x.looksBack(req) {
		return nil
	}
	f, err := x.look(req)
	if err == nil {
		x.past = append(x.past, f)
	}
	return err
}

// looksBack tells whether a range sees a state that the transaction doesn't change. All
// others see the newest values, which are in memory.
func (x *execution) looksBack(req *pb.RangeRequest) bool { return req.GetRevision() > 0 || x.readOnly }

func (x *execution) checkWrite() error {
	if x.readOnly {
		return fmt.Errorf("write in a transaction that was taken for one that only reads: %w", fault.Internal)
	}
	return nil
}

// execute carries out the chosen branches. Operations see those before them.
// From here on the writes can't be refused, and no step fails.
func (x *execution) execute(req *pb.TxnRequest, path *branches) *pb.TxnResponse {
	held, ops := path.follow(req)
	if !x.answers {
		for _, op := range ops {
			x.operation(op, path)
		}
		return nil
	}
	resp := &pb.TxnResponse{Succeeded: held, Responses: make([]*pb.ResponseOp, len(ops))}
	for i, op := range ops {
		if resp.Responses[i] = x.operation(op, path); resp.Responses[i] == nil {
			resp.Responses[i] = &pb.ResponseOp{}
		}
	}
	resp.Header = x.header(true)
	return resp
}

// operation carries out one operation. It returns nil if there is nothing to
// answer, or no request waits for the answer.
func (x *execution) operation(op *pb.RequestOp, path *branches) *pb.ResponseOp {
	switch r := op.GetRequest().(type) {
	case *pb.RequestOp_RequestRange:
		if !x.answers {
			break // it changes nothing
		}
		return &pb.ResponseOp{Response: &pb.ResponseOp_ResponseRange{ResponseRange: x.rangeOperation(r.RequestRange)}}
	case *pb.RequestOp_RequestPut:
		if resp := x.putOperation(r.RequestPut); resp != nil {
			return &pb.ResponseOp{Response: &pb.ResponseOp_ResponsePut{ResponsePut: resp}}
		}
	case *pb.RequestOp_RequestDeleteRange:
		if resp := x.deleteRange(r.RequestDeleteRange); resp != nil {
			if resp.Header != nil {
				// Inside a transaction only the state counts that it sees.
				resp.Header.Revision = x.current()
			}
			return &pb.ResponseOp{Response: &pb.ResponseOp_ResponseDeleteRange{ResponseDeleteRange: resp}}
		}
	case *pb.RequestOp_RequestTxn:
		if r.RequestTxn == nil {
			break
		}
		if resp := x.execute(r.RequestTxn, path); resp != nil {
			resp.Header = &pb.ResponseHeader{} // as in etcd
			return &pb.ResponseOp{Response: &pb.ResponseOp_ResponseTxn{ResponseTxn: resp}}
		}
	}
	return nil
}

func (x *execution) rangeOperation(req *pb.RangeRequest) *pb.RangeResponse {
	var f found
	if x.looksBack(req) {
		f, x.past = x.past[0], x.past[1:]
	} else {
		f = x.present(req)
	}
	return assemble(req, f, x.current()).Message()
}

func (x *execution) putOperation(req *pb.PutRequest) *pb.PutResponse {
	p := requestedPut(req)
	var prev kvwire.KeyValue
	if p.IgnoreValue || p.IgnoreLease {
		_, s := x.store(p.Key)
		prev = s.Get(p.Key)
	}
	x.write(&p, prev)
	if !x.answers {
		return nil
	}
	return x.putResponse(&p)
}

// puts tells whether a transaction has a put in any branch.
func puts(req *pb.TxnRequest) bool {
	return !every(req, func(op *pb.RequestOp) bool { return op.GetRequestPut() == nil })
}

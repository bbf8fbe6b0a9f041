package compose

import (
	"fmt"

	"go.etcd.io/etcd/api/v3/mvccpb"
	"google.golang.org/protobuf/proto"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
)

// placement is a message translated for its cluster.
type placement struct {
	cluster int
	message proto.Message
	// back makes the answer to the request, with the composition's keys, of the one to message. Nil: it is that.
	back func(proto.Message) proto.Message
	// mirrored is the route of a read that goes to a view.
	mirrored *route
	// locked: some of the keys may be locked by transactions over clusters.
	locked bool
}

// place translates a message for its cluster. It may change the message.
func (t *routing) place(m proto.Message) (placement, error) {
	var s segment
	var err error
	switch m := m.(type) {
	case *pb.RangeRequest:
		if s, err = t.rename(&m.Key, &m.RangeEnd); err == nil {
			return s.read(m), nil
		}
	case *pb.PutRequest:
		s, err = t.rename(&m.Key, nil)
	case *pb.DeleteRangeRequest:
		s, err = t.rename(&m.Key, &m.RangeEnd)
	case *pb.TxnRequest:
		return t.placeTxn(m)
	default:
		err = fmt.Errorf("compose: no route for a %T", m)
	}
	if err != nil {
		return placement{}, err
	}
	return s.placed(m), nil
}

// placed is where a request of the segment's keys, in its cluster's names, goes.
func (s *segment) placed(m proto.Message) placement {
	without, join := beside(m)
	p := placement{cluster: s.cluster, message: without, locked: s.locked}
	if r := s.route; join != nil || r.strip {
		p.back = func(a proto.Message) proto.Message {
			if join != nil {
				a = join(a.(*pb.TxnResponse))
			}
			r.turn(a)
			return a
		}
	}
	return p
}

// rename translates a key or range for its cluster.
func (t *routing) rename(key, end *[]byte) (segment, error) {
	if end == nil || len(*end) == 0 {
		s, err := t.one(*key)
		if err == nil && s.strip {
			*key = (*key)[len(s.prefix):]
		}
		return s, err
	}
	s, err := t.single(*key, *end)
	if err == nil && s.strip {
		*key, *end = s.there()
	}
	return s, err
}

// placed collects the routes of a transaction: all its keys must live in one
// cluster, each with a route of its own.
type placed struct {
	t        *routing
	first    *route
	stripped bool
	locked   bool
	routes   map[*pb.RequestOp]*route
	joins    map[*pb.RequestOp]join
}

func (t *routing) placeTxn(m *pb.TxnRequest) (placement, error) {
	p := &placed{t: t, routes: map[*pb.RequestOp]*route{}, joins: map[*pb.RequestOp]join{}}
	if t.strips {
		m = proto.Clone(m).(*pb.TxnRequest) // the comparisons are the caller's
	}
	if err := p.txn(m); err != nil {
		return placement{}, err
	}
	if p.first == nil {
		return placement{}, fmt.Errorf("%w: a transaction without any key", ErrNoRoute)
	}
	at := placement{cluster: p.first.cluster, message: m, locked: p.locked}
	if p.stripped || len(p.joins) > 0 {
		at.back = func(a proto.Message) proto.Message {
			p.backTxn(m, a.(*pb.TxnResponse))
			return a
		}
	}
	return at, nil
}

func (p *placed) txn(m *pb.TxnRequest) error {
	for _, c := range m.Compare {
		if _, err := p.key(&c.Key, &c.RangeEnd); err != nil {
			return err
		}
		if touchesReserved(c.Key, c.RangeEnd) {
			return fmt.Errorf("%w: a comparison of a range with such keys", ErrReserved)
		}
	}
	for _, ops := range [][]*pb.RequestOp{m.Success, m.Failure} {
		for _, op := range ops {
			if err := p.op(op); err != nil {
				return err
			}
		}
	}
	return nil
}

func (p *placed) op(op *pb.RequestOp) (err error) {
	var r *route
	switch o := op.Request.(type) {
	case *pb.RequestOp_RequestRange:
		r, err = p.key(&o.RequestRange.Key, &o.RequestRange.RangeEnd)
	case *pb.RequestOp_RequestPut:
		r, err = p.key(&o.RequestPut.Key, nil)
	case *pb.RequestOp_RequestDeleteRange:
		r, err = p.key(&o.RequestDeleteRange.Key, &o.RequestDeleteRange.RangeEnd)
	case *pb.RequestOp_RequestTxn:
		err = p.txn(o.RequestTxn)
	}
	p.routes[op] = r
	if err != nil || op.Request == nil || op.GetRequestTxn() != nil { // one of nothing is the cluster's to refuse
		return err
	}
	without, join := beside(inside(op))
	if op.Request = opOf(without).Request; join != nil {
		p.joins[op] = join
	}
	return nil
}

func (p *placed) key(key, end *[]byte) (*route, error) {
	s, err := p.t.rename(key, end)
	if err != nil {
		return nil, fmt.Errorf("in a transaction: %w", err)
	}
	r := s.route
	if p.first == nil {
		p.first = r
	}
	if p.first.cluster != r.cluster {
		return nil, fmt.Errorf("%w: a transaction has %q (cluster %s) and %q (cluster %s)", ErrSpans,
			p.first.prefix, p.t.names[p.first.cluster], r.prefix, p.t.names[r.cluster])
	}
	p.stripped, p.locked = p.stripped || r.strip, p.locked || s.locked
	return r, nil
}

// backTxn translates the answers of the branch that was taken.
func (p *placed) backTxn(m *pb.TxnRequest, a *pb.TxnResponse) {
	ops := m.Failure
	if a.Succeeded {
		ops = m.Success
	}
	for i, response := range a.Responses {
		if i >= len(ops) {
			return
		}
		r := p.routes[ops[i]]
		if join := p.joins[ops[i]]; join != nil {
			response.Response = responseOf(join(response.GetResponseTxn())).Response
		}
		switch o := response.Response.(type) {
		case *pb.ResponseOp_ResponseRange:
			r.turn(o.ResponseRange)
		case *pb.ResponseOp_ResponsePut:
			r.turn(o.ResponsePut)
		case *pb.ResponseOp_ResponseDeleteRange:
			r.turn(o.ResponseDeleteRange)
		case *pb.ResponseOp_ResponseTxn:
			p.backTxn(ops[i].GetRequestTxn(), o.ResponseTxn)
		}
	}
}

// turn puts the prefix back before the keys of an answer.
func (r *route) turn(m proto.Message) {
	if !r.strip {
		return
	}
	switch m := m.(type) {
	case *pb.RangeResponse:
		r.turnAll(m.Kvs)
	case *pb.PutResponse:
		r.turnOne(m.PrevKv)
	case *pb.DeleteRangeResponse:
		r.turnAll(m.PrevKvs)
	}
}

func (r *route) turnAll(kvs []*mvccpb.KeyValue) {
	for _, kv := range kvs {
		r.turnOne(kv)
	}
}

func (r *route) turnOne(kv *mvccpb.KeyValue) {
	if kv != nil {
		kv.Key = r.here(kv.Key)
	}
}

// kindOf is a message's kind for the order.
func kindOf(m proto.Message) kind {
	switch m := m.(type) {
	case *pb.RangeRequest:
		return read
	case *pb.TxnRequest:
		if !writes(m) {
			return read
		}
	}
	return update
}

func writes(t *pb.TxnRequest) bool {
	for _, ops := range [][]*pb.RequestOp{t.Success, t.Failure} {
		for _, op := range ops {
			switch o := op.Request.(type) {
			case *pb.RequestOp_RequestPut, *pb.RequestOp_RequestDeleteRange:
				return true
			case *pb.RequestOp_RequestTxn:
				if writes(o.RequestTxn) {
					return true
				}
			}
		}
	}
	return false
}

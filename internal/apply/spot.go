package apply

import (
	"fmt"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/protobuf/proto"

	"github.com/stoa-kv/stoa/internal/command"
	"github.com/stoa-kv/stoa/internal/extension"
	"github.com/stoa-kv/stoa/internal/fault"
	"github.com/stoa-kv/stoa/internal/placement"
)

// spot is a key or a range that a request names.
type spot struct {
	key, end []byte
	written  bool // put or deleted
	deleted  bool
}

// subject returns the kind of operation of a request, and its keys, as extensions are asked
// about them. It appends to spots, so that the usual request costs no allocation.
func (m *Machine) subject(req proto.Message, spots []spot) (extension.Op, []spot) {
	op, spots := named(req, spots)
	for i := range spots {
		spots[i].end = m.endOf(spots[i].key, spots[i].end)
	}
	return op, spots
}

// endOf is the end of a range as extensions are asked about it: a single key is that key, however it
// is written.
func (m *Machine) endOf(key, end []byte) []byte {
	if placement.IsPoint(key, end) && m.Level() >= levelOfPoints {
		return nil
	}
	return end
}

func named(req proto.Message, spots []spot) (extension.Op, []spot) {
	switch r := req.(type) {
	case *pb.PutRequest:
		return extension.Put, append(spots, spot{key: r.GetKey(), written: true})
	case *pb.DeleteRangeRequest:
		return extension.Delete, append(spots, spot{r.GetKey(), r.GetRangeEnd(), true, true})
	case *pb.RangeRequest:
		return extension.Read, append(spots, spot{key: r.GetKey(), end: r.GetRangeEnd()})
	case *pb.WatchCreateRequest:
		return extension.Block, append(spots, spot{key: r.GetKey(), end: r.GetRangeEnd()})
	case *pb.TxnRequest:
		return extension.Txn, txnSpots(r, spots)
	}
	return extension.Txn, nil
}

func txnSpots(r *pb.TxnRequest, spots []spot) []spot {
	for _, c := range r.GetCompare() {
		spots = append(spots, spot{key: c.GetKey(), end: c.GetRangeEnd()})
	}
	for _, ops := range [...][]*pb.RequestOp{r.GetSuccess(), r.GetFailure()} {
		for _, op := range ops {
			switch q := op.GetRequest().(type) {
			case *pb.RequestOp_RequestRange:
				spots = append(spots, spot{key: q.RequestRange.GetKey(), end: q.RequestRange.GetRangeEnd()})
			case *pb.RequestOp_RequestPut:
				spots = append(spots, spot{key: q.RequestPut.GetKey(), written: true})
			case *pb.RequestOp_RequestDeleteRange:
				spots = append(spots, spot{q.RequestDeleteRange.GetKey(), q.RequestDeleteRange.GetRangeEnd(), true, true})
			case *pb.RequestOp_RequestTxn:
				spots = txnSpots(q.RequestTxn, spots)
			}
		}
	}
	return spots
}

// handlersOf returns the extensions that subscribe to a request, in the order in which
// they are asked, each once however many keys of the request concern it.
func handlersOf(reg *extension.Registry, op extension.Op, spots []spot) []*extension.Extension {
	if len(spots) == 1 {
		return reg.Operation(op, spots[0].key, spots[0].end)
	}
	var list []*extension.Extension
	seen := map[*extension.Extension]struct{}{}
	for _, s := range spots {
		if !reg.Concerns(s.key) {
			continue // a pattern that covers a range covers its first key
		}
		for _, e := range reg.Operation(op, s.key, s.end) {
			if _, ok := seen[e]; !ok {
				seen[e] = struct{}{}
				list = append(list, e)
			}
		}
	}
	latestFirst(list)
	return list
}

// strictOf returns the strict extensions that have to agree to a request's writes.
func strictOf(reg *extension.Registry, spots []spot) (list []*extension.Extension) {
	if !reg.HasStrict() {
		return nil
	}
	seen := map[*extension.Extension]struct{}{}
	for _, s := range spots {
		if !s.written {
			continue
		}
		for _, e := range reg.Strict(s.key, s.end) {
			if _, ok := seen[e]; !ok {
				seen[e] = struct{}{}
				list = append(list, e)
			}
		}
	}
	return list
}

// agreed refuses ordinary writes of keys that operations of a strict extension name, by a
// client that may not use it: it means another request, and would not notice.
func (x *execution) agreed(call *command.Call, req proto.Message) error {
	reg := x.m.Extensions()
	if !reg.HasStrict() {
		return nil
	}
	_, spots := x.m.subject(req, nil)
	for _, e := range strictOf(reg, spots) {
		if e.Order > call.Version || x.covers(x.m.home(e)) != nil {
			return fault.Moved // registered since, or keys were moved
		}
		if !mayUse(view{x}, e, call.Client) {
			if err := x.permit(req); err != nil && x.m.Level() >= levelOfHiddenExtensions {
				return err // nor may the user know of the extension
			}
			return fault.Unacknowledged.With(fmt.Sprintf("stoa: client %q has not acknowledged extension %q, which is strict: its keys can't be written as ordinary ones; "+
				"acknowledge it with: put %sack \"\" (or stoactl extension ack %s)", call.Client, e.Name, extension.Home(e.Name), e.Name))
		}
	}
	return nil
}

package compose

import (
	"fmt"
	"strings"

	"google.golang.org/protobuf/proto"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"

	mirrored "github.com/stoa-kv/stoa/client/mirror/cluster"
)

// The keys of the protocols, those of transactions, commands and mirrors, are in the clusters beside those of the
// clients, below /stoa/. A client that deleted a record or a mark would break what others were promised. So a request of
// such a key is refused, and one of a range around them is done without them.

// isReserved reports whether a key, by its name in its cluster, is a protocol's.
func isReserved(key string) bool { return strings.HasPrefix(key, mirrored.Reserved) }

// touchesReserved reports whether a key is a protocol's, or a range has some that are.
func touchesReserved(key, end []byte) bool {
	if len(end) == 0 {
		return isReserved(string(key))
	}
	from, to := bounds(key, end)
	reserved := mirrored.Prefix(mirrored.Reserved)
	return from < reserved.End && (to == "" || to > reserved.From)
}

// keyRange is a range as etcd has it.
type keyRange struct{ key, end []byte }

// unreserved is what a range that touches the reserved keys has before them, and behind them.
func unreserved(key, end []byte) (parts []keyRange) {
	from, to := bounds(key, end)
	reserved := mirrored.Prefix(mirrored.Reserved)
	if from < reserved.From {
		parts = append(parts, keyRange{key, []byte(reserved.From)})
	}
	if to == "" || to > reserved.End {
		parts = append(parts, keyRange{[]byte(reserved.End), end})
	}
	return parts
}

// checkReserved refuses a segment that has no keys but reserved ones.
func (s *segment) checkReserved() error {
	if key, end := s.there(); touchesReserved(key, end) && len(unreserved(key, end)) == 0 {
		return fmt.Errorf("%w: range %s", ErrReserved, spell(s.from, s.to))
	}
	return nil
}

// checkAllReserved is checkReserved of each segment.
func checkAllReserved(all []segment) error {
	for i := range all {
		if err := all[i].checkReserved(); err != nil {
			return err
		}
	}
	return nil
}

// join makes the answer to a request of the one to the transaction that it has become.
type join func(*pb.TxnResponse) proto.Message

// beside takes the reserved keys out of a request, in its cluster's names, that has others, too. If it has keys on both
// sides of them it becomes a transaction with two ranges.
func beside(m proto.Message) (without proto.Message, _ join) {
	var together join
	var parts []*pb.RequestOp
	switch m := m.(type) {
	case *pb.RangeRequest:
		if !touchesReserved(m.Key, m.RangeEnd) {
			return m, nil
		}
		for _, r := range unreserved(m.Key, m.RangeEnd) {
			part := proto.Clone(m).(*pb.RangeRequest)
			part.Key, part.RangeEnd = r.key, r.end
			part.KeysOnly = m.KeysOnly && m.SortTarget != pb.RangeRequest_VALUE // they are sorted again
			parts = append(parts, opOf(part))
		}
		together = func(a *pb.TxnResponse) proto.Message { return joinRanges(m, a) }
	case *pb.DeleteRangeRequest:
		if !touchesReserved(m.Key, m.RangeEnd) {
			return m, nil
		}
		for _, r := range unreserved(m.Key, m.RangeEnd) {
			parts = append(parts, opOf(&pb.DeleteRangeRequest{Key: r.key, RangeEnd: r.end, PrevKv: m.PrevKv}))
		}
		together = joinDeletions
	default:
		return m, nil
	}
	if len(parts) == 1 {
		return inside(parts[0]), nil
	}
	return &pb.TxnRequest{Success: parts}, together
}

func joinRanges(asked *pb.RangeRequest, a *pb.TxnResponse) proto.Message {
	var answers []*pb.RangeResponse
	for _, r := range a.Responses {
		answers = append(answers, r.GetResponseRange())
	}
	all := (&span{asked: asked}).merge(answers)
	all.Header = a.Header
	if asked.KeysOnly {
		for _, kv := range all.Kvs {
			kv.Value = nil
		}
	}
	return all
}

func joinDeletions(a *pb.TxnResponse) proto.Message {
	all := &pb.DeleteRangeResponse{Header: a.Header}
	for _, r := range a.Responses {
		one := r.GetResponseDeleteRange()
		all.Deleted += one.GetDeleted()
		all.PrevKvs = append(all.PrevKvs, one.GetPrevKvs()...)
	}
	return all
}

// responseOf has the answer to one of two ranges as that to an operation.
func responseOf(m proto.Message) *pb.ResponseOp {
	if m, ok := m.(*pb.DeleteRangeResponse); ok {
		return &pb.ResponseOp{Response: &pb.ResponseOp_ResponseDeleteRange{ResponseDeleteRange: m}}
	}
	return &pb.ResponseOp{Response: &pb.ResponseOp_ResponseRange{ResponseRange: m.(*pb.RangeResponse)}}
}

package apply

import (
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/protobuf/proto"

	"github.com/stoa-kv/stoa/internal/command"
)

// samples is how many commands of a large entry are sampled for the meter, at most: a sample
// costs a thirtieth of a put.
const samples = 8

// sampling returns the first command of an entry that is sampled, and the distance to the next.
// Which it is depends on the entry, so that a pattern in requests doesn't hide some of them.
func sampling(e *command.Entry) (first, every int) {
	every = (len(e.Commands) + samples - 1) / samples
	if every > 1 {
		first = int(e.Seq % uint64(every))
	}
	return first, every
}

// sample reports a command that has been executed to the meter.
func (x *execution) sample(c *command.Command, every int) {
	if x.about == nil {
		return // it concerns all partitions
	}
	steps := x.callSteps
	for _, t := range x.tallies {
		steps += t.steps
	}
	weight := 1 + int64(len(c.Body))/512 + steps/100
	at := x.m.Placement().Spot(x.about)
	x.m.Meter.Sampled(&at, weight*int64(every))
}

// keyOf is the first key that a request names, nil if there is none.
func keyOf(req proto.Message) []byte {
	switch r := req.(type) {
	case *pb.PutRequest:
		return r.GetKey()
	case *pb.RangeRequest:
		return r.GetKey()
	case *pb.DeleteRangeRequest:
		return r.GetKey()
	case *pb.TxnRequest:
		return keyOfTxn(r)
	}
	return nil
}

func keyOfTxn(r *pb.TxnRequest) []byte {
	if c := r.GetCompare(); len(c) > 0 {
		return c[0].GetKey()
	}
	for _, ops := range [...][]*pb.RequestOp{r.GetSuccess(), r.GetFailure()} {
		if len(ops) == 0 {
			continue
		}
		switch op := ops[0].GetRequest().(type) {
		case *pb.RequestOp_RequestPut:
			return op.RequestPut.GetKey()
		case *pb.RequestOp_RequestRange:
			return op.RequestRange.GetKey()
		case *pb.RequestOp_RequestDeleteRange:
			return op.RequestDeleteRange.GetKey()
		case *pb.RequestOp_RequestTxn:
			return keyOfTxn(op.RequestTxn)
		}
	}
	return nil
}

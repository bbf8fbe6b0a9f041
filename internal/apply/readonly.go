package apply

import pb "go.etcd.io/etcd/api/v3/etcdserverpb"

// ReadOnly says that no branch of a transaction writes.
func ReadOnly(r *pb.TxnRequest) bool {
	return every(r, func(op *pb.RequestOp) bool { return op.GetRequestRange() != nil })
}

// Serializable says that a transaction reads, and that none of its reads asks for more
// than this server. One that only compares doesn't say so, and is strict. (etcd answers
// that one from the server's own state, which can be older than its client's last write.)
func Serializable(r *pb.TxnRequest) bool {
	reads := false
	return every(r, func(op *pb.RequestOp) bool {
		reads = true
		return op.GetRequestRange() == nil || op.GetRequestRange().GetSerializable()
	}) && reads
}

// every tells whether all operations of a transaction are so, in both branches and in nested ones. It looks at them in
// their order, up to the first that isn't.
func every(r *pb.TxnRequest, is func(*pb.RequestOp) bool) bool {
	for _, ops := range [...][]*pb.RequestOp{r.GetSuccess(), r.GetFailure()} {
		for _, op := range ops {
			if t := op.GetRequestTxn(); t != nil {
				if !every(t, is) {
					return false
				}
			} else if !is(op) {
				return false
			}
		}
	}
	return true
}
